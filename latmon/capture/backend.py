"""The backend protocol: an async context that yields one Origin and then Frames.

The TUI, the report and the recorder can't tell which backend it was. Knows no backend; names live in registry.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

from latmon.model.frame import Frame, Origin, Settings
from latmon.timetravel.archive import Past

STAGES_MODES = ("auto", "basic", "all")
"""auto: on demand, or while a device looks suspicious; basic: never; all: always, for every device."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked of a capture. Durations in microseconds; `devices` are shell globs, empty means all."""

    interval_us: int = 1_000_000
    devices: tuple[str, ...] = ()
    threshold_us: int | None = None
    """What makes an I/O an outlier; None: found per device."""
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    stages: str = "auto"
    """One of STAGES_MODES: when the deep probes run."""
    budget_percent: float = 5.0
    """Of one CPU, for the deep probes' programs; 0: none, they may take what they take."""
    invasive: tuple[str, ...] = ()
    """Invasive probes that the user wants in spite of what they cost, by name."""

    @property
    def fixed(self) -> dict[str, int]:
        """What the user fixed and readers of the frames need as well: a part of Origin.extra."""
        return {} if self.threshold_us is None else {"threshold_us": self.threshold_us}


class Backend(Protocol):
    """`async with` opens it (UnavailableError says why it can't run here), `origin` is known from then on.

    `frames` ends when the source ends: a recording's last line, a probe that could not be restarted. Leaving the
    context ends every process it started within 2 s.
    """

    @property
    def origin(self) -> Origin: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...

    def frames(self) -> AsyncIterator[Frame]: ...


@runtime_checkable
class Finishing(Protocol):
    """A backend that can still tell the interval that was begun when a capture is ended."""

    async def finish(self, patience_s: float) -> Frame | None:
        """Return the frame of that interval; None where there is none, or none that comes in time.

        `patience_s`: what it may take to have what its slower probes have counted; 0: only what comes at once.
        ProbeGoneError where the probe had ended by itself.
        """
        ...


@runtime_checkable
class Lined(Protocol):
    """A backend whose frames came as lines of a recording."""

    @property
    def line(self) -> bytes:
        """The one that the latest frame was made of."""
        ...


@runtime_checkable
class Seekable(Protocol):
    """A backend that has all it will tell from the start, and plays it: `past` answers for any time of it."""

    @property
    def speed(self) -> float:
        """Times as fast as it was; 0: at once."""
        ...

    def past(self) -> Past:
        """Known once it is open."""
        ...

    def hold(self) -> None:
        """No more frames until it is told to go on; `frames` doesn't end by that."""
        ...

    def go_on(self, after_us: int) -> None:
        """The next frame is the first that ends behind `after_us`."""
        ...

    async def gone_on(self) -> None:
        """Once `frames` has ended: until it is told to go on, and `frames` may be called again."""
        ...


@runtime_checkable
class Configured(Protocol):
    """A backend of a host whose settings can be read again."""

    async def settings(self) -> Settings:
        """As they are now; takes seconds at most, and leaves out what hangs."""
        ...


@runtime_checkable
class Deepening(Protocol):
    """A backend that can start its deep probes while it runs.

    Neither call waits or fails; what comes of it is in the next frames (`traced.one_in`, `health.notice`).
    """

    def deepen(self, devices: tuple[str, ...]) -> None:
        """Somebody looks at the stages of these devices (empty: all); to be repeated while they do."""
        ...

    def set_stages(self, mode: str) -> None:
        """One of STAGES_MODES, from now on."""
        ...
