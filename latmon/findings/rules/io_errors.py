"""io-errors: I/Os of a device fail.

A failed read, write or flush is critical: a program or a file system lost data, or goes without. A discard or another
op that fails is a warning. Statuses with which the kernel sends an I/O again, or tells a program that it would have to
wait, are no failures, nor is a discard that a device doesn't support. A device above others, such as a multipath
device, may hide the failure of one below it: the finding names the device that failed the I/O. Whose I/Os they are is
known by cgroup where the always-on probe knows that, and by process of those that took long enough to be logged.

Failed writes after which the kernel made a file system of the device read-only are named by read-only-file-system,
which lasts as long as that does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from latmon.findings.evidence import kernel_log_facts, kernel_log_step
from latmon.findings.facts import Facts
from latmon.findings.rule import (
    CRITICAL,
    ERRORS,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    plain,
    short_text,
)
from latmon.model import measurements
from latmon.model.frame import Flow, Outlier
from latmon.model.measurements import errors
from latmon.model.measurements.issuers import is_root_cgroup
from latmon.model.stages import place_of_op, plural_of_op
from latmon.support.units import counted, spelled, whole

ID = "io-errors"
_CRITICAL_OPS = frozenset(("read", "write", "flush"))
_WRITES = frozenset(("write", "flush"))
_READ_ONLY_FILE_SYSTEM = "read-only-file-system"
"""The rule that names failed writes after which a file system is read-only."""
_NO_FAILURES = frozenset((errors.REQUEUED, errors.WOULD_BLOCK))
_MOST_NAMED = 3
"""Cgroups, and processes, whose I/Os failed."""
_LOOP = re.compile(r"loop\d+", re.ASCII)
_REFUTED = "the kernel's log has no error of the device in that time, and no program got one"
_AT_THE_WAY = "check the way to the device: cable, port, switch, adapter, the target's own log, other devices behind it"
_STEPS: Mapping[str, Step] = {
    errors.NO_SPACE: Step(
        "make room where the device's blocks are kept: the thin pool, the array, or the file system with its image"
    ),
    errors.TIME_OUT: Step(_AT_THE_WAY),
    errors.TRANSPORT: Step(_AT_THE_WAY),
    errors.OFFLINE: Step(_AT_THE_WAY),
    errors.RESERVED: Step("find the host that holds a reservation on the device: it excludes this one"),
    errors.PROTECTION: Step(
        "don't trust what was read: a checksum was wrong between the device and this host; check cable, adapter, memory"
    ),
    errors.NOT_SUPPORTED: Step("find what sends an op that the device doesn't have, and turn that off there"),
}
"""Status -> what to do about it. Those without a step are of the medium, or of an unknown kind."""


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device with failed I/Os."""
    failed: dict[str, dict[Flow, dict[str, int]]] = {}
    for row, ios in facts[measurements.ERRORS].items():
        if ios and _is_failure(row):
            flows = failed.setdefault(row.device, {})
            flows.setdefault(Flow(row.device, row.op), {})[row.status] = ios
    for device in sorted(failed):
        flows = {flow: failed[device][flow] for flow in sorted(failed[device], key=lambda flow: place_of_op(flow.op))}
        if sum(map(_sum, flows.values())) >= limits["ios"]:
            yield _finding(facts, device, flows)


def _is_failure(row: errors.FailedIO | errors.FailedBy) -> bool:
    is_unsupported = row.status == errors.NOT_SUPPORTED and row.op not in _CRITICAL_OPS
    return row.status not in _NO_FAILURES and not is_unsupported


def _is_failed(outlier: Outlier, flows: Collection[Flow]) -> bool:
    """Return whether a slow I/O is one of the failed I/Os of these flows."""
    row = errors.FailedIO(outlier.device, outlier.op, outlier.status)
    return bool(outlier.status) and Flow(row.device, row.op) in flows and _is_failure(row)


def _sum(statuses: Mapping[str, int]) -> int:
    return sum(statuses.values())


def _finding(facts: Facts, device: str, flows: Mapping[Flow, Mapping[str, int]]) -> Finding:
    failed = sum(map(_sum, flows.values()))
    completed = sum(_completed(facts, flow, statuses) for flow, statuses in flows.items())
    clauses = ", ".join(_clause(facts, flow, statuses) for flow, statuses in flows.items())
    is_critical = any(flow.op in _CRITICAL_OPS for flow in flows)
    return Finding(
        id=ID,
        severity=CRITICAL if is_critical else WARNING,
        device=device,
        summary=f"{device}: {clauses}{_whose(facts, flows)}",
        facts=tuple(_evidence(facts, device, flows)),
        where=Where("overview", device),
        steps=tuple(_steps(device, flows)),
        refuted_by=_REFUTED,
        share=failed / completed,
        short=_short(facts, device, flows),
        explained_by=(_READ_ONLY_FILE_SYSTEM,) if all(flow.op in _WRITES for flow in flows) else (),
    )


def _completed(facts: Facts, flow: Flow, statuses: Mapping[str, int]) -> int:
    """Return the completions of an op that the probe counted, of which the failed ones are a part.

    The kernel's counters are read at another time: beside failures of the same windows they gave 5 of 6 for 5 of 15.
    """
    done = facts[measurements.SEEN].get(flow) or facts.completed(*flow)
    return max(done.count if done else 0, _sum(statuses))


def _clause(facts: Facts, flow: Flow, statuses: Mapping[str, int]) -> str:
    """Return `12 of 340 reads failed (I/O error)`."""
    completed = _completed(facts, flow, statuses)
    return f"{_sum(statuses):,} of {completed:,} {plural_of_op(flow.op)} failed ({errors.in_words(statuses)})"


def _by_cgroup(facts: Facts, flows: Collection[Flow]) -> list[tuple[str, int]]:
    """Return the cgroups with failed I/Os of these ops, the most first."""
    by_cgroup: Counter[str] = Counter()
    for row, ios in facts[measurements.FAILED_BY].items():
        if Flow(row.device, row.op) in flows and _is_failure(row):
            by_cgroup[row.cgroup] += ios
    return by_cgroup.most_common()


def _whose(facts: Facts, flows: Collection[Flow]) -> str:
    """Return the cgroup with most of the failed I/Os as the end of a sentence; empty of the root."""
    for cgroup, ios in _by_cgroup(facts, flows)[:1]:
        if is_root_cgroup(cgroup):
            break
        return f"; {counted(ios, 'failed I/O')} of cgroup {cgroup}"
    return ""


def _short(facts: Facts, device: str, flows: Mapping[Flow, Mapping[str, int]]) -> str:
    """Return the short text: the failed I/Os of each op, and their statuses."""
    counts, statuses = [], []
    for flow, by_status in flows.items():
        completed = _completed(facts, flow, by_status)
        counts.append(f"{whole(_sum(by_status))} of {whole(completed)} {plural_of_op(flow.op)} failed")
        statuses.append(f" ({errors.in_words(by_status)})")
    others = (f"; {count}" for count in counts[1:])
    return short_text(device, counts[0], statuses[0] if len(counts) == 1 else "", *others)


def _evidence(facts: Facts, device: str, flows: Mapping[Flow, Mapping[str, int]]) -> Iterator[Fact]:
    for flow, statuses in flows.items():
        completed = _completed(facts, flow, statuses)
        for status, ios in statuses.items():
            yield Fact(f"{flow.op}_failed", ios, f"{flow.op}, {status}: {counted(ios, 'I/O')}", "ios", completed)
    for at, (cgroup, ios) in enumerate(_by_cgroup(facts, flows)[:_MOST_NAMED], 1):
        yield Fact(f"cgroup_{at}", cgroup, f"cgroup {cgroup}: {counted(ios, 'failed I/O')}", of=ios)
    processes = Counter(
        f"{outlier.comm}/{outlier.pid}"
        for outlier in facts.outliers(device)
        if outlier.pid is not None and _is_failed(outlier, flows)
    )
    for at, (process, ios) in enumerate(processes.most_common(_MOST_NAMED), 1):
        yield Fact(f"process_{at}", process, f"{process} issued {counted(ios, 'slow I/O')} that failed", of=ios)
    newest = facts.window[-1]
    rows = newest[measurements.ERRORS]
    still = sum(ios for row, ios in rows.items() if row.device == device and _is_failure(row))
    yield Fact("still_failed", still, f"in the last {spelled(newest.span_us)}: {still:,}", "ios")
    failed = sum(map(_sum, flows.values()))
    yield Fact("left_out", failed, f"counted and not timed: {failed:,}", "ios")
    yield from kernel_log_facts(facts, device)


def _steps(device: str, flows: Mapping[Flow, Mapping[str, int]]) -> Iterator[Step]:
    yield kernel_log_step("read what the kernel's log has about it: the sector, the sense data, resets")
    statuses = dict.fromkeys(status for counts in flows.values() for status in counts)
    yield from dict.fromkeys(_STEPS[status] for status in statuses if status in _STEPS)
    if _LOOP.fullmatch(device):
        yield Step(
            "look at the file that it lies on, whether it was cut off, and at the disk below that",
            commands=(f"losetup -l /dev/{device}",),
        )
    elif not statuses.keys() <= _STEPS.keys():
        name = f"/dev/{device}" if plain(device) else "DEVICE"
        yield Step(
            "copy what is not in a backup first, then let the device test itself; of a virtual disk, look at what it "
            "lies on",
            "a copy reads all of a device that may be failing",
            (f"smartctl -a {name}",),
        )


RULE = Rule(
    ID,
    "I/Os of a device fail",
    evaluate,
    needs=ERRORS,
    thresholds={"ios": Threshold(1, "ios", "failed in the last minute at least")},
)
