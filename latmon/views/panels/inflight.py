"""The list of I/Os in flight (requests not yet completed), oldest first, and its short forms for status lines. Pure.

`age_list` draws the list of a view, `in_words` describes it for the health line, `no_ages` gives the reason for an
empty list.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace

from latmon.analysis.peers import natural
from latmon.analysis.threshold import is_above
from latmon.model.devices import is_volume
from latmon.model.frame import TRACER_STARTING
from latmon.model.inflight import Aged, Ages
from latmon.support.text import listed
from latmon.support.units import UNKNOWN, duration, spelled
from latmon.views.bars import AgeAxis
from latmon.views.context import MEASURING, OFF, ViewState
from latmon.views.heatmap import TAIL
from latmon.views.lines import (
    DEVICE,
    TIME,
    Field,
    Line,
    Placed,
    Span,
    Target,
    cell,
    cut,
    fit,
    heading,
    heads,
    layout,
    paragraph,
    plain,
    row,
    targeted,
)
from latmon.views.panels.outliers import OWN, letters, op_legend
from latmon.views.selection import shown
from latmon.views.units import count, size

NAMED_US = 10_000_000
"""An I/O older than this is a problem; it is highlighted on every screen."""
STEP = 3
"""Lines that a key scrolls the list: the least height of the list."""
_HEADS = 2
"""Lines above the rows: a title and the column titles."""
_REASON = 3
"""Lines of the reason for an empty list."""
_SHORT = 3
"""At most this height, rows have precedence over the column titles."""
_IDLE_NAMED = 6
"""Idle devices that are named."""
_ABOVE = {1: "> 1 s", 10: "> 10 s", 60: "> 1 min"}
_AXIS = "axis"
"""Title of the column of bars before it has the labels of its axis."""


def in_flight_lines(
    ages: Ages,
    ios: Sequence[Aged],
    width: int,
    height: int,
    *,
    top: int = 0,
    why: str = "",
    least: Callable[[str], str] = lambda _device: "",
    threshold_us: int | None = None,
    selected: str = "",
) -> list[Line]:
    """Return a title, column titles and the I/Os, each with a bar from its begin to now on a logarithmic axis.

    Equal I/Os are folded into one line where there is no room for each, until the list is scrolled. `some`: the I/Os
    that pass the filter, the oldest first; `why`: the reason for an empty list; `least`: device -> why only a least age
    is known; `threshold_us`: the age from which on an I/O has the alarm colour; `selected`: the device of the charts
    below the list, whose I/Os have a mark.
    """
    if height < 1:
        return []
    title: Line = (Span(" in flight", "strong"), Span(f"  {_title(ages)}"))
    if not ios and not counted(ages):
        title = title[:1]  # the reason below it has the numbers
    if not ios:
        reason = paragraph(why, width, "dim", margin=2)
        headed = [heading(title, width), *reason] if height > 1 else reason
        return [fit(line, width) for line in cut(headed, height)]
    placed = _with_axis(layout(_fields(width, ios, threshold_us), width), ios[0].age_us)
    begin = max(top - STEP * (len(folded(ios)) < len(ios)), 0)
    if top:
        title = (*title, Span("  PgUp: back", "dim"))
    elif len(ios) > height - 1 - (height > _SHORT) and len(alike := folded(ios)) < len(ios):
        title, ios = (*title, Span("  PgDn: each", "dim")), alike
    with_heads = any(io.request for io in ios) and (height > _SHORT or len(ios) + 1 < height)
    titled = [heads(placed)] if with_heads else []
    room = height - 1 - len(titled)
    lines = [row(placed, io) if io.request else _least(placed, io, least(io.device), threshold_us) for io in ios]
    lines = [_marked(line) if io.device == selected else line for line, io in zip(lines, ios, strict=True)]
    lines = [targeted(line, Target(DEVICE, io.device)) for line, io in zip(lines, ios, strict=True)]
    titled = [heading(title, width, _op_letters(ios, width)), *titled]
    return [fit(line, width) for line in (*titled, *_from(lines, room, begin))][:height]


def _op_letters(ios: Sequence[Aged], width: int) -> Line:
    """Return what the letters of ops and flags in the list mean, for the right side of its title."""
    shown_ops = [(io.request.op, io.request.flags) for io in ios if io.request]
    text = " ".join(plain(line).strip() for line in op_legend(shown_ops, width)) if shown_ops else ""
    return (Span(f" {text} ", "dim"),) if text else ()


def _marked(line: Line) -> Line:
    """Return a row with the mark of the selected device in its first cell."""
    first, *others = line
    return (Span("▸", "accent"), first._replace(text=first.text[1:]), *others)


def folded(ios: Sequence[Aged]) -> list[Aged]:
    """Return one entry, the oldest, for requests of the same device, op, flags, issuer and place."""
    ios_by_likeness: dict[Hashable, Aged] = {}
    for io in ios:
        own_request = io.request
        like = (
            (
                io.device,
                own_request.op,
                own_request.flags,
                own_request.comm or own_request.pid,
                own_request.issued,
                own_request.own,
            )
            if own_request
            else io
        )
        folded_io = ios_by_likeness.get(like)
        ios_by_likeness[like] = _one_more(folded_io, io) if folded_io else io
    return list(ios_by_likeness.values())


def _one_more(folded_io: Aged, io: Aged) -> Aged:
    """Return an entry that counts one more I/O; processes of one name lose their pid."""
    first, own_request = folded_io.request, io.request
    if first and own_request and first.pid != own_request.pid:
        first = first._replace(pid=None)
    return replace(folded_io, count=folded_io.count + io.count, request=first)


def _from(lines: list[Line], room: int, begin: int) -> list[Line]:
    """Return the lines that fit; where lines below are left out, the last one has their number and the key for them."""
    begin = max(0, min(begin, len(lines) - room))
    shown = lines[begin : begin + max(room, 0)]
    if (left := len(lines) - begin - len(shown)) and shown:
        shown[-1] = (Span(f" … {count(left + 1)} more lines: PgDn", "dim"),)
    return shown


def _least(placed: Placed[Aged], io: Aged, why: str, threshold_us: int | None) -> Line:
    """Return the line of I/Os of which only the device and a least age are known, with the reason."""
    cells = {field.title: room for field, room in placed}
    text = f"{count(io.count)} I/O{'s' * (io.count > 1)}, at least"
    return (
        Span(f" {cell(_age(io), cells['age'], right=True)} ", _age_role(io, threshold_us)),
        Span(f"{cell(io.device, cells.get('device', len(io.device)))} {text}"),
        Span(f"; {why}" if why else "", "dim"),
    )


def counted(ages: Ages) -> str:
    """Return the numbers by age, `> 1 s: 3, > 10 s: 1`; empty where no I/O is as old.

    An age that as many I/Os have as the next one is left out.
    """
    bounds = [s for s in _ABOVE if ages.older.get(s)]
    numbers = [*(ages.older[s] for s in bounds[1:]), 0]
    parts = [
        f"{_ABOVE[s]}: {count(n)}" for s, after in zip(bounds, numbers, strict=False) if (n := ages.older[s]) != after
    ]
    return ", ".join(parts) + (" or more" if parts and ages.at_least else "")


def _title(ages: Ages) -> str:
    reported, unknown = counted(ages), ages.of_unknown_age
    if not unknown:
        return reported or "nothing above 1 s"
    not_known = f"the ages of {count(unknown)} are not known"
    return f"{reported}; {not_known}" if reported else not_known


def in_words(ages: Ages) -> tuple[str, ...]:
    """Return the oldest age and the numbers for the health line, longest text first; empty where no age is known."""
    if ages.oldest_us is None:
        return ()
    age = f"{'≥' if ages.oldest[0].at_least else ''}{spelled(ages.oldest_us)}"
    count_words, named = counted(ages), f"{age} on {ages.oldest[0].device}"
    if not count_words:
        return (f"oldest in flight {age}",)
    return (
        f"in flight {count_words}, oldest {named}",
        f"oldest in flight {age}, {count_words}",
        f"oldest in flight {named}",
        f"in flight {age}",
    )


def _age(one: Aged) -> str:
    return f"{'≥' if one.at_least else ''}{duration(one.age_us)}"


def _age_role(io: Aged, threshold_us: int | None) -> str:
    return TAIL if is_above(io.age_us, threshold_us) else "strong"


def _op(io: Aged, _cells: int) -> str:
    return letters(io.request.op, io.request.flags) if io.request else UNKNOWN


def _where(io: Aged, cells: int) -> str:
    words = {True: "the driver", False: "the queue", None: UNKNOWN}[io.request.issued if io.request else None]
    many = f"{count(io.count)}x " if io.count > 1 else ""
    return many + (words if cells >= len(many + words) else words.rsplit(" ", 1)[-1])


def _issuer(io: Aged, cells: int) -> str:
    request = io.request
    if request is None or (request.pid is None and not request.comm):
        return UNKNOWN
    own = OWN if request.own else ""
    name = own + "/".join(word for word in (request.comm, str(request.pid or "")) if word)
    return name if len(name) <= cells else f"{own}{request.comm}" or name


def _overtaken(io: Aged, _cells: int) -> str:
    return UNKNOWN if io.request is None or io.request.overtaken_by is None else count(io.request.overtaken_by)


def _sector(io: Aged) -> str:
    if io.count > 1:
        return "several"
    return UNKNOWN if io.request is None or io.request.sector is None else f"{io.request.sector:,}"


_WIDE, _LONG = 90, 16
"""Width from which on there is room for a long title; cells of a device's name at most."""


def _with_axis(placed: Placed[Aged], oldest_us: int) -> Placed[Aged]:
    """Return the columns with the labels of the axis as the title of the bars."""
    return tuple(
        (replace(field, title=AgeAxis.until(cells, oldest_us).title) if field.title == _AXIS else field, cells)
        for field, cells in placed
    )


def _fields(width: int, ios: Sequence[Aged], threshold_us: int | None) -> tuple[Field[Aged], ...]:
    """Return the columns; one title is shorter on a narrow screen, where the process needs the cells."""
    by = " by" if width >= _WIDE else ""
    name = min(max(9, *(len(io.device) for io in ios)), _LONG)

    def age(io: Aged, cells: int) -> Line:
        return (Span(cell(_age(io), cells, right=True), _age_role(io, threshold_us)),)

    def bar(io_in_flight: Aged, cells: int) -> Line:
        return AgeAxis.until(cells, ios[0].age_us).bar(io_in_flight.age_us, threshold_us)

    return (
        Field("age", TIME + 1, age),
        Field("device", 8, lambda io, _: io.device, right=False, most=name),
        Field("op", 4, _op, right=False),
        Field("size", 5, lambda io, _: size(io.request.bytes if io.request else None)),
        Field("waits in", 10, _where, right=False, most=14),
        Field(f"overtaken{by}", 9 + len(by), _overtaken),
        Field("sector", 15, lambda io, _: _sector(io), rank=2),
        Field("process", 13, _issuer, rank=1, right=False, most=20, role="dim"),
        Field(_AXIS, 14, bar, rank=1, right=False, most=60),
    )


def ages(view: ViewState) -> tuple[Aged, ...]:
    """Return the I/Os in flight of the devices that pass the filter."""
    names = {d.name for d in shown(view.history.store.devices.values(), view.selection)}
    return tuple(io for io in view.history.ages.oldest if io.device in names)


def no_ages(view: ViewState) -> str:
    """Return the reason for an empty list; it is "nothing is in flight" only where that is known."""
    history, last = view.history, view.history.window.last
    if last is None or not last.outstanding:
        return "not known: I/Os in flight are not counted here"
    names = {d.name for d in shown(history.store.devices.values(), view.selection)}
    known = {name: outstanding.known for name, outstanding in last.outstanding.items() if name in names}
    busy = {name for name, n in known.items() if n}
    now = {name: n for name, n in known.items() if not is_volume(history.store.devices.get(name), busy)}
    count_now, others = sum(now.values()), any(io.device not in names for io in history.ages.oldest)
    elsewhere = "; others than the filter's devices have older ones" if others else ""
    idle = _idle(sorted((name for name, n in known.items() if not n), key=natural))
    if not count_now:
        whose = "of the filter's devices" if others else "device"
        return f"nothing is in flight on any {whose}{elsewhere}{_uncounted(view, names)}{idle}"
    return f"{count_now} in flight, {_of_no_age(view, now)}{elsewhere}{_uncounted(view, names)}{idle}"


def _idle(names: Sequence[str]) -> str:
    """Return which devices have nothing in flight; empty without any."""
    if not names:
        return ""
    more = f" and {count(len(names) - _IDLE_NAMED)} more" if len(names) > _IDLE_NAMED else ""
    shown_names = ", ".join(names[:_IDLE_NAMED]) if more else listed(names)
    return f"; idle now: {shown_names}{more}"


def _uncounted(view: ViewState, names: Collection[str]) -> str:
    """Return a warning about volumes without requests that no probe follows.

    The kernel doesn't count the I/Os that a suspended volume defers.
    """
    devices, known = view.history.store.devices, view.history.ages
    bare = [name for name in names if not devices[name].timed and devices[name].kind != "zram"]
    blind = sorted(name for name in bare if not known.is_followed(name))
    if not blind:
        return ""
    return f"; no probe follows {listed(blind)}, and I/Os that a suspended volume defers are not counted"


def _of_no_age(view: ViewState, now: Mapping[str, int]) -> str:
    """Return why no I/O in flight has a row; `now`: I/Os in flight by device."""
    ages = view.history.ages
    unknown = {name: n for name in now if (n := ages.unknown.get(name, 0))}
    if not unknown:
        return "none of them older than 0.5 s"
    followed = sum(n for name, n in unknown.items() if ages.is_followed(name))
    if followed == sum(unknown.values()):
        return f"up to {followed} of them may have begun before the probe; none of the others is older than 0.5 s"
    remainder = sum(unknown.values()) - followed
    blind = [name for name in unknown if not ages.is_followed(name)]
    why = _no_probe(view) if ages.probe is None else f"no probe follows {'it' if len(blind) == 1 else 'them'}"
    least = "Of a device that completes nothing, the time since then is known"
    return f"{remainder} of unknown age on {listed(blind)}: {why}. {least}"


def no_more(view: ViewState, device: str) -> str:
    """Return why only a least age of a device's I/Os in flight is known."""
    known = view.history.ages
    if known.is_followed(device):
        return "began before a probe followed it"
    if known.probe is not None:
        return f"no probe follows {device}"
    if view.recorded:
        return "no probe followed it"
    return _no_probe(view)


def _no_probe(view: ViewState) -> str:
    """Return why no probe follows requests."""
    if view.recorded:
        return "the probes that ran measure no ages" if view.history.any_traced else "no probe followed requests"
    if view.tracing.startswith(TRACER_STARTING):
        return "the probes are starting"
    if view.tracing == MEASURING:
        return "this source's tracer measures no ages"
    return f"no probe follows requests{': stages are off' if view.tracing.startswith(OFF) else ' here'}"


def age_list(view: ViewState, selected: str) -> tuple[Callable[[int, int], list[Line]], tuple[int, int]]:
    """Return the function that draws the list in (width, height), and how many lines it takes.

    These are the lines with each I/O on its own line, and those with equal I/Os folded. `selected`: a device whose I/Os
    have a mark.
    """
    rows, top, why = ages(view), view.selection.top, no_ages(view)

    def draw(cells: int, height: int) -> list[Line]:
        return in_flight_lines(
            view.history.ages,
            rows,
            cells,
            height,
            top=top,
            why=why,
            least=lambda name: no_more(view, name),
            threshold_us=view.selection.threshold_us,
            selected=selected,
        )

    brief = rows if top else folded(rows)
    least_lines = 1 if rows else _REASON - _HEADS + 1
    return draw, (max(len(rows), least_lines) + _HEADS, max(len(brief), least_lines) + _HEADS)
