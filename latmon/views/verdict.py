"""The verdict below the title: the findings in one row each, or what can be said of a host without any. Pure.

A row has the sign of its severity, the short text of the finding, which is never cut, and the key that shows it. Only a
host on which nothing is slow, and of which that is known, is called quiet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from latmon.analysis.issue_order import lba_order
from latmon.analysis.limits import ceiling, sorter
from latmon.findings.rule import CRITICAL, NOTICE, SEVERITIES, Finding, short_name, short_text
from latmon.model.frame import PROBES_STARTING
from latmon.support.units import clock, spelled
from latmon.views.context import ViewState, no_distribution, no_threshold, selected
from latmon.views.lines import (
    FINDING,
    Line,
    Span,
    Target,
    backed,
    fit,
    targeted,
    wrap,
)
from latmon.views.lines import width as line_width
from latmon.views.panels.findings import ROLES, SIGNS, short_now
from latmon.views.selection import ASIDE_OF, SCREENS
from latmon.views.units import count, span

MOST_ROWS = 3
_ALL_FROM, _TWO_FROM = 20, 14
"""Lines of a screen from which on the verdict may have all rows, and two."""
_NOTICE_FROM = 30
"""Lines from which on a notice has a row beside findings that are more."""
_APART = 2
_INDENT = "   "
_ALSO = 4
"""Other devices of a finding that are named."""
_OLD_US = 10_000_000
"""Age of an I/O in flight that is worth a word where no threshold is known."""
_LEAST_OLD_US = 1_000_000
"""Ages of younger ones are known only as those of a sample."""
_STALE_S = 10
"""Rules are evaluated every 5 s; the time of older findings is shown."""
_QUIET_US = 10_000_000
"""A shorter time is too little to call a host quiet: no I/O can have waited for long, and some rules need as much."""
_FIRST_US = 6_000_000
"""The rules are evaluated in this time, at first."""


class Verdict(NamedTuple):
    """The rows of the verdict, and the findings in them."""

    lines: list[Line]
    named: list[Finding]
    names_oldest: bool = False
    """Whether the oldest I/O in flight is in a row."""


NONE = Verdict([], [])


def verdict(view: ViewState, trouble: Sequence[str], width: int, height: int, *, keys: bool = True) -> Verdict:
    """Return the verdict on the overview in at most MOST_ROWS of a screen of `height` lines.

    `trouble`: what makes the numbers doubtful, in words; `keys`: whether keys select screens.
    """
    if view.selection.screen != "overview":
        return NONE
    most_rows = MOST_ROWS if height >= _ALL_FROM else 2 if height >= _TWO_FROM else 1
    findings, notices = view.found.shown, view.found.notices
    if view.found.coming:
        return Verdict(_said(f"findings: evaluating {view.found.share:.0%}", width), [])
    if not findings:
        return _with_notices(view, notices, trouble, width, most_rows, keys=keys)
    return _with_findings(view, findings, notices[:1] if height >= _NOTICE_FROM else (), width, most_rows, keys=keys)


def _with_notices(
    view: ViewState, notices: Sequence[Finding], trouble: Sequence[str], width: int, most: int, *, keys: bool
) -> Verdict:
    """Return what can be said without a finding that is more than a notice, and the first notice as far as it fits.

    One about all of the host is said first, and the host is not called quiet.
    """
    lines, names_oldest = _without(view, trouble, width, most), bool(_old(view))
    of_host = _of_host(notices)
    if of_host is not None:
        rows = _finding_lines(of_host, view, width, keys=keys)
        fits = len(rows) + len(lines) <= most
        return Verdict([*rows, *lines] if fits else rows, [], names_oldest and fits)
    for notice in notices[:1] if len(lines) < most else ():
        lines += _finding_lines(notice, view, width, keys=keys)
    return Verdict(lines, [], names_oldest)


def _of_host(notices: Sequence[Finding]) -> Finding | None:
    """Return the first notice about all of the host that costs time, such as that of busy CPUs; None without one."""
    return next((notice for notice in notices if notice.share and not notice.block_device), None)


def _with_findings(
    view: ViewState, findings: Sequence[Finding], notices: Sequence[Finding], width: int, most: int, *, keys: bool
) -> Verdict:
    """Return the worst finding, that of the selected device, then others as far as they fit; and how many are left.

    The worst one is whole on any screen.
    """
    in_order = [findings[0], *_of_selected(view, findings[1:])]
    in_order += [finding for finding in findings if finding not in in_order]
    lines: list[Line] = []
    named: list[Finding] = []
    for finding in in_order:
        rows = _finding_lines(finding, view, width, keys=keys)
        is_last = len(named) + 1 == len(findings)
        room = most - len(lines) - (not is_last)  # a row says how many are left
        if named and len(rows) > room:
            break
        lines, named = [*lines, *rows], [*named, finding]
    left = len(findings) - len(named)
    if left:
        lines = _with_number(lines, left, most, width, keys=keys)
    for notice in notices if not left else ():
        rows = _finding_lines(notice, view, width, keys=keys)
        if len(lines) + len(rows) <= most:
            lines, named = [*lines, *rows], [*named, notice]
    return Verdict(lines, named)


def _of_selected(view: ViewState, findings: Sequence[Finding]) -> list[Finding]:
    """Return the finding of the selected device, where the user selected one."""
    chosen = selected(view.subjects())
    if chosen is None or not view.selection.is_selected:
        return []
    return [finding for finding in findings if chosen.device.name in (finding.device, *finding.also)][:1]


def _with_number(lines: list[Line], left: int, most: int, width: int, *, keys: bool) -> list[Line]:
    """Return the rows with the number of other findings, in a row of its own or at the end of the last one."""
    number = f"+{count(left)} more"
    more = (Span(number, "dim"), *((Span(": ", "dim"), Span("6", "accent"), Span(" shows", "dim")) if keys else ()))
    if len(lines) < most:
        return [*lines, fit((Span(_INDENT), *more), width)]
    short = (Span(f" {number}", "dim"),)
    last = lines[-1]
    text = _stripped(last)
    if line_width(text) + line_width(short) <= width:
        role = last[-1].role
        back = role.partition("/")[2]
        filled = fit(text, width - line_width(short))
        return [*lines[:-1], backed((*filled, *short), back) if back else (*filled, *short)]
    return lines


def _stripped(line: Line) -> Line:
    """Return a line without the blanks at its end."""
    spans = list(line)
    while spans and not spans[-1].text.strip():
        spans.pop()
    return tuple(spans)


def _finding_lines(finding: Finding, view: ViewState, width: int, *, keys: bool) -> list[Line]:
    """Return a finding in as many rows as its short text needs; a notice and one that is kept are dim."""
    remark = view.found.remarks.get(finding.key)
    is_kept = remark is not None and remark.is_kept
    is_dim = finding.severity == NOTICE or is_kept
    device = short_name(finding.device) if finding.device else ""
    text = short_now(finding, view) or finding.summary
    said = [_as_of(view)] if not is_kept else []
    text = ", ".join(filter(None, (text, *said, remark.text if remark is not None else "")))
    sign = f"{SIGNS[finding.severity]} "
    first, *more_lines = wrap(_with_more(text, finding, view, width - len(sign), is_kept=is_kept), width - len(sign))
    role = "dim" if is_dim else "text"
    head: Line = (Span(sign, "dim" if is_dim else ROLES[finding.severity]),)
    if device and first.startswith(f"{device}:"):
        head = (*head, Span(device, "dim" if is_dim else "strong"))
        first = first[len(device) :]
    lines: list[Line] = [(*head, Span(first, role)), *((Span(f"{_INDENT}{part}", role),) for part in more_lines)]
    if keys:
        lines = _with_key(lines, finding, width)
    lines = [targeted(fit(line, width), Target(FINDING, finding.key)) for line in lines]
    if is_dim:
        return lines
    back = CRITICAL if finding.severity == CRITICAL else SEVERITIES[1]
    return [backed(line, back) for line in lines]


def _with_more(text: str, finding: Finding, view: ViewState, cells: int, *, is_kept: bool) -> str:
    """Return the text with when it was and the other devices, as far as that needs no more rows.

    A finding that is the only one has a row for them.
    """
    # one without a device has the number of them in its text
    also = [short_name(device) for device in finding.also] if finding.block_device else []
    named = f"also {', '.join(also[:_ALSO])}" + (f" and {len(also) - _ALSO} more" if len(also) > _ALSO else "")
    at = "" if finding.at is None or is_kept else f"at {clock(finding.at.wall)}"
    more = [part for part in (at, named if also else "") if part]
    rows = len(wrap(text, cells))
    most = max(rows, 2) if len(view.found.shown) == 1 else rows
    for parts in (more, more[:1]):
        longer = ", ".join((text, *parts))
        if len(wrap(longer, cells)) <= most:
            return longer
    return text


def _as_of(view: ViewState) -> str:
    """Return how old the numbers are where the screen shows a later time; else an empty text."""
    last, evaluated = view.history.window.last, view.found.until_wall
    is_stale = last is not None and last.wall - evaluated >= _STALE_S  # false where nothing was evaluated, which is NaN
    return f"evaluated {last.wall - evaluated:.0f} s ago" if last is not None and is_stale else ""


def _with_key(lines: list[Line], finding: Finding, width: int) -> list[Line]:
    """Return the rows with the key that shows the finding at the right edge of the last one, where it fits."""
    screen = ASIDE_OF.get(finding.where.screen, finding.where.screen)
    digit = SCREENS.index(screen) + 1 if screen in SCREENS else 1
    # its map is on the screen already
    key = ("6", " why ") if digit == 1 else (str(digit), " shows ")
    with_words = (Span(key[0], "accent"), Span(key[1], "dim"))
    # a bare digit would be read as the last word of the finding
    alone = (Span("[", "dim"), Span(key[0], "accent"), Span("]", "dim"))
    for hint in (with_words, alone):
        room = width - line_width(lines[-1]) - line_width(hint)
        if room >= _APART:
            return [*lines[:-1], (*lines[-1], Span(" " * room), *hint)]
    return lines


def _said(text: str, width: int) -> list[Line]:
    """Return a sentence in dim rows."""
    first, *rest = wrap(text, width - len(_INDENT)) or [""]
    # not the sign of a notice
    return [(Span(" ○ ", "dim"), Span(first, "dim")), *((Span(f"{_INDENT}{part}", "dim"),) for part in rest)]


def _without(view: ViewState, trouble: Sequence[str], width: int, most: int) -> list[Line]:
    """Return what can be said where nothing was found, in `most` rows where that is enough for one sentence."""
    origin, current_findings, window = view.origin, view.found, view.history.window
    awaited = _awaited(view)
    if origin is None or awaited:
        return _said(awaited, width)
    doubts = [*_unknown(view), *trouble]
    if no_distribution(origin):
        return _said(
            "; ".join((f"no finding; {origin.backend} does not time I/Os, so none counts as slow", *doubts)), width
        )
    slow = _slow(view)
    full = _full(view)
    of_host = _of_host(current_findings.notices)
    is_quiet = not (slow or full or trouble or of_host) and view.selection.threshold_us is not None
    if current_findings.evaluated and is_quiet and window.covered_us >= _QUIET_US:
        rest = wrap("; ".join((_nothing(view), *doubts)), width - len("   quiet: "))
        return [
            (Span(" ● ", "limit"), Span("quiet: ", "strong"), Span(rest[0])),
            *((Span(f"{_INDENT}{part}", "dim"),) for part in rest[1:]),
        ]
    nothing = (
        "no finding now" if current_findings.over else f"no finding in {span(round(current_findings.span_us, -6))}"
    )
    begin = [nothing] if current_findings.evaluated and of_host is None else []
    said = (*begin, *(slow or [_nothing(view)]))
    if full:
        return _with_full(full, said, doubts, width, most)
    return _said("; ".join((*said, *doubts)), width)


def _awaited(view: ViewState) -> str:
    """Return what is awaited before anything can be said; empty where nothing is."""
    if view.origin is None:
        return "waiting for the backend"
    if not view.history.window.frames:
        return f"waiting for the first {span(view.origin.interval_us)} of data"
    if view.origin.reason == PROBES_STARTING:
        return "no verdict yet: the probes are starting, and latencies are not measured before"
    return ""


def _with_full(full: str, said: Sequence[str], doubts: Sequence[str], width: int, most: int) -> list[Line]:
    """Return the device at its limit first, and below it what else is known, as far as it fits in `most` rows."""
    first, *more_lines = wrap(full, width - len(_INDENT))
    device, colon, after = first.partition(":")
    head: list[Line] = [
        (Span(" ○ ", "accent"), Span(device, "strong"), Span(f"{colon}{after}")),
        *((Span(f"{_INDENT}{part}"),) for part in more_lines),
    ]
    for texts in ((*said, *doubts), said):
        below = [(Span(f"{_INDENT}{part}", "dim"),) for part in wrap("; ".join(texts), width - len(_INDENT))]
        if len(head) + len(below) <= most:
            return [*head, *below]
    return head


def _full(view: ViewState) -> str:
    """Return the first device whose driver has as many I/Os as its limit allows; empty without one.

    No rule may say so in the first seconds, since a burst looks the same.
    """
    subject = next((subject for subject in view.subjects() if view.is_full(subject)), None)
    bound = None if subject is None else ceiling(subject.device.limits)
    if subject is None or bound is None:
        return ""
    device, queued = subject.device, subject.outstanding.queued
    wait = "waits" if queued == 1 else "wait"
    waiting = f", {count(queued)} {wait} above" if queued else ""
    issues = view.history.issues(device.name) if queued else ()
    name = sorter(device)
    sorts = f", {name} sorts by LBA" if name and lba_order(issues).is_sorted else ""
    ios = "1 I/O" if subject.limit == 1 else f"{count(int(bound.value))} I/Os"
    return short_text(device.name, f"{bound.name} is full ({ios})", waiting, sorts)


def _unknown(view: ViewState) -> list[str]:
    """Return which rules are not evaluated, so that the absence of findings means less."""
    current_findings = view.found
    if current_findings.failed:
        return [f"findings not evaluated: {current_findings.failed}"]
    if not current_findings.evaluated:
        begins = view.history.window.covered_us < _FIRST_US and not view.recorded
        return ["rules are evaluated after 2 s" if begins else "no rule is evaluated, 6 shows why"]
    lacking = {*current_findings.broken, *(rule for rules in current_findings.not_evaluated.values() for rule in rules)}
    return [f"{len(lacking)} of {current_findings.rules} rules not evaluated"] if lacking else []


def _slow(view: ViewState) -> list[str]:
    """Return the I/Os above the threshold, and an I/O in flight for longer, in words; empty without any."""
    threshold_us, said = view.selection.threshold_us, list[str]()
    if threshold_us is not None:
        by_device: dict[str, int] = {}
        bound_us = threshold_us
        for subject in view.subjects():
            by_device[subject.device.name], bound_us = view.above(subject) or (0, threshold_us)
        total = sum(by_device.values())
        if total:
            worst = max(by_device, key=lambda name: by_device[name])
            where = f"on {worst}" if by_device[worst] == total else f"most on {worst}"
            said.append(f"{count(total)} above {spelled(bound_us)} in {_seen(view)}, {where}")
    return [*said, *_old(view)]


def _old(view: ViewState) -> list[str]:
    """Return an I/O in flight for longer than the threshold in words; empty without one."""
    threshold_us, ages = view.selection.threshold_us, view.history.ages
    least_us = _OLD_US if threshold_us is None else max(threshold_us, _LEAST_OLD_US)
    if ages.oldest_us is None or ages.oldest_us < least_us:
        return []
    least = "at least " if ages.oldest[0].at_least else ""
    return [f"an I/O on {ages.oldest[0].device} is in flight for {least}{spelled(ages.oldest_us)}"]


def _nothing(view: ViewState) -> str:
    """Return that no I/O is above the threshold, or that there is none."""
    threshold_us = view.selection.threshold_us
    if threshold_us is not None:
        return f"nothing above {spelled(threshold_us)} for {_seen(view)}"
    return f"{no_threshold(view.history.on_demand.thresholds_us.values())}, A sets one"


def _seen(view: ViewState) -> str:
    """Return the time of the window that was measured."""
    window = view.history.window
    return span(min(window.length_us, max(round(window.covered_us, -6), 1_000_000)))
