"""Checks of what the kernel offers and forbids: counters, BTF, tracefs, kprobes, the BPF JIT, lockdown, its tick."""

from __future__ import annotations

import re
from pathlib import Path

from latmon import host
from latmon.doctor.check import Check, Place, Status

_TRACEFS = ("kernel/tracing", "kernel/debug/tracing")
_LOCKDOWN = re.compile(rb"\[(\w+)\]")


def diskstats(place: Place) -> Check:
    """The kernel's own I/O counters: the procfs backend, and the coverage of every other one."""
    if place.platform.startswith("sunos") and place.run(["kstat", "-p", "-c", "disk"]).code == 0:
        return Check("diskstats", Status.OK, "kstat's counters: I/Os, bytes, the time in wait and service")
    if place.platform != "linux":
        return Check("diskstats", Status.DEGRADED, "no /proc/diskstats on this system: psutil's counters are used")
    if place.read(place.proc / "diskstats"):
        return Check("diskstats", Status.OK, "readable")
    remedy = "mount -t proc proc /proc" if not (place.proc / "self").exists() else "run latmon on the host itself"
    return Check("diskstats", Status.MISSING, "/proc/diskstats can't be read or is empty", remedy)


def iostats(place: Place) -> Check:
    """Devices whose I/O the kernel doesn't count."""
    off = [flag.parent.parent for flag in sorted((place.sys / "block").glob("*/queue/iostats")) if _is_off(place, flag)]
    if not off:
        return Check("iostats", Status.OK, "the kernel counts the I/O of every disk")
    names = ", ".join(path.name for path in off)
    command = "; ".join(f"echo 1 > /sys/block/{path.name}/queue/iostats" for path in off)
    return Check(
        "iostats", Status.DEGRADED, f"the kernel doesn't count the I/O of {names}", _in_root_shell(place, command)
    )


def _is_off(place: Place, flag: Path) -> bool:
    """Off for a device with requests; a bio-based one (zram) counts for itself whatever the flag says."""
    return place.read(flag).strip() == b"0" and (flag.parent.parent / "mq").is_dir()


def _in_root_shell(place: Place, command: str) -> str:
    return command if place.uid == 0 else f"sudo sh -c '{command}'"


def btf(place: Place) -> Check:
    """The kernel's type information: request stamps are found with it."""
    if (place.sys / "kernel/btf/vmlinux").exists():
        return Check("btf", Status.OK, "/sys/kernel/btf/vmlinux")
    what = "no /sys/kernel/btf/vmlinux: the kernel was built without CONFIG_DEBUG_INFO_BTF"
    return Check("btf", Status.DEGRADED, what, "boot the distribution's own kernel; until then a cruder probe is used")


def tracefs(place: Place) -> Check:
    """Where tracepoints are described. The probe can mount it for itself when it is root."""
    for where in _TRACEFS:
        try:
            if any((place.sys / where / "events").iterdir()):
                return Check("tracefs", Status.OK, f"/sys/{where}")
        except PermissionError:
            return Check("tracefs", Status.OK, f"/sys/{where} (readable by root only)")
        except OSError:
            continue
    if b"\ttracefs\n" not in place.read(place.proc / "filesystems"):
        what = "this kernel has no tracefs: it was built without CONFIG_FTRACE"
        return Check("tracefs", Status.MISSING, what, "boot the distribution's own kernel")
    if not (place.sys / "kernel/tracing").is_dir():
        return Check("tracefs", Status.OK, "mounted for root only")
    what = "not mounted at /sys/kernel/tracing; the probe mounts it for itself when it is root"
    return Check("tracefs", Status.DEGRADED, what, place.as_root("mount -t tracefs tracefs /sys/kernel/tracing"))


def kprobes(place: Place) -> Check:
    """Only tier B wants kprobes; a kernel without them still has tracepoints."""
    config = host.kernel_config(place.proc, place.boot)
    if b"CONFIG_KPROBES=y" in config:
        return Check("kprobes", Status.OK, "the kernel has them")
    if config:
        return Check("kprobes", Status.OK, "none (CONFIG_KPROBES is not set); only tier B would want them")
    return Check("kprobes", Status.OK, "unknown, the kernel's configuration can't be read; only tier B wants them")


def jit(place: Place) -> Check:
    """Without the BPF JIT a probe is interpreted, at several times the cost per I/O."""
    state = place.read(place.proc / "sys/net/core/bpf_jit_enable").strip()
    always = b"CONFIG_BPF_JIT_ALWAYS_ON=y" in host.kernel_config(place.proc, place.boot)
    if always or state in (b"1", b"2"):
        return Check("bpf-jit", Status.OK, "on")
    if state == b"0":
        remedy = place.as_root("sysctl net.core.bpf_jit_enable=1")
        return Check("bpf-jit", Status.DEGRADED, "off: every probe costs several times as much", remedy)
    return Check("bpf-jit", Status.DEGRADED, "unknown: only root can read net.core.bpf_jit_enable")


def lockdown(place: Place) -> Check:
    """Confidentiality lockdown forbids BPF to read kernel memory, which is all that a probe does."""
    found = _LOCKDOWN.search(place.read(place.sys / "kernel/security/lockdown"))
    if found is None:
        return _without_lockdown(place)
    level = found.group(1).decode()
    if level != "confidentiality":
        return Check("lockdown", Status.OK, level)
    remedy = "boot without lockdown=confidentiality (lockdown=integrity allows probes)"
    return Check("lockdown", Status.MISSING, "confidentiality: the kernel refuses every probe", remedy)


def _without_lockdown(place: Place) -> Check:
    """No file: the kernel has no lockdown, or nobody mounted the file system that would say so."""
    try:
        mounted = any((place.sys / "kernel/security").iterdir())
    except OSError:
        mounted = False
    if mounted or b"CONFIG_SECURITY_LOCKDOWN_LSM is not set" in host.kernel_config(place.proc, place.boot):
        return Check("lockdown", Status.OK, "not in force")
    remedy = place.as_root("mount -t securityfs securityfs /sys/kernel/security")
    return Check("lockdown", Status.DEGRADED, "unknown: securityfs is not mounted", remedy)


def tick(place: Place) -> Check:
    """CONFIG_HZ: latencies in multiples of a tick are recognised with it."""
    ticks = host.hz(place.proc, place.boot)
    if ticks is not None:
        return Check("hz", Status.OK, f"{ticks} ticks per second")
    what = "unknown: neither /proc/config.gz nor /boot/config-* can be read"
    return Check("hz", Status.DEGRADED, what)


def container(place: Place) -> Check:
    """A container sees the host's disks in diskstats but can rarely run a probe."""
    kind = host.container(place.proc, place.root)
    if not kind:
        return Check("container", Status.OK, "none")
    what = f"{kind}: probes are refused unless it is privileged and shares /sys/kernel and the pid namespace"
    return Check("container", Status.DEGRADED, what, "run latmon on the host")
