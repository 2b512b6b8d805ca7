"""Who a thread is: comm, scheduling policy and priority of a tid, from the probes' `thread` records, else /proc/TID.

Owns what is remembered of threads that are gone, bounded. Knows neither probes nor tables.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from latmon.files import content
from latmon.model import Thread
from latmon.records import Record
from latmon.text import clean

POLICIES = ("other", "fifo", "rr", "batch", "", "idle", "deadline", "ext")
"""By their numbers in include/uapi/linux/sched.h."""
KTHREAD = 0x00200000
"""PF_KTHREAD of task_struct.flags: the same since 2.6.25."""
UNKNOWN_PRIORITY = -1
_MAX_THREADS = 8192
_FRESH_S = 10.0
"""chrt and renice are rare; a read of /proc/TID/stat for each thread and tick is not."""
_REAL_TIME = 100
_AFTER_STATE = 4
_FLAGS, _PRIORITY, _POLICY = 9 - _AFTER_STATE, 18 - _AFTER_STATE, 41 - _AFTER_STATE
"""By their numbers in proc_pid_stat(5)."""


class Threads:
    """The threads that were asked for or told of. `of` always answers: with an empty comm where nothing is known."""

    def __init__(self, proc: Path, now_s: Callable[[], float] = time.monotonic) -> None:
        self._proc, self._now_s = proc, now_s
        self._known: OrderedDict[int, tuple[Thread, float]] = OrderedDict()

    def learn(self, record: Record) -> None:
        """A `thread` record: as the thread was when the probe saw it. One without flags leaves more to /proc."""
        pid, flags = record.get("thread"), record.get("flags")
        if pid is None:
            return
        found = read(self._proc, pid) if flags is None else None
        priority = record.get("priority")
        self._keep(
            found
            or Thread(
                pid,
                record.text,
                _policy(record.get("policy")),
                UNKNOWN_PRIORITY if priority is None else priority,
                bool((flags or 0) & KTHREAD),
            )
        )

    def of(self, pid: int) -> Thread:
        """As last told or read; priority -1 is not known (or a deadline thread, which has no other)."""
        known, at = self._known.get(pid, (None, 0.0))
        if known is not None and self._now_s() - at < _FRESH_S:
            return known
        return self._keep(read(self._proc, pid) or known or Thread(pid, "", "", UNKNOWN_PRIORITY))

    def _keep(self, thread: Thread) -> Thread:
        self._known[thread.pid] = thread, self._now_s()
        self._known.move_to_end(thread.pid)
        if len(self._known) > _MAX_THREADS:
            self._known.popitem(last=False)
        return thread


def read(proc: Path, pid: int) -> Thread | None:
    """From /proc/TID/stat, which a thread has though no listing shows it; None when it is gone."""
    raw = content(proc / str(pid) / "stat")
    comm, _, rest = raw.partition(b"(")[2].rpartition(b")")
    try:
        fields = [int(word) for word in rest.split()[1:]]
        policy, priority = _policy(fields[_POLICY]), fields[_PRIORITY] + _REAL_TIME
        return Thread(pid, clean(comm), policy, priority, bool(fields[_FLAGS] & KTHREAD))
    except (ValueError, IndexError):
        return None


def _policy(number: int | None) -> str:
    return POLICIES[number] if number is not None and 0 <= number < len(POLICIES) else ""
