"""How far a long check has come, as one line on a terminal that is rewritten and goes again. Knows no file."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self, TextIO

PATIENCE_S = 5.0
"""Nobody needs to be told before."""
_AGAIN_S = 0.5


class Progress:
    """Tell it `at` as often as you like; silent where `out` is no terminal."""

    def __init__(self, out: TextIO, size: int) -> None:
        self._out, self._size = out, size
        self._next = time.monotonic() + PATIENCE_S if out.isatty() else float("inf")
        self._told = False

    def at(self, byte: int) -> None:
        """So many bytes are behind us."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next, self._told = now + _AGAIN_S, True
        self._out.write(f"\r{min(100, 100 * byte // max(1, self._size))} % is checked")
        self._out.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        if self._told:
            self._out.write("\r\x1b[K")
            self._out.flush()
