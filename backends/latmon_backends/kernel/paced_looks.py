"""Looks at many files of the kernel by a thread, as seldom as a bound of CPU time asks for, and their sums.

A look has absolute numbers. Two looks give a difference, which is added to bounded sums; a sample has the sums. A look
that fails is counted and reported, and the next one is due later: it ends neither the capture nor the other readers.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from latmon.model.table import AnyTable, Tables
from latmon.support.process import run_aside
from latmon.support.text import clean
from latmon_backends.kernel.bounded_sums import BoundedSums

LEAST_US = 1_900_000
"""Two samples of a second apart: some come a little early."""
_SHARE = 200
"""A look is due after so many times its own CPU time: 0.5 % of a CPU."""
_AFTER_FAILURE_US = 10_000_000
"""Time from a look that failed to the next one. Its CPU time isn't known: 62 ms of the longest usual one are 0.6 %."""
_MAX_ERROR = 200
"""Characters of the error of a look that failed."""


class Timed(Protocol):
    """A look: when it began, and the CPU time that it took."""

    @property
    def mono_us(self) -> int: ...
    @property
    def spent_us(self) -> int: ...


LookT = TypeVar("LookT", bound=Timed)
Run = Callable[[Callable[[], LookT]], Future[LookT]]


class PacedLooks(ABC, Generic[LookT]):
    """Base of the readers of host state: a subclass takes a look, and says what two looks differ by."""

    def __init__(
        self,
        name: str,
        sums: Iterable[BoundedSums[Any, Any]],
        run: Run[LookT] | None = None,
        now_us: Callable[[], int] | None = None,
    ) -> None:
        """`name`: that of the thread; `run` and `now_us`: instead of a thread and of CLOCK_MONOTONIC."""
        self._name = name
        self._run: Run[LookT] = partial(run_aside, name) if run is None else run
        self._now_us = _monotonic_us if now_us is None else now_us
        self._sums: Mapping[AnyTable, BoundedSums[Any, Any]] = {each.table: each for each in sums}
        self._looking: Future[LookT] | None = None
        self._last: LookT | None = None
        self._due_us = 0
        self._rows: Tables = {}
        self._error = ""
        """Error of the last look, where it failed."""
        self.failed = 0
        """Looks that failed since the capture began."""

    @abstractmethod
    def look(self, mono_us: int, before: LookT | None) -> LookT:
        """Read the files, on the thread; `before`: the last look."""

    @abstractmethod
    def gains(self, before: LookT, now: LookT) -> Tables:
        """Return what two looks differ by."""

    def pause_us(self, _look: LookT) -> int:
        """Return the least time from this look to the next one, whatever it costs."""
        return LEAST_US

    @property
    def left_out(self) -> str:
        """Return a sentence about what the last look didn't read; empty where it read everything."""
        return f"{self._name} could not be read: {self._error}" if self._error else ""

    def sample(self, mono_us: int, *, is_wanted: bool = True) -> Tables:
        """Return the sums since the capture began, and begin the next look where it is wanted and due."""
        looking = self._looking
        if looking is not None and looking.done():
            self._looking = None
            try:
                self._take(looking.result())
                self._error = ""
            except Exception as error:  # noqa: BLE001 - files may have anything; a mistake here must end no capture
                self._fail(mono_us, error)
        if is_wanted and self._looking is None and mono_us >= self._due_us:
            before = self._last
            try:
                self._looking = self._run(lambda: self.look(self._now_us(), before))
            except RuntimeError as error:  # no thread can be started
                self._fail(mono_us, error)
        return self._rows

    def _fail(self, mono_us: int, error: Exception) -> None:
        self._due_us = mono_us + _AFTER_FAILURE_US
        self._error = clean(f"{type(error).__name__}: {error}", _MAX_ERROR)
        self.failed += 1

    def _take(self, now: LookT) -> None:
        before, self._last = self._last, now
        self._due_us = now.mono_us + max(self.pause_us(now), _SHARE * now.spent_us)
        if before is not None:
            for table, rows in self.gains(before, now).items():
                self._sums[table].add(rows)
            self._rows = {table: each.rows for table, each in self._sums.items()}


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000
