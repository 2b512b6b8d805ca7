"""Strategies and samples for tests of what is recorded."""

from __future__ import annotations

import math
from types import MappingProxyType

from hypothesis import strategies as st

from latmon.model.frame import (
    OPS,
    STAGES,
    Completed,
    Device,
    Flow,
    Frame,
    Health,
    Limit,
    Missing,
    Origin,
    Outstanding,
    Series,
)
from latmon.model.histogram import MAX_US, Histogram, bucket_index
from latmon.recording.validate import MAX_NUMBER, MAX_SPAN_US, MAX_WALL
from latmon.support.text import clean

COUNTS = st.integers(0, 2**40)
NAMES = st.text(max_size=20).map(clean)
DEVICE_NAMES = st.sampled_from(("sda", "nvme0n1", "dm-0", "[/red]x", "größe"))
OP_NAMES = st.sampled_from(OPS)


@st.composite
def histograms(draw, bits=3):
    counts = draw(st.dictionaries(st.integers(0, bucket_index(MAX_US, bits)), st.integers(1, 2**40), max_size=30))
    return Histogram.of(counts, draw(st.none() | COUNTS), draw(st.none() | COUNTS), bits)


SERIES = st.builds(Series, DEVICE_NAMES, OP_NAMES, st.sampled_from(STAGES))
FLOWS = st.builds(Flow, DEVICE_NAMES, OP_NAMES)
COMPLETED = st.builds(Completed, COUNTS, COUNTS, *[st.none() | COUNTS] * 3)
DEVICES = st.builds(
    Device,
    NAMES,
    COUNTS,
    COUNTS,
    kind=NAMES,
    driver=NAMES,
    controller=NAMES,
    model=NAMES,
    serial=NAMES,
    members=st.lists(NAMES, max_size=3).map(tuple),
    timed=st.booleans(),
    label=NAMES,
    limits=st.lists(st.builds(Limit, NAMES, COUNTS | NAMES, NAMES), max_size=3).map(tuple),
    untimed=NAMES,
)
_FLOATS = st.floats(0, MAX_NUMBER)
_WALLS = st.floats(0, MAX_WALL)
HEALTHS = st.builds(
    Health,
    *[COUNTS] * 8,
    dropped_records=COUNTS,
    skipped=st.none() | COUNTS,
    self_cpu_percent=st.none() | _FLOATS,
    probe_ns_per_io=st.none() | _FLOATS,
    recording=NAMES,
    notice=NAMES,
)


def _maps(keys, values):
    return st.dictionaries(keys, values, max_size=5).map(MappingProxyType)


FRAMES = st.builds(
    Frame,
    COUNTS,
    _WALLS,
    COUNTS,
    st.integers(1, MAX_SPAN_US),
    histograms=_maps(SERIES, st.sampled_from((0, 2, 3)).flatmap(histograms)),
    seen=_maps(FLOWS, COMPLETED),
    kernel=_maps(FLOWS, COMPLETED),
    outstanding=_maps(DEVICE_NAMES, st.builds(Outstanding, st.none() | COUNTS, st.none() | COUNTS)),
    devices=st.lists(DEVICES, max_size=3).map(tuple),
    removed=st.lists(NAMES, max_size=3).map(tuple),
    health=HEALTHS,
    gap=NAMES,
    late=st.booleans(),
)
_MISSING = st.lists(st.builds(Missing, NAMES, NAMES), max_size=3).map(tuple)
_JSON = st.recursive(st.none() | st.booleans() | st.integers(-(2**40), 2**40) | NAMES, st.lists, max_leaves=5)
ORIGINS = st.builds(
    Origin,
    *[NAMES] * 6,
    interval_us=st.integers(1, 2**40),
    start_wall=_WALLS,
    start_mono_us=COUNTS,
    boot_id=NAMES,
    hz=st.none() | COUNTS,
    measured=_maps(st.sampled_from(STAGES), st.lists(NAMES, max_size=3).map(tuple)),
    absent=_MISSING,
    probes_missing=_MISSING,
    untraced=_MISSING,
    latency_from=NAMES,
    reason=NAMES,
    extra=_maps(st.text("xyz", min_size=3, max_size=8), _JSON),
)

ORIGIN = Origin(
    "test",
    "box",
    "6.1.0",
    "0.1.0",
    tool="by hand",
    tier="A",
    start_wall=1_000_000.0,
    start_mono_us=5_000_000,
    measured={"queue": (), "hba": ("irq", "softirq"), "total": ()},
    absent=(Missing("resume", "no probe for it"),),
    latency_from="queued",
)
DISK = Device("sda", 8, 0, driver="mpt3sas", controller="0000:3b:00.0", model="HDD 8T")


def frame(seq: int, *, devices: tuple[Device, ...] = (), **changed: object) -> Frame:
    """The window `seq` of a disk that does a hundred reads a second."""
    latency = Histogram.record(900 + 10 * math.floor(50 + 50 * math.sin(seq + i)) for i in range(100))
    wanted: dict[str, object] = {
        "histograms": {Series("sda", "read", stage): latency for stage in ("hba", "total")},
        "seen": {Flow("sda", "read"): Completed(100, 409_600)},
        "kernel": {Flow("sda", "read"): Completed(100, 409_600, 140_000)},
        "outstanding": {"sda": Outstanding(seq % 3, 0)},
        "devices": devices or ((DISK,) if seq == 0 else ()),
    }
    return Frame(seq, 1_000_001.0 + seq, 6_000_000 + seq * 1_000_000, 1_000_000, **(wanted | changed))  # type: ignore[arg-type]
