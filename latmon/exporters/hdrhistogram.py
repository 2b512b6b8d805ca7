"""HdrHistogram log 1.3: an interval histogram per window, device, op and stage, separated by Tag.

Values are microseconds. With one significant digit HdrHistogram has 16 parts of an octave, twice ours: each of our
buckets is two of its own, and no edge is lost. A bucket's I/Os are put where its upper end is, those of the highest
where the maximum is, so that its quantiles are latmon's, an upper bound.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO
from urllib.parse import quote

from latmon.exporters.registry import DamageNote, ExportOptions, Reported, Source
from latmon.model.frame import Frame, Mark, Series
from latmon.model.histogram import MAX_US, Histogram, bucket_bounds
from latmon.model.stages import explained
from latmon.recording.codec import Gap
from latmon.support.units import rfc3339

DIGITS = 1
_PARTS_BITS = 4
"""16 parts of an octave; below 32 each value is its own."""
_COOKIE, _COMPRESSED = 0x1C849303 | 0x10, 0x1C849304 | 0x10
_HEAD = struct.Struct(">IIIIQQd")
_TAG_SAFE = " !$&'()*+;=@[]^`{|}~#".replace(" ", "")
_LEVEL = 6


def write(source: Source, out: BinaryIO, _options: ExportOptions) -> None:
    """Write a header and a line per interval histogram; time runs from the recording's begin."""
    origin = source.origin
    begin = f"{origin.start_wall:.3f} (seconds since epoch)"
    out.write(
        f"#[latmon {_comment(origin.latmon)}, {_comment(origin.host)}; values are microseconds]\n"
        "#[Histogram log format version 1.3]\n"
        f"#[StartTime: {begin}, {rfc3339(origin.start_wall, 'microseconds')}]\n#[BaseTime: {begin}]\n"
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n'.encode()
    )
    out.writelines(
        f"#[Includes: {_comment(text)}]\n".encode() if (text := explained(stage, inside)) else b""
        for stage, inside in origin.measured.items()
    )
    if source.redacted:
        out.write(b"#[redacted]\n")
    out.writelines(
        "".join(_lines(item, origin.start_mono_us)).encode("utf-8", "backslashreplace") for item in source.reported()
    )


def _lines(item: Reported, start_us: int) -> Iterator[str]:
    if isinstance(item, Frame):
        at = f"{max(item.mono_us - item.dt_us - start_us, 0) / 1e6:.6f},{item.dt_us / 1e6:.6f}"
        for histograms, last in ((item.histograms, ""), (item.traced.histograms, "/traced")):
            for series, histogram in histograms.items():
                if histogram:
                    yield f"Tag={tag(series)}{last},{at},{histogram.max_bound:.3f},{encode(histogram)}\n"
    elif isinstance(item, Gap):
        yield f"#[Gap: {item.seconds:.6f} s behind {(item.mono_us - start_us) / 1e6:.6f}: {_comment(item.reason)}]\n"
    elif isinstance(item, Mark):
        yield f"#[Mark: {(item.mono_us - start_us) / 1e6:.6f}: {_comment(item.sentence)}]\n"
    elif isinstance(item, DamageNote):
        yield f"#[Damage: {_comment(item.text)}]\n"


def tag(series: Series) -> str:
    """Return DEVICE/OP/STAGE, with characters that would end or split a tag percent-encoded."""
    return "/".join(quote(part, safe=_TAG_SAFE) for part in series)


def encode(histogram: Histogram) -> str:
    """Return HdrHistogram's compressed form V2 in base64: zig-zag LEB128, a run of empty slots as a negative number."""
    counts: dict[int, int] = {}
    for index, n in histogram.buckets:
        at = slot(min(histogram.cap(bucket_bounds(index, histogram.bits)[1] - 1), MAX_US))
        counts[at] = counts.get(at, 0) + n
    words, behind = bytearray(), 0
    for at, n in sorted(counts.items()):
        if at > behind:
            words += _word(behind - at)
        words += _word(n)
        behind = at + 1
    head = _HEAD.pack(_COOKIE, len(words), 0, DIGITS, 1, MAX_US, 1.0)
    squeezed = zlib.compress(head + words, _LEVEL)
    return base64.b64encode(struct.pack(">II", _COMPRESSED, len(squeezed)) + squeezed).decode("ascii")


def slot(us: int) -> int:
    """Return the index of a value in HdrHistogram's array of counts."""
    shift = max(us.bit_length() - 1 - _PARTS_BITS, 0)
    return (shift << _PARTS_BITS) + (us >> shift)


def _word(value: int) -> bytes:
    remainder = value << 1 if value >= 0 else (-value << 1) - 1
    word_bytes = bytearray()
    while remainder > 0x7F:  # noqa: PLR2004  seven bits a byte
        word_bytes.append(remainder & 0x7F | 0x80)
        remainder >>= 7
    return bytes((*word_bytes, remainder))


def _comment(text: str) -> str:
    """Return text for a comment, without the line ends and brackets that would end it."""
    return text.replace("]", ")").replace("[", "(")
