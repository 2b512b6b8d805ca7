"""What rules found, as a part of the page: first of all the sentence, then its evidence and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latmon.report.html_parts import listed, text
from latmon.report.text_findings import fact_said, judged, shown_on, when

MAX_FINDINGS = 50
_Json = Mapping[str, Any]


def findings(summary: _Json) -> str:
    """Nothing where no rule was asked."""
    if "findings" not in summary:
        return ""
    found = summary["findings"]
    head = f'<section id="findings"><h2>Findings</h2>\n<p>{text(_said(found, judged(summary)))}</p>\n'
    rest = f"<p>and {len(found) - MAX_FINDINGS:,} more</p>\n" if len(found) > MAX_FINDINGS else ""
    return f"{head}{''.join(map(_finding, found[:MAX_FINDINGS]))}{rest}</section>\n"


def _said(found: list[_Json], by: str) -> str:
    return f"By {by}." if found else f"None, by {by}."


def _finding(one: _Json) -> str:
    steps = (
        f'{text(step["text"])} <span class="risk">Risk: {text(step["risk"])}.</span>' for step in one["next_steps"]
    )
    about = " ".join(each for each in (one["severity"], one["id"], one["device"]) if each)
    return (
        f'<article class="finding {text(one["severity"])}"><h3>{text(about)}</h3>\n'
        f"<p><strong>{text(one['summary'])}.</strong></p>\n<p>{text(when(one))}</p>\n"
        f"{listed(text(fact_said(fact)) for fact in one['evidence'].values())}"
        f"<p>Shown on: {text(shown_on(one))}</p>\n"
        f"<p>What to do next:</p>\n{listed(steps)}"
        f"<p>What would refute it: {text(one['refuted_by'])}</p></article>\n"
    )
