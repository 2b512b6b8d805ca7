"""latmon's own lines, unpacked: what `export --to jsonl` writes. Windows come back as they were, header and all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from latmon.errors import RecordingError
from latmon.imports.found import Asked, Found, Head, Passed, Remark, Where, Whole
from latmon.mark import Mark
from latmon.recording import checks, decode


def sniff(head: str) -> bool:
    """A header, or windows."""
    first = next((line for line in head.split("\n") if line.strip()), "")
    return first.startswith("{") and ('"type":"header"' in first[:100] or '"type":"window"' in first[:100])


def read(lines: Sequence[str], asked: Asked) -> Iterator[Found]:
    """A line that is none of ours is left to be named."""
    del asked
    marks: list[Mark] = []
    for at, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = Where(at, at)
        try:
            value = checks.parse(line.encode())
            match value.get("type"):
                case "header":
                    yield Head(where, decode.decode_origin(value))
                case "window":
                    frame = decode.decode_frame(value)
                    yield Whole(where, replace(frame, marks=(*frame.marks, *marks)))
                    marks = []
                case "mark":
                    marks.append(decode.decode_mark(value))
                case "gap":
                    yield Remark(where, f"a gap of {decode.decode_gap(value).seconds:g} s: {value.get('reason')}")
                case "damage":
                    yield Remark(where, f"damaged in the recording: {value.get('text')}", 1)
        except RecordingError as error:
            yield Remark(where, str(error), 1, is_incomplete=True)
        else:
            yield Passed(where)
