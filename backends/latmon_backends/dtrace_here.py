"""What the parts of the DTrace backend share: what was asked, which tool, the names and devices of one capture."""

from __future__ import annotations

from dataclasses import dataclass

from latmon.backend import Options
from latmon_backends import script_values
from latmon_backends.dtrace_devices import NamedDevices
from latmon_backends.dtrace_maps import Names
from latmon_backends.dtrace_tool import Tool
from latmon_backends.frames import Frames

MAP_KEYS = 1 << 20
"""An aggregation has no limit of keys, only of memory; what doesn't fit is told as drops."""


@dataclass(frozen=True, slots=True)
class Here:
    """For as long as a capture lasts."""

    options: Options
    tool: Tool
    names: Names
    devices: NamedDevices
    frames: Frames

    @property
    def values(self) -> dict[str, int | str]:
        """What scripts take."""
        interval_ms = self.options.interval_us // 1000
        return script_values.pace(interval_ms) | script_values.outliers(self.options.threshold_us)
