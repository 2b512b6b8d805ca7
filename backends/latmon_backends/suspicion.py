"""Which devices look sick enough to be traced deeper, from the frames alone. Pure: frames in, devices and reasons out.

Three signs: I/Os above the device's threshold in several of the last intervals, a p99 far above that of its like
peers, or I/Os that don't complete. Knows neither probes nor what is done about a suspect.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from latmon.device_order import in_flight_us, shares
from latmon.histogram import Histogram, merge
from latmon.model import Device, Frame
from latmon.waiting import Waiting

INTERVALS, ABOVE_IN = 10, 3
"""I/Os above the threshold in so many of the last intervals: one bad second is none."""
STAYS_US = 60_000_000
"""After its last sign; so a device that comes and goes starts no probe each time."""
FAR = 4
"""Times the peers' p99: two buckets of an octave are half of that."""
COMPARED_EVERY = 5
"""Frames: peers are compared less often than frames come, which costs 500 devices some 50 ms each time."""
PEERS, ENOUGH = 2, 100
"""So many others of its kind must be there, and so many I/Os of each, before one is called different."""
WORTH_US = 1_000
"""A p99 below this makes nobody suspicious, however fast the others are."""
HELD_US = 2_000_000
"""In flight for so long is sick."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A device, why as the end of a sentence, and what its place depends on: see device_order.Rank.

    `busy_us` is of the last intervals.
    """

    device: str
    why: str
    busy_us: float = 0.0
    share: float = 1.0
    unlike: float = 0.0


@dataclass(slots=True)
class _Sign:
    """The last sign of a device: when, which, and how many times slower than its peers it is."""

    at_us: int
    why: str
    unlike: float = 0.0


class Suspicion:
    """Follows frames in their order."""

    def __init__(self) -> None:
        self._above: deque[dict[str, int]] = deque(maxlen=INTERVALS)
        self._totals: deque[dict[str, Histogram]] = deque(maxlen=INTERVALS)
        self._devices: dict[str, Device] = {}
        self._signs: dict[str, _Sign] = {}
        self._waiting = Waiting()
        self._seen = 0

    def note(self, frame: Frame) -> None:
        """One more frame."""
        self._seen += 1
        for name in frame.removed:
            self._devices.pop(name, None)
            self._signs.pop(name, None)
        self._devices |= {device.name: device for device in frame.devices}
        self._above.append(_by_device(frame))
        self._totals.append(_totals(frame))
        self._waiting.add(frame)
        for sign, device in (*self._often_above(frame), *self._unlike_peers(frame), *self._held(frame)):
            self._signs[device] = sign
        self._signs = {name: sign for name, sign in self._signs.items() if frame.mono_us - sign.at_us < STAYS_US}

    def suspects(self) -> tuple[Suspect, ...]:
        """Return the devices with signs, by name."""
        if not self._signs:
            return ()
        ios, busy = self._loads()
        share = shares(ios.items(), busy.items())
        return tuple(
            Suspect(name, sign.why, busy[name], share.get(name, 0.0), sign.unlike)
            for name, sign in sorted(self._signs.items())
        )

    def _loads(self) -> tuple[Counter[str], Counter[str]]:
        """Return the I/Os of each device in the last intervals, and their time in us, completed and in flight."""
        ios, busy = Counter[str](), Counter[str]()
        for name, one in ((name, one) for totals in self._totals for name, one in totals.items()):
            ios[name] += one.count
            busy[name] += one.sum or 0
        busy.update(in_flight_us(self._waiting.ages.oldest, STAYS_US))
        return ios, busy

    def _often_above(self, frame: Frame) -> Iterator[tuple[_Sign, str]]:
        for device in self._above[-1]:
            counts = [one.get(device, 0) for one in self._above]
            if sum(1 for count in counts if count) >= ABOVE_IN:
                cut = frame.thresholds_us.get(device)
                above = f"I/Os above {_spoken(cut)}" if cut else "I/Os above its threshold"
                yield _Sign(frame.mono_us, above), device

    def _unlike_peers(self, frame: Frame) -> Iterator[tuple[_Sign, str]]:
        if self._seen % COMPARED_EVERY:
            return
        wholes = dict(self._wholes())
        tails = {name: tail for name, one in wholes.items() if (tail := one.quantile(0.99)) is not None}
        for name, tail in tails.items():
            peers = [tails[peer] for peer in self._like(name) if peer in tails]
            if len(peers) >= PEERS and tail >= WORTH_US and tail >= FAR * median(peers):
                why = f"p99 of {_spoken(tail)} where its peers have {_spoken(round(median(peers)))}"
                yield _Sign(frame.mono_us, why, tail / max(median(peers), 1)), name

    def _held(self, frame: Frame) -> Iterator[tuple[_Sign, str]]:
        for device in {one.device for one in self._waiting.ages.oldest if one.age_us >= HELD_US}:
            yield _Sign(frame.mono_us, f"I/Os in flight for more than {HELD_US // 1_000_000} s"), device

    def _wholes(self) -> Iterator[tuple[str, Histogram]]:
        """Each device's latencies over the last intervals, where there are enough."""
        parts: defaultdict[str, list[Histogram]] = defaultdict(list)
        for totals in self._totals:
            for name, one in totals.items():
                parts[name].append(one)
        for name, found in parts.items():
            whole = merge(found)
            if whole.count >= ENOUGH:
                yield name, whole

    def _like(self, name: str) -> tuple[str, ...]:
        """Others of the same model behind the same driver."""
        own = self._devices.get(name)
        if own is None:
            return ()
        like = (own.kind, own.driver, own.model)
        return tuple(
            other.name
            for other in self._devices.values()
            if other.name != name and (other.kind, other.driver, other.model) == like
        )


def _by_device(frame: Frame) -> dict[str, int]:
    counts: defaultdict[str, int] = defaultdict(int)
    for flow, count in frame.above.items():
        if count:
            counts[flow.device] += count
    return dict(counts)


def _totals(frame: Frame) -> dict[str, Histogram]:
    parts: defaultdict[str, list[Histogram]] = defaultdict(list)
    for series, histogram in frame.histograms.items():
        if series.stage == "total" and series.op in ("read", "write"):
            parts[series.device].append(histogram)
    return {name: merge(found) for name, found in parts.items()}


def _spoken(us: int) -> str:
    return f"{us / 1000:.4g} ms" if us >= WORTH_US else f"{us} us"
