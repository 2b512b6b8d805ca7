"""Findings at a time: active, ended, and rules not evaluated; at the live edge and at an earlier time. Pure.

Frames are queued and evaluated in parts of some milliseconds (`proceed`), so that rules never delay a picture or a key.
An earlier time is evaluated from the frames of the minute before it, as at the live edge.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from latmon.aggregate.request_age import Waiting
from latmon.findings.engine import KEEP, RuleEngine, not_evaluated
from latmon.findings.episodes import Episode
from latmon.findings.facts import BLOCK_US, WINDOW_US
from latmon.findings.latency_history import LatencyHistory
from latmon.findings.rule import CRITICAL, NOTICE, Finding, Settings
from latmon.findings.rules import RULES, peer_outlier, title_of
from latmon.model.frame import Frame, Origin
from latmon.recording.archive import Past, Stamp, TimelineEvent
from latmon.support.units import clock, ordinal
from latmon.views.units import span

_TOLERANCE_S = 0.1
"""Between the wall clocks of frames."""
_STEP = 0.1
"""Progress that is worth a picture."""
_FIRST_US = WINDOW_US + BLOCK_US
"""From the first frame on, each block of this time is evaluated, unless the frames are far behind."""
_MAX_SURVEY = 20_000
"""Frames of the longest recording that is surveyed: each takes some milliseconds."""
_REPORTED_US = 1_000_000
"""Resolution of the reported delay."""


@dataclass(frozen=True, slots=True)
class CurrentFindings:
    """The findings at the end of the last evaluated block."""

    lasting: tuple[Episode, ...] = ()
    """Active findings, most urgent first; `last` of each is its present state."""
    over: tuple[Episode, ...] = ()
    """Ended findings, latest first."""
    evaluated: bool = False
    """Whether rules were evaluated at all; else nothing is known."""
    coming: bool = False
    """The evaluation is in progress."""
    share: float = 0.0
    """The part of it that is done, in steps of _STEP, while it is in progress."""
    span_us: int = 0
    """The evaluated time."""
    rules: int = len(RULES)
    not_evaluated: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Inputs that are missing here, and the rules that are not evaluated without them."""
    broken: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Rules that failed, and how."""
    failed: str = ""
    """Why nothing could be evaluated."""
    firsts: frozenset[int] = frozenset()
    """Ends of blocks before which no rule was evaluated: a finding after one may have begun earlier."""
    until_wall: float = math.nan
    """End of the last evaluated block."""
    behind_us: int = 0
    """Time since that block, where it is longer than one block."""
    kept: tuple[Episode, ...] = ()
    """Findings that were not found last: their inputs are no longer measured, or they come again and again."""

    @property
    def explained(self) -> frozenset[str]:
        """Return the devices whose share of time an active finding, more than a notice, has on the screen."""
        shared = [finding for finding in self.urgent if finding.share and "%" in finding.short]
        return frozenset(name for finding in shared for name in (finding.device, *finding.also))

    @property
    def urgent(self) -> tuple[Finding, ...]:
        """Return the active findings that are more than notices."""
        return tuple(episode.last for episode in self.lasting if episode.last.severity != NOTICE)

    @property
    def shown(self) -> tuple[Finding, ...]:
        """Return the active findings that are more than notices, then those that are kept."""
        return (*self.urgent, *(episode.last for episode in self.kept if episode.last.severity != NOTICE))

    @property
    def notices(self) -> tuple[Finding, ...]:
        """Return the active notices."""
        return tuple(episode.last for episode in self.lasting if episode.last.severity == NOTICE)

    @property
    def places(self) -> Mapping[str, float]:
        """Return device -> the place of the first finding on it; others that it explains are half a place on."""
        places: dict[str, float] = {}
        for place, finding in enumerate((*self.shown, *self.notices)):
            places.setdefault(finding.block_device or finding.where.device, place)
            for device in finding.also:
                places.setdefault(device, place + 0.5)
        return places

    @property
    def times_peers(self) -> Mapping[str, float]:
        """Return device -> how many times slower than its peers' its I/Os are, by an active finding."""
        return {
            finding.device: float(fact.value)
            for finding in self.urgent
            if finding.id == peer_outlier.ID
            for fact in finding.facts
            if fact.name == peer_outlier.TIMES
        }

    def busy_first(self, busy: frozenset[str]) -> CurrentFindings:
        """Return the findings with those on devices that are not `busy` behind the others of their severity.

        Rules look at a minute, in which the load of a device may have ended. A finding without a device is of now.
        """

        def place(episode: Episode) -> tuple[int, bool]:
            finding = episode.last
            devices = [device for device in (finding.block_device, *finding.also) if device]
            return -finding.weight[0], bool(devices) and busy.isdisjoint(devices)

        return replace(self, lasting=tuple(sorted(self.lasting, key=place)))

    @property
    def remarks(self) -> Mapping[tuple[str, str], Remark]:
        """Return rule and device -> what is said of a finding that is kept, or that came before."""
        again = {episode.key: Remark(again_text(episode), is_kept=False) for episode in self.lasting if episode.repeats}
        return again | {episode.key: Remark(kept_text(episode), is_kept=True) for episode in self.kept}

    @property
    def all(self) -> tuple[Episode, ...]:
        """Return all findings in the order of the list."""
        return self.lasting + self.ended

    @property
    def ended(self) -> tuple[Episode, ...]:
        """Return the findings that were not found last."""
        return self.kept + self.over

    def evidence_of(self, episode: Episode) -> Finding:
        """Return the latest state of a finding that is active or kept, the most urgent state of one that is over."""
        return episode.worst if episode in self.over else episode.last

    @property
    def begins(self) -> list[TimelineEvent]:
        """Return the begins of the findings that are more than notices."""
        seen = [episode for episode in self.all if episode.worst.severity != NOTICE and not self.before(episode)]
        return [_begin_of(episode) for episode in seen]

    @property
    def moments(self) -> list[TimelineEvent]:
        """Return the begins and ends of the findings that are more than notices."""
        ended = [episode for episode in self.ended if episode.worst.severity != NOTICE]
        return self.begins + [
            TimelineEvent("finding", episode.end_us, episode.end_wall, f"no longer found: {_name(episode)}")
            for episode in ended
        ]

    def before(self, episode: Episode) -> bool:
        """Return whether a finding may have begun before the first evaluation."""
        return episode.begin_us in self.firsts

    def with_past(self, known: CurrentFindings) -> CurrentFindings:
        """Return these findings with the begins and the ended findings of an earlier evaluation."""
        episodes = {episode.key: episode for episode in self.lasting}
        begun = {episode.key: episode for episode in known.lasting if _goes_on(episode, episodes.get(episode.key))}
        lasting = tuple(
            _begun_as(episode, begun[episode.key]) if episode.key in begun else episode for episode in self.lasting
        )
        over = (*(episode for episode in known.lasting if episode.key not in begun), *known.ended)
        return replace(self, lasting=lasting, over=over, firsts=known.firsts)


class Remark(NamedTuple):
    """Words after the name of a finding; `is_kept`: it was not found last."""

    text: str
    is_kept: bool


def again_text(episode: Episode) -> str:
    """Return how many times a finding came, in which time: `again, 4th time in 90 s`."""
    return f"again, {ordinal(episode.repeats + 1)} time in {span(round(episode.repeated_us, -6))}"


def kept_text(episode: Episode) -> str:
    """Return the time of a finding that is kept, and how many times it came: `as of 12:30:05, 4 times in 90 s`.

    That is when its longest wait was, where the finding is about one; else the end of its last block.
    """
    many = f", {episode.repeats + 1} times in {span(round(episode.repeated_us, -6))}" if episode.repeats else ""
    at_wall = episode.end_wall if episode.last.at is None else episode.last.at.wall
    return f"as of {clock(at_wall)}{many}"


def _goes_on(known: Episode, now: Episode | None) -> bool:
    """Return whether an episode is one of those now, with no subject in another state."""
    return now is not None and all(known.states.get(subject, state) == state for subject, state in now.states.items())


NOTHING, COMING = CurrentFindings(), CurrentFindings(coming=True)


class EvaluatedBlocks:
    """The blocks of a rule engine after which rules were evaluated."""

    def __init__(self) -> None:
        self.firsts: frozenset[int] = frozenset()
        """Ends of blocks before which rules were not evaluated."""
        self.until_us = 0
        self._evaluated = 0

    def update(self, watch: RuleEngine) -> None:
        """Record a new evaluation, where there was one."""
        if watch.facts is None or watch.evaluated == self._evaluated:
            return
        before = watch.facts.blocks[-2].end_us if len(watch.facts.blocks) > 1 else None
        if before != self.until_us or not self._evaluated:
            self.firsts |= {watch.facts.end_us}
        self.until_us, self._evaluated = watch.facts.end_us, watch.evaluated


def findings_of(watch: RuleEngine, settings: Settings, firsts: frozenset[int] = frozenset()) -> CurrentFindings:
    """Return the findings as of the last block. `firsts`: ends of blocks before which no rule was evaluated."""
    facts = watch.facts
    if facts is None:
        return NOTHING
    lasting, kept = watch.lasting, watch.kept
    over = tuple(episode for episode in reversed(watch.episodes) if episode not in lasting and episode not in kept)
    return CurrentFindings(
        lasting,
        tuple(sorted(over, key=lambda episode: -episode.end_us)),
        kept=kept,
        evaluated=True,
        span_us=facts.span_us,
        rules=len(RULES) - len(settings.off),
        not_evaluated=not_evaluated(facts, settings.off),
        broken=dict(watch.failed),
        firsts=firsts,
        until_wall=facts.wall,
    )


def findings_at(
    watch: RuleEngine, at: Stamp, settings: Settings, firsts: frozenset[int] = frozenset()
) -> CurrentFindings:
    """Return the findings of an earlier time from the rule engine that evaluated it then, in their present words.

    Times are compared by the wall clock, since the monotonic clock restarts with each boot.
    """
    now = findings_of(watch, settings, firsts)
    latest = at.wall - BLOCK_US / 1e6 + _TOLERANCE_S
    begun = [episode for episode in now.all if episode.begin_wall <= at.wall + _TOLERANCE_S]
    lasting = [episode for episode in begun if episode.end_wall > latest]
    over = [episode for episode in begun if episode.end_wall <= latest]
    by_weight = sorted(lasting, key=lambda episode: episode.last.rank)
    latest_first = sorted(over, key=lambda episode: -episode.end_wall)
    return replace(now, lasting=tuple(by_weight), kept=(), over=tuple(latest_first), until_wall=math.nan)


def _begin_of(episode: Episode) -> TimelineEvent:
    """Return the begin of a finding: where it is known, the time of what happened, else the block that found it."""
    began = episode.last.began
    if began is None:
        return TimelineEvent("finding", episode.begin_us, episode.begin_wall, f"found: {_name(episode)}")
    return TimelineEvent("finding", began.mono_us, began.wall, f"began: {_name(episode)}")


def _name(episode: Episode) -> str:
    return f"{title_of(episode.worst.id)}{f' on {episode.worst.device}' if episode.worst.device else ''}"


def _begun_as(episode: Episode, known: Episode) -> Episode:
    return replace(episode, begin_us=known.begin_us, begin_wall=known.begin_wall)


class FindingsState:
    """The evaluation of rules for the screen: at the live edge, and between `look` and `forget` at an earlier time."""

    def __init__(self, settings: Settings | None, *, at_once: bool = True) -> None:
        """`settings`: of the rules; None: no rule is evaluated."""
        self.at_once = at_once
        """Whether each frame is evaluated as it arrives, else by `proceed`."""
        self.late_us = 2 * BLOCK_US
        """Blocks further behind the newest frame are not evaluated, so that a fast replay has present findings."""
        self.settings = settings
        self._edge: RuleEngine | None = None
        self._queue: deque[Frame] = deque()
        self._coming: Iterator[None] | None = None
        self._begun = self._until = Stamp(0, 0.0)
        """The time that the edge has evaluated without a gap."""
        self._first_us = 0
        self._blocks = EvaluatedBlocks()
        self._back: PastFindings | None = None
        self._next: PastFindings | None = None
        """The earlier time that the edge continues from; frames are queued until its minute is evaluated."""
        self._shown: tuple[object, CurrentFindings] = (None, NOTHING)
        self._survey: Iterator[Surveyed] | None = None
        self._surveyed = Surveyed()
        self._is_too_long = False
        self._begins: tuple[object, tuple[TimelineEvent, ...]] = (None, ())

    @property
    def begins(self) -> tuple[TimelineEvent, ...]:
        """Return all known begins of findings: at the time that is shown, at the live edge, and of the survey."""
        current, edge = self.current, self._edge
        made_of = (current, edge and edge.evaluated, len(self._surveyed.begins))
        if made_of != self._begins[0]:
            timeline_events = [*self._surveyed.begins, *current.begins]
            if edge is not None and self.settings is not None:
                timeline_events += findings_of(edge, self.settings, self._blocks.firsts).begins
            events_by_key = {
                (timeline_event.mono_us, timeline_event.text): timeline_event for timeline_event in timeline_events
            }
            self._begins = (
                made_of,
                tuple(sorted(events_by_key.values(), key=lambda timeline_event: timeline_event.mono_us)),
            )
        return self._begins[1]

    def survey(self, past: Past, origin: Origin | None) -> None:
        """Begin to evaluate a whole recording, while nothing else is to be done; not one of very many frames."""
        self._is_too_long = len(past.stamps) > _MAX_SURVEY
        if origin is not None and self.settings is not None and len(past.stamps) and not self._is_too_long:
            self._survey = _surveyed(past, origin, self.settings)

    @property
    def surveyed(self) -> str:
        """Return how far the survey is, where the begins of some findings are not known yet; else an empty text."""
        if self.settings is None:
            return ""
        if self._is_too_long:
            return f"rules are not evaluated over all of a recording of more than {_MAX_SURVEY:,} windows"
        return f"rules are evaluated over {self._surveyed.share:.0%} of the recording" if self._survey else ""

    def take(self, frame: Frame, origin: Origin | None) -> None:
        """Add the next frame of the live edge."""
        if origin is None or self.settings is None:
            return
        begins = Stamp(frame.mono_us - frame.dt_us, frame.wall - frame.dt_us / 1e6)
        if self._next is None and (self._edge is None or self._edge.origin is not origin):
            self._begin(RuleEngine(origin, (), self.settings), begins)
        elif frame.mono_us <= self._until.mono_us:  # another boot
            self._begun, self._first_us = begins, begins.mono_us
        self._until = Stamp(frame.mono_us, frame.wall)
        self._queue.append(frame)
        if self.at_once:
            self.finish()

    def _begin(self, edge: RuleEngine, begun: Stamp) -> None:
        """Replace the rule engine of the live edge."""
        self._edge, self._begun, self._first_us = edge, begun, begun.mono_us
        self._queue, self._coming, self._blocks = deque(), None, EvaluatedBlocks()

    @property
    def current(self) -> CurrentFindings:
        """Return the findings at the time that is shown."""
        back = self._back or self._next
        made_of: object = None
        if back is not None:
            made_of = (back, back.watch, back.evaluated, back.failed, back.share)
        elif self._edge is not None:
            made_of = (self._edge, self._edge.evaluated, self._behind_us // _REPORTED_US)
        if made_of != self._shown[0]:
            self._shown = made_of, self._current_of(back)
        return self._shown[1]

    def _current_of(self, back: PastFindings | None) -> CurrentFindings:
        if back is not None:
            return back.current
        if self._edge is None or self.settings is None:
            return NOTHING
        return replace(findings_of(self._edge, self.settings, self._blocks.firsts), behind_us=self._behind_us)

    @property
    def _behind_us(self) -> int:
        """Return the time from the end of the last evaluated block to the newest frame; 0 below two blocks."""
        facts = self._edge.facts if self._edge is not None else None
        late_us = self._until.mono_us - facts.end_us if facts is not None else 0
        return late_us if late_us >= 2 * BLOCK_US else 0

    @property
    def critical(self) -> frozenset[tuple[str, str, int]]:
        """Return rule, device and begin of the critical findings at the live edge."""
        lasting = self._edge.lasting if self._edge is not None else ()
        return frozenset((*episode.key, episode.begin_us) for episode in lasting if episode.last.severity == CRITICAL)

    @property
    def is_pending(self) -> bool:
        """Return whether frames are still to be evaluated."""
        waits = self._queue or self._coming or self._next or self._survey
        return bool(waits) or (self._back is not None and not self._back.done)

    def proceed(self) -> bool:
        """Evaluate for some milliseconds; return whether the findings may have changed."""
        if self._back is not None and not self._back.done:
            return self._back.proceed()
        if self._next is not None:
            return self._arrive(self._next)
        edge = self._edge
        if edge is None or not (self._queue or self._coming):
            return self._proceed_survey()
        before, findings = edge.evaluated, edge.current
        if self._coming is None:
            frame = self._queue.popleft()
            edge.quiet = self._is_late(frame)
            if edge.quiet:
                self._begun = Stamp(frame.mono_us, frame.wall)
            self._coming = edge.taking(frame)
        if next(self._coming, self) is self:
            self._coming = None
        if edge.evaluated == before:
            return False
        self._blocks.update(edge)
        return not before or edge.current != findings

    def _proceed_survey(self) -> bool:
        if self._survey is None:
            return False
        surveyed = next(self._survey, None)
        if surveyed is None:
            self._survey = None
        changed = surveyed is not None and len(surveyed.begins) != len(self._surveyed.begins)
        self._surveyed = self._surveyed if surveyed is None else surveyed
        return changed

    def _is_late(self, frame: Frame) -> bool:
        """Return whether a frame is too far behind the newest one to be evaluated."""
        until_us, first_us = self._until.mono_us, self._first_us + _FIRST_US
        is_first = frame.mono_us <= first_us and until_us <= first_us + self.late_us
        return not is_first and until_us - frame.mono_us > self.late_us

    def _arrive(self, past_findings: PastFindings) -> bool:
        """Evaluate more of the minute before the time that the edge continues from."""
        if past_findings.watch is None and not past_findings.done:
            past_findings.proceed()
        if past_findings.watch is None:
            if past_findings.done:
                self.fail("")
            return past_findings.done
        line, self._next = self._queue, None
        self._begin(past_findings.watch, Stamp(past_findings.since_us, past_findings.at.wall))
        self._queue, self._blocks = line, past_findings.blocks
        return True

    def fail(self, why: str) -> None:
        """Record why the time that is shown can't be evaluated."""
        self._survey = None
        if self._back is not None and not self._back.done:
            self._back.failed, self._back.done = why, True
        elif self._next is not None:
            self._edge = RuleEngine(self._next.origin, (), self.settings or self._next.settings)
            self._next = None

    def finish(self) -> None:
        """Evaluate all queued frames now."""
        while self.is_pending:
            self.proceed()

    def look(self, past: Past, origin: Origin | None, at: Stamp, window_us: int) -> None:
        """Show an earlier time."""
        if origin is None or self.settings is None:
            return
        edge, known = self._edge, None
        if edge is not None and self._has_evaluated(at):
            known = findings_at(edge, at, self.settings, self._blocks.firsts)
        self._back = PastFindings(
            past, origin, at, window_us=window_us, settings=self.settings, known=known, history=self._history
        )
        if self.at_once:
            self.finish()

    @property
    def _history(self) -> LatencyHistory:
        """Return the history that reaches as far back as any: of a recording that is surveyed, or of the live edge."""
        if self._surveyed.history is not None:
            return self._surveyed.history
        return LatencyHistory() if self._edge is None else self._edge.history

    def freeze(self, past: Past, at: Stamp, window_us: int) -> None:
        """Keep the present findings on the screen, while the edge continues."""
        if self._edge is not None and self.settings is not None:
            known, origin = self.current, self._edge.origin
            self._back = PastFindings(past, origin, at, window_us=window_us, settings=self.settings, known=known)
            self._back.done = True

    def _has_evaluated(self, at: Stamp) -> bool:
        """Return whether the edge has evaluated the minute before a time."""
        begun, until_us = self._begun, self._blocks.until_us + 2 * BLOCK_US
        return begun.mono_us + WINDOW_US <= at.mono_us < until_us and begun.wall <= at.wall

    def forget(self) -> None:
        """Show the live edge."""
        self._back = None

    def go_on(self) -> None:
        """Continue the edge from the time that is shown."""
        back = self._back
        if back is None or back.at.mono_us == self._until.mono_us:
            return
        self._edge, self._queue, self._coming = None, deque(), None
        self._next, self._back, self._until = back, None, back.at
        if self.at_once:
            self.finish()


class Alarm:
    """The critical findings at the live edge that were already reported."""

    def __init__(self) -> None:
        self._known: frozenset[tuple[str, str, int]] = frozenset()

    def is_due(self, state: FindingsState) -> bool:
        """Return whether there is a new critical finding since the last call."""
        now = state.critical
        new, self._known = now - self._known, self._known | now
        return bool(new)


class Surveyed(NamedTuple):
    """The begins of findings in the evaluated share of a recording."""

    share: float = 0.0
    begins: Sequence[TimelineEvent] = ()
    history: LatencyHistory | None = None


def _surveyed(past: Past, origin: Origin, settings: Settings) -> Iterator[Surveyed]:
    """Evaluate all frames of a recording; yield what is found after each part of the work."""
    settings = replace(settings, baseline=None)  # recordings of other days are compared with what is measured now
    watch, blocks, surveyed = RuleEngine(origin, past.known(-1), settings), EvaluatedBlocks(), Surveyed()
    first_us, last_us = past.stamps[0].mono_us, past.stamps[-1].mono_us
    for frame in past.frames(-1, last_us):
        before = watch.evaluated
        for _ in watch.taking(frame):
            yield surveyed
        blocks.update(watch)
        if watch.evaluated != before:
            share = (frame.mono_us - first_us) / max(last_us - first_us, 1)
            surveyed = Surveyed(share, findings_of(watch, settings, blocks.firsts).begins, watch.history)
        yield surveyed


class PastFindings:
    """The evaluation of an earlier time: first its findings, then their begins, where these aren't known."""

    def __init__(
        self,
        past: Past,
        origin: Origin,
        at: Stamp,
        *,
        window_us: int,
        settings: Settings,
        known: CurrentFindings | None,
        history: LatencyHistory | None = None,
    ) -> None:
        """`history`: what is known of the time before, and after.

        Recordings of other days are compared only with what is measured now.
        """
        self.at, self.origin, self.settings = at, origin, replace(settings, baseline=None)
        self._history = LatencyHistory() if history is None else history.at(at.mono_us)
        self.watch: RuleEngine | None = None
        """The rule engine with all frames until that time."""
        self.since_us = at.mono_us
        self.evaluated = 0
        """Number of completed evaluations."""
        self.done = False
        self.failed = ""
        """Why the time can't be evaluated."""
        self.share = 0.0
        """Evaluated part of the minute before that time, in steps of _STEP."""
        self.blocks = EvaluatedBlocks()
        self._known, self._past = known, past
        self._coming = self._work(window_us)

    @property
    def current(self) -> CurrentFindings:
        """Return the findings as far as they are evaluated."""
        if self.failed:
            return CurrentFindings(failed=self.failed)
        if self.watch is None:
            return self._known or replace(COMING, share=self.share)
        current_findings = findings_of(self.watch, self.settings, self.blocks.firsts)
        return current_findings if self._known is None else current_findings.with_past(self._known)

    def proceed(self) -> bool:
        """Do a part of the work; return whether the findings, or their share, may have changed."""
        before = self.evaluated, self.share
        if next(self._coming, self) is self:
            self.done = True
            return True
        return (self.evaluated, self.share) != before

    def _work(self, window_us: int) -> Iterator[None]:
        """Evaluate the minute before the time, then the whole window of the map, unless the edge evaluated it."""
        minute_us = max(WINDOW_US, KEEP * self.origin.interval_us)
        evaluated_us = self._block_us(self.at.mono_us) - self.origin.interval_us // 2
        yield from self._evaluated(evaluated_us - minute_us, evaluated_us)
        if self._known is None:
            yield from self._evaluated(evaluated_us - minute_us - window_us, evaluated_us - window_us)

    def _evaluated(self, begin_us: int, evaluated_us: int) -> Iterator[None]:
        """Feed a rule engine from the one time on, and evaluate its rules from the other on."""
        begin_us -= 2 * self.origin.interval_us  # blocks end where frames do: the first one is not whole
        known = self._past.waiting(begin_us)
        read_us, waiting = known or (begin_us, Waiting())
        history = self._history.at(self.at.mono_us)
        devices = self._past.known(begin_us)
        watch, blocks = RuleEngine(self.origin, devices, self.settings, waiting, history=history), EvaluatedBlocks()
        since_us, length_us = None, max(self.at.mono_us - read_us, 1)
        for frame in self._past.frames(read_us, self.at.mono_us):
            if self.watch is None:
                self.share = (frame.mono_us - read_us) * round(1 / _STEP) // length_us * _STEP
            if frame.mono_us <= begin_us:
                waiting.add(frame)
            else:
                since_us = frame.mono_us - frame.dt_us if since_us is None else since_us
                watch.quiet = frame.mono_us < evaluated_us
                for _ in watch.taking(frame):
                    yield
                blocks.update(watch)
            yield
        self.since_us = self.at.mono_us if since_us is None else max(since_us, evaluated_us)
        self.watch, self.blocks, self.evaluated = watch, blocks, self.evaluated + 1

    def _block_us(self, mono_us: int) -> int:
        """Return the end of the last whole block."""
        start_us = self.origin.start_mono_us
        return (mono_us + self.origin.interval_us // 2 - start_us) // BLOCK_US * BLOCK_US + start_us
