"""Checks of the host: installed software, kernel features, DTrace, privilege, terminal. All roots are arguments.

On Linux bpftrace measures, and DTrace is only checked where it is installed or named; on the other systems DTrace
measures.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from sys import platform as running_on
from typing import NamedTuple

from latmon.support import host, privileges
from latmon.support.errors import UnavailableError
from latmon.support.paths import content, matching
from latmon.support.process import bounded_output
from latmon.support.text import clean
from latmon.support.trust import find_tool

SECONDS = 30
"""Limit of a command: a slow dtrace takes 10 s to list a probe."""
_PYTHON = (3, 11)
_TESTED = (0, 17)
_PACKAGES = ("textual", "PyYAML", "psutil")
_VERSION = re.compile(r"(?<=bpftrace )v?(\d+)\.(\d+)(?:\.(\d+))?")
_TRACEFS = ("kernel/tracing", "kernel/debug/tracing")
_LOCKDOWN = re.compile(rb"\[(\w+)\]")
_PROBE = ("sudo", "-n", "sh", "-c", ":")
"""Command prefix of a probe with an empty script: a sudo rule for bpftrace alone doesn't cover the shell."""
_NOT_THERE = 127
DTRACE_VARIABLE = "LATMON_DTRACE"
_LIST = ("-l", "-n", "BEGIN")
"""Arguments that load the library and check the right to trace without enabling a probe; up to 10 s."""
_DTRACE_VERSION = re.compile(r"D (\d+(?:\.\d+)+)")
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


class Status(StrEnum):
    """Result of a check.

    `remark`: latmon measures, and not all that it could. `degraded`: it runs and shows less. `missing`: the checked
    feature can't be used.
    """

    OK = "ok"
    REMARK = "remark"
    DEGRADED = "degraded"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor: the finding and, where there is one, its remedy or what would be better."""

    name: str
    status: Status
    what: str
    remedy: str = ""


class Output(NamedTuple):
    """Exit code and text of a command; 127 if it doesn't exist, 124 if it took too long."""

    code: int
    text: str


def run(command: Sequence[str]) -> Output:
    """Run a command and return its output. Its input is empty, so that it can't prompt."""
    try:
        code, printed = bounded_output(command, SECONDS, os.environ)
    except subprocess.TimeoutExpired:
        return Output(124, "")
    except OSError:
        return Output(127, "")
    return Output(code, printed.decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class Place:
    """The host to check: its roots, environment and commands."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    etc: Path = Path("/etc")
    boot: Path = Path("/boot")
    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    uid: int = field(default_factory=os.geteuid)
    platform: str = running_on
    run: Callable[[Sequence[str]], Output] = run

    def install(self, package: str) -> str:
        """Return the command that installs a package, with sudo where it is needed."""
        command = host.install_command(package, self.etc)
        return self.as_root(command) if command else f"install {package} with this system's package manager"

    def as_root(self, command: str) -> str:
        """Return the command with sudo where it is needed."""
        return command if self.uid == 0 else f"sudo {command}"

    def read(self, path: Path) -> bytes:
        """Return a file's bytes; empty when it can't be read."""
        return content(path)


def python(_place: Place) -> Check:
    """Check the interpreter that runs latmon."""
    shown = f"{'.'.join(map(str, sys.version_info[:3]))} ({clean(sys.executable, 80)})"
    if sys.version_info >= _PYTHON:
        return Check("python", Status.OK, shown)
    return Check("python", Status.MISSING, f"{shown} is too old", "run latmon with Python 3.11 or newer")


def packages(place: Place) -> tuple[Check, ...]:
    """Check that each required package is installed, and report its version.

    psutil is required where there is no /proc/diskstats; the single file of a release has none.
    """
    return tuple(_package(name, place) for name in _PACKAGES)


def _package(name: str, place: Place) -> Check:
    try:
        return Check(name.lower(), Status.OK, clean(version(name)))
    except PackageNotFoundError:
        if name == "psutil" and place.read(place.proc / "diskstats"):
            return Check(name, Status.OK, "not installed; only a system without /proc/diskstats needs it")
        return Check(name.lower(), Status.MISSING, "not installed", f"pip install '{_requirement(name)}'")


def _requirement(name: str) -> str:
    """Return the requirement of latmon's metadata (`textual>=8.2,<9`); the name in a checkout without metadata."""
    try:
        wanted = requires("latmon") or []
    except PackageNotFoundError:
        wanted = []
    return next((each for each in wanted if each.lower().startswith(name.lower())), name)


def bpftrace(place: Place) -> Check:
    """Check bpftrace: its path and version."""
    # for a path that the user named the remedy is another path, else an installation
    named = place.environ.get("LATMON_BPFTRACE")
    remedy = "set LATMON_BPFTRACE to a bpftrace that runs, or unset it" if named else place.install("bpftrace")
    try:
        path = find_tool("bpftrace", "LATMON_BPFTRACE", place.environ)
    except UnavailableError as error:
        return Check("bpftrace", Status.MISSING, str(error), remedy)
    code, text = place.run([str(path), "--version"])
    match = _VERSION.search(text)
    if code != 0 or match is None:
        printed = clean(text.strip().partition("\n")[0], 80)
        what = "doesn't run" if code or not printed else "is not bpftrace"
        return Check("bpftrace", Status.MISSING, f"{path} {what}: {printed or f'exit code {code}'}", remedy)
    if tuple(map(int, match.groups()[:2])) < _TESTED:
        what = f"{match.group()} ({path}) is older than 0.17, the oldest that latmon is tested with"
        return Check("bpftrace", Status.DEGRADED, what, "install a newer one and name it in LATMON_BPFTRACE")
    return Check("bpftrace", Status.OK, f"{match.group()} ({path})")


def diskstats(place: Place) -> Check:
    """Check the kernel's I/O counters: the procfs backend uses them, and the coverage of every other one."""
    if place.platform.startswith("sunos") and place.run(["kstat", "-p", "-c", "disk"]).code == 0:
        return Check("diskstats", Status.OK, "kstat's counters: I/Os, bytes, the time in wait and service")
    if place.platform != "linux":
        return Check("diskstats", Status.DEGRADED, "no /proc/diskstats on this system: psutil's counters are used")
    if place.read(place.proc / "diskstats"):
        return Check("diskstats", Status.OK, "readable")
    remedy = "mount -t proc proc /proc" if not (place.proc / "self").exists() else "run latmon on the host itself"
    return Check("diskstats", Status.MISSING, "/proc/diskstats can't be read or is empty", remedy)


def iostats(place: Place) -> Check:
    """Check for devices whose I/O the kernel doesn't count."""
    off = [
        flag.parent.parent for flag in sorted(matching(place.sys / "block", "*/queue/iostats")) if _is_off(place, flag)
    ]
    if not off:
        return Check("iostats", Status.OK, "the kernel counts the I/O of every disk")
    names = ", ".join(path.name for path in off)
    command = "; ".join(f"echo 1 > /sys/block/{path.name}/queue/iostats" for path in off)
    return Check(
        "iostats", Status.DEGRADED, f"the kernel doesn't count the I/O of {names}", _in_root_shell(place, command)
    )


def _is_off(place: Place, flag: Path) -> bool:
    """Return whether a device with requests has the flag off; bio-based ones (zram) count I/O regardless."""
    return place.read(flag).strip() == b"0" and (flag.parent.parent / "mq").is_dir()


def _in_root_shell(place: Place, command: str) -> str:
    return command if place.uid == 0 else f"sudo sh -c '{command}'"


def btf(place: Place) -> Check:
    """Check the kernel's type information, which locates the time stamps of requests."""
    if (place.sys / "kernel/btf/vmlinux").exists():
        return Check("btf", Status.OK, "/sys/kernel/btf/vmlinux")
    what = "no /sys/kernel/btf/vmlinux: the kernel was built without CONFIG_DEBUG_INFO_BTF"
    return Check("btf", Status.DEGRADED, what, "boot the distribution's own kernel; until then a cruder probe is used")


def tracefs(place: Place) -> Check:
    """Check tracefs, which describes tracepoints; as root the probe can mount it."""
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
    """Check kprobes, which only tier B uses; a kernel without them still has tracepoints."""
    config = host.kernel_config(place.proc, place.boot)
    if b"CONFIG_KPROBES=y" in config:
        return Check("kprobes", Status.OK, "the kernel has them")
    if config:
        return Check("kprobes", Status.OK, "none (CONFIG_KPROBES is not set); only tier B would need them")
    return Check("kprobes", Status.OK, "unknown, the kernel's configuration can't be read; only tier B needs them")


def jit(place: Place) -> Check:
    """Check the BPF JIT, without which a probe costs several times as much per I/O."""
    state = place.read(place.proc / "sys/net/core/bpf_jit_enable").strip()
    always = b"CONFIG_BPF_JIT_ALWAYS_ON=y" in host.kernel_config(place.proc, place.boot)
    if always or state in (b"1", b"2"):
        return Check("bpf-jit", Status.OK, "on")
    if state == b"0":
        remedy = place.as_root("sysctl net.core.bpf_jit_enable=1")
        return Check("bpf-jit", Status.DEGRADED, "off: every probe costs several times as much", remedy)
    return Check("bpf-jit", Status.DEGRADED, "unknown: only root can read net.core.bpf_jit_enable")


def lockdown(place: Place) -> Check:
    """Check for the lockdown confidentiality, which forbids BPF to read kernel memory."""
    match = _LOCKDOWN.search(place.read(place.sys / "kernel/security/lockdown"))
    if match is None:
        return _without_lockdown(place)
    level = match.group(1).decode()
    if level != "confidentiality":
        return Check("lockdown", Status.OK, level)
    remedy = "boot without lockdown=confidentiality (lockdown=integrity allows probes)"
    return Check("lockdown", Status.MISSING, "confidentiality: the kernel refuses every probe", remedy)


def _without_lockdown(place: Place) -> Check:
    """Check a host without the file: the kernel has no lockdown, or securityfs is not mounted."""
    try:
        mounted = any((place.sys / "kernel/security").iterdir())
    except OSError:
        mounted = False
    if mounted or b"CONFIG_SECURITY_LOCKDOWN_LSM is not set" in host.kernel_config(place.proc, place.boot):
        return Check("lockdown", Status.OK, "not in force")
    remedy = place.as_root("mount -t securityfs securityfs /sys/kernel/security")
    return Check("lockdown", Status.DEGRADED, "unknown: securityfs is not mounted", remedy)


def tick(place: Place) -> Check:
    """Check CONFIG_HZ, which the rule tick-quantum needs."""
    ticks = host.hz(place.proc, place.boot)
    if ticks is not None:
        return Check("hz", Status.OK, f"{ticks} ticks per second")
    what = "unknown: neither /proc/config.gz nor /boot/config-* can be read"
    return Check("hz", Status.DEGRADED, what)


def container(place: Place) -> Check:
    """Check for a container, which sees the host's disks in diskstats but can rarely run a probe."""
    kind = host.container(place.proc, place.root)
    if not kind:
        return Check("container", Status.OK, "none")
    what = f"{kind}: probes are refused unless it is privileged and shares /sys/kernel and the pid namespace"
    return Check("container", Status.DEGRADED, what, "run latmon on the host")


def privilege(place: Place) -> Check:
    """Check how this user can start a probe."""
    if place.uid == 0:
        if "CAP_BPF" in privileges.missing(place.proc):
            what = "root without CAP_BPF and CAP_SYS_ADMIN, as in a container: probes are refused"
            return Check("privilege", Status.DEGRADED, what, "run latmon on the host")
        return Check("privilege", Status.OK, "root")
    if not privileges.missing_in_children(place.proc):
        return Check("privilege", Status.OK, "capabilities (bpftrace honours them since 0.25)")
    return by_sudo(place)


def by_sudo(place: Place) -> Check:
    """Check whether sudo starts a probe without a password."""
    code, output = place.run(_PROBE)
    if code == 0:
        return Check("privilege", Status.OK, "sudo starts the probe without a password")
    what, remedy = _refused(code, output)
    return Check("privilege", Status.DEGRADED, f"not root, and {what}: only the kernel's counters can be shown", remedy)


def _refused(code: int, output: str) -> tuple[str, str]:
    """Return the reason why sudo refuses, and the remedy."""
    if code == _NOT_THERE:
        return "sudo is not installed", "run latmon as root"
    if "password is required" in output:
        return "sudo requires a password", "sudo latmon, or run `sudo -v` first"
    return "sudo may not start a shell for this user", "allow `sh` in sudoers, or run latmon as root"


_MIN_COLUMNS, _MIN_LINES = 80, 24


def terminal(place: Place, size: tuple[int, int] | None = None) -> Check:
    """Check the terminal of standard error, on which the TUI draws."""
    term = clean(place.environ.get("TERM", ""))
    cells = size or _size()
    if cells is None:
        return Check("terminal", Status.REMARK, "not checked: standard error of this command is not a terminal")
    if term in ("", "dumb"):
        why = f"TERM={term or '(unset)'} can't be drawn on"
        return Check("terminal", Status.DEGRADED, why, "record with `latmon --record FILE`, then `latmon report FILE`")
    columns, lines = cells
    what = f"{term}, {columns}x{lines}, {_colours(place, term)}"
    if columns < _MIN_COLUMNS or lines < _MIN_LINES:
        return Check("terminal", Status.DEGRADED, f"{what}: small", f"enlarge it to {_MIN_COLUMNS}x{_MIN_LINES}")
    return Check("terminal", Status.OK, what)


def _size() -> tuple[int, int] | None:
    try:
        columns, lines = os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError):
        return None
    return columns, lines


def _colours(place: Place, term: str) -> str:
    if place.environ.get("NO_COLOR"):
        return "no colours (NO_COLOR)"
    if place.environ.get("COLORTERM", "") in ("truecolor", "24bit"):
        return "true colour"
    return "256 colours" if "256" in term else "16 colours"


_KERNEL, _ALL = "dtrace_kernel", "all"


def has_dtrace(place: Place) -> bool:
    """Return whether dtrace is installed or named by the user; systemtap's generator has the same name."""
    if place.environ.get(DTRACE_VARIABLE):
        return True
    path = _found(place)
    return not isinstance(path, UnavailableError) and _DTRACE_VERSION.search(place.run([path, "-V"]).text) is not None


def dtrace_tool(place: Place) -> Check:
    """Check dtrace: its path, its version, and whether it can be used."""
    path = _found(place)
    if isinstance(path, UnavailableError):
        return Check("dtrace", Status.MISSING, str(path), _mended(place))
    code, text = place.run([path, "-V"])
    version = _DTRACE_VERSION.search(text)
    if version is None:
        silent = f"doesn't answer -V within {SECONDS} s" if code == _TOO_LONG else ""
        reason = silent or f"doesn't run: {clean(text.strip(), 80) or f'exit code {code}'}"
        return Check("dtrace", Status.MISSING, f"{path} {reason}", _mended(place))
    alone = place.platform == "linux" and b" debugfs " not in place.read(place.proc / "self/mounts")
    shown = f"{version[1]} ({path}{', which gets debugfs mounted for itself' if alone else ''})"
    return _tried(place, shown, _listed(place, path))


def dtrace_privilege(place: Place) -> Check:
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


def dtrace_zone(place: Place) -> Check:
    """Check the zone of Solaris and illumos: kernel probes work only in the global zone."""
    code, text = place.run(["zonename"])
    name = clean(text.strip(), 40)
    if code != 0 or name in ("", "global"):
        return Check("zone", Status.OK, name or "unknown: zonename doesn't run")
    what = f"{name}: the kernel's probes can't be used in a zone that is not the global one"
    return Check("zone", Status.DEGRADED, what, "run latmon in the global zone")


def dtrace_modules(place: Place) -> Check:
    """Check FreeBSD's kernel modules, which contain the providers."""
    if place.run(["kldstat", "-q", "-n", "dtraceall"]).code == 0:
        return Check("modules", Status.OK, "dtraceall")
    return Check("modules", Status.DEGRADED, "dtraceall is not loaded", place.as_root("kldload dtraceall"))


def _found(place: Place) -> str | UnavailableError:
    try:
        return str(find_tool("dtrace", DTRACE_VARIABLE, place.environ))
    except UnavailableError as error:
        return error


def _mended(place: Place) -> str:
    """Return the remedy: another path where the user named one, else the installation."""
    named = place.environ.get(DTRACE_VARIABLE)
    return (
        f"set {DTRACE_VARIABLE} (or `dtrace` in the config) to a dtrace that runs, or unset it"
        if named
        else _install(place)
    )


def _install(place: Place) -> str:
    if place.platform == "linux":
        command = place.install("dtrace")
        # Debian up to 13 and its derivatives have no such package
        return "Debian sid has it; see docs/DTRACE.md" if "apt-get" in command else command
    if place.platform.startswith("freebsd"):
        return place.as_root("kldload dtraceall")
    return f"it is part of the system: install its package, or name it in {DTRACE_VARIABLE}"


def _listed(place: Place, path: str) -> Output:
    """Run dtrace with _LIST, as root where a probe would be."""
    asks = place.uid != 0 and not place.platform.startswith("sunos")
    return place.run([*(("sudo", "-n", "sh", "-c", 'exec "$@"', "sh") if asks else ()), path, *_LIST])


def _tried(place: Place, shown: str, output: Output) -> Check:
    code, text = output
    if code == 0:
        return Check("dtrace", Status.OK, shown)
    if code == _TOO_LONG:
        remedy = "see the error of `dtrace -l -n BEGIN`, or try again when the host is less busy"
        return Check("dtrace", Status.DEGRADED, f"{shown}: it doesn't answer within {SECONDS} s", remedy)
    for words, (what, remedy) in _KNOWN.items():
        if words.lower() in text.lower():
            return Check("dtrace", Status.DEGRADED, f"{shown}: {what}", remedy)
    if place.uid != 0 and (code == 127 or any(right in text.lower() for right in _RIGHTS)):  # noqa: PLR2004 - no sudo
        return Check("dtrace", Status.DEGRADED, f"{shown}: it needs root: see `privilege`")
    reason = clean(text.strip().rpartition("\n")[2].removeprefix("dtrace: "), 120) or f"exit code {code}"
    return Check("dtrace", Status.DEGRADED, f"{shown}: it can't be used: {reason}")
