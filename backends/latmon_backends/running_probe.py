"""A started probe as everybody else sees it, whichever tool it is; its start, and the refusal of one that can't run."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from latmon.errors import UnavailableError
from latmon_backends.child import Child
from latmon_backends.probe_events import Event

LOOK_S = 1.0
"""How long a reader that listens waits at once, and the most silence that one look may find."""


class RefusedError(Exception):
    """A program that doesn't run here, why, and where in its text that was found (0: not said)."""

    def __init__(self, why: str, line: int = 0) -> None:
        super().__init__(why)
        self.line = line


class Silence:
    """How long a reader that listened has heard nothing.

    From one look to the next at most LOOK_S counts. A reader that was stopped for 12 s did not listen; what the probe
    printed meanwhile is still in its pipe.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` in seconds."""
        self._clock = clock
        self.heard()

    def heard(self) -> None:
        self._looked, self._s = self._clock(), 0.0

    def look(self) -> float:
        """Seconds of silence. To be called once in LOOK_S."""
        now = self._clock()
        self._s += min(now - self._looked, LOOK_S)
        self._looked = now
        return self._s


class RunningProbe(Protocol):
    """A process with one program, past its ready line."""

    @property
    def pid(self) -> int:
        """Of the process that was started; the tool is it or below it."""
        ...

    @property
    def wanted(self) -> int:
        """Hooks that the program has."""
        ...

    @property
    def attached(self) -> int:
        """Hooks that the tool says it attached."""
        ...

    async def next(self) -> Event | None:
        """The next event; None at the end of the output."""
        ...

    async def complaint(self) -> str:
        """Why it ended, once it has."""
        ...

    def end(self, *, patient: bool = False) -> None:
        """Ask it to finish: its last events can still be read. `patient`: however long it takes, until `stop`."""
        ...

    async def stop(self) -> None:
        """Ended for certain when this returns, within 2 s."""
        ...


class Starting(RunningProbe, Protocol):
    """A process of which it isn't known yet whether it gets as far as its ready line."""

    async def until_ready(self) -> None:
        """RefusedError when its program doesn't run here, UnavailableError when none would."""
        ...


Begun = TypeVar("Begun", bound=Starting)


async def started(launched: Awaitable[Child], made: Callable[[Child], Begun]) -> Begun:
    """The probe that is `made` of the child, once it is ready; whatever comes in between, nothing is left of it."""
    try:
        probe = made(await launched)
    except OSError as error:
        raise UnavailableError(f"the probe's process can't be started: {error.strerror}.") from error
    try:
        await probe.until_ready()
    except BaseException:
        await probe.stop()
        raise
    return probe
