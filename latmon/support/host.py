"""Facts about the host that measurements depend on: name, kernel, boot, timer tick, distribution, thread priorities.

Reads only, from roots that are arguments. Must not know backends, checks or the use of the facts.

Priorities of illumos and Solaris: priocntl(2), uts/common/disp and sys/class.h. FreeBSD: sys/sys/priority.h, whose
ranges between interrupt and idle threads differ from release to release (8, 13 and 15 were compared), so they have no
names here.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from latmon.support.paths import content, link_target
from latmon.support.text import clean

_HZ = re.compile(rb"^CONFIG_HZ=(\d+)$", re.MULTILINE)
_OFFSET = re.compile(rb"^(\w+) +(-?\d{1,18}) +(\d{1,9})$", re.MULTILINE)
_CLOCKS_APART_US = 1000
_CPUS = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*")
"""The kernel's list of CPUs: `0-3,8`."""
_FAMILIES = {
    "apt-get install": ("debian", "ubuntu"),
    "dnf install": ("fedora", "rhel", "centos"),
    "pacman -S": ("arch",),
}
"""Command that installs a package -> systems that have it."""
_INIT_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel gives the first pid namespace this number on every boot (PROC_PID_INIT_INO)."""
_TIME_NAMESPACES = ("ns/time", "ns/time_for_children")
"""Below /proc/PID: the time namespace of the process, and that of the children that it starts."""
_CONTAINERS = (b"docker", b"kubepods", b"libpod", b"lxc", b"containerd")
_CLASSES = ((60, "TS, IA or FSS class"), (100, "SYS class"), (160, "RT class"))
"""Classes of illumos and Solaris, by the first number above each; interrupt threads are above all of them."""
REAL_TIME = 100
_NICE_0 = 120
"""Classes of Linux: p->prio is 0-98 for real time, 100-139 for nice -20 to 19."""


def name() -> str:
    """Return the host's name, cleaned."""
    return clean(os.uname().nodename)


def kernel() -> str:
    """Return system and release, such as `Linux 6.1.0-29-amd64`."""
    return clean(f"{os.uname().sysname} {os.uname().release}")


def boot_id(proc: Path = Path("/proc")) -> str:
    """Return the kernel's id of this boot; empty where the system has none."""
    return clean(content(proc / "sys/kernel/random/boot_id").strip())


def hz(proc: Path = Path("/proc"), boot: Path = Path("/boot")) -> int | None:
    """Return the kernel's timer ticks per second from its configuration; None when that isn't readable.

    `getconf CLK_TCK` is no answer: it is 100 on every kernel.
    """
    match = _HZ.search(kernel_config(proc, boot))
    return int(match.group(1)) if match else None


def kernel_config(proc: Path = Path("/proc"), boot: Path = Path("/boot")) -> bytes:
    """Return the running kernel's configuration; empty when it isn't readable."""
    try:
        with gzip.open(proc / "config.gz") as packed:
            return packed.read()
    except (OSError, EOFError):
        release = content(proc / "sys/kernel/osrelease").strip().decode("ascii", "replace")
        return content(boot / f"config-{release}") if release else b""


def cpus(kind: str, sys: Path = Path("/sys")) -> frozenset[int]:
    """Return the CPUs that are `online`, `possible`, `isolated` or `nohz_full`; empty where that is not known.

    A per-CPU map has a slot for those that are possible.
    """
    text = content(sys / "devices/system/cpu" / kind).decode("ascii", "replace").strip()
    if _CPUS.fullmatch(text) is None:
        return frozenset()
    ends = [[int(end) for end in span.split("-")] for span in text.split(",")]
    return frozenset(cpu for end in ends for cpu in range(end[0], end[-1] + 1))


def install_command(package: str, etc: Path = Path("/etc")) -> str:
    """Return root's command that installs a package, by /etc/os-release; empty for an unknown system."""
    fields = dict(
        line.partition("=")[::2] for line in content(etc / "os-release").decode("utf-8", "replace").splitlines()
    )
    ids = f"{fields.get('ID', '')} {fields.get('ID_LIKE', '')}".replace('"', "").replace("'", "").split()
    return next((f"{command} {package}" for command, family in _FAMILIES.items() if set(ids) & set(family)), "")


def container(proc: Path = Path("/proc"), root: Path = Path("/")) -> str:
    """Return the kind of container that latmon runs in; empty outside of one.

    Marker files alone prove nothing: a virtual machine made from a container image has them too.
    """
    if link_target(proc / "self/ns/pid") == _INIT_PID_NAMESPACE:
        return ""
    # Without namespaces, and where they can't be read, the marks decide.
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    for line in content(proc / "1/environ").split(b"\0"):
        if line.startswith(b"container="):
            return clean(line.partition(b"=")[2])
    groups = content(proc / "1/cgroup")
    return next((mark.decode() for mark in _CONTAINERS if mark in groups), "")


@dataclass(frozen=True, slots=True)
class ClockOffsets:
    """What this process's time namespace adds to two of the kernel's clocks, in ns. Both are 0 outside of one."""

    monotonic_ns: int = 0
    boottime_ns: int = 0


@cache
def clock_offsets(proc: Path = Path("/proc")) -> ClockOffsets:
    """Return the offsets of this process's clocks; they can't change while it runs.

    A time namespace (time_namespaces(7), Linux 5.6) moves CLOCK_MONOTONIC and CLOCK_BOOTTIME for clock_gettime,
    /proc/uptime and the start in /proc/PID/stat. It moves no stamp of the kernel itself: the helpers bpf_ktime_get_ns
    and bpf_ktime_get_boot_ns, which are bpftrace's nsecs, and the stamps in a request are the host's clocks.

    /proc/PID/timens_offsets has the offsets of the namespace of the process's children
    (proc_timens_show_offsets in kernel/time/namespace.c), which may be another one: before 6.2, where exec began to
    enter that namespace (2b5f9dad32ed), only a child is in it, as after `unshare -T` without --fork. Then this
    process is still in the namespace of its parent's children.
    """
    own, children = _TIME_NAMESPACES
    namespace = link_target(proc / "self" / own)
    for pid in ("self", str(os.getppid())):
        if namespace and link_target(proc / pid / children) == namespace:
            return _offsets(content(proc / pid / "timens_offsets"))
    return ClockOffsets()


def _offsets(table: bytes) -> ClockOffsets:
    """Return the offsets of a table whose lines are the clock's name, seconds (which may be negative) and ns."""
    offsets = {name: int(seconds) * 10**9 + int(ns) for name, seconds, ns in _OFFSET.findall(table)}
    return ClockOffsets(offsets.get(b"monotonic", 0), offsets.get(b"boottime", 0))


def suspended_us() -> int:
    """Return the time that this boot was suspended, which CLOCK_MONOTONIC leaves out; 0 where no clock counts it.

    So much is the kernel's CLOCK_BOOTTIME ahead of its CLOCK_MONOTONIC. The two can't be read at once: a difference
    below 1 ms is not a suspend.
    """
    if sys.platform != "linux":
        return 0
    ahead = (boottime_ns() - time.monotonic_ns() + clock_offsets().monotonic_ns) // 1000
    return ahead if ahead >= _CLOCKS_APART_US else 0


def boottime_ns() -> int:
    """Return the kernel's CLOCK_BOOTTIME, without the offset of a time namespace, as probes have it. Linux only."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - clock_offsets().boottime_ns


def boottime_ahead_us() -> int:
    """Return how far this process's CLOCK_BOOTTIME is ahead of its CLOCK_MONOTONIC, as in /proc/PID/stat.

    In a time namespace this may be negative.
    """
    offsets = clock_offsets()
    return suspended_us() + (offsets.boottime_ns - offsets.monotonic_ns) // 1000


def probe_ahead_us(clock: str) -> int:
    """Return how far a probe's clock (`monotonic` or `boottime`) is ahead of this process's CLOCK_MONOTONIC.

    A probe reads the kernel's clocks, and this process those of its time namespace, where there is one.
    """
    suspended = suspended_us() if clock == "boottime" else 0
    return suspended - clock_offsets().monotonic_ns // 1000


_SUN, _FREEBSD = "SunOS", "FreeBSD"
_SCALES = {
    _SUN: (
        "a higher prio runs first: TS, IA, FSS 0-59, SYS 60-99, RT 100-159, interrupt threads above all",
        "a higher prio runs first: TS IA FSS 0-59, SYS 60-99, RT 100-159",
        "higher prio first: TS IA FSS 0-59 SYS 60-99 RT 100-159",
        "a higher prio runs first",
    ),
    _FREEBSD: (
        "a lower prio runs first, 0 to 255: interrupt threads from 0 on, idle threads from 224 on",
        "a lower prio runs first: interrupt threads from 0, idle from 224",
        "a lower prio runs first",
    ),
    "": (
        "a lower prio runs first: 0-98 real time, 100-139 nice -20 to 19, 120 nice 0",
        "prio 0-98 real time, 120 nice 0; lower runs first",
        "a lower prio runs first",
    ),
}


def priority_scales(kernel: str) -> tuple[str, ...]:
    """Return what the priorities of a host with this kernel (Origin.kernel) mean, the longest text first."""
    return next(scale for system, scale in _SCALES.items() if kernel.startswith(system))


def policy_text(policy: str, priority: int) -> str:
    """Return a Linux thread's policy with its priority as chrt and nice have them; empty where it is not known."""
    if not policy or priority < 0:
        return ""
    if priority < REAL_TIME:
        return f"SCHED_{policy.upper()} {REAL_TIME - 1 - priority}"
    return f"SCHED_{policy.upper()}, nice {priority - _NICE_0}"


def priority_text(priority: int, kernel: str) -> str:
    """Return a priority with what it means there."""
    if kernel.startswith(_SUN):
        kind = next((name for end, name in _CLASSES if priority < end), "an interrupt thread's")
        return f"{priority} ({kind}); a higher number runs first"
    if kernel.startswith(_FREEBSD):
        return f"{priority}; a lower number runs first"
    kind = "real time" if priority < REAL_TIME else "an ordinary thread's"
    return f"{priority} ({kind}); a lower number runs first"
