"""The pipe between collector and UI: the recording's header and window lines, an end line, and commands back.

Sans-IO: bytes in, lines out, and the collector's half that drops whole frames when the UI doesn't read. The UI's half
is session.Feed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from latmon.model.devices import carry
from latmon.model.frame import Frame, Origin
from latmon.recording.encode import encode_frame, encode_origin, to_bytes
from latmon.support.errors import EXIT_FAILED, LatmonError
from latmon.support.text import clean

MAX_LINE = 64 * 1024 * 1024
"""asyncio's own limit of 64 KiB is a fifth of one bpftrace line with 1000 keys."""
MAX_BACKLOG = 4 * 1024 * 1024
"""Bytes buffered for a UI that doesn't read: some minutes at 1 s; later frames are dropped."""
MAX_REASON = 400
TOGGLE = b'{"record":"toggle"}\n'


def mark_command(text: str) -> bytes:
    """Encode a note of the user."""
    return to_bytes({"mark": text})


def stages_command(mode: str) -> bytes:
    """Encode a change of the mode, one of STAGES_MODES."""
    return to_bytes({"stages": mode})


def request_tracing_command(devices: tuple[str, ...]) -> bytes:
    """Encode a request to trace these devices (empty: all)."""
    return to_bytes({"deepen": list(devices)})


class Lines:
    """Splitter of received bytes into whole lines without their newline."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes; LatmonError for one beyond MAX_LINE, which no collector writes."""
        if b"\n" not in data:
            self._rest += data
            if len(self._rest) > MAX_LINE:
                raise LatmonError(f"a line of the feed is longer than {MAX_LINE} bytes")
            return []
        first, *others = data.split(b"\n")
        lines = [bytes(self._rest) + first, *others]
        self._rest = bytearray(lines.pop())
        return lines


def end_line(reason: str, exit_code: int) -> bytes:
    """Encode why there are no more frames, and the exit code of the capture."""
    return to_bytes({"type": "end", "reason": clean(reason, MAX_REASON), "exit": exit_code})


def decode_end(value: Mapping[str, Any]) -> tuple[str, int]:
    """Return (reason, exit code) of an end line."""
    code = value.get("exit")
    return clean(str(value.get("reason", "")), MAX_REASON), code if isinstance(code, int) else EXIT_FAILED


class Pipe(Protocol):
    """The part of asyncio.WriteTransport that the outlet uses."""

    def write(self, data: bytes) -> None: ...

    def get_write_buffer_size(self) -> int: ...

    def is_closing(self) -> bool: ...


class Outlet:
    """Writer of origin and frames to the UI; frames are dropped if it doesn't read, changes of devices never."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._missed = 0
        self._carried: Frame | None = None

    def opened(self, origin: Origin) -> None:
        self._pipe.write(to_bytes(encode_origin(origin)))

    def offer(self, frame: Frame, _tally: object = None) -> None:
        if self._carried is not None:
            frame = carry((self._carried,), frame)
        if self._pipe.get_write_buffer_size() > MAX_BACKLOG:
            self._missed += 1
            self._carried = frame
            return
        if self._missed:
            frame = replace(frame, health=replace(frame.health, dropped_frames=self._missed))
        self._missed, self._carried = 0, None
        if not self._pipe.is_closing():
            self._pipe.write(to_bytes(encode_frame(frame)))

    def end(self, reason: str, exit_code: int) -> None:
        if not self._pipe.is_closing():
            self._pipe.write(end_line(reason, exit_code))
