"""The rule as a value: its id, the input that it needs, its thresholds, and a pure function from facts to findings.

The config's section `findings` overrides thresholds (`findings: {peer-outlier: {octaves: 3}}`) or turns a rule off
(`findings: {bimodal-tail: off}`). `latmon rules show` prints all thresholds. No rule is named here: those are in
`rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from latmon.findings.facts import Facts
from latmon.findings.finding import Finding

Thresholds = Mapping[str, float]
"""Values of a rule's thresholds by name."""

LATENCIES, TRACED, DEPTHS, LIMITS = "latencies", "traced", "depths", "limits"
"""Inputs: latency histograms; requests traced on demand; counts of outstanding I/Os; limits of drivers."""

MISSING: Mapping[str, str] = MappingProxyType(
    {
        LATENCIES: "no latencies were timed",
        TRACED: "stages were not traced",
        DEPTHS: "outstanding I/Os were not counted",
        LIMITS: "no device reported a limit of its driver",
    }
)
"""Input -> the reason to print for rules that were not evaluated because it is missing."""

UNBOUNDED = 1e12
"""Greatest value of a threshold whose unit has no greatest value that makes sense."""
_MAX = {"share": 1.0, "blocks": 12.0, "octaves": 60.0}
"""Unit -> the greatest value that makes sense."""
_MIN = {"share": 0.0, "times": 0.0, "octaves": 0.0}
"""Unit -> the least value that makes sense; 1 for the units of counted things."""


class Threshold(NamedTuple):
    """One number of a rule; `meaning` continues the sentence that begins with it: `10 ios | slow ones at least`."""

    value: float
    unit: str
    """us, ios, bytes, share (0..1), times, octaves, blocks, devices, runs."""
    meaning: str

    @property
    def most(self) -> float:
        """Return the greatest value that the config may set."""
        return _MAX.get(self.unit, UNBOUNDED)

    @property
    def least(self) -> float:
        """Return the least value that the config may set: a rule needs one of what it counts."""
        return _MIN.get(self.unit, 1.0)


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding. `evaluate` yields at most one finding per subject for the window that the facts cover."""

    id: str
    fires: str
    """The condition in one sentence without its full stop, for `latmon rules` and docs/FINDINGS.md."""
    evaluate: Callable[[Facts, Thresholds], Iterable[Finding]]
    needs: str
    """The input without which the rule never fires; it is then reported as not evaluated."""
    thresholds: Mapping[str, Threshold] = field(default_factory=lambda: MappingProxyType({}))
    explained_by: tuple[str, ...] = ()
    """Rules whose finding on the same device gives the cause, so that this one is left out."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The config's section `findings`: values by (rule, threshold), and rules that are off."""

    values: Mapping[tuple[str, str], float] = field(default_factory=lambda: MappingProxyType({}))
    off: frozenset[str] = frozenset()

    def of(self, rule: Rule) -> dict[str, float]:
        """Return the values of a rule's thresholds by name."""
        return {name: self.values.get((rule.id, name), one.value) for name, one in rule.thresholds.items()}


DEFAULT = Settings()


def settings_of(section: Mapping[object, object], rules: Iterable[Rule], before: Settings = DEFAULT) -> Settings:
    """Return the config's section `findings` on top of `before`, an earlier file's.

    Raises ValueError that names an unknown rule or threshold, or the range of a value that is out of it.
    """
    known = {rule.id: rule for rule in rules}
    values, off = dict(before.values), set(before.off)
    for name, value in section.items():
        rule = known.get(name) if isinstance(name, str) else None
        if rule is None:
            raise ValueError(f"there is no rule {name!r}; the rules are {', '.join(known)}")
        if value is False or value == "off":
            off.add(rule.id)
        elif isinstance(value, Mapping):
            values |= {(rule.id, str(key)): _number(rule, key, number) for key, number in value.items()}
        elif value is True or value == "on":
            off.discard(rule.id)
        else:
            raise ValueError(f"{rule.id}: expected off, or numbers by name: {', '.join(rule.thresholds)}")
    return Settings(values, frozenset(off))


def _number(rule: Rule, name: object, value: object) -> float:
    one = rule.thresholds.get(name) if isinstance(name, str) else None
    if one is None:
        raise ValueError(f"{rule.id}: there is no number {name!r}; it has {', '.join(rule.thresholds)}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not one.least <= value <= one.most:
        limits = f"{one.least:g} to {one.most:g} ({one.unit})"
        raise ValueError(f"{rule.id}: {name}: {value!r} is not a number from {limits}")
    return float(value)
