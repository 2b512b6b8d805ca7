"""Host settings that make two captures comparable: kernel, drivers with parameters, queues, network cards, clocks.

They are read from small files of /proc and /sys, whose roots are arguments; `solaris` has those of illumos and Solaris,
and FreeBSD has sysctls.
A missing or unreadable file is no setting; where a read hangs, `bounded` returns what was read before it.
"""

from __future__ import annotations

import asyncio
import platform
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from latmon.capture.backend import Options
from latmon.model.frame import Device, Settings, capped
from latmon.support import host
from latmon.support.paths import text
from latmon.support.process import SideThread
from latmon.support.text import clean
from latmon_backends.kernel import block_devices, network, solaris

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


async def bounded(
    options: Options,
    devices: Iterable[Device],
    reported: Mapping[str, Mapping[str, str]],
    patience_s: float = PATIENCE_S,
) -> Settings:
    """Return the reported sections and those that a thread could read within `patience_s`."""
    found: Sections = {name: dict(section) for name, section in reported.items()}
    thread = SideThread("settings")
    reading = asyncio.get_running_loop().run_in_executor(thread, read_all, options, tuple(devices), found)
    thread.shutdown()
    await asyncio.wait({reading}, timeout=patience_s)
    if reading.done():
        reading.result()
    return capped({name: dict(section) for name, section in tuple(found.items()) if section})


def read_all(options: Options, devices: tuple[Device, ...], into: Sections) -> None:
    """Read section by section, so that a read that hangs leaves those before it."""
    into["clock"] = clocks()
    into["kernel"] = dict(kernel(options.proc, options.sys))
    if platform.system() == "SunOS":
        solaris.read_all(devices, into)
        return
    if platform.system() == "FreeBSD":
        freebsd(into)
        return
    for name in dict.fromkeys((*_ALWAYS, *_drivers(devices, options.sys))):
        into[f"module {name}"] = module(name, options.sys)
    for device in devices:
        into[f"device {device.name}"] = dict(queue(device.name, options.sys))
    for name, card in network.cards(options.proc, options.sys).items():
        into[f"network {clean(name)}"] = {key: value[:MAX_VALUE] for key, value in card.items()}
        if driver := card.get("driver", "").replace("-", "_"):
            into[f"module {driver}"] = module(driver, options.sys)


def freebsd(into: Sections, run: solaris.Run = solaris.run_trusted) -> None:
    """Add FreeBSD's sysctls, which are only read; `-i` leaves out those that a kernel doesn't have (sysctl(8))."""
    names = [name for some in _SYSCTLS.values() for name in some]
    sections = {name: section for section, some in _SYSCTLS.items() for name in some}
    for line in solaris.output_of(run, "/sbin/sysctl", "-ie", *names).decode("utf-8", "replace").splitlines():
        name, _, value = line.partition("=")
        if name in sections:
            into.setdefault(sections[name], {})[name] = clean(value, MAX_VALUE)


def clocks() -> dict[str, str]:
    """Return all clocks at one moment, to convert between them. Microseconds, the wall clock in seconds."""
    reported = {
        "mono": str(time.monotonic_ns() // 1000),
        "wall": f"{time.time():.6f}",
        "utc_offset": time.strftime("%z"),
    }
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    if boottime is not None:
        reported["boottime"] = str(time.clock_gettime_ns(boottime) // 1000)
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
    found = (how for option, how in _PREEMPTION.items() if b"CONFIG_%s=y\n" % option in config)
    return next(found, "none" if b"CONFIG_PREEMPT_NONE=y" in config else "")


def module(name: str, sys: Path) -> dict[str, str]:
    """Return a module's version, source checksum and current parameters; empty where it isn't loaded."""
    directory = sys / "module" / name
    found = {one: block_devices.attribute(directory / one)[:MAX_VALUE] for one in ("version", "srcversion")}
    for one in block_devices.names(directory / "parameters")[:_MAX_PARAMETERS]:
        found[one[:MAX_VALUE]] = block_devices.attribute(directory / "parameters" / one)[:MAX_VALUE]
    return {one: value for one, value in found.items() if value}


def queue(name: str, sys: Path) -> Iterator[tuple[str, str]]:
    """Yield the settings of a block device's queue, its model and firmware, and its host adapter's."""
    block = sys / "class/block" / name
    scheduler = block_devices.attribute(block / "queue/scheduler")
    bracketed = _BRACKETED.search(scheduler)
    yield from _reported(("scheduler", bracketed[1] if bracketed else scheduler))
    for one in _QUEUE:
        yield from _reported((one, block_devices.attribute(block / "queue" / one)))
    for one in _DEVICE:
        yield from _reported((one, block_devices.attribute(block / "device" / one)))
    for adapter in _adapters(block, sys):
        for one in block_devices.names(adapter):
            if _FIRMWARE.fullmatch(one):
                yield from _reported((f"hba {one}", block_devices.attribute(adapter / one)))


def _reported(setting: tuple[str, str]) -> Iterator[tuple[str, str]]:
    if setting[1]:
        yield setting[0], setting[1][:MAX_VALUE]


def _adapters(block: Path, sys: Path) -> Iterator[Path]:
    """Yield the scsi_host of a device."""
    try:
        above = (block / "device").resolve(strict=True).parents
    except OSError:
        return
    yield from (sys / "class/scsi_host" / one.name for one in above if _HOST.fullmatch(one.name))


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
