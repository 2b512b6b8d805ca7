"""How a probe's process comes to be, and what root can tell of it: directly, as long as we have the rights ourselves.

root_launcher.py does the same through a process that kept root. Knows no probe's output.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from latmon import trust
from latmon.manifest import Manifest
from latmon_backends import bpf_stats
from latmon_backends.bpf_programs import Totals, totals
from latmon_backends.child import Child


class AnyTool(Protocol):
    """bpftrace or DTrace: a frozen dataclass of the words that start it."""

    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def running(self, program: AnyProgram) -> list[str]:
        """Words that run it, behind the shim."""
        ...


class AnyScript(Protocol):
    """A manifest's script with its values."""

    @property
    def manifest(self) -> Manifest: ...

    @property
    def values(self) -> Mapping[str, int | str]: ...


class AnyProgram(Protocol):
    """Scripts put together for one of the tools."""

    @property
    def scripts(self) -> Sequence[AnyScript]: ...

    @property
    def map_keys(self) -> int:
        """How many keys each map may have."""
        ...

    def text(self) -> str: ...


def trusted(program: AnyProgram) -> AnyProgram:
    """Return the program. UntrustedError where this process is root and others can change one of its scripts."""
    if os.geteuid() == 0:
        for manifest in (one.manifest for one in program.scripts):
            trust.require_script(manifest.path)
            trust.require_script(manifest.script)
    return program


class Launcher(Protocol):
    """Starts probes. Nothing here waits long: a child is not ready yet when it is given."""

    async def launch(self, program: AnyProgram) -> Child:
        """OSError when not even a shell can be started."""
        ...

    async def totals(self, pid: int) -> Totals:
        """Of a child's BPF programs; unknown without the right to read it."""
        ...

    async def count_time(self, *, on: bool) -> bool:
        """Have the kernel count run times from now on, or no longer; False where it can't be had."""
        ...

    async def close(self) -> None: ...


class Direct:
    """With the rights of this process, or by `sudo -n` for the tool alone."""

    def __init__(self, tool: AnyTool, proc: Path = Path("/proc")) -> None:
        self.tool, self._proc = tool, proc
        self._stats = -1

    async def launch(self, program: AnyProgram) -> Child:
        return await Child.start(self.tool.running(trusted(program)))

    async def totals(self, pid: int) -> Totals:
        return totals(pid, self._proc)

    async def count_time(self, *, on: bool) -> bool:
        if on and self._stats < 0:
            try:
                self._stats = bpf_stats.open_stats()
            except OSError:  # no privilege, no such kernel: then it isn't measured
                return False
        if not on and self._stats >= 0:
            os.close(self._stats)
            self._stats = -1
        return on

    async def close(self) -> None:
        await self.count_time(on=False)
