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
from pathlib import Path

from latmon.support.paths import content
from latmon.support.text import clean

_HZ = re.compile(rb"^CONFIG_HZ=(\d+)$", re.MULTILINE)
_CLOCKS_APART_US = 1000
_FAMILIES = {
    "apt-get install": ("debian", "ubuntu"),
    "dnf install": ("fedora", "rhel", "centos"),
    "pacman -S": ("arch",),
}
"""Command that installs a package -> systems that have it."""
_INIT_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel gives the first pid namespace this number on every boot (PROC_PID_INIT_INO)."""
_CONTAINERS = (b"docker", b"kubepods", b"libpod", b"lxc", b"containerd")


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
    found = _HZ.search(kernel_config(proc, boot))
    return int(found.group(1)) if found else None


def kernel_config(proc: Path = Path("/proc"), boot: Path = Path("/boot")) -> bytes:
    """Return the running kernel's configuration; empty when it isn't readable."""
    try:
        with gzip.open(proc / "config.gz") as packed:
            return packed.read()
    except (OSError, EOFError):
        release = content(proc / "sys/kernel/osrelease").strip().decode("ascii", "replace")
        return content(boot / f"config-{release}") if release else b""


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
    try:
        if (proc / "self/ns/pid").readlink().name == _INIT_PID_NAMESPACE:
            return ""
    except OSError:
        pass  # no namespaces, or not readable: the marks decide
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    for line in content(proc / "1/environ").split(b"\0"):
        if line.startswith(b"container="):
            return clean(line.partition(b"=")[2])
    groups = content(proc / "1/cgroup")
    return next((mark.decode() for mark in _CONTAINERS if mark in groups), "")


def suspended_us() -> int:
    """Return the time that this boot was suspended, which CLOCK_MONOTONIC leaves out; 0 where no clock counts it.

    The two clocks can't be read at once: a difference below 1 ms is not a suspend.
    """
    if sys.platform != "linux":
        return 0
    ahead = (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()) // 1000
    return ahead if ahead >= _CLOCKS_APART_US else 0


_SUN, _FREEBSD = "SunOS", "FreeBSD"
_CLASSES = ((60, "TS, IA or FSS class"), (100, "SYS class"), (160, "RT class"))
"""Classes of illumos and Solaris, by the first number above each; interrupt threads are above all of them."""
_REAL_TIME = 100
"""Classes of Linux: p->prio is 0-98 for real time, 100-139 for nice -20 to 19."""
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


def priority_text(priority: int, kernel: str) -> str:
    """Return a priority with what it means there."""
    if kernel.startswith(_SUN):
        kind = next((name for end, name in _CLASSES if priority < end), "an interrupt thread's")
        return f"{priority} ({kind}); a higher number runs first"
    if kernel.startswith(_FREEBSD):
        return f"{priority}; a lower number runs first"
    kind = "real time" if priority < _REAL_TIME else "an ordinary thread's"
    return f"{priority} ({kind}); a lower number runs first"
