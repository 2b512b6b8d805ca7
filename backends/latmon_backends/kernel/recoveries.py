"""What the kernel did about commands that a device did not answer, by lines of its log and by the counter of time-outs.

SCSI and ATA log no time-out, but count them: `device/iotmo_cnt` (drivers/scsi/scsi_error.c scsi_timeout(), Linux 6.6).
NVMe counts none and logs each (drivers/nvme/host/pci.c nvme_timeout()). So no time-out is counted twice, as long as the
lines of SCSI and ATA count as what comes after it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from latmon.model.frame import TIME_OUT_COUNTER, Device, Mark
from latmon.model.measurements import FILE_SYSTEM_ERRORS, RECOVERIES
from latmon.model.measurements.file_system_errors import FileSystemError
from latmon.model.measurements.recoveries import (
    ABORTED,
    GIVEN_UP,
    PATH_FAILED,
    POLLED,
    REPORTED_RESET,
    RESET,
    TIMED_OUT,
    Recovery,
)
from latmon.model.table import Tables
from latmon.support.paths import content
from latmon.support.units import counted
from latmon_backends.kernel.block_devices import below
from latmon_backends.kernel.file_system_errors import Inode

_LINES: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = tuple(
    (re.compile(pattern), events)
    for pattern, events in (
        # drivers/nvme/host/pci.c, the same words from 4.12 on; "disable controller": while it is reset or removed
        (r"nvme nvme\d+: I/O .*\btimeout, completion polled", (TIMED_OUT, POLLED)),
        (r"nvme nvme\d+: I/O .*\btimeout, aborting", (TIMED_OUT,)),
        # of a queue of I/Os only a command that timed out before and was aborted then: that line counted its time-out
        (r"nvme nvme\d+: I/O .*\bQID [1-9]\d* timeout, reset controller", (RESET,)),
        (r"nvme nvme\d+: I/O .*\btimeout, (?:reset|disable) controller", (TIMED_OUT, RESET)),
        (r"nvme nvme\d+: Abort status: ", (ABORTED,)),
        (r"nvme nvme\d+: controller is down; will reset", (RESET,)),
        (r"nvme nvme\d+: frozen state error detected, reset controller", (RESET,)),
        # rdma.c, tcp.c
        (r"nvme nvme\d+: (?:I/O|queue \d+:) .*\btimeout\b", (TIMED_OUT,)),
        (r"nvme nvme\d+: starting error recovery", (RESET,)),
        # fc.c
        (r"nvme nvme\d+: NVME-FC\{\d+\.\d+\}: io timeout\b", (TIMED_OUT,)),
        (r"nvme nvme\d+: NVME-FC\{\d+\}: (?:resetting controller|controller connectivity lost)", (RESET,)),
        (r"nvme nvme\d+: NVME-FC\{\d+\}: (?:dev_loss_tmo \(\d+\) expired|Max reconnect attempts)", (GIVEN_UP,)),
        (r"nvme nvme\d+: (?:Disabling device after reset failure|Removing after probe failure)", (GIVEN_UP,)),
        (r"nvme nvme\d+: Removing controller", (GIVEN_UP,)),
        # scsi_error.c scsi_report_sense(), and scsi_eh_offline_sdevs(); `scsi` in front: it is being found
        (r"sd \d+:\d+:\d+:\d+: (?:\[\w+\] )?Power-on or device reset occurred", (REPORTED_RESET,)),
        (r"sd \d+:\d+:\d+:\d+: (?:\[\w+\] )?Device offlined", (GIVEN_UP,)),
        (r"sd \d+:\d+:\d+:\d+: (?:\[\w+\] )?(?:tag#\d+ )?Medium access timeout failure\. Offlining disk", (GIVEN_UP,)),
        # mpt3sas, hpsa and others
        (r"(?:[\w-]+ [\da-f:.]+: )?(?:sd|scsi) \d+:\d+:\d+:\d+: .*\battempting task abort", (ABORTED,)),
        (r"(?:[\w-]+ [\da-f:.]+: )?(?:sd|scsi) \d+:\d+:\d+:\d+: .*\b(?:attempting|resetting) .*\breset", (RESET,)),
        (r"hpsa [\da-f:.]+: scsi \d+:\d+:\d+:\d+: resetting ", (RESET,)),
        # drivers/ata/libata-eh.c
        (r"ata\d+(?:\.\d+)?: (?:hard|soft) resetting (?:link|port)", (RESET,)),
        # drivers/block/nbd.c, drivers/md/dm-mpath.c
        (r"block nbd\d+: (?:Connection timed out|Possible stuck request)", (TIMED_OUT,)),
        (r"device-mapper: multipath: \d+:\d+: Failing path ", (PATH_FAILED,)),
    )
)
"""Beginnings of lines, and what they say; the first that matches counts."""
_COUNTER = "iotmo_cnt"
_MOST = 64
"""Counters that are read at a time: a file of sysfs takes some 10 us."""


class DeviceEvents(NamedTuple):
    """Marks of an interval, and what was counted in it."""

    marks: tuple[Mark, ...] = ()
    recoveries: Mapping[Recovery, int] = MappingProxyType({})
    errors: Mapping[FileSystemError, int] = MappingProxyType({})
    damaged: Mapping[Inode, int] = MappingProxyType({})
    """Lines about damaged files."""

    @property
    def tables(self) -> Tables:
        """Return what was counted as the tables of a frame."""
        return {RECOVERIES: self.recoveries, FILE_SYSTEM_ERRORS: self.errors}


def events_of(line: str) -> tuple[str, ...]:
    """Return what a line of the kernel's log about a device says that was done about a command; mostly nothing."""
    return next((events for pattern, events in _LINES if pattern.match(line)), ())


class TimeOutCounters:
    """Reads the counters of SCSI and ATA devices, in turn where there are many."""

    def __init__(self, sys: Path) -> None:
        self._block = sys / "block"
        self._devices: Mapping[str, Device] = {}
        self._names: tuple[str, ...] = ()
        """Devices that have the counter."""
        self._next = 0
        self._before: dict[str, tuple[int, int]] = {}
        """Device -> its generation, and the counter."""

    def has_any(self, devices: Iterable[Device]) -> bool:
        """Return whether one of the devices counts its time-outs."""
        return any(report.name == _COUNTER for device in devices for report in device.reports)

    def since_last(self, devices: Mapping[str, Device], generations: Mapping[str, int]) -> Counter[str]:
        """Return the time-outs of these devices since they were last read; none of one that is new.

        `generations`: a number per device that differs for another device with the same name.
        """
        if devices is not self._devices:
            self._devices = devices
            self._names = tuple(device.name for device in devices.values() if self.has_any((device,)))
            self._before = {name: self._before[name] for name in self._names if name in self._before}
        timed_out: Counter[str] = Counter()
        for name in self._due():
            try:
                value = int(content(below(self._block, name, f"device/{_COUNTER}")), 16)
            except ValueError:
                continue
            generation = generations.get(name, 0)
            known, earlier = self._before.get(name, (None, value))
            self._before[name] = generation, value
            if known == generation and value > earlier:
                timed_out[name] = value - earlier
        return timed_out

    def _due(self) -> tuple[str, ...]:
        first = self._next if self._next < len(self._names) else 0
        due = self._names[first : first + _MOST]
        self._next = first + len(due)
        return due


def marks_of(timed_out: Mapping[str, int], mono_us: int, wall: float) -> Iterator[Mark]:
    """Yield a mark per device with counted time-outs."""
    for device, commands in timed_out.items():
        text = f"{counted(commands, 'command')} timed out {TIME_OUT_COUNTER}"
        yield Mark(text, mono_us, wall, device=device)
