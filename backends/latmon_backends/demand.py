"""Whether the deep probes are wanted now, for which devices and why: by mode, by who looks, by what looks sick. Pure.

Knows no process; the clock is an argument, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from latmon.device_order import Order, Rank
from latmon_backends.suspicion import Suspect

AT_MOST = 4
"""The kernel's filter compares with so many devices: dev0 to dev3."""
LOOKED_S = 60.0
"""The deep probes stay so long after somebody last looked."""
REMIX_S = 10.0
"""Other devices are taken in at most so often: it takes a restart, and what is in flight then isn't traced."""


@dataclass(frozen=True, slots=True)
class Want:
    """What is to be traced: these devices, or with none named all of them; and why, as the end of a sentence."""

    devices: tuple[str, ...] = ()
    why: str = ""
    forced: bool = False
    """Asked for in so many words: no budget stops it."""
    left: tuple[str, ...] = ()
    """Wanted as well, beyond what the kernel's filter has room for."""

    def covers(self, other: Want) -> bool:
        """True when a probe that runs for this one will do for the other."""
        fewer = bool(other.devices) and set(other.devices) <= set(self.devices)
        return self.forced == other.forced and (not self.devices or fewer)


class Demand:
    """Keeps who looked at what, and when."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self._looked: dict[str, float] = {}
        self._looked_at_all = -LOOKED_S
        self._order = Order()

    def set_mode(self, mode: str) -> None:
        """One of STAGES_MODES; who looked under another mode is forgotten."""
        self.mode = mode
        self._looked.clear()
        self._looked_at_all = -LOOKED_S

    def deepen(self, devices: tuple[str, ...], now: float) -> None:
        """Somebody looks at these devices; empty: all."""
        if not devices:
            self._looked_at_all = now
        self._looked |= dict.fromkeys(devices, now)

    def wanted(self, suspects: tuple[Suspect, ...], now: float, traced: tuple[str, ...] = ()) -> Want | None:
        """None: nothing is to be traced.

        Of more suspects than there is room for, those that are traced already stay unless another one is a step of the
        devices' order worse: each change is a hole.
        """
        if self.mode == "basic":
            return None
        if self.mode == "all":
            return Want(why="--stages all", forced=True)
        self._looked = {name: at for name, at in self._looked.items() if now - at < LOOKED_S}
        if now - self._looked_at_all < LOOKED_S:
            return Want(why="somebody looks")
        newest = sorted(self._looked, key=lambda name: -self._looked[name])
        every = tuple(dict.fromkeys((*newest, *_ranked(suspects, traced, self._order))))
        chosen = every[:AT_MOST]
        if not chosen:
            return None
        reasons = dict.fromkeys(one.why for one in suspects if one.device in chosen)
        return Want(tuple(sorted(chosen)), "; ".join(reasons) or "somebody looks", left=every[AT_MOST:])


def _ranked(suspects: tuple[Suspect, ...], traced: tuple[str, ...], order: Order) -> list[str]:
    """Return the suspects in the screen's order of devices."""
    return order.sort(
        [Rank(n, one.busy_us, one.share, one.unlike, is_traced=n in traced) for one in suspects if (n := one.device)]
    )
