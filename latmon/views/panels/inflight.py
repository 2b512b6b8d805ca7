"""I/Os in flight: requests not yet completed, oldest first. Pure.

`still` draws the list, `in_words` says it for the health line, `worst` names the one that can't be overlooked.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from latmon.model.inflight import Aged, Ages
from latmon.support.units import UNKNOWN, duration, spelled
from latmon.views.columns import Field, Placed, heads, layout, row
from latmon.views.lines import Line, Span, cell, fit, wrap
from latmon.views.panels.outliers import OWN, letters
from latmon.views.units import count, size

NAMED_US = 10_000_000
"""Older ones are named on every screen."""
STEP = 3
"""Lines that a key goes down the list: as many as are always there."""
_SHORT = 3
"""Up to so many lines rows go before their titles."""
_ABOVE = {1: "> 1 s", 10: "> 10 s", 60: "> 1 min"}
_BRIEF = {1: "1s", 10: "10s", 60: "1m"}


def still(
    ages: Ages,
    some: Sequence[Aged],
    width: int,
    height: int,
    *,
    top: int = 0,
    why: str = "",
    least: Callable[[str], str] = lambda _device: "",
) -> list[Line]:
    """Title, heads, a line each; like ones are one line where there is no room for each, until the list is scrolled.

    `some`: those of the ages that are shown; `why`: what none of them means; `least`: why of a device no more is known.
    """
    if height < 1:
        return []
    title: Line = (Span(" still in flight", "strong"), Span(f"  {_title(ages)}"))
    if not some:
        said: list[Line] = [(Span(f"  {text}", "dim"),) for text in wrap(why, width - 4)]
        return [fit(line, width) for line in ([title] if height > 1 else []) + said][:height]
    placed = layout(_FIELDS, width)
    begin = max(top - STEP * (len(folded(some)) < len(some)), 0)
    if top:
        title = (*title, Span("  PgUp: back", "dim"))
    elif len(some) > height - 1 - (height > _SHORT) and len(alike := folded(some)) < len(some):
        title, some = (*title, Span("  PgDn: each", "dim")), alike
    with_heads = any(one.request for one in some) and (height > _SHORT or len(some) + 1 < height)
    titled = [heads(placed)] if with_heads else []
    room = height - 1 - len(titled)
    lines = [row(placed, one) if one.request else _least(placed, one, least(one.device)) for one in some]
    return [fit(line, width) for line in (title, *titled, *_from(lines, room, begin))][:height]


def folded(some: Sequence[Aged]) -> list[Aged]:
    """Requests of one device, op, issuer and place as one, which is the oldest of them."""
    found: dict[Hashable, Aged] = {}
    for one in some:
        asked = one.request
        like = (one.device, asked.op, asked.flags, asked.comm or asked.pid, asked.issued, asked.own) if asked else one
        had = found.get(like)
        found[like] = _one_more(had, one) if had else one
    return list(found.values())


def _one_more(had: Aged, one: Aged) -> Aged:
    """Several processes of one name have no number."""
    first, asked = had.request, one.request
    if first and asked and first.pid != asked.pid:
        first = first._replace(pid=None)
    return replace(had, count=had.count + one.count, request=first)


def _from(lines: list[Line], room: int, begin: int) -> list[Line]:
    """As many as fit; where some are left out below, how many, and the key that shows them."""
    begin = max(0, min(begin, len(lines) - room))
    shown = lines[begin : begin + max(room, 0)]
    if (left := len(lines) - begin - len(shown)) and shown:
        shown[-1] = (Span(f" … {count(left + 1)} more lines: PgDn", "dim"),)
    return shown


def _least(placed: Placed[Aged], one: Aged, why: str) -> Line:
    """Nothing is known but the device and for how long they have waited at least; then why."""
    cells = {field.title: room for field, room in placed}
    said = f"{count(one.count)} I/O{'s' * (one.count > 1)}, at least"
    return (
        Span(f" {cell(_age(one, 0), cells['age'], right=True)} ", "strong"),
        Span(f"{cell(one.device, cells.get('device', len(one.device)))} {said}"),
        Span(f"; {why}" if why else "", "dim"),
    )


def counted(ages: Ages) -> str:
    """Those > 1 s: 3, > 10 s: 1; empty where none is."""
    parts = [f"{words}: {count(ages.older[s])}" for s, words in _ABOVE.items() if ages.older.get(s)]
    return ", ".join(parts) + (" or more" if parts and ages.at_least else "")


def _title(ages: Ages) -> str:
    told, unknown = counted(ages), ages.of_unknown_age
    if not unknown:
        return told or "nothing above 1 s"
    not_known = f"the ages of {count(unknown)} are not known"
    return f"{told}; {not_known}" if told else not_known


def in_words(ages: Ages) -> tuple[str, ...]:
    """For the health line, the longest first and the age alone last; nothing where nothing is known to wait."""
    if ages.oldest_us is None:
        return ()
    age = f"{'≥' if ages.oldest[0].at_least else ''}{duration(ages.oldest_us, 2)}"
    several, alone = counted(ages), f"oldest in flight {age}"
    if not several:
        return (alone,)
    least = "+" if ages.at_least else ""
    brief = " ".join(f"{count(ages.older[s])}{least}>{words}" for s, words in _BRIEF.items() if ages.older.get(s))
    return (f"in flight {several}, oldest {age}", f"{alone} {brief}", f"in flight {age} {brief}", f"in flight {age}")


def worst(ages: Ages) -> str:
    """The oldest as a sentence, where it is older than 10 s; empty text where none is."""
    if ages.oldest_us is None or ages.oldest_us < NAMED_US:
        return ""
    one, others = ages.oldest[0], ages.older.get(10, 0)
    mine = " of latmon's own" if one.request and one.request.own else ""
    what = f"a {one.request.op}{mine}" if one.request else f"{one.count} I/O{'s' * (one.count > 1)}"
    least = "at least " if one.at_least else ""
    more = f"; {count(others)} are older than 10 s" if others > 1 else ""
    return f"{one.device}: {what} in flight for {least}{spelled(one.age_us)}, not completed{more}"


def _age(one: Aged, _cells: int) -> str:
    return f"{'≥' if one.at_least else ''}{duration(one.age_us)}"


def _op(one: Aged, _cells: int) -> str:
    return letters(one.request.op, one.request.flags) if one.request else UNKNOWN


def _where(one: Aged, cells: int) -> str:
    words = {True: "in the driver", False: "in the queue", None: UNKNOWN}[one.request.issued if one.request else None]
    many = f"{count(one.count)}x " if one.count > 1 else ""
    return many + (words if cells >= len(many + words) else words.rsplit(" ", 1)[-1])


def _who(one: Aged, cells: int) -> str:
    request = one.request
    if request is None or (request.pid is None and not request.comm):
        return UNKNOWN
    own = OWN if request.own else ""
    name = own + "/".join(word for word in (request.comm, str(request.pid or "")) if word)
    return name if len(name) <= cells else f"{own}{request.comm}" or name


def _passed(one: Aged, _cells: int) -> str:
    return UNKNOWN if one.request is None or one.request.overtaken_by is None else count(one.request.overtaken_by)


def _sector(one: Aged) -> str:
    if one.count > 1:
        return "several"
    return UNKNOWN if one.request is None or one.request.sector is None else f"{one.request.sector:,}"


_FIELDS: tuple[Field[Aged], ...] = (
    Field("age", 6, _age, role="strong"),
    Field("device", 8, lambda one, _: one.device, right=False, most=9),
    Field("op", 4, _op, right=False),
    Field("size", 5, lambda one, _: size(one.request.bytes if one.request else None)),
    Field("waits", 13, _where, right=False, most=32),
    Field("passed", 6, _passed),
    Field("sector", 15, lambda one, _: _sector(one), rank=1),
    Field("who", 10, _who, rank=1, right=False, most=20, role="dim"),
)
