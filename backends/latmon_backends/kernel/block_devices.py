"""Block devices: names, kinds, controllers and limits from sysfs, kept current as devices come and go; tools' reports.

/proc/diskstats is the superset of names (a hidden NVMe path has no dev file), sysfs has everything else. Attributes
vanish, and failing devices answer with errors, while they are read: these are not errors here. A controller's text is
what an admin types elsewhere: `host2 mptsas 0000:03:00.0`, `nvme0 nvme 0000:00:04.0`,
`virtio1 virtio_blk 0000:00:02.0`. Names of limits are the kernel's own.

Tools report the health logs of NVMe drives (nvme-cli, else smartctl) and the paths of multipath devices (dmsetup),
where latmon is root and they are installed. A thread runs them at the start and every five minutes. A health log is an
admin command, which waits in no I/O queue; the paths are kept by the kernel. Not read: logs of ATA and SCSI disks,
because an ATA disk stops its queued commands for it, which would be measured as latency; vendors' log pages, because a
drive without them adds an entry to its error log. Amazon's volumes say who they are: their own page is read, which has
the time at the limits of volume and instance. A log of self-tests is read where the drive says that it has one. Where
ZFS is loaded, zpool reports a scrub or resilver that runs, which the kernel has in no file.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from latmon.capture.mounts import MountTable
from latmon.model.frame import BACKING_DEVICE, SWAP, Device, DeviceReport, Limit
from latmon.model.histogram import MAX_COUNT
from latmon.support.errors import UnavailableError, UntrustedError
from latmon.support.paths import content
from latmon.support.process import run_aside
from latmon.support.text import MAX_CELLS, clean
from latmon.support.trust import environment, find_tool
from latmon_backends.kernel import location
from latmon_backends.kernel.diskstats import UNNUMBERED, Counters, DeviceNumber, in_driver
from latmon_backends.kernel.mount_reports import MountReportReader
from latmon_backends.kernel.swaps import SwapReader

REPORTS_PERIOD_S = 300
_REPORTS_KEPT_S = 2 * REPORTS_PERIOD_S
"""Age at which a log is dropped that can't be read again: latmon is root no longer, or a tool hangs."""
_TOOL_TIMEOUT_S = 5.0
_MAX_DRIVES = 64
_MAX_TOOL_OUTPUT = 1 << 20
"""Bytes; a tool that prints more is ended, and its output is not used."""
_NVME_NAMESPACE = re.compile(r"nvme\d{1,4}n\d{1,4}")
_TOOLS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("nvme", ("smart-log", "/dev/{}", "--output-format=json"), ()),
    ("smartctl", ("--json", "--attributes", "/dev/{}"), ("nvme_smart_health_information_log",)),
)
"""Name of a tool, its arguments for a drive, and the keys under which its JSON has the log. The best one is first."""
_VALUES = (
    *("critical_warning", "media_errors", "num_err_log_entries", "warning_temp_time", "critical_comp_time"),
    *("thm_temp1_trans_count", "thm_temp2_trans_count"),
)
"""Values by nvme-cli's names, most of which smartctl has as well (NVMe base specification, SMART log)."""
_AMAZON = "Amazon Elastic Block Store"
"""Model of the volumes that have Amazon's log page 0xD0, which nvme-cli reads since 2.11 (plugins/amzn)."""
_AMAZON_VALUES = (
    *("ebs_volume_performance_exceeded_iops", "ebs_volume_performance_exceeded_tp"),
    *("ec2_instance_ebs_performance_exceeded_iops", "ec2_instance_ebs_performance_exceeded_tp"),
)
_SELF_TEST = 1 << 4
"""Bit of OACS, the optional admin commands: the drive has the command and the log of self-tests (NVMe base spec)."""
_SELF_TEST_VALUES: Mapping[str, str] = MappingProxyType(
    {
        "Current Device Self-Test Operation": "self_test",
        "Current Device Self-Test Completion": "self_test_percent",
    }
)
"""Keys of `nvme self-test-log` -> names of the reports: 0 is no test, 1 a short and 2 an extended one."""
_QUOTED = re.compile(r"\d[\d,]{0,24}", re.ASCII)
"""A number as some versions of nvme-cli print it."""
_PATH = re.compile(r"(?<= )\d+:\d+ ([AF]) (\d{1,18})(?= )")
"""A path in the status of a multipath device: its number, active or failed, how often it failed (dm-mpath.c)."""
_ZFS = Path("/proc/spl/kstat/zfs")
"""There where the module is loaded."""
_SCAN = re.compile(r"^ *scan: (scrub|resilver) in progress ", re.MULTILINE)
_SCANNED = re.compile(r"(\d{1,3})(?:\.\d+)?% done")
_POOL = re.compile(r"^ *pool: (\S{1,256})$", re.MULTILINE)
_VDEV = re.compile(r"^\s+/dev/(?:\S+/)?(\S+)\s", re.MULTILINE)
"""Lines of `zpool status -LP` (zpool_main.c, print_scan_scrub_resilver_status)."""
Run = Callable[[tuple[str, ...]], bytes]
"""Runs a program and returns what it prints. Raises OSError, subprocess.TimeoutExpired."""
Logs = Mapping[str, tuple[DeviceReport, ...]]
_NVME_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)")
_NVME = re.compile(r"nvme\d+n\d+")
_WITH_MEDIA = ("loop", "nbd")
"""Begins of the names of devices whose medium changes, besides those that sysfs calls removable."""
_PARTITION = re.compile(r"(.*\d)p\d+|(\D+)\d+")
_DM_MODELS = {"LVM": "lvm", "CRYPT": "crypt", "mpath": "multipath"}
_SERIAL_PAGE = 4
"""Bytes before the text in SCSI's unit serial number page."""
_SCSI_HOST = re.compile(r"host\d+")
_NVME_CONTROLLER = re.compile(r"nvme\d+")
_UNNAMED = ("", "(null)", "<NULL>")
_QUEUE = (
    "nr_requests",
    "scheduler",
    "wbt_lat_usec",
    "write_cache",
    "rotational",
    "max_sectors_kb",
    "read_ahead_kb",
    "rq_affinity",
    "iostats",
    "nomerges",
)
_SCSI = ("queue_depth", "queue_type", "queue_ramp_up_period")
"""With many drivers a QUEUE FULL lowers queue_depth, and after queue_ramp_up_period ms without another one it is raised
by 1 at a time (drivers/scsi/scsi_error.c). The depth at which that ends is not exported."""
_HOST = ("can_queue", "cmd_per_lun", "nr_hw_queues", "host_tagset")
_NVME_LIMIT = ("sqsize", "queue_count")
_FOR_ALL = re.compile(r"q(ueue)?_?depth|can_queue|cmd_per_lun|max_queue|queue_size|poll_queues|tag|ncq", re.IGNORECASE)
"""Parameters of a driver for all of its devices: ql2xmaxqdepth, lpfc_lun_queue_depth, io_queue_depth, ..."""
_DIGITS = 18
"""Digits of a number in a recording: a longer one is a text."""
_AER = {"correctable": b"TOTAL_ERR_COR", "nonfatal": b"TOTAL_ERR_NONFATAL", "fatal": b"TOTAL_ERR_FATAL"}
_SPEED = re.compile(r"(\d+(?:\.\d+)?) GT/s")
_LANES = range(1, 33)
"""Widths of a link. A virtual function has 0, a device that is gone 63 or 255."""
_STATES = ("state", "access_state")
"""The state of a SCSI device or an NVMe controller; the state of a SCSI path by ALUA."""
_HAVE_STATE = ("scsi", "nvme")
"""Subsystems of such devices. Xen's bus has a `state` of other words."""
_COMPLETED = re.compile(r"(\d{1,18}) / (\d{1,18})")
"""Sectors that are done, and all (md/sync_completed)."""
_BIO_BASED = ("dm", "md", "zram")
"""Devices without requests, known by the start of their names where there is no sysfs."""
REPORTS_S = 60
"""Seconds between two readings of a device's reports: a change of theirs is a new row of the device in a recording."""
LIMITS_S = 10
"""Seconds between two readings of a device's limits, which change seldom: a dozen files take 0.15 ms."""


def attribute(path: Path | str) -> str:
    """Return the attribute's text, cleaned and stripped; empty when there is none."""
    return clean(content(path).strip(b" \t\n\0"))


def number(path: Path) -> int | None:
    """Return a decimal attribute; None when there is none."""
    try:
        return int(content(path))
    except ValueError:
        return None


def link(path: Path | str) -> str:
    """Return the last part of a link's target (a driver's or subsystem's name); empty when there is no link."""
    try:
        return clean(os.readlink(path).rpartition("/")[2])  # noqa: PTH115 - see `paths.content`
    except OSError:
        return ""


def names(directory: Path) -> tuple[str, ...]:
    """Return the names in a directory, sorted; none when it can't be read."""
    try:
        return tuple(sorted(clean(entry.name) for entry in directory.iterdir()))
    except OSError:
        return ()


def directory(block: Path, name: str) -> Path:
    """Return a device's directory under /sys/block: `cciss/c0d0` is stored as `cciss!c0d0`."""
    return block / name.replace("/", "!")


@lru_cache(maxsize=1 << 16)
def below(block: Path, name: str, file: str) -> Path:
    """Return a path below a device's directory. Each refresh needs it, and joining it costs as much as a stat."""
    return directory(block, name) / file


@lru_cache(maxsize=1 << 16)
def _is_removable(file: Path, _inode: int) -> bool:
    """Return whether sysfs says so of a device, once for each inode of its directory: that never changes."""
    return number(file) == 1


def device_kind(path: Path) -> str:
    """Return one of the kinds of model.frame.Device."""
    name = path.name
    if (path / "dm").is_dir():
        return "dm"
    if (path / "md").is_dir():
        return "md"
    for prefix in ("loop", "zram"):
        if name.startswith(prefix):
            return prefix
    if _NVME_PATH.fullmatch(name):
        return "nvme-path"
    if _NVME.fullmatch(name) and not has_requests(path):
        return "nvme-head"
    return "disk" if (path / "device").exists() else "other"


def has_requests(path: Path) -> bool:
    """Return whether the device has requests, which are timed; a bio-based device passes its I/O on without a queue."""
    return (path / "mq").is_dir()


def label(path: Path, of_kind: str) -> str:
    """Return the name that users know: dm name, a loop's backing file, the multipath head of an NVMe path."""
    if of_kind == "dm":
        return attribute(path / "dm/name")
    if of_kind == "loop":
        return _file_label(content(path / "loop/backing_file").rstrip(b"\n"))
    return head(path.name) if of_kind == "nvme-path" else ""


def head(name: str) -> str:
    """Return `nvme0n1` for the hidden path `nvme0c1n1`; empty for other names."""
    match = _NVME_PATH.fullmatch(name)
    return "".join(match.groups()) if match else ""


def _file_label(file: bytes) -> str:
    """Return the path, or the end of a long one, which distinguishes images."""
    return clean(file if len(file) <= MAX_CELLS else b"/".join((b"...", file.rpartition(b"/")[2])))


def members(path: Path, of_kind: str, disks: tuple[str, ...], sys: Path) -> tuple[str, ...]:
    """Return the whole disks below: the slaves' disks of a dm or md, the paths of an NVMe head."""
    if of_kind == "nvme-head":
        return tuple(name for name in disks if head(name) == path.name)
    below = (name.replace("!", "/") for name in names(path / "slaves"))
    return tuple(dict.fromkeys(whole_disk(sys, name) for name in below))


def whole_disk(sys: Path, name: str) -> str:
    """Return the disk that a partition is on; a disk's own name otherwise."""
    path = directory(sys / "class/block", name)
    if not (path / "partition").exists():
        return name
    return clean(path.resolve().parent.name.replace("!", "/"))


def disk_by_name(name: str, known: AbstractSet[str]) -> str:
    """Return the disk of a partition without sysfs, by the kernel's names of partitions: sda1, nvme0n1p1."""
    match = _PARTITION.fullmatch(name)
    disk = next((group for group in match.groups() if group), name) if match else name
    return disk if disk in known else name


def model(path: Path, of_kind: str) -> str:
    """Return maker and model; for virtual devices their type: raid1, lvm, crypt, multipath."""
    if of_kind == "md":
        return attribute(path / "md/level")
    if of_kind == "dm":
        return _DM_MODELS.get(attribute(path / "dm/uuid").partition("-")[0], "")
    maker = attribute(path / "device/vendor")
    named = attribute(path / "device/model") or attribute(path / "device/name")
    # A bus id (0x1af4) is not a maker's name, and ATA is only the protocol.
    return named if not named or not maker or maker == "ATA" or maker.startswith("0x") else f"{maker} {named}"


def serial(path: Path) -> str | None:
    """Return the unit's serial number, else its world-wide name; None when reading would wait for the device.

    The kernel caches all of these but virtio's, which is a command to the device: a stuck device would block the
    reader, so only an idle one is read.
    """
    page = content(path / "device/vpd_pg80")
    if text := page[_SERIAL_PAGE : _SERIAL_PAGE + int.from_bytes(page[2:4], "big")].strip(b" \0"):
        return clean(text)
    if link(path / "device/subsystem") == "virtio" and in_driver(path / "inflight"):
        return None
    places = ("serial", "device/serial", "wwid", "device/wwid")
    return next((number for place in places if (number := attribute(path / place))), "")


class Controller(NamedTuple):
    """A host adapter: its driver, not the disk's (never `sd`), and a text for users."""

    driver: str = ""
    text: str = ""


def controller(block: Path, sys: Path) -> Controller:
    """Return the controller of the block device whose sysfs directory is `block`."""
    try:
        device = (block / "device").resolve(strict=True)
    except OSError:
        return Controller()
    above = [device, *_ancestors(device, (sys / "devices").resolve())]
    pci = next((path for path in above if link(path / "subsystem") == "pci"), None)
    node, driver = _adapter(above, sys)
    if not driver and pci is not None:
        driver = link(pci / "driver")
    if not node and pci is None:
        return Controller()
    where = pci.name if pci else _fabric_address(above)
    return Controller(driver, " ".join(part for part in (node, driver, where) if part))


def _ancestors(device: Path, root: Path) -> Iterator[Path]:
    for path in device.parents:
        if path == root or root not in path.parents:
            return
        yield path


def _adapter(above: list[Path], sys: Path) -> tuple[str, str]:
    """Return (name, driver) of the nearest host adapter, NVMe controller or bus device with its own driver."""
    for path in above:
        if _SCSI_HOST.fullmatch(path.name):
            return path.name, _scsi_driver(path.name, sys)
    for path in above:
        if _NVME_CONTROLLER.fullmatch(path.name):
            transport = attribute(path / "transport")
            return path.name, "nvme" if transport in ("", "pcie") else f"nvme-{transport}"
        if link(path / "subsystem") == "nvme-subsystem":
            return path.name, "nvme"
    nearest = above[0]
    return nearest.name, link(nearest / "driver")


def _scsi_driver(host: str, sys: Path) -> str:
    named = attribute(sys / "class/scsi_host" / host / "proc_name")
    return "" if named in _UNNAMED else named


def _fabric_address(above: list[Path]) -> str:
    """Return the address of an NVMe over Fabrics controller (`traddr=10.0.0.5,trsvcid=4420`); empty elsewhere."""
    return next((text for path in above[:2] if (text := attribute(path / "address"))), "")


def limits(block: Path, sys: Path, above: Sequence[str]) -> tuple[Limit, ...]:
    """Return the limits of the block device whose sysfs directory is `block`, without missing values.

    `above`: `directories_above` of it.
    """
    limits = [*_read(f"{block}/queue", _QUEUE, "queue"), *_hardware_queues(block)]
    limits += _read(f"{block}/device", _SCSI, "device")
    for at in above:
        name = at.rpartition("/")[2]
        if name.startswith("host"):
            return (*limits, *_read(f"{sys}/class/scsi_host/{name}", _HOST, name))
        if os.path.exists(f"{at}/sqsize"):  # noqa: PTH110 - see `paths.content`
            return (*limits, *_read(at, _NVME_LIMIT, name))
    return tuple(limits)


def of_module(driver: str, sys: Path) -> tuple[Limit, ...]:
    """Return a driver's parameters for all of its devices, named as on the kernel's command line: `lpfc.NAME`."""
    parameters = sys / "module" / driver.replace("-", "_") / "parameters"
    reported = (name for name in names(parameters) if _FOR_ALL.search(name)) if driver else ()
    return tuple(
        Limit(f"{driver}.{setting.name}", setting.value, setting.source)
        for setting in _read(str(parameters), tuple(reported), f"module {driver}")
    )


def _hardware_queues(block: Path) -> Iterator[Limit]:
    """Yield the tags of one hardware queue, and the number of queues."""
    queues = [name for name in names(block / "mq") if name.isdecimal()]
    if queues:
        yield from _read(f"{block}/mq/{queues[0]}", ("nr_tags",), f"mq/{queues[0]}")
        yield Limit("hardware queues", len(queues), "mq")


def directories_above(block: Path) -> tuple[str, ...]:
    """Return the directory in sysfs of a block device's hardware and all above it; nothing where there is none."""
    try:
        real = os.path.realpath(f"{block}/device", strict=True)
    except OSError:
        return ()
    parts = real.split("/")
    return tuple("/".join(parts[:end]) for end in range(len(parts), 1, -1))


def _read(directory: str, wanted: tuple[str, ...], where: str) -> Iterator[Limit]:
    for name in wanted:
        text = attribute(f"{directory}/{name}")
        if name == "scheduler" and "[" in text:
            text = text.partition("[")[2].partition("]")[0]  # `none [mq-deadline] bfq`
        if text:
            is_number = text.isdecimal() and len(text) <= _DIGITS
            yield Limit(name, int(text) if is_number else text, f"{where}/{name}")


def reports(block: Path, above: Sequence[str]) -> Iterator[DeviceReport]:
    """Yield what a device and its PCIe link report about themselves, without missing values.

    `above`: `directories_above` of it.
    All of it is kept by the kernel or in PCI configuration space: no reading sends the device a command. The link of an
    adapter that is suspended isn't read, because Linux resumes it for that.
    """
    for name in ("ioerr_cnt", "iotmo_cnt"):  # iotmo_cnt since Linux 6.6
        try:
            value = int(content(f"{block}/device/{name}"), 16)
        except ValueError:
            continue
        if 0 <= value <= MAX_COUNT:
            yield DeviceReport(name, value, f"device/{name}")
    states = _STATES if above and link(f"{above[0]}/subsystem") in _HAVE_STATE else ()
    for name, where in (*((name, f"device/{name}") for name in states), ("ana_state", "ana_state")):
        if text := attribute(f"{block}/{where}"):
            yield DeviceReport(name, text, where)
    yield from _md_reports(f"{block}/md")
    bus = next((directory for directory in above if link(f"{directory}/subsystem") == "pci"), None)
    if bus is not None:
        pci = Path(bus)
        if not attribute(pci / "power/runtime_status").startswith("suspend"):
            yield from _pcie_link(pci)
        for kind, row in _AER.items():
            if match := re.search(rb"^%s (\d{1,18})$" % row, content(pci / f"aer_dev_{kind}"), re.MULTILINE):
                yield DeviceReport(f"aer_{kind}", int(match[1]), f"{pci.name}/aer_dev_{kind}")


def _md_reports(directory: str) -> Iterator[DeviceReport]:
    """Yield what an array is doing, how far and how fast, and how many disks it lacks; nothing of other devices."""
    for name in ("degraded", "raid_disks", "sync_action", "sync_speed"):
        text = attribute(f"{directory}/{name}")
        if text.isdecimal() and len(text) <= _DIGITS:
            yield DeviceReport(name, int(text), f"md/{name}")
        elif name == "sync_action" and text:
            yield DeviceReport(name, text, f"md/{name}")
    if done := _COMPLETED.fullmatch(attribute(f"{directory}/sync_completed")):
        sectors, total = map(int, done.groups())
        if 0 < total >= sectors:
            yield DeviceReport("sync_percent", 100 * sectors // total, "md/sync_completed")


def _pcie_link(pci: Path) -> Iterator[DeviceReport]:
    """Yield the link's present speed and width, and the best that both the device and the port above it can do."""
    for name in ("speed", "width"):
        now = _of_link(pci / f"current_link_{name}")
        best = [most for at in (pci, pci.parent) if (most := _of_link(at / f"max_link_{name}"))]
        if now and best:
            least = min(best, key=lambda best_value: float(str(best_value).partition(" ")[0]))
            yield DeviceReport(f"link_{name}", now, f"{pci.name}/current_link_{name}")
            yield DeviceReport(f"link_{name}_best", least, f"{pci.name}/max_link_{name}")


def _of_link(path: Path) -> int | str | None:
    """Return lanes, or a speed such as `8.0 GT/s`; None where it isn't known."""
    text = attribute(path)
    if speed := _SPEED.match(text):
        return speed[0]
    return int(text) if text.isdecimal() and int(text) in _LANES else None


CHECKED, TURN = 32, 8
"""A refresh reads the files of up to CHECKED devices. Where there are more, it reads those of TURN devices per second,
and of at least one device: first of devices with I/O whose limits are older than LIMITS_S, then of the others in turn,
of which 5,000 take 10 minutes. Up to CHECKED names without a device, such as empty loops, don't count."""


@dataclass(frozen=True, slots=True)
class DeviceChanges:
    """Result of a refresh: devices that are new or different, and those that are gone."""

    changed: tuple[Device, ...] = ()
    removed: tuple[Device, ...] = ()


@dataclass(slots=True)
class BlockDevices:
    """The host's block devices. `refresh` is cheap when nothing changed: a few small reads per device."""

    proc: Path
    sys: Path
    mounts: MountTable | None = None
    """The table that other readers share."""
    shut_down: frozenset[int] = frozenset()
    """Numbers of the mounts whose file systems were seen to be shut down, which the mounts don't have."""
    _devices: dict[str, Device] = field(default_factory=dict)
    _disks: dict[DeviceNumber, str] = field(default_factory=dict)
    _whole: dict[str, str] = field(default_factory=dict)
    """Name -> its disk's name: a partition's never changes while it has its name."""
    _stamps: dict[str, tuple[object, ...]] = field(default_factory=dict)
    _serials: dict[tuple[str, int], str] = field(default_factory=dict)
    _limits: dict[str, tuple[Limit, ...]] = field(default_factory=dict)
    _limits_read: dict[str, int] = field(default_factory=dict)
    """Name -> the second in which its limits were read."""
    _reports: dict[str, tuple[int, tuple[DeviceReport, ...]]] = field(default_factory=dict)
    """Name -> the second in which its reports were read, and the reports."""
    _paths: Mapping[str, str] = field(default_factory=dict)
    """Disk -> its name in /dev/disk/by-path."""
    _paths_read: int = -1
    """The second in which these were read."""
    _numbers: dict[str, DeviceNumber] = field(default_factory=dict)
    """Names of the whole disks in diskstats."""
    _lines: Mapping[str, Counters] = field(default_factory=dict)
    """The lines of the last refresh by name."""
    _absent: dict[str, Counters] = field(default_factory=dict)
    """Disks in diskstats that are no devices, such as empty loops, with their lines at the last check."""
    _uncounted: frozenset[str] = frozenset()
    _generations: dict[str, int] = field(default_factory=dict)
    _second: int = 0
    """Time of the last refresh on CLOCK_MONOTONIC, in whole seconds."""
    _next: int = 0
    """Index of the device that is checked next, where there are many."""
    _block: Path = field(init=False)
    _mount_table: MountTable = field(init=False)
    _swaps: SwapReader = field(init=False)
    _mount_reports: MountReportReader = field(init=False)
    _tools: ToolReports | None = field(init=False)
    """None where sysfs is not this host's: a tool would read another drive."""

    def __post_init__(self) -> None:
        self._block = self.sys / "block"
        self._mount_table = self.mounts or MountTable(self.proc)
        self._swaps = SwapReader(self.proc, self._mount_table)
        self._mount_reports = MountReportReader(self.proc, self.sys, self._mount_table)
        self._tools = ToolReports() if self.sys == Path("/sys") else None

    @property
    def devices(self) -> Mapping[str, Device]:
        """All devices by name, as of the last refresh. Empty loops and the like are not devices."""
        return self._devices

    def refresh(self, lines: Mapping[str, Counters], mono_us: int) -> DeviceChanges:
        """Update the devices, given a reading of /proc/diskstats and its time.

        With more devices than CHECKED some of them are checked, in turn, and of those with another number of I/Os each
        that is no device yet (an empty loop gets I/O when it gets a file) or whose generation differs: a replug must
        be noticed in the interval in which the counters restarted, or I/Os are counted twice.
        """
        changed = {name: line for name, line in lines.items() if self._lines.get(name) is not line}
        same_names = lines.keys() == self._lines.keys()
        if not same_names or any(self._lines[name].number != line.number for name, line in changed.items()):
            self._know_names(set(lines))
            self._disks = {line.number: self._whole[name] for name, line in lines.items()}
            self._disks.pop(UNNUMBERED, None)
            self._numbers = {name: line.number for name, line in lines.items() if self._whole[name] == name}
            self._absent = {}
        self._lines = lines
        passed_s, self._second = mono_us // 1_000_000 - self._second, mono_us // 1_000_000
        self._swaps.refresh(self._second, self._disk_of, self._disk_at)
        self._mount_reports.refresh(self._second, self._disk_of, self._disk_at, self.shut_down)
        due = self._due(lines, changed.values(), passed_s)
        present = [name for name in due if self._is_there(name, lines[name])]
        self._read_limits(present)
        stamps = {name: self._stamp(name) for name in present}
        gone = {name: lines[name] for name in due if name not in stamps}
        self._absent = {name: line for name, line in self._absent.items() if name not in stamps} | gone
        known = self._stamps.items()
        now = {name: stamp for name, stamp in known if name in self._numbers and name not in gone} | stamps
        change = DeviceChanges() if now == self._stamps else self._replace(now)
        if self._tools is not None:
            self._tools.refresh(self._devices, self._generations, self._second)
        return change

    def _due(self, lines: Mapping[str, Counters], changed: Iterable[Counters], passed_s: int) -> list[str]:
        """Return the names that this refresh checks; `changed` are the lines that differ from those before."""
        numbers = self._numbers
        if len(numbers) <= CHECKED:
            return list(numbers)
        new = [name for name in numbers if name not in self._stamps and name not in self._absent]
        woken = [name for name, line in self._absent.items() if lines[name] is not line]
        known = self._generations
        replugged = [
            device.name
            for device in changed
            if device.name in known and known[device.name] != self.generation(device.name)
        ]
        number = max(1, passed_s * min(TURN, -(-len(numbers) // LIMITS_S)))
        busy = self._stale_with_io(changed)[:number]
        in_turn = self._in_turn(list(numbers), max(1, number - len(busy)))
        return list(dict.fromkeys((*new, *woken, *replugged, *busy, *in_turn)))

    def _stale_with_io(self, changed: Iterable[Counters]) -> list[str]:
        """Return the devices of lines that differ whose limits are due, those that were read the longest ago first."""
        names = {self._whole[line.name] for line in changed} & self._limits_read.keys()
        due = (name for name in names if self._second - self._limits_read[name] >= LIMITS_S)
        return sorted(due, key=lambda name: (self._limits_read[name], name))

    def _in_turn(self, names: list[str], number: int) -> list[str]:
        """Return the next `number` devices of the names, and names without a device between them."""
        taken: list[str] = []
        absent, first = CHECKED, self._next % len(names)
        for at in range(len(names)):
            name = names[(first + at) % len(names)]
            if name in self._absent:
                absent -= 1
            else:
                number -= 1
            if min(absent, number) < 0:
                break
            taken.append(name)
        self._next = first + len(taken)
        return taken

    def _replace(self, stamps: dict[str, tuple[object, ...]]) -> DeviceChanges:
        """Identify the devices whose stamps differ; a path that is added or removed changes its multipath head too."""
        fresh = _different(self._stamps, stamps)
        if stamps.keys() != self._stamps.keys():
            above = (name for name in stamps if (device := self._devices.get(name)) is not None and not device.timed)
            fresh = tuple(stamps) if len(stamps) <= CHECKED else tuple(dict.fromkeys((*fresh, *above)))
        disks = tuple(sorted(self._numbers))
        devices = {name: self._identify(name, self._numbers[name], disks) for name in fresh}
        changed = tuple(device for name, device in devices.items() if self._devices.get(name) != device)
        removed = tuple(device for name, device in self._devices.items() if name not in stamps)
        self._devices = {name: devices.get(name) or self._devices[name] for name in self._numbers if name in stamps}
        self._stamps = stamps
        if removed:
            self._generations = {name: generation for name, generation in self._generations.items() if name in stamps}
            self._uncounted &= stamps.keys()
        return DeviceChanges(changed, removed)

    def device(self, major: int, minor: int) -> Device | None:
        """Return the whole disk with this number or with a partition of this number; None when none is known."""
        return self._devices.get(self._disks.get(DeviceNumber(major, minor), ""))

    @property
    def uncounted(self) -> frozenset[str]:
        """Names whose I/O the kernel doesn't count (queue/iostats), as of their last check."""
        return self._uncounted

    @property
    def generations(self) -> Mapping[str, int]:
        """A number per device that differs for another device with the same name, as of its last check."""
        return self._generations

    def generation(self, name: str) -> int:
        """Return the kernel's number of the device (diskseq, since 5.15), else the inode of its directory in sysfs.

        Where media change, diskseq counts these: a loop that gets another file goes on with its counters (6.18).
        """
        inode = self._inode(name)
        if name.startswith(_WITH_MEDIA) or _is_removable(self._below(name, "removable"), inode):
            return inode
        sequence = number(self._below(name, "diskseq"))
        # Once more: a device that went in between is none, not another one.
        return self._inode(name) if sequence is None else sequence

    def _inode(self, name: str) -> int:
        try:
            return self._below(name, "").stat().st_ino
        except OSError:
            return 0

    def _directory(self, name: str) -> Path:
        return directory(self._block, name)

    def _below(self, name: str, file: str) -> Path:
        return below(self._block, name, file)

    @property
    def _has_sysfs(self) -> bool:
        return self._block.is_dir()

    def _know_names(self, known: set[str]) -> None:
        new = known - self._whole.keys()
        if self._has_sysfs:
            disks = {name: whole_disk(self.sys, name) for name in new}
        else:
            disks = {name: disk_by_name(name, known) for name in new}
        self._whole = {name: disk for name, disk in self._whole.items() if name in known} | disks

    def _is_there(self, name: str, line: Counters) -> bool:
        """Return False for a loop without a file, a zram or nbd without a size; a disk that lost its size is there."""
        if name.startswith("loop") and self._below(name, "loop").is_dir():
            return True
        if not self._below(name, "").is_dir():
            return not self._has_sysfs  # with sysfs: unplugged since diskstats was read
        if name.startswith("loop"):
            return False
        has_size = number(self._below(name, "size")) != 0
        return has_size or self._below(name, "device").exists() or line.in_flight != 0

    def _read_limits(self, due: Iterable[str]) -> None:
        """Read the limits of new devices at once, of the others every LIMITS_S at most."""
        for name in due:
            at, previous_report = self._limits_read.get(name), self._reports.get(name)
            limits_due = at is None or self._second - at >= LIMITS_S
            reports_due = previous_report is None or self._second - previous_report[0] >= REPORTS_S
            if not limits_due and not reports_due:
                continue
            block = self._directory(name)
            above = directories_above(block)
            if limits_due:
                self._limits_read[name], self._limits[name] = self._second, limits(block, self.sys, above)
            if reports_due:
                self._reports[name] = self._second, self._reports_of(name, block, above)
        if len(self._limits) > len(self._numbers):
            for name in self._limits.keys() - self._numbers.keys():
                del self._limits[name], self._limits_read[name], self._reports[name]

    def _stamp(self, name: str) -> tuple[object, ...]:
        """Return the values that can change while the set of names stays: limits, and the hardware of a name."""
        flag, generation = number(self._below(name, "queue/iostats")), self.generation(name)
        if (flag == 0) != (name in self._uncounted):
            self._uncounted = self._uncounted | {name} if flag == 0 else self._uncounted - {name}
        if (before := self._generations.get(name)) != generation:
            self._generations = {**self._generations, name: generation}
            if before is not None:  # another device has the name now
                block = self._directory(name)
                self._reports[name] = self._second, self._reports_of(name, block, directories_above(block))
        return (self._limits.get(name), self._reported(name), *self._behind(name))

    def _reports_of(self, name: str, block: Path, above: Sequence[str]) -> tuple[DeviceReport, ...]:
        """Return what sysfs reports of a device, and where it is. udev's paths are those of this host."""
        if self._second != self._paths_read and self._tools is not None:
            self._paths, self._paths_read = location.paths_by_disk(), self._second
        below = self._backing_device(block)
        return (*reports(block, above), *location.reports(name, above, self.sys, self._paths), *below)

    def _backing_device(self, block: Path) -> Iterator[DeviceReport]:
        """Yield the disk that a loop device's file is on; nothing of other devices, and of files on no disk."""
        source = block / "loop/backing_file"
        path = content(source).rstrip(b"\n")
        mounts = self._mount_table.read()
        mount = mounts.above(Path(os.fsdecode(path))) if path else None
        disk = mounts.disk_of(mount, self.sys) if mount is not None and not mount.is_remote else ""
        if disk:
            yield DeviceReport(BACKING_DEVICE, disk, str(source))

    def _reported(self, name: str) -> tuple[DeviceReport, ...]:
        """Return what a device reports in sysfs and by tools, which know a dm device by its label."""
        known_as = device.label if (device := self._devices.get(name)) is not None and device.kind == "dm" else name
        by_tools = () if self._tools is None else self._tools.of(known_as, self._generations.get(name, 0))
        area = self._swaps.reports.get(name)
        areas = () if area is None else (area,)
        by_mounts = self._mount_reports.reports.get(name, ())
        return (*self._reports.get(name, (0, ()))[1], *by_tools, *areas, *by_mounts)

    def _swap_label(self, name: str) -> str:
        swap = self._swaps.reports.get(name)
        return "" if swap is None else SWAP if swap.value == "whole" else f"{SWAP}: {swap.value}"

    def _disk_of(self, name: str) -> str:
        """Return the disk of a block device's name; empty when none is known."""
        return self._whole.get(name, "")

    def _disk_at(self, major: int, minor: int) -> str:
        """Return the disk with this number or with a partition of this number; empty when none is known."""
        return self._disks.get(DeviceNumber(major, minor), "")

    def _behind(self, name: str) -> tuple[object, ...]:
        """Return the hardware of a name, a dm or md table, or a loop's file."""
        if name.startswith("loop"):
            return (content(self._below(name, "loop/backing_file")),)
        if self._below(name, "device").exists():
            return (self.generation(name), self._serial(name))
        return (
            self.generation(name),
            attribute(self._below(name, "dm/name")),
            names(self._below(name, "slaves")),
        )

    def _serial(self, name: str) -> str:
        """Return the serial number, read once per device; at the next refresh again where reading would wait."""
        key = name, self.generation(name)
        if key not in self._serials:
            own_serial = serial(self._directory(name))
            if own_serial is None:
                return ""
            self._serials[key] = own_serial
        return self._serials[key]

    def _identify(self, name: str, at: DeviceNumber, disks: tuple[str, ...]) -> Device:
        path = self._directory(name)
        if not path.is_dir():
            return Device(name, *_plain(at), kind="other", timed=not name.startswith(_BIO_BASED))
        kind = device_kind(path)
        driver, text = controller(path, self.sys)
        return Device(
            name,
            *_plain(at),
            kind=kind,
            driver=driver,
            controller=text,
            model=model(path, kind),
            serial=self._serial(name),
            members=members(path, kind, disks, self.sys),
            timed=has_requests(path),
            label=label(path, kind) or self._swap_label(name),
            limits=(*self._limits.get(name, ()), *of_module(driver, self.sys)),
            reports=self._reported(name),
        )


def _different(before: Mapping[str, object], after: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(name for name, stamp in after.items() if before.get(name) != stamp)


def _plain(at: DeviceNumber) -> tuple[int, int]:
    return at.major, at.minor


def _run(words: tuple[str, ...]) -> bytes:
    """Return what a program prints, without errors; its exit code isn't read, because smartctl's has a bit per entry.

    Its session is its own, so that it gets no signal and no input from the terminal.
    """
    until, output = time.monotonic() + _TOOL_TIMEOUT_S, b""
    with subprocess.Popen(  # noqa: S603 - an absolute path of root's own, and a name that was checked
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**environment(os.environ), "LC_ALL": "C"},
        start_new_session=True,
    ) as child:
        assert child.stdout is not None  # noqa: S101 - for mypy
        prints = select.poll()
        prints.register(child.stdout, select.POLLIN)
        try:
            while len(output) <= _MAX_TOOL_OUTPUT:
                if not prints.poll(max(0.0, until - time.monotonic()) * 1000):
                    raise subprocess.TimeoutExpired(words, _TOOL_TIMEOUT_S)
                if not (part := os.read(child.stdout.fileno(), 1 << 16)):
                    return output
                output += part
        finally:
            child.kill()
    raise OSError(f"{words[0]} prints more than {_MAX_TOOL_OUTPUT} bytes")


def read_logs(
    names: Iterable[str],
    run: Run = _run,
    find: Callable[[str, str, Mapping[str, str]], Path] = find_tool,
    *,
    multipath: bool = False,
    models: Mapping[str, str] = MappingProxyType({}),
    pool_disks: AbstractSet[str] = frozenset(),
) -> dict[str, tuple[DeviceReport, ...]]:
    """Return the logs of these drives, and with `multipath` the paths by the names of multipath devices.

    `models`: drive -> its model, which decides about pages that only a vendor's drives have. `pool_disks`: disks that
    may be in pools of ZFS; empty where there are none. What can't be read is left out.
    """
    logs: dict[str, tuple[DeviceReport, ...]] = {}
    for tool, arguments, keys in _TOOLS:
        for name in names:
            if name in logs or not _NVME_NAMESPACE.fullmatch(name):
                continue
            output = _output(run, find, tool, *(argument.format(name) for argument in arguments))
            if reports_of_tool := tuple(parse(output, keys, tool)):
                logs[name] = reports_of_tool
    for name in names:
        if _NVME_NAMESPACE.fullmatch(name) and (more := tuple(_more_of_nvme(run, find, name, models.get(name, "")))):
            logs[name] = (*logs.get(name, ()), *more)
    if multipath:
        logs |= _paths(run, find)
    if pool_disks:
        status = _output(run, find, "zpool", "status", "-LP").decode("utf-8", "replace")
        for name, scans in parse_scans(status, pool_disks).items():
            logs[name] = (*logs.get(name, ()), *scans)
    return logs


def parse_scans(output: str, disks: AbstractSet[str]) -> dict[str, tuple[DeviceReport, ...]]:
    """Return the scrub or resilver that runs, by disk, of the output of `zpool status -LP`."""
    scans: dict[str, tuple[DeviceReport, ...]] = {}
    begins = [match.start() for match in _POOL.finditer(output)]
    for begin, end in pairwise([*begins, len(output)]):
        pool, scan = _POOL.search(output, begin, end), _SCAN.search(output, begin, end)
        if pool is None or scan is None:
            continue
        reports = [DeviceReport("zfs_scan", clean(f"zfs {scan[1]} of {pool[1]}"), "zpool")]
        if done := _SCANNED.search(output, scan.end(), end):
            reports.append(DeviceReport("zfs_scan_percent", int(done[1]), "zpool"))
        for vdev in _VDEV.finditer(output, scan.end(), end):
            disk = disk_by_name(clean(vdev[1]), disks)
            if disk in disks:
                scans[disk] = tuple(reports)
    return scans


def _more_of_nvme(
    run: Run, find: Callable[[str, str, Mapping[str, str]], Path], name: str, model: str
) -> Iterator[DeviceReport]:
    """Yield the logs of a drive that not all have: those that it says it has."""
    path, as_json = f"/dev/{name}", "--output-format=json"
    if _AMAZON in model:
        output = _output(run, find, "nvme", "amzn", "stats", path, as_json)
        yield from _values(_json(output), {value: value for value in _AMAZON_VALUES})
        return
    commands = _json(_output(run, find, "nvme", "id-ctrl", path, as_json)).get("oacs")
    if type(commands) is int and commands & _SELF_TEST:
        output = _output(run, find, "nvme", "self-test-log", path, as_json)
        yield from _values(_json(output), _SELF_TEST_VALUES)


def _json(output: bytes) -> dict[str, Any]:
    """Return the object that a tool prints; an empty one of anything else."""
    try:
        value = json.loads(output)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _values(fields: Mapping[str, Any], named: Mapping[str, str]) -> Iterator[DeviceReport]:
    """Yield the whole numbers of nvme-cli's JSON by the names of their reports."""
    for key, name in named.items():
        value = fields.get(key)
        if type(value) is int and 0 <= value < 1 << 63:
            yield DeviceReport(name, value, "nvme")


def _output(run: Run, find: Callable[[str, str, Mapping[str, str]], Path], tool: str, *arguments: str) -> bytes:
    """Return what a tool prints; nothing where it isn't installed, isn't root's own or fails."""
    try:
        return run((str(find(tool, "", {"PATH": os.environ.get("PATH", os.defpath)})), *arguments))
    except (UnavailableError, UntrustedError, OSError, subprocess.TimeoutExpired):
        return b""


def _paths(run: Run, find: Callable[[str, str, Mapping[str, str]], Path]) -> dict[str, tuple[DeviceReport, ...]]:
    """Return the paths of all multipath devices, by their dm name.

    dmsetup asks the kernel for the status of all dm devices and prints those of the target. Without --noflush, dm-thin
    and dm-cache commit their metadata for that, which writes to the disks that are measured.
    """
    output = _output(run, find, "dmsetup", "status", "--noflush", "--target", "multipath")
    return {
        name: paths for line in output.splitlines() if (name := _named(line)) and (paths := tuple(parse_paths(line)))
    }


def _named(line: bytes) -> str:
    return clean(line.partition(b": ")[0]) if b" multipath " in line else ""


def parse_paths(line: bytes) -> Iterator[DeviceReport]:
    """Yield the numbers of paths and of failed ones, and how often paths failed, of a line of `dmsetup status`."""
    paths = _PATH.findall(f"{line.partition(b' multipath ')[2].decode('ascii', 'replace')} ")
    if paths:
        yield DeviceReport("paths", len(paths), "dmsetup")
        yield DeviceReport("paths_failed", sum(state == "F" for state, _ in paths), "dmsetup")
        yield DeviceReport("path_failures", sum(int(failures) for _, failures in paths), "dmsetup")


def parse(output: bytes, keys: tuple[str, ...], tool: str) -> Iterator[DeviceReport]:
    """Yield the values of a tool's JSON; none of anything else."""
    try:
        value: Any = json.loads(output)
    except (ValueError, RecursionError):
        return
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    for name in _VALUES if isinstance(value, dict) else ():
        number = value.get(name)
        if isinstance(number, str) and _QUOTED.fullmatch(number):
            number = int(number.replace(",", ""))
        if type(number) is int and 0 <= number < 1 << 63:
            yield DeviceReport(name, number, tool)


class ToolReports:
    """The latest logs, read on a thread that is started by `refresh`."""

    def __init__(
        self,
        read: Callable[..., Logs] = read_logs,
        is_root: Callable[[], bool] = lambda: os.geteuid() == 0,
        run: Callable[[str, Callable[[], Logs]], Future[Logs]] = run_aside,
    ) -> None:
        """Take the function that reads them: as `read_logs`, with names of drives and `multipath`.

        `run` begins a call on a thread of its own, of this name.
        """
        self._read, self._is_root, self._run = read, is_root, run
        self._reading: Future[Logs] | None = None
        self._due_s = self._read_s = 0
        self._logs: Logs = {}
        self._generations: Mapping[str, int] = {}
        """Drive -> its generation when the log was read."""
        self._reading_of: Mapping[str, int] = {}
        """Drive -> its generation when the reading began that goes on now."""

    def of(self, name: str, generation: int) -> tuple[DeviceReport, ...]:
        """Return the latest values of a drive, or of a multipath device by its dm name.

        None where none were read, and none of an earlier drive of that name.
        """
        return self._logs.get(name, ()) if self._generations.get(name, generation) == generation else ()

    def refresh(self, devices: Mapping[str, Device], generations: Mapping[str, int], now_s: int) -> None:
        """Use what was read, and read again when it is due. While a reading hangs, there is no other one."""
        if self._reading is not None and self._reading.done():
            self._logs, self._generations, self._read_s = self._reading.result(), self._reading_of, now_s
            self._reading = None
        if self._logs and now_s - self._read_s >= _REPORTS_KEPT_S:
            self._logs = {}
        if self._reading is not None or now_s < self._due_s:
            return
        self._due_s = now_s + REPORTS_PERIOD_S
        drives = tuple(name for name in devices if _NVME_NAMESPACE.fullmatch(name))[:_MAX_DRIVES]
        multipath = any(device.model == "multipath" for device in devices.values())
        pool_disks = frozenset(devices) if _ZFS.is_dir() else frozenset()
        if (drives or multipath or pool_disks) and self._is_root():
            self._reading_of = {name: generations.get(name, 0) for name in drives}
            models = {name: devices[name].model for name in drives}
            read = partial(self._read, drives, multipath=multipath, models=models, pool_disks=pool_disks)
            self._reading = self._run("tool reports", read)
