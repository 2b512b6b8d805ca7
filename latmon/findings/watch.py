"""Findings as time goes on: frames in, after each block the findings of the last minute, and episodes of them.

Owns the blocks that are kept and when rules are asked. Knows no rule by name, no file and no screen.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from latmon.findings.block import Block, BlockSums, of_minute
from latmon.findings.facts import WINDOW_US, Facts
from latmon.findings.finding import Finding, in_order
from latmon.findings.registry import findings
from latmon.findings.thresholds import DEFAULT, Settings
from latmon.minute import Minute
from latmon.model import Device, Frame, Origin
from latmon.waiting import Waiting

BLOCK_US = 5_000_000
KEEP = 6
"""Blocks that are kept at least, however long they are: what must last is looked for in them."""
MAX_EPISODES = 1000


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
    """Fed by `take`, in order; `current` are the findings after the last whole block, the most urgent first."""

    def __init__(self, origin: Origin, devices: tuple[Device, ...] = (), settings: Settings = DEFAULT) -> None:
        self.origin = origin
        self.current: tuple[Finding, ...] = ()
        self.left_out = 0
        """Episodes for which there was no room."""
        self.judged = 0
        """Blocks after which rules were asked."""
        self._devices = {one.name: one for one in devices}
        self._settings = settings
        self._blocks: deque[Block] = deque()
        self._sums = BlockSums()
        self._waiting = Waiting()
        self._open: dict[tuple[str, str], Episode] = {}
        self._closed: list[Episode] = []
        self._end_us: int | None = None

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """All so far, in the order in which they began; those that still last end now."""
        return tuple(sorted((*self._closed, *self._open.values()), key=lambda one: (one.begin_us, one.key)))

    def take(self, item: Frame | Minute) -> bool:
        """The next frame, or a minute of them; whether rules were asked."""
        begin_us = item.mono_us - item.dt_us
        if self._end_us is not None and (item.mono_us <= self._end_us or begin_us - self._end_us > item.dt_us):
            self._start_over(item.mono_us <= self._end_us)
        self._end_us = item.mono_us
        if isinstance(item, Minute):
            self._settle()
            return self._judge(of_minute(item, self._waiting))
        self._devices.update((one.name, one) for one in item.devices)
        for name in item.removed:
            self._devices.pop(name, None)
        self._waiting.add(item)
        self._sums.add(item)
        begun_us = self._sums.begin_us
        # half a frame early: clocks wobble
        return item.mono_us + item.dt_us // 2 - (begun_us or 0) >= BLOCK_US and self._settle()

    def finish(self) -> None:
        """No more frames come: what is left is judged as well."""
        self._settle()

    def _start_over(self, other_boot: bool) -> None:
        """Blocks behind a hole say nothing of what lasts."""
        self._settle()
        self._blocks.clear()
        if other_boot:
            self._waiting = Waiting()

    def _settle(self) -> bool:
        """The frames that were added up become a block."""
        if self._sums.begin_us is None:
            return False
        block, self._sums = self._sums.block(self._waiting), BlockSums()
        return self._judge(block)

    def _judge(self, block: Block) -> bool:
        self._blocks.append(block)
        while len(self._blocks) > KEEP and self._blocks[0].begin_us < block.end_us - WINDOW_US:
            self._blocks.popleft()
        facts = Facts(tuple(self._blocks), self.origin, self._devices)
        self.current = in_order(findings(facts, self._settings))
        self.judged += 1
        self._note(block)
        return True

    def _note(self, block: Block) -> None:
        found = {one.key: one for one in self.current}
        for key in [key for key in self._open if key not in found]:
            self._keep(self._open.pop(key))
        for key, one in found.items():
            before = self._open.get(key)
            self._open[key] = _begun(one, block) if before is None else _continued(before, one, block)

    def _keep(self, episode: Episode) -> None:
        if len(self._closed) < MAX_EPISODES:
            self._closed.append(episode)
        else:
            self.left_out += 1


def _begun(one: Finding, block: Block) -> Episode:
    return Episode(one, one, block.end_us, block.end_us, block.wall, block.wall)


def _continued(before: Episode, one: Finding, block: Block) -> Episode:
    worst = one if one.weight >= before.worst.weight else before.worst
    return Episode(worst, one, before.begin_us, block.end_us, before.begin_wall, block.wall, before.times + 1)
