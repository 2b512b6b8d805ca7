"""Wake-ups as a table: threads that complete or wait for I/O, how long from woken to running, who ran instead. Pure.

`rows` sorts once per frame, `wakeups` draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from latmon.model import Wakeups, pid_of
from latmon.views.columns import Field, table
from latmon.views.lines import Line
from latmon.views.units import UNKNOWN, count, maximum, quantile, whole

_REAL_TIME = 100
_NICE_0 = 120


def rows(threads: Iterable[Wakeups]) -> tuple[Wakeups, ...]:
    """The thread that waited longest first."""
    return tuple(sorted(threads, key=lambda w: (-(w.delay.max_bound or 0), -w.delay.count, w.thread.pid)))


def wakeups(some: Sequence[Wakeups], selected: int, size: tuple[int, int], *, why: str = "") -> list[Line]:
    """Titles and as many rows as fit around the selected one."""
    return table(_FIELDS, some, selected, size, why=why)


def policy(one: Wakeups) -> str:
    """As an admin sets it (fifo 50, nice -20); the kernel's own number has a column of its own."""
    thread = one.thread
    if thread.policy in ("fifo", "rr"):
        return f"{thread.policy} {_REAL_TIME - 1 - thread.priority}"
    if thread.policy in ("", "deadline"):
        return thread.policy or UNKNOWN
    nice = thread.priority - _NICE_0
    name = "nice" if thread.policy == "other" else thread.policy
    return f"{name} {nice}" if thread.priority >= _REAL_TIME else f"{thread.policy}"


def _instead(who: Mapping[str, int]) -> str:
    return ", ".join(f"{name} x{whole(n)}" for name, n in sorted(who.items(), key=lambda item: -item[1]))


_FIELDS: tuple[Field[Wakeups], ...] = (
    Field("thread", 15, lambda w, _: w.thread.comm, right=False, most=90),
    Field("pid", 7, lambda w, _: str(pid_of(w.thread.pid) or ""), rank=2, role="dim"),
    Field("policy", 8, lambda w, _: policy(w), rank=1, right=False),
    Field("prio", 4, lambda w, _: str(w.thread.priority), rank=1),
    Field("count", 7, lambda w, _: count(w.delay.count), rank=1),
    Field("p50", 5, lambda w, _: quantile(w.delay, 0.5), rank=2),
    Field("p99", 5, lambda w, _: quantile(w.delay, 0.99)),
    Field("max", 5, lambda w, _: maximum(w.delay)),
    Field("ran instead", 15, lambda w, _: _instead(w.instead), rank=1, right=False, most=80, role="dim"),
)
