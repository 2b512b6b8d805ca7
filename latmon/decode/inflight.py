"""Decoder of the inflight scripts: their maps and records to depth histograms and I/Os in flight.

Owns the meaning of a depth's index. Pure but for `NewestAges`, which keeps the newest list until it is taken.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from latmon.decode.tables import Counts, Record
from latmon.manifest.schema import MapSpec, op_name
from latmon.model.inflight import AGES_S, EXACT, PROBE, Depths, InFlight, StillInFlight, Took, coarse_end

AS_IS = ("depth_most", "depth_older", "depth_since")
"""Roles of maps whose values are of the tick that printed them, not cumulative."""
MOST_REPORTED = 64
_OCTAVE = 8
Maps = Iterable[tuple[MapSpec, Counts]]
Name = Callable[[int], str | None]
Flags = Callable[[int], tuple[str, ...]]
"""Converter of a request's cmd_flags to names."""


def depth_of(index: int) -> int:
    """Return the depth of an index: exact to EXACT, above it the end of a bucket, 8 per octave."""
    if index <= EXACT:
        return index
    octave, step = divmod(index - EXACT - 1, _OCTAVE)
    return (_OCTAVE + step + 1) << (octave + 5)


@dataclass(slots=True)
class _Device:
    """Differences of one device's maps over an interval."""

    counts: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    corrected: int = 0

    def depths(self, most: int | None) -> Depths:
        return Depths(
            dict(self.counts["depth_driver"]),
            dict(self.counts["depth_queued"]),
            dict(self.counts["depth_issue"]),
            _latency(self.counts["depth_ios"], self.counts["depth_time"]),
            most,
            self.corrected,
            PROBE,
        )


def depths(gains: Maps, most: Mapping[int, int], device_name: Name) -> dict[str, Depths]:
    """Return the depths of each device that had I/O. `most`: dev_t -> the largest depth, where it was above EXACT."""
    found: defaultdict[int, _Device] = defaultdict(_Device)
    for spec, counts in gains:
        for key, n in counts.items() if spec.role.startswith("depth_") else ():
            one = found[spec.part("dev").read(key)]
            if spec.role == "depth_corrected":
                one.corrected += n
            else:
                one.counts[spec.role][depth_of(spec.part("depth").read(key))] += n
    named = {number: name for number in found if (name := device_name(number)) is not None}
    return {name: found[number].depths(most.get(number)) for number, name in named.items()}


def _latency(ios: Mapping[int, int], times: Mapping[int, int]) -> dict[int, Took]:
    found: dict[int, Took] = {}
    for depth, n in ios.items():
        end = coarse_end(depth)
        had = found.get(end, Took(0, 0))
        found[end] = Took(had.ios + n, had.time_us + times.get(depth, 0))
    return found


def most_of(maps: Maps, slot: int | None) -> dict[int, int]:
    """Return dev_t -> the largest depth of the tick with this slot; empty without a slot."""
    return {
        spec.part("dev").read(key): n
        for spec, values in maps
        for key, n in values.items()
        if slot is not None and spec.part("slot").read(key) == slot and n
    }


class NewestAges:
    """Requests in flight that one script reported at its newest tick."""

    def __init__(self, device_name: Name, flags: Flags) -> None:
        self._device_name, self._flags = device_name, flags
        self._newest: StillInFlight | None = None

    def reported(self, records: Iterable[Record], maps: Maps, at_ns: int) -> None:
        """Take the records of a tick at CLOCK_MONOTONIC `at_ns`; ignore a tick before the script followed requests."""
        each = list(maps)
        since_ns = max((n for spec, values in each if spec.role == "depth_since" for n in values.values()), default=0)
        if since_ns:
            waiting = [one for record in records if (one := self._in_flight(record)) is not None]
            older = self._older((spec, values) for spec, values in each if spec.role == "depth_older")
            counted = dict.fromkeys(AGES_S, 0) | older
            self._newest = StillInFlight(_oldest(waiting), counted, since_ns // 1000, at_ns // 1000)

    def taken(self) -> StillInFlight | None:
        """Return the newest list once; None if no tick came since the last call."""
        newest, self._newest = self._newest, None
        return newest

    def _older(self, maps: Maps) -> dict[int, int]:
        found: Counter[int] = Counter()
        for spec, values in maps:
            for key, n in values.items():
                age = spec.part("age").read(key)
                if age < len(AGES_S) and self._device_name(spec.part("dev").read(key)) is not None:
                    found[AGES_S[age]] += n
        return dict(found)

    def _in_flight(self, record: Record) -> InFlight | None:
        number, begun = record.get("dev"), record.get("begun_ns")
        device = None if number is None else self._device_name(number)
        if device is None or begun is None:
            return None
        op, issued = record.get("op"), record.get("issued")
        return InFlight(
            device,
            op_name(255 if op is None else op),
            begun // 1000,
            self._flags(record.get("flags") or 0),
            record.get("sector"),
            record.get("bytes"),
            record.get("pid"),
            record.text,
            None if issued is None else bool(issued),
            record.get("overtaken"),
        )


def all_waiting(parts: Iterable[StillInFlight | None]) -> StillInFlight | None:
    """Merge the lists of scripts that follow different devices; all are known since the latest of their begins."""
    reported = [one for one in parts if one is not None]
    if not reported:
        return None
    older: Counter[int] = Counter()
    for one in reported:
        older.update(one.older)
    waiting = [each for one in reported for each in one.oldest]
    since_us, at_us = max(one.since_us for one in reported), min(one.at_us for one in reported)
    return StillInFlight(_oldest(waiting), dict(older), since_us, at_us, _all_devices(reported))


def followed(still: StillInFlight, groups: Collection[str], timed: Mapping[str, bool]) -> StillInFlight | None:
    """Return the list with the devices that scripts of these groups follow; None where they follow none of them.

    `inflight` follows devices with requests (`timed`), `bios` the others. A list that names devices keeps only those.
    """
    its = [name for name, by_request in timed.items() if ("inflight" if by_request else "bios") in groups]
    if not still.devices and len(its) == len(timed):
        return still
    names = tuple(name for name in its if still.follows(name))
    return replace(still, devices=names) if names else None


def _all_devices(reported: list[StillInFlight]) -> tuple[str, ...]:
    """Return the devices that the scripts follow together; empty, for all, if one of them follows all devices."""
    each = [one.devices for one in reported]
    return tuple(dict.fromkeys(name for some in each for name in some)) if all(each) else ()


def _oldest(waiting: list[InFlight]) -> tuple[InFlight, ...]:
    return tuple(sorted(waiting, key=lambda one: one.began_us)[:MOST_REPORTED])
