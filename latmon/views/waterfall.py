"""One outlier opened: every stage where it was in time, its share, who ran instead, and who was near. Pure.

`waterfall` draws it, `neighbours` finds the others of its device that overlap it. Numbers are exact, so that a reader
can add them up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from latmon.deep import PARTS
from latmon.model import UNACCOUNTED, Outlier, Wait, pid_of
from latmon.stage_names import called, explained
from latmon.views.bars import role
from latmon.views.heatmap import Ink
from latmon.views.lines import BLANK, Line, Span, cell, cut, fit, wrap
from latmon.views.outliers import issuer
from latmon.views.units import duration, exact, moment, percent, until

_NAME = 11
_TIME = 13
_PERCENT = 6
_MIN_BAR = 8
_NEAR = 64
_NEAR_LEFT = 32
"""Cells before a neighbour's bar."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stage with its place in the I/O's time; `placed` is False for what could have been anywhere."""

    stage: str
    begin_us: int
    us: int
    placed: bool = True


def waterfall(
    one: Outlier,
    width: int,
    height: int,
    ink: Ink,
    *,
    repeats: int = 1,
    near: Sequence[Outlier] = (),
    top: int = 0,
    recorded: bool = False,
) -> list[Line]:
    """`repeats`: how many I/Os the row stands for; `near`: its neighbours in time; `top`: scrolled so far.

    `recorded`: nothing can be traced anew.
    """
    lines = [*_headlines(one, repeats, width), BLANK]
    some = pieces(one)
    room = width - _NAME - _TIME - _PERCENT - 5
    if any(p.stage != UNACCOUNTED for p in some):
        if room >= _MIN_BAR:
            lines.append(_axis(one, room))
        for piece in some:
            lines += _stage(one, piece, room, ink)
            lines += [line for wait in one.waits if wait.stage == piece.stage for line in _wait(one, wait, width)]
        lines.append(_sum(one, some))
    else:
        lines += [(Span(f" {text}"),) for text in wrap(_untraced(one, recorded=recorded), width - 2)]
    stages = {p.stage for p in some}
    lines += [line for wait in one.waits if wait.stage not in stages for line in _wait(one, wait, width)]
    lines += [BLANK, *_near_lines(one, near, width, ink)]
    return cut([fit(line, width) for line in lines], height, top)


def neighbours(one: Outlier, others: Iterable[Outlier]) -> tuple[Outlier, ...]:
    """Other outliers of its device in flight at the same time, in the order in which they began; 64 at most."""
    end = one.mono_us + one.total_us
    found = [
        o
        for o in others
        if o.device == one.device and o != one and o.mono_us <= end and o.mono_us + o.total_us >= one.mono_us
    ]
    return tuple(sorted(found, key=lambda o: o.mono_us)[:_NEAR])


def pieces(one: Outlier) -> tuple[Piece, ...]:
    """The stages end to end; what is unaccounted lies before the waiter's resume, its place not known."""
    known = [p for p in PARTS if p not in ("resume", UNACCOUNTED)]
    order = [*known, *(s for s in one.stages_us if s not in PARTS), UNACCOUNTED, "resume"]
    times = {**one.stages_us, UNACCOUNTED: one.unaccounted_us}
    found, at = [], 0
    for stage in order:
        if stage in times:
            found.append(Piece(stage, at, times[stage], placed=stage != UNACCOUNTED))
            at += times[stage]
    return tuple(found)


def missing_us(one: Outlier) -> int:
    """What stages and unaccounted fall short of the total; 0 where it adds up."""
    return one.total_us - sum(one.stages_us.values()) - one.unaccounted_us


def _headlines(one: Outlier, repeats: int, width: int) -> list[Line]:
    what = [one.device, " ".join((one.op, *one.flags))]
    what += [f"{one.bytes:,} B" if one.bytes % 1024 else f"{one.bytes // 1024:,} KiB"] if one.bytes is not None else []
    what += [f"sector {one.sector:,}"] if one.sector is not None else []
    nobody = "the block layer sends flushes itself" if one.op == "flush" else "issuer not known"
    what.append(nobody if issuer(one) == "-" else issuer(one))
    what += [f"x{repeats:,}"] if repeats > 1 else []
    facts = [f"total {exact(one.total_us)} {until(one.stages_us)}", *_cpus(one)]
    facts += [f"{one.outstanding_at_issue:,} in flight at issue"] if one.outstanding_at_issue is not None else []
    facts += [f"overtaken by {one.overtaken_by:,}"] if one.overtaken_by is not None else []
    facts += [f"path: {one.path}"] if one.path else []
    first, *rest = _joined([moment(one.wall), *what], width)
    spans: list[Line] = [(Span(first, "strong"),), *((Span(text, "strong"),) for text in rest)]
    return spans + [(Span(text),) for text in _joined(facts, width)]


def _cpus(one: Outlier) -> list[str]:
    issued = f"issued on CPU {one.cpu_issue}" if one.cpu_issue is not None else ""
    done = f"completed on CPU {one.cpu_complete}" if one.cpu_complete is not None else ""
    return [", ".join(t for t in (issued, done) if t)] if issued or done else []


def _joined(words: Sequence[str], width: int) -> list[str]:
    """Facts two blanks apart, in as many lines as they need; one fact isn't broken where it fits a line."""
    lines: list[str] = []
    for word in words:
        for text in wrap(word, width - 2):
            if lines and len(lines[-1]) + 2 + len(text) <= width - 1:
                lines[-1] += f"  {text}"
            else:
                lines.append(f" {text}")
    return lines


def _axis(one: Outlier, room: int) -> Line:
    end = duration(one.total_us)
    return (Span(f"{'':{_NAME + _TIME + 3}}0{end:>{room - 1}}", "dim"),)


def _stage(one: Outlier, piece: Piece, room: int, ink: Ink) -> list[Line]:
    share = piece.us / one.total_us if one.total_us else 0.0
    inside = one.includes.get(piece.stage, ())
    left = (Span(f" {called(piece.stage, inside).column:<{_NAME}} "), Span(f"{exact(piece.us):>{_TIME}} "))
    bar = _bar(one, piece, room, ink) if room >= _MIN_BAR else ()
    line = (*left, *bar, Span(f" {_percent(share):>{_PERCENT}}", "strong" if share >= 0.5 else "dim"))  # noqa: PLR2004  most of it
    said = wrap(explained(piece.stage, inside), max(room + _TIME + _PERCENT + 2, _MIN_BAR)) if inside else []
    return [line, *((Span(f"{'':{_NAME + 2}}{text}", "dim"),) for text in said)]


def _percent(share: float) -> str:
    return "<0.01%" if 0 < share < 5e-5 else percent(share)  # noqa: PLR2004  what rounds away


def _bar(one: Outlier, piece: Piece, room: int, ink: Ink) -> Line:
    """Where it was on the common axis; what takes less than half a cell is a thin mark, what took no time is none."""
    if not piece.us:
        return (Span(" " * room),)
    scale = room / max(one.total_us, 1)
    begin = min(round(piece.begin_us * scale), room - 1)
    length = min(round((piece.begin_us + piece.us) * scale), room) - begin
    wide = length > 0 and piece.us * scale >= 0.5  # noqa: PLR2004  half a cell
    thin = "▏" if ink.coloured else "|"
    mark = ("█" if piece.placed else "?") * length if wide else thin
    return (
        Span(" " * begin),
        Span(mark, role(piece.stage, ink) if wide else "text"),
        Span(" " * (room - begin - len(mark))),
    )


def _wait(one: Outlier, wait: Wait, width: int) -> list[Line]:
    woken = one.wall + (wait.woken_us - one.mono_us) / 1e6
    instead = f": {wait.instead} ran instead" if wait.instead else ""
    pid = pid_of(wait.pid)
    who = f"{wait.thread}{'' if pid is None else f'/{pid}'} (prio {wait.priority})"
    text = (
        f"{who} woken {moment(woken)}, ran {moment(woken + wait.delay_us / 1e6)}, {exact(wait.delay_us)} later{instead}"
    )
    return [(Span(f"   {t}", "accent"),) for t in wrap(text, width - 4)]


def _sum(one: Outlier, some: Sequence[Piece]) -> Line:
    off = missing_us(one)
    total = sum(p.us for p in some)
    left = (Span(f" {'sum':<{_NAME}} ", "dim"), Span(f"{exact(total):>{_TIME}}", "dim"))
    if off:
        return (*left, Span(f"  {exact(abs(off))} {'less' if off > 0 else 'more'} than the total", "bad"))
    return (*left, Span("  = total", "dim"))


def _untraced(one: Outlier, *, recorded: bool) -> str:
    if one.unaccounted_us and one.path:
        return f"stages not known: its path could not be followed ({one.path})"
    said = "stages were not traced then: the deep probes were off, or traced a sample"
    return said if recorded else f"{said}; S or --stages all traces the next ones"


def _near_lines(one: Outlier, near: Sequence[Outlier], width: int, ink: Ink) -> list[Line]:
    if not near:
        return [(Span(f" no other outlier on {one.device} at the same time", "dim"),)]
    same = sum(bool(_threads(one) & _threads(o)) for o in near)
    waited = f", {same:,} of them waited for the same thread" if same else ""
    others = "1 other" if len(near) == 1 else f"{len(near)}{' and more' if len(near) == _NEAR else ''} others"
    lines: list[Line] = [
        (Span(f" {text}"),) for text in wrap(f"{others} on {one.device} at the same time{waited}", width - 2)
    ]
    begin, end = min(o.mono_us for o in (one, *near)), max(o.mono_us + o.total_us for o in (one, *near))
    room = width - _NEAR_LEFT
    if room < _MIN_BAR:
        return lines + [_near_name(o, issuer(o)) for o in near]
    lines.append(_near_axis(begin - one.mono_us, end - one.mono_us, room))
    drawn = [("this one", one, "text"), *((issuer(o), o, "dim") for o in near)]
    return lines + [(*_near_name(o, who), *_near_bar(o, (begin, end), room, ink, role)) for who, o, role in drawn]


def _near_axis(from_us: int, to_us: int, room: int) -> Line:
    """Where the bars below begin and end, in the time since this one began."""
    begin, end = f"-{duration(-from_us)}" if from_us else "0", f"+{duration(to_us)}"
    return (Span(f"{' since this one began':<{_NEAR_LEFT}}{begin}{end:>{max(room - len(begin), 0)}}", "dim"),)


def _near_name(other: Outlier, who: str) -> Line:
    return (Span(f" {cell(other.op, 5)} {cell(who, 17)}", "dim"), Span(f"{duration(other.total_us):>6} "))


def _near_bar(other: Outlier, ends: tuple[int, int], room: int, ink: Ink, role: str) -> Line:
    """On an axis that holds them all, so that before and after can be seen."""
    scale = room / max(ends[1] - ends[0], 1)
    at = min(int((other.mono_us - ends[0]) * scale), room - 1)
    length = max(1, min(round(other.total_us * scale), room - at))
    fill = "━" if ink.coloured else "-"
    return (Span(" " * at), Span(fill * length, role), Span(" " * (room - at - length)))


def _threads(one: Outlier) -> set[int]:
    return {wait.pid for wait in one.waits}
