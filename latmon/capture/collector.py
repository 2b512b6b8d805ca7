"""The collector process: reads the probes and writes the recording, independent of the terminal.

Started by session.py with its end of a socket pair: `python -m latmon.capture.collector FD`. First line
in: the request; then commands. Out: the feed. It leaves by itself within 2 s when the socket closes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any

from latmon.capture.capture import Capture, Outcome
from latmon.capture.registry import Request, opened
from latmon.capture.session import MAX_BACKLOG, Lines, Outlet
from latmon.model.stages import STAGES_MODES
from latmon.support.errors import EXIT_FAILED, LatmonError
from latmon.support.process import Family
from latmon.support.text import clean

FAREWELL_S = 0.5
"""Time for the UI, which may be stopped, to read the end line."""
MAX_MARK = 200
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Collector(asyncio.Protocol):
    """Protocol of the socket to the UI, which runs one capture from its first line to the end of either side."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._transport: asyncio.Transport | None = None
        self._capture: Capture | None = None
        self.requested: asyncio.Future[Request | None] = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("the feed is a stream socket")
        transport.set_write_buffer_limits(high=MAX_BACKLOG)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if not self.requested.done():
                self.requested.set_result(Request.decode(line))
            elif self._capture is not None:
                _execute(json.loads(line), self._capture)

    def connection_lost(self, _exc: Exception | None) -> None:
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
        self._capture = Capture(request, outlet, opened, family=Family(os.getpid(), os.getppid()))
        try:
            outcome = await self._capture.run()
        except LatmonError as error:
            outcome = Outcome(str(error), error.exit_code)
        outlet.end(outcome.reason, outcome.exit)
        self._transport.close()
        await asyncio.wait({self.lost}, timeout=FAREWELL_S)
        return outcome.exit


def _execute(command: Mapping[str, Any], capture: Capture) -> None:
    """Execute a command of the UI; unknown ones are ignored."""
    if command.get("record") == "toggle":
        capture.toggle_recording()
    elif command.get("stages") in STAGES_MODES:
        capture.set_stages(command["stages"])
    elif isinstance(command.get("mark"), str):
        capture.mark(clean(command["mark"], MAX_MARK))
    elif "deepen" in command:
        capture.request_tracing(tuple(map(str, command["deepen"])))


async def serve(fd: int) -> int:
    """Run one capture over an inherited socket, and return its exit code."""
    loop = asyncio.get_running_loop()
    _, collector = await loop.create_connection(Collector, sock=socket.socket(fileno=fd))
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, collector.stop, f"the collector was ended by {number.name}")
    request = await collector.requested
    return EXIT_FAILED if request is None else await collector.collect(request)


def main() -> int:
    """Run the collector process; an unexpected error goes to stderr, whose last line the UI shows."""
    os.umask(0o077)
    return asyncio.run(serve(int(sys.argv[1])))


if __name__ == "__main__":
    sys.exit(main())
