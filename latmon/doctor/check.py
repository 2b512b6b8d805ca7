"""What a check finds, and where it looks: roots, environment and commands are arguments, so any host can be shown."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from sys import platform as running_on
from typing import NamedTuple

from latmon import host
from latmon.files import content

SECONDS = 30
"""A slow dtrace takes 10 s to list a probe; one that hangs is given up."""


class Status(StrEnum):
    """`degraded`: latmon runs and shows less. `missing`: what the check is about can't be used."""

    OK = "ok"
    DEGRADED = "degraded"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor: what was found and, where it isn't well, the one thing to do."""

    name: str
    status: Status
    what: str
    remedy: str = ""


class Output(NamedTuple):
    """What a command ended with; 127 when it isn't there, 124 when it took too long."""

    code: int
    text: str


def run(command: Sequence[str]) -> Output:
    """Run a command of the host's and take what it says. Its input is empty, so that it can't ask."""
    try:
        done = subprocess.run(  # noqa: S603  # the doctor's own commands, no shell
            command, capture_output=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return Output(124, "")
    except OSError:
        return Output(127, "")
    return Output(done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class Place:
    """The host that is looked at."""

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
        """The command that installs a package here, with what it needs of privilege."""
        command = host.install_command(package, self.etc)
        return self.as_root(command) if command else f"install {package} with this system's package manager"

    def as_root(self, command: str) -> str:
        """The command as this user has to type it."""
        return command if self.uid == 0 else f"sudo {command}"

    def read(self, path: Path) -> bytes:
        """A file's bytes; empty when it can't be read."""
        return content(path)
