"""kstats of illumos and Solaris: the command `kstat -p`, the parser of its output, disks and task queues.

A line is `module:instance:name:statistic<TAB>value`. Values stay text: their readers know types and units. Lines that
are not understood are counted.

Checked in illumos-gate, usr/src/cmd/stat/kstat/kstat.h (KS_PFMT). A name may have colons, a statistic and a value
blanks.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from latmon.model.frame import Completed, Device, Outstanding, Taskq
from latmon.support.errors import UnavailableError
from latmon.support.text import clean
from latmon.support.trust import environment, find_tool, require
from latmon_backends.kernel.counters import CLOCK, CounterSampler, FrameClock, Sample
from latmon_backends.kernel.diskstats import Counters

MAX_BYTES = 16 * 1024 * 1024
"""Bound of one output: all kstats of a machine with 64 CPUs are 3 MB."""
MAX_LINE = 4096
MAX_KSTATS = 65_536
MAX_STATISTICS = 1024
"""Bound of one kstat."""
_MAX_NAME = 64
"""KSTAT_STRLEN is 31."""
_MAX_VALUE = 256
_WHOLE = re.compile(r"-?[0-9]{1,20}\Z")
_REAL = re.compile(r"-?[0-9]{1,20}(\.[0-9]{0,20})?([eE][-+]?[0-9]{1,2})?\Z")
_MAX_INSTANCE = 2**31
VARIABLE = "LATMON_KSTAT"
_USUAL = Path("/usr/bin/kstat")
_TIMEOUT_S = 10
Run = Callable[[tuple[str, ...]], bytes]
"""Arguments -> standard output; UnavailableError where there is none."""
_DISKS = ("-p", "-c", "disk")
_IDENTITY = ("-p", "-c", "device_error")
_WORD = 2**32
_MAX = 2**63 - 1
_WRONG = 2**31
"""A gauge as high as this went below 0 (a driver that counts a completion twice)."""
_SCSI_CHARS = 16
"""Length of a KSTAT_DATA_CHAR from INQUIRY; it is not terminated, so other memory may follow."""
_KINDS = {"md": "md", "lofi": "loop", "zfs": "other", "fd": "other", "ramdisk": "other"}
"""Modules that are no disks; `zfs` is a pool, `md` a metadevice of Solaris Volume Manager."""
_OVER_DISKS = ("md", "zfs")
_OPTICAL = re.compile(r"\b(CD-?R|DVD|BD-?R)", re.IGNORECASE)
"""Products of optical drives, which sd serves too and kstat does not mark."""
EVERY_US = 10_000_000
MAX_REPORTED = 64
_WORDS = ("-p", "-c", "taskq")
_OF_IO = re.compile(
    r"_comp_thd$|^(qlc|emlxs|fcp|fct|fcoei|fp|mpt|mr_sas|lmrc|pmcs|sata|ahci|nvme|blkdev|vioblk|sd|ssd"
    r"|scsi|vhci|iscsi|srpc|zio|zfs|zil|spa|metaslab|lofi|dmcrypt|nfs)(_|\d|$)"
)


class Id(NamedTuple):
    """Identity of a kstat."""

    module: str
    instance: int
    name: str


@dataclass(frozen=True, slots=True)
class Kstats:
    """One reading. `undecoded` counts lines that were not understood."""

    values: Mapping[Id, Mapping[str, str]] = field(default_factory=dict)
    undecoded: int = 0


def parse_pairs(raw: bytes) -> Kstats:
    """Parse output of `kstat -p`. Everything after MAX_BYTES counts as one line that was not understood."""
    parsed = _Found()
    for line in _lines(raw, parsed):
        where, tab, value = line.partition(b"\t")
        module, _, remainder = where.partition(b":")
        instance, _, remainder = remainder.partition(b":")
        name, colon, statistic = remainder.rpartition(b":")
        id_ = _id(module, instance, name)
        if not (tab and colon and statistic) or id_ is None or not parsed.add(id_, statistic, value):
            parsed.undecoded += 1
    return parsed.reported


def whole(text: str | None) -> int | None:
    """Return a statistic as a whole number; None where it is none."""
    return int(text) if text is not None and _WHOLE.match(text) else None


def real(text: str | None) -> float | None:
    """Return a statistic as a number; None where it is none."""
    return float(text) if text is not None and _REAL.match(text) else None


class _Found:
    """Accumulator of parsed statistics, within bounds."""

    def __init__(self) -> None:
        self.values: dict[Id, dict[str, str]] = {}
        self.undecoded = 0

    @property
    def reported(self) -> Kstats:
        return Kstats(self.values, self.undecoded)

    def add(self, id_: Id, statistic: bytes, value: bytes) -> bool:
        """Add a statistic; return False where its name is invalid, or there is no room."""
        if not statistic or len(statistic) > _MAX_NAME or (id_ not in self.values and len(self.values) >= MAX_KSTATS):
            return False
        statistics, name = self.values.setdefault(id_, {}), clean(statistic, _MAX_NAME)
        if name not in statistics and len(statistics) >= MAX_STATISTICS:
            return False
        statistics[name] = clean(value.strip(b" \t\r"), _MAX_VALUE)
        return True


def _lines(raw: bytes, parsed: _Found) -> Iterator[bytes]:
    """Yield the lines that are not empty; one that is too long is not understood."""
    parsed.undecoded += len(raw) > MAX_BYTES
    for line in raw[:MAX_BYTES].split(b"\n"):
        stripped = line.rstrip(b"\r")
        if len(stripped) > MAX_LINE:
            parsed.undecoded += 1
        elif stripped.strip():
            yield stripped


def _id(module: bytes, instance: bytes, name: bytes) -> Id | None:
    number = whole(instance.decode("latin-1"))
    if not module or not name or max(len(module), len(name)) > _MAX_NAME:
        return None
    if number is None or not -1 <= number < _MAX_INSTANCE:
        return None
    return Id(clean(module, _MAX_NAME), number, clean(name, _MAX_NAME))


def runner(environ: Mapping[str, str] = os.environ) -> Run:
    """Return a function that runs LATMON_KSTAT, else /usr/bin/kstat, else the one on the search path."""
    usual = _USUAL if VARIABLE not in environ and os.access(_USUAL, os.X_OK) else None
    path = str(usual or find_tool("kstat", VARIABLE, environ))
    require(Path(path), path)

    return lambda words: output((path, *words), environ)


def output(words: tuple[str, ...], environ: Mapping[str, str] = os.environ, given: bytes = b"") -> bytes:
    """Return the standard output of a program, which is named by its absolute path; `given`: its standard input."""
    name = Path(words[0]).name
    try:
        # C for numbers that have a point
        done = subprocess.run(  # noqa: S603 - an absolute path that is the user's or the system's
            words,
            input=given,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            env={**environment(environ), "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{name} can't be run: {error}.") from error
    if done.returncode not in (0, 1):  # 1: nothing matched
        text = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise UnavailableError(f"{name} failed: {text[-1] if text else f'exit code {done.returncode}'}.")
    return done.stdout


@dataclass(frozen=True, slots=True)
class _Io:
    """One disk's kstat_io_t."""

    crtime_ns: int
    ops: Mapping[str, tuple[int, int]]
    """op -> count (32 bits), bytes."""
    outstanding: Outstanding


class KstatSampler(CounterSampler):
    """Reads the counters of disks from kstats of class `disk`; nothing is sampled between the frames.

    Facts, and where each was checked in illumos-gate's usr/src:
    - `wcnt` and `rcnt` are iostat's wait and actv: I/Os in the driver's queue, and I/Os in the device. A command moves
      from one to the other when it is sent (uts/common/io/scsi/targets/sd.c, sd_start_cmds).
    - Times (`wlentime`, `rlentime`) are of reads and writes together, a frame's are per op: they are not read.
    - `crtime` is seconds in `kstat -p`, both of the command in C (cmd/stat/kstat/kstat.h, SAVE_HRTIME_X) and in Perl.
    - `reads` and `writes` are 32 bits wide; a disk that is attached again has another `crtime`.
    """

    def __init__(self, devices: tuple[str, ...] = (), clock: FrameClock = CLOCK, run: Run | None = None) -> None:
        super().__init__(devices, clock)
        self._run = run or runner()
        self._all: frozenset[Id] = frozenset()
        self._before: dict[str, _Io] = {}
        self._counts: dict[str, dict[str, int]] = {}
        self._last: Sample | None = None

    def require_selected(self) -> None:
        """Raise UnavailableError where no device is selected."""
        self._require_selected((id_.name for id_ in self._all), "kstat names none of class disk")

    def sample(self) -> Sample:
        """Return a sample of this moment. UnavailableError when the first run of kstat fails.

        A later failure repeats the last sample and counts as not understood; the next sample has what it missed.
        """
        mono_us, wall = self._clock.mono_us(), self._clock.wall()
        try:
            self._last = self._read(mono_us, wall)
        except UnavailableError:
            if self._last is None:
                raise
            return replace(self._last, mono_us=mono_us, wall=wall, outstanding={}, devices=(), removed=(), undecoded=1)
        return self._last

    def _read(self, mono_us: int, wall: float) -> Sample:
        reported = parse_pairs(self._run(_DISKS))
        ios_by_id, broken = _disks(reported)
        changed, removed = self._recognise(frozenset(ios_by_id))
        disks = {id_.name: io for id_, io in ios_by_id.items() if id_.name in self._known}
        counters = {name: self._counters(name, io) for name, io in disks.items()}
        self._counts = {name: counts for name, counts in self._counts.items() if name in disks}
        self._before = disks
        return Sample(
            mono_us,
            wall,
            counters=counters,
            generations={name: io.crtime_ns for name, io in disks.items()},
            shown=frozenset(disks),
            outstanding={name: io.outstanding for name, io in disks.items()},
            devices=changed,
            removed=removed,
            undecoded=reported.undecoded + broken,
        )

    def _recognise(self, ids: frozenset[Id]) -> tuple[tuple[Device, ...], tuple[str, ...]]:
        """Return the new devices with their models, and those gone. Identity is only read where the set changed."""
        if ids == self._all:
            return (), ()
        who = _identities(parse_pairs(self._run(_IDENTITY)))
        self._all = ids
        return self._replace(_device(id_, who.get(id_.name, {})) for id_ in sorted(ids))

    def _counters(self, name: str, io: _Io) -> Counters:
        """Return counts that don't wrap, beginning with the first sample's."""
        before = self._before.get(name)
        if before is None or before.crtime_ns != io.crtime_ns:
            self._counts[name] = {op: count for op, (count, _) in io.ops.items()}
        else:
            for op, (count, _) in io.ops.items():
                gained = (count - before.ops[op][0]) % _WORD
                # One that fell falls here too, so that the difference of two samples sees it.
                self._counts[name][op] += gained if gained < _WORD // 2 else gained - _WORD
        counts = self._counts[name]
        return Counters(name, {op: Completed(counts[op], moved) for op, (_, moved) in io.ops.items()})


def _disks(reported: Kstats) -> tuple[dict[Id, _Io], int]:
    """Return the disks with complete kstats, each name once, and the number of incomplete ones."""
    ios_by_id: dict[Id, _Io] = {}
    names: set[str] = set()
    for id_, values in reported.values.items():
        io = _io(values)
        if io is not None and id_.name not in names:
            ios_by_id[id_] = io
            names.add(id_.name)
    return ios_by_id, len(reported.values) - len(ios_by_id)


def _io(values: Mapping[str, str]) -> _Io | None:
    reported = [
        *(whole(values.get(key)) for key in ("reads", "nread", "writes", "nwritten")),
        _ns(real(values.get("crtime"))),
    ]
    numbers = [n for n in reported if n is not None and 0 <= n <= _MAX]
    if len(numbers) < len(reported):
        return None
    reads, nread, writes, nwritten, crtime = numbers
    ops = {"read": (reads, nread), "write": (writes, nwritten)}
    return _Io(crtime, ops, Outstanding(_gauge(values.get("rcnt")), _gauge(values.get("wcnt"))))


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)


def _gauge(text: str | None) -> int | None:
    value = whole(text)
    return value if value is not None and 0 <= value < _WRONG else None


def _identities(reported: Kstats) -> dict[str, Mapping[str, str]]:
    """Return identities by the disk's name, which in `sd0,err` and `cmdk0,error` is the text before the comma."""
    return {id_.name.partition(",")[0]: values for id_, values in reported.values.items() if "," in id_.name}


def _device(id_: Id, who: Mapping[str, str]) -> Device:
    vendor, product = (who.get(key, "")[:_SCSI_CHARS].strip() for key in ("Vendor", "Product"))
    model = who.get("Model", "").strip() or " ".join(part for part in (vendor, product) if part)
    kind = _KINDS.get(id_.module, "other" if _OPTICAL.search(product) else "disk")
    return Device(
        id_.name,
        0,  # kstat has no dev_t: the instance number is unique per driver
        max(id_.instance, 0),
        kind=kind,
        driver=id_.module,
        model=model,
        serial=who.get("Serial No", "").strip(),
        timed=id_.module not in _OVER_DISKS,
    )


class TaskqSampler:
    """Sampler of busy task queues from kstats of class `taskq`, at most every `every_us`: a reading has hundreds.

    Facts from illumos-gate, usr/src/uts/common/os/taskq.c: `tasks` were dispatched, `executed` have ended
    (taskq_thread), `maxtasks` is the largest number ever in between, not a limit (TQ_DO_ENQUEUE), `nactive` are the
    threads that don't sleep, `totaltime` is the run time of executed tasks, in ns: their waiting time is not kept.
    Dynamic queues have kstats of another kind (class taskq_d) and are not reported.

    A queue is busy when it runs a task, has some waiting, or executed some since the last reading. ZFS alone has dozens
    of idle ones per pool. Where more than MAX_REPORTED are busy, the queues of I/O come first: those of HBA drivers and
    ZFS, by name; others may take the CPU from them.
    """

    def __init__(self, clock: FrameClock = CLOCK, run: Run | None = None, every_us: int = EVERY_US) -> None:
        self._clock, self._every_us = clock, every_us
        self._run = run or runner()
        self._at_us: int | None = None
        self._before: dict[Id, _Counted] = {}
        self.undecoded = 0
        """Lines and queues of the last reading that were not understood."""

    @property
    def is_due(self) -> bool:
        """True when the next reading is due."""
        return self._at_us is None or self._clock.mono_us() - self._at_us >= self._every_us

    def sample(self) -> tuple[Taskq, ...] | None:
        """Return the busy queues; None where no reading is due. UnavailableError when kstat can't be run."""
        if not self.is_due:
            return None
        now_us = self._clock.mono_us()
        reported = parse_pairs(self._run(_WORDS))
        read = {id_: counts for id_, values in reported.values.items() if (counts := _counted(values)) is not None}
        self.undecoded = reported.undecoded + len(reported.values) - len(read)
        span_us = 0 if self._at_us is None else now_us - self._at_us
        taskqs = [_taskq(id_, counts, self._before.get(id_), span_us) for id_, counts in read.items()]
        self._at_us, self._before = now_us, read
        busy = [taskq for taskq in taskqs if taskq.active or taskq.waiting or taskq.executed]
        return tuple(sorted(_once(busy), key=_rank)[:MAX_REPORTED])


def is_of_io(name: str) -> bool:
    """Return whether a queue belongs to I/O, by its name."""
    return _OF_IO.search(name) is not None


def _rank(taskq: Taskq) -> tuple[bool, int, int, str, int]:
    return not is_of_io(taskq.name), -taskq.waiting, -taskq.executed, taskq.name, taskq.instance


def _once(taskqs: list[Taskq]) -> list[Taskq]:
    """Return each name and instance once, whatever modules have them."""
    return list({(taskq.name, taskq.instance): taskq for taskq in taskqs}.values())


class _Counted(NamedTuple):
    """A queue's kstats; a different `made` is another queue with the same name."""

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
    """Return a queue's statistics; None where one is missing or out of range."""
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
    tasks, executed = now.tasks - before.tasks, now.executed - before.executed
    time_us = (now.totaltime - before.totaltime) // 1000
    if min(tasks, executed, time_us) < 0:
        return known
    return replace(known, span_us=span_us, tasks=tasks, executed=executed, time_us=time_us)
