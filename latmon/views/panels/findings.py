"""The findings panel: findings, or why there are none and which rules were not evaluated.

`urgent` is for below a map, `Listed` for the screen: what is asked of it by keys is in panels/findings.py. A severity
is a sign and a word, then a colour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from latmon.findings.engine import DEPTHS, LATENCIES, LIMITS, TRACED, Episode
from latmon.findings.finding import CRITICAL, NOTICE, WARNING, Finding, marked, sized
from latmon.support.units import duration
from latmon.views import empty
from latmon.views.columns import around
from latmon.views.context import Sight, no_rows, sentence
from latmon.views.findings_state import Standing
from latmon.views.lines import BLANK, Line, Span, cell, cell_len, chop_cells, cut, fit, wrap
from latmon.views.lines import width as line_width
from latmon.views.selection import FindingKey
from latmon.views.units import clock, count, span

SIGNS: Mapping[str, str] = MappingProxyType({CRITICAL: "!!", WARNING: " !", NOTICE: " ·"})
_ROLES = {CRITICAL: "bad", WARNING: "accent", NOTICE: "text"}
_INDENT = "    "
_MIN_DETAIL = 9
"""Lines that the evidence has at least, where the list is longer than the rest."""


def urgent(found: Sequence[Finding], width: int, lines: int, as_of: str = "") -> list[Line]:
    """The first one in so many lines at most, and how many more there are; nothing where there is none.

    `as_of`: the time of its numbers, where the screen shows a later one.
    """
    if not found:
        return []
    one = found[0]
    who = f"{one.device} {one.id}".strip() + (f" as of {as_of}" if as_of else "")
    sign = (Span(f"{SIGNS[one.severity]} ", _ROLES[one.severity]),)
    more = (Span(f"  +{count(len(found) - 1)} more", "strong"),) if len(found) > 1 else ()
    tail = (*more, Span("  6", "accent"), Span(": why ", "dim"))
    room, last = width - 4, width - 3 - line_width(tail)
    text = f"{who}: {_said(one)}"
    said = wrap(text, room)
    if len(said) == 1 and cell_len(text) > last:
        said = wrap(text, last)
    end = cell(" ".join(said[lines - 1 :]), last)
    several: list[Line] = [(Span("   ") if i else sign[0], Span(part)) for i, part in enumerate(said[: lines - 1])]
    if len(said) < lines:
        return [(*sign, Span(cell(text, last)), *tail)]
    return [*several, (Span("   ") if several else sign[0], Span(end), *tail)]


def listed(found: Standing, at: int, width: int, height: int, *, top: int = 0, why: Sequence[str] = ()) -> list[Line]:
    """The list around the selected one, and that one's evidence below, scrolled by `top`.

    `why`: sentences for where nothing is found now.
    """
    lines = [_head(found, width)]
    if not found.lasting:
        lines += [BLANK, *((Span(f"  {text}"),) for part in why for text in wrap(part, width - 4)), BLANK]
    if not found.all:
        return [fit(line, width) for line in lines][:height]
    at = min(max(at, 0), len(found.all) - 1)
    below = evidence(found.all[at].last if at < len(found.lasting) else found.all[at].worst, width)
    room = max(height - len(lines) - min(len(below), max(_MIN_DETAIL, height // 2)), 3)
    lines += _rows(found, at, width, room)
    return [fit(line, width) for line in (*lines, *cut(below, height - len(lines), top, key="PgDn: "))][:height]


def evidence(one: Finding, width: int) -> list[Line]:
    """What to do, the numbers that gave it away with how many samples they are of, and what would refute it."""
    name = f"{one.device} {one.id}".strip()
    lines: list[Line] = [(Span(f" {name}", "accent"), Span("  next" if one.steps else "", "strong"))]
    for number, step in enumerate(one.steps, 1):
        lines += _item(f"{number} ", f"{step.what} (risk: {step.risk})", width)
        lines += [line for command in step.commands for line in _command(command, width)]
    lines += [(Span(" evidence", "strong"),)]
    for fact in one.facts:
        lines += _item("- ", sized(fact.said, fact.of), width)
    lines += [(Span(f" Enter shows it: {where(one)}", "dim"),)]
    lines += [(Span(" refuted by", "strong"),), *_item("", one.refuted_by, width)]
    return lines


def where(one: Finding) -> str:
    """Which screen, device and region Enter leads to."""
    shown = one.where
    low, high = (None if us is None else duration(us) for us in (shown.low_us, shown.high_us))
    region = f"{low} to {high}" if low and high else f"{low} and more" if low else f"up to {high}" if high else ""
    return ", ".join(one for one in (shown.screen, shown.device, shown.op, region) if one)


def _head(found: Standing, width: int) -> Line:
    now, over = len(found.lasting), len(found.over)
    said = [f"{count(now) if now else 'none'} now", *([f"{count(over)} earlier"] if over else [])]
    left = (Span(" findings", "accent"), Span(f"  {', '.join(said)}" if found.judged else ""))
    if not found.judged:
        return left
    right = f"{_evaluated(found)} evaluated over the last {span(round(found.span_us, -6))} "
    if found.behind_us:
        right = f"evaluated up to {clock(found.until_wall)}, {span(round(found.behind_us, -6))} behind "
    room = width - line_width(left) - len(right)
    return (*left, Span(" " * room), Span(right, "dim")) if room > 0 else left


def _evaluated(found: Standing) -> str:
    """Return the number of rules that have their inputs, of all: "3 of 11 rules"."""
    lacking = len({*found.broken, *(rule for some in found.unjudged.values() for rule in some)})
    return f"{found.rules - lacking} of {found.rules} rules" if lacking else f"{found.rules} rules"


def _rows(found: Standing, at: int, width: int, room: int) -> list[Line]:
    """As many entries as fit, each whole where all of them do; of the others only the selected one is."""
    entries = [_entry(found, i, width, selected=i == at, whole=True) for i in range(len(found.all))]
    if sum(map(len, entries)) > room:
        entries = [
            one[:room] if i == at else _entry(found, i, width, selected=False, whole=False)
            for i, one in enumerate(entries)
        ]
    shown = around(len(entries), at, len(entries))
    while sum(len(entries[i]) for i in shown) > room and len(shown) > 1:
        shown = range(shown.start, shown.stop - 1) if shown.stop - 1 > at else range(shown.start + 1, shown.stop)
    lines = [line for i in shown for line in entries[i]]
    left = len(entries) - len(shown)
    if left and len(lines) < room:
        lines.append((Span(f"   … {count(left)} more", "dim"),))
    return lines


def _entry(found: Standing, i: int, width: int, *, selected: bool, whole: bool) -> list[Line]:
    """Sign, rule, device, when; its sentence below, or behind it where that is all that fits."""
    one, lasts = found.all[i], i < len(found.lasting)
    now = one.last if lasts else one.worst
    mark = Span("▸" if selected else " ", "accent")
    sign = Span(f"{SIGNS[now.severity]} ", _ROLES[now.severity] if lasts else "dim")
    when = f"  {_since(found, one) if lasts else _from_to(found, one)}  {now.severity}"
    names = Span(f"{now.id}  {now.device}".rstrip(), "strong" if lasts else "dim")
    head: Line = (mark, sign, names, Span(when, "text" if lasts else "dim"))
    if not lasts and not (selected and whole):
        said = f"  {_said(now)}"
        return [(*head, Span(said, "dim"))] if not selected else [head]
    if not whole:
        return [head]
    return [head, *((Span(f"{_INDENT}{text}", "text" if lasts else "dim"),) for text in wrap(now.summary, width - 6))]


def _since(found: Standing, one: Episode) -> str:
    return f"since {clock(one.begin_wall)}{' or before' if found.before(one) else ''}"


def _from_to(found: Standing, one: Episode) -> str:
    before = "before " if found.before(one) else ""
    return f"{before}{clock(one.begin_wall)} to {clock(one.end_wall)}"


def _said(one: Finding) -> str:
    """Its sentence without the device, which stands before it."""
    return one.summary.removeprefix(f"{one.device}: ") if one.device else one.summary


def _item(sign: str, text: str, width: int) -> list[Line]:
    parts = wrap(text, width - 5 - len(sign))
    return [(Span(f"   {sign if i == 0 else ' ' * len(sign)}", "dim"), Span(part)) for i, part in enumerate(parts)]


def _command(line: str, width: int) -> list[Line]:
    """Return a command on lines of its own, every blank kept; a long one is broken at the edge alone."""
    parts = chop_cells(marked(line), max(width - 10, 2))
    return [(Span(f"{'':9}"), Span(part, "strong")) for part in parts]


_WHOLE_US = 55_000_000
"""Of the last minute: a block less is a minute still."""


def findings_panel(sight: Sight, width: int, room: int) -> list[Line]:
    """The list, and the evidence of the selected one."""
    if sight.origin is None or not sight.history.window.frames:
        return sentence(no_rows(sight), width, room)
    found = sight.found
    at = finding_position(found, sight.choice.finding)
    return listed(found, at, width, room, top=sight.choice.top, why=tuple(_why(sight)))


def key_of(one: Episode) -> FindingKey:
    """What stays selected while others come and go."""
    return (*one.key, one.begin_us)


def finding_position(found: Standing, key: FindingKey | None) -> int:
    """The selected row; that of the same finding at another time where it is gone, else the first."""
    keys = [key_of(one) for one in found.all]
    if key in keys:
        return keys.index(key)
    return next((i for i, one in enumerate(keys) if key is not None and one[:2] == key[:2]), 0)


def _why(sight: Sight) -> Iterator[str]:
    """Why there is no finding, and of what that says nothing."""
    found = sight.found
    if found.failed:
        yield f"Not evaluated: {found.failed}."
        return
    if found.coming:
        yield "evaluating the minute before …"
        return
    if not found.judged:
        yield "nothing is evaluated yet: rules are evaluated every 5 s, over the last minute"
        return
    so_far = "" if found.span_us >= _WHOLE_US else ", all that was captured by now"
    yield f"No finding in the last {span(round(found.span_us, -6))}{so_far}."
    devices = len(sight.history.devices())
    yield f"{_evaluated(found)} evaluated for {count(devices)} device{'s' * (devices != 1)}."
    for kind, rules in found.unjudged.items():
        yield f"Not evaluated: {', '.join(rules)}: {_missing(sight, kind)}."
    for rule, words in found.broken.items():
        yield f"Not evaluated: {rule}: {words}."


def _missing(sight: Sight, kind: str) -> str:
    """Why nobody tells of it."""
    assert sight.origin is not None  # noqa: S101  asked only once there is a frame
    if kind == TRACED:
        return empty.not_traced(
            "stages", sight.origin, mode=sight.choice.stages, recorded=sight.recorded, state=sight.tracing
        )
    return {
        LATENCIES: empty.no_distribution(sight.origin),
        DEPTHS: "outstanding I/Os are not counted here",
        LIMITS: "no device reports a limit of I/Os in its driver",
    }[kind]
