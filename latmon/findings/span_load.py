"""The load of a device over a span of blocks: ops, sizes, depth, and where its I/Os lay as far as that was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from latmon.aggregate.accumulator import counted
from latmon.aggregate.depth_sum import DepthTimes
from latmon.aggregate.table_sum import Sum
from latmon.analysis.issue_order import TOO_FEW, merge_orders
from latmon.findings.facts import Block
from latmon.model.devices import HOST_SEPARATOR, host_and_device
from latmon.model.frame import OPS, Completed, Flow
from latmon.model.histogram import Histogram
from latmon.model.host_context import added
from latmon.model.measurements import ERRORS, KERNEL, PATTERNS, SEEN, SIZES
from latmon.model.packed_frame import SEEN_ALONE, PackedFrame

_CPU_PRESSURE = "psi_cpu_some"
_TABLES = (KERNEL, SEEN, SEEN_ALONE, SIZES, ERRORS, PATTERNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanLoad:
    """Load of a device over a span of blocks."""

    us: int
    done: Mapping[str, Completed]
    """Op -> its completions."""
    busy: float | None
    """Share of the time with an I/O in the driver; None where that was not counted."""
    depth: float | None
    """Mean number of I/Os in the driver while it was busy."""
    failed: int
    """I/Os with another status than success."""
    sizes: Mapping[tuple[str, int], Histogram] = field(default_factory=dict)
    """(op, size up to) -> latencies, where sizes were traced."""
    sequential: Mapping[str, float] = field(default_factory=dict)
    """Op -> share of its I/Os that began where another one had ended, where enough of them were traced."""
    in_flight: Mapping[str, float] = field(default_factory=dict)
    """Op -> mean number of its I/Os in flight, by Little's law, where the history adds it."""
    cpu_pressure: float | None = None
    """Share of the time in which a runnable task of the device's host waited for a CPU (PSI)."""
    ascending: float | None = None
    """Share of consecutive issues with a higher sector than the one before; None where too few were traced."""

    @property
    def ios(self) -> int:
        return sum(done.count for done in self.done.values())

    @property
    def iops(self) -> float:
        return self.ios * 1e6 / self.us if self.us else 0.0

    @property
    def mean_bytes(self) -> float:
        return sum(done.bytes for done in self.done.values()) / self.ios if self.ios else 0.0

    def iops_of(self, op: str) -> float:
        """Return the I/Os per second of an op."""
        return self.done[op].count * 1e6 / self.us if op in self.done and self.us else 0.0

    def share(self, op: str) -> float:
        """Return the share of an op among the I/Os."""
        return self.done[op].count / self.ios if self.ios and op in self.done else 0.0


def slim(block: Block) -> Block:
    """Return a block with only what a load is made of."""
    tables = {table: rows for table, rows in block.packed.tables.items() if table in _TABLES}
    packed = PackedFrame(tables, frames_by_rate=block.packed.frames_by_rate)
    return replace(block, packed=packed, outliers=(), file_operations=(), waiting=(), unlisted=(), rates={})


def load_of(device: str, blocks: Sequence[Block]) -> SpanLoad:
    """Return the load of a device over blocks."""
    done: dict[str, Completed] = {}
    sizes: dict[tuple[str, int], Histogram] = {}
    depths = DepthTimes()
    failed = 0
    sums = Sum((SIZES,))
    for block in blocks:
        for op in OPS:
            completed = counted(block, Flow(device, op)).every
            if completed is not None and completed.count:
                done[op] = done[op] + completed if op in done else completed
        if device in block.depth_sums:
            depths.merge(block.depth_sums[device])
        else:
            block.idle.add_to(depths, device)
        failed += sum(ios for row, ios in block[ERRORS].items() if row.device == device)
        sums.add(block.packed)
    for row, value in sums[SIZES].items():
        if row.device == device and value.latency:
            sizes[row.op, row.upto] = value.latency
    whole_us = sum(depths.in_driver.values())
    busy_us = whole_us - depths.in_driver[0]
    weighted = sum(depth * us for depth, us in depths.in_driver.items())
    host, _ = host_and_device(device)
    context = added(block.host_context for block in blocks)
    pressure = context.get(f"{host}{HOST_SEPARATOR}{_CPU_PRESSURE}" if host else _CPU_PRESSURE)
    order = merge_orders(block.orders[device] for block in blocks if device in block.orders)
    return SpanLoad(
        us=sum(block.span_us for block in blocks),
        done=done,
        busy=busy_us / whole_us if whole_us else None,
        depth=weighted / busy_us if busy_us else None,
        failed=failed,
        sizes=sizes,
        sequential=_sequential_shares(device, blocks),
        cpu_pressure=None if pressure is None else pressure.ratio,
        ascending=order.ascending_share,
    )


def _sequential_shares(device: str, blocks: Iterable[Block]) -> dict[str, float]:
    issued, sequential = Counter[str](), Counter[str]()
    for block in blocks:
        for flow, pattern in block[PATTERNS].items():
            if flow.device == device:
                issued[flow.op] += pattern.issued
                sequential[flow.op] += pattern.sequential
    return {op: sequential[op] / ios for op, ios in issued.items() if ios >= TOO_FEW}
