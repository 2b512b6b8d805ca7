"""The load: small writes one by one, all of them quick but those that are held. Says what it did; judges nothing."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from latmon.self_test.device import Own

BYTES = 4096
SECTOR = 512
COMM = "latmon-delay"
"""What the thread that writes is called."""
CALM = 20
_PAUSE_S = 0.05
_BETWEEN_S = 0.3
DELAYS = ((2048, 300_000), (8192, 1_200_000))
"""Sector, for how long its write is held: the longer one is in flight at the end of an interval for certain, and by
then old enough for the list of what waits."""


@dataclass(frozen=True, slots=True)
class Held:
    """One write that was held for `asked_us`, and took as long as its thread waited for it."""

    sector: int
    asked_us: int
    took_us: int

    @property
    def was_held(self) -> bool:
        """Not so where the kernel doesn't let a loop device wait for its file system."""
        return self.took_us >= self.asked_us // 2


@dataclass(frozen=True, slots=True)
class Done:
    """What was written. `writes` by our own count, `counted` by the kernel's."""

    writes: int
    counted: int
    held: tuple[Held, ...] = ()


def play(own: Own, file: int, stopped: threading.Event, say: Callable[[str], None]) -> Done:
    """About 4 s; in a thread, for a write that is held can't be interrupted. `stopped`: no further one is begun."""
    _call_thread(COMM)
    before = own.written()
    writes, held = 0, []
    with mmap.mmap(-1, BYTES) as block:  # of a page's alignment, as O_DIRECT wants it
        for at in range(CALM):
            if not stopped.wait(_PAUSE_S):
                writes += bool(os.pwrite(file, block, at * BYTES))
        for sector, us in DELAYS if own.holds else ():
            if not stopped.wait(_BETWEEN_S):
                say(f"holding a write for {us // 1000:,} ms")
                held.append(_held(own, file, block, sector, us))
                writes += 1
    return Done(writes, own.written() - before, tuple(held))


def _held(own: Own, file: int, block: mmap.mmap, sector: int, us: int) -> Held:
    own.hold(us)
    began = time.monotonic_ns()
    os.pwrite(file, block, sector * SECTOR)
    took = time.monotonic_ns() - began
    own.held()
    return Held(sector, us, took // 1000)


def _call_thread(name: str) -> None:
    """As probes will see it."""
    with contextlib.suppress(OSError):
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
