"""How often the kernel's gauges are read: as often as is useful, and no more than half a percent of one CPU.

Pure: the thread's CPU time and the chance are given. Waking up costs as much as reading a few devices does, so it is
counted in.
"""

from __future__ import annotations

from collections.abc import Callable

SHORTEST_S, LONGEST_S = 0.010, 4.0
BUDGET = 0.0045
"""CPU seconds per second. The rest of the half percent is for a pass that takes longer than those before it."""
_MEMORY = 16
"""Passes over which the cost of one is a mean."""


class Pace:
    """The pause before each pass. `cpu_s` is the CPU time of the thread that reads, `chance` gives 0..1."""

    def __init__(self, cpu_s: Callable[[], float], chance: Callable[[], float]) -> None:
        self._cpu_s, self._chance = cpu_s, chance
        self._before_s = cpu_s()
        self.step_s = 2 * SHORTEST_S
        self._cost_s = self.step_s * BUDGET

    def pause_s(self) -> float:
        """From a half to one and a half steps: even on the whole, and in step with nothing that is periodic itself."""
        spent = self._cpu_s()
        self._cost_s += (spent - self._before_s - self._cost_s) / _MEMORY
        self._before_s = spent
        self.step_s = min(max(self._cost_s / BUDGET, SHORTEST_S), LONGEST_S)
        return self.step_s * (0.5 + self._chance())
