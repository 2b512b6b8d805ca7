"""Records of slow I/Os, of both probes, brought together until each is one Outlier.

    outliers = Outliers(manifests, device_name, threads, flag_bits)
    outliers.take(records)                            # of a Window, of a DeepWindow, in any order
    settled = outliers.settled(wall, mono_us, hold)   # once a tick; hold: HOLD while the deep probes run, else 0

The two probes tell of one request up to a tick apart: a record waits up to `hold` ticks for the others. The always-on
probe says what is an outlier: a traced request of which it tells nothing was below the threshold, or is one of those
that its rate limit left out and counts. Of devices that it doesn't time, scripts that count what is above speak for
themselves. In a flood the two rate limits let different requests through: a traced one then stands in for one of which
no stages are known.
Owns what waits, bounded; outlier.py makes the value. Knows neither events nor frames.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from latmon.manifest import Manifest
from latmon.model import Outlier
from latmon.records import Record
from latmon_backends import request_flags
from latmon_backends.outlier import Moment, Names, Told, outlier
from latmon_backends.threads import Threads

HOLD = 2
"""Ticks."""
MAX_WAITING = 10_000
"""Records of one kind: 100 s of a probe's rate limit."""
_BEGUN_NS = 5_000
"""Both probes take a request's begin from its own stamp; the one by way of two times that are cut to whole us."""
_DONE_NS = 50_000
"""Two programs at one event, one after the other. A tag, and so a request's address, is used again well within 1 ms."""
_SAME_NS = 1_000_000_000
"""As much where they agree on the request and its begin, which no other has: an interrupt may come between them, or the
host of a virtual machine take its CPU away."""
_SPEAK = ("always", "bios")
"""Groups of the scripts that count what is above; the others tell more of it."""
Aged = list[tuple[int, Record]]


@dataclass(frozen=True, slots=True)
class Settled:
    """The outliers for which nothing more is waited, in the order in which they began."""

    outliers: tuple[Outlier, ...] = ()
    dropped: int = 0
    """I/Os above the threshold for whose record there was no room."""
    lost: int = 0
    """Other records for which there was none: an outlier lacks what they told."""
    undecoded: int = 0
    """Records that tell what can't be, or of a script that isn't known."""


class Outliers:
    """What is waiting. `times` says of a device and op whether the always-on probe's times are its own."""

    def __init__(
        self,
        manifests: Iterable[Manifest],
        device_name: Callable[[int], str | None],
        threads: Threads,
        flag_bits: Mapping[str, int] = request_flags.USUAL,
        times: Callable[[str, str], bool] = lambda _device, _op: True,
        *,
        alone: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`alone`: whether only the deep probes time a device."""
        self._names = Names(device_name, threads, {one.name: one for one in manifests}, flag_bits)
        self._begins = _begins(self._names.manifests)
        self._times, self._alone = times, alone
        self._told: list[tuple[int, Told]] = []
        self._places: defaultdict[tuple[str, int, int], list[Told]] = defaultdict(list)
        self._resumed: Aged = []
        self._late: Aged = []
        self._tick = self._dropped = self._lost = self._undecoded = 0

    def add(self, manifests: Iterable[Manifest]) -> None:
        """Scripts that were started later."""
        known = {**self._names.manifests, **{one.name: one for one in manifests}}
        self._names = replace(self._names, manifests=known)
        self._begins = _begins(known)

    def take(self, records: Iterable[Record]) -> None:
        """slow, resumed and late, with stamps on CLOCK_MONOTONIC; others are nothing."""
        for record in records:
            if record.kind == "slow":
                self._slow(record)
            elif record.kind == "resumed":
                self._keep(self._resumed, record)
            elif record.kind == "late":
                self._keep(self._late, record)

    def settled(self, wall: float, mono_us: int, hold: int = HOLD, *, flood: bool = False) -> Settled:
        """One tick on: what is whole or has waited long enough. `wall` and `mono_us` are the same moment.

        `flood`: the always-on probe's rate limit left some out.
        """
        since = self._tick - hold
        self._tick += 1
        self._resume()
        ready = [told for tick, told in self._told if told.whole or tick <= since]
        self._told = [(tick, told) for tick, told in self._told if not told.whole and tick > since]
        late: defaultdict[int, list[Record]] = defaultdict(list)
        for _, record in self._late:
            late[record.fields.get("thread", -1)].append(record)
        if flood:
            ready = self._with_stages(ready)
        found = [made for told in ready if (made := self._made(told, late, Moment(wall, mono_us))) is not None]
        # A late wake-up is told before the request that waited for it, at most a tick before.
        self._late = [(tick, record) for tick, record in self._late if tick >= since]
        self._resumed = [(tick, record) for tick, record in self._resumed if tick > since]
        self._places.clear()
        for _, told in self._told:
            for record in told.sources():
                self._place(record, told)
        settled = Settled(tuple(sorted(found, key=lambda one: one.mono_us)), self._dropped, self._lost, self._undecoded)
        self._dropped = self._lost = self._undecoded = 0
        return settled

    def _keep(self, waiting: Aged, record: Record) -> None:
        if len(waiting) < MAX_WAITING:
            waiting.append((self._tick, record))
        else:
            self._lost += 1

    def _slow(self, record: Record) -> None:
        done, manifest = record.get("done_ns"), self._names.manifests.get(record.probe)
        if done is None or manifest is None:
            self._undecoded += 1
            return
        source = "always" if manifest.group == "always" else "deep"
        told = self._find(record, done, source)
        if told is None:
            if len(self._told) >= MAX_WAITING:
                speaks = manifest.group in _SPEAK
                self._dropped += speaks
                self._lost += not speaks
                return
            told = Told(done)
            self._told.append((self._tick, told))
        setattr(told, source, record)
        self._place(record, told)

    def _place(self, record: Record, told: Told) -> None:
        for place in _places(record):
            self._places[place].append(told)

    def _find(self, record: Record, done: int, free: str) -> Told | None:
        """The one that ended closest to `done`, by the request itself, else by where it is on the device."""
        for place in _places(record):
            near = [
                told
                for told in self._places.get(place, ())
                if getattr(told, free) is None and _is_of(told, record, done, self._begins)
            ]
            if near:
                return min(near, key=lambda told: abs(told.done_ns - done))
        return None

    def _resume(self) -> None:
        """A waiter's record may come before that of its I/O; one whose I/O was left out finds none."""
        waiting: Aged = []
        for tick, record in self._resumed:
            done = record.get("done_ns")
            if done is None or record.get("resume_us") is None:
                self._undecoded += 1
            elif (told := self._find(record, done, "resumed")) is not None:
                told.resumed = record
            else:
                waiting.append((tick, record))
        self._resumed = waiting

    def _with_stages(self, ready: list[Told]) -> list[Told]:
        """One for one, of the same device and op: as many are told as before, and as many left out."""
        alone: defaultdict[tuple[int | None, int | None], list[Told]] = defaultdict(list)
        traced: defaultdict[tuple[int | None, int | None], list[Told]] = defaultdict(list)
        for told in ready:
            kind = told.get("dev"), told.get("op")
            if told.deep is None:
                alone[kind].append(told)
            elif told.always is None and self._of_stages(told.deep):
                traced[kind].append(told)
        out: set[int] = set()
        for kind, those in alone.items():
            able = _above_all(traced.get(kind, ()), those)
            for told, instead in zip(those, able, strict=False):
                instead.stands_in = True
                out.add(id(told))
        return [told for told in ready if id(told) not in out]

    def _of_stages(self, record: Record | None) -> bool:
        return record is not None and self._names.manifests[record.probe].group == "stages"

    def _counts(self, record: Record | None) -> bool:
        """Whether its script counts each I/O that is above."""
        return record is not None and any(spec.role == "above" for spec in self._names.manifests[record.probe].maps)

    def _made(self, told: Told, late: Mapping[int, list[Record]], now: Moment) -> Outlier | None:
        deep = told.deep if told.always is None and not told.stands_in else None
        if self._of_stages(deep) and not self._counts(deep):
            return None
        made = outlier(told, late, self._names, now)
        if made is not None and self._of_stages(deep) and not self._alone(made.device):
            return None
        if made is None:
            self._undecoded += self._names.device(told.get("dev") or 0) is not None
        elif told.deep is None and not self._times(made.device, made.op):
            return None
        return made


def _above_all(traced: Iterable[Told], those: Sequence[Told]) -> list[Told]:
    """Of the traced ones, which begin below the threshold, those that surely are above it."""
    least_total, least_issued = (min(each) for each in zip(*map(_both, those), strict=True))
    return [told for told in traced if (both := _both(told))[0] >= least_total and both[1] >= least_issued]


def _both(told: Told) -> tuple[int, int]:
    """Its total, and that without what came before its issue, which not every always-on probe sees."""
    total = told.total_us or 0
    return total, total - (told.get("queue_us") or 0) - (told.get("requeue_us") or 0)


def _begins(manifests: Mapping[str, Manifest]) -> dict[str, str]:
    """Where each probe's totals begin."""
    return {name: one.latency_from for name, one in manifests.items()}


def _is_of(told: Told, record: Record, done: int, begins: Mapping[str, str]) -> bool:
    """Of the same I/O: by its address and begin where both tell them, else by when it was done."""
    apart = abs(told.done_ns - done)
    request, begun = record.get("request"), record.get("begun_ns")
    for one in told.sources():
        other, start = one.get("request"), one.get("begun_ns")
        if request and other:
            if request != other:
                return False
            if begun is not None and start is not None:
                if begins.get(record.probe) != begins.get(one.probe):
                    # From the queue, and from the issue: two I/Os don't have an address at the same time.
                    return apart <= _DONE_NS < min(told.done_ns, done) - max(begun, start)
                return apart < _SAME_NS and abs(begun - start) <= _BEGUN_NS
    return apart <= _DONE_NS


def _places(record: Record) -> list[tuple[str, int, int]]:
    """What a request is known by: its own address, else its place on the device. A flush has no place."""
    dev, request, sector = record.get("dev"), record.get("request"), record.get("sector")
    if dev is None:
        return []
    places = [("request", dev, request)] if request else []
    return places if sector is None else [*places, ("sector", dev, sector)]
