"""Looks at many files of the kernel by a thread, as seldom as a bound of CPU time asks for.

A look has absolute numbers. Two looks give a difference, which a reader adds to its sums.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Generic, Protocol, TypeVar

from latmon.support.process import run_aside

LEAST_US = 1_900_000
"""Two samples of a second apart: some come a little early."""
_SHARE = 200
"""A look is due after so many times its own CPU time: 0.5 % of a CPU."""


class Timed(Protocol):
    """A look: when it began, and the CPU time that it took."""

    @property
    def mono_us(self) -> int: ...
    @property
    def spent_us(self) -> int: ...


LookT = TypeVar("LookT", bound=Timed)
Run = Callable[[Callable[[], LookT]], Future[LookT]]


class PacedLooks(Generic[LookT]):
    """The last look, and the one that a thread takes now."""

    def __init__(
        self,
        name: str,
        run: Run[LookT] | None = None,
        now_us: Callable[[], int] | None = None,
        pause_us: Callable[[LookT], int] = lambda _: LEAST_US,
    ) -> None:
        """`name`: that of the thread; `run` and `now_us`: instead of a thread and of CLOCK_MONOTONIC.

        `pause_us`: least time from a look to the next one, in us, whatever it costs.
        """
        self._run: Run[LookT] = partial(run_aside, name) if run is None else run
        self._now_us = _monotonic_us if now_us is None else now_us
        self._pause_us = pause_us
        self._looking: Future[LookT] | None = None
        self._due_us = 0
        self.last: LookT | None = None

    def taken(self) -> tuple[LookT, LookT] | None:
        """Return the last two looks where the second one has ended since the last call."""
        if self._looking is None or not self._looking.done():
            return None
        before, now = self.last, self._looking.result()
        self._looking, self.last = None, now
        self._due_us = now.mono_us + max(self._pause_us(now), _SHARE * now.spent_us)
        return None if before is None else (before, now)

    def begin_if_due(self, mono_us: int, look: Callable[[int], LookT]) -> None:
        """Begin a look, unless one runs or it is too early; `look` takes the present time."""
        if self._looking is None and mono_us >= self._due_us:
            self._looking = self._run(lambda: look(self._now_us()))


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000
