"""Comparison of the load before and after I/Os became slower, and the words that findings on slower devices share.

A device that has work does at least as many I/Os per second of its busy time with more in flight. So I/Os that only
wait longer leave that rate as it was, and a lower one is the device's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from latmon.analysis.level_shift import LevelShift
from latmon.findings.evidence import hardware_steps
from latmon.findings.facts import Block, Facts
from latmon.findings.op_load import op_load
from latmon.findings.rule import Fact, Step, Threshold, Thresholds, plain
from latmon.findings.span_load import SpanLoad, load_of
from latmon.model.histogram import Histogram, bucket_bounds
from latmon.model.stages import plural_of_op
from latmon.support.units import part

_QUICK = 0.05
"""Largest share of I/Os as quick as before, where the time in the driver was not counted: a burst has a quick one."""
_ROOM = 0.5
"""Largest mean number of I/Os in flight before, by Little's law, of a device that was certainly idle at times."""
_MIB = 1 << 20
THRESHOLDS: Mapping[str, Threshold] = MappingProxyType(
    {
        "times": Threshold(1.5, "times", "the median before at least, the median now"),
        "added_us": Threshold(100, "us", "longer at least"),
        "much": Threshold(3.0, "times", "the median before, from which on it is a warning"),
        "slow_us": Threshold(1_000, "us", "longer at least for a warning"),
        "load": Threshold(1.25, "times", "the IOPS before at most: with more its latency follows the load"),
        "size": Threshold(1.5, "times", "the mean size before at most, or its reverse"),
        "mix": Threshold(0.2, "share", "of the I/Os at most that are of another op than before"),
        "order": Threshold(0.25, "share", "of the I/Os at most that are not sequential, or ascending, any more"),
        "paced": Threshold(0.7, "share", "of the IOPS before at least, where order and pattern were not traced"),
        "random": Threshold(50, "ios", "per second of busy time at least, of random ones of a disk that works"),
        "rate": Threshold(1.25, "times", "as many I/Os per second of busy time before, at least"),
    }
)
_DEFAULTS: Thresholds = {name: threshold.value for name, threshold in THRESHOLDS.items()}
_QUICKER = 3.0
"""I/Os that took so many times less at the same load were quick: what takes longer now is not due to their kind."""
CAUSES = (
    "starved-io",
    "device-pauses",
    "command-timeouts",
    "completion-wakeup",
    "softirq-delay",
    "slow-shared-handler",
    "outstanding-ceiling",
    "bottleneck-above-device",
    "requeue-storm",
    "io-throttled",
    "outside-limit",
    "noisy-neighbour",
    "behind-large-ios",
    "low-io-priority",
    "maintenance",
    "worse-since-setting",
)
"""Rules whose finding on a device names the reason why it is slower."""
REFUTED = (
    "another kind of load since then, which neither rate nor sizes show: random instead of sequential I/Os, or data "
    "that no cache has"
)
SAME, PACED, TOO_SLOW, OTHER, UNKNOWN = "same", "paced", "too_slow", "other", "unknown"
"""Order of the I/Os, compared with before: as sequential; not measured, but paced or slower than random I/Os are;
less sequential; not measured."""


OR_RANDOM = ": the device, or random I/Os instead of sequential ones"
"""End of the summary where the order is UNKNOWN."""


def times_slower(device: str, op: str, before: Sequence[Block], now: Sequence[Block]) -> float | None:
    """Return how many times as long an op's I/Os take as in earlier blocks; None where the load is another one.

    More I/Os than before are the same load where the device completes fewer of them per second of its busy time.
    """
    was, load = op_load(before, device, op), op_load(now, device, op)
    if was is None or load is None or max(was.size, load.size) > _DEFAULTS["size"] * min(was.size, load.size):
        return None
    times, most = load.mean_us / max(was.mean_us, 1), _DEFAULTS["load"]
    if load.iops * times * most < was.iops:
        return None
    is_more = load.iops > most * was.iops
    return None if is_more and not _does_fewer(load_of(device, before), load_of(device, now), _DEFAULTS) else times


def were_quick(facts: Facts, device: str, op: str) -> bool:
    """Return whether an op's I/Os took far less in the first third of the window, at the load of its last third."""
    third = len(facts.window) // 3
    times = times_slower(device, op, facts.window[:third], facts.window[-third:]) if third else None
    return times is not None and times >= _QUICKER


def is_same_load(before: SpanLoad, after: SpanLoad, limits: Thresholds) -> bool:
    """Return whether the I/Os are of the same mean size and kinds, and no more per second."""
    ops = before.done.keys() | after.done.keys()
    if any(abs(before.share(op) - after.share(op)) > limits["mix"] for op in ops):
        return False
    sizes = before.mean_bytes, after.mean_bytes
    if all(sizes) and max(sizes) > limits["size"] * min(sizes):
        return False
    return after.iops <= limits["load"] * before.iops


def is_far_less(shift: LevelShift, before: SpanLoad, after: SpanLoad, limits: Thresholds) -> bool:
    """Return whether the IOPS fell by more than the latency rose, and thus not only because of it."""
    means = [side.nearest_sum / side.count for side in (shift.before, shift.after)]
    factor = max(shift.ratio.high, means[1] / max(means[0], 1))
    return after.iops * factor * limits["load"] < before.iops


def order_of(before: SpanLoad, after: SpanLoad, limits: Thresholds) -> str:
    """Return how the order of the I/Os compares with before.

    A random I/O of a disk waits for a seek and half a turn, some 18 ms with 5,400 turns a minute. That a device does
    not rotate, by the kernel, is no proof of flash: nvme and nbd say so of all, also of a cloud's volume on disks.
    """
    if _shares(before, after):
        return OTHER if is_other_order(before, after, limits) else SAME
    if after.iops >= limits["paced"] * before.iops:
        return PACED
    is_slow = bool(after.busy) and after.iops < limits["random"] * (after.busy or 0)
    return TOO_SLOW if is_slow and after.mean_bytes <= _MIB else UNKNOWN


def is_other_order(before: SpanLoad, after: SpanLoad, limits: Thresholds) -> bool:
    """Return whether fewer I/Os are sequential, or ascending, than before, where the tracer measured that."""
    return any(was - now > limits["order"] for _, was, now in _shares(before, after))


def _shares(before: SpanLoad, after: SpanLoad) -> list[tuple[str, float, float]]:
    """Return what was measured of the order on both sides: its name, and the shares before and after."""
    ops = sorted(before.sequential.keys() & after.sequential.keys())
    pairs = [(f"sequential {plural_of_op(op)}", before.sequential[op], after.sequential[op]) for op in ops]
    if not pairs and before.ascending is not None and after.ascending is not None:
        pairs.append(("issues with a higher sector than the last one", before.ascending, after.ascending))
    return pairs


def order_text(before: SpanLoad, after: SpanLoad) -> str:
    """Return what was measured of the order on both sides as a text."""
    return ", ".join(f"{name}: {part(was)} -> {part(now)}" for name, was, now in _shares(before, after))


def order_fact(before: SpanLoad, after: SpanLoad, limits: Thresholds) -> Fact:
    """Return the evidence that the I/Os are as sequential as before, or why that is not known."""
    order = order_of(before, after, limits)
    if order in (SAME, OTHER):
        text = order_text(before, after)
    else:
        text = "sequential or random: not measured, because the tracer did not run before and after"
        kept = part(after.iops / before.iops) if before.iops else "0%"
        if order == PACED:
            text += f"; {kept} of the IOPS are left, so hardly any program waits for its last I/O to issue the next"
        elif order == TOO_SLOW:
            text += f"; it does fewer than {limits['random']:.0f} per second of its busy time, slower than random I/Os"
        else:
            text += f"; {kept} of the IOPS are left, as with programs that wait for random I/Os"
    return Fact("order", order, text)


def order_steps(order: str) -> Iterator[Step]:
    """Yield the step that measures the order where it is not known."""
    if order == UNKNOWN:
        yield Step("find out whether the program at work reads or writes elsewhere now: a scan that ended, random I/Os")


def is_slower_device(shift: LevelShift, before: SpanLoad, after: SpanLoad, limits: Thresholds) -> bool:
    """Return whether the device does fewer I/Os per second of its busy time than before."""
    if before.busy and after.busy:
        return _does_fewer(before, after, limits)
    mean_us = shift.before.nearest_sum / shift.before.count
    quick = _share_below(shift.after, shift.before.quantile(0.9) or 0)
    return before.iops * mean_us / 1e6 <= _ROOM and quick <= _QUICK


def _does_fewer(before: SpanLoad, after: SpanLoad, limits: Thresholds) -> bool:
    """Return whether a device does fewer I/Os per second of its busy time than before; not where that is unknown."""
    if not before.busy or not after.busy:
        return False
    return before.iops / before.busy >= limits["rate"] * after.iops / after.busy


def _share_below(latencies: Histogram, us: int) -> float:
    """Return the share of the I/Os in buckets that begin below a latency."""
    below = sum(ios for index, ios in latencies.buckets if bucket_bounds(index, latencies.bits)[0] < us)
    return below / latencies.count if latencies.count else 0.0


def factor_text(factor: float) -> str:
    """Return a factor as a text: 1.8x, 40x."""
    return f"{factor:.1f}x" if factor < 10 else f"{factor:.0f}x"  # noqa: PLR2004 - the first decimal matters below


def device_steps(facts: Facts, device: str) -> Iterator[Step]:
    """Yield the step that reads the state of a device, where the time is the device's."""
    name = f"/dev/{device}" if plain(device) else "DEVICE"
    yield from hardware_steps(
        facts,
        device,
        (
            Step(
                "read the state of device or array: cache and its battery, rebuild, a lost path, heat, link speed",
                commands=(f"smartctl -a {name}", "lspci -vv"),
            ),
        ),
    )
