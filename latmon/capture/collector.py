"""The collector process: reads the probes and writes the recording, independent of the terminal.

Started by session.py with its end of a socket pair: `python -m latmon.capture.collector FD`. First line
in: the request; then commands. Out: the feed. It leaves by itself within 2 s when the socket closes. On a host of a
fleet, `latmon fleet --feed` is the same over standard input and output, with the request from its options.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Mapping
from typing import Any

from latmon.capture.capture import Capture, Outcome
from latmon.capture.registry import Request, opened
from latmon.capture.session import MAX_BACKLOG, Lines, Outlet
from latmon.model.stages import STAGES_MODES
from latmon.recording.codec import to_bytes
from latmon.support.errors import EXIT_FAILED, LatmonError, UsageError
from latmon.support.process import OwnProcesses
from latmon.support.text import clean

FAREWELL_S = 0.5
"""Time for the UI, which may be stopped, to read the end line."""
MAX_MARK = 200
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Collector(asyncio.Protocol):
    """Protocol of the socket to the UI, or of two pipes: one capture from its first line to the end of either side."""

    def __init__(self, request: Request | None = None, quiet_s: float = 0.0) -> None:
        """Without a request the first line is one. After `quiet_s` without a line the capture ends; 0: never."""
        self._quiet_s = quiet_s
        self._ending: asyncio.TimerHandle | None = None
        self._lines = Lines()
        self._transport: asyncio.WriteTransport | None = None
        self._capture: Capture | None = None
        self.requested: asyncio.Future[Request | None] = asyncio.get_running_loop().create_future()
        if request is not None:
            self.requested.set_result(request)
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.WriteTransport):
            transport.set_write_buffer_limits(high=MAX_BACKLOG)
            self._transport = transport
        self._wait_on()

    def _wait_on(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        if self._quiet_s:
            why = f"nothing came from latmon fleet for {self._quiet_s:.0f} s"
            self._ending = asyncio.get_running_loop().call_later(self._quiet_s, self.stop, why)

    def data_received(self, data: bytes) -> None:
        self._wait_on()
        for line in self._lines.feed(data):
            if not self.requested.done():
                self.requested.set_result(Request.decode(line))
            else:
                self._execute(json.loads(line))

    def connection_lost(self, _exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        self.stop("the user interface is gone")

    def stop(self, reason: str) -> None:
        if not self.requested.done():
            self.requested.set_result(None)
        if self._capture is not None:
            self._capture.stop(reason, at_once=True)

    async def collect(self, request: Request) -> int:
        """Run the capture, write its end line, and return its exit code."""
        if self._transport is None:
            raise LatmonError("the collector has no feed to write to")
        outlet = Outlet(self._transport)
        self._capture = Capture(request, outlet, opened, family=OwnProcesses(os.getpid(), os.getppid()))
        try:
            outcome = await self._capture.run()
        except LatmonError as error:
            outcome = Outcome(str(error), error.exit_code)
        outlet.end(outcome.reason, outcome.exit)
        self._transport.close()
        await asyncio.wait({self.lost}, timeout=FAREWELL_S)
        return outcome.exit

    def _execute(self, command: Mapping[str, Any]) -> None:
        """Execute a command of the UI; unknown ones are ignored, and those of a capture before it begins."""
        if "clock" in command and self._transport is not None:
            self._transport.write(clock_line(int(command["clock"])))
        capture = self._capture
        if capture is None:
            return
        if command.get("record") == "toggle":
            capture.toggle_recording()
        elif command.get("stages") in STAGES_MODES:
            capture.set_stages(command["stages"])
        elif isinstance(command.get("mark"), str):
            capture.mark(clean(command["mark"], MAX_MARK))
        elif "deepen" in command:
            capture.request_tracing(tuple(map(str, command["deepen"])), files=command.get("files") is True)


def clock_line(number: int) -> bytes:
    """Encode the answer to the command `{"clock": number}`: CLOCK_MONOTONIC in us and the wall clock in s."""
    return to_bytes({"type": "clock", "n": number, "mono": time.monotonic_ns() // 1000, "wall": round(time.time(), 6)})


async def serve(fd: int) -> int:
    """Run one capture over an inherited socket, and return its exit code."""
    loop = asyncio.get_running_loop()
    _, collector = await loop.create_connection(Collector, sock=socket.socket(fileno=fd))
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, collector.stop, f"the collector was ended by {number.name}")
    request = await collector.requested
    return EXIT_FAILED if request is None else await collector.collect(request)


async def serve_standard(request: Request) -> int:
    """Run one capture with its commands on standard input and its feed on standard output; return its exit code.

    It ends when either is closed, as by an ssh connection that was cut, and when no command comes for too long.
    UsageError where they are no pipes.
    """
    modes = [os.fstat(file.fileno()).st_mode for file in (sys.stdin, sys.stdout)]
    if not all(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes):
        raise UsageError("--feed is run by latmon fleet, over pipes on standard input and output")
    loop = asyncio.get_running_loop()
    collector = Collector(request, request.options.quiet_s)
    for connect, file in ((loop.connect_write_pipe, sys.stdout), (loop.connect_read_pipe, sys.stdin)):
        await connect(lambda: collector, file)
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, collector.stop, f"the collector was ended by {number.name}")
    return await collector.collect(request)


def main() -> int:
    """Run the collector process; an unexpected error goes to stderr, whose last line the UI shows."""
    os.umask(0o077)
    return asyncio.run(serve(int(sys.argv[1])))


if __name__ == "__main__":
    sys.exit(main())
