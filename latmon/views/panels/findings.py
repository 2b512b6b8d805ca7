"""The findings screen: what rules found, or why nothing is found and what can't be judged. Asks the sight."""

from __future__ import annotations

from collections.abc import Iterator

from latmon.findings.needs import DEPTHS, LATENCIES, LIMITS, TRACED
from latmon.findings.watch import Episode
from latmon.views import empty
from latmon.views.choice import FindingKey
from latmon.views.findings import listed
from latmon.views.lines import Line
from latmon.views.sight import Sight, no_rows, sentence
from latmon.views.standing import Standing
from latmon.views.units import count, span

_WHOLE_US = 55_000_000
"""Of the last minute: a block less is a minute still."""


def findings_panel(sight: Sight, width: int, room: int) -> list[Line]:
    """The list, and the evidence of the selected one."""
    if sight.origin is None or not sight.history.window.frames:
        return sentence(no_rows(sight), width, room)
    found = sight.found
    at = position(found, sight.choice.finding)
    return listed(found, at, width, room, top=sight.choice.top, why=tuple(_why(sight)))


def key_of(one: Episode) -> FindingKey:
    """What stays selected while others come and go."""
    return (*one.key, one.begin_us)


def position(found: Standing, key: FindingKey | None) -> int:
    """The selected row; that of the same finding at another time where it is gone, else the first."""
    keys = [key_of(one) for one in found.all]
    if key in keys:
        return keys.index(key)
    return next((i for i, one in enumerate(keys) if key is not None and one[:2] == key[:2]), 0)


def _why(sight: Sight) -> Iterator[str]:
    """Why there is no finding, and of what that says nothing."""
    found = sight.found
    if found.failed:
        yield f"Not judged: {found.failed}."
        return
    if found.coming:
        yield "the minute before is being judged …"
        return
    if not found.judged:
        yield "nothing is judged yet: rules are asked after each 5 s, over the last minute"
        return
    so_far = "" if found.span_us >= _WHOLE_US else ", which is all that can be judged by now"
    yield f"No finding in the last {span(round(found.span_us, -6))}{so_far}."
    devices = len(sight.history.devices())
    yield f"{found.rules} rules watch {count(devices)} device{'s' * (devices != 1)}."
    for kind, rules in found.unjudged.items():
        yield f"Not judged: {', '.join(rules)}: {_missing(sight, kind)}."
    for rule, words in found.broken.items():
        yield f"Not judged: {rule}: {words}."


def _missing(sight: Sight, kind: str) -> str:
    """Why nobody tells of it."""
    assert sight.origin is not None  # noqa: S101  asked only once there is a frame
    if kind == TRACED:
        return empty.not_traced(
            "stages", sight.origin, mode=sight.choice.stages, recorded=sight.recorded, state=sight.tracing
        )
    return {
        LATENCIES: empty.no_distribution(sight.origin),
        DEPTHS: "nobody counts here how many I/Os are outstanding",
        LIMITS: "no device tells a limit of what its driver may have",
    }[kind]
