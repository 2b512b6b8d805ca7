"""The feed between collector and UI, the session, which is the UI's side of the collector process, and services on it.

The feed has the recording's header and window lines, an end line, and commands back. `Lines` and `Outlet` are sans-IO;
the collector's outlet drops whole frames when the UI doesn't read. The session starts the collector, reads its feed as
a backend, ends it, and returns its exit code. It must be started before Textual is imported: the collector opens its
probes meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import syslog
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, Self

from latmon.capture.registry import Request
from latmon.model.devices import carry
from latmon.model.frame import Frame, Origin
from latmon.model.redaction import Redaction
from latmon.recording.codec import IdleReader, IdleWriter, decode_origin, encode_origin, to_bytes
from latmon.recording.json_line import parse
from latmon.recording.writer import private_frame, private_origin
from latmon.support import imports, signals
from latmon.support.errors import EXIT_FAILED, EXIT_UNAVAILABLE, LatmonError, UnavailableError
from latmon.support.process import module_path, notify, signal_name, widen
from latmon.support.streams import Log
from latmon.support.text import clean

MAX_LINE = 64 * 1024 * 1024
"""asyncio's own limit of 64 KiB is a fifth of one bpftrace line with 1000 keys."""
MAX_BACKLOG = 4 * 1024 * 1024
"""Bytes buffered for a UI that doesn't read: some minutes at 1 s; later frames are dropped."""
MAX_COMMAND = 1024 * 1024
"""Bytes of a request or a command to the collector: the names of all devices fit into it."""
MAX_REASON = 400
SCREEN_COMMANDS = ("record", "stages", "mark", "settings", "deepen")
"""Commands that a screen sends. The exporter and `latmon watch` send none."""
FLEET_COMMANDS = ("clock", "stages", "deepen")
"""Commands that `latmon fleet` sends to a host's latmon."""
TOGGLE = b'{"record":"toggle"}\n'
READ_SETTINGS = b'{"settings":"read"}\n'
LEAVE_S = 2.5
"""The collector ends within 2 s after its socket is closed; a quarter more before it gets a signal."""
CHUNK = 1 << 18
MAX_OUTPUT_LINES = 100
MAX_OUTPUT_CHARS = 200
COLLECTOR = (*imports.CHECKED, "latmon.capture.collector")
LEVELS = {"notice": syslog.LOG_NOTICE, "warning": syslog.LOG_WARNING, "critical": syslog.LOG_CRIT}
"""Severity of a finding -> its level in a log."""


def mark_command(text: str, span: tuple[int, int] | None = None) -> bytes:
    """Encode a note of the user; `span`: begin and end, on CLOCK_MONOTONIC in us, of the time that it is about."""
    return to_bytes({"mark": text, **({"span": list(span)} if span else {})})


def stages_command(mode: str) -> bytes:
    """Encode a change of the mode, one of STAGES_MODES."""
    return to_bytes({"stages": mode})


def request_tracing_command(devices: Sequence[str], *, files: bool) -> bytes:
    """Encode a request to trace these devices (empty: all), and operations on files."""
    return to_bytes({"deepen": list(devices), **({"files": True} if files else {})})


class Lines:
    """Splitter of received bytes into whole lines without their newline."""

    def __init__(self, max_line: int | None = None) -> None:
        """`max_line`: bytes of a line at most; None: MAX_LINE."""
        self._max_line = MAX_LINE if max_line is None else max_line
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes; LatmonError for one that is longer than latmon writes."""
        if b"\n" not in data:
            self._rest += data
            if len(self._rest) > self._max_line:
                raise LatmonError(f"a line of the feed is longer than {self._max_line} bytes")
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
        self._windows = IdleWriter()

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
            self._pipe.write(to_bytes(self._windows.encode(frame)))

    def end(self, reason: str, exit_code: int) -> None:
        if not self._pipe.is_closing():
            self._pipe.write(end_line(reason, exit_code))


class Session:
    """A running collector process. `feed` is its backend; `close` ends it and returns its exit code."""

    def __init__(self, request: Request, command: Sequence[str] = COLLECTOR) -> None:
        ours, theirs = socket.socketpair()
        reader, writer = _large_pipe()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [*command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                pass_fds=(theirs.fileno(),),
                # Not a session of its own: sudo's ticket belongs to the terminal, and `sudo -n` must still find it.
                process_group=0,
                env={**os.environ, "PYTHONPATH": module_path()},
            )
        os.close(writer)
        self._socket = ours
        self._socket.sendall(request.encode())
        self._output: deque[str] = deque(maxlen=MAX_OUTPUT_LINES)
        self._listener = threading.Thread(target=self._listen, args=(reader,), daemon=True)
        self._listener.start()
        self.feed = Feed(ours, self.failure_reason)

    @property
    def pid(self) -> int:
        return self._process.pid

    def toggle_recording(self) -> None:
        """Start or stop a recording; the next frame's health contains the result."""
        self._send(TOGGLE)

    def set_stages(self, mode: str) -> None:
        """Set the mode, one of STAGES_MODES; the result is in the next frames."""
        self._send(stages_command(mode))

    def request_tracing(self, devices: tuple[str, ...], *, files: bool = False) -> None:
        """Trace these devices (empty: all) for a while; repeated as long as a screen shows their stages."""
        self._send(request_tracing_command(devices, files=files))

    def mark(self, text: str, span: tuple[int, int] | None = None) -> None:
        """Add a note of the user; the next frame contains it, with the settings of the span or the present ones."""
        self._send(mark_command(text, span))

    def read_settings(self) -> None:
        """Read the settings, for a later mark with a span."""
        self._send(READ_SETTINGS)

    def _send(self, command: bytes) -> None:
        with contextlib.suppress(OSError):  # the collector is gone: the feed's end reports it
            self._socket.send(command)

    def failure_reason(self) -> str:
        """Return why the collector ended without an end line: its last sentence, or the signal that killed it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVE_S)
        self._listener.join(0.5)
        status = self._process.poll()
        if status is not None and status < 0:
            return f"the collector was killed by {signal_name(-status)}"
        last = next((line for line in reversed(self._output) if line.strip()), "it printed no reason")
        return f"the collector failed: {last}"

    def close(self) -> int:
        """Close the socket, wait, and return the collector's exit code; 1 without an end line."""
        self._socket.close()
        for insist in (None, self._process.terminate, self._process.kill):
            with contextlib.suppress(PermissionError):  # it runs as root while it opens its probes, and ends by itself
                if insist is not None:
                    insist()
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(LEAVE_S)
                return EXIT_FAILED if status < 0 else status
        return EXIT_FAILED

    def _listen(self, reader: int) -> None:
        with os.fdopen(reader, encoding="utf-8", errors="backslashreplace") as lines:
            while line := lines.readline(MAX_OUTPUT_CHARS):
                self._output.append(clean(line.rstrip("\n"), MAX_OUTPUT_CHARS))


class Feed:
    """The backend of the UI: the collector's frames as they arrive. `ended` is why there are no more; empty before."""

    def __init__(self, sock: socket.socket, failure_reason: Callable[[], str]) -> None:
        sock.setblocking(False)
        self._socket, self._failure_reason = sock, failure_reason
        self._lines = Lines()
        self._waiting: deque[bytes] = deque()
        self._windows = IdleReader()
        self._origin: Origin | None = None
        self.line = b""
        """The latest line."""
        self.ended = ""
        self.exit = EXIT_FAILED

    @property
    def origin(self) -> Origin:
        if self._origin is None:
            raise LatmonError("the collector has not opened its backend yet")
        return self._origin

    async def __aenter__(self) -> Self:
        """Wait for the backend to open, which takes a second or two where probes must be compiled."""
        value = await self._next()
        if value is None:
            refused = UnavailableError if self.exit == EXIT_UNAVAILABLE else LatmonError
            raise refused(self.ended)
        self._origin = decode_origin(value)
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the socket at once: restoring the terminal takes a while, and the probe has 2 s."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield frames until LatmonError: a live capture has no regular end, and the error is the reason of its end."""
        while (value := await self._next()) is not None:
            if value.get("type") == "window":
                yield self._windows.decode(value)
        raise LatmonError(self.ended)

    async def _next(self) -> dict[str, Any] | None:
        """Return the next line's value; None at the end, which sets `ended` and `exit`."""
        while not self._waiting and not self.ended:
            data = await self._receive()
            if not data:
                self.ended = await asyncio.to_thread(self._failure_reason)
            self._waiting += self._lines.feed(data)
        if not self._waiting:
            return None
        self.line = self._waiting.popleft()
        value = parse(self.line)
        if value.get("type") != "end":
            return value
        self.ended, self.exit = decode_end(value)
        self._waiting.clear()
        return None

    async def _receive(self) -> bytes:
        try:
            return await asyncio.get_running_loop().sock_recv(self._socket, CHUNK)
        except OSError:  # reset: the collector was killed with our commands unread
            return b""


def _large_pipe() -> tuple[int, int]:
    """Return a pipe whose writer never blocks: a stopped UI doesn't read, and further output is lost."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    widen(writing)
    return reading, writing


async def until_signal(work: Coroutine[Any, Any, None]) -> str:
    """Run a service to its end, or until SIGTERM, SIGINT or SIGHUP cancels it; return a text that names what ended it.

    An error of the service is raised, also one of its cleanup after a signal.
    """
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[str] = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, partial(_stop, stopped, number.name))
    signals.leave_if_received()
    working = asyncio.create_task(work)
    either: set[asyncio.Future[Any]] = {working, stopped}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if working.done():
        working.result()
        return "the end of the capture"
    working.cancel()
    await asyncio.wait({working})
    if not working.cancelled():
        working.result()
    return stopped.result()


def _stop(stopped: asyncio.Future[str], name: str) -> None:
    if not stopped.done():
        stopped.set_result(name)


def notice_level(frame: Frame) -> int:
    """Return the level of a frame's notice: a warning where something is missing."""
    missing = frame.health.probes_attached < frame.health.probes_wanted
    return syslog.LOG_WARNING if frame.gap or missing else syslog.LOG_NOTICE


def details(origin: Origin) -> Iterator[str]:
    """Yield what a capture measures, and what it can't, in sentences for a verbose log; no host, for `--redact`."""
    tier = f", tier {origin.tier}" if origin.tier else ""
    yield f"latmon {origin.latmon}, kernel {origin.kernel}: {origin.backend}{tier}"
    for missing in (*origin.probes_missing, *origin.untraced):
        yield f"not measured: {missing.name}: {missing.reason}"


async def followed(feed: Feed, log: Log, *, redaction: Redaction | None = None) -> AsyncIterator[Frame]:
    """Yield the frames of a service's open feed; after each, report to systemd that the service is ready, or runs.

    Log why the capture is not a better one, and each notice once. `redaction`: frames and log have no private names.
    """
    notice, state = "", "READY=1"
    origin = private_origin(feed.origin, redaction) if redaction else feed.origin
    if origin.reason:
        log(syslog.LOG_WARNING, origin.reason)
    for sentence in details(origin):
        log(syslog.LOG_DEBUG, sentence)
    async for received in feed.frames():
        frame = private_frame(received, redaction) if redaction else received
        if frame.health.notice not in ("", notice):
            notice = frame.health.notice
            log(notice_level(frame), notice)
        yield frame
        notify(state)
        state = "WATCHDOG=1"
