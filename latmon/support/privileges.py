"""Privileges: the invoking user under sudo, dropping root, and the capabilities that a probe tool needs.

The user interface drops root at once, the collector when its backend is open. Where root stays root, execve can gain
nothing (no_new_privs); a process that starts no probe afterwards has no capabilities either. Outside Linux latmon stays
root under sudo: no process there keeps root for the probes that start later, and Solaris has no setresuid. Knows no
probe, tool or file.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from latmon.support.errors import UnavailableError
from latmon.support.owners import identity, sudo_uid
from latmon.support.paths import content

PR_SET_NO_NEW_PRIVS = 38
_USER_DIRECTORIES = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR")
_CAPABILITY_VERSION_3 = 0x20080522
_WANTED = {"CAP_BPF": 39, "CAP_PERFMON": 38, "CAP_DAC_READ_SEARCH": 2, "CAP_DAC_OVERRIDE": 1}
"""Capabilities that bpftrace 0.27 requires, with their numbers."""
_SYS_ADMIN = 21
"""Number of CAP_SYS_ADMIN, which includes the first two."""
_SETS = {name: re.compile(rf"^{name}:\s*([0-9a-f]+)".encode(), re.MULTILINE) for name in ("CapEff", "CapAmb")}


@dataclass(frozen=True, slots=True)
class Invoker:
    """A user that root becomes: the one who typed `sudo latmon`, or the exporter's."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    name: str


def invoker(environ: Mapping[str, str], euid: int, platform: str | None = None) -> Invoker | None:
    """Return the user who called sudo; None without sudo, without root, for root itself, and outside Linux."""
    uid, gid = sudo_uid(environ), identity(environ.get("SUDO_GID", ""))
    if (platform or sys.platform) != "linux" or euid != 0 or not uid or gid is None:
        return None
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:  # a uid that this host doesn't list, as in a container: it has no home and no further groups
        return Invoker(uid, gid, (gid,), "/", str(uid))
    return Invoker(uid, gid, tuple(os.getgrouplist(entry.pw_name, gid)), entry.pw_dir, entry.pw_name)


def account(name: str) -> Invoker:
    """Return the user of that name, with its groups. Raises UnavailableError where this host has none."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise UnavailableError(f"there is no user {name!r} on this host") from None
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return Invoker(entry.pw_uid, entry.pw_gid, groups, entry.pw_dir, entry.pw_name)


def drop_root(user: Invoker | None) -> None:
    """Become the invoking user permanently; where root stays, prevent that started programs gain privileges."""
    os.umask(0o077)
    if user is not None:
        become(user)
    elif os.geteuid() == 0:
        no_new_privileges()


def drop_all(user: Invoker | None) -> None:
    """Drop root, in a process that needs no privilege afterwards: nothing that it starts gains one, as by sudo.

    Where root stays root it is an ordinary user that owns root's files: it has no capabilities.
    """
    drop_root(user)
    no_new_privileges()
    _drop_capabilities()


def adopt_home(user: Invoker | None, environ: MutableMapping[str, str]) -> None:
    """Set HOME and drop XDG_* of root, which would put files where the invoking user can't read them."""
    if user is None:
        return
    environ.update(HOME=user.home, USER=user.name, LOGNAME=user.name)
    for name in _USER_DIRECTORIES:
        if name in environ and not Path(environ[name]).is_relative_to(user.home):
            del environ[name]


@contextlib.contextmanager
def acting_as(user: Invoker | None) -> Iterator[None]:
    """Be the invoking user for the kernel's file checks inside of the block."""
    back = act_as(user)
    try:
        yield
    finally:
        back()


def act_as(user: Invoker | None) -> Callable[[], None]:
    """Be the invoking user for file checks until the returned function is called, which waits for all threads."""
    if user is None:
        return lambda: None
    groups, gid, uid = os.getgroups(), os.getegid(), os.geteuid()
    os.setgroups(user.groups)
    os.setegid(user.gid)
    os.seteuid(user.uid)

    def back() -> None:
        os.seteuid(uid)
        os.setegid(gid)
        os.setgroups(groups)

    return back


def need_readable(
    user: Invoker | None, modules: Iterable[Path], otherwise: str = ", or start it without sudo from a root shell"
) -> None:
    """Raise UnavailableError where that user can't read latmon's modules, some of which load late.

    `otherwise`: what else to do.
    """
    if user is None:
        return
    with acting_as(user):
        closed = next((path for path in modules if not os.access(path, os.R_OK, effective_ids=True)), None)
    if closed is not None:
        raise UnavailableError(
            f"latmon becomes the user {user.name} once its probe runs, who can't read {closed.parent}: "
            f"install latmon where every user can read it{otherwise}"
        )


def no_new_privileges() -> None:
    """Call prctl(PR_SET_NO_NEW_PRIVS); do nothing where there is no prctl."""
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


class _CapabilityHeader(ctypes.Structure):
    _fields_: ClassVar = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def _drop_capabilities() -> None:
    """Call capset(2) with empty sets, which empties the ambient set, too; do nothing where there is none."""
    capset = getattr(ctypes.CDLL(None, use_errno=True), "capset", None)
    if capset is None:
        return
    none = (ctypes.c_uint32 * 6)()  # two times effective, permitted, inheritable
    if capset(ctypes.byref(_CapabilityHeader(_CAPABILITY_VERSION_3, 0)), none) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the capabilities could not be dropped: {os.strerror(number)}")


def become(user: Invoker) -> None:
    """Become a user permanently, with its groups."""
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    if os.getresuid() != (user.uid,) * 3 or os.getresgid() != (user.gid,) * 3:
        raise AssertionError("root was not given up")  # the calls succeeded and changed nothing: stop here


def capability_bits(proc: Path = Path("/proc")) -> tuple[int, ...]:
    """Return the bits of the capabilities of this process, and of those that a plain user's programs inherit."""
    return tuple(_capabilities(proc, kind) for kind in _SETS)


def missing(proc: Path = Path("/proc")) -> frozenset[str]:
    """Return the required capabilities that this process doesn't have."""
    return _without(proc, "CapEff")


def missing_in_children(proc: Path = Path("/proc")) -> frozenset[str]:
    """Return those that a program started as a plain user doesn't have: it inherits only ambient ones."""
    return _without(proc, "CapAmb")


def can_mount_in_children(proc: Path = Path("/proc")) -> bool:
    """Return whether a program started as a plain user may mount."""
    return bool(_capabilities(proc, "CapAmb") >> _SYS_ADMIN & 1)


def _without(proc: Path, kind: str) -> frozenset[str]:
    bits = _capabilities(proc, kind)
    if bits >> _SYS_ADMIN & 1:
        bits |= 1 << _WANTED["CAP_BPF"] | 1 << _WANTED["CAP_PERFMON"]
    return frozenset(name for name, bit in _WANTED.items() if not bits >> bit & 1)


def _capabilities(proc: Path, kind: str) -> int:
    match = _SETS[kind].search(content(proc / "self/status"))
    return int(match[1], 16) if match else 0
