"""Facts about the host that measurements depend on: name, kernel, boot, timer tick, distribution.

Reads only, from roots that are arguments. Must not know backends, checks or the use of the facts.
"""

from __future__ import annotations

import gzip
import platform
import re
import socket
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
    return clean(socket.gethostname())


def kernel() -> str:
    """Return system and release, such as `Linux 6.1.0-29-amd64`."""
    return clean(f"{platform.system()} {platform.release()}")


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
