"""Frames and facts for tests of findings, made of what a reader of the test can add up.

A load is `((count, {stage: us}), ...)`: so many I/Os that each took so long in each stage; its total is their sum, or
`total` where that is named. A frame is 5 s, one block, by default; times go on from 100 s of CLOCK_MONOTONIC.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from importlib import import_module

from latmon.aggregate.accumulator import Accumulator
from latmon.aggregate.request_age import Waiting
from latmon.findings.facts import Facts, block_of
from latmon.findings.rule import DEFAULT
from latmon.model.frame import UNACCOUNTED, Completed, Device, Flow, Frame, Limit, Origin, Series, Traced
from latmon.model.histogram import EMPTY, Histogram, bucket_index
from latmon.model.inflight import PROBE, Depths

S = 1_000_000
BEGIN_S = 100
WALL = 1_700_000_000.0
BLOCK_US = 5 * S


def hist(counts):
    """From us -> count, with exact sum and maximum."""
    buckets = Counter()
    for us, n in counts.items():
        buckets[bucket_index(us)] += n
    used = [us for us, n in counts.items() if n]
    return Histogram.of(buckets, sum(us * n for us, n in counts.items()), max(used)) if used else EMPTY


def _by_stage(load):
    """(stage -> us -> count, stage -> bucket of the total -> us)."""
    counts, by_total = {}, {}
    for n, stages in load:
        parts = {stage: us for stage, us in stages.items() if stage not in ("total", "resume")}
        total = stages.get("total", sum(parts.values()))
        for stage, us in {**stages, "total": total}.items():
            counts.setdefault(stage, Counter())[us] += n
            if stage != "total":
                by_total.setdefault(stage, Counter())[bucket_index(total)] += n * us
    return counts, by_total


def timed(device, load, op="read"):
    """A frame's histograms: a load as the always-on probe reports it."""
    return {Series(device, op, stage): hist(some) for stage, some in _by_stage(load)[0].items()}


def traced(device, load, op="read", *, one_in=1, path="hard interrupt", **changed):
    """A frame's `traced`: a load as the tracer reports it; `unaccounted` may be among its stages."""
    counts, by_total = _by_stage([(n, {UNACCOUNTED: 0, **stages}) for n, stages in load])
    return replace(
        Traced(
            {Series(device, op, stage): hist(count) for stage, count in counts.items()},
            {Series(device, op, stage): dict(some) for stage, some in by_total.items()},
            paths={device: {path: sum(n for n, _ in load)}},
            one_in=one_in,
        ),
        **changed,
    )


def together(*parts):
    """Several devices' `traced` as one frame's."""
    traced = Traced(one_in=max((part.one_in for part in parts), default=0))
    for current_part in parts:
        traced = replace(
            traced,
            histograms={**traced.histograms, **current_part.histograms},
            by_total={**traced.by_total, **current_part.by_total},
            paths={**traced.paths, **current_part.paths},
        )
    return traced


def done(device, count, op="read", size=4096):
    """A frame's `kernel` or `seen`: so many I/Os completed."""
    return {Flow(device, op): Completed(count, count * size)}


def depths(in_driver, queued=None, source=PROBE, **changed):
    """Depth -> ms, of a frame of 5 s."""
    return Depths(in_driver, queued or {}, source=source, **changed)


def disk(name="sda", limits=None, **changed):
    """A device; `limits`: name -> value, each with a source `at/name`, or (value, source)."""
    given_limits = tuple(
        Limit(setting, *value) if isinstance(value, tuple) else Limit(setting, value, f"at/{setting}")
        for setting, value in (limits or {}).items()
    )
    return Device(name, **({"major": 8, "minor": 0, "driver": "sd", "limits": given_limits} | changed))


def frame(at_s=BEGIN_S, *, dt_us=BLOCK_US, **values):
    """One that ends at `at_s`, a second of CLOCK_MONOTONIC."""
    return Frame(int(at_s), WALL + at_s, int(at_s * S), dt_us, **values)


def lasting(blocks=12, **values):
    """Return the same frame `blocks` times."""
    return [frame(BEGIN_S + 5 * n, **values) for n in range(blocks)]


def shifted(frames, by_s):
    """Return the frames moved to a later time."""
    return [
        replace(frame, seq=frame.seq + by_s, wall=frame.wall + by_s, mono_us=frame.mono_us + by_s * S)
        for frame in frames
    ]


def facts_of(frames, devices=(), **origin):
    """The facts after the last of these frames; `devices` in addition to those of the frames."""
    known = {device.name: device for device in devices}
    waiting, sums, blocks = Waiting(), Accumulator(), []
    for frame in frames:
        known.update((device.name, device) for device in frame.devices)
        waiting.add(frame)
        sums.add(frame)
        if frame.mono_us - sums.first.mono_us + sums.first.dt_us >= BLOCK_US:
            blocks.append(block_of(sums, waiting))
            sums = Accumulator()
    if sums.first is not None:
        blocks.append(block_of(sums, waiting))
    text = {"backend": "test", "host": "here", "kernel": "6.1.0", "latmon": "0"} | origin
    return Facts(tuple(blocks), Origin(**text), known)


def found(rule, frames, devices=(), limits=None, **origin):
    """The findings of one rule, by its id; `limits`: other thresholds by name."""
    value = import_module(f"latmon.findings.rules.{rule.replace('-', '_')}").RULE
    return list(value.evaluate(facts_of(frames, devices, **origin), DEFAULT.of(value) | (limits or {})))
