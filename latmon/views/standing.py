"""What stands at a moment: the findings that last, those that are over, and what could not be judged. Pure values.

Knows a watch, neither where its frames come from nor how anything is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from latmon.findings.finding import NOTICE, Finding
from latmon.findings.needs import unjudged
from latmon.findings.registry import RULES
from latmon.findings.thresholds import Settings
from latmon.findings.watch import BLOCK_US, Episode, Watch
from latmon.moments import Moment


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
    since_us: int = 0
    """From when on somebody watched: what lasts since then may have begun before."""

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
        return one.begin_us <= self.since_us + BLOCK_US

    def with_past(self, known: Standing) -> Standing:
        """What was found now, begun when somebody who saw it says so; and what was over by then."""
        begun = {one.key: one for one in known.lasting}
        here = {one.key for one in self.lasting}
        lasting = tuple(_begun_as(one, begun[one.key]) if one.key in begun else one for one in self.lasting)
        over = (*(one for one in known.lasting if one.key not in here), *known.over)
        return replace(self, lasting=lasting, over=over, since_us=known.since_us)


NOTHING, COMING = Standing(), Standing(coming=True)


def standing_of(watch: Watch, settings: Settings, since_us: int = 0) -> Standing:
    """As of the last block. `since_us`: when it began to watch."""
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
        since_us=since_us,
    )


def standing_at(watch: Watch, mono_us: int, settings: Settings, since_us: int = 0) -> Standing:
    """As a watch that saw an earlier time remembers it: which findings there were, told as they are by now."""
    now = standing_of(watch, settings, since_us)
    begun = [one for one in now.all if one.begin_us <= mono_us]
    lasting = [one for one in begun if one.end_us > mono_us - BLOCK_US]
    over = [one for one in begun if one.end_us <= mono_us - BLOCK_US]
    by_weight = sorted(lasting, key=lambda one: (-one.last.weight[0], -one.last.weight[1], one.key))
    return replace(now, lasting=tuple(by_weight), over=tuple(sorted(over, key=lambda one: -one.end_us)))


def _name(one: Episode) -> str:
    return f"{one.worst.id}{f' on {one.worst.device}' if one.worst.device else ''}"


def _begun_as(one: Episode, known: Episode) -> Episode:
    return replace(one, begin_us=known.begin_us, begin_wall=known.begin_wall)
