"""Checks of DTrace: the tool, whether it compiles a probe, and the privilege to use it.

On those systems DTrace measures. On Linux bpftrace does, and DTrace is only checked where it is installed or named.
"""

from __future__ import annotations

import re

from latmon.doctor.checks import SECONDS, Check, Output, Place, Status, by_sudo
from latmon.support.errors import UnavailableError
from latmon.support.text import clean
from latmon.support.trust import find_tool

VARIABLE = "LATMON_DTRACE"
_LIST = ("-l", "-n", "BEGIN")
"""Arguments that load the library and check the right to trace without enabling a probe; up to 10 s."""
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
"""Message of dtrace -> its meaning and the remedy."""


def is_there(place: Place) -> bool:
    """Return whether dtrace is installed or named by the user; systemtap's generator has the same name."""
    if place.environ.get(VARIABLE):
        return True
    path = _found(place)
    return not isinstance(path, UnavailableError) and _VERSION.search(place.run([path, "-V"]).text) is not None


def tool(place: Place) -> Check:
    """Check dtrace: its path, its version, and whether it can be used."""
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
    """Check for root, on Solaris and illumos dtrace_kernel, on FreeBSD sudo without a password."""
    if place.uid == 0:
        return Check("privilege", Status.OK, "root")
    if not place.platform.startswith("sunos"):
        return by_sudo(place)
    code, text = place.run(["sh", "-c", "ppriv $$"])
    granted = set(re.findall(r"[\w!]+", "".join(re.findall(r"^\s*E: (.*)$", text, re.MULTILINE))))
    remedy = f"as root: usermod -K defaultpriv={_GRANT} USER, then log in again; or run latmon as root"
    if code != 0 or not granted:
        return Check("privilege", Status.DEGRADED, "not root, and ppriv doesn't list the privileges", remedy)
    if _KERNEL in granted or (_ALL in granted and f"!{_KERNEL}" not in granted):
        return Check("privilege", Status.OK, f"the privilege {_KERNEL}")
    what = f"not root, and without the privilege {_KERNEL}: only the kernel's counters can be shown"
    return Check("privilege", Status.DEGRADED, what, remedy)


def zone(place: Place) -> Check:
    """Check the zone of Solaris and illumos: kernel probes work only in the global zone."""
    code, text = place.run(["zonename"])
    name = clean(text.strip(), 40)
    if code != 0 or name in ("", "global"):
        return Check("zone", Status.OK, name or "unknown: zonename doesn't run")
    what = f"{name}: the kernel's probes can't be used in a zone that is not the global one"
    return Check("zone", Status.DEGRADED, what, "run latmon in the global zone")


def modules(place: Place) -> Check:
    """Check FreeBSD's kernel modules, which contain the providers."""
    if place.run(["kldstat", "-q", "-n", "dtraceall"]).code == 0:
        return Check("modules", Status.OK, "dtraceall")
    return Check("modules", Status.DEGRADED, "dtraceall is not loaded", place.as_root("kldload dtraceall"))


def _found(place: Place) -> str | UnavailableError:
    try:
        return str(find_tool("dtrace", VARIABLE, place.environ))
    except UnavailableError as error:
        return error


def _mended(place: Place) -> str:
    """Return the remedy: another path where the user named one, else the installation."""
    named = place.environ.get(VARIABLE)
    return (
        f"set {VARIABLE} (or `dtrace` in the config) to a dtrace that runs, or unset it" if named else _install(place)
    )


def _install(place: Place) -> str:
    if place.platform == "linux":
        command = place.install("dtrace")
        # Debian up to 13 and its derivatives have no such package
        return "Debian sid has it; see docs/DTRACE.md" if "apt-get" in command else command
    if place.platform.startswith("freebsd"):
        return place.as_root("kldload dtraceall")
    return f"it is part of the system: install its package, or name it in {VARIABLE}"


def _listed(place: Place, path: str) -> Output:
    """Run dtrace with _LIST, as root where a probe would be."""
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
