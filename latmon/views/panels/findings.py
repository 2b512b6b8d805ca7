"""The findings panel: findings, or why there are none and which rules were not evaluated. Pure.

`of_device` returns the finding of a panel's device, `listed` the list on the screen, which has titles and ids; the
verdict of the overview is in verdict.py. A severity has a sign and a word, not only a colour.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from latmon.findings.episodes import Episode
from latmon.findings.rule import (
    CRITICAL,
    LATENCIES,
    MISSING,
    NOT_RUN,
    NOTICE,
    TRACED,
    WARNING,
    Finding,
    ran,
    screen_title,
    sized,
)
from latmon.findings.rules import title_of
from latmon.support.units import clock, duration, ordinal
from latmon.views.context import ViewState, no_distribution, no_rows, not_traced
from latmon.views.findings_state import CurrentFindings, Remark, again_text, kept_text
from latmon.views.lines import (
    BLANK,
    EPISODE,
    FINDING,
    Line,
    Span,
    Target,
    around,
    cell_len,
    chop_cells,
    cut,
    empty_panel,
    fit,
    heading,
    highlighted,
    paragraph,
    targeted,
    wrap,
)
from latmon.views.lines import width as line_width
from latmon.views.selection import FindingKey
from latmon.views.units import count, span

SIGNS: Mapping[str, str] = MappingProxyType({CRITICAL: "!!", WARNING: " !", NOTICE: " ·"})
ROLES = {CRITICAL: "bad", WARNING: "accent", NOTICE: "text"}
_INDENT = "    "
_AGE_TOLERANCE_US = 500_000
"""Between the clocks of a finding and of the frames."""
_OF_DEVICE = 4
"""Most lines of the finding on a panel of a device."""
_MIN_DETAIL = 9
"""Least lines of the evidence, where the list needs more than the rest."""
_WHOLE_US = 55_000_000
"""From this time on, a window counts as a whole minute: one block may be missing."""


def of_device(view: ViewState, device: str, width: int) -> list[Line]:
    """Return the most urgent finding of a device in a few lines, for a panel on that device alone.

    It has a heading where panels have frames.
    """
    finding = next((finding for finding in view.found.shown if device in (finding.device, *finding.also)), None)
    if finding is None:
        return []
    lines = _in_lines(finding, width, view.found.remarks.get(finding.key))
    if len(lines) > _OF_DEVICE:
        lines = [*lines[: _OF_DEVICE - 1], _cut_off(width)]
    return [titled("finding", "", width), *lines] if view.framed else lines


def short_now(finding: Finding, view: ViewState) -> str:
    """Return the short text with the age that its oldest I/O in flight has in the device table.

    Rules are evaluated every 5 s. A much older I/O is none of those that the finding counts.
    """
    last, evaluated = view.history.window.last, view.found.until_wall
    if last is None or not last.wall >= evaluated:  # it is NaN where nothing was evaluated
        return finding.short
    most_us = finding.age_us + round((last.wall - evaluated) * 1e6) + _AGE_TOLERANCE_US
    ages = [aged.age_us for aged in view.history.ages.of(finding.device) if aged.age_us <= most_us]
    return finding.short_at(max([*ages, finding.age_us]))


def finding_of_screen(view: ViewState, screen: str, width: int) -> list[Line]:
    """Return the short text of the most urgent finding whose evidence a screen shows.

    It is the first on the screen, under a heading where panels have frames.
    """
    finding = next((finding for finding in view.found.shown if finding.where.screen == screen), None)
    if finding is None:
        return []
    remark = view.found.remarks.get(finding.key)
    is_kept = remark is not None and remark.is_kept
    text = ", ".join(filter(None, (short_now(finding, view) or finding.summary, remark.text if remark else "")))
    first, *more_lines = wrap(text, width - 4)
    device, colon, after = first.partition(":")
    lines: list[Line] = [
        (
            Span(SIGNS[finding.severity], "dim" if is_kept else ROLES[finding.severity]),
            Span(" "),
            Span(device, "dim" if is_kept else "strong"),
            Span(f"{colon}{after}", "dim" if is_kept else "text"),
        ),
        *((Span(f"   {part}", "dim" if is_kept else "text"),) for part in more_lines),
    ]
    lines = [targeted(fit(line, width), Target(FINDING, finding.key)) for line in lines]
    return [titled("finding", "", width), *lines] if view.framed else lines


def beside_nothing(view: ViewState, devices: Collection[str], width: int, room: int) -> list[Line]:
    """Return the most urgent finding of these devices with its next steps, for a panel that has no row to show."""
    named = (finding for finding in view.found.shown if {finding.device, *finding.also} & {*devices})
    finding = next(named, None)
    if finding is None:
        return []
    device = finding.block_device or finding.where.device
    gap = [] if view.framed else [BLANK]
    lines = [*gap, *of_device(view, device, width)]
    if len(lines) > room:
        return []
    steps = next_steps(view, device, width)
    return cut([*lines, *(gap if steps else []), *steps], room)


def titled(name: str, many: str, width: int) -> Line:
    """Return the heading of findings in a frame, with the key of their screen; `many`: their number."""
    more = (Span("6", "accent"), Span(" evidence and next steps ", "dim"))
    return heading((Span(f" {name}", "strong"), Span(f" {many}".rstrip(), "dim")), width, more)


def _in_lines(finding: Finding, width: int, remark: Remark | None) -> list[Line]:
    """Return a finding in as many lines as it needs: its device and title first, then its sentence.

    One that is kept is dim.
    """
    is_kept = remark is not None and remark.is_kept
    name = " ".join(filter(None, (_named(finding), remark.text if remark is not None else "")))
    first, *more_lines = wrap(f"{name}: {_summary(finding)}", width - 4)
    role = "dim" if is_kept else "text"
    # the blank after the sign has no role, which may be underlined
    head = (Span(SIGNS[finding.severity], "dim" if is_kept else ROLES[finding.severity]), Span(" "))
    lines: list[Line] = [(Span(f"   {part}", role),) for part in more_lines]
    if not first.startswith(f"{name}:"):
        return [(*head, Span(first, role)), *lines]
    return [(*head, Span(name, "dim" if is_kept else "strong"), Span(first[len(name) :], role)), *lines]


def _cut_off(width: int) -> Line:
    """Return the last line of a finding that is longer: the key that shows the whole."""
    more = (Span("6", "accent"), Span(": all ", "dim"))
    return fit((Span("   … "), *more), width)


def _named(finding: Finding) -> str:
    """Return device and title of a finding."""
    return f"{finding.device} {title_of(finding.id)}".strip()


def listed(
    found: CurrentFindings, at: int, width: int, height: int, *, top: int = 0, why: Sequence[str] = ()
) -> list[Line]:
    """Return the list around the selected finding, and its evidence below, scrolled by `top`.

    `why`: sentences for an empty list.
    """
    lines = [_head(found, width)]
    if not found.lasting:
        lines += [BLANK, *(line for part in why for line in paragraph(part, width, margin=2)), BLANK]
    if not found.all:
        return [fit(line, width) for line in cut(lines, height)]
    at = min(max(at, 0), len(found.all) - 1)
    below = evidence(found.evidence_of(found.all[at]), width)
    room = max(height - len(lines) - min(len(below), max(_MIN_DETAIL, height // 2)), 3)
    lines += _rows(found, at, width, room)
    return [fit(line, width) for line in (*lines, *cut(below, height - len(lines), top, key="PgDn: "))][:height]


def evidence(finding: Finding, width: int) -> list[Line]:
    """Return next steps, the evidence with its sample sizes, and what would refute the finding."""
    name = (
        Span(f" {_named(finding)}", "strong"),
        Span(f"  {finding.id}{'  next steps' if finding.steps else ''}", "dim"),
    )
    is_copied = any(step.commands for step in finding.steps)
    copies = (Span("c", "accent"), Span(" copy a command ", "dim")) if is_copied else ()
    lines: list[Line] = [heading(name, width, copies), *_steps(finding, width), (Span(" evidence", "strong"),)]
    for fact in finding.facts:
        lines += _item("- ", sized(fact.text, fact.of), width)
    lines += [(Span(f" Enter shows it: {where(finding)}", "dim"),)]
    lines += [(Span(" refuted by", "strong"),), *_item("", finding.refuted_by, width)]
    return lines


def _steps(finding: Finding, width: int) -> list[Line]:
    lines: list[Line] = []
    for number, step in enumerate(finding.steps, 1):
        lines += _item(f"{number} ", f"{step.what} (risk: {step.risk})", width)
        lines += [line for command in step.commands for line in _command(command, width)]
    return lines


def next_steps(view: ViewState, device: str, width: int) -> list[Line]:
    """Return the next steps of the most urgent finding of a device below a title; none without a finding."""
    finding = next((finding for finding in view.found.shown if device in (finding.device, *finding.also)), None)
    steps = _steps(finding, width) if finding is not None else []
    keys = (Span("6", "accent"), Span(" evidence ", "dim"))
    return [heading((Span(" next steps", "strong"),), width, keys), *steps] if steps else []


def where(finding: Finding) -> str:
    """Return the screen, device and region that Enter shows."""
    shown = finding.where
    low, high = (None if us is None else duration(us) for us in (shown.low_us, shown.high_us))
    region = f"{low} to {high}" if low and high else f"{low} and more" if low else f"up to {high}" if high else ""
    return ", ".join(
        words_shown for words_shown in (screen_title(shown.screen), shown.device, shown.op, region) if words_shown
    )


def _head(current_findings: CurrentFindings, width: int) -> Line:
    now, kept, over = len(current_findings.lasting), len(current_findings.kept), len(current_findings.over)
    sentences = [f"{count(now) if now else 'none'} now"]
    sentences += [f"{count(many)} {word}" for many, word in ((kept, "kept"), (over, "earlier")) if many]
    left = (Span(" findings", "strong"), Span(f"  {', '.join(sentences)}" if current_findings.evaluated else ""))
    if not current_findings.evaluated:
        return heading(left, width)
    right = f"{_evaluated(current_findings)} evaluated over the last {span(round(current_findings.span_us, -6))} "
    if current_findings.behind_us:
        behind = span(round(current_findings.behind_us, -6))
        right = f"evaluated up to {clock(current_findings.until_wall)}, {behind} behind "
    return heading(left, width, (Span(right, "dim"),))


def _evaluated(current_findings: CurrentFindings) -> str:
    """Return the number of rules that have their inputs, of all: "3 of 12 rules"."""
    lacking = len(
        {
            *current_findings.broken,
            *(rule for rule_names in current_findings.not_evaluated.values() for rule in rule_names),
        }
    )
    return (
        f"{current_findings.rules - lacking} of {current_findings.rules} rules"
        if lacking
        else f"{current_findings.rules} rules"
    )


def _rows(current_findings: CurrentFindings, at: int, width: int, room: int) -> list[Line]:
    """Return the entries that fit; where not all fit in full length, only the selected one is in full length."""
    entries = [
        _entry(current_findings, i, width, selected=i == at, whole=True) for i in range(len(current_findings.all))
    ]
    targets = [Target(EPISODE, key_of(episode)) for episode in current_findings.all]
    if sum(map(len, entries)) > room:
        entries = [
            _cut(shown_entry, room) if i == at else _entry(current_findings, i, width, selected=False, whole=False)
            for i, shown_entry in enumerate(entries)
        ]
    shown = around(len(entries), at, len(entries))
    while sum(len(entries[i]) for i in shown) > room and len(shown) > 1:
        shown = range(shown.start, shown.stop - 1) if shown.stop - 1 > at else range(shown.start + 1, shown.stop)
    lines = [targeted(line, targets[i]) for i in shown for line in entries[i]]
    left = len(entries) - len(shown)
    if left and len(lines) < room:
        lines.append((Span(f"   … {count(left)} more", "dim"),))
    return lines


def _cut(entry: list[Line], room: int) -> list[Line]:
    """Return an entry in at most so many lines, with a mark where its sentence goes on."""
    return entry if len(entry) <= room else [*entry[: room - 1], (*entry[room - 1], Span(" …", "dim"))]


def _entry(current_findings: CurrentFindings, i: int, width: int, *, selected: bool, whole: bool) -> list[Line]:
    """Return sign, device, title, severity, time and id; the sentence below, or beside it where there is no room."""
    episode, lasts = current_findings.all[i], i < len(current_findings.lasting)
    now, role = current_findings.evidence_of(episode), "text" if lasts else "dim"
    ended = kept_text(episode) if episode in current_findings.kept else _from_to(current_findings, episode)
    mark = Span("▸" if selected else " ", "accent")
    sign = Span(f"{SIGNS[now.severity]} ", ROLES[now.severity] if lasts else "dim")
    name = Span(_named(now), "strong" if lasts else "dim")
    if not lasts and not selected:
        line: Line = (mark, sign, name, Span(f"  {now.severity} {ended}", "dim"))
        fits = line_width(line) + 2 + len(now.id) <= width
        return [(*line, Span(f"  {now.id}  {_summary(now)}", "dim"))] if fits else [line]
    when, rule = _times_and_ids(current_findings, width)[i] if lasts else (ended, "")
    gap = " " * max(_name_cells(current_findings) - cell_len(name.text), 0) * lasts
    head: Line = (mark, sign, name, Span(f"{gap}  {now.severity} {when}", role))
    head = (*head, Span(f"{rule:>{width - line_width(head) - 1}}" if rule else "", "dim"))
    head = highlighted(head) if selected else head
    if not whole:
        return [head]
    return [head, *((Span(f"{_INDENT}{text}", role),) for text in wrap(_summary(now), width - 6))]


def _name_cells(current_findings: CurrentFindings) -> int:
    """Return the cells of the longest device and title of the findings of now."""
    return max((cell_len(_named(episode.last)) for episode in current_findings.lasting), default=0)


def _times_and_ids(current_findings: CurrentFindings, width: int) -> list[tuple[str, str]]:
    """Return when each finding of now began, and its id: in the longest form that fits for all.

    The id is left out first, since it is also in the heading of the evidence.
    """
    long = [_since(current_findings, episode) for episode in current_findings.lasting]
    brief = [_brief(current_findings, episode) for episode in current_findings.lasting]
    ids = [episode.last.id for episode in current_findings.lasting]
    room = width - len(_INDENT) - _name_cells(current_findings) - 3
    for whens, rules in ((long, ids), (brief, ids), (long, [""] * len(ids))):
        numbered_episodes = zip(current_findings.lasting, whens, rules, strict=True)
        if all(
            len(f"{episode.last.severity} {when}") + (2 + len(rule)) * bool(rule) <= room
            for episode, when, rule in numbered_episodes
        ):
            return list(zip(whens, rules, strict=True))
    return [(when, "") for when in brief]


def _brief(found: CurrentFindings, one: Episode) -> str:
    """Return since when a finding lasts, in few cells."""
    nth = f" ({ordinal(one.repeats + 1)})" if one.repeats else ""
    return f"since {'≤' if found.before(one) else ''}{clock(one.begin_wall)}{nth}"


def _since(current_findings: CurrentFindings, episode: Episode) -> str:
    again = f", {again_text(episode)}" if episode.repeats else ""
    return f"since {clock(episode.begin_wall)}{' or before' if current_findings.before(episode) else ''}{again}"


def _from_to(current_findings: CurrentFindings, episode: Episode) -> str:
    before = "before " if current_findings.before(episode) else ""
    return f"{before}{clock(episode.begin_wall)} to {clock(episode.end_wall)}"


def _summary(finding: Finding) -> str:
    """Return the sentence without its device."""
    return finding.summary.removeprefix(f"{finding.device}: ") if finding.device else finding.summary


def _item(sign: str, text: str, width: int) -> list[Line]:
    parts = wrap(text, width - 5 - len(sign))
    return [(Span(f"   {sign if i == 0 else ' ' * len(sign)}", "dim"), Span(part)) for i, part in enumerate(parts)]


def _command(command: str, width: int) -> list[Line]:
    """Return a command on lines of its own, every blank kept; a long one is broken at the edge alone."""
    cells = max(width - 10, 2)
    *parts, last = chop_cells(command, cells) or [""]
    note = "" if ran(command) else NOT_RUN
    fits = cell_len(last) + len(note) <= cells
    lines: list[Line] = [(Span(f"{'':9}"), Span(part, "strong")) for part in (*parts, last)]
    if note and fits:
        lines[-1] = (*lines[-1], Span(note, "dim"))
    return lines if fits else [*lines, (Span(f"{'':9}"), Span(note.strip(), "dim"))]


def findings_panel(view: ViewState, width: int, room: int) -> list[Line]:
    """Return the list and the evidence of the selected finding."""
    if view.origin is None or not view.history.window.frames:
        return empty_panel(no_rows(view), width, room)
    current_findings = view.found
    at = finding_position(current_findings, view.selection.finding)
    return listed(current_findings, at, width, room, top=view.selection.top, why=tuple(_why(view)))


def key_of(episode: Episode) -> FindingKey:
    """Return the key by which a finding stays selected when others come."""
    return (*episode.key, episode.begin_us)


def finding_position(found: CurrentFindings, key: FindingKey | None) -> int:
    """Return the selected row; else that of another episode of the same finding, else the first."""
    keys = [key_of(episode) for episode in found.all]
    if key in keys:
        return keys.index(key)
    return next((i for i, known_key in enumerate(keys) if key is not None and known_key[:2] == key[:2]), 0)


def _why(view: ViewState) -> Iterator[str]:
    """Yield why there is no finding, and which rules were not evaluated."""
    current_findings = view.found
    if current_findings.failed:
        yield f"Not evaluated: {current_findings.failed}."
        return
    if current_findings.coming:
        yield f"evaluating the minute before: {current_findings.share:.0%}"
        return
    if not current_findings.evaluated:
        by_exporters = view.origin is not None and view.origin.backend == "prometheus"
        yield (
            "the exporters evaluate the rules; the line below has their findings"
            if by_exporters
            else "nothing is evaluated yet: rules are evaluated every 5 s, over the last minute"
        )
        return
    yield _nothing_now(current_findings)
    devices = len(view.history.devices())
    yield f"{_evaluated(current_findings)} evaluated for {count(devices)} device{'s' * (devices != 1)}."
    for kind, rules in current_findings.not_evaluated.items():
        yield f"Not evaluated: {', '.join(rules)}: {_missing(view, kind)}."
    for rule, words in current_findings.broken.items():
        yield f"Not evaluated: {rule}: {words}."


def _nothing_now(current_findings: CurrentFindings) -> str:
    """Return that no rule has a finding now; with ended findings below it, when the latest of them was found."""
    if current_findings.ended:
        latest = max(episode.end_wall for episode in current_findings.ended)
        return f"No finding now; the latest below was found at {clock(latest)}."
    so_far = "" if current_findings.span_us >= _WHOLE_US else ", all that was captured by now"
    return f"No finding in the last {span(round(current_findings.span_us, -6))}{so_far}."


def current_first(found: CurrentFindings, key: FindingKey | None) -> FindingKey | None:
    """Return the finding to select when the list is opened: the chosen one, unless it ended and others are active."""
    is_active = any(key_of(episode) == key for episode in found.lasting)
    return key if is_active or not found.lasting else None


def _missing(view: ViewState, kind: str) -> str:
    """Return why an input of rules is missing."""
    assert view.origin is not None  # noqa: S101  asked only once there is a frame
    if kind == TRACED:
        if view.history.any_traced:
            return "stages were traced before, but not at the end of this time"
        return not_traced("stages", view.origin, mode=view.selection.stages, recorded=view.recorded, state=view.tracing)
    if kind == LATENCIES:
        return no_distribution(view.origin)
    return MISSING[kind]
