"""The rule as a value: a pure function from facts to findings, and the table of all thresholds.

Knows no rule by name; registry.py lists them.

The config's section `findings` overrides them (`findings: {peer-outlier: {octaves: 3}}`) or turns a rule off
(`findings: {bimodal-tail: off}`). docs/FINDINGS.md shows this table. Knows no rule's code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from latmon.findings.facts import Facts
from latmon.findings.finding import Finding

Thresholds = Mapping[str, float]
"""A rule's own numbers by name, as the table of thresholds documents them."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`judge` yields at most one finding per device, or per what it is about, for the window that the facts hold."""

    id: str
    fires: str
    """When, in one sentence without its full stop, for `docs/FINDINGS.md` and the help."""
    judge: Callable[[Facts, Thresholds], Iterable[Finding]]
    explained_by: tuple[str, ...] = ()
    """Rules whose finding on the same device says why, so that this one needn't be told as well."""


_MOST = {"share": 1.0, "blocks": 12.0, "octaves": 60.0}
"""Unit -> the greatest value that makes sense."""
_LEAST = {"share": 0.0, "times": 0.0, "octaves": 0.0}
"""The same for the least one: of what is counted, 1."""


class Threshold(NamedTuple):
    """One number of a rule; `meaning` goes on behind it: `4 | a driver held at so few or fewer is serial`."""

    value: float
    unit: str
    """us, ios, bytes, share (0..1), times, octaves, blocks, devices, runs."""
    meaning: str

    @property
    def most(self) -> float:
        """The greatest that the config may say."""
        return _MOST.get(self.unit, 1e12)

    @property
    def least(self) -> float:
        """The least that it may say: with none of a thing nobody can judge it."""
        return _LEAST.get(self.unit, 1.0)


TABLE: Mapping[str, Mapping[str, Threshold]] = {
    "outstanding-ceiling": {
        "depth": Threshold(4, "ios", "a driver held at so few is serial; a disk that orders by itself needs 8"),
        "waiting": Threshold(
            0.4, "share", "of the I/Os' time is spent above the driver; a scheduler counts only twice the driver's tags"
        ),
        "queued": Threshold(
            2, "ios", "wait above it, in the mean of the moments at which some do; fewer if no more can"
        ),
        "lasting_us": Threshold(12_000_000, "us", "it was held so in the last minute: longer than a burst"),
        "bytes": Threshold(
            131_072, "bytes", "an I/O has in the mean, or more: few fill a ring or link, and nothing is said"
        ),
        "critical_waiting": Threshold(0.9, "share", "above this nearly all of the time is lost: critical"),
        "critical_times": Threshold(3, "times", "the ceiling wait, and its limit is as far above it: critical"),
    },
    "bottleneck-above-device": {
        "waiting": Threshold(0.8, "share", "of the I/Os' time is spent above the driver"),
        "queued": Threshold(2, "ios", "wait above the driver in the mean"),
        "used": Threshold(0.5, "share", "of what the driver may hold is used, or less"),
        "nearly": Threshold(0.95, "share", "of the busy moments it has so many or fewer: what it uses"),
        "median_us": Threshold(1_000, "us", "the median wait above the driver; a plug or a merge takes less"),
        "lasting_us": Threshold(12_000_000, "us", "it was so in the last minute: longer than a burst"),
        "bytes": Threshold(
            131_072, "bytes", "an I/O has in the mean, or more: few fill a ring or link, and nothing is said"
        ),
        "host": Threshold(0.9, "share", "of the host's can_queue is taken by its devices together: it is full"),
    },
    "queue-depth-misconfigured": {
        "queued": Threshold(0.1, "share", "of the time something waits above a driver at its bound: a warning"),
        "lasting_us": Threshold(12_000_000, "us", "was looked at for a warning: longer than a first burst"),
        "devices": Threshold(3, "devices", "with the same setting off are told one by one; more as one finding"),
    },
    "tick-quantum": {
        "below": Threshold(0.05, "share", "a mode so far below 1 or 2 ticks of 1/CONFIG_HZ"),
        "ios": Threshold(20, "ios", "in the mode at least"),
        "share": Threshold(0.01, "share", "of all I/Os in the mode at least; a busy host has some by chance"),
        "narrow": Threshold(3.0, "times", "as many in the mode's buckets as in a neighbour on each side"),
        "raises": Threshold(0.5, "share", "of its softirq's raises outside of interrupts wait so long or longer"),
        "late": Threshold(0.9, "share", "or of its softirq's waits of a quarter of a tick or more end there"),
        "waiting": Threshold(0.5, "share", "of the time of the I/Os in the mode is waiting for the softirq"),
        "most": Threshold(0.5, "share", "of all I/Os in the mode, for a notice where no softirq is watched"),
        "critical": Threshold(0.9, "share", "of the I/Os' time is that wait: critical"),
    },
    "softirq-delay": {
        "tail": Threshold(0.5, "share", "of the slow I/Os' time is waiting for their softirq"),
        "delay_us": Threshold(5_000, "us", "that wait, in the slow I/Os' mean; ksoftirqd may wait for a tick"),
        "ios": Threshold(10, "ios", "slow ones at least"),
        "blocks": Threshold(3, "blocks", "of a minute in which there is such a wait"),
        "critical_us": Threshold(500_000, "us", "a mean wait of this makes it critical"),
    },
    "completion-wakeup": {
        "tail": Threshold(0.5, "share", "of the slow I/Os' time is the completion thread's"),
        "delay_us": Threshold(10_000, "us", "that wait, in the slow I/Os' mean"),
        "ios": Threshold(3, "ios", "slow ones at least"),
        "long_us": Threshold(100_000, "us", "one wait of this says enough; on a busy host workers wait less"),
        "blocks": Threshold(3, "blocks", "of a minute with such a wait, where none is so long"),
        "critical_us": Threshold(500_000, "us", "a wait of this makes it critical: a log writer's warning"),
    },
    "peer-outlier": {
        "octaves": Threshold(2.0, "octaves", "its tail is beyond its peers' by so many doublings"),
        "scatters": Threshold(5.0, "times", "or by so many of their tails' scatter, whichever is more"),
        "peers": Threshold(3, "devices", "like it at least, of which the median is taken"),
        "run": Threshold(3, "blocks", "in which it must have been so: one bad moment is no sick device"),
        "ios": Threshold(100, "ios", "of the op at least, of it and of each peer"),
        "hot": Threshold(
            1.5, "times", "as many I/Os as its peers' median: with more it has more to do, and is no finding"
        ),
        "in_flight": Threshold(
            0.5, "times", "what its peers' median has in flight at least: with less it has another load"
        ),
        "chance": Threshold(0.001, "share", "of findings among equal devices, per group and op, that chance gives"),
        "size": Threshold(
            1.15, "times", "as large as the smallest I/Os of its group: else it is a load of another kind"
        ),
    },
    "slow-shared-handler": {
        "run_us": Threshold(2, "us", "another device's handler takes in the mean, on the vector of a disk's"),
        "runs": Threshold(100, "runs", "of that handler at least"),
        "ios": Threshold(100, "ios", "of the victim in the minute at least; an idle disk has none worth a finding"),
        "time_us": Threshold(10_000, "us", "of the victim's I/O time in the minute passed in that wait, at least"),
        "victim": Threshold(0.05, "share", "of the victim's I/O time its handler waited for others"),
        "tail": Threshold(0.2, "share", "or so much of its slow I/Os' time passed in interrupts"),
        "warning": Threshold(0.1, "share", "of either: a warning, below it a notice"),
        "critical": Threshold(0.5, "share", "of the slow I/Os' time: critical"),
    },
    "starved-io": {
        "age_us": Threshold(5_000_000, "us", "a read or write waits so long or longer"),
        "flush_us": Threshold(30_000_000, "us", "a flush does: a slow disk takes seconds to empty its cache"),
        "overtaken": Threshold(100, "ios", "that came later and were completed earlier"),
        "times": Threshold(20, "times", "its device's p99, at least"),
        "held": Threshold(0.5, "share", "of a completed one's time passed before its completion, at least"),
        "silent_us": Threshold(10_000_000, "us", "nothing completes while I/Os wait; a disk spins up in less"),
        "critical_us": Threshold(60_000_000, "us", "a wait of this makes it critical: nine minutes were seen"),
    },
    "bimodal-tail": {
        "apart": Threshold(5, "octaves", "between the main mode and the far one"),
        "far_us": Threshold(100_000, "us", "the far mode is at least here"),
        "ios": Threshold(10, "ios", "in the far mode at least"),
        "share": Threshold(0.01, "share", "of all I/Os in the far mode at most: more are a load of two kinds"),
        "between": Threshold(0.05, "share", "of the far mode's count may lie between the two"),
        "run": Threshold(3, "blocks", "in which some of them were: one pause of everything is no second mode"),
        "below": Threshold(2.5, "octaves", "below the far mode are the stretch between the two"),
        "alike": Threshold(0.8, "share", "of its outliers larger than others, or of one program: that is said"),
        "larger": Threshold(4, "times", "the mean size of an I/O: that is said"),
        "long_us": Threshold(10_000_000, "us", "a far mode from here on is a warning; a shorter one is a notice"),
    },
    "requeue-storm": {
        "share": Threshold(0.05, "share", "of the I/Os were refused by the driver and sent again"),
        "ios": Threshold(50, "ios", "so many of them at least"),
        "time": Threshold(0.2, "share", "of all I/Os' time is that wait: a notice"),
        "warning": Threshold(0.5, "share", "of the time: a warning; an adapter that is often busy takes 0.8"),
        "critical": Threshold(0.9, "share", "of the time: nearly all is lost, critical"),
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


def settings_of(section: Mapping[object, object], known: Settings = DEFAULT) -> Settings:
    """The config's section `findings`; ValueError names the rule or number that isn't there, or what it may be.

    `known`: what another file says, where this one doesn't.
    """
    values, off = dict(known.values), set(known.off)
    for rule, said in section.items():
        if rule not in TABLE:
            raise ValueError(f"there is no rule {rule!r}; the rules are {', '.join(TABLE)}")
        if said is False or said == "off":
            off.add(str(rule))
        elif isinstance(said, Mapping):
            values |= {(str(rule), str(name)): _number(str(rule), name, value) for name, value in said.items()}
        elif said is True or said == "on":
            off.discard(str(rule))
        else:
            raise ValueError(f"{rule}: expected off, or numbers by name: {', '.join(TABLE[str(rule)])}")
    return Settings(values, frozenset(off))


def _number(rule: str, name: object, value: object) -> float:
    if name not in TABLE[rule]:
        raise ValueError(f"{rule}: there is no number {name!r}; it has {', '.join(TABLE[rule])}")
    one = TABLE[rule][str(name)]
    if isinstance(value, bool) or not isinstance(value, int | float) or not one.least <= value <= one.most:
        limits = f"{one.least:g} to {one.most:g} ({one.unit})"
        raise ValueError(f"{rule}: {name}: {value!r} is not a number from {limits}")
    return float(value)
