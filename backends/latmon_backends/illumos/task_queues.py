"""TaskqSampler: busy task queues of illumos and Solaris, from kstats of class `taskq`.

Facts from illumos-gate, usr/src/uts/common/os/taskq.c: `tasks` were dispatched, `executed` have ended (taskq_thread),
`maxtasks` is the most there ever were in between, and no limit (TQ_DO_ENQUEUE), `nactive` are threads that don't sleep,
`totaltime` is how long executed tasks ran, in ns: how long one waited is kept nowhere. Dynamic queues have kstats of
another kind (class taskq_d) and are not told.

Told is what was busy: it runs a task, has some waiting, or executed some since the reading before. A queue that idles
tells nothing, and ZFS alone has dozens of each pool. Where there are more than MAX_TOLD, the queues of I/O come first:
HBA drivers' and ZFS's by name; others may be what takes the CPU from them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from latmon.model.frame import Taskq
from latmon_backends.illumos.kstat import Id, Run, parse_pairs, runner, whole
from latmon_backends.kernel.counters import CLOCK, Clock

EVERY_US = 10_000_000
MAX_TOLD = 64
_WORDS = ("-p", "-c", "taskq")
_MAX = 2**63 - 1
_OF_IO = re.compile(
    r"_comp_thd$|^(qlc|emlxs|fcp|fct|fcoei|fp|mpt|mr_sas|lmrc|pmcs|sata|ahci|nvme|blkdev|vioblk|sd|ssd"
    r"|scsi|vhci|iscsi|srpc|zio|zfs|zil|spa|metaslab|lofi|dmcrypt|nfs)(_|\d|$)"
)


class TaskqSampler:
    """A reading at most every `every_us`: each asks for hundreds of kstats."""

    def __init__(self, clock: Clock = CLOCK, run: Run | None = None, every_us: int = EVERY_US) -> None:
        self._clock, self._every_us = clock, every_us
        self._run = run or runner()
        self._at_us: int | None = None
        self._before: dict[Id, _Counted] = {}
        self.undecoded = 0
        """Of the last reading: lines and queues that were not understood."""

    @property
    def is_due(self) -> bool:
        """Whether it is time for a reading."""
        return self._at_us is None or self._clock.mono_us() - self._at_us >= self._every_us

    def sample(self) -> tuple[Taskq, ...] | None:
        """The busy ones; None where it isn't time yet. UnavailableError when kstat can't be run."""
        if not self.is_due:
            return None
        now_us = self._clock.mono_us()
        told = parse_pairs(self._run(_WORDS))
        read = {id_: one for id_, values in told.values.items() if (one := _counted(values)) is not None}
        self.undecoded = told.undecoded + len(told.values) - len(read)
        span_us = 0 if self._at_us is None else now_us - self._at_us
        every = [_taskq(id_, one, self._before.get(id_), span_us) for id_, one in read.items()]
        self._at_us, self._before = now_us, read
        busy = [one for one in every if one.active or one.waiting or one.executed]
        return tuple(sorted(_once(busy), key=_rank)[:MAX_TOLD])


def is_of_io(name: str) -> bool:
    """Whether a queue belongs to I/O, by its name."""
    return _OF_IO.search(name) is not None


def _rank(one: Taskq) -> tuple[bool, int, int, str, int]:
    return not is_of_io(one.name), -one.waiting, -one.executed, one.name, one.instance


def _once(some: list[Taskq]) -> list[Taskq]:
    """Each name and instance once, whatever modules have them."""
    return list({(one.name, one.instance): one for one in some}.values())


class _Counted(NamedTuple):
    """A queue's kstats; `made` tells it from one that had its name before."""

    tasks: int
    executed: int
    maxtasks: int
    nactive: int
    priority: int
    threads: int
    totaltime: int
    made: str = ""


_KEYS = _Counted._fields[:-1]


def _counted(values: Mapping[str, str]) -> _Counted | None:
    """None where one is missing or out of range."""
    numbers = [n for key in _KEYS if (n := whole(values.get(key))) is not None and 0 <= n <= _MAX]
    return _Counted._make((*numbers, values.get("crtime", ""))) if len(numbers) == len(_KEYS) else None


def _taskq(id_: Id, now: _Counted, before: _Counted | None, span_us: int) -> Taskq:
    known = Taskq(
        id_.name,
        id_.instance,
        threads=now.threads,
        priority=now.priority,
        active=now.nactive,
        waiting=max(now.tasks - now.executed - now.nactive, 0),
        most=now.maxtasks,
        ever=now.executed,
    )
    if before is None or before.made != now.made:
        return known
    return replace(
        known,
        span_us=span_us,
        tasks=max(now.tasks - before.tasks, 0),
        executed=max(now.executed - before.executed, 0),
        time_us=max(now.totaltime - before.totaltime, 0) // 1000,
    )
