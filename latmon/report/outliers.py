"""Outliers of a report: the longest of a recording, their JSON rows, and the sentences of text and HTML."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from latmon.analysis.attribution import Folded, fold
from latmon.model.frame import UNACCOUNTED, Outlier, Wait, pid_of
from latmon.model.stages import COLUMNS, StageSum, stage_sum
from latmon.report.formatting import ordered, wrapped
from latmon.support.units import UNKNOWN, part, rfc3339
from latmon.views.units import exact, until

MAX_SHOWN = 5
"""Outliers in the text report."""
_BAR = 24
_FEW_US = 1
NOT_TRACED = "stages were not traced then"
_Json = Mapping[str, Any]
MAX_ROWS = 1000
_KEPT = 4 * MAX_ROWS
"""Outliers that are kept before similar neighbours are merged into rows."""


@dataclass
class Worst:
    """Longest outliers of any number of them, in bounded memory."""

    seen: int = 0
    longest: dict[str, Outlier] = field(default_factory=dict)
    """Longest outlier of each device."""
    _heap: list[tuple[int, int, Outlier]] = field(default_factory=list)

    def add(self, one: Outlier) -> None:
        self.seen += 1
        had = self.longest.get(one.device)
        if had is None or one.total_us > had.total_us:
            self.longest[one.device] = one
        entry = (one.total_us, -self.seen, one)
        if len(self._heap) < _KEPT:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    @property
    def kept(self) -> list[Outlier]:
        """Return the longest ones, in no order."""
        return [one for _, _, one in self._heap]

    def rows(self) -> list[Folded]:
        """Return (outlier, repeats), the longest first."""
        folded = fold(self.kept)
        return sorted(folded, key=lambda row: (-row.outlier.total_us, row.outlier.mono_us))[:MAX_ROWS]


def outliers(worst: Worst) -> dict[str, Any]:
    """Return the keys `outliers` and, if some have no row, `outliers_left_out`."""
    rows = worst.rows()
    left_out = worst.seen - sum(repeats for _, repeats in rows)
    reported = {"outliers": [_row(one, repeats) for one, repeats in rows]}
    return reported | ({"outliers_left_out": left_out} if left_out else {})


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
        "waits": [wait_row(wait) for wait in one.waits],
        **({"own": True} if one.own else {}),
        **{name: us for name in ("admission_us", "inserted_us") if (us := getattr(one, name)) is not None},
    }


def wait_row(one: Wait) -> dict[str, Any]:
    """Return the JSON of a thread's late wake-up."""
    return {
        "stage": one.stage,
        "thread": one.thread,
        "pid": pid_of(one.pid),
        "priority": one.priority,
        "woken_mono_us": one.woken_us,
        "delay_us": one.delay_us,
        "instead": one.instead or None,
        "ran_us": one.ran_us or None,
    }


class OutlierCounts(NamedTuple):
    """Numbers of I/Os above the thresholds: all, those recorded, and those the rate limit left out."""

    above: int
    recorded: int
    left_out: int


def counts(summary: _Json) -> OutlierCounts:
    """Return the counts of a report with outliers."""
    return OutlierCounts(
        sum(sum(one.get("above", {}).values()) for one in summary["devices"].values()),
        sum(one["repeats"] for one in summary["outliers"]) + summary.get("outliers_left_out", 0),
        summary["health"].get("suppressed", 0),
    )


def issuer(row: _Json) -> str:
    """Return name and pid of the process that issued an I/O: `ora_lgwr/4211`; latmon's own is `latmon's bpftrace/7`."""
    own = "latmon's " if row.get("own") else ""
    return f"{own}{row['comm'] or UNKNOWN}/{_known(row['pid'])}"


def request(row: _Json) -> list[str]:
    """Return an I/O's operation with its flags, its size and its sector, as far as they are known."""
    found = [" ".join([row["op"], *row["flags"]])]
    found += [] if row["bytes"] is None else [f"{row['bytes']:,} B"]
    return found + ([] if row["sector"] is None else [f"sector {row['sector']:,}"])


def circumstances(one: _Json) -> list[str]:
    """Return an outlier's CPUs, the I/Os in flight with it, and its completion path."""
    found = [f"CPU {_known(one['cpu_issue'])} to {_known(one['cpu_complete'])}"]
    found.append(
        f"{_known(one['outstanding_at_issue'])} in flight at issue, overtaken by {_known(one['overtaken_by'])}"
    )
    return [*found, *([one["path"]] if one["path"] else [])]


def waits(one: _Json) -> Iterator[str]:
    """Yield a sentence for each thread that an outlier, or an operation on a file, waited for."""
    for wait in one["waits"]:
        span = f" for {exact(wait['ran_us'])}" if wait["ran_us"] else ""
        instead = f"; {wait['instead']} ran instead{span}" if wait["instead"] else ""
        delay = exact(wait["delay_us"])
        yield f"{wait['stage']}: {wait['thread']} (prio {wait['priority']}) woken, ran {delay} later{instead}"


def text(summary: _Json) -> list[str]:
    """Return the text report's lines on the longest outliers; nothing without outliers."""
    if not summary.get("outliers"):
        return []
    every, of = summary["outliers"], counts(summary)
    head = (
        f"outliers: {of.above:,} I/Os above the threshold, {of.recorded:,} recorded, "
        f"{of.left_out:,} left out by the rate limit"
    )
    more = len(every) - MAX_SHOWN
    rows = [line for one in every[:MAX_SHOWN] for line in _lines(one)]
    return [*wrapped(head), *rows, *([f"  and {more:,} more rows"] if more > 0 else [])]


def _lines(one: _Json) -> Iterator[str]:
    repeats = [f"x{one['repeats']}"] if one["repeats"] > 1 else []
    parts = [one["time"] or UNKNOWN, one["device"], *request(one), issuer(one), *repeats]
    yield from wrapped("  ".join(parts), "  ")
    about = "; ".join([f"total {exact(one['total_us'])} {until(one['stages_us'])}", *circumstances(one)])
    yield from wrapped(about, "    ")
    yield from _bars(one)
    for sentence in waits(one):
        yield from wrapped(sentence, "      ")


def sum_of(one: _Json) -> StageSum | None:
    """Return the sum of an outlier's stages; None where they were not traced."""
    if not one["stages_us"] and not one["unaccounted_us"]:
        return None
    return stage_sum(one["stages_us"], one["includes"], one["unaccounted_us"], one["total_us"])


def _bars(one: _Json) -> Iterator[str]:
    """Yield a line for each stage with its part of the total."""
    found = sum_of(one)
    if found is None:
        yield f"      {NOT_TRACED}"
        return
    for name, us in ordered(found.parts, COLUMNS):
        if name == UNACCOUNTED and us <= _FEW_US and one["stages_us"]:
            continue
        share = min(1.0, us / one["total_us"]) if one["total_us"] else 0.0
        yield f"      {name[:12]:<12}{exact(us):>16} {part(share):>5} {'#' * round(share * _BAR)}".rstrip()


def _known(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)
