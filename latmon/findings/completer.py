"""The thread that slow I/Os waited for until it completed them, as rows of single I/Os or its own wake-ups tell it.

A row names it. Without one it is a kernel thread that was woken as late and whose name ties it to the device; any other
late thread may be anybody's. No judgment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from latmon.findings.behind import serves
from latmon.findings.facts import Facts
from latmon.model import Outlier, Wait, Wakeups

STAGE = "completion"
_REAL_TIME = 100


class Completer(NamedTuple):
    """It was woken, and ran up to `longest_us` later."""

    number: int
    name: str
    priority: int | None
    longest_us: int
    instead: str
    """Who most often had its CPU, as comm (prio N); empty when not known."""
    wakeups: Wakeups | None

    @property
    def said(self) -> str:
        prio = "" if self.priority is None else f"(prio {self.priority})"
        return " ".join(filter(None, ("the completion thread", self.name, prio)))


def by_rows(facts: Facts, told: Iterable[Outlier], delay_us: float) -> Completer | None:
    """Of those for which these I/Os waited so long or longer the one with the most of them."""
    long = [wait for one in told for wait in one.waits if wait.stage == STAGE and wait.delay_us >= delay_us]
    if not long:
        return None
    number = Counter(wait.pid for wait in long).most_common(1)[0][0]
    return _of_waits([wait for wait in long if wait.pid == number], facts)


def by_name(facts: Facts, device: str, delay_us: float) -> Completer | None:
    """The latest one that is tied to the device and was so late or later; None where none is."""
    late = [
        one
        for one in facts.wakeups
        if one.thread.kernel and (one.delay.max_bound or 0) >= delay_us and serves(facts, one.thread.comm, device)
    ]
    one = max(late, key=lambda some: (some.delay.max_bound or 0, some.thread.pid), default=None)
    if one is None:
        return None
    thread = one.thread
    priority = thread.priority if thread.priority >= 0 else None
    return Completer(thread.pid, thread.comm, priority, one.delay.max_bound or 0, _most(one), one)


def ordered(priority: int, is_sun: bool) -> str:
    """A priority with what it means on that kernel."""
    if is_sun:
        return f"{priority}; a higher number goes first"
    kind = "real time" if priority < _REAL_TIME else "an ordinary thread's"
    return f"{priority} ({kind}); a lower number goes first"


def _of_waits(waits: list[Wait], facts: Facts) -> Completer:
    longest = max(waits, key=lambda wait: wait.delay_us)
    told = next((one for one in facts.wakeups if one.thread.pid == longest.pid), None)
    instead = Counter({wait.instead: wait.delay_us for wait in waits if wait.instead}).most_common(1)
    known = instead[0][0] if instead else _most(told) if told else ""
    priorities = (longest.priority, told.thread.priority if told else -1)
    priority = next((one for one in priorities if one >= 0), None)
    return Completer(longest.pid, longest.thread, priority, longest.delay_us, known, told)


def _most(one: Wakeups) -> str:
    return max(one.instead, key=lambda name: (one.instead[name], name), default="")
