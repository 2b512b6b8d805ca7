"""Events on the time axis: marks, gaps, losses, restarts, suspends, clock steps. Pure.

`LETTERS` are the signs of their kinds on screens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from latmon.model.frame import Frame, Settings
from latmon.support.units import show_duration, spelled

LETTERS: Mapping[str, str] = MappingProxyType(
    {"mark": "M", "finding": "!", "clock": "C", "restart": "R", "suspended": "S", "lost": "L", "gap": "G", "late": "W"},
)
"""Kind -> letter, in order of preference where several share a cell."""
STEP_S = 0.5
"""Difference of wall clock and monotonic clock in a frame from which on the former was set."""
_KINDS = MappingProxyType({"probe-restart": "restart", "suspended": "suspended"})
_SAID = MappingProxyType(
    {
        "restart": "the probe was restarted",
        "suspended": "the host was suspended",
        "probe-silent": "gap: the probe printed nothing",
        "enospc": "gap: the disk of the recording was full",
        "disk-stalled": "gap: the disk of the recording hung",
    },
)


class TimelineEvent(NamedTuple):
    """An event: its kind (one of LETTERS), time and description."""

    kind: str
    mono_us: int
    wall: float
    text: str
    changed: Settings | None = None
    """Changed settings of a mark."""


class Before(NamedTuple):
    """End of the previous frame on both clocks."""

    mono_us: int
    wall: float


def moments(frame: Frame, before: Before | None) -> Iterator[TimelineEvent]:
    """Yield the events in a frame, and between it and the previous one."""
    for one in frame.marks:
        yield TimelineEvent("mark", one.mono_us, one.wall, f"mark: {one.text}", one.changed)
    if frame.gap:
        kind = _KINDS.get(frame.gap, "gap")
        yield _here(frame, kind, _SAID.get(kind) or _SAID.get(frame.gap, f"gap: {frame.gap}"))
    if frame.late:
        yield _here(frame, "late", f"read late: one window of {show_duration(frame.dt_us // 100_000 * 100_000)}")
    if before is not None:
        yield from _between(frame, before)
    health = frame.health
    losses = (
        (health.lost_events, "events"),
        (health.map_full, "map updates"),
        (health.undecoded_lines, "lines"),
        (health.dropped_frames, "frames"),
    )
    if some := [f"{count:,} {what}" for count, what in losses if count]:
        yield _here(frame, "lost", f"lost: {', '.join(some)}")


def _between(frame: Frame, before: Before) -> Iterator[TimelineEvent]:
    missing = frame.mono_us - frame.dt_us - before.mono_us
    if missing > frame.dt_us // 2 and not frame.gap:
        yield _here(frame, "gap", f"gap: nothing for {show_duration(missing)}")
    stepped = (frame.wall - before.wall) - (frame.mono_us - before.mono_us) / 1e6
    if abs(stepped) > STEP_S and frame.gap != "suspended":
        way = "forward" if stepped > 0 else "back"
        yield _here(frame, "clock", f"the clock was set {way} by {show_duration(round(abs(stepped) * 10) * 100_000)}")


def _here(frame: Frame, kind: str, text: str) -> TimelineEvent:
    return TimelineEvent(kind, frame.mono_us, frame.wall, text)


_BURST = 8
"""A burst has I/Os so many times slower than the slowest one of the median frame."""
_APART_US = 5_000_000
"""Slow frames with less time between them are one burst."""


def bursts(mono_us: Sequence[int], wall: Sequence[float], slowest_us: Sequence[int]) -> list[TimelineEvent]:
    """Return the begins of outlier bursts, of kind `burst`. The arguments: end and slowest I/O of each frame."""
    known = sorted(us for us in slowest_us if us)
    if not known:
        return []
    usual_us = known[len(known) // 2]
    found: list[list[int]] = []
    for at in (at for at, us in enumerate(slowest_us) if us > _BURST * usual_us):
        if found and mono_us[at] - mono_us[found[-1][-1]] < _APART_US:
            found[-1].append(at)
        else:
            found.append([at])
    return [
        TimelineEvent("burst", mono_us[one[0]], wall[one[0]], f"outliers of up to {_slowest(slowest_us, one)}")
        for one in found
    ]


def _slowest(slowest_us: Sequence[int], frames: Sequence[int]) -> str:
    return spelled(max(slowest_us[at] for at in frames))


def letter(some: list[TimelineEvent]) -> str:
    """Return the letter of the preferred event."""
    kinds = {one.kind for one in some}
    return next((sign for kind, sign in LETTERS.items() if kind in kinds), "")
