"""Evidence of pauses: times in which a device completed no I/O although some waited, from its recorded slow I/Os.

I/Os that wait in a pause end within a few ms of each other, whenever they began. In a pause no other I/O ends, so a
slow one that ends in between, or one that many later I/Os overtook, refutes it. That none is recorded in between proves
nothing where the threshold of the record is high: a queue that drains in order ends I/Os all the time, none of them
overtaken, and those below the threshold are not recorded. Windows without a completion are the proof then. The length
of a pause is the longest wait in it: the first I/O comes a little after the pause has begun.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean, median
from typing import NamedTuple

from latmon.aggregate.rates import variation
from latmon.findings.evidence import count_from, host_before
from latmon.findings.facts import Facts
from latmon.findings.rule import Thresholds
from latmon.model.frame import Outlier
from latmon.model.histogram import bucket_bounds, bucket_index
from latmon.model.measurements import SOFTIRQS, WAKEUPS

OPS = ("read", "write")
"""A flush or a discard that takes long may keep all others waiting: then it is what takes long."""
_MAIN_PART = 0.5
"""Share of a pause from which on a wait, a delay or another pause covers the main part of it."""
_SIGNIFICANCE = 0.01
"""An op of which no I/O waits was served in the pauses, unless that is as likely by chance."""
_WINDOW_MARGIN_US = 100_000
"""Distance of a window from both ends of a pause: one that is nearer may have counted a completion before or after."""
_EXPECTED_IOS = 10
"""I/Os expected in the pauses at a device's mean rate, from which on some came: none did with a chance of e**-10."""


class SlowIo(NamedTuple):
    """A recorded slow I/O up to its completion, on CLOCK_MONOTONIC."""

    end_us: int
    begin_us: int
    outlier: Outlier

    @property
    def waited_us(self) -> int:
        return self.end_us - self.begin_us


class Pause(NamedTuple):
    """A time in which a device completed no I/O."""

    begin_us: int
    """The begin of the I/O that waited longest."""
    end_us: int
    """The first completion after it."""
    ios: tuple[SlowIo, ...]
    """The recorded I/Os that waited."""
    silent_windows: int
    """Windows of the capture in it, all without a completion."""

    @property
    def length_us(self) -> int:
        return self.end_us - self.begin_us

    @property
    def main_part_us(self) -> float:
        return _MAIN_PART * self.length_us

    @property
    def is_held_by_another_op(self) -> bool:
        """Return whether a flush, a discard or a command of the drive lasted for most of it."""
        return any(io.outlier.op not in OPS and io.waited_us >= self.main_part_us for io in self.ios)


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePauses:
    """The pauses of a device in the window, in the order of time."""

    device: str
    pauses: tuple[Pause, ...]
    median_us: int
    """Median of all its I/Os."""
    are_all_recorded: bool
    """Whether each I/O that waited as long as a pause was recorded."""
    overtaken: int | None
    """I/Os that overtook one that waited, at most; None where that is counted in too few pauses."""

    @property
    def lengths_us(self) -> Sequence[int]:
        return [pause.length_us for pause in self.pauses]

    @property
    def length_us(self) -> float:
        return median(self.lengths_us)

    @property
    def ios(self) -> Sequence[int]:
        """Return how many I/Os waited in each pause, of those that were recorded."""
        return [len(pause.ios) for pause in self.pauses]

    @property
    def ops(self) -> frozenset[str]:
        """Return the ops of those I/Os."""
        return frozenset(io.outlier.op for pause in self.pauses for io in pause.ios)

    @property
    def waited_us(self) -> int:
        return sum(io.waited_us for pause in self.pauses for io in pause.ios)

    def period_us(self, most_variation: float) -> float | None:
        """Return the mean time from one pause to the next; None where these times vary more."""
        gaps_us = [later.begin_us - pause.begin_us for pause, later in zip(self.pauses, self.pauses[1:], strict=False)]
        return fmean(gaps_us) if len(gaps_us) > 1 and variation(gaps_us) <= most_variation else None

    def is_at_the_same_time(self, other: DevicePauses, least_share: float) -> bool:
        """Return whether another device pauses when this one does, in this share of the pauses of one of them."""
        shared = sum(any(_overlaps(pause, theirs) for theirs in other.pauses) for pause in self.pauses)
        return shared >= least_share * min(len(self.pauses), len(other.pauses))


def _overlaps(pause: Pause, other: Pause) -> bool:
    shared_us = min(pause.end_us, other.end_us) - max(pause.begin_us, other.begin_us)
    return shared_us >= min(pause.main_part_us, other.main_part_us)


def all_pauses(facts: Facts, limits: Thresholds) -> dict[str, DevicePauses]:
    """Return the pauses of each device that pauses again and again."""
    pausing: dict[str, DevicePauses] = {}
    for name in sorted({outlier.device for outlier in facts.outliers()}):
        pauses = pauses_of(facts, name, limits)
        if pauses is not None:
            pausing[name] = pauses
    return pausing


def pauses_of(facts: Facts, device: str, limits: Thresholds) -> DevicePauses | None:
    """Return the pauses of a device between which it is fast; None where there are too few, or other slow I/Os."""
    median_us = facts.latency(device).quantile(0.5)
    if median_us is None:
        return None
    least_us = max(limits["pause_us"], limits["times"] * median_us)
    ios = sorted(map(_slow_io, facts.outliers(device)), key=lambda io: io.end_us)
    long_ios = [io for io in ios if io.waited_us >= least_us and io.outlier.op in OPS]
    if len(long_ios) < limits["pauses"]:
        return None
    completions = _Completions(ios, tuple(_windows(facts, device)), facts.highest_threshold_us(device))
    pauses_in_order, explained = _find_pauses(completions, long_ios, limits)
    if len(pauses_in_order) < limits["pauses"] or explained < limits["most"] * len(long_ios):
        return None
    overtaken = [_overtaken(pause) for pause in pauses_in_order]
    counted = [count for count in overtaken if count is not None]
    pauses = DevicePauses(
        device=device,
        pauses=tuple(pauses_in_order),
        median_us=median_us,
        are_all_recorded=_are_all_recorded(facts, device, least_us, long_ios),
        overtaken=max(counted) if len(counted) >= limits["pauses"] else None,
    )
    return pauses if _is_sound(facts, pauses, limits) else None


def _slow_io(outlier: Outlier) -> SlowIo:
    waited_us = outlier.total_us - outlier.stages_us.get("resume", 0)
    return SlowIo(outlier.mono_us + waited_us, outlier.mono_us, outlier)


class _Window(NamedTuple):
    """One interval of the capture."""

    begin_us: int
    end_us: int
    is_silent: bool
    """Whether no I/O of the device completed in it."""

    def is_inside(self, begin_us: int, end_us: int) -> bool:
        return self.begin_us >= begin_us + _WINDOW_MARGIN_US and self.end_us <= end_us - _WINDOW_MARGIN_US


def _windows(facts: Facts, device: str) -> Iterator[_Window]:
    for block in facts.window:
        begin_us = block.begin_us
        for rate in block.rates.get(device, ()):
            yield _Window(begin_us, begin_us + rate.span_us, not rate.ios)
            begin_us += rate.span_us


@dataclass(frozen=True, slots=True)
class _Completions:
    """All that is known about when I/Os of a device completed."""

    recorded: Sequence[SlowIo]
    """In the order of their ends."""
    windows: Sequence[_Window]
    threshold_us: int | None
    """An I/O that took less was not recorded; None where that is not known."""

    def recorded_in(self, after_us: int, until_us: int) -> Sequence[SlowIo]:
        """Return the recorded I/Os that ended in (after_us, until_us]."""
        by_end = attrgetter("end_us")
        first = bisect_right(self.recorded, after_us, key=by_end)
        behind = bisect_right(self.recorded, until_us, key=by_end)
        return self.recorded[first:behind]

    def are_recorded_from(self, us: float) -> bool:
        """Return whether each I/O that took as long was recorded, as far as the limit of probes' records allows."""
        return self.threshold_us is not None and self.threshold_us <= us


def _find_pauses(completions: _Completions, long_ios: Sequence[SlowIo], limits: Thresholds) -> tuple[list[Pause], int]:
    """Return the pauses in the order of time, and how many of the long I/Os, ordered by their ends, they explain."""
    pauses: list[Pause] = []
    explained = 0
    for group in _ended_together(long_ios, limits["together"]):
        pause = _pause_ending_at(completions, group, limits)
        if pause is None:
            continue
        if pauses and pause.begin_us < pauses[-1].end_us:
            continue  # I/Os completed in it, those of the pause before
        pauses.append(pause)
        explained += len(group)
    return pauses, explained


def _ended_together(long_ios: Iterable[SlowIo], share: float) -> Iterator[Sequence[SlowIo]]:
    """Yield groups of I/Os that ended after their first one within a share of its wait."""
    group: list[SlowIo] = []
    for io in long_ios:
        if group and io.end_us > group[0].end_us + share * group[0].waited_us:
            yield group
            group = []
        group.append(io)
    if group:
        yield group


def _pause_ending_at(completions: _Completions, group: Sequence[SlowIo], limits: Thresholds) -> Pause | None:
    """Return the pause in which a group of long I/Os waited; None where others ended in it, or may have ended."""
    end_us = group[0].end_us
    length_us = max(io.waited_us for io in group)
    begin_us = end_us - length_us
    margin_us = round(limits["together"] * length_us)
    if completions.recorded_in(begin_us + margin_us, end_us - margin_us):
        return None
    windows = [window for window in completions.windows if window.is_inside(begin_us, end_us)]
    if not all(window.is_silent for window in windows):
        return None
    if not windows and not completions.are_recorded_from(limits["recorded"] * length_us):
        return None
    ended = completions.recorded_in(end_us - margin_us, end_us + margin_us)
    waited = tuple(io for io in ended if io.begin_us < end_us)
    pause = Pause(begin_us, end_us, waited, len(windows))
    return pause if _is_of_device(pause, limits) else None


def _is_of_device(pause: Pause, limits: Thresholds) -> bool:
    """Return whether those that waited longest did in driver and device, as far as stages are known, overtaken by few.

    The one that ended first counts: later ones may be overtaken while the device works off what has waited.
    """
    staged = [io.outlier for io in _long_ones(pause) if io.outlier.stages_us]
    total_us = sum(_slow_io(outlier).waited_us for outlier in staged)
    driver_us = sum(outlier.stages_us.get("hba", 0) for outlier in staged)
    overtaken = _overtaken(pause)
    return driver_us >= limits["driver"] * total_us and (overtaken is None or overtaken <= limits["overtaken"])


def _long_ones(pause: Pause) -> Iterator[SlowIo]:
    return (io for io in pause.ios if io.waited_us >= pause.main_part_us)


def _overtaken(pause: Pause) -> int | None:
    counts = (io.outlier.overtaken_by for io in _long_ones(pause))
    return min((count for count in counts if count is not None), default=None)


def _are_all_recorded(facts: Facts, device: str, least_us: float, long_ios: Iterable[SlowIo]) -> bool:
    """Return whether the histogram has no more long I/Os than were recorded: probes limit how many they record."""
    latency = facts.latency(device)
    from_us = bucket_bounds(bucket_index(int(least_us), latency.bits) + 1, latency.bits)[0]
    return count_from(latency, from_us) <= sum(io.waited_us >= from_us for io in long_ios)


def _is_sound(facts: Facts, pauses: DevicePauses, limits: Thresholds) -> bool:
    first, last = pauses.pauses[0], pauses.pauses[-1]
    if sum(pauses.lengths_us) > limits["paused"] * (last.end_us - first.begin_us):
        return False
    held_pauses = sum(pause.is_held_by_another_op for pause in pauses.pauses)
    if 2 * held_pauses > len(pauses.pauses):
        return False
    if _may_be_late_completions(facts, pauses):
        return False
    return pauses.overtaken is not None or (_do_all_ops_wait(facts, pauses) and _are_proven(pauses, limits))


def _may_be_late_completions(facts: Facts, pauses: DevicePauses) -> bool:
    """Return whether a softirq or a kernel thread was as late, where the time in the driver includes their waits."""
    ios = [io.outlier for pause in pauses.pauses for io in _long_ones(pause)]
    if any(outlier.stages_us and not outlier.includes.get("hba") for outlier in ios):
        return False
    host = host_before(facts, pauses.device)
    delays = [woken.delay for woken in facts[WAKEUPS].values() if woken.thread.kernel]
    delays += [runs.delay for where, runs in facts[SOFTIRQS].items() if where.vector.startswith(host)]
    return any((delay.max_bound or 0) >= _MAIN_PART * pauses.length_us for delay in delays)


def _do_all_ops_wait(facts: Facts, pauses: DevicePauses) -> bool:
    """Return whether reads and writes wait alike, where no probe counts what overtakes an I/O.

    A pause is one trial: what waits in it was often issued together.
    """
    counts = {op: facts.latency(pauses.device, op).count for op in OPS}
    all_ios = max(sum(counts.values()), 1)
    for op, count in counts.items():
        if op not in pauses.ops and (1 - count / all_ios) ** len(pauses.pauses) < _SIGNIFICANCE:
            return False
    return True


def _are_proven(pauses: DevicePauses, limits: Thresholds) -> bool:
    """Return whether others would have ended in the pauses, where no probe counts what overtakes an I/O.

    One that waits alone is no proof, also not at regular times: a device that takes long for each 200th I/O of a steady
    load serves the others meanwhile.
    """
    proven = sum(len(pause.ios) > 1 or pause.silent_windows > 0 for pause in pauses.pauses)
    return proven >= limits["pauses"]


class PauseGroup(NamedTuple):
    """Devices that pause at the same time; a single one has no others."""

    devices: tuple[DevicePauses, ...]
    """Without volumes on other ones of them."""
    volumes: tuple[str, ...]
    served: tuple[str, ...]
    """Devices of the host that were given I/Os and did not pause."""


def groups_of(facts: Facts, pausing: Mapping[str, DevicePauses], limits: Thresholds) -> Iterator[PauseGroup]:
    """Yield the devices that pause, those that pause at the same time together."""
    left = dict(pausing)
    while left:
        name, pauses = next(iter(left.items()))
        host = host_before(facts, name)
        group = [
            other
            for other in left.values()
            if host_before(facts, other.device) == host and pauses.is_at_the_same_time(other, limits["same_time"])
        ]
        names = {other.device for other in group}
        left = {other: theirs for other, theirs in left.items() if other not in names}
        volumes = [other for other in sorted(names) if names & set(facts.device(other).members)]
        yield PauseGroup(
            tuple(other for other in group if other.device not in volumes),
            tuple(volumes),
            tuple(_served(facts, pausing, pauses, limits)),
        )


def _served(
    facts: Facts, pausing: Mapping[str, DevicePauses], pauses: DevicePauses, limits: Thresholds
) -> Iterator[str]:
    """Yield the devices without pauses at these times, of which I/Os are likely to have come in them."""
    host = host_before(facts, pauses.device)
    paused = sum(pauses.lengths_us) / max(facts.span_us, 1)
    for name in facts.busy:
        if host_before(facts, name) != host or facts.latency(name).count * paused < _EXPECTED_IOS:
            continue
        other = pausing.get(name)
        if other is None or not pauses.is_at_the_same_time(other, limits["same_time"]):
            yield name
