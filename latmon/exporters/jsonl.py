"""JSON Lines export: the recording's own lines, unpacked; an unreadable line becomes a `damage` line.

Every line is decoded and encoded again in ASCII, so that a hostile one can't command the terminal that shows it. Lines
of types that this version doesn't know are passed on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from latmon.exporters.registry import ExportOptions, Item, Source, UnreportedGaps
from latmon.model.frame import Frame
from latmon.recording import codec, validate
from latmon.recording.codec import Gap
from latmon.recording.rollup import KIND


def write(source: Source, out: BinaryIO, _options: ExportOptions) -> None:
    """Write all lines of all readable members; if devices are selected, windows have only those."""
    source.windows = source.gaps = source.damaged = 0
    source.devices = {one.name: one for one in source.recording.devices}
    unreported = UnreportedGaps(source.origin.interval_us)
    noted = others = 0
    for line, item in source.recording.reported():
        damage = source.recording.damage
        out.writelines(_damage(damage[noted:]))
        noted = len(damage)
        try:
            reported = _line(line, item, source)
        except ValueError:  # JSON has no infinity; what overflows to one is no number of a recording
            out.writelines(_damage(["a line has a number that is out of range"]))
            others += 1
            continue
        if item is not None:
            source.gaps += isinstance(item, Gap) + sum(1 for _ in unreported.before(item))
            source.windows += isinstance(item, Frame)
        out.write(reported)
    damage = source.recording.damage
    out.writelines(_damage(damage[noted:]))
    source.damaged = len(damage) + others
    source.check()


def _line(line: bytes, item: Item | None, source: Source) -> bytes:
    """Return a line as it is exported; empty for a sum over devices that are not selected."""
    value = validate.parse(line)
    if source.globs and isinstance(item, Frame):
        source.devices.update((one.name, one) for one in item.devices)
        value = codec.encode_frame(source.only(item))
    elif source.globs and value.get("type") == KIND:  # it can be made again from its windows
        return b""
    return codec.to_bytes(value)


def _damage(found: list[str]) -> Iterator[bytes]:
    return (codec.to_bytes({"type": "damage", "text": text}) for text in found)
