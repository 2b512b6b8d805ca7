"""The rule engine: evaluates the rules over the last minute after each block, and keeps episodes of findings.

Owns the blocks that are kept and when rules are evaluated. Knows no rule by name, no file and no screen.

The host's context during a finding is compared with the time without it, as one more fact of its evidence: means over
the window of a finding with those over the spans of the last hour outside of its windows. A value that is high in both
says nothing and is not named. What coincides is never a finding by itself, nor called a cause.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from latmon.aggregate.accumulator import Accumulator, Minute
from latmon.aggregate.rates import HighestRates, RateSums
from latmon.aggregate.request_age import Waiting
from latmon.analysis.limits import AuditGroups
from latmon.findings.baseline import BaselineComparison
from latmon.findings.changed_settings import ChangedSettings
from latmon.findings.episodes import Episode, EpisodeLog
from latmon.findings.evidence import host_before, maintenance_of
from latmon.findings.facts import (
    Block,
    Facts,
    KernelLines,
    ReportGrowth,
    WindowSums,
    block_end,
    block_of,
    in_window,
    of_minute,
    rates_of,
)
from latmon.findings.latency_history import LatencyHistory
from latmon.findings.quiet_times import QuietTimes
from latmon.findings.rule import (
    CGROUPS,
    CPU_LOAD,
    CPU_WAITS,
    DEFAULT,
    DEPTHS,
    DIRTY,
    ERRORS,
    FAULTS,
    FILE_SYSTEM_ERRORS,
    FILE_TIMES,
    FILES,
    FLEET,
    HANGS,
    ISSUERS,
    JOURNALS,
    LATENCIES,
    LIMITS,
    MEMORY,
    MISSING,
    MOUNTS,
    PATTERNS,
    PRIORITIES,
    PROCESSES,
    QUOTAS,
    RECOVERIES,
    SERVERS,
    SEVERITIES,
    SLEEPS,
    SPACE,
    TRACED,
    Fact,
    Finding,
    Rule,
    Settings,
    in_order,
    on_its_host,
)
from latmon.findings.rules import RULES, bottleneck_between, busy_cpus, maintenance, page_faults, swap_thrash
from latmon.findings.rules.dirty_throttled import DIRTY_LIMIT
from latmon.model import measurements
from latmon.model.devices import host_and_device, is_behind_tcp
from latmon.model.frame import FILES as FILES_TRACED
from latmon.model.frame import READ_ONLY_KIND, Device, Frame, Mark, Origin
from latmon.model.frame import SIZES as SIZES_TRACED
from latmon.model.host_context import CONTEXT, ContextValue, HostContext, add_to, added
from latmon.model.inflight import MEANS
from latmon.model.measurements import TRACED_LATENCIES
from latmon.model.table import AnyTable
from latmon.support.units import part

HIGH: Mapping[str, float] = MappingProxyType(
    {
        "steal": 0.1,
        "psi_cpu_some": 0.25,
        "psi_irq_full": 0.1,
        "psi_memory_some": 0.1,
        "direct_reclaims": 10.0,
        "swap_ins": 100.0,
        "psi_io_some": 0.25,
        "writeback": 256e6,
        "dirty": 1e9,
        "tcp_retransmits": 10.0,
    }
)
"""Value -> the mean from which on it is named, in its unit, in the order of the sentence. Not in it: `full` values,
which are part of `some`, the ARC, whose size is no load, and NFS, which is below no block device."""
TIMES_USUAL = 2.0
"""A value is named if it is so many times what it is without the finding."""
_MOST = 4
"""Values of one sentence."""
_SPAN_US, KEPT_US = 30_000_000, 3600_000_000
"""Length of a span, and the time that is kept: a fleet of 32 hosts has 288 values in each span."""
_WITHOUT_TIME = frozenset(rule.id for rule in RULES if rule.needs in (LIMITS, CPU_LOAD))
"""Rules about a setting, which has no time that something could coincide with, and about the load itself."""
_MAX_ERROR = 200
"""Characters of the error of a rule that failed."""

NEEDS: Mapping[str, str] = MappingProxyType({rule.id: rule.needs for rule in RULES})
"""Rule -> the input without which it never fires."""
_ON_DEMAND: Mapping[str, str] = MappingProxyType({TRACED: "", FILES: FILES_TRACED, PATTERNS: SIZES_TRACED})
"""Inputs that the tracer measures, and their name among those that it left out."""
_TRACED_PARTS: Mapping[str, str] = MappingProxyType({rule.id: rule.traced_part for rule in RULES})
KEEP = 6
"""Least number of blocks that are kept, however long they are: rules count the blocks in which an effect lasted."""


@dataclass(slots=True)
class _Span:
    """Sum of consecutive blocks, of the values in HIGH."""

    begin_us: int
    end_us: int = 0
    context: dict[str, ContextValue] = field(default_factory=dict)
    during: set[tuple[str, str]] = field(default_factory=set)
    """Keys of the findings in whose windows a part of it was."""

    def add(self, block: Block) -> None:
        values = {at: value for at, value in block.host_context.items() if host_and_device(at)[1] in HIGH}
        self.end_us = block.end_us
        add_to(self.context, values)


class Coincidences:
    """The context of the blocks of the last hour, added by `add` in their order."""

    def __init__(self) -> None:
        self._spans: deque[_Span] = deque()

    def add(self, block: Block) -> None:
        """Add the next block. Time that went backwards (another boot) starts over."""
        if self._spans and block.end_us < self._spans[-1].end_us:
            self._spans.clear()
        if not self._spans or block.end_us - self._spans[-1].begin_us > _SPAN_US:
            self._spans.append(_Span(block.begin_us))
        self._spans[-1].add(block)
        while self._spans[0].end_us <= block.end_us - KEPT_US:
            self._spans.popleft()

    def named(self, facts: Facts, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """Return the findings after the latest block, each with what coincides."""
        begin_us = facts.window[0].begin_us
        inside = [span for span in self._spans if span.end_us > begin_us]
        context, named_findings = added(block.host_context for block in facts.window), []
        for finding in findings:
            for span in inside:
                span.during.add(finding.key)
            fact = None if finding.id in _WITHOUT_TIME else self._fact(facts, finding, context)
            others = () if finding.id == maintenance.ID else maintenance_of(facts, finding.device)
            more = (*others, *([] if fact is None else [fact]))
            named_findings.append(replace(finding, facts=(*finding.facts, *more)) if more else finding)
        return tuple(named_findings)

    def _fact(self, facts: Facts, finding: Finding, context: HostContext) -> Fact | None:
        host = host_before(facts, finding.device)
        high = {name: value for name, value in _means([context], host) if value >= HIGH[name]}
        if not is_behind_tcp(finding.device, facts.device(finding.device).driver):
            high.pop("tcp_retransmits", None)
        if not high:
            return None
        usual = dict(_means([span.context for span in self._spans if finding.key not in span.during], host))
        names = [name for name, value in high.items() if name not in usual or value >= TIMES_USUAL * usual[name]][
            :_MOST
        ]
        if not names:
            return None
        values = (_compared(name, high[name], usual.get(name)) for name in names)
        alone = "" if usual else "; there is no time without it to compare with"
        return Fact("at_the_same_time", ", ".join(names), f"at the same time: {', '.join(values)}{alone}")


def _means(contexts: Sequence[HostContext], host: str) -> Iterator[tuple[str, float]]:
    """Yield the means of a host's values in HIGH over all of these; `host`: with its colon, or empty."""
    for name in HIGH:
        if means := [context[host + name] for context in contexts if host + name in context]:
            weight = sum(mean.weight for mean in means)
            yield name, CONTEXT[name].scaled(sum(mean.total for mean in means) / weight)


def _compared(name: str, now: float, usual: float | None) -> str:
    kind = CONTEXT[name]
    return f"{kind.title} {kind.text(now)}" + ("" if usual is None else f" (else {kind.text(usual)})")


def evaluate_rules(facts: Facts, settings: Settings, failed: MutableMapping[str, str]) -> Iterator[tuple[Finding, ...]]:
    """Yield the findings of each rule that is on. A rule that raises adds its id and error to `failed`."""
    for rule in RULES:
        if rule.id not in settings.off:
            yield _evaluate(rule, facts, settings, failed)


def _evaluate(rule: Rule, facts: Facts, settings: Settings, failed: MutableMapping[str, str]) -> tuple[Finding, ...]:
    try:
        findings = tuple(rule.evaluate(facts, settings.of(rule)))
        return tuple(map(on_its_host, findings)) if facts.origin.backend == FLEET else findings
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - a recording may have any value; a mistake here must end no capture
        failed.setdefault(rule.id, " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_ERROR].rstrip(": "))
        return ()


def unexplained(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Drop duplicate keys, and findings that one of at least the same severity explains on the same device."""
    known: dict[tuple[str, str], Finding] = {}
    for finding in found:
        if finding.key not in known or finding.weight > known[finding.key].weight:
            known[finding.key] = finding
    causes: dict[tuple[str, str], int] = {}
    for finding in known.values():
        for device in (finding.device, *finding.also):
            causes[finding.id, device] = max(causes.get((finding.id, device), 0), SEVERITIES.index(finding.severity))
    why = {rule.id: rule.explained_by for rule in RULES}
    return tuple(
        finding
        for finding in known.values()
        if all(
            causes.get((cause, finding.device), -1) < SEVERITIES.index(finding.severity)
            for cause in (*why[finding.id], *finding.explained_by)
        )
    )


def not_evaluated(facts: Facts, off: frozenset[str] = frozenset()) -> dict[str, tuple[str, ...]]:
    """Return the missing inputs, each with the rules that need it, without those in `off`; empty if none is missing."""
    available = {
        LATENCIES: "total" in facts.origin.measured or any(block[TRACED_LATENCIES] for block in facts.window),
        TRACED: facts.window[-1].packed.traced.one_in > 0,
        # a mean over queued requests and those in the driver shows no limit of the driver
        DEPTHS: any(block.idle for block in facts.window)
        or any(sums.depths.source != MEANS or sums.queued for sums in facts.depth_sums.values()),
        LIMITS: any(device.limits for device in facts.devices.values()),
        FAULTS: any(name.endswith(page_faults.FAULTED) for block in facts.window for name in block.host_context),
        FILES: bool(facts[measurements.SYNCS]) or any(block[measurements.FILES] for block in facts.window),
        FILE_TIMES: any(block[measurements.FILE_TIMES] for block in facts.window)
        or _is_counted(facts, measurements.FILE_SLEEPS),
        PATTERNS: bool(facts[measurements.PATTERNS]),
        ERRORS: _is_counted(facts, measurements.ERRORS),
        FILE_SYSTEM_ERRORS: _is_counted(facts, measurements.FILE_SYSTEM_ERRORS),
        RECOVERIES: _is_counted(facts, measurements.RECOVERIES),
        DIRTY: _is_counted(facts, measurements.DIRTIERS)
        or any(name.endswith(DIRTY_LIMIT) for block in facts.window for name in block.host_context),
        JOURNALS: bool(facts[measurements.JOURNALS]),
        QUOTAS: _is_counted(facts, measurements.CPU_QUOTAS),
        CPU_WAITS: _is_counted(facts, measurements.CPU_WAITS),
        CPU_LOAD: any(map(busy_cpus.is_measured, facts.window)),
        HANGS: _is_counted(facts, measurements.HUNG_OPERATIONS),
        SLEEPS: _is_counted(facts, measurements.FILE_SLEEPS),
        SERVERS: _is_counted(facts, measurements.HUNG_OPERATIONS) or bool(facts[measurements.NFS_OPERATIONS]),
        PRIORITIES: _is_counted(facts, measurements.IO_PRIORITIES),
        SPACE: _is_counted(facts, measurements.FILE_SYSTEM_SPACE),
        # who looks at free space reads the mounts
        MOUNTS: _is_counted(facts, measurements.FILE_SYSTEM_SPACE)
        or any(device.report(READ_ONLY_KIND) for device in facts.devices.values()),
        MEMORY: any(map(swap_thrash.is_measured, facts.window)),
        ISSUERS: any(_has_latencies(block) for block in facts.window),
        PROCESSES: any(issuer.is_process and done.latency for issuer, done in facts[measurements.ISSUERS].items()),
        CGROUPS: facts.is_sun or any(block.cgroup_limits is not None for block in facts.window),
    }
    # the means of two tools are enough to compare them
    compared = {bottleneck_between.ID} if bottleneck_between.layers_of(facts) > 1 else set()
    return {kind: rules for kind, rules in by_kind(NEEDS.keys() - off - compared).items() if not available[kind]}


def _is_counted(facts: Facts, table: AnyTable) -> bool:
    """Return whether a table has rows, or no rows mean that there was nothing."""
    return table.name in facts.origin.counted or bool(facts[table])


class MeasuredInputs:
    """Whether the inputs of a finding's rule were measured, so that a rule without a finding refutes it."""

    def __init__(self, facts: Facts, missing: Collection[str]) -> None:
        """`missing`: inputs that the facts lack, as `not_evaluated` returns them."""
        self._facts, self._missing = facts, missing

    def has_newest(self, finding: Finding) -> bool:
        """Return whether the newest block has the inputs."""
        return self._has_inputs(self._facts.blocks[-1], finding)

    def measured_us(self, episode: Episode) -> int:
        """Return for how long the inputs were measured since the end of an episode."""
        later = (block for block in self._facts.blocks if block.end_us > episode.end_us)
        return sum(block.span_us for block in later if self._has_inputs(block, episode.last))

    def _has_inputs(self, block: Block, finding: Finding) -> bool:
        need = NEEDS.get(finding.id, LATENCIES)
        if need not in _ON_DEMAND:
            return need not in self._missing
        traced = block.packed.traced
        if not traced.one_in or (finding.device and traced.devices and finding.device not in traced.devices):
            return False
        left_out = {absent.name for absent in traced.absent}
        return not left_out & {_ON_DEMAND[need], _TRACED_PARTS[finding.id]}


def _has_latencies(block: Block) -> bool:
    """Return whether I/Os of an issuer were timed."""
    return any(done.latency for done in block[measurements.ISSUERS].values())


def by_kind(rules: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Group rules by the input that they need."""
    rules_by_kind = {
        kind: tuple(rule for rule, need in NEEDS.items() if need == kind and rule in rules) for kind in MISSING
    }
    return {kind: rules for kind, rules in rules_by_kind.items() if rules}


def evaluated_by(
    rules: int,
    missing: Mapping[str, Sequence[str]],
    failed: Mapping[str, str],
    partly: Mapping[str, float] = MappingProxyType({}),
) -> tuple[str, str]:
    """Return how many of the `rules` rules that are on were evaluated, and which were not and why, as two texts.

    `12 rules` and an empty text, or `10 of 12 rules evaluated` and
    `not evaluated: starved-io, requeue-storm (stages were not traced)`. `partly`: rule -> share of the evaluations
    that had its input.
    """
    without = {*failed, *(rule for names in missing.values() for rule in names)}
    why = [f"{', '.join(names)} ({MISSING[kind]})" for kind, names in missing.items()]
    why += [f"{rule} (it failed: {error})" for rule, error in failed.items()]
    texts = [f"not evaluated: {', '.join(why)}"] if why else []
    for kind, names in by_kind(partly.keys()).items():
        share = part(partly[names[0]])
        texts.append(f"only in {share} of the evaluations: {', '.join(names)} (in the others {MISSING[kind]})")
    who = f"{rules - len(without)} of {rules} rules evaluated" if without else f"{rules} rules"
    return who, "; ".join(texts)


class RuleEngine:
    """Evaluation of all rules over a series of frames, which `take` adds in order.

    `current` are the findings after the last whole block, the most urgent first. Blocks end at fixed times since the
    capture began (block_end), so that an engine that starts in the middle of a capture has the same blocks.
    """

    def __init__(
        self,
        origin: Origin,
        devices: tuple[Device, ...] = (),
        settings: Settings = DEFAULT,
        waiting: Waiting | None = None,
        on_block: Callable[[Block], None] = lambda _: None,
        *,
        history: LatencyHistory | None = None,
    ) -> None:
        """Start before the first frame; `waiting` are the I/Os in flight at that time, where they are known.

        `on_block` is called with the sums of each block. `history`: what is known of the time before.
        """
        self.origin = origin
        self.current: tuple[Finding, ...] = ()
        self.failed: dict[str, str] = {}
        """Rule -> its first error; the other rules are still evaluated."""
        self.silent: frozenset[str] = frozenset(NEEDS)
        """Rules that were not evaluated so far, because an input is missing."""
        self.lacked: Counter[str] = Counter()
        """Input -> blocks after which it was missing."""
        self.evaluated = 0
        """Blocks after which rules were evaluated."""
        self.by_minutes = False
        """Whether roll-ups were added."""
        self.quiet = False
        """Whether blocks are kept without evaluating rules."""
        self.facts: Facts | None = None
        """Input of the last evaluation."""
        self._devices = {device.name: device for device in devices}
        self.settings = settings
        self._blocks: deque[Block] = deque()
        self._coincidences = Coincidences()
        self._growth = ReportGrowth()
        self._kernel_lines = KernelLines()
        self._rates = RateSums()
        self._highest = HighestRates()
        self._quiet = QuietTimes()
        self._changed_settings = ChangedSettings()
        self.history = LatencyHistory() if history is None else history
        """Latencies of the last hour, and their lasting changes."""
        self._comparison = None if settings.baseline is None else BaselineComparison(source=settings.baseline)
        self._sums = Accumulator(sums_gauges=False)
        self._window_sums = WindowSums()
        self._groups: AuditGroups | None = None
        self._waiting = waiting or Waiting()
        self.on_block = on_block
        self._log = EpisodeLog()
        self._begins_run = False
        """Whether the next frame is the first one of another run of an imported text."""
        self._end_us: int | None = None
        self._filling: int | None = None
        """End of the block that is being filled, since the capture's begin; None before its first frame."""

    @property
    def left_out(self) -> int:
        """Return the number of episodes that were dropped, because there were too many."""
        return self._log.left_out

    @property
    def lasting(self) -> tuple[Episode, ...]:
        """Return the episodes of the current findings, in their order."""
        return tuple(self._log[finding.key] for finding in self.current)

    @property
    def kept(self) -> tuple[Episode, ...]:
        """Return the episodes of findings that were not found last, and are not refuted or come again and again.

        Those that one of the current findings explains are left out.
        """
        if self._end_us is None:
            return ()
        return tuple(episode for episode in self._log.kept(self._end_us) if not self._is_explained(episode.last))

    def _is_explained(self, finding: Finding) -> bool:
        others = (current for current in self.current if current.key != finding.key)
        return finding not in unexplained((*others, finding))

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """Return all episodes by their begin; those that are not over end now."""
        return self._log.all

    def take(self, item: Frame | Minute) -> bool:
        """Add the next frame, or a roll-up of one minute; return whether rules were evaluated."""
        before = self.evaluated
        for _ in self.taking(item):
            pass
        return self.evaluated > before

    def taking(self, item: Frame | Minute) -> Iterator[None]:
        """Add the next frame or roll-up; yield every few milliseconds, so that the caller can do other work."""
        begin_us = item.mono_us - item.dt_us
        wobble_us = (item.first_dt_us if isinstance(item, Minute) else item.dt_us) // 2
        if self._end_us is not None and (item.mono_us <= self._end_us or begin_us - self._end_us > wobble_us):
            yield from self._start_over(item.mono_us <= self._end_us)
        elif self._begins_run and self._end_us is not None:
            yield from self._start_over(other_boot=True)
        self._begins_run = False
        self._end_us = item.mono_us
        if isinstance(item, Minute):
            self.by_minutes = True
            yield from self._end_block()
            self.history.add_minute(item)
            self._filling = None
            yield from self._evaluate(of_minute(item, self._waiting))
            return
        for mark in item.marks:
            self._kernel_lines.add(mark)
        for device in item.devices:
            self._kernel_lines.note_device(device, begin_us)
            self._growth.add(self._devices.get(device.name), device, item.mono_us)
            self.history.note_device(self._devices.get(device.name), device, item.mono_us)
            self._devices[device.name] = device
        for name in item.removed:
            removed = self._devices.pop(name, None)
            if removed is not None:
                self._kernel_lines.note_removed(removed)
            self.history.forget(name)
            self._highest.forget(name)
            self._quiet.forget(name)
            self._changed_settings.forget(name)
        self._waiting.add(item)
        self._sums.add(item)
        self._rates.add_frame(item)
        self.history.add_frame(item)
        now = self._block_end(begin_us, item) if self._filling is None else self._filling
        self._filling = self._block_end(item.mono_us, item)
        if self._filling > now:
            yield from self._end_block()

    def note(self, mark: Mark) -> None:
        """Add a mark that comes apart from its frame.

        One of an import may begin a run, whose I/Os are of another condition.
        """
        self._kernel_lines.add(mark)
        self._begins_run = self._begins_run or mark.text.partition(":")[0] in self.origin.runs

    def finish(self) -> None:
        """Evaluate the frames that are not in a block yet: no more frames come."""
        for _ in self._end_block():
            pass

    def _block_end(self, mono_us: int, frame: Frame) -> int:
        """Return the end of the block since the capture's begin; half a frame early, because clocks jitter."""
        return block_end(mono_us + frame.dt_us // 2 - self.origin.start_mono_us)

    def _start_over(self, other_boot: bool) -> Iterator[None]:
        """Interrupt all episodes and drop the blocks: nothing is known to last across a gap in the frames."""
        yield from self._end_block()
        self._filling = None
        self._blocks.clear()
        self._window_sums = WindowSums()
        self.current = ()
        self._log.interrupt(other_boot=other_boot)
        if other_boot:
            self._growth.clear()
            self._kernel_lines = KernelLines()
            self._highest = HighestRates()
            self._quiet = QuietTimes()
            self._changed_settings = ChangedSettings()
            self.history = LatencyHistory()
            self._waiting = Waiting()

    def _end_block(self) -> Iterator[None]:
        """Make a block of the frames since the last one, and evaluate it."""
        if self._sums.first is not None:
            block = block_of(self._sums, self._waiting, self._rates.by_stream)
            self._sums, self._rates = Accumulator(sums_gauges=False), RateSums()
            yield
            yield from self._evaluate(block)

    @property
    def partly(self) -> dict[str, float]:
        """Return rule -> share of the evaluations that had its input, where that is less than half of them."""
        counts = {kind: n for kind, n in self.lacked.items() if n < self.evaluated < 2 * n}
        kinds = by_kind(NEEDS.keys() - self.settings.off)
        return {rule: round(1 - n / self.evaluated, 6) for kind, n in counts.items() for rule in kinds.get(kind, ())}

    def _evaluate(self, block: Block) -> Iterator[None]:
        self.on_block(block)
        self._blocks.append(block)
        self._highest.add(rates_of(block))
        self._coincidences.add(block)
        self.history.add_block(block)
        if self._comparison is not None:
            self._comparison.add_block(block, self._devices)
        while len(self._blocks) > KEEP and not in_window(self._blocks[0], block.end_us, self.origin):
            self._blocks.popleft()
        self._quiet.add_blocks(self._blocks, self._devices)
        changes = self.history.device_changes(self._blocks[0].begin_us, block.end_us)
        self._changed_settings.add_blocks(self._blocks, changes)
        if self.quiet:
            return
        if self._groups is None or not self._groups.is_of(self._devices.values()):
            self._groups = AuditGroups(self._devices.values(), self.origin.settings)
        facts = Facts(
            tuple(self._blocks),
            self.origin,
            dict(self._devices),
            self._window_sums,
            off=self.settings.off,
            groups=self._groups,
            grown=self._growth.until(block.end_us),
            log=self._kernel_lines.newest,
            highest=self._highest,
            quiet=self._quiet,
            changed_settings=self._changed_settings,
            history=self.history,
            comparison=self._comparison,
        )
        new_findings: list[Finding] = []
        for findings in evaluate_rules(facts, self.settings, self.failed):
            new_findings += findings
            yield
        missing = not_evaluated(facts)
        # by another input that a text has
        fired = {finding.id for finding in new_findings} if self.origin.is_imported else set()
        self.silent &= frozenset(rule for rules in missing.values() for rule in rules) - fired
        self.lacked.update(missing.keys())
        self.facts, self.current = facts, self._coincidences.named(facts, in_order(unexplained(new_findings)))
        self.evaluated += 1
        inputs = MeasuredInputs(facts, missing)
        self._log.note(block, self.current, inputs.has_newest, inputs.measured_us)
