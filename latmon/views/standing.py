"""What stands at a moment: the findings that last, those that are over, and what could not be judged. Pure values.

Knows a watch, neither where its frames come from nor how anything is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from latmon.findings.finding import NOTICE, Finding
from latmon.findings.needs import unjudged
from latmon.findings.registry import RULES
from latmon.findings.thresholds import Settings
from latmon.findings.watch import BLOCK_US, Episode, Watch
from latmon.moments import Moment
from latmon.past import Stamp


@dataclass(frozen=True, slots=True)
class Standing:
    """At the end of the last block that was judged."""

    lasting: tuple[Episode, ...] = ()
    """The most urgent first; `last` is what is found now."""
    over: tuple[Episode, ...] = ()
    """The latest first."""
    judged: bool = False
    """Whether rules were asked at all; else nothing is known."""
    coming: bool = False
    """They are being asked."""
    span_us: int = 0
    """Of how much time."""
    rules: int = len(RULES)
    unjudged: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """What isn't told here (needs.py), and the rules that can't judge for want of it."""
    broken: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Rules that failed, and how."""
    failed: str = ""
    """Why nothing could be judged."""
    firsts: frozenset[int] = frozenset()
    """Ends of blocks before which no rule was asked: what was found after one may have begun before."""
    until_wall: float = math.nan
    """When the last block that was judged ends."""
    behind_us: int = 0
    """How much has come since, where that is more than it must be."""

    @property
    def urgent(self) -> tuple[Finding, ...]:
        """Those that are more than notices."""
        return tuple(one.last for one in self.lasting if one.last.severity != NOTICE)

    @property
    def all(self) -> tuple[Episode, ...]:
        """In the order of the list."""
        return self.lasting + self.over

    @property
    def moments(self) -> list[Moment]:
        """Where findings that are more than notices began and ended."""
        seen = [one for one in self.all if one.worst.severity != NOTICE and not self.before(one)]
        found = [Moment("finding", one.begin_us, one.begin_wall, f"found: {_name(one)}") for one in seen]
        ended = [one for one in self.over if one.worst.severity != NOTICE]
        return found + [Moment("finding", one.end_us, one.end_wall, f"no longer found: {_name(one)}") for one in ended]

    def before(self, one: Episode) -> bool:
        """Whether it may have begun before somebody watched."""
        return one.begin_us in self.firsts

    def with_past(self, known: Standing) -> Standing:
        """What was found now, begun when somebody who saw it says so; and what was over by then."""
        begun = {one.key: one for one in known.lasting}
        here = {one.key for one in self.lasting}
        lasting = tuple(_begun_as(one, begun[one.key]) if one.key in begun else one for one in self.lasting)
        over = (*(one for one in known.lasting if one.key not in here), *known.over)
        return replace(self, lasting=lasting, over=over, firsts=known.firsts)


_WOBBLE_S = 0.1
"""Clocks of frames."""
NOTHING, COMING = Standing(), Standing(coming=True)


class Blocks:
    """Those of a watch after which rules were asked."""

    def __init__(self) -> None:
        self.firsts: frozenset[int] = frozenset()
        """Ends of those before which they weren't."""
        self.until_us = 0
        self._judged = 0

    def asked(self, watch: Watch) -> None:
        """Maybe after another one."""
        if watch.facts is None or watch.judged == self._judged:
            return
        before = watch.facts.blocks[-2].end_us if len(watch.facts.blocks) > 1 else None
        if before != self.until_us or not self._judged:
            self.firsts |= {watch.facts.end_us}
        self.until_us, self._judged = watch.facts.end_us, watch.judged


def standing_of(watch: Watch, settings: Settings, firsts: frozenset[int] = frozenset()) -> Standing:
    """As of the last block. `firsts`: ends of blocks before which no rule was asked."""
    facts = watch.facts
    if facts is None:
        return NOTHING
    lasting = watch.lasting
    over = tuple(one for one in reversed(watch.episodes) if one not in lasting)
    return Standing(
        lasting,
        tuple(sorted(over, key=lambda one: -one.end_us)),
        judged=True,
        span_us=facts.span_us,
        rules=len(RULES) - len(settings.off),
        unjudged=unjudged(facts, settings.off),
        broken=dict(watch.failed),
        firsts=firsts,
        until_wall=facts.wall,
    )


def standing_at(watch: Watch, at: Stamp, settings: Settings, firsts: frozenset[int] = frozenset()) -> Standing:
    """As a watch that saw an earlier time remembers it: which findings there were, told as they are by now.

    By the wall clock, as the other one begins anew with each boot.
    """
    now = standing_of(watch, settings, firsts)
    latest = at.wall - BLOCK_US / 1e6 + _WOBBLE_S
    begun = [one for one in now.all if one.begin_wall <= at.wall + _WOBBLE_S]
    lasting = [one for one in begun if one.end_wall > latest]
    over = [one for one in begun if one.end_wall <= latest]
    by_weight = sorted(lasting, key=lambda one: one.last.rank)
    latest_first = sorted(over, key=lambda one: -one.end_wall)
    return replace(now, lasting=tuple(by_weight), over=tuple(latest_first), until_wall=math.nan)


def _name(one: Episode) -> str:
    return f"{one.worst.id}{f' on {one.worst.device}' if one.worst.device else ''}"


def _begun_as(one: Episode, known: Episode) -> Episode:
    return replace(one, begin_us=known.begin_us, begin_wall=known.begin_wall)
