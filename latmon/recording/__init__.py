"""The recording: JSON Lines in a multi-member gzip file that survives kill -9, a full disk and flipped bits.

lines.py encodes, decode.py and checks.py come back from untrusted JSON, members.py owns the gzip layout, writer.py and
reader.py the file. The header and window lines are also the lines of the live feed.
"""

from __future__ import annotations

from latmon.mark import Mark
from latmon.recording.checks import parse
from latmon.recording.decode import decode_frame, decode_origin
from latmon.recording.lines import End, Gap, encode_frame, encode_origin
from latmon.recording.parts import Parts, open_parts
from latmon.recording.reader import UNCLOSED, Recording, open_recording
from latmon.recording.writer import Writer

__all__ = [
    "UNCLOSED",
    "End",
    "Gap",
    "Mark",
    "Parts",
    "Recording",
    "Writer",
    "decode_frame",
    "decode_origin",
    "encode_frame",
    "encode_origin",
    "open_parts",
    "open_recording",
    "parse",
]
