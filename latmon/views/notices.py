"""The lines between a panel and the health line: the most urgent finding, and the sentence that matters now. Pure."""

from __future__ import annotations

from latmon.views.findings import urgent
from latmon.views.lines import Line, Span, wrap
from latmon.views.sight import OFF, Sight
from latmon.views.still import worst
from latmon.views.told import Told
from latmon.views.travelling import happened

ROOMY = 20
"""Rows from which on a finding has two lines on the overview."""
_MOST = 2
"""Lines of a sentence."""


def finding(sight: Sight, width: int, height: int, *, toured: bool) -> list[Line]:
    """The most urgent one, on the overview alone. `toured`: a tour's text takes the room."""
    if sight.choice.screen != "overview":
        return []
    return urgent(sight.found.urgent, width, 2 if height >= ROOMY and not toured else 1)


def notices(sight: Sight, told: Told, width: int, *, reading: str, message: str, toured: bool) -> list[Line]:
    """What is read, else what was just said, else what happened, else what waits, else how the capture is made."""
    notice = "; ".join(one for one in (happened(sight), told.notice) if one)
    lasting = sight.origin.reason if sight.origin else ""
    if told.tracing.startswith(OFF):
        lasting = f"stages: {told.tracing}"
    # the list itself is on the outstanding screen
    waits = worst(sight.history.ages) if sight.choice.screen != "outstanding" else ""
    text = reading or message or notice or waits or ("" if toured else lasting)
    role = "strong" if reading or message else "bad" if notice or waits else "dim"
    return [(Span(f" {line}", role),) for line in wrap(text, width - 2)[:_MOST]]
