"""Wake-up delays of threads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from latmon.model.frame import Outlier, Thread
from latmon.model.histogram import Histogram
from latmon.model.table import MAX_PID, TEXT, Cell, Meaning, Part, Table, Unit, Value, always, fact, named

_PID = Part(Meaning.THREAD_NUMBER, highest=MAX_PID)
_PRIORITY = 1 << 16


class ThreadNumber(NamedTuple):
    """Key of the wake-ups of a thread."""

    pid: int
    """Number of the thread, as Thread has it."""


@dataclass(frozen=True, slots=True)
class Wakeups:
    """Wake-up delays of one thread in an interval. Other threads are those of its delays from 1 ms on."""

    thread: Thread
    delay: Histogram
    instead: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Thread -> delays in which it ran longest; where no times are known, in which it ran last."""
    ran_us: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Thread -> the time that it ran there meanwhile; NOT_KNOWN: the rest of these delays."""

    @property
    def weights(self) -> Mapping[str, int]:
        """Return the other threads by their known times, else by the number of delays."""
        return self.ran_us or self.instead


def _made(*cells: Any) -> Wakeups:
    *thread, instead, ran_us, delay = cells
    return Wakeups(Thread(*thread), delay, instead, ran_us)


def _split(woken: Wakeups) -> tuple[Any, ...]:
    thread = woken.thread
    return (
        *(thread.pid, thread.comm, thread.policy, thread.priority, thread.kernel),
        *(woken.instead, woken.ran_us, woken.delay),
    )


WAKEUPS = Table(
    "wakeups",
    ThreadNumber,
    (_PID,),
    Value(
        (
            fact("pid", 0, _PID, of_key=True),
            fact("comm", "", Part(Meaning.NAME)),
            fact("policy", "", TEXT),
            fact("priority", -1, Part(lowest=-_PRIORITY, highest=_PRIORITY)),
            fact("kernel", True),
            named("instead", Part(Meaning.THREAD)),
            named("ran_us", Part(Meaning.THREAD), is_optional=True),
            Cell("delay", Unit.LATENCIES),
        ),
        _made,
        _split,
    ),
    group="wakeups",
    export_name="wakeup",
    row_title="a wake-up",
    is_sampled=always,
    counts_ios=False,
    is_timed=True,
)


def exact_delays(each: Iterable[Wakeups], outliers: Iterable[Outlier]) -> Iterator[Wakeups]:
    """Yield the rows with the exact longest delay, where the waits of recorded slow I/Os show it."""
    delays: dict[int, dict[int, int]] = {}
    for outlier in outliers:
        for wait in outlier.waits:
            delays.setdefault(wait.pid, {})[wait.woken_us] = wait.delay_us
    for woken in each:
        of_thread = delays.get(woken.thread.pid)
        yield replace(woken, delay=woken.delay.with_longest(of_thread.values())) if of_thread else woken


def by_thread(each: Iterable[Wakeups]) -> dict[ThreadNumber, Wakeups]:
    """Return the rows of WAKEUPS, of which each is of another thread."""
    return {ThreadNumber(woken.thread.pid): woken for woken in each}
