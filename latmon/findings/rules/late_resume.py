"""late-resume: programs run late after the I/O that they waited for has completed.

The stage `resume` is the wait of a program's own thread for a CPU, after the completion: no device has a part in it,
and it is no part of the total. Counted are threads that a completion wakes. An outlier names the thread, else it is the
program's thread with the latest wake-up.

Many ordinary programs on few CPUs make each other late: that is a busy host, and a notice, if a good part of the
waiters are late. It is a warning where a real-time program ran for most of the time: it keeps ordinary ones from its
CPU for as long as it wants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from latmon.findings.evidence import Instead, blocks_with, count_from, ran_instead, what_keeps_the_cpu
from latmon.findings.facts import Facts
from latmon.findings.rule import (
    CRITICAL,
    NOTICE,
    TRACED,
    WARNING,
    Fact,
    Finding,
    Rule,
    Severity,
    Step,
    Threshold,
    Thresholds,
    Where,
    duration_facts,
    longest_fact,
    short_text,
    threads,
    within,
)
from latmon.model.frame import Wait, comm_of, pid_of, priority_of
from latmon.model.histogram import Histogram
from latmon.model.measurements.wakeups import Wakeups
from latmon.support.host import REAL_TIME, policy_text
from latmon.support.units import part, spelled

ID = "late-resume"
STAGE = "resume"
_REFUTED = (
    "wake-ups of that thread (screen 5) that are short while the program is slow: then it waits for something else"
)


class _LateProgram(NamedTuple):
    """The thread of a program that ran late, with what is known of it."""

    name: str
    number: int
    wait: Wait | None
    """Its longest recorded wait."""
    instead: Instead


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield one finding per device."""
    for device in facts.busy:
        resumes = facts.stage_with_longest(STAGE, device)
        late = count_from(resumes, limits["delay_us"])
        if late >= limits["ios"] and _lasts(facts, device, resumes, limits):
            share = _share(facts, device, resumes)
            if share >= limits["share"] and _is_harm(facts, device, late, resumes, limits):
                yield _finding(facts, device, late, share, limits)


def _is_harm(facts: Facts, device: str, late: int, resumes: Histogram, limits: Thresholds) -> bool:
    """Return whether a good part of the waiters is late, or a real-time program keeps them from their CPU."""
    if late >= limits["often"] * resumes.count:
        return True
    program = _thread(facts, device, limits["delay_us"])
    return program is not None and _is_kept_away(program)


def _lasts(facts: Facts, device: str, resumes: Histogram, limits: Thresholds) -> bool:
    is_long = (resumes.max_bound or 0) >= limits["long_us"]
    return is_long or blocks_with(facts, device, STAGE, limits["delay_us"]) >= limits["blocks"]


def _share(facts: Facts, device: str, resumes: Histogram) -> float:
    """Return the share of `resume` in the time from the requests' begin until their waiters run; 0: not known."""
    total_us = facts.traced_stage("total", device).sum
    resume_us = resumes.sum
    if total_us is None or not resume_us:
        return 0.0
    return resume_us / (resume_us + total_us)


def _thread(facts: Facts, device: str, delay_us: float) -> _LateProgram | None:
    """Return the thread with most late wake-ups of the recorded I/Os, else the latest thread of a program."""
    recorded = [wait for outlier in facts.outliers(device) for wait in outlier.waits if wait.stage == STAGE]
    waits = [wait for wait in recorded if wait.delay_us >= delay_us]
    rows = [woken for woken in facts.wakeups if not woken.thread.kernel]
    if waits:
        number = Counter(wait.pid for wait in waits).most_common(1)[0][0]
        own = [wait for wait in waits if wait.pid == number]
        longest = max(own, key=lambda wait: wait.delay_us)
        instead = ran_instead((woken for woken in rows if woken.thread.pid == number), own)
        return _LateProgram(longest.thread, number, longest, instead)
    late = [woken for woken in rows if (woken.delay.max_bound or 0) >= delay_us]
    latest = max(late, key=_lateness, default=None)
    if latest is None:
        return None
    return _LateProgram(latest.thread.comm, latest.thread.pid, None, ran_instead((latest,), ()))


def _lateness(woken: Wakeups) -> tuple[int, int]:
    return woken.delay.max_bound or 0, woken.thread.pid


def _finding(facts: Facts, device: str, late: int, share: float, limits: Thresholds) -> Finding:
    resumes = facts.stage_with_longest(STAGE, device)
    program = _thread(facts, device, limits["delay_us"])
    longest = next((io for io in facts.outliers(device) if io.stages_us.get(STAGE) == resumes.max), None)
    return Finding(
        id=ID,
        severity=_severity(resumes, program, limits),
        device=device,
        summary=_summary(device, late, resumes, program),
        facts=tuple(_facts(facts, device, late, share, program)),
        where=Where("stages", device),
        steps=tuple(_steps(facts, program)),
        refuted_by=_REFUTED,
        share=share,
        short=short_text(
            device,
            f"{within(program.name if program and program.name else 'programs')} ran up to "
            f"{spelled(resumes.max_bound or 0)} after an I/O's end",
            *_short_cause(program),
        ),
        at=None if longest is None else facts.moment(longest.mono_us + longest.total_us),
        peak_us=resumes.max_bound or 0,
    )


def _severity(resumes: Histogram, program: _LateProgram | None, limits: Thresholds) -> Severity:
    if program is None or not _is_kept_away(program):
        return NOTICE
    return CRITICAL if (resumes.max_bound or 0) >= limits["critical_us"] else WARNING


def _is_kept_away(program: _LateProgram) -> bool:
    """Return whether a real-time program had its CPU for most of the time."""
    return program.instead.is_most and 0 <= priority_of(program.instead.label) < REAL_TIME


def _is_ordinary(program: _LateProgram) -> bool:
    """Return whether what had its CPU is known to have no real-time priority."""
    return bool(program.instead.us) and priority_of(program.instead.label) >= REAL_TIME


def _short_cause(program: _LateProgram | None) -> Iterator[str]:
    """Yield the cause as clauses of the short text."""
    if program is None:
        return
    if _is_ordinary(program):
        yield ": the CPUs are busy"
    elif program.instead.us:
        yield f": {within(program.instead.name)} had its CPU"


def _summary(device: str, late: int, resumes: Histogram, program: _LateProgram | None) -> str:
    name = program.name if program else ""
    who, waited = (name, "it waited") if name else ("programs", "they waited")
    late_us = spelled(resumes.max_bound or 0)
    begin = f"{device}: {who} ran up to {late_us} after the completion of {late:,} I/Os that {waited} for"
    if program is None:
        return begin
    if _is_ordinary(program):
        return f"{begin}: the CPUs are busy with programs of ordinary priority, {program.instead.who.rstrip(',')}"
    where = "" if program.wait is None or program.wait.cpu is None else f", on CPU {program.wait.cpu}"
    if program.instead.us:
        return f"{begin}{where}: {program.instead.who} had its CPU"
    return f"{begin}{where}" + (f", after {program.instead.label}" if program.instead.label else "")


def _facts(facts: Facts, device: str, late: int, share: float, program: _LateProgram | None) -> Iterator[Fact]:
    resumes = facts.stage_with_longest(STAGE, device)
    yield Fact("late", late, f"{late:,} of {resumes.count:,} waiters ran late", "ios", resumes.count)
    text = f"{part(share)} of the time until they ran was after the completion"
    yield Fact("resume_share", round(share, 3), text, "share", resumes.count)
    yield from longest_fact("resume_max", resumes, "the latest ran {} after it")
    yield from duration_facts(
        ("io_mean", facts.traced_stage("total", device).mean, "the I/Os took {} on average", resumes.count)
    )
    if program is None:
        return
    if program.wait is not None:
        if policy := policy_text(program.wait.policy, program.wait.priority):
            yield Fact("policy", policy, f"the policy of {program.name} is {policy}")
        if program.wait.cpu is not None:
            yield Fact("cpu", program.wait.cpu, f"it waited longest for CPU {program.wait.cpu}")
    if program.instead.label:
        yield program.instead.fact


def _steps(facts: Facts, program: _LateProgram | None) -> Iterator[Step]:
    by = program.instead.label if program and program.instead.us else ""
    if program and _is_ordinary(program):
        yield Step(
            "see which programs use the CPUs, and whether the host is meant to be this busy: run them at other times, "
            "with a higher nice value, or on more CPUs; no faster disk helps",
            commands=(threads("", is_sun=facts.is_sun),),
        )
        return
    yield what_keeps_the_cpu(by, is_sun=facts.is_sun)
    if facts.is_sun or program is None:
        return
    yield Step(
        f"let {program.name or 'the program'} run on other CPUs, or move what runs instead",
        "caches of the CPU are lost; undone by the old list of CPUs",
        (f"taskset -cp CPUS {pid_of(program.number) or 'TID'}",),
    )
    if 0 <= priority_of(by) < REAL_TIME:
        yield Step(
            f"else run {comm_of(by)} without real-time priority",
            "it may miss its deadlines; undone by chrt with its old policy and priority",
            ("chrt -o -p 0 TID",),
        )


RULE = Rule(
    ID,
    "programs run late after the I/O that they waited for has completed",
    evaluate,
    needs=TRACED,
    explained_by=("completion-wakeup", "cpu-throttled", "cpu-starved"),
    thresholds={
        "delay_us": Threshold(10_000, "us", "from which on a waiter is late"),
        "ios": Threshold(10, "ios", "with such a waiter at least"),
        "share": Threshold(0.5, "share", "of the time until the waiters run is after the completion"),
        "often": Threshold(0.05, "share", "of the waiters are late, where no real-time program keeps the CPU"),
        "long_us": Threshold(100_000, "us", "one such wait is enough"),
        "blocks": Threshold(3, "blocks", "of a minute with a late waiter, where none is so long"),
        "critical_us": Threshold(500_000, "us", "a wait of this makes it critical"),
    },
)
