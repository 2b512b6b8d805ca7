"""`latmon doctor`: what works on this host, what does not, why, and the command that fixes it.

Owns the order of the checks, the tier with its matrix of stages, and both outputs. A check never changes the host.
Must not import a backend: the registry does that for the check of the tier.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

from latmon import __version__
from latmon.capture import registry
from latmon.capture.backend import NO, ProbeReport
from latmon.doctor import checks as doctor_checks
from latmon.doctor.checks import Check, Place, Status
from latmon.doctor.selftest import SelfTest, Verdict
from latmon.support import host
from latmon.support.errors import EXIT_DONE, EXIT_FAILED, EXIT_UNAVAILABLE, LatmonError
from latmon.support.text import aligned, clean

MARKS = {Verdict.OK: "ok", Verdict.FAILED: "FAILED", Verdict.UNMEASURED: "-"}


def print_progress(text: str) -> None:
    """Print progress to stderr."""
    print(f"latmon: self-test: {clean(text, 300)}", file=sys.stderr, flush=True)


def lines(found: SelfTest) -> list[str]:
    """Return the self-test's report: one line per check, then the result."""
    if found.refused:
        return [f"self-test  MISSING   {found.refused}"]
    width = max(len(one.name) for one in found.checks)
    failed = sum(one.verdict is Verdict.FAILED for one in found.checks)
    missing = sum(one.verdict is Verdict.UNMEASURED for one in found.checks)
    not_here = f"; {missing} could not be checked" if missing else ""
    ending = f"self-test: {failed} of {len(found.checks)} checks FAILED" if failed else "self-test: passed"
    return [
        f"self-test on {found.device} with {found.measured_with}",
        *(f"{one.name:<{width}}  {MARKS[one.verdict]:<8}  {one.what}" for one in found.checks),
        f"{ending}{not_here}.",
    ]


def values(found: SelfTest) -> dict[str, Any]:
    """Return the self-test's result for JSON."""
    if found.refused:
        return {"ran": False, "refused": found.refused}
    checks = [{"name": one.name, "status": one.verdict.value, "what": one.what} for one in found.checks]
    return {
        "ran": True,
        "passed": found.passed,
        "device": found.device,
        "measured_with": found.measured_with,
        "checks": checks,
    }


def exit_code(found: SelfTest) -> int:
    """Return 3 where the self-test can't run, 1 where a check failed, else 0."""
    if found.refused:
        return EXIT_UNAVAILABLE
    return EXIT_DONE if found.passed else EXIT_FAILED


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
_MARKS = {Status.OK: "ok", Status.DEGRADED: "degraded", Status.MISSING: "MISSING"}


def all_checks(here: Place, explained: ProbeReport) -> list[Check]:
    """Return every check, in the order of their lines."""
    host_s = (check(here) for check in _of(here))
    return [
        *(doctor_checks.python(here), *doctor_checks.packages(here), *host_s),
        *(doctor_checks.terminal(here), tier_check(explained)),
        *((Check("probe cache", Status.OK, explained.kept),) if explained.kept else ()),
    ]


def _of(here: Place) -> tuple[Callable[[Place], Check], ...]:
    """Return the checks of this system; on Linux bpftrace is checked, and dtrace only where it is installed."""
    if here.platform == "linux":
        return (
            doctor_checks.bpftrace,
            *((doctor_checks.dtrace_tool,) if doctor_checks.has_dtrace(here) else ()),
            *_LINUX,
        )
    if here.platform.startswith("sunos"):
        return (*_OTHERS, doctor_checks.dtrace_zone)
    return (*_OTHERS, *((doctor_checks.dtrace_modules,) if here.platform.startswith("freebsd") else ()))


def usable(found: Sequence[Check]) -> bool:
    """Return whether some backend can measure: a tier above D, or the kernel's counters."""
    status = {check.name: check.status for check in found}
    needed = status["python"] is not Status.MISSING
    return needed and (status["tier"] is Status.OK or status["diskstats"] is not Status.MISSING)


def render_text(found: Sequence[Check], explained: ProbeReport) -> str:
    """Return one line per check with its remedy below it, then the matrix of stages."""
    width = max(len(check.name) for check in found)
    lines = [f"latmon {__version__} on {host.name()}, {host.kernel()}"]
    for check in found:
        lines.append(f"{check.name:<{width}}  {_MARKS[check.status]:<8}  {check.what}")
        if check.remedy:
            lines.append(f"{'':<{width}}  {'':<8}  -> {check.remedy}")
    if stages := matrix(explained):
        lines += ["", *stages, ""]
    lines.append(
        "latmon can measure here." if usable(found) else "latmon can't measure here; `latmon demo` still runs."
    )
    return "\n".join(lines)


def render_json(found: Sequence[Check], explained: ProbeReport, tested: SelfTest | None = None) -> str:
    """Return the report as JSON; `remedy` is absent without one, `self_test` where it was not requested."""
    listed = [
        {"name": check.name, "status": check.status.value, "what": check.what}
        | ({"remedy": check.remedy} if check.remedy else {})
        for check in found
    ]
    whole = {"schema": SCHEMA, "latmon": __version__, "usable": usable(found), "checks": listed}
    if stages := as_values(explained):
        whole |= {"stages": stages, "hooks": {name: list(hooks) for name, hooks in explained.hooks.items()}}
        whole |= {"drivers": dict(explained.drivers), "in_flight": in_flight(explained)}
    if tested is not None:
        whole["self_test"] = values(tested)
    return json.dumps(whole, indent=2)


def doctor_command(
    as_json: bool, backend: str = "", test: Callable[[], SelfTest] | None = None, ignored: str = ""
) -> int:
    """Print the report; return 0 when latmon can measure here, else 3.

    `backend` is the requested one. `test` runs the self-test, whose exit code is returned instead. `ignored` is the
    sentence on ignored keys of the config.
    """
    here = Place()
    explained = report(here, backend=backend)
    found = [*all_checks(here, explained), *beside(here, explained)]
    found += [Check("config", Status.DEGRADED, clean(ignored, MAX_CHARS))] if ignored else []
    if not as_json:
        print(render_text(found, explained), flush=True)
    tested = test() if test is not None else None
    if as_json:
        print(render_json(found, explained, tested))
    elif tested is not None:
        print("\n".join(["", *lines(tested)]))
    if tested is not None:
        return exit_code(tested)
    return EXIT_DONE if usable(found) else EXIT_UNAVAILABLE


_EXPLAIN = {
    "bpftrace": "latmon_backends.bpftrace.backend:explain",
    "dtrace": "latmon_backends.dtrace.backend:explain",
}
_NONE = ("", "D")
"""Tiers without a probe."""
_TIERS_OF = {"A": "A", "A'": "A", "B": "C", "C": "C"}
"""Tier of bpftrace's always-on probe -> that of its tracer."""
_TIERS = frozenset(_TIERS_OF.values())
Load = Callable[[str, str], Callable[..., object]]


def report(place: Place, load: Load = registry.load_target, backend: str = "") -> ProbeReport:
    """Return the explanation of the backend that latmon would use here; backends find out by trying.

    `backend` is the one that the user or the config selects.
    """
    if place.platform != "linux" or backend == "dtrace":
        return _asked("dtrace", load)
    found = _asked("bpftrace", load)
    if found.tier in _NONE and doctor_checks.has_dtrace(place):
        other = _asked("dtrace", load, reason=found.why)
        return found if other.tier in _NONE else other
    return found


def _asked(backend: str, load: Load, **why: str) -> ProbeReport:
    try:
        return cast("Callable[..., ProbeReport]", load(backend, _EXPLAIN[backend]))(**why)
    except LatmonError as error:
        return ProbeReport("", str(error))


def tier_check(found: ProbeReport) -> Check:
    """Return the tier as a check."""
    if found.tier in _NONE:
        return Check("tier", Status.DEGRADED, f"D, the kernel's counters only: {found.why}")
    return Check("tier", Status.OK, f"{found.tier}: {found.why}" if found.why else found.tier)


def beside(place: Place, found: ProbeReport, load: Load = registry.load_target) -> tuple[Check, ...]:
    """Check the tier of `--backend dtrace` where bpftrace measures and the user named a dtrace."""
    asked = any("dtrace" in one.traced for one in found.stages)
    if (
        place.platform != "linux"
        or not place.environ.get(doctor_checks.DTRACE_VARIABLE)
        or asked
        or found.tier in _NONE
    ):
        return ()
    other = _asked("dtrace", load)
    if other.tier in _NONE:
        return (Check("dtrace tier", Status.DEGRADED, f"--backend dtrace measures nothing here: {other.why}"),)
    return (Check("dtrace tier", Status.OK, f"{other.tier} with --backend dtrace: {other.why}"),)


def matrix(found: ProbeReport) -> list[str]:
    """Return the lines of the stage matrix, then the reasons for missing stages, the hooks and the drivers."""
    if not found.stages:
        return []
    tiers = tuple(found.stages[0].traced)
    head = [
        "stage",
        "always",
        *(_title(name) + " (here)" * (name == _here(found)) for name in tiers),
    ]
    rows = [
        head,
        *([one.stage, _cell(one.always), *(_cell(one.traced[name]) for name in tiers)] for one in found.stages),
    ]
    drivers = [f"{name} completes: {how}" for name, how in found.drivers.items()]
    return [*aligned(rows), *_reasons(found), f"in flight: {in_flight(found)}", *_hooks(found), *drivers]


def in_flight(found: ProbeReport) -> str:
    """Return a sentence on the ages of I/Os in flight."""
    reported = found.ages.get(_here(found), f"{NO}no script of the tracer runs here")
    if reported.startswith(NO):
        return f'ages are "at least", the waiting threads are not known: {reported.removeprefix(NO)}'
    return f'each I/O\'s age and its issuer, while the tracer runs ({reported}); else ages are "at least"'


def as_values(found: ProbeReport) -> list[dict[str, Any]]:
    """Return the stage matrix for JSON."""
    return [
        {"stage": one.stage, "always": one.always, "traced": dict(one.traced), "here": _here(found)}
        for one in found.stages
    ]


def _cell(text: str) -> str:
    return "-" if text.startswith(NO) else text


def _reasons(found: ProbeReport) -> list[str]:
    """Return each reason why stages are not traced on this host, with its stages."""
    here = _here(found)
    reasons: dict[str, list[str]] = {}
    for one in found.stages:
        if here and one.traced.get(here, "").startswith(NO):
            reasons.setdefault(f"not traced: {one.traced[here].removeprefix(NO)}", []).append(one.stage)
    return [f"{', '.join(stages)} {why}" for why, stages in reasons.items()]


def _hooks(found: ProbeReport) -> list[str]:
    """Return the hooks of this host's scripts; bpftrace's have their tier in their name."""
    here = _here(found)
    ending = f"_{here.lower()}" if here in _TIERS else ""
    return [f"{name} hooks {', '.join(hooks)}" for name, hooks in found.hooks.items() if here and name.endswith(ending)]


def _title(name: str) -> str:
    return f"traced, tier {name}" if name in _TIERS else f"traced, {name}"


def _here(found: ProbeReport) -> str:
    """Return the key in `traced` of this host's tracer; empty without one."""
    names = tuple(found.stages[0].traced) if found.stages else ()
    if found.tier in _NONE:
        return ""
    return _TIERS_OF.get(found.tier, "") if not names or names[0] in _TIERS else names[0]
