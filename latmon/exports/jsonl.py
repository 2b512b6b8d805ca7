"""jsonl: the recording's own lines, unpacked. What is not JSON of ours becomes a `damage` line in its place.

Every line is written anew, in ASCII: a hostile one can't command the terminal that shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from latmon.errors import RecordingError
from latmon.exports.source import Source
from latmon.exports.wish import Wish
from latmon.recording import checks, lines
from latmon.recording.decode import decode_frame
from latmon.recording.members import Members
from latmon.recording.reader import lines_of, opened


def write(source: Source, out: BinaryIO, _wish: Wish) -> None:
    """All lines of all readable members; with devices chosen, windows hold those alone."""
    source.windows = source.gaps = source.damaged = 0
    source.devices = {one.name: one for one in source.recording.devices}
    found: list[str] = []
    ended = False
    with opened(source.recording.path) as file:
        for text in Members(file, found.append).texts():
            for line in lines_of(text, found.append):
                kept, told = None, b""
                try:
                    kept = _kept(checks.parse(line), source)
                    told = b"" if kept is None else lines.to_bytes(kept)
                except RecordingError as damage:
                    found.append(str(damage))
                except ValueError:  # JSON has no infinity; what overflows to one is no number of a recording
                    found.append("a line has a number that is out of range")
                out.writelines(_damage(found, source))
                if kept is not None and told:
                    ended = kept.get("type") == "end"
                    out.write(told)
    if not ended:
        found.append("ended without a closing line (killed?)")
    out.writelines(_damage(found, source))
    source.check()


def _kept(value: checks.Json, source: Source) -> checks.Json | None:
    kind = value.get("type")
    source.gaps += kind == "gap"
    if kind == "window":
        source.windows += 1
        if source.globs:
            frame = decode_frame(value)
            source.devices.update((one.name, one) for one in frame.devices)
            return lines.encode_frame(source.only(frame))
    if kind == "minute" and source.globs:  # it can be made again from its windows
        return None
    return value


def _damage(found: list[str], source: Source) -> Iterator[bytes]:
    source.damaged += len(found)
    yield from (lines.to_bytes({"type": "damage", "text": text}) for text in found)
    found.clear()
