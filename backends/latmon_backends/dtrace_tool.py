"""Which dtrace to run, and how: the tool, its privileges, its options, its program as one text.

Runs nothing but `-V`. Knows neither probes' output nor frames; what the tool says on stderr is dtrace_messages.py's.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from latmon.errors import UnavailableError
from latmon.host import install_command
from latmon.tools import find_tool
from latmon_backends.asking import answer
from latmon_backends.child import shimmed
from latmon_backends.launching import AnyProgram

VARIABLE = "LATMON_DTRACE"
PLATFORMS = {"Linux": "linux", "SunOS": "illumos", "FreeBSD": "freebsd"}
"""uname's name of a system -> a manifest's."""
_VERSION = re.compile(r"D (\d{1,6}(?:\.\d{1,6}){1,3})", re.ASCII)
_OTHERS = "[-h | -G]"
"""Of the usage of SystemTap's `dtrace`, which makes headers of probes."""
_ANSWERS_S = 10.0
_OPTIONS = {
    # A start for each I/O in flight, and for each that never completes.
    "dynvarsize": "32m",
    "aggsize": "8m",
    "bufsize": "1m",
    "strsize": "64",
}
_TIMELY = {"linux": {}, "illumos": {"switchrate": "10hz", "aggrate": "10hz"}}
"""Lines come a second late otherwise. On Linux they come at once, and higher rates make it lose ticks."""
_GRACE_S = 0.6
"""All that it tells at its end comes within 10 ms. To detach takes it 2 to 17 s, and nobody that long to kill it."""
_REMOVE_EVENTS = (
    "for f in kprobe_events uprobe_events; do f=/sys/kernel/tracing/$f; "
    '[ -w $f ] && sed -n "s,^[^:]*:\\(dt_${p}_[^ ]*\\) .*,-:\\1,p" $f | while read -r e; do echo "$e" >>$f; done; '
    "done 2>/dev/null; "
)
"""The kernel keeps the events that a killed dtrace made for its BEGIN and END, and for fbt, until it restarts."""


@dataclass(frozen=True, slots=True)
class Tool:
    """The program and what it needs around it."""

    name: ClassVar[str] = "dtrace"
    """As manifests call it."""
    path: str
    system: str
    """As manifests call it."""
    sudo: bool = False
    mount_debugfs: bool = False
    version: str = ""
    """`2.0.7`; empty where it wasn't asked for, or the tool doesn't say."""

    def running(self, program: AnyProgram) -> list[str]:
        """Words that run it."""
        return self.command(program.text())

    def command(self, program: str) -> list[str]:
        """Words that run `program`, given as text, so that a chroot or a wrapper needs no file of ours."""
        options = _OPTIONS | _TIMELY.get(self.system, _TIMELY["illumos"])
        return self._words(
            ["-q", *(word for key, value in options.items() for word in ("-x", f"{key}={value}"))], program
        )

    def listing(self, hooks: Sequence[str]) -> list[str]:
        """Words that list which probes there are of those; what is not there is said on stderr."""
        return self._words(["-l", *(word for hook in hooks for word in ("-n", hook))])

    def _words(self, options: Sequence[str], program: str | None = None) -> list[str]:
        words = [self.path, *options, *(() if program is None else ("-n", program))]
        after = _REMOVE_EVENTS if self.system == "linux" else ""
        environment = {"LC_ALL": "C"}
        return shimmed(
            words, environment, sudo=self.sudo, mount_debugfs=self.mount_debugfs, grace_s=_GRACE_S, after=after
        )


def find(
    environ: Mapping[str, str] = os.environ,
    proc: Path = Path("/proc"),
    euid: int | None = None,
    system: str = platform.system(),
) -> Tool:
    """The tool that LATMON_DTRACE names, else `dtrace`; UnavailableError where there is none, or no scripts for it."""
    if system not in PLATFORMS:
        raise UnavailableError(f"There are no D scripts for {system or 'this system'}: only for {_systems()}.")
    try:
        path = str(find_tool("dtrace", VARIABLE, environ))
    except UnavailableError as error:
        if environ.get(VARIABLE):
            raise
        raise UnavailableError(f"dtrace is not installed: {_remedy(PLATFORMS[system])}.") from error
    euid = os.geteuid() if euid is None else euid
    return Tool(
        path=path,
        system=PLATFORMS[system],
        sudo=euid != 0 and system != "SunOS" and shutil.which("sudo") is not None,
        mount_debugfs=system == "Linux" and not _has_debugfs(proc),
    )


async def asked(tool: Tool) -> Tool:
    """With its version. UnavailableError where it is another program of that name."""
    said = await answer(shimmed([tool.path, "-V"], {"LC_ALL": "C"}, sudo=False), within_s=_ANSWERS_S, most=4096)
    found = _VERSION.search(said)
    if found is None and _OTHERS in said:
        raise UnavailableError(
            f"{tool.path} is SystemTap's program of that name, not DTrace: name DTrace's in {VARIABLE}."
        )
    return replace(tool, version=found[1] if found else "")


def is_listed(hook: str, listed: str) -> bool:
    """Whether `dtrace -l`'s output has a probe of this description, in which an empty part and `*` mean any."""
    wanted = hook.split(":")
    wanted = [""] * (4 - len(wanted)) + wanted
    patterns = [re.compile(_pattern(part)) for part in wanted]
    for line in listed.splitlines():
        words = line.split()
        if not words or not words[0].isdecimal():
            continue
        # ID PROVIDER MODULE FUNCTION NAME, of which the two in the middle may be blank.
        module, function, *_ = [*words[2:-1], "", ""]
        found = (words[1], module, function, words[-1])
        other = (words[1], "", module, words[-1])
        if any(all(p.fullmatch(at) for p, at in zip(patterns, one, strict=True)) for one in (found, other)):
            return True
    return False


def _pattern(part: str) -> str:
    return ".*" if not part else re.escape(part).replace(r"\*", ".*").replace(r"\?", ".")


def _systems() -> str:
    return "Linux, Solaris, illumos and FreeBSD"


def _remedy(system: str) -> str:
    if system == "linux":
        return install_command("dtrace") or "install the package dtrace (Oracle's DTrace 2.0 or newer)"
    return "it is part of the system" if system == "illumos" else "load it with `kldload dtraceall`"


def _has_debugfs(proc: Path) -> bool:
    try:
        mounts = (proc / "self/mounts").read_text("utf-8", "replace")
    except OSError:
        return True  # not known: the tool will say it
    return any(line.split()[2:3] == ["debugfs"] for line in mounts.splitlines())
