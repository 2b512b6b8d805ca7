"""Episodes of findings: a finding in consecutive blocks, what became of it, and how often it came before.

A finding that is not found after a block has ended where its inputs were measured, which refutes it. Else, as after
the end of the tracer or a gap, it is unrefuted: kept with the time of its last block, until its inputs were measured
for REFUTED_AFTER_US, or UNREFUTED_US are over. A finding that has ended is kept for STAYS_US, so that its line can be
read; one that comes again and again is kept between its episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from latmon.findings.facts import Block
from latmon.findings.rule import SEVERITIES, Finding

MAX_EPISODES = 1000
"""Ended episodes that are kept; beyond that the oldest of the least urgent ones is dropped."""
UNREFUTED_US = 600_000_000
"""A finding whose inputs are not measured is kept for so long."""
_MOST_UNREFUTED = 100
"""Devices that come and go may leave many."""
REFUTED_AFTER_US = 15_000_000
"""Its inputs must be measured for so long before it counts as refuted: rules ask for effects that last some blocks."""
AGAIN_WITHIN_US = 300_000_000
"""An episode that begins so soon after the end of the one before repeats it."""
STAYS_US = 30_000_000
"""A finding is kept at least so long after its last block: the next block may refute it 5 s after it was found."""
_AGAIN_STAYS_US, _STAYS_PERIODS = 60_000_000, 1.5
"""Between its episodes a finding is kept for this time, or for so many of its periods if that is longer."""

Key = tuple[str, str]
"""Rule and device of a finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A finding in consecutive blocks. Times are the ends of the blocks after which it was found."""

    worst: Finding
    """The most urgent state of the finding."""
    last: Finding
    begin_us: int
    end_us: int
    begin_wall: float
    end_wall: float
    states: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Subject -> its state, of all subjects that the finding had."""
    found_us: int = 0
    """Length of the blocks after which it was found."""
    repeats: int = 0
    """Episodes of the same finding before it, each within AGAIN_WITHIN_US of the next one."""
    first_us: int = 0
    """Begin of the first block of the first of these, or of its own first block."""
    first_block_us: int = 0
    """Time from the begin to the end of its own first block."""

    @property
    def key(self) -> Key:
        return self.worst.key

    @property
    def repeated_us(self) -> int:
        """Return the time from the first of the episodes that it repeats to its end."""
        return self.end_us - self.first_us

    @property
    def stays_us(self) -> int:
        """Return how long it is kept after its end."""
        if not self.repeats:
            return STAYS_US
        return max(_AGAIN_STAYS_US, round(_STAYS_PERIODS * self.repeated_us / self.repeats))

    def goes_on_with(self, later: Finding) -> bool:
        """Return whether a later finding is of this episode: its subject has not changed its state."""
        subject, state = later.state
        return self.states.get(subject, state) == state


class EpisodeLog:
    """The episodes of a rule engine."""

    def __init__(self) -> None:
        self.left_out = 0
        """Episodes that were dropped (MAX_EPISODES)."""
        self._open: dict[Key, Episode] = {}
        self._unrefuted: dict[Key, Episode] = {}
        self._before_gap: set[Key] = set()
        """Keys of the unrefuted ones that ended at a gap: the next one doesn't continue it."""
        self._closed: list[Episode] = []
        self._latest: dict[Key, Episode] = {}
        """The latest closed episode of each finding, of the last minutes."""
        self._not_repeated: set[Key] = set()
        """Keys of those that ended at a gap: the next episode repeats none of them."""

    def __getitem__(self, key: Key) -> Episode:
        """Return the open episode of a finding."""
        return self._open[key]

    @property
    def all(self) -> tuple[Episode, ...]:
        """Return all episodes by their begin; those that are not over end now."""
        episodes = (*self._closed, *self._unrefuted.values(), *self._open.values())
        return tuple(sorted(episodes, key=lambda episode: (episode.begin_wall, episode.key)))

    def kept(self, now_us: int) -> tuple[Episode, ...]:
        """Return the episodes that have ended and whose findings are kept, the most urgent first."""
        ended = (
            episode
            for key, episode in self._latest.items()
            if key not in self._open and key not in self._unrefuted and now_us - episode.end_us < episode.stays_us
        )
        return tuple(sorted((*self._unrefuted.values(), *ended), key=lambda episode: episode.last.rank))

    def note(
        self,
        block: Block,
        findings: Iterable[Finding],
        is_measured: Callable[[Finding], bool],
        measured_us: Callable[[Episode], int],
    ) -> None:
        """Add the findings after the next block.

        `is_measured`: whether the block has the inputs of a finding's rule; `measured_us`: for how long they were
        measured since the end of an episode.
        """
        by_key = {finding.key: finding for finding in findings}
        ended = [episode for key, episode in self._open.items() if not _continues(episode, by_key.get(key))]
        for episode in ended:
            if episode.key in by_key or is_measured(episode.last):
                self._close(self._open, (episode.key,))
            else:
                self._unrefuted[episode.key] = self._open.pop(episode.key)
        for key, finding in by_key.items():
            before = self._open.get(key) or self._resumed(key, finding)
            self._open[key] = self._begun(finding, block) if before is None else _continued(before, finding, block)
        refuted = [
            key
            for key, episode in self._unrefuted.items()
            if block.end_us - episode.end_us > UNREFUTED_US or measured_us(episode) >= REFUTED_AFTER_US
        ]
        self._close(self._unrefuted, refuted)
        self._close(self._unrefuted, tuple(self._unrefuted)[: max(len(self._unrefuted) - _MOST_UNREFUTED, 0)])
        for key, episode in tuple(self._latest.items()):
            if block.end_us - episode.end_us > max(AGAIN_WITHIN_US, episode.stays_us):
                del self._latest[key]
        self._not_repeated &= self._latest.keys()

    def interrupt(self, *, other_boot: bool) -> None:
        """End all open episodes at a gap in the frames; their findings are unrefuted, but not after another boot."""
        if other_boot:
            self._close(self._open, tuple(self._open))
            self._close(self._unrefuted, tuple(self._unrefuted))
            self._latest.clear()
            self._not_repeated.clear()
            return
        self._before_gap |= self._open.keys() | self._unrefuted.keys()
        self._unrefuted |= self._open
        self._open.clear()

    def _resumed(self, key: Key, finding: Finding) -> Episode | None:
        """Return the unrefuted episode that a finding continues; one that it doesn't is closed."""
        before = self._unrefuted.get(key)
        if before is None:
            return None
        if key in self._before_gap or not before.goes_on_with(finding):
            self._close(self._unrefuted, (key,))
            return None
        return self._unrefuted.pop(key)

    def _begun(self, finding: Finding, block: Block) -> Episode:
        begun = Episode(
            worst=finding,
            last=finding,
            begin_us=block.end_us,
            end_us=block.end_us,
            begin_wall=block.wall,
            end_wall=block.wall,
            states=dict([finding.state]),
            found_us=block.span_us,
            first_us=block.begin_us,
            first_block_us=block.end_us - block.begin_us,
        )
        before = None if finding.key in self._not_repeated else self._latest.get(finding.key)
        if before is None or block.begin_us - before.end_us > AGAIN_WITHIN_US or not before.goes_on_with(finding):
            return begun
        return replace(begun, repeats=before.repeats + 1, first_us=before.first_us)

    def _close(self, episodes: dict[Key, Episode], keys: Collection[Key]) -> None:
        for key in keys:
            episode = episodes.pop(key)
            self._closed.append(episode)
            self._latest[key] = episode
            if key in self._before_gap:
                self._before_gap.discard(key)
                self._not_repeated.add(key)
            else:
                self._not_repeated.discard(key)
        while len(self._closed) > MAX_EPISODES:
            self._closed.remove(min(self._closed, key=lambda episode: SEVERITIES.index(episode.worst.severity)))
            self.left_out += 1


def _continues(episode: Episode, finding: Finding | None) -> bool:
    return finding is not None and episode.goes_on_with(finding)


def _worst(finding: Finding) -> tuple[int, int, float]:
    return finding.worst_of_episode


def _continued(before: Episode, finding: Finding, block: Block) -> Episode:
    subject, state = finding.state
    return replace(
        before,
        worst=max(finding, before.worst, key=_worst),
        last=finding,
        end_us=block.end_us,
        end_wall=block.wall,
        states=before.states if subject in before.states else {**before.states, subject: state},
        found_us=before.found_us + block.span_us,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingSummary:
    """All episodes of one rule on one device in one state, with the most urgent one. Times are Unix times."""

    finding: Finding
    begin_wall: float
    """End of the first block in which it was found."""
    end_wall: float
    episodes: int
    found_us: int
    """Length of the blocks after which it was found."""
    first_block_us: int
    """Time from the begin to the end of the first of them."""

    @property
    def of_s(self) -> float:
        """Return the seconds from the begin of the first of these blocks to the end of the last one."""
        return self.end_wall - self.begin_wall + self.first_block_us / 1e6


def summarise_episodes(episodes: Iterable[Episode]) -> tuple[FindingSummary, ...]:
    """Merge the episodes of the same rule, device and state; sort by severity, then by the explained share of time.

    Of each the state with the longest time is reported, which the capture's maximum agrees with.
    """
    grouped: dict[tuple[object, ...], list[Episode]] = {}
    for episode in episodes:
        grouped.setdefault((*episode.key, episode.worst.state), []).append(episode)
    summaries = [_summary(same) for same in grouped.values()]
    return tuple(sorted(summaries, key=lambda summary: summary.finding.rank))


def _summary(episodes: list[Episode]) -> FindingSummary:
    first = min(episodes, key=lambda episode: episode.begin_wall)
    return FindingSummary(
        finding=max((episode.worst for episode in episodes), key=_worst),
        begin_wall=first.begin_wall,
        end_wall=max(episode.end_wall for episode in episodes),
        episodes=len(episodes),
        found_us=sum(episode.found_us for episode in episodes),
        first_block_us=first.first_block_us,
    )
