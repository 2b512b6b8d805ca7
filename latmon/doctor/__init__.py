"""latmon doctor: what works on this host, what doesn't, why, and the command that mends it.

Owns the order of the checks and both outputs. A check never changes the host. Must not import a backend: the registry
does that, when the tier is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from latmon import __version__, host
from latmon.doctor import dtrace, kernel, privilege, self_tested, software, terminal, tier
from latmon.doctor.check import Check, Place, Status
from latmon.doctor.tier import TierReport
from latmon.errors import EXIT_DONE, EXIT_UNAVAILABLE
from latmon.self_test import SelfTest
from latmon.text import clean

MAX_CHARS = 400
SCHEMA = "latmon.doctor/1"
_LINUX: tuple[Callable[[Place], Check], ...] = (
    privilege.privilege,
    kernel.diskstats,
    kernel.iostats,
    kernel.btf,
    kernel.tracefs,
    kernel.kprobes,
    kernel.jit,
    kernel.lockdown,
    kernel.tick,
    kernel.container,
)
_OTHERS: tuple[Callable[[Place], Check], ...] = (dtrace.tool, dtrace.privilege, kernel.diskstats)
_MARKS = {Status.OK: "ok", Status.DEGRADED: "degraded", Status.MISSING: "MISSING"}


def checks(here: Place, explained: TierReport) -> list[Check]:
    """Every check, in the order in which a person would ask."""
    host_s = (check(here) for check in _of(here))
    return [
        *(software.python(here), *software.packages(here), *host_s),
        *(terminal.terminal(here), tier.tier(explained)),
    ]


def _of(here: Place) -> tuple[Callable[[Place], Check], ...]:
    """The checks of this system: on Linux bpftrace measures, and of dtrace a line is told where there is one."""
    if here.platform == "linux":
        return (software.bpftrace, *((dtrace.tool,) if dtrace.is_there(here) else ()), *_LINUX)
    if here.platform.startswith("sunos"):
        return (*_OTHERS, dtrace.zone)
    return (*_OTHERS, *((dtrace.modules,) if here.platform.startswith("freebsd") else ()))


def usable(found: Sequence[Check]) -> bool:
    """True when some backend can measure: a tier above D, or the kernel's counters."""
    status = {check.name: check.status for check in found}
    needed = status["python"] is not Status.MISSING
    return needed and (status["tier"] is Status.OK or status["diskstats"] is not Status.MISSING)


def render_text(found: Sequence[Check], explained: TierReport) -> str:
    """One line per check, its remedy indented below it; then what measures each stage."""
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


def render_json(found: Sequence[Check], explained: TierReport, tested: SelfTest | None = None) -> str:
    """The same for scripts; `remedy` is absent where there is nothing to do, `self_test` where none was asked for."""
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
        whole["self_test"] = self_tested.values(tested)
    return json.dumps(whole, indent=2)


def doctor_command(
    as_json: bool, backend: str = "", test: Callable[[], SelfTest] | None = None, ignored: str = ""
) -> int:
    """The command: prints, and exits 0 when latmon can measure here, 3 when it can't. `backend`: as it was asked for.

    `test`: the self-test, whose exit code counts instead. `ignored`: what of the config doesn't count, as a sentence.
    """
    here = Place()
    explained = tier.report(here, backend=backend)
    found = [*checks(here, explained), *tier.beside(here, explained)]
    found += [Check("config", Status.DEGRADED, clean(ignored, MAX_CHARS))] if ignored else []
    if not as_json:
        print(render_text(found, explained), flush=True)
    tested = test() if test is not None else None
    if as_json:
        print(render_json(found, explained, tested))
    elif tested is not None:
        print("\n".join(["", *self_tested.lines(tested)]))
    if tested is not None:
        return self_tested.exit_code(tested)
    return EXIT_DONE if usable(found) else EXIT_UNAVAILABLE
