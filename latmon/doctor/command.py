"""`latmon doctor`: what works on this host, what does not, why, and the command that fixes it.

Owns the order of the checks and both outputs. A check never changes the host. Must not import a backend: the registry
does that for the check of the tier.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from latmon import __version__
from latmon.capture.backend import ProbeReport
from latmon.doctor import checks as doctor_checks
from latmon.doctor import dtrace, tier
from latmon.doctor.checks import Check, Place, Status
from latmon.doctor.selftest import SelfTest, Verdict
from latmon.support import host
from latmon.support.errors import EXIT_DONE, EXIT_FAILED, EXIT_UNAVAILABLE
from latmon.support.text import clean

MARKS = {Verdict.OK: "ok", Verdict.FAILED: "FAILED", Verdict.UNMEASURED: "-"}


def say(text: str) -> None:
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
_OTHERS: tuple[Callable[[Place], Check], ...] = (dtrace.tool, dtrace.privilege, doctor_checks.diskstats)
_MARKS = {Status.OK: "ok", Status.DEGRADED: "degraded", Status.MISSING: "MISSING"}


def all_checks(here: Place, explained: ProbeReport) -> list[Check]:
    """Return every check, in the order of their lines."""
    host_s = (check(here) for check in _of(here))
    return [
        *(doctor_checks.python(here), *doctor_checks.packages(here), *host_s),
        *(doctor_checks.terminal(here), tier.tier(explained)),
    ]


def _of(here: Place) -> tuple[Callable[[Place], Check], ...]:
    """Return the checks of this system; on Linux bpftrace is checked, and dtrace only where it is installed."""
    if here.platform == "linux":
        return (doctor_checks.bpftrace, *((dtrace.tool,) if dtrace.is_there(here) else ()), *_LINUX)
    if here.platform.startswith("sunos"):
        return (*_OTHERS, dtrace.zone)
    return (*_OTHERS, *((dtrace.modules,) if here.platform.startswith("freebsd") else ()))


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
    if stages := tier.matrix(explained):
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
    if stages := tier.as_values(explained):
        whole |= {"stages": stages, "hooks": {name: list(hooks) for name, hooks in explained.hooks.items()}}
        whole |= {"drivers": dict(explained.drivers), "in_flight": tier.in_flight(explained)}
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
    explained = tier.report(here, backend=backend)
    found = [*all_checks(here, explained), *tier.beside(here, explained)]
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
