"""Ages of I/Os in flight, from frames in order: exact where a probe follows requests, else lower bounds.

Without a probe one rule gives lower bounds: k I/Os in flight at the end of a frame, and no completion since, are k I/Os
that have waited since then. There is no bound for a device with completions, because the oldest may be among them, for
one without counts, and across missing frames. All other I/Os in flight are of unknown age: those of devices that no
probe follows, and those that may have begun before the probe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from latmon.model.devices import WithIdle, busy_rows, is_volume
from latmon.model.frame import Device, Frame
from latmon.model.inflight import AGES_S, Aged, AgedAt, Ages, InFlightList

MIN_US = 500_000
"""Lower bounds below this are not reported; a probe lists requests from this age on, too."""
_LATE_US = 500_000
"""Gauges are read some time after a frame's time stamp: they may include requests that began until then."""
MAX_ROWS = 1000
MAX_SINCE = 64
"""Points in time kept of one device; later I/Os are added to the latest one."""
_WHOLE = frozenset({"", "suspended"})
"""Gaps of frames whose kernel counts include all of the interval; CLOCK_MONOTONIC doesn't run while a host sleeps."""


class _Since(NamedTuple):
    """I/Os that were in flight at `mono_us`, not before, and have not completed."""

    mono_us: int
    ios: int


class Waiting:
    """State from which the ages of I/Os in flight are computed; frames are added in order."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[_Since, ...]] = {}
        self._now: dict[str, int] = {}
        self._fewest: dict[str, int] = {}
        """The fewest I/Os in flight at a frame's end since the probe began: more can't be older than it."""
        self._idle: Mapping[str, object] = {}
        """Devices that did nothing at a frame's end since then."""
        self._devices: dict[str, Device] = {}
        """All that frames had."""
        self._probed_since: int | None = None
        self._in_flight: InFlightList | None = None
        self._mono_us: int | None = None
        self._ages: Ages | None = None

    def copy(self) -> Waiting:
        other = Waiting()
        other._since, other._now, other._fewest = dict(self._since), dict(self._now), dict(self._fewest)
        other._idle, other._devices = self._idle, dict(self._devices)
        other._probed_since, other._in_flight, other._mono_us = self._probed_since, self._in_flight, self._mono_us
        return other

    def add(self, frame: Frame) -> None:
        """Add the next frame. A missing frame before it, or a gap that lost counts, drops all lower bounds."""
        if self._mono_us is None or _is_missing(self._mono_us, frame) or frame.gap not in _WHOLE:
            self._since = {}
        self._devices.update((device.name, device) for device in frame.devices)
        completed = _completed(frame)
        self._now = {
            device: count
            for device, now in busy_rows(frame.outstanding).items()
            if device not in frame.removed and (count := now.known)
        }
        self._since = {
            device: _continued(self._since.get(device, ()), count, completed.get(device), frame.mono_us)
            for device, count in self._now.items()
        }
        self._in_flight, self._mono_us = frame.in_flight, frame.mono_us
        self._note_fewest(frame)
        self._ages = None

    def take(self, minute: Frame, gauges: Mapping[str, Mapping[int, int]]) -> None:
        """Add the roll-up of a minute and the times of its gauges; lower bounds may become shorter by a minute."""
        self.add(minute)
        if self._probed_since is not None:
            for name, known in gauges.items():
                self._fewest[name] = min(self._fewest.get(name, min(known)), *known)
        self._ages = None

    def _note_fewest(self, frame: Frame) -> None:
        in_flight = frame.in_flight
        if in_flight is not None and in_flight.since_us != self._probed_since:
            self._probed_since, self._fewest, self._idle = in_flight.since_us, {}, {}
        if self._probed_since is None or frame.mono_us < self._probed_since:
            return
        gauges = busy_rows(frame.outstanding)
        for device, now in gauges.items():
            if now.is_known:
                first = 0 if device in self._idle else now.known
                self._fewest[device] = min(self._fewest.get(device, first), now.known)
        if isinstance(frame.outstanding, WithIdle):
            self._idle = frame.outstanding.idle
            self._fewest.update(dict.fromkeys(self._fewest.keys() & self._idle.keys() - gauges.keys(), 0))
        for device in frame.removed:
            self._fewest.pop(device, None)

    @property
    def ages(self) -> Ages:
        """Ages at the end of the latest frame, computed once for all of their readers."""
        if self._mono_us is None:
            return Ages()
        if self._ages is None:
            self._ages = self._ages_at(self._mono_us)
        return self._ages

    def _ages_at(self, mono_us: int) -> Ages:
        in_flight = self._in_flight or InFlightList()
        least = list(self._least(in_flight, mono_us))
        # Requests may have completed after the probe read them.
        at_us = min(in_flight.at_us or mono_us, mono_us)
        known = [Aged(io.device, max(0, at_us - io.began_us), request=io) for io in in_flight.oldest]
        rows = sorted((*known, *least), key=lambda aged: (-aged.age_us, aged.device))
        older = {
            age: self._known_above(known, in_flight, age) + self._least_above(least, known, in_flight, age)
            for age in AGES_S
        }
        unknown = self._unknown(rows)
        of_unknown_age = sum(unknown.get(name, 0) for name in self._uncounted(self._now))
        some = bool(least) or of_unknown_age > 0
        return Ages(
            tuple(rows[:MAX_ROWS]),
            MappingProxyType(older),
            some,
            MappingProxyType(unknown),
            of_unknown_age,
            self._in_flight,
            tuple(self._unlisted(in_flight, known)),
        )

    def _uncounted(self, ios: Mapping[str, int]) -> dict[str, int]:
        """Return the I/Os of each device, without volumes whose disks have some of these I/Os, and so count theirs.

        The numbers differ: a volume counts bios, before they are split or merged. One that holds all of its I/Os
        itself, such as a suspended dm, has none at its disks.
        """
        busy = {name for name, count in ios.items() if count}
        return {name: count for name, count in ios.items() if not is_volume(self._devices.get(name), busy)}

    def _known_above(self, known: list[Aged], in_flight: InFlightList, age_s: int) -> int:
        """Return the I/Os above this age that a probe follows, without those of volumes whose disks count them.

        The probe counts the I/Os that it doesn't list over all devices, volumes and their disks together: they are at
        most as many as the disks have in flight besides those that are listed.
        """
        listed = _by_device(known, age_s)
        ios = sum(self._uncounted(listed).values())
        unlisted = in_flight.older.get(age_s, 0) - listed.total()
        if unlisted <= 0:
            return ios
        followed = {name: n for name, n in self._now.items() if in_flight.follows(name)}
        once = self._uncounted(followed)
        if len(once) < len(followed):
            unlisted = min(unlisted, max(0, sum(once.values()) - ios))
        return ios + unlisted

    def _least_above(self, least: list[Aged], known: list[Aged], in_flight: InFlightList, age_s: int) -> int:
        """Return the I/Os with a least age above this, without those of volumes whose disks count them."""
        listed, counts = _by_device(known, age_s), _by_device(least, age_s)
        if in_flight.older.get(age_s, 0) > listed.total():  # those without a row may be of any disk
            listed.update(self._now)
        return sum(counts[name] for name in self._uncounted(listed + counts))

    def oldest_at(self, frame: Frame) -> Iterator[AgedAt]:
        """Yield the rows of the latest frame with its time, the oldest last."""
        return (AgedAt(row, frame.wall, frame.mono_us) for row in reversed(self.ages.oldest))

    def _unlisted(self, in_flight: InFlightList, known: list[Aged]) -> Iterator[Aged]:
        """Yield the I/Os that the probe counts and doesn't list, as far as their device is certain.

        The probe has one count for all devices, and lists the oldest 64. A device has at least the count minus all
        unlisted I/Os of the other devices. The age is the lower bound of the class that counts them.
        """
        listed = Counter(aged.device for aged in known)
        room = {name: max(0, n - listed[name]) for name, n in self._now.items() if in_flight.follows(name)}
        total, reported = sum(room.values()), Counter[str]()
        for age_s in sorted(in_flight.older, reverse=True):
            beyond = in_flight.older[age_s] - _sum_above(known, age_s)
            for name, most in room.items():
                count = min(most, beyond - (total - most)) - reported[name]
                if count > 0:
                    reported[name] += count
                    yield Aged(name, age_s * 1_000_000, at_least=True, count=count)

    def _unknown(self, rows: list[Aged]) -> dict[str, int]:
        """Return the I/Os in flight without a row; of a followed device only those that may be older than the probe."""
        reported, least = Counter[str](), Counter[str]()
        for aged in rows:
            reported[aged.device] += aged.count
            least[aged.device] += aged.count if aged.at_least else 0
        unlisted_counts = {}
        for device, now in self._now.items():
            remainder = now - reported[device]
            if self._in_flight is not None and self._in_flight.follows(device):
                remainder = (
                    min(remainder, self._fewest.get(device, now) - least[device]) if self._in_flight.since_us else 0
                )
            if remainder > 0:
                unlisted_counts[device] = remainder
        return unlisted_counts

    def _least(self, in_flight: InFlightList, now_us: int) -> Iterator[Aged]:
        """Yield lower bounds for I/Os unknown to the probe, minus those it counts without a row (of any device)."""
        began: dict[str, list[int]] = {}
        for io in in_flight.oldest:
            began.setdefault(io.device, []).append(io.began_us)
        unlisted = max(0, in_flight.older.get(AGES_S[0], 0) - sum(map(len, began.values())))
        for device, claims in self._since.items():
            may_be_its = unlisted if in_flight.follows(device) else 0
            known = began.get(device, ())
            reported = 0
            for moment, count in _summed(claims):
                until = moment + _LATE_US
                remainder = (
                    count
                    - sum(at <= until for at in known)
                    - (may_be_its if in_flight.since_us <= until else 0)
                    - reported
                )
                if remainder > 0 and now_us - moment >= MIN_US:
                    yield Aged(device, now_us - moment, at_least=True, count=remainder)
                    reported += remainder


def _continued(claims: tuple[_Since, ...], now: int, completed: int | None, mono_us: int) -> tuple[_Since, ...]:
    """Return a device's claims after a frame at whose end it has `now` in flight; `completed` None: not known."""
    before = _ios(claims)
    if completed != 0 or now < before:  # fewer without a completion: some weren't counted, so it may be any of them
        return (_Since(mono_us, now),)
    return _few((*claims, _Since(mono_us, now - before))) if now > before else claims


def _ios(claims: tuple[_Since, ...]) -> int:
    return sum(since.ios for since in claims)


def _few(claims: tuple[_Since, ...]) -> tuple[_Since, ...]:
    """Merge the latest claims beyond MAX_SINCE into one."""
    if len(claims) <= MAX_SINCE:
        return claims
    return (*claims[: MAX_SINCE - 1], _Since(claims[-1].mono_us, _ios(claims[MAX_SINCE - 1 :])))


def note_longest(longest: dict[str, AgedAt], seen: Iterable[AgedAt], most: int) -> None:
    """Keep each device's I/O longest in flight, of equal ones the latest, for at most so many devices."""
    for aged_at in seen:
        earlier_io = longest.get(aged_at.row.device)
        if aged_at.row.age_us >= earlier_io.row.age_us if earlier_io is not None else len(longest) < most:
            longest[aged_at.row.device] = aged_at


def _summed(claims: tuple[_Since, ...]) -> Iterator[tuple[int, int]]:
    """Yield points in time and the I/Os that are in flight since then or longer."""
    total = 0
    for since in claims:
        total += since.ios
        yield since.mono_us, total


def _completed(frame: Frame) -> Counter[str]:
    """Return the completions of each device that the kernel counts."""
    counts = Counter[str]()
    for flow, done in busy_rows(frame.kernel).items():
        counts[flow.device] += done.count
    return counts


def _is_missing(before_us: int, frame: Frame) -> bool:
    """Return whether a frame is missing between the two; time stamps vary by less than half a frame."""
    return frame.mono_us - frame.dt_us - before_us > frame.dt_us // 2


def _sum_above(rows: list[Aged], age_s: int) -> int:
    return _by_device(rows, age_s).total()


def _by_device(rows: list[Aged], age_s: int) -> Counter[str]:
    """Return the I/Os of each device above an age."""
    counts = Counter[str]()
    for aged in rows:
        counts[aged.device] += aged.count * (aged.age_us > age_s * 1_000_000)
    return counts
