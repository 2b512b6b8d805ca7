"""Comparison of the host's context during a finding with the time without it, as one more fact of its evidence.

It compares means over the window of a finding with those over the spans of the last hour outside of its windows. A
value that is high in both says nothing and is not named. What coincides is never a finding by itself, nor called a
cause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from latmon.findings.evidence import host_before
from latmon.findings.facts import Block, Facts
from latmon.findings.rule import LIMITS, Fact, Finding
from latmon.findings.rules import RULES
from latmon.model.devices import host_and_device
from latmon.model.host_context import CONTEXT, ContextValue, HostContext, add_to, added

HIGH: Mapping[str, float] = MappingProxyType(
    {
        "steal": 0.1,
        "psi_cpu_some": 0.25,
        "psi_irq_full": 0.1,
        "psi_memory_some": 0.1,
        "direct_reclaims": 10.0,
        "psi_io_some": 0.25,
        "writeback": 256e6,
        "dirty": 1e9,
        "tcp_retransmits": 10.0,
    }
)
"""Value -> the mean from which on it is named, in its unit, in the order of the sentence. Not in it: `full` values,
which are part of `some`, the ARC, whose size is no load, and NFS, which is below no block device."""
TIMES = 2.0
"""A value is named if it is so many times what it is without the finding."""
_MOST = 4
"""Values of one sentence."""
_SPAN_US, KEPT_US = 30_000_000, 3600_000_000
"""Length of a span, and the time that is kept: a fleet of 32 hosts has 288 values in each span."""
_WITHOUT_TIME = frozenset(rule.id for rule in RULES if rule.needs == LIMITS)
"""Rules about a setting, which has no time that something could coincide with."""


@dataclass(slots=True)
class _Span:
    """Sum of consecutive blocks, of the values in HIGH."""

    begin_us: int
    end_us: int = 0
    context: dict[str, ContextValue] = field(default_factory=dict)
    during: set[tuple[str, str]] = field(default_factory=set)
    """Keys of the findings in whose windows a part of it was."""

    def add(self, block: Block) -> None:
        some = {at: one for at, one in block.host_context.items() if host_and_device(at)[1] in HIGH}
        self.end_us = block.end_us
        add_to(self.context, some)


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
        inside = [one for one in self._spans if one.end_us > begin_us]
        context, found = added(one.host_context for one in facts.window), []
        for one in findings:
            for span in inside:
                span.during.add(one.key)
            fact = None if one.id in _WITHOUT_TIME else self._fact(facts, one, context)
            found.append(one if fact is None else replace(one, facts=(*one.facts, fact)))
        return tuple(found)

    def _fact(self, facts: Facts, finding: Finding, context: HostContext) -> Fact | None:
        host = host_before(facts, finding.device)
        high = {name: value for name, value in _means([context], host) if value >= HIGH[name]}
        if not _is_behind_tcp(facts, finding.device.removeprefix(host), finding):
            high.pop("tcp_retransmits", None)
        if not high:
            return None
        usual = dict(_means([one.context for one in self._spans if finding.key not in one.during], host))
        names = [name for name, value in high.items() if name not in usual or value >= TIMES * usual[name]][:_MOST]
        if not names:
            return None
        values = (_compared(name, high[name], usual.get(name)) for name in names)
        alone = "" if usual else "; there is no time without it to compare with"
        return Fact("at_the_same_time", ", ".join(names), f"at the same time: {', '.join(values)}{alone}")


def _means(contexts: Sequence[HostContext], host: str) -> Iterator[tuple[str, float]]:
    """Yield the means of a host's values in HIGH over all of these; `host`: with its colon, or empty."""
    for name in HIGH:
        if values := [one[host + name] for one in contexts if host + name in one]:
            yield name, CONTEXT[name].scaled(sum(one.total for one in values) / sum(one.weight for one in values))


def _compared(name: str, now: float, usual: float | None) -> str:
    kind = CONTEXT[name]
    return f"{kind.title} {kind.text(now)}" + ("" if usual is None else f" (else {kind.text(usual)})")


_TCP_DRIVERS, _TCP_DEVICES = ("nvme-tcp", "iscsi_tcp"), ("nbd", "rbd", "drbd")
"""Drivers, and beginnings of the names of devices without one, whose I/O goes through TCP."""


def _is_behind_tcp(facts: Facts, name: str, finding: Finding) -> bool:
    """Return whether the I/O of the finding's device, called `name` on its host, goes through TCP."""
    return facts.device(finding.device).driver in _TCP_DRIVERS or name.startswith(_TCP_DEVICES)
