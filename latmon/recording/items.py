"""Items of a member's text: its windows, gaps, marks and end, each checked against those before it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from itertools import islice

from latmon.model.frame import Frame, Mark
from latmon.recording import codec
from latmon.recording.codec import End, Gap
from latmon.recording.json_line import parse
from latmon.recording.packed_tables import totals_alone
from latmon.recording.read_position import ReadPosition, admit, enter
from latmon.support.errors import RecordingError

MAX_LINES = 100_000
"""Lines of one member; a second of 10 windows and a thousand outliers has a hundredth of it."""
Item = Frame | Gap | Mark | End


def read_lines(
    text: bytes, position: ReadPosition, note: Callable[[str], None], *, totals: bool = False
) -> Iterator[tuple[bytes, Item | None]]:
    """Yield each line that can be read, with its item; None for a line that is no item of readers.

    `note` is called with damage. `totals`: of the always-on probe's histograms those alone.
    """
    for line in lines_of(text, note):
        try:
            item = item_behind(totals_alone(line) if totals else line, position)
            if position.is_foreign:
                continue
            if isinstance(item, Frame):
                admit(item, position)
        except RecordingError as damage:
            note(f"behind {position.mono_us} us: {damage}" if position.mono_us >= 0 else str(damage))
            continue
        if item is not None:
            position.ended = isinstance(item, End)
        yield line, item


def lines_of(text: bytes, note: Callable[[str], None]) -> Iterator[bytes]:
    """Yield a member's lines, at most MAX_LINES."""
    lines = io.BytesIO(text)
    yield from islice(lines, MAX_LINES)
    if lines.read(1):
        note(f"a member has more than {MAX_LINES} lines: the rest is left out")


def item_behind(line: bytes, position: ReadPosition) -> Item | None:
    """Return a line's value, after a check of a header against the first one (`enter`)."""
    value = parse(line)
    if value.get("type") == "header":
        enter(codec.decode_origin(value), position)
    return codec.decode_item(value)


def item_of(line: bytes) -> Item | None:
    """Return a line's value; None for the header and for types that a later version added."""
    return codec.decode_item(parse(line))
