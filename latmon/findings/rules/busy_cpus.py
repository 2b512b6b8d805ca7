"""busy-cpus: the CPUs of the host have no idle time, and programs wait for one.

A program runs late after its I/Os then, which no latency of a device shows. It is a notice: what computes, such as a
build, may have all CPUs without harm. PSI alone is not enough: it is an average over the CPUs that are busy, so two
programs on one of 128 CPUs count as much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from latmon.findings.facts import Block, Facts
from latmon.findings.rule import (
    CPU_LOAD,
    NOTICE,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    short_text,
    threads,
)
from latmon.model.devices import HOST_SEPARATOR, host_and_device
from latmon.model.host_context import ContextValue, added
from latmon.support.units import part

ID = "busy-cpus"
BUSY, WAITED, STOLEN = "cpu_busy", "psi_cpu_some", "steal"
"""Values of the host's context."""
_NAMED_STEAL = 0.1
"""Share of the CPU time from which on that of the hypervisor's other guests is named."""


def is_measured(block: Block) -> bool:
    """Return whether a block has the load of a host's CPUs, and the waits for them."""
    return any(_has_both(block.host_context, host) for host in _hosts(block))


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield one finding per host."""
    for host in dict.fromkeys(host for block in facts.window for host in _hosts(block)):
        busy = [block for block in facts.window if _is_busy(block.host_context, host, limits)]
        if facts.lasts(sum(block.span_us for block in busy), limits["lasting_us"]):
            yield _finding(facts, host, added(block.host_context for block in busy))


def _hosts(block: Block) -> list[str]:
    """Return the hosts with a value, each as in front of its values: `db1:`; an empty text for a single host."""
    named = (host_and_device(name) for name in block.host_context)
    return [f"{host}{HOST_SEPARATOR}" if host else "" for host, value in named if value == BUSY]


def _has_both(context: Mapping[str, ContextValue], host: str) -> bool:
    return host + BUSY in context and host + WAITED in context


def _is_busy(context: Mapping[str, ContextValue], host: str, limits: Thresholds) -> bool:
    if not _has_both(context, host):
        return False
    return context[host + BUSY].ratio >= limits["busy"] and context[host + WAITED].ratio >= limits["waited"]


def _finding(facts: Facts, host: str, context: Mapping[str, ContextValue]) -> Finding:
    waited = min(context[host + WAITED].ratio, 1.0)
    about = f"{host[:-1]}: " if host else ""
    summary = f"all CPUs are busy, and programs wait for one {part(waited)} of the time"
    return Finding(
        id=ID,
        severity=NOTICE,
        device=host,
        summary=f"{about}{summary}",
        facts=tuple(_facts(host, context)),
        where=Where("overview"),
        steps=(
            Step(
                "see which threads use the CPUs; no faster disk helps a program that waits for one",
                commands=(threads("", is_sun=facts.is_sun),),
            ),
            Step(
                "run some of them at other times, with a higher nice value or on another host",
                "they take longer until they end",
            ),
        ),
        refuted_by=(
            "the CPUs have idle time (mpstat -P ALL), or the programs that are slow do not wait for one (schedstat)"
        ),
        share=waited,
        short=short_text(host[:-1], "all CPUs are busy", f": programs wait for one {part(waited)} of the time"),
    )


def _facts(host: str, context: Mapping[str, ContextValue]) -> Iterator[Fact]:
    busy, waited = context[host + BUSY].ratio, min(context[host + WAITED].ratio, 1.0)
    yield Fact("busy", round(busy, 3), f"the CPUs were busy {part(busy)} of their time (/proc/stat)", "share")
    yield Fact("waited", round(waited, 3), f"a program waited for a CPU {part(waited)} of the time (PSI)", "share")
    stolen = context.get(host + STOLEN)
    if stolen is not None and stolen.ratio >= _NAMED_STEAL:
        text = f"of the CPU time the hypervisor gave {part(stolen.ratio)} to other guests (CPU steal)"
        yield Fact("stolen", round(stolen.ratio, 3), text, "share")


RULE = Rule(
    ID,
    "the CPUs of the host have no idle time, and programs wait for one",
    evaluate,
    needs=CPU_LOAD,
    explained_by=("cpu-starved", "cpu-throttled"),
    thresholds={
        "busy": Threshold(0.95, "share", "of the time of all CPUs is not idle at least, steal included"),
        "waited": Threshold(0.5, "share", "of the time a program waits for a CPU at least (PSI)"),
        "lasting_us": Threshold(12_000_000, "us", "of the last minute it was so, or 30 % of that from the start on"),
    },
)
