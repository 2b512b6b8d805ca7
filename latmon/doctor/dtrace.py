"""Checks of DTrace: the tool, whether it compiles a probe, and the privilege to use it.

On those it is the tool that measures; on Linux bpftrace is, and a line is told only of a dtrace that is there or named.
"""

from __future__ import annotations

import re

from latmon.doctor.checks import SECONDS, Check, Output, Place, Status, by_sudo
from latmon.support.errors import UnavailableError
from latmon.support.text import clean
from latmon.support.trust import find_tool

VARIABLE = "LATMON_DTRACE"
_LIST = ("-l", "-n", "BEGIN")
"""Reads its own library and asks for the right to trace, but enables nothing, which takes it up to 10 s."""
_VERSION = re.compile(r"D (\d+(?:\.\d+)+)")
_KERNEL, _ALL = "dtrace_kernel", "all"
_GRANT = "basic,dtrace_kernel"
_TOO_LONG = 124
_RIGHTS = (
    "run as root",
    "additional privileges",
    "permission denied",
    "not permitted",
    "password",
    "may not",
    "allowed",
)
_KNOWN = {
    "vmlinux`major_names": (
        "this kernel was built without CONFIG_KALLSYMS_ALL, so dtrace can't compile its own io.d and runs no script",
        "boot a kernel with CONFIG_KALLSYMS_ALL=y (a distribution's own)",
    ),
}
"""What dtrace says of a host -> what it means, and the remedy."""


def is_there(place: Place) -> bool:
    """A dtrace that is installed, or that the user named; systemtap's generator of probes has the same name."""
    if place.environ.get(VARIABLE):
        return True
    path = _found(place)
    return not isinstance(path, UnavailableError) and _VERSION.search(place.run([path, "-V"]).text) is not None


def tool(place: Place) -> Check:
    """Where it is, how old, and whether it can be used."""
    path = _found(place)
    if isinstance(path, UnavailableError):
        return Check("dtrace", Status.MISSING, str(path), _mended(place))
    code, text = place.run([path, "-V"])
    version = _VERSION.search(text)
    if version is None:
        silent = f"doesn't answer -V within {SECONDS} s" if code == _TOO_LONG else ""
        said = silent or f"doesn't run: {clean(text.strip(), 80) or f'exit code {code}'}"
        return Check("dtrace", Status.MISSING, f"{path} {said}", _mended(place))
    alone = place.platform == "linux" and b" debugfs " not in place.read(place.proc / "self/mounts")
    shown = f"{version[1]} ({path}{', which gets debugfs mounted for itself' if alone else ''})"
    return _tried(place, shown, _listed(place, path))


def privilege(place: Place) -> Check:
    """Solaris and illumos: root, or the privilege dtrace_kernel. FreeBSD: root, or sudo without a password."""
    if place.uid == 0:
        return Check("privilege", Status.OK, "root")
    if not place.platform.startswith("sunos"):
        return by_sudo(place)
    code, text = place.run(["sh", "-c", "ppriv $$"])
    held = set(re.findall(r"[\w!]+", "".join(re.findall(r"^\s*E: (.*)$", text, re.MULTILINE))))
    remedy = f"as root: usermod -K defaultpriv={_GRANT} USER, then log in again; or run latmon as root"
    if code != 0 or not held:
        return Check("privilege", Status.DEGRADED, "not root, and ppriv doesn't tell the privileges", remedy)
    if _KERNEL in held or (_ALL in held and f"!{_KERNEL}" not in held):
        return Check("privilege", Status.OK, f"the privilege {_KERNEL}")
    what = f"not root, and without the privilege {_KERNEL}: only the kernel's counters can be shown"
    return Check("privilege", Status.DEGRADED, what, remedy)


def zone(place: Place) -> Check:
    """Solaris and illumos: the kernel's probes are in the global zone alone."""
    code, text = place.run(["zonename"])
    name = clean(text.strip(), 40)
    if code != 0 or name in ("", "global"):
        return Check("zone", Status.OK, name or "unknown: zonename doesn't run")
    what = f"{name}: the kernel's probes can't be used in a zone that is not the global one"
    return Check("zone", Status.DEGRADED, what, "run latmon in the global zone")


def modules(place: Place) -> Check:
    """FreeBSD: the providers are kernel modules."""
    if place.run(["kldstat", "-q", "-n", "dtraceall"]).code == 0:
        return Check("modules", Status.OK, "dtraceall")
    return Check("modules", Status.DEGRADED, "dtraceall is not loaded", place.as_root("kldload dtraceall"))


def _found(place: Place) -> str | UnavailableError:
    try:
        return str(find_tool("dtrace", VARIABLE, place.environ))
    except UnavailableError as error:
        return error


def _mended(place: Place) -> str:
    """One that the user named is mended by naming another; only one that isn't there can be installed."""
    named = place.environ.get(VARIABLE)
    return (
        f"set {VARIABLE} (or `dtrace` in the config) to a dtrace that runs, or unset it" if named else _install(place)
    )


def _install(place: Place) -> str:
    if place.platform == "linux":
        command = place.install("dtrace")
        # Neither Debian 13 nor what is older, nor what is made of them, has such a package.
        return "Debian sid has it; see docs/DTRACE.md" if "apt-get" in command else command
    if place.platform.startswith("freebsd"):
        return place.as_root("kldload dtraceall")
    return f"it is part of the system: install its package, or name it in {VARIABLE}"


def _listed(place: Place, path: str) -> Output:
    """As root where the probe would be started so."""
    asks = place.uid != 0 and not place.platform.startswith("sunos")
    return place.run([*(("sudo", "-n", "sh", "-c", 'exec "$@"', "sh") if asks else ()), path, *_LIST])


def _tried(place: Place, shown: str, output: Output) -> Check:
    code, text = output
    if code == 0:
        return Check("dtrace", Status.OK, shown)
    if code == _TOO_LONG:
        remedy = "see what `dtrace -l -n BEGIN` says, or try again when the host is less busy"
        return Check("dtrace", Status.DEGRADED, f"{shown}: it doesn't answer within {SECONDS} s", remedy)
    for words, (what, remedy) in _KNOWN.items():
        if words.lower() in text.lower():
            return Check("dtrace", Status.DEGRADED, f"{shown}: {what}", remedy)
    if place.uid != 0 and (code == 127 or any(one in text.lower() for one in _RIGHTS)):  # noqa: PLR2004 - no sudo
        return Check("dtrace", Status.DEGRADED, f"{shown}: it needs root, as `privilege` says")
    said = clean(text.strip().rpartition("\n")[2].removeprefix("dtrace: "), 120) or f"exit code {code}"
    return Check("dtrace", Status.DEGRADED, f"{shown}: it can't be used: {said}")
