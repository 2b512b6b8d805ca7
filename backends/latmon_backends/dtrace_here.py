"""What the parts of the DTrace backend share: what was asked, which tool, the names and devices of one capture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from latmon.backend import Options
from latmon.manifest import Manifest
from latmon_backends import dtrace_program, script_values
from latmon_backends.dtrace_clock import DtraceClock
from latmon_backends.dtrace_devices import NamedDevices
from latmon_backends.dtrace_maps import Names
from latmon_backends.dtrace_program import Script
from latmon_backends.dtrace_tool import Tool
from latmon_backends.frames import Frames

_STEP_MS = 100
"""Oracle's DTrace loses ticks: at 100 ms and less 12 of 12 windows came in time, at 200 ms 10 of 15."""


@dataclass(frozen=True, slots=True)
class Here:
    """For as long as a capture lasts."""

    options: Options
    tool: Tool
    names: Names
    devices: NamedDevices
    frames: Frames
    clock: DtraceClock = field(default_factory=DtraceClock)

    def fillings(self, manifest: Manifest) -> Iterator[Script]:
        """The script as it may run here, the likeliest first."""
        return dtrace_program.fillings(manifest, self._values, self.tool.system)

    @property
    def _values(self) -> dict[str, int | str]:
        """What scripts take."""
        interval_ms = self.options.interval_us // 1000
        return script_values.pace(interval_ms, _STEP_MS) | script_values.outliers(self.options.threshold_us)
