"""The self-test's lines and values beside the doctor's checks. Runs nothing; knows no device."""

from __future__ import annotations

import sys
from typing import Any

from latmon.errors import EXIT_DONE, EXIT_FAILED, EXIT_UNAVAILABLE
from latmon.self_test import SelfTest, Verdict
from latmon.text import clean

MARKS = {Verdict.OK: "ok", Verdict.FAILED: "FAILED", Verdict.UNMEASURED: "-"}


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"latmon: self-test: {clean(text, 300)}", file=sys.stderr, flush=True)


def lines(found: SelfTest) -> list[str]:
    """One per check, as those of the host; then what it comes to."""
    if found.refused:
        return [f"self-test  MISSING   {found.refused}"]
    width = max(len(one.name) for one in found.shown)
    failed = sum(one.verdict is Verdict.FAILED for one in found.shown)
    missing = sum(one.verdict is Verdict.UNMEASURED for one in found.shown)
    not_here = f"; {missing} could not be checked" if missing else ""
    ending = f"self-test: {failed} of {len(found.shown)} checks FAILED" if failed else "self-test: passed"
    return [
        f"self-test on {found.device} with {found.measured_with}",
        *(f"{one.name:<{width}}  {MARKS[one.verdict]:<8}  {one.what}" for one in found.shown),
        f"{ending}{not_here}.",
    ]


def values(found: SelfTest) -> dict[str, Any]:
    """The same for programs."""
    if found.refused:
        return {"ran": False, "refused": found.refused}
    checks = [{"name": one.name, "status": one.verdict.value, "what": one.what} for one in found.shown]
    return {
        "ran": True,
        "passed": found.passed,
        "device": found.device,
        "measured_with": found.measured_with,
        "checks": checks,
    }


def exit_code(found: SelfTest) -> int:
    """3 where it can't run, 1 where a panel doesn't show what was made."""
    if found.refused:
        return EXIT_UNAVAILABLE
    return EXIT_DONE if found.passed else EXIT_FAILED
