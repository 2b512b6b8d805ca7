"""KstatSampler: counters of disks on illumos and Solaris, from kstats of class `disk`.

Must not know frames or probes. Facts, and where each was checked in illumos-gate's usr/src:
- `wcnt` and `rcnt` are iostat's wait and actv: what waits in the driver's queue, and what the device has. A command
  goes from one to the other as it is sent (uts/common/io/scsi/targets/sd.c, sd_start_cmds).
- Times (`wlentime`, `rlentime`) are of reads and writes together, a frame's are of each op: they are not read.
- `crtime` is seconds in `kstat -p`, of the command in C (cmd/stat/kstat/kstat.h, SAVE_HRTIME_X) as of the one in Perl.
- `reads` and `writes` are 32 bits wide; a disk that is attached anew has another `crtime`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from latmon.model.frame import Device, Outstanding
from latmon.support.errors import UnavailableError
from latmon_backends.illumos.kstat import Id, Kstats, Run, parse_pairs, real, runner, whole
from latmon_backends.kernel.counters import CLOCK, Clock, Sample
from latmon_backends.kernel.diskstats import Counters, Tally

_DISKS = ("-p", "-c", "disk")
_IDENTITY = ("-p", "-c", "device_error")
_WORD = 2**32
_MAX = 2**63 - 1
_WRONG = 2**31
"""A gauge as high as this went below 0 (a driver that counts a completion twice)."""
_SCSI_CHARS = 16
"""Of KSTAT_DATA_CHAR, which has no end: what lies behind it in memory may follow. INQUIRY has no more."""
_KINDS = {"md": "md", "lofi": "loop", "zfs": "other", "fd": "other", "ramdisk": "other"}
"""Modules that are no disks; `zfs` is a pool, `md` a metadevice of Solaris Volume Manager."""
_OVER_DISKS = ("md", "zfs")
_OPTICAL = re.compile(r"\b(CD-?R|DVD|BD-?R)", re.IGNORECASE)
"""Drives that sd serves too: kstat doesn't tell what they are, their product does."""


@dataclass(frozen=True, slots=True)
class _Io:
    """One disk's kstat_io_t."""

    crtime_ns: int
    ops: Mapping[str, tuple[int, int]]
    """op -> count (32 bits), bytes."""
    outstanding: Outstanding


class KstatSampler:
    """As KernelSampler, as far as kstat knows. `start` does nothing: nothing is looked at between samples."""

    def __init__(self, devices: tuple[str, ...] = (), clock: Clock = CLOCK, run: Run | None = None) -> None:
        self._globs, self._clock = devices, clock
        self._run = run or runner()
        self._known: dict[str, Device] = {}
        self._all: frozenset[Id] = frozenset()
        self._before: dict[str, _Io] = {}
        self._counts: dict[str, dict[str, int]] = {}
        self._last: Sample | None = None

    def start(self) -> None:
        """Nothing to look at between samples."""

    def close(self) -> None:
        """Nothing is open."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """All selected devices as of the last sample."""
        return tuple(self._known.values())

    def selects(self, device: Device) -> bool:
        """True when the user's globs mean this device."""
        return not self._globs or any(fnmatchcase(device.name, glob) for glob in self._globs)

    def require_selected(self) -> None:
        """UnavailableError where there is nothing to watch."""
        if not self._all:
            raise UnavailableError("There is no disk to watch: kstat names none of class disk.")
        if not self._known:
            there = ", ".join(sorted(id_.name for id_ in self._all))
            raise UnavailableError(f"No device matches --device {' '.join(self._globs)}; there are: {there}.")

    def sample(self) -> Sample:
        """Everything now. UnavailableError when kstat can't be run at first.

        Later it tells what it told before, and counts that as not understood: what it missed is in the next one.
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
        told = parse_pairs(self._run(_DISKS))
        found, broken = _disks(told)
        changed, removed = self._recognise(frozenset(found))
        disks = {id_.name: io for id_, io in found.items() if id_.name in self._known}
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
            undecoded=told.undecoded + broken,
        )

    def _recognise(self, ids: frozenset[Id]) -> tuple[tuple[Device, ...], tuple[str, ...]]:
        """Which devices are new, with their models, and which are gone. Identity is asked for only then."""
        if ids == self._all:
            return (), ()
        who = _identities(parse_pairs(self._run(_IDENTITY)))
        every = {id_.name: _device(id_, who.get(id_.name, {})) for id_ in sorted(ids)}
        now = {name: device for name, device in every.items() if self.selects(device)}
        changed = tuple(device for name, device in now.items() if self._known.get(name) != device)
        removed = tuple(name for name in self._known if name not in now)
        self._all, self._known = ids, now
        return changed, removed

    def _counters(self, name: str, io: _Io) -> Counters:
        """Counts that don't wrap, beginning with what the first sample said."""
        before = self._before.get(name)
        if before is None or before.crtime_ns != io.crtime_ns:
            self._counts[name] = {op: count for op, (count, _) in io.ops.items()}
        else:
            for op, (count, _) in io.ops.items():
                gained = (count - before.ops[op][0]) % _WORD
                self._counts[name][op] += gained if gained < _WORD // 2 else 0
        counts = self._counts[name]
        return Counters(name, {op: Tally(counts[op], moved, None) for op, (_, moved) in io.ops.items()})


def _disks(told: Kstats) -> tuple[dict[Id, _Io], int]:
    """The disks whose kstats are whole, each name once, and how many weren't."""
    found: dict[Id, _Io] = {}
    names: set[str] = set()
    for id_, values in told.values.items():
        io = _io(values)
        if io is not None and id_.name not in names:
            found[id_] = io
            names.add(id_.name)
    return found, len(told.values) - len(found)


def _io(values: Mapping[str, str]) -> _Io | None:
    told = [
        *(whole(values.get(key)) for key in ("reads", "nread", "writes", "nwritten")),
        _ns(real(values.get("crtime"))),
    ]
    numbers = [n for n in told if n is not None and 0 <= n <= _MAX]
    if len(numbers) < len(told):
        return None
    reads, nread, writes, nwritten, crtime = numbers
    ops = {"read": (reads, nread), "write": (writes, nwritten)}
    return _Io(crtime, ops, Outstanding(_gauge(values.get("rcnt")), _gauge(values.get("wcnt"))))


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)


def _gauge(text: str | None) -> int | None:
    value = whole(text)
    return value if value is not None and 0 <= value < _WRONG else None


def _identities(told: Kstats) -> dict[str, Mapping[str, str]]:
    """By the disk's name: of `sd0,err` and `cmdk0,error` it is what stands before the comma."""
    return {id_.name.partition(",")[0]: values for id_, values in told.values.items() if "," in id_.name}


def _device(id_: Id, who: Mapping[str, str]) -> Device:
    vendor, product = (who.get(key, "")[:_SCSI_CHARS].strip() for key in ("Vendor", "Product"))
    model = who.get("Model", "").strip() or " ".join(part for part in (vendor, product) if part)
    kind = _KINDS.get(id_.module, "other" if _OPTICAL.search(product) else "disk")
    return Device(
        id_.name,
        0,  # kstat knows no dev_t: the instance tells devices of a driver apart
        max(id_.instance, 0),
        kind=kind,
        driver=id_.module,
        model=model,
        serial=who.get("Serial No", "").strip(),
        timed=id_.module not in _OVER_DISKS,
    )
