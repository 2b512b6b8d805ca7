"""Frames of a random load that have all kinds of values, made of the annotations of a frame."""

from __future__ import annotations

import random
from dataclasses import replace

from derived import Derived, declared_rows, fields_of

from latmon.model.frame import (
    FILE_OPS,
    FILE_WAITS,
    STAGES,
    CgroupLimit,
    Completed,
    Device,
    FileOperation,
    Flow,
    Frame,
    Health,
    Outlier,
    Outstanding,
    Series,
    Traced,
)
from latmon.model.histogram import BITS, Histogram
from latmon.model.host_context import ContextValue, interval_value
from latmon.model.inflight import PROBE, Depths, InFlightList, Issue
from latmon.model.measurements import TABLES

DEVICES = (Device("sda", 8, 0), Device("sdb", 8, 16), Device("dm-0", 253, 0, timed=False))
START_US = 1_017_000_000
MINUTES = 5
PER_MINUTE = 10
"""Windows: fewer than in a real one, and the same to a sum."""


WITH_A_LOAD = frozenset(
    ("seq", "wall", "mono_us", "dt_us", "histograms", "seen", "kernel", "outstanding", "health", "tables")
)
"""Fields that each frame has, from `Load._frame`; `tables` are made of their declarations."""
ODD_FIELDS = frozenset(("devices", "removed", "marks", "gap", "late"))
"""Fields with which a minute is not plain: ODD has them."""


def _any_of(names):
    return lambda rnd: rnd.choice(names)


def _depth_counts(rnd: random.Random) -> dict[int, int]:
    return {0: rnd.randrange(50), 7: rnd.randrange(50), 300: rnd.randrange(3)}


def _host_context(rnd: random.Random) -> dict[str, ContextValue]:
    if rnd.random() < 0.5:
        return {}
    return {"steal": interval_value(rnd.randrange(9), 100), "dirty": interval_value(rnd.randrange(9**9), 1)}


BY_FIELD = {
    (Series, "stage"): _any_of(STAGES),
    (Traced, "rates"): lambda _: (0, 0),
    (FileOperation, "op"): _any_of(FILE_OPS),
    (FileOperation, "wait"): _any_of(FILE_WAITS),
    (FileOperation, "sectors"): _any_of((None, (5, 9))),
    (Depths, "in_driver"): _depth_counts,
    (Depths, "queued"): _depth_counts,
    (Depths, "most"): _any_of((None, 290)),
    (Depths, "source"): _any_of((PROBE, "sysfs")),
    (CgroupLimit, "version"): _any_of((1, 2)),
    (Depths, "quiet_in"): lambda _: 0,
    (Frame, "host_context"): _host_context,
}
"""Values with a condition that their annotation doesn't have."""


def _once(rows, key):
    """Return the last row of each key; None where nothing was read."""
    return None if rows is None else tuple({key(row): row for row in rows}.values())


class Load:
    """Frames of all kinds of values, plain ones unless `odd`; the tracer traces one I/O in one of `rates`."""

    def __init__(self, seed: int, *, on_demand: bool = True, rates: tuple[int, ...] = (16,)) -> None:
        self._rates = rates
        self._rnd = random.Random(seed)
        self._on_demand = on_demand
        self._exact = self._rnd.random() < 0.7

    def frames(self, count: int = PER_MINUTE * MINUTES, dt_us: int = 60_000_000 // PER_MINUTE, odd=lambda one: one):
        mono_us = START_US
        for seq in range(count):
            length = dt_us + self._rnd.randrange(-300, 300)
            mono_us += length
            yield odd(self._frame(seq, mono_us, length))

    def _histogram(self, bits: int = BITS) -> Histogram:
        rnd = self._rnd
        counts = {rnd.randrange(60): rnd.randrange(1, 50) for _ in range(rnd.randrange(0, 6))}
        maximum = rnd.randrange(10**5, 10**6) if self._exact else None
        return Histogram.of(counts, rnd.randrange(10**6), maximum, bits)

    def _full(self, bits: int = BITS) -> Histogram:
        return self._histogram(bits) or Histogram.of({3: 1}, 3, 3 if self._exact else None, bits)

    def _frame(self, seq: int, mono_us: int, dt_us: int) -> Frame:
        rnd = self._rnd
        flows = [Flow(device.name, op) for device in DEVICES for op in ("read", "write") if rnd.random() < 0.9]
        frame = Frame(
            seq,
            1.7e9 + mono_us / 1e6,
            mono_us,
            dt_us,
            {Series(*flow, stage): self._histogram() for flow in flows for stage in ("total", "hba")},
            {flow: Completed(rnd.randrange(100), rnd.randrange(10**6), rnd.choice((None, 7, 8))) for flow in flows},
            {flow: Completed(rnd.randrange(1, 100), rnd.randrange(10**6), rnd.randrange(99)) for flow in flows},
            outstanding={
                device.name: Outstanding(rnd.choice((None, 0, 1, 3)), rnd.choice((None, 0, 2))) for device in DEVICES
            },
            health=Health(
                lost_events=rnd.randrange(2),
                stale=rnd.randrange(2),
                skipped=rnd.choice((None, 0, 4)),
                suppressed=rnd.randrange(2),
                full_tables=rnd.choice(({}, {"wakeups_a_delay": 1})),
                self_cpu_percent=rnd.choice((None, rnd.random())),
                probe_cpu_percent=rnd.choice((None, 0.1, 0.2, 0.3)),
                probe_ns_per_io=rnd.random() * 1000,
            ),
        )
        busy = {flow: Completed(5, 4096) for flow in (Flow(device.name, "read") for device in DEVICES)}
        frame = replace(frame, kernel={**frame.kernel, **busy})
        return self._looked_at(frame) if self._on_demand else frame

    def _looked_at(self, frame: Frame) -> Frame:
        """Add a value of each field that has none, made of the annotations of a frame."""
        rnd = self._rnd
        derived = Derived(
            rnd,
            {
                Histogram: lambda _: self._full(),
                InFlightList: lambda _: InFlightList((), {}, START_US - 10, frame.mono_us - 5, ("sda",)),
            },
            {
                **BY_FIELD,
                (Frame, "outliers"): lambda _: tuple(self._outlier(frame) for _ in range(rnd.randrange(2))),
                (Frame, "in_flight"): lambda _: derived.value(InFlightList),
                (Traced, "one_in"): _any_of(self._rates),
                (Issue, "mono_us"): lambda _: frame.mono_us - rnd.randrange(900),
            },
        )
        named = [name for name in fields_of(Frame) if name not in WITH_A_LOAD | ODD_FIELDS]
        fields = {name: derived.field(Frame, name) for name in named}
        devices = [device.name for device in DEVICES]
        declared = [table for table in TABLES if not table.attribute]
        fields["tables"] = {table: declared_rows(rnd, table, devices, self._full) for table in declared}
        fields["taskqs"] = _once(fields["taskqs"], lambda queue: (queue.name, queue.instance))
        fields["cgroup_limits"] = _once(fields["cgroup_limits"], lambda limit: limit.key)
        return replace(frame, **fields)

    def _outlier(self, frame: Frame) -> Outlier:
        took = self._rnd.randrange(10**4, 10**6)
        return Outlier(frame.wall, frame.mono_us, "sda", "read", took, {"hba": took}, pid=7, comm="db")
