"""One running bpftrace process with one program: started until ready, read event by event, ended.

Knows the ready line and nothing else of what the events mean.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque

from latmon.support.errors import UnavailableError
from latmon_backends.bpftrace import tool
from latmon_backends.bpftrace.decoder import Decoder
from latmon_backends.bpftrace.program import Program
from latmon_backends.probe.events import Attached, Event, Printed
from latmon_backends.probe.launcher import Launcher
from latmon_backends.probe.process import Child, RefusedError, started

_READY_S = 300.0
"""How long a busy or emulated host may take to compile and attach. Where everything is emulated all deep probes take
60 to 100 s, with bpftrace 0.17 more than 180 s; another variant would take no less."""
_ALIVE_S = 0.25
"""Up to 0.23 the ready line comes before the attaching: a refusal follows it at once."""
_LINE = re.compile(r"^stdin:(\d+):\d+")


class Probe:
    """A started program."""

    def __init__(self, child: Child, program: Program) -> None:
        self._child = child
        self._hooks, self._own = len(program.hooks), program.attaches
        self._decoder = Decoder()
        self._events: deque[Event] = deque()
        self._reading: asyncio.Future[bytes] | None = None
        self._said: int | None = None

    @classmethod
    async def start(cls, launcher: Launcher, program: Program) -> Probe:
        """RefusedError when this program doesn't run here, UnavailableError when none would."""
        return await started(launcher.launch(program), lambda child: cls(child, program))

    @property
    def pid(self) -> int:
        """Of the process that was started; the tool is it or below it."""
        return self._child.pid

    @property
    def wanted(self) -> int:
        """Hooks that the program has."""
        return self._hooks

    @property
    def attached(self) -> int:
        """Hooks that the tool says it attached; up to 0.23 it says so before it tries, and ends where one fails."""
        return self._hooks if self._said is None else min(self._hooks, max(0, self._said - self._own))

    async def next(self) -> Event | None:
        """The next event; None at the end of the output."""
        while not self._events:
            reading, self._reading = self._reading, None
            try:
                portion = await (self._child.read() if reading is None else asyncio.shield(reading))
            except asyncio.CancelledError:  # what was read for the start is the next call's
                self._reading = reading
                raise
            if not portion:
                self._events.extend(self._decoder.close())
                return self._events.popleft() if self._events else None
            self._events.extend(self._decoder.feed(portion))
        event = self._events.popleft()
        if isinstance(event, Attached):
            self._said = event.probes
        return event

    async def complaint(self) -> str:
        """Why it ended, once it has."""
        return tool.reason(await self._child.complaints(), await self._child.returncode())

    def end(self, *, patient: bool = False) -> None:
        """Ask it to finish: its last events can still be read. `patient`: however long it takes, until `stop`."""
        self._child.end(patient=patient)

    async def stop(self) -> None:
        """Ended for certain when this returns, within 2 s."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        await self._child.stop()

    async def until_ready(self) -> None:
        try:
            async with asyncio.timeout(_READY_S):
                while (event := await self.next()) is not None:
                    if isinstance(event, Printed) and event.text.startswith("ready "):
                        await self._stays()
                        return self._child.prefer()
        except TimeoutError:
            raise UnavailableError(f"bpftrace was not ready within {_READY_S:.0f} s on this host.") from None
        raise await self._refused()

    async def _refused(self) -> RefusedError:
        found = (_LINE.match(line) for line in await self._child.complaints())
        return RefusedError(await self.complaint(), next((int(match[1]) for match in found if match), 0))

    async def _stays(self) -> None:
        self._reading = asyncio.ensure_future(self._child.read())
        done, _ = await asyncio.wait({self._reading}, timeout=_ALIVE_S)
        if done and not self._reading.result():
            raise await self._refused()
