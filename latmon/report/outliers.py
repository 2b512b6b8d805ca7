"""The outliers of a recording: the worst of them, identical neighbours as one row, and how many are left out."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from latmon.deep import Folded, fold
from latmon.model import Outlier, Wait, pid_of
from latmon.report.figures import rfc3339
from latmon.views.units import UNKNOWN

MAX_ROWS = 1000
_KEPT = 4 * MAX_ROWS
"""Before neighbours are folded."""


@dataclass
class Worst:
    """The longest of any number of outliers, in bounded memory."""

    seen: int = 0
    _heap: list[tuple[int, int, Outlier]] = field(default_factory=list)

    def add(self, one: Outlier) -> None:
        self.seen += 1
        entry = (one.total_us, -self.seen, one)
        if len(self._heap) < _KEPT:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    def rows(self) -> list[Folded]:
        """(outlier, repeats), the longest first."""
        folded = fold([one for _, _, one in self._heap])
        return sorted(folded, key=lambda row: (-row.outlier.total_us, row.outlier.mono_us))[:MAX_ROWS]


def outliers(worst: Worst) -> dict[str, Any]:
    """The keys `outliers` and, where some have no row, `outliers_left_out`."""
    rows = worst.rows()
    left_out = worst.seen - sum(repeats for _, repeats in rows)
    told = {"outliers": [_row(one, repeats) for one, repeats in rows]}
    return told | ({"outliers_left_out": left_out} if left_out else {})


def issuer(row: Mapping[str, Any]) -> str:
    """Return the name of the process that issued a row's I/O: `ora_lgwr`, of latmon itself `latmon's bpftrace`."""
    own = "latmon's " if row.get("own") else ""
    return f"{own}{row['comm'] or UNKNOWN}"


def _row(one: Outlier, repeats: int) -> dict[str, Any]:
    return {
        "time": rfc3339(one.wall, "microseconds"),
        "mono_us": one.mono_us,
        "device": one.device,
        "op": one.op,
        "flags": list(one.flags),
        "sector": one.sector,
        "bytes": one.bytes,
        "pid": one.pid,
        "comm": one.comm or None,
        "cpu_issue": one.cpu_issue,
        "cpu_complete": one.cpu_complete,
        "outstanding_at_issue": one.outstanding_at_issue,
        "overtaken_by": one.overtaken_by,
        "total_us": one.total_us,
        "stages_us": dict(one.stages_us),
        "unaccounted_us": one.unaccounted_us,
        "repeats": repeats,
        "path": one.path or None,
        "includes": {stage: list(others) for stage, others in one.includes.items()},
        "waits": [_wait(wait) for wait in one.waits],
        **({"own": True} if one.own else {}),
    }


def _wait(one: Wait) -> dict[str, Any]:
    return {
        "stage": one.stage,
        "thread": one.thread,
        "pid": pid_of(one.pid),
        "priority": one.priority,
        "woken_mono_us": one.woken_us,
        "delay_us": one.delay_us,
        "instead": one.instead or None,
    }
