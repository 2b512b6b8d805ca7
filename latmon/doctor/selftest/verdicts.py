"""Verdicts of the self-test: the delay that was made against what the panels show. Pure.

The panels' own values are asked: the scene is fed as the screen is, frame by frame. Knows no device and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from latmon.analysis.attribution import by_vector
from latmon.doctor.selftest import Shown, Verdict
from latmon.doctor.selftest.workload import BYTES, COMM, INTERVAL_US, THRESHOLD_US, Captured, Held
from latmon.model.frame import OPS, Flow, Frame, Origin, Outlier
from latmon.model.histogram import bucket_bounds
from latmon.model.stages import called
from latmon.views import empty
from latmon.views.anatomy import anatomy, largest
from latmon.views.context import selected
from latmon.views.heatmap import total_counts
from latmon.views.panels.outliers import log
from latmon.views.panels.outstanding import ages, look_at
from latmon.views.screen import Scene
from latmon.views.selection import Choice
from latmon.views.timeline import Timeline

BUCKET = 0.125
"""A bucket of a histogram is at most so wide."""
LATE_US = 20_000
"""A busy host wakes the thread that waits for an I/O so late; what it measured is that much longer."""
_SHARE = 0.25
"""Depths are read at moments: the time with an I/O in flight is known by no less."""
_WINDOW_US = 600_000_000
_SOFTIRQ = "softirq"
"""In the name of each path on which one completes the I/O."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """The capture, the scene with all of it, and the oldest that waited at the end of any of its frames."""

    captured: Captured
    scene: Scene
    oldest_us: int

    @property
    def held(self) -> tuple[Held, ...]:
        return self.captured.done.held

    @property
    def origin(self) -> Origin:
        return self.captured.origin

    @property
    def frames(self) -> tuple[Frame, ...]:
        return self.captured.frames

    @property
    def device(self) -> str:
        return self.captured.device


def judge(captured: Captured) -> tuple[Shown, ...]:
    """All checks, in the order of the panels."""
    seen = _watched(captured)
    first = (_listed(seen), *_counts(seen))
    if not captured.done.held:
        why = "no delay was made: the host has no mkfs.ext4, mkfs.xfs or mkfs.btrfs, or no fsfreeze; counts alone are"
        return (*first, Shown("delay", Verdict.UNMEASURED, f"{why} checked"))
    if not all(one.was_held for one in captured.done.held):
        why = "this kernel doesn't let a loop device wait for its frozen file system, so no delay was made"
        return (*first, Shown("delay", Verdict.UNMEASURED, why))
    checks: Iterable[Callable[[_Seen], Iterator[Shown]]] = (
        *(_map, _stages, _depths, _in_flight, _outliers, _interrupts),
        _findings,
    )
    return (*first, *(shown for check in checks for shown in check(seen)))


def _watched(captured: Captured) -> _Seen:
    """As the screen sees it: whoever looks at the outstanding screen sees the age of what waits."""
    scene = Scene(Choice(selected=captured.device, window_us=_WINDOW_US, threshold_us=THRESHOLD_US))
    scene.opened(captured.origin)
    oldest_us = 0
    for frame in captured.frames:
        scene.append(frame)
        here = (one.age_us for one in ages(scene.sight) if one.device == captured.device)
        oldest_us = max(oldest_us, *here, 0)
    return _Seen(captured, scene, oldest_us)


def _listed(seen: _Seen) -> Shown:
    found = any(one.device.name == seen.device for one in seen.scene.sight.subjects())
    return _told("device", f"{seen.device} is {'' if found else 'not '}listed", passed=found)


def _counts(seen: _Seen) -> Iterator[Shown]:
    """By the probe and by the kernel's counters, each against what the counters said themselves."""
    done = seen.captured.done
    writes = Flow(seen.device, "write")
    for name, flows in (("counts", [f.seen for f in seen.frames]), ("diskstats", [f.kernel for f in seen.frames])):
        found = sum(one[writes].count for one in flows if writes in one)
        if name == "counts" and empty.no_distribution(seen.origin):
            yield _unmeasured(name, seen)
            continue
        said = f"{found:,} writes completed, {done.writes:,} were made, /proc/diskstats has {done.counted:,}"
        yield _told(name, said, passed=found == done.writes == done.counted)


def _map(seen: _Seen) -> Iterator[Shown]:
    """The heat map's own columns."""
    if empty.no_distribution(seen.origin):
        yield _unmeasured("latency map", seen)
        return
    timeline = Timeline(INTERVAL_US, len(seen.frames) * 2, OPS, seen.frames)
    counts = total_counts(timeline, seen.device)
    for one in seen.held:
        inside = [i for i, n in counts.items() if n and _fits(one, *bucket_bounds(i))]
        made = f"a write of {_ms(one.asked_us)} was made, {_ms(one.took_us)} as its thread saw it"
        if inside:
            low, high = bucket_bounds(inside[0])
            yield _told("latency map", f"an I/O from {_ms(low)} to {_ms(high)}; {made}", passed=True)
        else:
            yield _told("latency map", f"no I/O of that latency; {made}", passed=False)


def _stages(seen: _Seen) -> Iterator[Shown]:
    deep = seen.scene.history.deep.traced
    if seen.captured.deep:
        yield Shown("stages", Verdict.UNMEASURED, f"not measured with {_backend(seen)}: {seen.captured.deep}")
        return
    tail = anatomy(seen.device, OPS, deep, seen.origin, cut_us=THRESHOLD_US, detailed=False).tail
    if max(deep.sampled) > 1 and (tail is None or tail.count < len(seen.held)):
        yield Shown("stages", Verdict.UNMEASURED, f"1 I/O in {max(deep.sampled)} was traced, and not all of these")
        return
    if tail is None:
        yield _told("stages", f"no traced I/O of {_ms(THRESHOLD_US)} or more; {len(seen.held)} were made", passed=False)
        return
    top = largest(tail.parts)
    us, made = round(tail.parts.get(top, 0)), sum(one.took_us for one in seen.held)
    holds = deep.includes_of(seen.device).get(top, ())
    with_others = f" with {', '.join(holds)} in it" if holds else ""
    in_driver = top == "hba" or "hba" in holds
    what = f"{called(top, holds).sentence or 'no stage'}{with_others} holds {_ms(us)} of {tail.count:,} slow I/Os"
    said = f"{what}; {_ms(made)} were made in the driver"
    yield _told("stages", said, passed=in_driver and _near(us, made, BUCKET, LATE_US * len(seen.held)))


def _depths(seen: _Seen) -> Iterator[Shown]:
    subject = selected(seen.scene.sight.subjects())
    facts = look_at(seen.scene.sight, subject) if subject is not None else None
    depths = facts.depths if facts else None
    if facts is None or depths is None or not depths.in_driver:
        yield Shown("depths", Verdict.UNMEASURED, f"not measured with {_backend(seen)}: {facts.why if facts else ''}")
        return
    busy = sum(n for depth, n in depths.in_driver.items() if depth) / sum(depths.in_driver.values())
    us, made = round(busy * facts.covered_us), sum(one.took_us for one in seen.held)
    said = f"an I/O in the driver for {_ms(us)}, {_ms(made)} were made"
    yield _told("depths", said, passed=_near(us, made, _SHARE, INTERVAL_US // 5))


def _in_flight(seen: _Seen) -> Iterator[Shown]:
    longest = max(seen.held, key=lambda one: one.took_us)
    made = f"a write waited for {_ms(longest.took_us)}"
    if seen.oldest_us:
        least = longest.asked_us - 2 * INTERVAL_US
        passed = least <= seen.oldest_us <= longest.took_us + LATE_US
        yield _told("in flight", f"the oldest waited for {_ms(seen.oldest_us)} at a frame's end; {made}", passed=passed)
    elif any(one.in_flight is not None and one.in_flight.follows(seen.device) for one in seen.frames):
        yield _told("in flight", f"nothing was listed as waiting; {made}", passed=False)
    else:
        who = f"not measured with {_backend(seen)}" if seen.captured.deep else "not recorded by the tracer in this time"
        said = f"ages are {who}, and {_ms(longest.took_us)} are too short for an age of at least so long"
        yield Shown("in flight", Verdict.UNMEASURED, said)


def _outliers(seen: _Seen) -> Iterator[Shown]:
    if empty.no_distribution(seen.origin):
        yield _unmeasured("outliers", seen)
        return
    rows = [row.outlier for row in log(seen.scene.sight).rows if row.outlier.device == seen.device]
    for one in seen.held:
        found = next((row for row in rows if row.sector == one.sector), None)
        if found is None:
            told = f"{len(rows):,} are told and none at sector {one.sector:,}; {_ms(one.asked_us)} was made there"
            yield _told("outliers", told, passed=False)
            continue
        wrong = _unlike(found, one)
        who = f" by {found.comm}" if found.comm else ""
        said = (
            f"{found.op} of {(found.bytes or 0) // 1024} KiB at sector {one.sector:,}{who} took {_ms(found.total_us)}, "
            f"{_ms(one.asked_us)} was made{'; wrong: ' + ', '.join(wrong) if wrong else ''}"
        )
        yield _told("outliers", said, passed=not wrong)


def _unlike(found: Outlier, one: Held) -> Sequence[str]:
    wrong = {
        "latency": not _fits(one, found.total_us, found.total_us + 1),
        "op": found.op != "write",
        "size": found.bytes is not None and found.bytes != BYTES,
        "issuer": bool(found.comm) and found.comm != COMM,
    }
    return [name for name, is_wrong in wrong.items() if is_wrong]


def _interrupts(seen: _Seen) -> Iterator[Shown]:
    """The delay is none of an interrupt's; what a softirq completed of the device's own has its time there.

    The panel's runs are the whole host's: they alone say nothing of this device.
    """
    deep = seen.scene.history.deep
    paths = deep.traced.paths.get(seen.device, {})
    completed = sum(n for path, n in paths.items() if _SOFTIRQ in path)
    if seen.captured.deep or not completed or not deep.softirqs:
        why = seen.captured.deep or f"no I/O of {seen.device} was completed in a softirq"
        yield Shown("interrupts", Verdict.UNMEASURED, why)
        return
    block = by_vector(deep.softirqs).get("BLOCK")
    runs = block.run.count if block else 0
    timed = sum(h.count for s, h in deep.traced.histograms.items() if s.device == seen.device and s.stage == _SOFTIRQ)
    said = f"{completed:,} I/Os of {seen.device} were completed in a softirq, {timed:,} have a time in it"
    yield _told("interrupts", f"{said}; BLOCK ran {runs:,} times on this host", passed=runs > 0 and timed == completed)


def _findings(seen: _Seen) -> Iterator[Shown]:
    """What was made is too short for any rule."""
    longest = max(one.asked_us for one in seen.held)
    yield Shown("findings", Verdict.UNMEASURED, f"no rule is made for a single wait of {_ms(longest)}")


def _fits(one: Held, low_us: int, high_us: int) -> bool:
    """Whether [low, high) touches what a bucket and a late wake-up leave of it."""
    least = min(one.asked_us, one.took_us) * (1 - BUCKET) - LATE_US
    return low_us <= one.took_us * (1 + BUCKET) + LATE_US and high_us > least


def _near(us: int, made_us: int, share: float, more_us: int) -> bool:
    return abs(us - made_us) <= made_us * share + more_us


def _told(name: str, what: str, *, passed: bool) -> Shown:
    return Shown(name, Verdict.OK if passed else Verdict.FAILED, what)


def _unmeasured(name: str, seen: _Seen) -> Shown:
    return Shown(name, Verdict.UNMEASURED, f"not measured with {_backend(seen)}")


def _backend(seen: _Seen) -> str:
    tier = f", tier {seen.origin.tier}" if seen.origin.tier else ""
    return f"{seen.origin.backend}{tier}"


def _ms(us: int) -> str:
    return f"{us / 1000:,.0f} ms"
