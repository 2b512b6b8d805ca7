"""When the completion threads of emulex are woken, how much later they run, and the packets that wait meanwhile.

The delays are dealt out of the case's own table: each table of 15,230 wake-ups is spread over 40 windows. Knows no LUN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import NamedTuple

from latmon_backends.incidents.crowding import Held
from latmon_backends.incidents.drawing import INTERVAL_US, Alike
from latmon_backends.synthetic import bucket

TABLE_MS: Mapping[int, int] = {
    0: 11_145,
    1: 2_856,
    2: 1_017,
    4: 166,
    8: 6,
    16: 2,
    32: 4,
    64: 29,
    128: 4,
    1024: 1,
}
"""resume(ms): the lower end of a row -> its count. The last one's wake-up is a drain of its own."""
TABLE_WINDOWS = 40
UNTIL_IT_RAN = "completion thread, most of the time until it ran"
BEHIND_OTHERS = "completion thread, most of the time behind what it ran first"
PACKETS: Mapping[str, int] = {"sd0": 4, "sd1": 2, "sd3": 1, "sd4": 1}
"""Writes to LUNs that happen to be behind one completion queue: eight, all with the same numbers."""
_RARE_MS, _DRAIN_MS = 8, 1024
_FIRST_AT = 24
"""12:13:04."""
_FIRST = Alike(1, 3, 85, irq=6, completion=1_238_738 + 165, unaccounted=2, path=UNTIL_IT_RAN)
"""I/O START, TOTAL - EMLXS, I/O INTR, QUEUE + I/O DONE, and what the row's sum lacks."""
_WARNED_US = 836_000
"""log write elapsed time 836ms, size 2KB."""
_DONE_US = 165


class Drain(NamedTuple):
    """A batch of packets that the thread finds when it runs at last."""

    seq: int
    """The window in which it ends."""
    ends_us: int
    """After that window's begin."""
    packet: Alike

    @property
    def waited_us(self) -> int:
        """From the thread's waking to its running."""
        return (self.packet.completion or 0) - _DONE_US

    def held(self, seq: int) -> dict[str, Held]:
        """What of it window `seq` sees, by LUN."""
        end = self.seq * INTERVAL_US + self.ends_us
        begin = end - self.packet.total
        low, high = seq * INTERVAL_US, (seq + 1) * INTERVAL_US
        share = (min(end, high) - max(begin, low)) / INTERVAL_US
        return {name: Held(count, share, still=end > high) for name, count in PACKETS.items()} if share > 0 else {}


class Planned(NamedTuple):
    """A window's wake-ups by the table's rows (the drain's own is not among them), and the drain that ends in it."""

    rows: Mapping[int, int]
    drain: Drain | None


def plan(rng: Random, windows: int) -> list[Planned]:
    """Whole tables, so there may be more windows than were asked for: what comes later is known to those before it."""
    return [one for table in range(-(-windows // TABLE_WINDOWS)) for one in _table(rng, table)]


def delays(rng: Random, rows: Mapping[int, int]) -> Iterator[int]:
    """One wake-up after the other, in us. Those of a row in one bucket are all the same: so a window stays cheap."""
    for low, count in rows.items():
        first: dict[int, int] = {}
        for _ in range(count):
            far = rng.random()
            us = int(1000 * far * far * far) if low == 0 else int(1000 * low * (1 + far * far))
            yield first.setdefault(bucket(us), us)


def _table(rng: Random, table: int) -> Iterator[Planned]:
    rare = [low for low, count in TABLE_MS.items() if _RARE_MS <= low < _DRAIN_MS for _ in range(count)]
    places = [int(rng.random() * TABLE_WINDOWS) for _ in rare]
    at = int(rng.random() * TABLE_WINDOWS) if table else _FIRST_AT
    drain = _drain(rng, table, table * TABLE_WINDOWS + at)
    for window in range(TABLE_WINDOWS):
        rows = {low: _dealt(count, window) for low, count in TABLE_MS.items() if low < _RARE_MS}
        for low, place in zip(rare, places, strict=True):
            if place == window:
                rows[low] = rows.get(low, 0) + 1
        yield Planned(rows, drain if window == at else None)


def _dealt(count: int, window: int) -> int:
    """As evenly as whole numbers go, none lost."""
    return count * (window + 1) // TABLE_WINDOWS - count * window // TABLE_WINDOWS


def _drain(rng: Random, table: int, seq: int) -> Drain:
    """The case's own two first, then others from 0.5 to 2 s."""
    ends_us = int((0.05 + 0.9 * rng.random()) * INTERVAL_US)
    far = rng.random()
    if table == 0:
        return Drain(seq, ends_us, _FIRST)
    total = _WARNED_US if table == 1 else int(530_000 + 1_440_000 * far * far)
    hba, irq = 80 + int(rng.random() * 20), 5 + int(rng.random() * 4)
    return Drain(seq, ends_us, _FIRST._replace(hba=hba, irq=irq, completion=total - 3 - hba - irq - 2))
