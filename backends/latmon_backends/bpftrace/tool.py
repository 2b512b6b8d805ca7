"""The bpftrace tool: its path, privileges, map limit, and its error messages as sentences.

It runs nothing but `--version`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import ClassVar

from latmon.support import privileges
from latmon.support.errors import UnavailableError
from latmon.support.host import install_command
from latmon.support.trust import environment, find_tool
from latmon_backends.probe.launcher import AnyProgram
from latmon_backends.probe.process import is_mounted, shimmed

VARIABLE = "LATMON_BPFTRACE"
_CAPABILITIES_SINCE = (0, 25)
_VERSION = re.compile(r"v?(\d+\.\d+(?:\.\d+)?)")
_ERRORS = (re.compile(r"(?:ERROR|FATAL|error):\s*(.+)"), re.compile(r"WARNING:\s*(.+)"))
_NOISE = ("RLIMIT_MEMLOCK", "available_filter_functions", "Addrspace is not set", "Return value discarded")
_PRIVILEGE = ("root user", "CAP_", "Operation not permitted", "a password is required", "not allowed to execute")
_ENTRIES_PER_MAP = 1 << 20
"""Slots over all CPUs that one map may take: 8 MB, because per-CPU maps are allocated whole."""


@dataclass(frozen=True, slots=True)
class BpftraceTool:
    """The installed bpftrace and how it must be started."""

    name: ClassVar[str] = "bpftrace"
    """The tool's name in manifests."""
    path: str
    sudo: bool
    mount_tracefs: bool
    map_keys: int

    @property
    def version(self) -> str:
        """The version, or empty; read once, which takes 0.1 s."""
        return _versions(self.path)

    def running(self, program: AnyProgram) -> list[str]:
        """Return the words that run a program with its number of keys per map."""
        return replace(self, map_keys=program.map_keys).command(program.text())

    def command(self, program: str) -> list[str]:
        """Return the words that run `program`, given as text: a chroot or a wrapper needs no file of ours."""
        keys = str(self.map_keys)
        # The first name is 0.17's, the second came with 0.20.
        variables = {"BPFTRACE_MAP_KEYS_MAX": keys, "BPFTRACE_MAX_MAP_KEYS": keys, "LC_ALL": "C"}
        words = [self.path, "-f", "json", "--no-warnings", "-e", program]
        return shimmed(words, variables, sudo=self.sudo, mount_tracefs=self.mount_tracefs)


def find(environ: Mapping[str, str] = os.environ, proc: Path = Path("/proc"), euid: int | None = None) -> BpftraceTool:
    """Find the tool that LATMON_BPFTRACE names, else `bpftrace`; UnavailableError when there is none."""
    try:
        path = str(find_tool("bpftrace", VARIABLE, environ))
    except UnavailableError as error:
        if environ.get(VARIABLE):
            raise
        remedy = install_command("bpftrace") or "install the package bpftrace"
        raise UnavailableError(f"bpftrace is not installed: {remedy}.") from error
    euid = os.geteuid() if euid is None else euid
    mount = not is_mounted("tracefs", proc) and not is_mounted("debugfs", proc)
    return BpftraceTool(
        path=path,
        sudo=euid != 0 and shutil.which("sudo") is not None and not _is_capable(path, proc, mount=mount),
        mount_tracefs=mount,
        map_keys=map_keys(os.cpu_count() or 1),
    )


def version(path: str) -> str:
    """Return `0.23.2`, or nothing where the tool doesn't print it."""
    try:
        printed = subprocess.run(  # noqa: S603 - the tool the user named
            [path, "--version"], capture_output=True, timeout=10, check=False, env=environment(os.environ)
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = _VERSION.search(printed.stdout.decode("utf-8", "replace"))
    return found[1] if found else ""


_versions = cache(version)


def map_keys(cpus: int) -> int:
    """Return the keys per map (devices x ops x used buckets) that the memory for them allows: 8,192 to 65,536."""
    return min(65_536, max(8_192, _ENTRIES_PER_MAP // cpus))


def reason(complaints: Sequence[str], status: int) -> str:
    """Return why the tool ended, as one sentence without a full stop."""
    lines = [line for line in complaints if not any(noise in line for noise in _NOISE)]
    for kind in _ERRORS:
        for line in lines:
            if found := kind.search(line):
                return found[1].strip(" .")
    return lines[-1].strip(" .") if lines else f"bpftrace ended with status {status}"


def is_privilege(why: str) -> bool:
    """Return whether more rights, not another probe, would help."""
    return any(sign in why for sign in _PRIVILEGE)


def _is_capable(path: str, proc: Path, *, mount: bool) -> bool:
    """Return whether the tool, started by this user, has the capabilities that it needs instead of root."""
    if privileges.missing_in_children(proc) or (mount and not privileges.can_mount_in_children(proc)):
        return False
    return tuple(int(part) for part in _versions(path).split(".")[:2] if part) >= _CAPABILITIES_SINCE
