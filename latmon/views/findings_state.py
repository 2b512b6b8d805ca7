"""Findings at a moment: active, ended, and rules not evaluated; at the live edge and in the past.

Frames wait in line until somebody has some milliseconds for them (`proceed`): rules never hold up a picture or a key.
An earlier time is judged from what was captured in the minute before it, as it was judged then. Knows no panel.

Knows a watch, neither where its frames come from nor how anything is drawn.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from latmon.aggregate.request_age import Waiting
from latmon.findings.engine import KEEP, RULES, Episode, Watch, unjudged
from latmon.findings.facts import BLOCK_US, WINDOW_US
from latmon.findings.finding import NOTICE, Finding
from latmon.findings.rule import Settings
from latmon.model.frame import Frame, Origin
from latmon.timetravel.archive import Past, Stamp
from latmon.timetravel.events import Moment


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
    """Inputs that are missing here, and the rules that are not evaluated without them."""
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


_FIRST_US = WINDOW_US + BLOCK_US
"""Of what comes first, maybe at once, each block is judged, unless much more has come by then."""

_TOLD_US = 1_000_000
"""How far it is behind is told anew so often."""


class Watched:
    """Fed with the frames of the edge; an earlier time is looked at between `look` and `forget`."""

    def __init__(self, settings: Settings | None, *, at_once: bool = True) -> None:
        """`settings`: of the rules; None: none is asked."""
        self.at_once = at_once
        """Whether each frame is judged as it comes, else by `proceed`."""
        self.late_us = 2 * BLOCK_US
        """So far behind the newest frame no rule is asked: a fast replay on a slow host has the findings of now."""
        self.settings = settings
        self._edge: Watch | None = None
        self._line: deque[Frame] = deque()
        self._coming: Iterator[None] | None = None
        self._begun = self._until = Stamp(0, 0.0)
        """What the edge has seen: from where on rules were asked of all of it, until where."""
        self._first_us = 0
        self._blocks = Blocks()
        self._back: Back | None = None
        self._next: Back | None = None
        """What the edge goes on from, once it has judged the minute before; frames wait in line until then."""
        self._shown: tuple[object, Standing] = (None, NOTHING)

    def take(self, frame: Frame, origin: Origin | None) -> None:
        """The next frame at the edge."""
        if origin is None or self.settings is None:
            return
        begins = Stamp(frame.mono_us - frame.dt_us, frame.wall - frame.dt_us / 1e6)
        if self._next is None and (self._edge is None or self._edge.origin is not origin):
            self._begin(Watch(origin, (), self.settings), begins)
        elif frame.mono_us <= self._until.mono_us:  # another boot
            self._begun, self._first_us = begins, begins.mono_us
        self._until = Stamp(frame.mono_us, frame.wall)
        self._line.append(frame)
        if self.at_once:
            self.finish()

    def _begin(self, edge: Watch, begun: Stamp) -> None:
        """Another watch is the edge's."""
        self._edge, self._begun, self._first_us = edge, begun, begun.mono_us
        self._line, self._coming, self._blocks = deque(), None, Blocks()

    @property
    def standing(self) -> Standing:
        """What is found at the moment that is shown."""
        back = self._back or self._next
        made_of: object = None
        if back is not None:
            made_of = (back, back.watch, back.judged, back.failed)
        elif self._edge is not None:
            made_of = (self._edge, self._edge.judged, self._behind_us // _TOLD_US)
        if made_of != self._shown[0]:
            self._shown = made_of, self._stands(back)
        return self._shown[1]

    def _stands(self, back: Back | None) -> Standing:
        if back is not None:
            return back.standing
        if self._edge is None or self.settings is None:
            return NOTHING
        return replace(standing_of(self._edge, self.settings, self._blocks.firsts), behind_us=self._behind_us)

    @property
    def _behind_us(self) -> int:
        """From the end of what the edge has judged to its newest frame, where that is a block more than it must be."""
        facts = self._edge.facts if self._edge is not None else None
        late_us = self._until.mono_us - facts.end_us if facts is not None else 0
        return late_us if late_us >= 2 * BLOCK_US else 0

    @property
    def behind(self) -> bool:
        """Whether something is still to be judged."""
        return bool(self._line or self._coming or self._next) or (self._back is not None and not self._back.done)

    def proceed(self) -> bool:
        """A part of it, some milliseconds; whether what stands may be another now."""
        if self._back is not None and not self._back.done:
            return self._back.proceed()
        if self._next is not None:
            return self._arrive(self._next)
        edge = self._edge
        if edge is None or not (self._line or self._coming):
            return False
        before = edge.judged
        if self._coming is None:
            frame = self._line.popleft()
            edge.quiet = self._is_late(frame)
            if edge.quiet:
                self._begun = Stamp(frame.mono_us, frame.wall)
            self._coming = edge.taking(frame)
        if next(self._coming, self) is self:
            self._coming = None
        if edge.judged == before:
            return False
        self._blocks.asked(edge)
        return True

    def _is_late(self, frame: Frame) -> bool:
        """So much has come since that no rule is asked of it."""
        until_us, first_us = self._until.mono_us, self._first_us + _FIRST_US
        is_first = frame.mono_us <= first_us and until_us <= first_us + self.late_us
        return not is_first and until_us - frame.mono_us > self.late_us

    def _arrive(self, there: Back) -> bool:
        """More of the minute before what the edge goes on from."""
        if there.watch is None and not there.done:
            there.proceed()
        if there.watch is None:
            if there.done:
                self.fail("")
            return there.done
        line, self._next = self._line, None
        self._begin(there.watch, Stamp(there.since_us, there.at.wall))
        self._line, self._blocks = line, there.blocks
        return True

    def fail(self, why: str) -> None:
        """The time that is looked at can't be judged."""
        if self._back is not None and not self._back.done:
            self._back.failed, self._back.done = why, True
        elif self._next is not None:  # nothing before it is known
            self._edge = Watch(self._next.origin, (), self._next.settings)
            self._next = None

    def finish(self) -> None:
        """All that is still to be judged, now."""
        while self.behind:
            self.proceed()

    def look(self, past: Past, origin: Origin | None, at: Stamp, window_us: int) -> None:
        """An earlier time is looked at."""
        if origin is None or self.settings is None:
            return
        edge, known = self._edge, None
        if edge is not None and self._saw(at):
            known = standing_at(edge, at, self.settings, self._blocks.firsts)
        self._back = Back(past, origin, at, window_us=window_us, settings=self.settings, known=known)
        if self.at_once:
            self.finish()

    def hold(self, past: Past, at: Stamp, window_us: int) -> None:
        """Keep what is found now, while the edge goes on."""
        if self._edge is not None and self.settings is not None:
            known, origin = self.standing, self._edge.origin
            self._back = Back(past, origin, at, window_us=window_us, settings=self.settings, known=known)
            self._back.done = True

    def _saw(self, at: Stamp) -> bool:
        """Whether the edge has judged what was before that."""
        begun, until_us = self._begun, self._blocks.until_us + 2 * BLOCK_US
        return begun.mono_us + WINDOW_US <= at.mono_us < until_us and begun.wall <= at.wall

    def forget(self) -> None:
        """The edge is looked at."""
        self._back = None

    def go_on(self) -> None:
        """The time that is looked at is the edge from now on."""
        back = self._back
        if back is None or back.at.mono_us == self._until.mono_us:
            return
        self._edge, self._line, self._coming = None, deque(), None
        self._next, self._back, self._until = back, None, back.at
        if self.at_once:
            self.finish()


class Back:
    """The watch of an earlier time: at first what was found then, and where nobody saw it, since when."""

    def __init__(
        self, past: Past, origin: Origin, at: Stamp, *, window_us: int, settings: Settings, known: Standing | None
    ) -> None:
        self.at, self.origin, self.settings = at, origin, settings
        self.watch: Watch | None = None
        """One that has seen all until then."""
        self.since_us = at.mono_us
        self.judged = 0
        """How often there was something new."""
        self.done = False
        self.failed = ""
        """Why it can't be judged."""
        self.blocks = Blocks()
        self._known, self._past = known, past
        self._coming = self._work(window_us)

    @property
    def standing(self) -> Standing:
        """As far as it is known by now."""
        if self.failed:
            return Standing(failed=self.failed)
        if self.watch is None:
            return self._known or COMING
        found = standing_of(self.watch, self.settings, self.blocks.firsts)
        return found if self._known is None else found.with_past(self._known)

    def proceed(self) -> bool:
        """A part of the work; whether there is something new."""
        before = self.judged
        if next(self._coming, self) is self:
            self.done = True
            return True
        return self.judged != before

    def _work(self, window_us: int) -> Iterator[None]:
        """The minute before it; then all that is on the map, each block with its minute, unless somebody saw it."""
        minute_us = max(WINDOW_US, KEEP * self.origin.interval_us)
        judged_us = self._block_us(self.at.mono_us) - self.origin.interval_us // 2
        yield from self._judged(judged_us - minute_us, judged_us)
        if self._known is None:
            yield from self._judged(judged_us - minute_us - window_us, judged_us - window_us)

    def _judged(self, begin_us: int, judged_us: int) -> Iterator[None]:
        """A watch from the one time on, whose rules are asked from the other on."""
        begin_us -= 2 * self.origin.interval_us  # blocks end where frames do: the first one is not whole
        known = self._past.waiting(begin_us)
        read_us, waiting = known or (begin_us, Waiting())
        watch, blocks = Watch(self.origin, self._past.known(begin_us), self.settings, waiting), Blocks()
        since_us = None
        for frame in self._past.frames(read_us, self.at.mono_us):
            if frame.mono_us <= begin_us:
                waiting.add(frame)
            else:
                since_us = frame.mono_us - frame.dt_us if since_us is None else since_us
                watch.quiet = frame.mono_us < judged_us
                for _ in watch.taking(frame):
                    yield
                blocks.asked(watch)
            yield
        self.since_us = self.at.mono_us if since_us is None else max(since_us, judged_us)
        self.watch, self.blocks, self.judged = watch, blocks, self.judged + 1

    def _block_us(self, mono_us: int) -> int:
        """Where the last whole block ends."""
        start_us = self.origin.start_mono_us
        return (mono_us + self.origin.interval_us // 2 - start_us) // BLOCK_US * BLOCK_US + start_us
