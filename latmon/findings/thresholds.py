"""Every number of every rule, in one table: what it is, its unit, and why it is what it is.

The config's section `findings` overrides them (`findings: {peer-outlier: {octaves: 3}}`) or turns a rule off
(`findings: {bimodal-tail: off}`). docs/FINDINGS.md shows this table. Knows no rule's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

_MOST = {"share": 1.0, "blocks": 12.0}
"""Unit -> the greatest value that makes sense."""


class Threshold(NamedTuple):
    """One number of a rule; `meaning` goes on behind it: `4 | a driver held at so few or fewer is serial`."""

    value: float
    unit: str
    """us, ios, share (0..1), times, octaves, blocks, devices, runs."""
    meaning: str

    @property
    def most(self) -> float:
        """The greatest that the config may say; the least is 0."""
        return _MOST.get(self.unit, 1e12)


TABLE: Mapping[str, Mapping[str, Threshold]] = {
    "outstanding-ceiling": {
        "depth": Threshold(4, "ios", "a driver held at so few is serial; a disk that orders by itself needs 8"),
        "waiting": Threshold(0.5, "share", "of the I/Os' time is spent above the driver"),
        "critical_waiting": Threshold(0.9, "share", "above this nearly all of the time is lost: critical"),
    },
    "bottleneck-above-device": {
        "waiting": Threshold(0.8, "share", "of the I/Os' time is spent above the driver"),
        "queued": Threshold(2, "ios", "wait above the driver in the mean"),
        "used": Threshold(0.5, "share", "of what the driver may hold is used, or less"),
        "median_us": Threshold(1_000, "us", "the median wait above the driver; a plug or a merge takes less"),
    },
    "queue-depth-misconfigured": {
        "queued": Threshold(0.1, "share", "of the time something waits above the driver: then it is a warning"),
    },
    "tick-quantum": {
        "below": Threshold(0.05, "share", "a mode so far below 1 or 2 ticks of 1/CONFIG_HZ"),
        "ios": Threshold(20, "ios", "in the mode at least"),
        "share": Threshold(0.001, "share", "of all I/Os in the mode at least"),
        "narrow": Threshold(3.0, "times", "as many in the mode's bucket as in its neighbours on each side"),
    },
    "softirq-delay": {
        "tail": Threshold(0.5, "share", "of the slow I/Os' time is waiting for their softirq"),
        "delay_us": Threshold(1_000, "us", "that wait, in the slow I/Os' mean"),
        "ios": Threshold(10, "ios", "slow ones at least"),
    },
    "completion-wakeup": {
        "tail": Threshold(0.5, "share", "of the slow I/Os' time is the completion thread's"),
        "delay_us": Threshold(10_000, "us", "that wait, in the slow I/Os' mean"),
        "ios": Threshold(3, "ios", "slow ones at least"),
        "critical_us": Threshold(500_000, "us", "a wait of this makes it critical: a log writer's warning"),
    },
    "peer-outlier": {
        "octaves": Threshold(2.0, "octaves", "its tail is beyond its peers' by so many doublings"),
        "scatters": Threshold(5.0, "times", "or by so many of their tails' scatter, whichever is more"),
        "peers": Threshold(3, "devices", "like it at least, of which the median is taken"),
        "run": Threshold(3, "blocks", "in which it must have been so: one bad moment is no sick device"),
    },
    "slow-shared-handler": {
        "run_us": Threshold(2, "us", "a stranger's handler takes in the mean, on the vector of a disk's"),
        "runs": Threshold(100, "runs", "of the stranger's at least"),
        "victim": Threshold(0.02, "share", "of the victim's I/O time its handler waited for others"),
    },
    "starved-io": {
        "age_us": Threshold(5_000_000, "us", "an I/O waits so long or longer"),
        "overtaken": Threshold(100, "ios", "that came later and were completed earlier"),
        "times": Threshold(20, "times", "its device's p99, at least"),
        "critical_us": Threshold(60_000_000, "us", "a wait of this makes it critical: nine minutes were seen"),
    },
    "bimodal-tail": {
        "apart": Threshold(5, "octaves", "between the main mode and the far one"),
        "far_us": Threshold(100_000, "us", "the far mode is at least here"),
        "ios": Threshold(10, "ios", "in the far mode at least"),
        "share": Threshold(0.01, "share", "of all I/Os in the far mode at most: more are a load of two kinds"),
        "between": Threshold(0.05, "share", "of the far mode's count may lie between the two"),
    },
    "requeue-storm": {
        "share": Threshold(0.05, "share", "of the I/Os were refused by the driver and sent again"),
        "ios": Threshold(50, "ios", "so many of them at least"),
    },
}
"""Rule -> name -> number."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the config says: other values by (rule, name), and rules that are off."""

    values: Mapping[tuple[str, str], float] = field(default_factory=lambda: MappingProxyType({}))
    off: frozenset[str] = frozenset()

    def of(self, rule: str) -> dict[str, float]:
        """A rule's numbers by name."""
        return {name: self.values.get((rule, name), one.value) for name, one in TABLE[rule].items()}


DEFAULT = Settings()
