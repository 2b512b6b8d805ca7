"""Findings as time goes on: frames in, after each block the findings of the last minute, and episodes of them.

Owns the blocks that are kept and when rules are asked. Knows no rule by name, no file and no screen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from latmon.deep_sums import DeepSums
from latmon.findings.block import Block, BlockSums, of_minute
from latmon.findings.facts import BLOCK_US, Facts, in_window
from latmon.findings.finding import SEVERITIES, Finding, in_order
from latmon.findings.needs import NEEDS, unjudged
from latmon.findings.registry import asked, unexplained
from latmon.findings.thresholds import DEFAULT, Settings
from latmon.minute import Minute
from latmon.model import Device, Frame, Origin
from latmon.waiting import Waiting

KEEP = 6
"""Blocks that are kept at least, however long they are: what must last is looked for in them."""
MAX_EPISODES = 1000
"""That are over. Where there are more, the oldest of the least urgent ones is forgotten."""
__all__ = ["BLOCK_US", "KEEP", "MAX_EPISODES", "Episode", "Watch"]


@dataclass(frozen=True, slots=True)
class Episode:
    """One finding for as long as it lasted. Times are the ends of the blocks after which it was found."""

    worst: Finding
    """As it was when it was most urgent."""
    last: Finding
    begin_us: int
    end_us: int
    begin_wall: float
    end_wall: float
    times: int = 1
    """Blocks after which it was found."""

    @property
    def key(self) -> tuple[str, str]:
        return self.worst.key


class Watch:
    """Fed by `take`, in order; `current` are the findings after the last whole block, the most urgent first.

    A block ends where a multiple of BLOCK_US since the capture began does, so that one who begins in the middle of a
    capture has the blocks of one who saw all of it.
    """

    def __init__(
        self,
        origin: Origin,
        devices: tuple[Device, ...] = (),
        settings: Settings = DEFAULT,
        waiting: Waiting | None = None,
    ) -> None:
        """`waiting`: what was in flight before the first frame, where that is known."""
        self.origin = origin
        self.current: tuple[Finding, ...] = ()
        self.left_out = 0
        """Episodes that were forgotten."""
        self.failed: dict[str, str] = {}
        """Rule -> how it failed at first; the others go on without it."""
        self.silent: frozenset[str] = frozenset(NEEDS)
        """Rules that could not judge so far, for want of what they live by (needs.py)."""
        self.judged = 0
        """Blocks after which rules were asked."""
        self.quiet = False
        """Blocks are kept, and no rule is asked."""
        self.facts: Facts | None = None
        """What rules were asked about last; deep sums that are first read later may hold what came since."""
        self._devices = {one.name: one for one in devices}
        self._settings = settings
        self._blocks: deque[Block] = deque()
        self._sums = BlockSums()
        self._deep, self._added = DeepSums(), deque[Block]()
        """Running sums over the window, and the blocks that are in them."""
        self._waiting = waiting or Waiting()
        self._open: dict[tuple[str, str], Episode] = {}
        self._closed: list[Episode] = []
        self._end_us: int | None = None
        self._slot: int | None = None
        """Of the block that is being filled, counted from where the capture began."""

    @property
    def lasting(self) -> tuple[Episode, ...]:
        """Of the current findings, in their order."""
        return tuple(self._open[one.key] for one in self.current)

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """All so far, in the order in which they began; those that still last end now."""
        return tuple(sorted((*self._closed, *self._open.values()), key=lambda one: (one.begin_wall, one.key)))

    def take(self, item: Frame | Minute) -> bool:
        """The next frame, or a minute of them; whether rules were asked."""
        before = self.judged
        for _ in self.taking(item):
            pass
        return self.judged > before

    def taking(self, item: Frame | Minute) -> Iterator[None]:
        """The same in parts of some milliseconds each, for who has other things to do in between."""
        begin_us = item.mono_us - item.dt_us
        wobble_us = (item.first_dt_us if isinstance(item, Minute) else item.dt_us) // 2
        if self._end_us is not None and (item.mono_us <= self._end_us or begin_us - self._end_us > wobble_us):
            yield from self._start_over(item.mono_us <= self._end_us)
        self._end_us = item.mono_us
        if isinstance(item, Minute):
            yield from self._settle()
            self._slot = None
            yield from self._judge(of_minute(item, self._waiting))
            return
        self._devices.update((one.name, one) for one in item.devices)
        for name in item.removed:
            self._devices.pop(name, None)
        self._waiting.add(item)
        self._sums.add(item)
        now = self._slot_of(begin_us, item) if self._slot is None else self._slot
        self._slot = self._slot_of(item.mono_us, item)
        if self._slot > now:
            yield from self._settle()

    def finish(self) -> None:
        """No more frames come: what is left is judged as well."""
        for _ in self._settle():
            pass

    def _slot_of(self, mono_us: int, frame: Frame) -> int:
        """Half a frame early: clocks wobble."""
        return (mono_us + frame.dt_us // 2 - self.origin.start_mono_us) // BLOCK_US

    def _start_over(self, other_boot: bool) -> Iterator[None]:
        """Blocks behind a hole say nothing of what lasts: nothing does that is known of."""
        yield from self._settle()
        self._slot = None
        self._blocks.clear()
        self._deep, self._added = DeepSums(), deque()
        self.current = ()
        self._close(tuple(self._open))
        if other_boot:
            self._waiting = Waiting()

    def _settle(self) -> Iterator[None]:
        """The frames that were added up become a block."""
        if self._sums.begin_us is not None:
            block, self._sums = self._sums.block(self._waiting), BlockSums()
            yield
            yield from self._judge(block)

    def _judge(self, block: Block) -> Iterator[None]:
        self._blocks.append(block)
        while len(self._blocks) > KEEP and not in_window(self._blocks[0], block.end_us, self.origin):
            self._blocks.popleft()
        if self.quiet:
            return
        facts = Facts(tuple(self._blocks), self.origin, dict(self._devices), self._deep)
        self._add_up(facts.window)
        found: list[Finding] = []
        for some in asked(facts, self._settings, self.failed):
            found += some
            yield
        missing = unjudged(facts)
        self.silent &= frozenset(rule for rules in missing.values() for rule in rules)
        self.facts, self.current = facts, in_order(unexplained(found))
        self.judged += 1
        self._note(block)

    def _add_up(self, window: tuple[Block, ...]) -> None:
        """What left the window is taken away, what came is added."""
        while self._added and self._added[0].end_us < window[0].end_us:
            gone = self._added.popleft()
            self._deep.remove(gone.deep, gone.end_us)
        for one in window:
            if not self._added or one.end_us > self._added[-1].end_us:
                self._deep.add(one.deep, one.end_us)
                self._added.append(one)

    def _note(self, block: Block) -> None:
        found = {one.key: one for one in self.current}
        self._close([key for key in self._open if key not in found])
        for key, one in found.items():
            before = self._open.get(key)
            self._open[key] = _begun(one, block) if before is None else _continued(before, one, block)

    def _close(self, keys: Iterable[tuple[str, str]]) -> None:
        self._closed += [self._open.pop(key) for key in keys]
        while len(self._closed) > MAX_EPISODES:
            self._closed.remove(min(self._closed, key=lambda one: SEVERITIES.index(one.worst.severity)))
            self.left_out += 1


def _begun(one: Finding, block: Block) -> Episode:
    return Episode(one, one, block.end_us, block.end_us, block.wall, block.wall)


def _continued(before: Episode, one: Finding, block: Block) -> Episode:
    worst = one if one.weight >= before.worst.weight else before.worst
    return Episode(worst, one, before.begin_us, block.end_us, before.begin_wall, block.wall, before.times + 1)
