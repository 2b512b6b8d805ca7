"""The rule engine: evaluates the rules over the last minute after each block, and keeps episodes of findings.

Owns the blocks that are kept and when rules are asked. Knows no rule by name, no file and no screen.

The one place that knows all of them.

Owns which kind of measurement each rule lives by, and the words for where there is none. Knows no threshold and no
screen.

Pure; knows neither report nor screen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from latmon.aggregate.accumulator import DeepSums
from latmon.aggregate.request_age import Waiting
from latmon.aggregate.rollup import Minute
from latmon.findings.facts import BLOCK_US, Block, BlockSums, Facts, in_window, of_minute
from latmon.findings.finding import SEVERITIES, Finding, in_order
from latmon.findings.rule import DEFAULT, Rule, Settings
from latmon.findings.rules import (
    bimodal_tail,
    bottleneck_above_device,
    completion_wakeup,
    outstanding_ceiling,
    peer_outlier,
    queue_depth_misconfigured,
    requeue_storm,
    slow_shared_handler,
    softirq_delay,
    starved_io,
    tick_quantum,
)
from latmon.model.frame import Device, Frame, Origin
from latmon.model.inflight import MEANS

RULES: tuple[Rule, ...] = (
    starved_io.RULE,
    completion_wakeup.RULE,
    tick_quantum.RULE,
    softirq_delay.RULE,
    slow_shared_handler.RULE,
    outstanding_ceiling.RULE,
    bottleneck_above_device.RULE,
    requeue_storm.RULE,
    queue_depth_misconfigured.RULE,
    peer_outlier.RULE,
    bimodal_tail.RULE,
)
_MAX_SAID = 200
"""Characters of how a rule failed."""


def asked(facts: Facts, settings: Settings, failed: MutableMapping[str, str]) -> Iterator[tuple[Finding, ...]]:
    """Rule by rule, all that each finds; `failed`: here it is noted of one that failed, and how."""
    for rule in RULES:
        if rule.id not in settings.off:
            yield _all_of(rule, facts, settings, failed)


def _all_of(rule: Rule, facts: Facts, settings: Settings, failed: MutableMapping[str, str]) -> tuple[Finding, ...]:
    try:
        return tuple(rule.judge(facts, settings.of(rule.id)))
    except Exception as error:  # noqa: BLE001 - it reads whatever a recording holds; a mistake here must end no capture
        failed.setdefault(rule.id, " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_SAID].rstrip(": "))
        return ()


def unexplained(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Without what another one explains that is on the same device, or about it too, and as urgent; no key twice."""
    known: dict[tuple[str, str], Finding] = {}
    for one in found:
        if one.key not in known or one.weight > known[one.key].weight:
            known[one.key] = one
    causes: dict[tuple[str, str], int] = {}
    for one in known.values():
        for device in (one.device, *one.also):
            causes[one.id, device] = max(causes.get((one.id, device), 0), SEVERITIES.index(one.severity))
    why = {rule.id: rule.explained_by for rule in RULES}
    return tuple(
        one
        for one in known.values()
        if all(causes.get((cause, one.device), -1) < SEVERITIES.index(one.severity) for cause in why[one.id])
    )


LATENCIES, TRACED, DEPTHS, LIMITS = "latencies", "traced", "depths", "limits"
"""Histograms of latency; requests that deep probes follow; how many are outstanding; what a driver may have."""

NEEDS: Mapping[str, str] = MappingProxyType(
    {
        "starved-io": TRACED,
        "completion-wakeup": TRACED,
        "tick-quantum": LATENCIES,
        "softirq-delay": TRACED,
        "slow-shared-handler": TRACED,
        "outstanding-ceiling": DEPTHS,
        "bottleneck-above-device": DEPTHS,
        "requeue-storm": TRACED,
        "queue-depth-misconfigured": LIMITS,
        "peer-outlier": LATENCIES,
        "bimodal-tail": LATENCIES,
    },
)
"""Rule -> the kind without which it never fires."""

WHY: Mapping[str, str] = MappingProxyType(
    {
        LATENCIES: "no latencies were timed",
        TRACED: "stages were not traced",
        DEPTHS: "nobody counted how many I/Os are outstanding",
        LIMITS: "no device told a limit of its driver",
    }
)


def unjudged(facts: Facts, off: frozenset[str] = frozenset()) -> dict[str, tuple[str, ...]]:
    """Kind -> the rules that can't judge for want of it; empty where all can. `off`: rules that aren't asked."""
    told = {
        LATENCIES: "total" in facts.origin.measured or any(one.deep.tables.get("traced") for one in facts.window),
        TRACED: facts.window[-1].deep.facts.traced.one_in > 0,
        # a mean of queued requests and those in the driver together shows no limit of the driver
        DEPTHS: any(sums.depths.source != MEANS or sums.queued for sums in facts.depth_sums.values()),
        LIMITS: any(one.limits for one in facts.devices.values()),
    }
    missing = {kind: tuple(r for r, need in NEEDS.items() if need == kind and r not in off) for kind in told}
    return {kind: rules for kind, rules in missing.items() if rules and not told[kind]}


def by_kind(rules: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Kind -> those of these rules that live by it."""
    found = {kind: tuple(rule for rule, need in NEEDS.items() if need == kind and rule in rules) for kind in WHY}
    return {kind: some for kind, some in found.items() if some}


def who_judged(rules: int, missing: Mapping[str, Sequence[str]], failed: Mapping[str, str]) -> tuple[str, str]:
    """Of so many rules that were asked: how many judged, and which didn't and why; nothing where all did.

    `11 rules`, or `9 of 11 rules judged` and `not judged: starved-io, requeue-storm (stages were not traced)`.
    """
    without = {*failed, *(rule for some in missing.values() for rule in some)}
    why = [f"{', '.join(some)} ({WHY[kind]})" for kind, some in missing.items()]
    why += [f"{rule} (it failed: {words})" for rule, words in failed.items()]
    if not without:
        return f"{rules} rules", ""
    return f"{rules - len(without)} of {rules} rules judged", f"not judged: {', '.join(why)}"


KEEP = 6
"""Blocks that are kept at least, however long they are: what must last is looked for in them."""
MAX_EPISODES = 1000
"""That are over. Where there are more, the oldest of the least urgent ones is forgotten."""


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
        """Rules that were not evaluated so far, because an input is missing."""
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


@dataclass(frozen=True, slots=True)
class Told:
    """One finding on one device, as it was when it was most urgent, and when it was there. Times are Unix times."""

    finding: Finding
    begin_wall: float
    """After the first block in which it was found."""
    end_wall: float
    episodes: int
    times: int
    """Blocks after which it was found."""


def told(episodes: Iterable[Episode]) -> tuple[Told, ...]:
    """By severity, then by the share of time they explain."""
    grouped: dict[tuple[str, str], list[Episode]] = {}
    for one in episodes:
        grouped.setdefault(one.key, []).append(one)
    found = [_together(some) for some in grouped.values()]
    return tuple(sorted(found, key=lambda one: one.finding.rank))


def _together(some: list[Episode]) -> Told:
    return Told(
        max((one.worst for one in some), key=lambda finding: finding.weight),
        min(one.begin_wall for one in some),
        max(one.end_wall for one in some),
        len(some),
        sum(one.times for one in some),
    )
