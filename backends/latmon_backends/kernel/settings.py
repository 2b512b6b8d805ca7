"""Host settings that make two captures comparable: kernel, drivers with parameters, queues, network cards, clocks.

They are read from small files of /proc and /sys, whose roots are arguments; on FreeBSD by sysctl. A missing or
unreadable file is no setting; where a read hangs, `bounded` returns what was read before it.

On illumos and Solaris the sources are /etc/system, driver .conf files, prtconf -v, kstat, and variables by mdb -k. What
a file asks for has the file's name before it (`/etc/system sd_max_throttle`), because the kernel reads files at boot; a
variable's name alone is its present value. Formats as in illumos-gate, usr/src: man/man5/system.5 and driver.conf.5,
cmd/prtconf/pdevinfo.c (dump_devs, dump_prop_list).

The interface of an NVMe connection over TCP or RDMA is the one that it names, else that of the longest route to its
target; rules of policy routing are not read. Below a bond or a VLAN its cards are taken, with the versions that
`ethtool -i` shows.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import ipaddress
import os
import platform
import re
import socket
import struct
import sys as python
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from latmon.capture.backend import Options
from latmon.model.frame import Device, Settings, capped
from latmon.support import host
from latmon.support.errors import UnavailableError, UntrustedError
from latmon.support.paths import matching, text
from latmon.support.process import SideThread
from latmon.support.text import clean
from latmon.support.trust import require
from latmon_backends.kernel import block_devices
from latmon_backends.kernel.kstat import output, parse_pairs

Sections = dict[str, dict[str, str]]
PATIENCE_S = 3.0
"""Timeout of all readings; 1,000 devices take 0.4 s."""
MAX_VALUE = 256
MAX_LIST = 1000
_MAX_PARAMETERS = 300
"""lpfc has some 150."""
_ALWAYS = ("block", "scsi_mod", "sd_mod", "nvme_core", "dm_mod", "dm_multipath", "md_mod")
_QUEUE = (
    *("nr_requests", "rq_affinity", "nomerges", "wbt_lat_usec", "max_sectors_kb", "read_ahead_kb", "write_cache"),
    *("rotational", "io_poll", "io_timeout", "max_segments", "logical_block_size", "physical_block_size", "zoned"),
)
_DEVICE = ("queue_depth", "queue_type", "queue_ramp_up_period", "timeout", "model", "rev", "firmware_rev", "iopolicy")
_SYSCTLS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "kernel": ("kern.hz", "kern.timecounter.hardware", "hw.ncpu", "kern.maxphys"),
        "module cam": (
            *("kern.cam.sort_io_queues", "kern.cam.da.default_timeout", "kern.cam.da.retry_count"),
            *("kern.cam.ada.default_timeout", "kern.cam.ada.retry_count", "kern.cam.ada.write_cache"),
        ),
        "module zfs": (
            "vfs.zfs.vdev.max_active",
            *(f"vfs.zfs.vdev.{kind}_max_active" for kind in ("sync_read", "sync_write", "async_read", "async_write")),
        ),
    }
)
"""Section -> sysctls of ticks, limits and timeouts (sys/cam/scsi/scsi_da.c, sys/cam/ata/ata_da.c, OpenZFS)."""
_FIRMWARE = re.compile(r"(?:fw|firmware)_?(?:version|rev|revision)|version_fw|fwrev|model_?name|option_rom_version")
_HOST = re.compile(r"host\d+")
_BRACKETED = re.compile(r"\[([^\]]+)\]")
_CHOSEN = re.compile(r"[\[(](\w+)[\])]")
_BOOT = re.compile(
    r"(?:elevator|mitigations|isolcpus|nohz|nohz_full|threadirqs|rcu_nocbs|irqaffinity|preempt|skew_tick|clocksource|tsc"
    r"|idle|nosmt|nohpet|highres|maxcpus|nr_cpus|numa|numa_balancing|pcie_aspm|pci|iommu|intel_iommu|amd_iommu"
    r"|intel_pstate|amd_pstate|transparent_hugepage|audit|kpti|pti|spectre_v2|retbleed|noapic|irqpoll|nopti"
    r"|(?:scsi|sd|nvme|dm|md|blk|block|virtio|intel_idle|processor|iommu|rcutree|megaraid|mpt|mpi|lpfc|qla|ahci|libata"
    r"|ata|xen|hpsa|smartpqi|aacraid|bfa|fnic|cxgb|ib|rdma|isci|arcmsr|zfs|raid|dasd|zfcp)\w*\.\w+)"
)
_PREEMPTION = {b"PREEMPT_RT": "rt", b"PREEMPT_LAZY": "lazy", b"PREEMPT": "full", b"PREEMPT_VOLUNTARY": "voluntary"}
Run = Callable[[tuple[str, ...], bytes], bytes]
"""Words and standard input -> standard output; UnavailableError where there is none."""
Setting = tuple[str, str, str]
"""Module, name, value."""
_MAX_SETTINGS = 300
"""One source gives at most so many settings."""
_DRIVERS = re.compile(
    r"s?sd|scsi_vhci|fp|fcp|emlxs|qlc|lpfc|bfa|fcoei?|mpt(_sas\d?)?|pmcs|mr_sas|lmrc|aac|arcmsr|cpqary3|smartpqi|ahci|sata"
    r"|nvme|blkdev|vioblk|vioscsi|pvscsi|cmdk|iscsi|srpc|zfs"
)
"""Drivers between a disk and its hardware."""
_CONF = ("kernel/drv/*.conf", "platform/*/kernel/drv/*.conf", "etc/driver/drv/*.conf")
_SYSTEM = ("etc/system", "etc/system.d/*")
_SET = re.compile(r"set\s+(?:(\w+):)?(\w+)\s*([=|&]\s*[~-]?\s*\w+)")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|#[^\n]*|;|[^;"#]+|.', re.DOTALL)
_BLANKS = re.compile(r'("(?:[^"\\]|\\.)*")|\s+', re.DOTALL)
_PROPERTY = re.compile(r"([^\s=;\"]+)\s*=\s*(.+)", re.DOTALL)
_NODE = re.compile(r" *\S.*?, instance #(\d+)(?: \(driver name: (\w+)\))?")
_NAME = re.compile(r" +name='([^']+)' type=(\w+)(?: items=(\d+))?.*")
_VALUE = re.compile(r" +value=(.*)")
_IDENTIFIES = re.compile(
    r"ww[np]n?|serial|guid|devid|port-?name|initiator|target-?port|bind|sas-?addr|mac-?addr", re.IGNORECASE
)
"""Names of addresses: a recording has none of them, even without --redact."""
_INQUIRY = {"inquiry-vendor-id": "vendor", "inquiry-product-id": "model", "inquiry-revision-id": "rev"}
_KSTATS = ("zfs:0:arcstats:c_max", "zfs:0:arcstats:c_min")
_VARIABLE = re.compile(r"(\w+):\s+(-?\d+)\s*")
_VARIABLES = (
    *("sd_max_throttle", "sd_io_time", "ssd_max_throttle", "ssd_io_time", "user_reserve_hint_pct"),
    *("zfs_vdev_max_pending", "zfs_vdev_min_pending", "zfs_vdev_max_active"),
    *(f"zfs_vdev_{kind}_max_active" for kind in ("sync_read", "sync_write", "async_read", "async_write", "scrub")),
)
"""Limits of commands in flight and of the time that each may take; a kernel has some of them."""
_FABRICS = ("tcp", "rdma")
_SIOCETHTOOL, _GDRVINFO = 0x8946, 3
_DRVINFO = struct.Struct("=I32s32s32s32s32s12x20x")
"""struct ethtool_drvinfo: cmd, driver, version, fw_version, bus_info, erom_version."""
_IFREQ = struct.Struct("16sP16x")
_IFNAME = 15
_ROUTE_UP, _ROUTE_REJECT = 0x1, 0x200
_LOWER_DEPTH = 4
"""A VLAN on a bond on two cards is three deep."""


async def bounded(
    options: Options,
    devices: Iterable[Device],
    reported: Mapping[str, Mapping[str, str]],
    patience_s: float = PATIENCE_S,
) -> Settings:
    """Return the reported sections and those that a thread could read within `patience_s`."""
    sections: Sections = {name: dict(section) for name, section in reported.items()}
    thread = SideThread("settings")
    reading = asyncio.get_running_loop().run_in_executor(thread, read_all, options, tuple(devices), sections)
    thread.shutdown()
    await asyncio.wait({reading}, timeout=patience_s)
    if reading.done():
        reading.result()
    return capped({name: dict(section) for name, section in tuple(sections.items()) if section})


def read_all(options: Options, devices: tuple[Device, ...], into: Sections) -> None:
    """Read section by section, so that a read that hangs leaves those before it."""
    into["clock"] = clocks()
    into["kernel"] = dict(kernel(options.proc, options.sys))
    if platform.system() == "SunOS":
        solaris(devices, into)
        return
    if platform.system() == "FreeBSD":
        freebsd(into)
        return
    for name in dict.fromkeys((*_ALWAYS, *_drivers(devices, options.sys))):
        into[f"module {name}"] = module(name, options.sys)
    for device in devices:
        into[f"device {device.name}"] = dict(queue(device.name, options.sys))
    for name, card in network_cards(options.proc, options.sys).items():
        into[f"network {clean(name)}"] = {key: value[:MAX_VALUE] for key, value in card.items()}
        if driver := card.get("driver", "").replace("-", "_"):
            into[f"module {driver}"] = module(driver, options.sys)


def freebsd(into: Sections, run: Run | None = None) -> None:
    """Add FreeBSD's sysctls, which are only read; `-i` leaves out those that a kernel doesn't have (sysctl(8))."""
    names = [name for sysctls in _SYSCTLS.values() for name in sysctls]
    sections = {name: section for section, sysctls in _SYSCTLS.items() for name in sysctls}
    for line in output_of(run or run_trusted, "/sbin/sysctl", "-ie", *names).decode("utf-8", "replace").splitlines():
        name, _, value = line.partition("=")
        if name in sections:
            into.setdefault(sections[name], {})[name] = clean(value, MAX_VALUE)


def clocks() -> dict[str, str]:
    """Return all clocks at one moment, to convert between them. Microseconds, the wall clock in seconds.

    In a time namespace also how far the two are ahead of the kernel's clocks, which other tracers read.
    """
    reported = {
        "mono": str(time.monotonic_ns() // 1000),
        "wall": f"{time.time():.6f}",
        "utc_offset": time.strftime("%z"),
    }
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    if boottime is not None:
        reported["boottime"] = str(time.clock_gettime_ns(boottime) // 1000)
    offsets = host.clock_offsets()
    if offsets != host.ClockOffsets():
        reported["mono_offset"] = str(offsets.monotonic_ns // 1000)
        reported["boottime_offset"] = str(offsets.boottime_ns // 1000)
    return reported


def kernel(proc: Path, sys: Path, boot: Path = Path("/boot")) -> Iterator[tuple[str, str]]:
    """Yield release, build, boot parameters that matter to I/O, ticks and preemption."""
    reported = platform.uname()
    yield from (
        ("system", clean(reported.system)),
        ("release", clean(reported.release)),
        ("version", clean(reported.version)),
    )
    yield "machine", clean(reported.machine)
    config = host.kernel_config(proc, boot)
    hz = re.search(rb"^CONFIG_HZ=(\d+)$", config, re.MULTILINE)
    if hz:
        yield "hz", hz[1].decode()
    if how := preemption(config, reported.version, sys):
        yield "preemption", how
    for name, path in (
        ("clocksource", "devices/system/clocksource/clocksource0/current_clocksource"),
        ("cpus", "devices/system/cpu/online"),
        ("smt", "devices/system/cpu/smt/active"),
        ("governor", "devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    ):
        if value := block_devices.attribute(sys / path):
            yield name, value[:MAX_VALUE]
    for word in text(proc / "cmdline").split():
        name, _, value = word.partition("=")
        if _BOOT.fullmatch(name):
            yield f"boot {clean(name)[:MAX_VALUE]}", clean(value)[:MAX_VALUE] or "yes"


def preemption(config: bytes, version: str, sys: Path) -> str:
    """Return the preemption model; `dynamic` where it is chosen at boot and can't be read."""
    if chosen := _CHOSEN.search(text(sys / "kernel/debug/sched/preempt")):
        return clean(chosen[1])
    if "PREEMPT_DYNAMIC" in version or b"CONFIG_PREEMPT_DYNAMIC=y" in config:
        return "dynamic"
    if "PREEMPT_RT" in version:
        return "rt"
    words = (how for option, how in _PREEMPTION.items() if b"CONFIG_%s=y\n" % option in config)
    return next(words, "none" if b"CONFIG_PREEMPT_NONE=y" in config else "")


def module(name: str, sys: Path) -> dict[str, str]:
    """Return a module's version, source checksum and current parameters; empty where it isn't loaded."""
    directory = sys / "module" / name
    attributes = {file: block_devices.attribute(directory / file)[:MAX_VALUE] for file in ("version", "srcversion")}
    for parameter in block_devices.names(directory / "parameters")[:_MAX_PARAMETERS]:
        attributes[parameter[:MAX_VALUE]] = block_devices.attribute(directory / "parameters" / parameter)[:MAX_VALUE]
    return {name: value for name, value in attributes.items() if value}


def queue(name: str, sys: Path) -> Iterator[tuple[str, str]]:
    """Yield the settings of a block device's queue, its model and firmware, and its host adapter's.

    With `strict_limit`, which nobody sets by default, a share of the dirty pages is a limit of the device's own.
    """
    block = sys / "class/block" / name
    scheduler = block_devices.attribute(block / "queue/scheduler")
    bracketed = _BRACKETED.search(scheduler)
    yield from _reported(("scheduler", bracketed[1] if bracketed else scheduler))
    for file in _QUEUE:
        yield from _reported((file, block_devices.attribute(block / "queue" / file)))
    for file in _DEVICE:
        yield from _reported((file, block_devices.attribute(block / "device" / file)))
    if block_devices.attribute(block / "bdi/strict_limit") == "1":
        yield "bdi strict_limit", "1"
    for adapter in _adapters(block, sys):
        for file in block_devices.names(adapter):
            if _FIRMWARE.fullmatch(file):
                yield from _reported((f"hba {file}", block_devices.attribute(adapter / file)))


def _reported(setting: tuple[str, str]) -> Iterator[tuple[str, str]]:
    if setting[1]:
        yield setting[0], setting[1][:MAX_VALUE]


def _adapters(block: Path, sys: Path) -> Iterator[Path]:
    """Yield the scsi_host of a device."""
    try:
        above = (block / "device").resolve(strict=True).parents
    except OSError:
        return
    yield from (sys / "class/scsi_host" / directory.name for directory in above if _HOST.fullmatch(directory.name))


def _drivers(devices: Iterable[Device], sys: Path) -> Iterator[str]:
    """Yield the modules between the block layer and the hardware; a module's name has no dashes."""
    for device in devices:
        if device.driver:
            yield from _variants(device.driver)
        try:
            above = (sys / "class/block" / device.name / "device").resolve(strict=True)
        except OSError:
            continue
        for path in (above, *above.parents):
            if name := block_devices.link(path / "driver/module"):
                yield name


def _variants(driver: str) -> tuple[str, ...]:
    name = driver.replace("-", "_")
    return (name, name.partition("_")[0]) if name.startswith("nvme_") else (name,)


def probe(reported: str, scripts: Iterable[str]) -> dict[str, str]:
    """Return the checksum of the program given to the tool, and its scripts."""
    return (
        {"sha256": sha256(reported.encode()).hexdigest(), "scripts": ", ".join(scripts)[:MAX_LIST]} if reported else {}
    )


def solaris(devices: Iterable[Device], into: Sections, root: Path = Path("/"), run: Run | None = None) -> None:
    """Add all settings, the quickest source first, because a source that hangs leaves those before it."""
    run = run or run_trusted
    disks = {device.name for device in devices}
    for settings in (
        _etc_system(root),
        _driver_confs(root),
        _cache_limits(run),
        _properties(run, disks),
        _kernel_variables(run),
    ):
        for section, name, value in islice(
            (setting for setting in settings if not _IDENTIFIES.search(setting[1])), _MAX_SETTINGS
        ):
            into.setdefault(section, {})[clean(name, MAX_VALUE)] = clean(value, MAX_VALUE)


def _module_section(module: str) -> str:
    return f"module {module}" if module else "kernel"


def _etc_system(root: Path) -> Iterator[Setting]:
    """Yield the variables that /etc/system sets at boot."""
    for path in (path for glob in _SYSTEM for path in matching(root, glob)):
        for module, name, value in etc_system(text(path)):
            yield _module_section(module), f"/{path.relative_to(root)} {name}", value


def etc_system(lines: str) -> Iterator[Setting]:
    """Yield module, variable and value of each `set`; a module is empty where none is named."""
    for line in lines.splitlines():
        match = _SET.match(line.strip())  # comments begin with * or #
        if match is not None:
            yield match[1] or "", match[2], match[3].removeprefix("=").strip()


def _driver_confs(root: Path) -> Iterator[Setting]:
    """Yield the properties that the files of disk drivers give all their instances."""
    for path in (path for glob in _CONF for path in matching(root, glob)):
        if _DRIVERS.fullmatch(path.stem):
            for name, value in driver_conf(text(path)):
                yield _module_section(path.stem), f"{path.name} {name}", value


def driver_conf(whole: str) -> Iterator[tuple[str, str]]:
    """Yield the properties of a driver.conf(5) that are of no single node; blanks in strings are kept."""
    parts: list[str] = []
    for part in (*_TOKEN.findall(whole), ";"):
        if part == ";":
            match = _PROPERTY.fullmatch(_BLANKS.sub(lambda match: match[1] or " ", "".join(parts)).strip())
            # A node has several properties in one entry: name, parent or class, and an address.
            if match is not None and sum(token.count("=") for token in parts if not token.startswith('"')) == 1:
                yield match[1], match[2]
            parts = []
        elif not part.startswith("#"):
            parts.append(part)


def _cache_limits(run: Run) -> Iterator[Setting]:
    """Yield the bounds of ZFS's cache."""
    for id_, values in parse_pairs(output_of(run, "/usr/bin/kstat", "-p", *_KSTATS)).values.items():
        for name, value in values.items():
            yield _module_section(id_.module), f"{id_.name} {name}", value


class Property(NamedTuple):
    """A property of one instance of a driver; `value` is decimal where it is one integer."""

    driver: str
    instance: int
    name: str
    value: str


def _properties(run: Run, disks: set[str]) -> Iterator[Setting]:
    """Yield the identity of disks, and the properties of their adapters' drivers."""
    printed = output_of(run, "/usr/sbin/prtconf", "-vD").decode("utf-8", "replace")
    for setting in properties(printed):
        node = f"{setting.driver}{setting.instance}"
        if node in disks:
            if setting.name in _INQUIRY:
                yield f"device {node}", _INQUIRY[setting.name], setting.value
        elif (
            _DRIVERS.fullmatch(setting.driver) and setting.name not in _INQUIRY and setting.driver not in ("sd", "ssd")
        ):
            yield _module_section(setting.driver), f"{node} {setting.name}", setting.value


def properties(printed: str) -> Iterator[Property]:
    """Yield the strings and integers of the nodes that have a driver, from `prtconf -vD`."""
    node: tuple[str, int] | None = None
    name = kind = ""
    for line in printed.splitlines():
        if match := _NODE.fullmatch(line):
            node = (match[2], int(match[1])) if match[2] else None
        elif match := _NAME.fullmatch(line):
            name, kind = (match[1], match[2]) if match[2] in ("int", "int64", "string") else ("", "")
        elif node is not None and name and (match := _VALUE.fullmatch(line)):
            yield Property(*node, name, _property_value(kind, match[1].strip()))
            name = ""
        elif line.lstrip().startswith("Device Minor Nodes"):
            node = None  # properties of its minor nodes and layers follow


def _property_value(kind: str, printed: str) -> str:
    if kind == "string":
        return printed.strip("'")
    if not re.fullmatch(r"[0-9a-f]{8}|[0-9a-f]{16}", printed):
        return printed
    return str(int.from_bytes(bytes.fromhex(printed), "big", signed=True))


def _kernel_variables(run: Run) -> Iterator[Setting]:
    """Yield present values of kernel variables: to read them takes root, and mdb without -w, which can't write."""
    if os.geteuid() != 0:
        return
    asked = "".join(f"{name}/D\n" for name in _VARIABLES)
    for line in (
        output_of(run, "/usr/bin/mdb", "-S", "-k", given=asked.encode()).decode("utf-8", "replace").splitlines()
    ):
        match = _VARIABLE.fullmatch(line)
        if match is not None:
            module = match[1].partition("_")[0]
            yield _module_section(module if module in ("sd", "ssd", "zfs") else ""), match[1], match[2]


def run_trusted(words: tuple[str, ...], given: bytes) -> bytes:
    """Run a program that no other user can change. Raises UntrustedError, UnavailableError."""
    require(Path(words[0]), words[0])
    return output(words, given=given)


def output_of(run: Run, *words: str, given: bytes = b"") -> bytes:
    """Return a program's output, empty where it is missing or fails, or where others can change what root would run."""
    try:
        return run(words, given)
    except (UnavailableError, UntrustedError):
        return b""


class DriverInfo(NamedTuple):
    """Versions of a card's driver and firmware, and its bus address, as `ethtool -i` shows them."""

    version: str
    firmware: str
    bus: str


def network_cards(
    proc: Path, sys: Path, asked: Callable[[str], DriverInfo | None] | None = None
) -> Mapping[str, Mapping[str, str]]:
    """Return interface -> driver, version, firmware, device and its controllers."""
    behind: defaultdict[str, list[str]] = defaultdict(list)
    for controller in block_devices.names(sys / "class/nvme"):
        directory = sys / "class/nvme" / controller
        if block_devices.attribute(directory / "transport") in _FABRICS:
            interface = _network_interface(block_devices.attribute(directory / "address"), proc)
            for name in dict.fromkeys(_cards_below(interface, sys, _LOWER_DEPTH)):
                behind[name].append(controller)
    return {
        name: _network_card(name, sys, asked or driver_info) | {"controllers": ", ".join(c)}
        for name, c in behind.items()
    }


def driver_info(interface: str) -> DriverInfo | None:
    """Ask an interface's driver; None where it doesn't exist or can't be asked. Needs no privilege."""
    info = array.array("B", bytes(_DRVINFO.size))
    struct.pack_into("=I", info, 0, _GDRVINFO)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = _IFREQ.pack(os.fsencode(interface)[:_IFNAME], info.buffer_info()[0])
            fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
    except OSError:
        return None
    _, _, version, firmware, bus, _ = _DRVINFO.unpack(info)
    return DriverInfo(*(clean(field_bytes.split(b"\0")[0]) for field_bytes in (version, firmware, bus)))


def _network_card(name: str, sys: Path, asked: Callable[[str], DriverInfo | None]) -> dict[str, str]:
    device = sys / "class/net" / name / "device"
    driver, path = block_devices.link(device / "driver"), device.resolve()
    info = asked(name)
    # An interface of this name may be another one: in a container, or in another network namespace.
    if info is None or info.bus not in path.parts:
        info = DriverInfo(block_devices.attribute(sys / "module" / driver.replace("-", "_") / "version"), "", "")
    attributes = {"driver": driver, "version": info.version, "firmware": info.firmware, "device": clean(path.name)}
    return {key: value for key, value in attributes.items() if value and value != "N/A"}


def _cards_below(interface: str, sys: Path, depth: int) -> Iterator[str]:
    """Yield the interfaces with a device of their own below a bond, a VLAN or a bridge; the interface if it has one."""
    directory = sys / "class/net" / interface
    if not interface or "/" in interface or not depth:
        return
    if (directory / "device").exists():
        yield interface
    for lower in sorted(matching(directory, "lower_*")):
        yield from _cards_below(lower.name.removeprefix("lower_"), sys, depth - 1)


def _network_interface(address: str, proc: Path) -> str:
    """Return the interface of a connection such as `traddr=10.0.0.2,trsvcid=4420,src_addr=10.0.0.1`."""
    named = dict(entry.strip().partition("=")[::2] for entry in address.split(","))
    if named.get("host_iface"):
        return named["host_iface"]
    try:
        target = ipaddress.ip_address(named.get("traddr", ""))
    except ValueError:
        return ""
    if isinstance(target, ipaddress.IPv6Address) and target.scope_id:
        return target.scope_id
    routes = _routes4(proc) if isinstance(target, ipaddress.IPv4Address) else _routes6(proc)
    fitting = [route for route in routes if target in route.network]
    best = max(fitting, key=lambda route: (route.network.prefixlen, -route.metric), default=None)
    return "" if best is None else clean(best.interface)


class _Route(NamedTuple):
    network: ipaddress.IPv4Network | ipaddress.IPv6Network
    metric: int
    interface: str


def _routes4(proc: Path) -> Iterator[_Route]:
    for line in text(proc / "net/route").splitlines()[1:]:
        words = line.split()
        try:
            name, flags, metric = words[0], int(words[3], 16), int(words[6])
            base, mask = (int(word, 16).to_bytes(4, python.byteorder) for word in (words[1], words[7]))
            network = ipaddress.IPv4Network((base, int.from_bytes(mask, "big").bit_count()), strict=False)
        except (ValueError, IndexError, OverflowError):
            continue
        if flags & _ROUTE_UP and not flags & _ROUTE_REJECT:
            yield _Route(network, metric, name)


def _routes6(proc: Path) -> Iterator[_Route]:
    for line in text(proc / "net/ipv6_route").splitlines():
        words = line.split()
        try:
            flags, metric = int(words[8], 16), int(words[5], 16)
            network = ipaddress.IPv6Network((bytes.fromhex(words[0]), int(words[1], 16)), strict=False)
        except (ValueError, IndexError):
            continue
        if flags & _ROUTE_UP and not flags & _ROUTE_REJECT:
            yield _Route(network, metric, words[9])
