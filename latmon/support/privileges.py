"""Privileges: the invoking user under sudo, dropping root, and the capabilities that a probe tool needs.

The UI settles at once, the collector when its backend is open. Where root stays root, execve can give nothing more
(no_new_privs). Outside Linux nobody keeps root for the probes that start later (Solaris has no setresuid either), so
under sudo latmon stays root there. Knows nothing of probes or files.

Owns which ones and who has them: this process, or whatever it starts. Knows no tool.
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

from latmon.support.errors import UnavailableError
from latmon.support.paths import content

PR_SET_NO_NEW_PRIVS = 38
_MAX_ID = 2**32 - 2
_USER_DIRECTORIES = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR")


@dataclass(frozen=True, slots=True)
class Invoker:
    """The user who typed `sudo latmon`."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    name: str


def invoker(environ: Mapping[str, str], euid: int, platform: str | None = None) -> Invoker | None:
    """The user behind sudo; None without sudo, without root, for a root that calls sudo, and outside Linux."""
    uid, gid = sudo_uid(environ), _identity(environ.get("SUDO_GID", ""))
    if (platform or sys.platform) != "linux" or euid != 0 or not uid or gid is None:
        return None
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:  # a uid that this host doesn't list, as in a container: it has no home and no further groups
        return Invoker(uid, gid, (gid,), "/", str(uid))
    return Invoker(uid, gid, tuple(os.getgrouplist(entry.pw_name, gid)), entry.pw_dir, entry.pw_name)


def sudo_uid(environ: Mapping[str, str]) -> int | None:
    """The uid of the user who called sudo, on every system; None without sudo."""
    return _identity(environ.get("SUDO_UID", ""))


def settle(user: Invoker | None) -> None:
    """Become the invoking user for good; where root stays, promise that no program we start gains more."""
    os.umask(0o077)
    if user is not None:
        _become(user)
    elif os.geteuid() == 0:
        no_new_privileges()


def adopt_home(user: Invoker | None, environ: MutableMapping[str, str]) -> None:
    """HOME and XDG of the invoking user: what sudo left of root's would put files where that user can't see them."""
    if user is None:
        return
    environ.update(HOME=user.home, USER=user.name, LOGNAME=user.name)
    for name in _USER_DIRECTORIES:
        if name in environ and not Path(environ[name]).is_relative_to(user.home):
            del environ[name]


@contextlib.contextmanager
def acting_as(user: Invoker | None) -> Iterator[None]:
    """For a moment the invoking user in every check the kernel makes on files; root again afterwards."""
    back = act_as(user)
    try:
        yield
    finally:
        back()


def act_as(user: Invoker | None) -> Callable[[], None]:
    """The same until the call that is returned; that one waits for all threads, so none of them may hang."""
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


def need_readable(user: Invoker | None, modules: Iterable[Path]) -> None:
    """UnavailableError where that user can't read our own modules: Python loads some of them late."""
    if user is None:
        return
    with acting_as(user):
        closed = next((path for path in modules if not os.access(path, os.R_OK, effective_ids=True)), None)
    if closed is not None:
        raise UnavailableError(
            f"latmon becomes {user.name} once its probe runs, and {user.name} can't read {closed.parent}: "
            "install latmon where every user can read it, or start it without sudo from a root shell"
        )


def no_new_privileges() -> None:
    """prctl(PR_SET_NO_NEW_PRIVS); quietly nothing where there is no prctl: it only ever takes away."""
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _become(user: Invoker) -> None:
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    if os.getresuid() != (user.uid,) * 3 or os.getresgid() != (user.gid,) * 3:
        raise AssertionError("root was not given up")  # a kernel that says yes and does no: go no further


def _identity(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and int(text) <= _MAX_ID else None


_WANTED = {"CAP_BPF": 39, "CAP_PERFMON": 38, "CAP_DAC_READ_SEARCH": 2, "CAP_DAC_OVERRIDE": 1}
"""Each one of them is asked for by bpftrace 0.27, one behind the other."""
_SYS_ADMIN = 21
"""Holds the first two."""
_SETS = {name: re.compile(rf"^{name}:\s*([0-9a-f]+)".encode(), re.MULTILINE) for name in ("CapEff", "CapAmb")}


def missing(proc: Path = Path("/proc")) -> frozenset[str]:
    """Those that this process doesn't have."""
    return _without(proc, "CapEff")


def missing_in_children(proc: Path = Path("/proc")) -> frozenset[str]:
    """Those that a program which we start as a plain user won't have: it inherits the ambient ones alone."""
    return _without(proc, "CapAmb")


def can_mount_in_children(proc: Path = Path("/proc")) -> bool:
    """True when a program which we start as a plain user may mount."""
    return bool(_held(proc, "CapAmb") >> _SYS_ADMIN & 1)


def _without(proc: Path, kind: str) -> frozenset[str]:
    held = _held(proc, kind)
    if held >> _SYS_ADMIN & 1:
        held |= 1 << _WANTED["CAP_BPF"] | 1 << _WANTED["CAP_PERFMON"]
    return frozenset(name for name, bit in _WANTED.items() if not held >> bit & 1)


def _held(proc: Path, kind: str) -> int:
    found = _SETS[kind].search(content(proc / "self/status"))
    return int(found[1], 16) if found else 0
