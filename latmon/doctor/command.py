"""`latmon doctor`: what works on this host, what does not, why, the command that fixes it; `latmon probes`.

Owns the order of the checks, the tier with its matrix of stages, and both outputs. A check never changes the host.
Must not import a backend: the registry does that for the check of the tier.

`latmon probes` prints purpose, requirements and cost of each probe, from the manifests; it runs nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, cast

from latmon import __version__
from latmon.capture import registry
from latmon.capture.backend import NO, MeasuresCost, ProbeCost, ProbeReport
from latmon.capture.registry import Request
from latmon.doctor import checks as doctor_checks
from latmon.doctor.checks import Check, Place, Status
from latmon.manifest import Manifest, load_all
from latmon.model.frame import TRACER_STARTING, Frame
from latmon.model.stages import called
from latmon.support import host, trust
from latmon.support.emphasis import print_text
from latmon.support.errors import EXIT_DONE, EXIT_FAILED, EXIT_UNAVAILABLE, LatmonError, UnavailableError, UsageError
from latmon.support.paths import data_dir
from latmon.support.streams import message, terminal_size
from latmon.support.text import aligned, clean

OVERHEAD_S = 5.0
_STARTS_S = 90.0
"""Time for the tracer's start: bpftrace 0.17 compiles it for up to a minute on a busy host."""
MAX_CHARS = 400
SCHEMA = "latmon.doctor/1"
_LINUX: tuple[Callable[[Place], Check], ...] = (
    doctor_checks.privilege,
    doctor_checks.diskstats,
    doctor_checks.iostats,
    doctor_checks.btf,
    doctor_checks.tracefs,
    doctor_checks.kprobes,
    doctor_checks.jit,
    doctor_checks.lockdown,
    doctor_checks.tick,
    doctor_checks.container,
)
_OTHERS: tuple[Callable[[Place], Check], ...] = (
    doctor_checks.dtrace_tool,
    doctor_checks.dtrace_privilege,
    doctor_checks.diskstats,
)
_MARKS = {Status.OK: "ok", Status.REMARK: "remark", Status.DEGRADED: "degraded", Status.MISSING: "MISSING"}
_EXPLAIN = {
    "bpftrace": "latmon_backends.bpftrace.backend:explain",
    "dtrace": "latmon_backends.dtrace.backend:explain",
}
_YES = "yes"
_NEWER = "for tier A install a newer bpftrace; LATMON_BPFTRACE=PATH names one beside the system's"
_NONE = ("", "D")
"""Tiers without a probe."""
_BEST = "A"
_TIERS_OF = {"A": "A", "A'": "A", "B": "C", "C": "C"}
"""Tier of bpftrace's always-on probe -> that of its tracer."""
_TIERS = frozenset(_TIERS_OF.values())
Load = Callable[[str, str], Callable[..., object]]
_TABLES = {
    "handler_run": "run time of each interrupt handler, by what it returned",
    "handler_before": "how long other handlers of its vector ran first",
    "softirq_delay": "raise to entry of each softirq vector, by CPU",
    "softirq_run": "run time of each softirq vector, by CPU",
    "wakeup": "waking to running of threads",
    "depth_driver": "number of requests in the driver and of those waiting, over time",
    "depth_issue": "number of requests in the driver when one is issued",
    "depth_time": "latency of a request by the device's depth at its arrival",
    "cgroup": "each total by cgroup, with bytes",
    "process": "I/Os of each process, with bytes",
    "behind": "cgroups that a device serves while I/Os of another one are in flight",
    "size_latency": "latency by the size of an I/O",
    "pattern": "I/Os that were sequential, read ahead, flagged SYNC, not aligned to a physical block",
    "file": "operations on files by file system, and what their threads waited for",
    "journal_commits": "commits of a journal with the time of each phase",
    "sync_syncs": "syncs of each process, and how long it waited for them",
    "xfs_log_writes": "writes of an xfs log, with their time, and waits for room in it",
    "failed_ios": "I/Os that failed, by their status",
    "dirtier_paused_us": "pauses of each process that dirties pages",
}
"""Role of a map that is not a stage -> its meaning."""
_REPORTED = {
    "issue": "bursts of neighbours as they go to the driver",
    "waiting": "requests that have not completed, the oldest of them",
    "slow": "each I/O above the threshold, within the rate limit",
    "resumed": "the thread that waited for a slow I/O, and the time until it ran again",
    "late": "wake-ups of 1 ms and more",
    "file": "each slow operation on a file with its path, within the rate limit",
    "limit": "limits of each device in its driver",
}


def print_progress(text: str, what: str = "self-test") -> None:
    """Print progress to stderr."""
    message(f"{what}: {text}", 300)


class Verdict(StrEnum):
    """Result of one check; `unmeasured` where no probe measures it on this host."""

    OK = "ok"
    FAILED = "failed"
    UNMEASURED = "unmeasured"


@dataclass(frozen=True, slots=True)
class PanelCheck:
    """One check: the panel's name, the verdict, and the panel's value beside the real one."""

    name: str
    verdict: Verdict
    what: str


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The result of the self-test; `refused` is the reason why it can't run here, and then there are no checks."""

    refused: str = ""
    device: str = ""
    measured_with: str = ""
    checks: tuple[PanelCheck, ...] = ()

    @property
    def passed(self) -> bool:
        """Return whether it ran and no panel showed a wrong value."""
        return not self.refused and all(panel_check.verdict is not Verdict.FAILED for panel_check in self.checks)


MARKS = {Verdict.OK: "ok", Verdict.FAILED: "FAILED", Verdict.UNMEASURED: "-"}


def lines(self_test: SelfTest) -> list[str]:
    """Return the self-test's report: one line per check, then the result."""
    if self_test.refused:
        return [f"self-test  MISSING   {self_test.refused}"]
    width = max(len(panel_check.name) for panel_check in self_test.checks)
    failed = sum(panel_check.verdict is Verdict.FAILED for panel_check in self_test.checks)
    missing = sum(panel_check.verdict is Verdict.UNMEASURED for panel_check in self_test.checks)
    not_here = f"; {missing} could not be checked" if missing else ""
    ending = f"self-test: {failed} of {len(self_test.checks)} checks FAILED" if failed else "self-test: passed"
    return [
        f"self-test on {self_test.device} with {self_test.measured_with}",
        *(
            f"{panel_check.name:<{width}}  {MARKS[panel_check.verdict]:<8}  {panel_check.what}"
            for panel_check in self_test.checks
        ),
        f"{ending}{not_here}.",
    ]


def values(self_test: SelfTest) -> dict[str, Any]:
    """Return the self-test's result for JSON."""
    if self_test.refused:
        return {"ran": False, "refused": self_test.refused}
    checks = [
        {"name": panel_check.name, "status": panel_check.verdict.value, "what": panel_check.what}
        for panel_check in self_test.checks
    ]
    return {
        "ran": True,
        "passed": self_test.passed,
        "device": self_test.device,
        "measured_with": self_test.measured_with,
        "checks": checks,
    }


def exit_code(self_test: SelfTest) -> int:
    """Return 3 where the self-test can't run, 1 where a check failed, else 0."""
    if self_test.refused:
        return EXIT_UNAVAILABLE
    return EXIT_DONE if self_test.passed else EXIT_FAILED


@dataclass(frozen=True, slots=True)
class Overhead:
    """Holds what latmon costs on this host; `refused` is why that can't be measured, and then the rest is empty."""

    refused: str = ""
    measured_with: str = ""
    alone: tuple[ProbeCost, ...] = ()
    """Without stages."""
    traced: tuple[ProbeCost, ...] = ()
    """With stages of all devices; empty where no tracer runs."""
    untraced: str = ""
    """Why no tracer runs."""


def measure_overhead(request: Request, progress: Callable[[str], None], seconds: float = OVERHEAD_S) -> Overhead:
    """Measure the cost of the probes for the I/O that the host has now, first without stages, then with those of all.

    `request` names the backend and the tools. It makes no I/O of its own.
    """
    if sys.platform == "linux" and os.geteuid() != 0:
        return Overhead("only root can read the run time of probes: sudo latmon doctor --overhead")
    try:
        return asyncio.run(_overhead(request, progress, seconds))
    except UnavailableError as refusal:
        return Overhead(str(refusal))


async def _overhead(request: Request, progress: Callable[[str], None], seconds: float) -> Overhead:
    progress("starting the probes; an old bpftrace takes up to a minute, on a loaded host several")
    async with registry.opened(request) as backend:
        origin = backend.origin
        if not isinstance(backend, MeasuresCost):
            raise UnavailableError(
                f"{origin.backend} has no probes whose cost could be measured. {origin.reason}".strip()
            )
        frames = backend.frames()
        progress(f"measuring {origin.tool} for {seconds:.0f} s")
        alone = await backend.cost(frames, seconds)
        backend.set_stages("all")
        progress("starting the tracer")
        traced: tuple[ProbeCost, ...] = ()
        if not (why := await _untraced(frames)):
            progress(f"measuring with stages for {seconds:.0f} s")
            traced = await backend.cost(frames, seconds)
        return Overhead("", f"{origin.tool}{f', tier {origin.tier}' if origin.tier else ''}", alone, traced, why)


async def _untraced(frames: AsyncIterator[Frame]) -> str:
    """Wait until stages are traced; return the reason where they are not."""
    deadline = time.monotonic() + _STARTS_S
    why = "the probes ended"
    async for frame in frames:
        if frame.traced.one_in:
            return ""
        why = next((missing.reason for missing in frame.traced.absent), "no script of the tracer runs here")
        if time.monotonic() > deadline or not (why.startswith(TRACER_STARTING) or not frame.traced.absent):
            break
    return why


def overhead_lines(overhead: Overhead) -> list[str]:
    """Return the report on the cost: a table, then what its columns mean."""
    if overhead.refused:
        return [f"overhead  MISSING   {overhead.refused}"]
    head = ["percent of one CPU", "I/Os/s", "ns/IO", "programs", "calls", "process", "sum"]
    rows = [head, ["without stages:", *[""] * 6], *map(_cost_row, overhead.alone)]
    if overhead.traced:
        rows += [["with stages of all devices:", *[""] * 6], *map(_cost_row, overhead.traced)]
    return [
        f"overhead of {overhead.measured_with}, for the I/O of this host now, {os.cpu_count()} CPUs",
        *aligned(rows),
        *([f"with stages: not measured: {overhead.untraced}"] if overhead.untraced else []),
        *(
            []
            if all(probe_cost.ios for probe_cost in overhead.alone)
            else ["ns/IO is not known: no I/O was completed meanwhile"]
        ),
        "programs: run time of a probe's programs, as the kernel counts it; ns/IO: this",
        "time for each completed I/O, the tracer's also that for interrupts and context",
        "switches. calls: an estimate of the time to call programs, which the kernel does",
        "not count. process: CPU time of the tool, and of latmon to read it and to make",
        "frames, without a screen and a recording. Not included: what the probes delay",
        "elsewhere, such as by cache misses.",
    ]


def _cost_row(cost: ProbeCost) -> list[str]:
    programs = "-" if cost.run_ns is None else f"{cost.percent(cost.run_ns):.2f}"
    calls = "-" if cost.runs is None else f"{cost.percent(cost.calls_ns):.2f}"
    sample = f", one I/O in {cost.one_in}" if cost.one_in > 1 else ""
    return [
        f"  {cost.name}{sample}",
        f"{cost.ios / cost.seconds:,.0f}",
        "-" if cost.ns_per_io is None else f"{cost.ns_per_io:,.0f}",
        programs,
        calls,
        f"{cost.percent(cost.cpu_ns):.2f}",
        f"{cost.percent((cost.run_ns or 0) + cost.calls_ns + cost.cpu_ns):.2f}",
    ]


def overhead_values(overhead: Overhead) -> dict[str, Any]:
    """Return the cost for JSON; times in ns, null where not known."""
    if overhead.refused:
        return {"measured": False, "refused": overhead.refused}
    return {
        "measured": True,
        "measured_with": overhead.measured_with,
        "cpus": os.cpu_count(),
        "without_stages": [asdict(probe_cost) for probe_cost in overhead.alone],
        "with_stages": [asdict(probe_cost) for probe_cost in overhead.traced],
        **({"untraced": overhead.untraced} if overhead.untraced else {}),
    }


def all_checks(place: Place, explained: ProbeReport) -> list[Check]:
    """Return every check, in the order of their lines."""
    host_s = (check(place) for check in _of(place))
    return [
        *(doctor_checks.python(place), *doctor_checks.packages(place), *host_s),
        *(doctor_checks.terminal(place), tier_check(explained)),
        *((Check("probe cache", Status.OK, explained.kept),) if explained.kept else ()),
    ]


def _of(place: Place) -> tuple[Callable[[Place], Check], ...]:
    """Return the checks of this system; on Linux bpftrace is checked, and dtrace only where it is installed."""
    if place.platform == "linux":
        return (
            doctor_checks.bpftrace,
            *((doctor_checks.dtrace_tool,) if doctor_checks.has_dtrace(place) else ()),
            *_LINUX,
        )
    if place.platform.startswith("sunos"):
        return (*_OTHERS, doctor_checks.dtrace_zone)
    return (*_OTHERS, *((doctor_checks.dtrace_modules,) if place.platform.startswith("freebsd") else ()))


def usable(checks: Sequence[Check]) -> bool:
    """Return whether some backend can measure: a tier above D, or the kernel's counters."""
    status = {check.name: check.status for check in checks}
    needed = status["python"] is not Status.MISSING
    return needed and (status["tier"] in (Status.OK, Status.REMARK) or status["diskstats"] is not Status.MISSING)


def render_text(checks: Sequence[Check], explained: ProbeReport, columns: int = 0) -> str:
    """Return the verdict, one line per check with its remedy below it, then the matrix of stages.

    `columns`: the lines are folded at this width; 0: they are not.
    """
    width = max(len(check.name) for check in checks)
    lines = [_verdict(checks), f"latmon {__version__} on {host.name()}, {host.kernel()}"]
    for check in checks:
        lines.append(f"{check.name:<{width}}  {_MARKS[check.status]:<8}  {check.what}")
        if check.remedy:
            lines.append(f"{'':<{width}}  {'':<8}  -> {check.remedy}")
    lines = [part for line in lines for part in _folded(line, width + 12, columns)]
    if stages := matrix(explained):
        lines += ["", *(part for line in stages for part in _folded(line, 2, columns))]
    return "\n".join(lines)


def _verdict(checks: Sequence[Check]) -> str:
    """Return whether latmon can measure here, and which checks have something to improve."""
    if not usable(checks):
        return "latmon can't measure here; `latmon demo` still runs."
    others = [check.name for check in checks if check.status is not Status.OK and check.remedy]
    return f"latmon can measure here; to improve: {', '.join(others)}." if others else "latmon can measure here."


def _folded(line: str, indent: int, columns: int) -> list[str]:
    if not columns or len(line) <= columns:
        return [line]
    return textwrap.wrap(line, columns, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def render_json(
    checks: Sequence[Check],
    explained: ProbeReport,
    tested: SelfTest | None = None,
    overhead: Overhead | None = None,
) -> str:
    """Return the report as JSON; `remedy` is absent without one, `self_test` and `overhead` if not requested."""
    listed = [
        {"name": check.name, "status": check.status.value, "what": check.what}
        | ({"remedy": check.remedy} if check.remedy else {})
        for check in checks
    ]
    document = {"schema": SCHEMA, "latmon": __version__, "usable": usable(checks), "checks": listed}
    if stages := as_values(explained):
        document |= {"stages": stages, "hooks": {name: list(hooks) for name, hooks in explained.hooks.items()}}
        document |= {"drivers": dict(explained.drivers), "in_flight": in_flight(explained)}
    if tested is not None:
        document["self_test"] = values(tested)
    if overhead is not None:
        document["overhead"] = overhead_values(overhead)
    return json.dumps(document, indent=2)


def doctor_command(
    as_json: bool,
    backend: str = "",
    *,
    test: Callable[[], SelfTest] | None = None,
    ignored: str = "",
    measure: Callable[[], Overhead] | None = None,
    tools: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Print the report; return 0 when latmon can measure here, else 3.

    `backend` is the requested one. `test` runs the self-test, `measure` measures the cost: the exit code is then that
    of this. `ignored` is the sentence on ignored keys of the config, `tools` has its paths of tools by variable.
    """
    place = Place(environ=trust.with_tools(tools))
    explained = report(place, backend=backend)
    checks = [*all_checks(place, explained), *beside(place, explained)]
    checks += [Check("config", Status.DEGRADED, clean(ignored, MAX_CHARS))] if ignored else []
    if not as_json:
        columns = terminal_size(sys.stdout).columns if sys.stdout.isatty() else 0
        print_text(lambda: render_text(checks, explained, columns) + "\n")
        sys.stdout.flush()
    tested = test() if test is not None else None
    overhead = measure() if measure is not None else None
    if as_json:
        print(render_json(checks, explained, tested, overhead))
    elif tested is not None:
        print("\n".join(["", *lines(tested)]))
    elif overhead is not None:
        print("\n".join(["", *overhead_lines(overhead)]))
    if tested is not None:
        return exit_code(tested)
    if overhead is not None:
        return EXIT_UNAVAILABLE if overhead.refused else EXIT_DONE
    return EXIT_DONE if usable(checks) else EXIT_UNAVAILABLE


def report(place: Place, load: Load = registry.load_target, backend: str = "") -> ProbeReport:
    """Return the explanation of the backend that latmon would use here; backends find out by trying.

    `backend` is the one that the user or the config selects.
    """
    if place.platform != "linux" or backend == "dtrace":
        return _asked("dtrace", load, place)
    probe_report = _asked("bpftrace", load, place)
    if probe_report.tier in _NONE and doctor_checks.has_dtrace(place):
        other = _asked("dtrace", load, place, reason=probe_report.why)
        return probe_report if other.tier in _NONE else other
    return probe_report


def _asked(backend: str, load: Load, place: Place, **why: str) -> ProbeReport:
    try:
        return cast("Callable[..., ProbeReport]", load(backend, _EXPLAIN[backend]))(place.environ, **why)
    except LatmonError as error:
        return ProbeReport("", str(error))


def tier_check(probe_report: ProbeReport) -> Check:
    """Return the tier as a check."""
    if probe_report.tier in _NONE:
        return Check("tier", Status.DEGRADED, f"D, the kernel's counters only: {probe_report.why}")
    why = probe_report.why.removeprefix(f"tier {probe_report.tier}, ")
    what = f"{probe_report.tier}, {why}" if why else probe_report.tier
    lacking = _lacking(probe_report)
    if not lacking:
        return Check("tier", Status.OK, what)
    newer = _NEWER if "needs bpftrace" in why else ""
    return Check("tier", Status.REMARK, f"{what}; not measured: {', '.join(lacking)}", newer)


def _lacking(probe_report: ProbeReport) -> list[str]:
    """Return what the best tier's tracer measures and that of the host's tier does not."""
    tracer = _TIERS_OF.get(probe_report.tier, probe_report.tier)

    def is_measured(by_tier: Mapping[str, str], tier: str) -> bool:
        return tier in by_tier and not by_tier[tier].startswith(NO)

    stages = [
        coverage.stage
        for coverage in probe_report.stages
        if is_measured(coverage.traced, _BEST)
        and not is_measured(coverage.traced, tracer)
        and coverage.always.startswith(NO)
    ]
    with_ages = is_measured(probe_report.ages, _BEST) and not is_measured(probe_report.ages, tracer)
    return [*stages, *(["exact ages of I/Os in flight"] if with_ages else [])]


def beside(place: Place, probe_report: ProbeReport, load: Load = registry.load_target) -> tuple[Check, ...]:
    """Check the tier of `--backend dtrace` where bpftrace measures and the user named a dtrace."""
    asked = any("dtrace" in coverage.traced for coverage in probe_report.stages)
    if (
        place.platform != "linux"
        or not place.environ.get(doctor_checks.DTRACE_VARIABLE)
        or asked
        or probe_report.tier in _NONE
    ):
        return ()
    other = _asked("dtrace", load, place)
    if other.tier in _NONE:
        return (Check("dtrace tier", Status.DEGRADED, f"--backend dtrace measures nothing here: {other.why}"),)
    return (Check("dtrace tier", Status.OK, f"{other.tier} with --backend dtrace: {other.why}"),)


def matrix(probe_report: ProbeReport) -> list[str]:
    """Return the lines of the stage matrix, then what they include, the reasons for missing ones, and the drivers."""
    if not probe_report.stages:
        return []
    tiers = tuple(probe_report.stages[0].traced)
    head = [
        "stage",
        "always",
        *(_title(name) + " (here)" * (name == _here(probe_report)) for name in tiers),
    ]
    rows = [
        head,
        *(
            [coverage.stage, _cell(coverage.always), *(_cell(coverage.traced[name]) for name in tiers)]
            for coverage in probe_report.stages
        ),
    ]
    inside = [
        f"{coverage.stage} always: {text}"
        for coverage in probe_report.stages
        if (text := _measured_as(coverage.always))
    ]
    drivers = [f"{name} completes: {how}" for name, how in probe_report.drivers.items()]
    return [*aligned(rows), *inside, *_reasons(probe_report), f"in flight: {in_flight(probe_report)}", *drivers]


def in_flight(probe_report: ProbeReport) -> str:
    """Return a sentence on the ages of I/Os in flight."""
    reported = probe_report.ages.get(_here(probe_report), f"{NO}no script of the tracer runs here")
    if reported.startswith(NO):
        return f'ages are "at least", the waiting threads are not known: {reported.removeprefix(NO)}'
    return f'each I/O\'s age and its issuer, while the tracer runs ({reported}); else ages are "at least"'


def as_values(probe_report: ProbeReport) -> list[dict[str, Any]]:
    """Return the stage matrix for JSON."""
    return [
        {
            "stage": coverage.stage,
            "always": coverage.always,
            "traced": dict(coverage.traced),
            "here": _here(probe_report),
        }
        for coverage in probe_report.stages
    ]


def _cell(text: str) -> str:
    return "-" if text.startswith(NO) else _YES if _measured_as(text) else text


def _measured_as(text: str) -> str:
    """Return what follows the `yes` of a stage: its interval, and the stages in it."""
    return text.removeprefix(_YES).lstrip(", ") if text.startswith(_YES) else ""


def _reasons(probe_report: ProbeReport) -> list[str]:
    """Return each reason why stages are not traced on this host, with its stages."""
    reasons_here = _here(probe_report)
    reasons: dict[str, list[str]] = {}
    for coverage in probe_report.stages:
        if reasons_here and coverage.traced.get(reasons_here, "").startswith(NO):
            reasons.setdefault(f"not traced: {coverage.traced[reasons_here].removeprefix(NO)}", []).append(
                coverage.stage
            )
    return [f"{', '.join(stages)} {why}" for why, stages in reasons.items()]


def _title(name: str) -> str:
    return f"traced, tier {name}" if name in _TIERS else f"traced, {name}"


def _here(probe_report: ProbeReport) -> str:
    """Return the key in `traced` of this host's tracer; empty without one."""
    names = tuple(probe_report.stages[0].traced) if probe_report.stages else ()
    if probe_report.tier in _NONE:
        return ""
    return _TIERS_OF.get(probe_report.tier, "") if not names or names[0] in _TIERS else names[0]


def list_probes() -> int:
    """Print one line per probe; return the exit code."""
    manifests = load_all(data_dir("probes"))
    rows = [(manifest.name, manifest.platform, manifest.cost, manifest.purpose) for manifest in manifests]
    print("\n".join(aligned(rows)))
    return EXIT_DONE


def show_probe(name: str | None) -> int:
    """Print a probe's manifest, or those of a group; return the exit code. Raises UsageError for an unknown name."""
    manifests = load_all(data_dir("probes"))
    found_manifests = [manifest for manifest in manifests if manifest.name == name] or [
        manifest for manifest in manifests if name in _groups(manifest)
    ]
    if not found_manifests:
        wanted = f"there is no probe {name!r}" if name else "probes show needs a NAME"
        raise UsageError(f"{wanted}; the probes are {', '.join(manifest.name for manifest in manifests)}")
    print(
        "\n\n".join(
            "\n".join(f"{key:<9} {text}" for key, text in _probe_lines(manifest)) for manifest in found_manifests
        )
    )
    return EXIT_DONE


def _groups(probe: Manifest) -> tuple[str, str]:
    """Return the names that reports use for a missing probe: its group, and its name without the tier."""
    return probe.group, probe.name.removesuffix(f"_{probe.tier.lower()}")


def _probe_lines(probe: Manifest) -> list[tuple[str, str]]:
    lines = [
        ("name", probe.name),
        *([("group", probe.group)] if probe.group not in ("", probe.name) else []),
        ("purpose", probe.purpose),
        ("platform", f"{probe.platform}, {probe.tool}, tier {probe.tier}"),
        ("cost", probe.cost),
        *(("needs", need) for need in probe.requirements),
        *(("part of", f"{name}, in one program with it") for name in _partners(probe)),
        *(("measures", _measured(stage, probe)) for stage in _stages(probe)),
        *(("measures", what) for what in _tables(probe)),
        *(("reports", _REPORTED[kind]) for kind in probe.records if kind in _REPORTED),
        *(("absent", f"{stage}: {why}") for stage, why in probe.absent.items()),
        *(("note", note) for note in probe.notes),
        *(("source", source) for source in probe.sources),
        *(("has run", where) for where in _ran(probe)),
        ("script", str(probe.script)),
    ]
    keys = ["", *(key for key, _ in lines)]
    return [("" if key == before else key, text) for before, (key, text) in zip(keys, lines, strict=False)]


def _ran(probe: Manifest) -> tuple[str, ...]:
    """Return the systems on which a D script has run; bpftrace's run in the tests."""
    if probe.tool != "dtrace":
        return probe.ran_on
    return tuple(f"on {where}" for where in probe.ran_on) or ("nowhere yet",)


def _partners(probe: Manifest) -> tuple[str, ...]:
    """Return the probes of the same program that it needs; those in flight and of `trace` need that of the stages."""
    return probe.needs or (("stages_" + probe.tier.lower(),) if probe.group in ("inflight", "trace") else ())


def _stages(probe: Manifest) -> list[str]:
    return list(
        dict.fromkeys(stage for map_spec in probe.maps if map_spec.role == "histogram" for stage in map_spec.stages)
    )


def _tables(probe: Manifest) -> list[str]:
    roles = {map_spec.role for map_spec in probe.maps}
    return [what for role, what in _TABLES.items() if role in roles]


def _measured(stage: str, probe: Manifest) -> str:
    included = probe.includes.get(stage, ())
    return f"{called(stage, included).both}, with {', '.join(included)} in it" if included else stage
