"""The thread that slow I/Os waited for until it completed them, as rows of single I/Os or its own wake-ups tell it.

A row names it. Without one it is a kernel thread that was woken as late and whose name ties it to the device; any other
late thread may be anybody's. No judgment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from latmon.findings.behind import serves
from latmon.findings.facts import Facts
from latmon.model import Outlier, Wait, Wakeups

STAGE = "completion"


class Completer(NamedTuple):
    """It was woken, and ran up to `longest_us` later."""

    number: int
    name: str
    priority: int | None
    longest_us: int
    instead: str
    """The thread that had its CPU for most of that time, as comm (prio N); empty when not known."""
    wakeups: Wakeups | None
    instead_us: int = 0
    """How long `instead` had the CPU in the waits of the I/Os that are known one by one; 0 where none is."""
    waits_us: int = 0
    """The sum of all those waits."""

    @property
    def is_mixed(self) -> bool:
        """Whether other threads had the CPU in some of the waits."""
        return 0 < self.instead_us < self.waits_us

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
    return Completer(thread.pid, thread.comm, priority, one.delay.max_bound or 0, _dominant(one.instead).label, one)


def _of_waits(waits: list[Wait], facts: Facts) -> Completer:
    longest = max(waits, key=lambda wait: wait.delay_us)
    told = next((one for one in facts.wakeups if one.thread.pid == longest.pid), None)
    labels = Counter[str]()
    for wait in waits:
        labels[wait.instead] += wait.delay_us
    by = _dominant({label: us for label, us in labels.items() if label})
    priorities = (longest.priority, told.thread.priority if told else -1)
    priority = next((one for one in priorities if one >= 0), None)
    return Completer(
        longest.pid,
        longest.thread,
        priority,
        longest.delay_us,
        by.label or (_dominant(told.instead).label if told else ""),
        told,
        by.weight,
        labels.total(),
    )


class _Dominant(NamedTuple):
    label: str = ""
    weight: int = 0


def _dominant(labels: Mapping[str, int]) -> _Dominant:
    """Return the thread with the greatest weight over all of its labels, as its own heaviest label.

    A label is `comm (prio N)`, and a thread's priority may change from wait to wait (a time-sharing class, a boost).
    """
    names = Counter[str]()
    for label, weight in labels.items():
        names[_comm(label)] += weight
    if not names:
        return _Dominant()
    name = max(names, key=lambda one: (names[one], one))
    own = [label for label in labels if _comm(label) == name]
    return _Dominant(max(own, key=lambda one: (labels[one], one)), names[name])


def _comm(label: str) -> str:
    return label.rpartition(" (prio ")[0] or label
