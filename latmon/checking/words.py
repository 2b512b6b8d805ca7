"""A survey as lines for a terminal or a ticket: what the file is, and one line for each damage. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from latmon.checking.passages import Damage, Passages
from latmon.checking.repacked import Repacked
from latmon.checking.survey import Survey
from latmon.new_file import named
from latmon.quantities import show_size
from latmon.recording.lines import FORMAT
from latmon.text import clean

_SENTENCE = 300


def told(path: Path, found: Survey, passages: Passages | Repacked) -> list[str]:
    """What the file is, then its damages in the order of their places."""
    origin = found.origin
    by = ", ".join(word for word in (origin.backend, origin.tool, origin.tier and f"tier {origin.tier}") if word)
    rows = (
        ("file", f"{named(path)}, a recording of latmon {origin.latmon}, format {FORMAT[0]}.x"),
        ("host", f"{origin.host}, kernel {origin.kernel}"),
        ("backend", by),
        ("from", stamp(found.first_wall) if found.first_wall is not None else "no window"),
        ("to", stamp(found.last_wall) if found.windows else ""),
        ("windows", ", ".join(_windows(found))),
        ("size", f"{passages.size} bytes ({show_size(passages.size)}) in {_many(passages.members, 'member')}"),
        ("closed", _closed(passages)),
    )
    head = [f"{name:<8} {clean(text, _SENTENCE)}" for name, text in rows if text]
    damages = sorted(found.damages, key=lambda one: (one.at, one.line))
    left_out = found.damaged - len(damages)
    more = [f"damage   and {left_out} more damaged places"] if left_out else []
    return [*head, *(f"damage   {clean(_damage(one), _SENTENCE)}" for one in damages), *more]


def verdict(path: Path, found: Survey, passages: Passages | Repacked) -> str:
    """The last line: clean or not, and what to do."""
    if found.clean:
        still = " so far: a live latmon is writing it" if passages.live else ""
        return f"clean    everything in it is read{still}"
    if all(one.mild for one in found.damages):
        lost = "every whole window is there"
    elif found.lost_us or not found.unknown_loss:
        lost = f"{_seconds(found.lost_us)} lost{' and more that nobody can tell' if found.unknown_loss else ''}"
    else:
        lost = "how much is lost can't be told"
    remedy = f"`latmon check {named(path)} --repair -o OUT` writes a clean copy"
    return f"damaged  {_many(found.damaged, 'place')}, {lost}; {remedy}"


def stamp(wall: float) -> str:
    """UTC to the millisecond."""
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _damage(one: Damage) -> str:
    when = f" ({stamp(one.wall)})" if one.wall else ""
    lost = "; what is lost can't be told" if one.lost_us is None else ""
    lost = f"; {_seconds(one.lost_us)} lost" if one.lost_us else lost
    place = f"byte {one.at}, line {one.line} of the member there" if one.line else f"byte {one.at}"
    return f"{place}{when}: {one.what}{lost}"


def _windows(found: Survey) -> Iterator[str]:
    yield f"{found.windows}, {found.covered_us / 1e6:g} s in all"
    if found.gaps:
        yield f"{_many(found.gaps, 'gap')} of {found.gap_seconds:g} s in all"
    if found.late:
        yield f"{found.late} read late"
    if found.marks:
        yield _many(found.marks, "mark")
    if found.later:
        kinds = ", ".join(kind or "no type" for kind in found.later)
        yield f"{_many(found.later.total(), 'line')} that a later version added ({kinds})"


def _closed(passages: Passages | Repacked) -> str:
    if passages.ended is not None:
        return f"yes ({passages.ended.reason})" if passages.ended.reason else "yes"
    return "not yet: a live latmon is writing it" if passages.live else "no"


def _seconds(us: int) -> str:
    return f"{us / 1e6:.3f}".rstrip("0").rstrip(".") + " s"


def _many(count: int, name: str) -> str:
    return f"{count} {name}{'s' * (count != 1)}"
