"""Steps of the self-test, and its verdicts: the delay that was made against the values of the panels.

The scene gets the captured frames one by one, as the screen does. Knows neither arguments nor how lines are printed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from latmon.analysis.attribution import by_vector
from latmon.capture import registry
from latmon.doctor.selftest import PanelCheck, SelfTest, Verdict, workload
from latmon.doctor.selftest.workload import BYTES, COMM, INTERVAL_US, THRESHOLD_US, Captured, DelayedWrite
from latmon.model.frame import OPS, Flow, Frame, Origin, Outlier
from latmon.model.histogram import bucket_bounds
from latmon.model.stages import called
from latmon.support.errors import UnavailableError, UsageError
from latmon.views.anatomy import anatomy, largest
from latmon.views.context import no_distribution, selected
from latmon.views.panels.inflight import ages
from latmon.views.panels.outliers import log
from latmon.views.panels.outstanding import depth_view
from latmon.views.screen import Scene
from latmon.views.selection import Selection
from latmon.views.timeline import Timeline

BUCKET = 0.125
"""Greatest relative width of a histogram's bucket."""
LATE_US = 20_000
"""Greatest delay of a waiting thread's wake-up on a busy host, by which its own measurement is too long."""
_SHARE = 0.25
"""Relative error of the time with an I/O in flight, because depths are sampled."""
_WINDOW_US = 600_000_000
_SOFTIRQ = "softirq"
"""Part of the name of each path that completes I/Os in a softirq."""


def check_backend(name: str) -> None:
    """Raise UsageError for a backend that doesn't measure this host."""
    registry.check(name)
    if name in registry.FINITE:
        raise UsageError(f"--self-test measures this host, and {name} doesn't; leave --backend {name} out")


def self_test(backend: str, progress: Callable[[str], None]) -> SelfTest:
    """Run the self-test and return its result; `progress` gets progress texts.

    It takes about ten seconds on an idle host, plus the start of the probes.
    """
    try:
        workload.refuse(sys.platform, os.geteuid(), os.environ)
        with workload.made(os.environ, progress) as device:
            progress(f"made {device.path}: {device.how}")
            captured = workload.capture(device, backend, progress)
    except UnavailableError as refusal:
        return SelfTest(refused=str(refusal))
    origin = captured.origin
    tier = f", tier {origin.tier}" if origin.tier else ""
    return SelfTest("", device.name, f"{origin.tool or origin.backend}{tier}", evaluate(captured))


@dataclass(frozen=True, slots=True)
class _Replayed:
    """The capture, the scene with all of its frames, and the greatest age of an I/O at the end of any frame."""

    captured: Captured
    scene: Scene
    oldest_us: int

    @property
    def delayed(self) -> tuple[DelayedWrite, ...]:
        return self.captured.done.delayed

    @property
    def origin(self) -> Origin:
        return self.captured.origin

    @property
    def frames(self) -> tuple[Frame, ...]:
        return self.captured.frames

    @property
    def device(self) -> str:
        return self.captured.device


def evaluate(captured: Captured) -> tuple[PanelCheck, ...]:
    """Return all checks in the order of the panels."""
    seen = _replay(captured)
    first = (_listed(seen), *_counts(seen))
    if not captured.done.delayed:
        why = "no delay was made: the host has no mkfs.ext4, mkfs.xfs or mkfs.btrfs, or no fsfreeze; only counts were"
        return (*first, PanelCheck("delay", Verdict.UNMEASURED, f"{why} checked"))
    if not all(one.was_delayed for one in captured.done.delayed):
        why = "this kernel doesn't let a loop device wait for its frozen file system, so no delay was made"
        return (*first, PanelCheck("delay", Verdict.UNMEASURED, why))
    checks: Iterable[Callable[[_Replayed], Iterator[PanelCheck]]] = (
        *(_map, _stages, _depths, _in_flight, _outliers, _interrupts),
        _findings,
    )
    return (*first, *(shown for check in checks for shown in check(seen)))


def _replay(captured: Captured) -> _Replayed:
    """Feed a scene with the frames, as the screen is fed."""
    scene = Scene(Selection(selected=captured.device, window_us=_WINDOW_US, threshold_us=THRESHOLD_US))
    scene.opened(captured.origin)
    oldest_us = 0
    for frame in captured.frames:
        scene.append(frame)
        here = (one.age_us for one in ages(scene.view) if one.device == captured.device)
        oldest_us = max(oldest_us, *here, 0)
    return _Replayed(captured, scene, oldest_us)


def _listed(seen: _Replayed) -> PanelCheck:
    found = any(one.device.name == seen.device for one in seen.scene.view.subjects())
    return _reported("device", f"{seen.device} is {'' if found else 'not '}listed", passed=found)


def _counts(seen: _Replayed) -> Iterator[PanelCheck]:
    """Check the probe's and the recorded kernel counts against the workload and the kernel's counters."""
    done = seen.captured.done
    writes = Flow(seen.device, "write")
    for name, flows in (("counts", [f.seen for f in seen.frames]), ("diskstats", [f.kernel for f in seen.frames])):
        found = sum(one[writes].count for one in flows if writes in one)
        if name == "counts" and no_distribution(seen.origin):
            yield _unmeasured(name, seen)
            continue
        text = f"{found:,} writes completed, {done.writes:,} were made, /proc/diskstats has {done.counted:,}"
        yield _reported(name, text, passed=found == done.writes == done.counted)


def _map(seen: _Replayed) -> Iterator[PanelCheck]:
    if no_distribution(seen.origin):
        yield _unmeasured("latency map", seen)
        return
    timeline = Timeline(INTERVAL_US, len(seen.frames) * 2, OPS, seen.frames)
    counts = timeline.counts(seen.device)
    for one in seen.delayed:
        inside = [i for i, n in counts.items() if n and _fits(one, *bucket_bounds(i))]
        made = f"a write of {_ms(one.asked_us)} was made, {_ms(one.took_us)} as its thread saw it"
        if inside:
            low, high = bucket_bounds(inside[0])
            yield _reported("latency map", f"an I/O from {_ms(low)} to {_ms(high)}; {made}", passed=True)
        else:
            yield _reported("latency map", f"no I/O of that latency; {made}", passed=False)


def _stages(seen: _Replayed) -> Iterator[PanelCheck]:
    on_demand = seen.scene.history.on_demand.traced
    if seen.captured.on_demand:
        yield PanelCheck("stages", Verdict.UNMEASURED, f"not measured with {_backend(seen)}: {seen.captured.on_demand}")
        return
    tail = anatomy(seen.device, OPS, on_demand, seen.origin, cut_us=THRESHOLD_US, detailed=False).tail
    if max(on_demand.sampled) > 1 and (tail is None or tail.count < len(seen.delayed)):
        yield PanelCheck(
            "stages", Verdict.UNMEASURED, f"1 I/O in {max(on_demand.sampled)} was traced, and not all delayed ones"
        )
        return
    if tail is None:
        yield _reported(
            "stages", f"no traced I/O of {_ms(THRESHOLD_US)} or more; {len(seen.delayed)} were made", passed=False
        )
        return
    top = largest(tail.parts)
    us, made = round(tail.parts.get(top, 0)), sum(one.took_us for one in seen.delayed)
    holds = on_demand.includes_of(seen.device).get(top, ())
    with_others = f" with {', '.join(holds)} in it" if holds else ""
    in_driver = top == "hba" or "hba" in holds
    what = f"{called(top, holds).sentence or 'no stage'}{with_others} takes {_ms(us)} of {tail.count:,} slow I/Os"
    text = f"{what}; {_ms(made)} were made in the driver"
    yield _reported("stages", text, passed=in_driver and _near(us, made, BUCKET, LATE_US * len(seen.delayed)))


def _depths(seen: _Replayed) -> Iterator[PanelCheck]:
    subject = selected(seen.scene.view.subjects())
    facts = depth_view(seen.scene.view, subject) if subject is not None else None
    depths = facts.depths if facts else None
    if facts is None or depths is None or not depths.in_driver:
        yield PanelCheck(
            "depths", Verdict.UNMEASURED, f"not measured with {_backend(seen)}: {facts.why if facts else ''}"
        )
        return
    busy = sum(n for depth, n in depths.in_driver.items() if depth) / sum(depths.in_driver.values())
    us, made = round(busy * facts.covered_us), sum(one.took_us for one in seen.delayed)
    text = f"an I/O in the driver for {_ms(us)}, {_ms(made)} were made"
    yield _reported("depths", text, passed=_near(us, made, _SHARE, INTERVAL_US // 5))


def _in_flight(seen: _Replayed) -> Iterator[PanelCheck]:
    longest = max(seen.delayed, key=lambda one: one.took_us)
    made = f"a write waited for {_ms(longest.took_us)}"
    if seen.oldest_us:
        least = longest.asked_us - 2 * INTERVAL_US
        passed = least <= seen.oldest_us <= longest.took_us + LATE_US
        yield _reported(
            "in flight", f"the oldest waited for {_ms(seen.oldest_us)} at a frame's end; {made}", passed=passed
        )
    elif any(one.in_flight is not None and one.in_flight.follows(seen.device) for one in seen.frames):
        yield _reported("in flight", f"nothing was listed as waiting; {made}", passed=False)
    else:
        why = f"not measured with {_backend(seen)}"
        if not seen.captured.on_demand:
            why = "not recorded by the tracer in this time"
        text = f"ages are {why}, and a wait of {_ms(longest.took_us)} is too short to be listed without them"
        yield PanelCheck("in flight", Verdict.UNMEASURED, text)


def _outliers(seen: _Replayed) -> Iterator[PanelCheck]:
    if no_distribution(seen.origin):
        yield _unmeasured("outliers", seen)
        return
    rows = [row.outlier for row in log(seen.scene.view).rows if row.outlier.device == seen.device]
    for one in seen.delayed:
        found = next((row for row in rows if row.sector == one.sector), None)
        if found is None:
            reported = f"{len(rows):,} are listed, none at sector {one.sector:,}; {_ms(one.asked_us)} was made there"
            yield _reported("outliers", reported, passed=False)
            continue
        wrong = _wrong_fields(found, one)
        who = f" by {found.comm}" if found.comm else ""
        text = (
            f"{found.op} of {(found.bytes or 0) // 1024} KiB at sector {one.sector:,}{who} took {_ms(found.total_us)}, "
            f"{_ms(one.asked_us)} was made{'; wrong: ' + ', '.join(wrong) if wrong else ''}"
        )
        yield _reported("outliers", text, passed=not wrong)


def _wrong_fields(found: Outlier, one: DelayedWrite) -> Sequence[str]:
    wrong = {
        "latency": not _fits(one, found.total_us, found.total_us + 1),
        "op": found.op != "write",
        "size": found.bytes is not None and found.bytes != BYTES,
        "issuer": bool(found.comm) and found.comm != COMM,
    }
    return [name for name, is_wrong in wrong.items() if is_wrong]


def _interrupts(seen: _Replayed) -> Iterator[PanelCheck]:
    """Check that each I/O which a softirq completed has a time in that stage.

    The delay is not made by an interrupt. The runs in the panel are those of the whole host.
    """
    on_demand = seen.scene.history.on_demand
    paths = on_demand.traced.paths.get(seen.device, {})
    completed = sum(n for path, n in paths.items() if _SOFTIRQ in path)
    if seen.captured.on_demand or not completed or not on_demand.softirqs:
        why = seen.captured.on_demand or f"no I/O of {seen.device} was completed in a softirq"
        yield PanelCheck("interrupts", Verdict.UNMEASURED, why)
        return
    block = by_vector(on_demand.softirqs).get("BLOCK")
    runs = block.run.count if block else 0
    timed = sum(
        h.count for s, h in on_demand.traced.histograms.items() if s.device == seen.device and s.stage == _SOFTIRQ
    )
    text = f"{completed:,} I/Os of {seen.device} were completed in a softirq, {timed:,} have a time in it"
    yield _reported(
        "interrupts", f"{text}; BLOCK ran {runs:,} times on this host", passed=runs > 0 and timed == completed
    )


def _findings(seen: _Replayed) -> Iterator[PanelCheck]:
    """Report that the delay is too short for any rule."""
    longest = max(one.asked_us for one in seen.delayed)
    yield PanelCheck("findings", Verdict.UNMEASURED, f"no rule fires for a single wait of {_ms(longest)}")


def _fits(one: DelayedWrite, low_us: int, high_us: int) -> bool:
    """Return whether [low, high) overlaps the write's time within a bucket's width and a late wake-up."""
    least = min(one.asked_us, one.took_us) * (1 - BUCKET) - LATE_US
    return low_us <= one.took_us * (1 + BUCKET) + LATE_US and high_us > least


def _near(us: int, made_us: int, share: float, more_us: int) -> bool:
    return abs(us - made_us) <= made_us * share + more_us


def _reported(name: str, what: str, *, passed: bool) -> PanelCheck:
    return PanelCheck(name, Verdict.OK if passed else Verdict.FAILED, what)


def _unmeasured(name: str, seen: _Replayed) -> PanelCheck:
    return PanelCheck(name, Verdict.UNMEASURED, f"not measured with {_backend(seen)}")


def _backend(seen: _Replayed) -> str:
    tier = f", tier {seen.origin.tier}" if seen.origin.tier else ""
    return f"{seen.origin.backend}{tier}"


def _ms(us: int) -> str:
    return f"{us / 1000:,.0f} ms"
