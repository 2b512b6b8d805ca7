"""One running dtrace process with one program: started until ready, read event by event, ended.

Joins what it says on both of its outputs: lines and tables on the one, drops and faults on the other. Knows the ready
line and nothing else of what the events mean.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from latmon.support.errors import UnavailableError
from latmon_backends.dtrace import tool
from latmon_backends.dtrace.decoder import Decoder, Maps, Names
from latmon_backends.dtrace.program import Program
from latmon_backends.probe.events import Event, Lost, NoRoom, Printed, Undecoded
from latmon_backends.probe.launcher import Launcher
from latmon_backends.probe.process import Child, RefusedError, started

_READY_S = 300.0
"""How long a busy or emulated host may take to compile and attach: 18 to 60 s were seen in an emulated one."""


class Probe:
    """A started program; a RunningProbe."""

    def __init__(self, child: Child, program: Program, names: Names) -> None:
        self._child = child
        self.wanted = self.attached = len(program.hooks)
        self._decoder, self._maps = Decoder(), Maps(program.manifests, names)
        self._events: deque[Event] = deque()

    @classmethod
    async def start(cls, launcher: Launcher, program: Program, names: Names) -> Probe:
        """RefusedError when this program doesn't run here, UnavailableError when none would."""
        return await started(launcher.launch(program), lambda child: cls(child, program, names))

    @property
    def pid(self) -> int:
        """Of the process that was started; the tool is it or below it."""
        return self._child.pid

    async def next(self) -> Event | None:
        """The next event; None at the end of the output."""
        while not self._events:
            portion = await self._child.read()
            texts = self._decoder.feed(portion) if portion else self._decoder.close()
            self._events.extend(event for text in texts for event in self._maps.take(text))
            if not portion:
                self._events.extend(self._maps.close())
            self._events.extend(event for line in self._child.heard() for event in _said(line))
            if not portion:
                break
        return self._events.popleft() if self._events else None

    async def complaint(self) -> str:
        """Why it ended, once it has."""
        return tool.reason(await self._child.complaints(), await self._child.returncode())

    def end(self, *, patient: bool = False) -> None:
        """Ask it to finish: its last events can still be read. `patient`: however long it takes, until `stop`."""
        self._child.end(patient=patient)

    async def stop(self) -> None:
        """Ended for certain when this returns, within 2 s."""
        await self._child.stop()

    async def until_ready(self) -> None:
        try:
            async with asyncio.timeout(_READY_S):
                while (event := await self.next()) is not None:
                    if isinstance(event, Printed) and event.text.startswith("ready "):
                        return self._child.prefer()
        except TimeoutError:
            raise UnavailableError(f"dtrace was not ready within {_READY_S:.0f} s on this host.") from None
        raise RefusedError(await self.complaint())


def _said(line: str) -> Iterator[Event]:
    """Drops and faults; what else dtrace says on stderr means nothing while it runs."""
    match tool.message(line):
        case tool.Drops(kind="dynamic", count=count):
            yield NoRoom(count)
        case tool.Drops(count=count):
            yield Lost(count)
        case tool.Fault():
            yield Undecoded(line)
        case _:
            pass
