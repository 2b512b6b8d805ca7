"""Task queues as a table: which have tasks waiting for a thread, how many are done, how long a task runs. Pure.

A thread in a permanent loop is a task that never ends: of such queues nothing here is a latency, and none is shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from latmon.taskqs import Summed
from latmon.views.columns import Field, table
from latmon.views.lines import Line
from latmon.views.units import UNKNOWN, mean, rate, whole

IDLE = "no task queue was busy"
_LOOPS = "permanent loops"


def taskqs(some: Sequence[Summed], selected: int, size: tuple[int, int]) -> list[Line]:
    """Titles and as many rows as fit around the selected one."""
    return table(_FIELDS, some, selected, size, why=IDLE)


def _rate(one: Summed) -> str:
    return UNKNOWN if one.last.loops or one.per_second is None else rate(one.per_second)


def _mean(one: Summed) -> str:
    return UNKNOWN if one.last.loops else mean(one.mean_us)


_FIELDS: tuple[Field[Summed], ...] = (
    Field("task queue", 15, lambda s, _: s.last.name, right=False, most=32),
    Field("inst", 4, lambda s, _: str(s.last.instance), rank=2, role="dim"),
    Field("prio", 4, lambda s, _: whole(s.last.priority)),
    Field("thr", 4, lambda s, _: whole(s.last.threads)),
    Field("active", 6, lambda s, _: whole(s.active)),
    Field("waiting", 7, lambda s, _: whole(s.waiting), role="strong"),
    Field("most", 5, lambda s, _: whole(s.last.most), rank=1, role="dim"),
    Field("done/s", 6, lambda s, _: _rate(s)),
    Field("run", 5, lambda s, _: _mean(s)),
    Field("", 15, lambda s, _: _LOOPS if s.last.loops else "", rank=1, right=False, role="dim"),
)
