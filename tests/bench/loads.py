"""Windows of a synthetic load: a host with 24 busy disks, and a host larger than any real one.

A request has a time in the queue and one in the driver, and its total is both: counts, sums and maxima of the three
series are those of the same requests. `uniform` knows no requests: every number is drawn by itself, which is the worst
that can be packed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

from latmon.model.frame import STAGES, UNACCOUNTED, Completed, Device, Flow, Frame, Outstanding, Series, Traced
from latmon.model.histogram import Histogram, bucket_index

DEVICES = tuple(Device(f"sd{chr(97 + i)}", 8, 16 * i, driver="mptsas") for i in range(24))
IOPS = 400
ONE_IN = 16
DIFFERENT = 120
"""Windows that differ; each is packed by itself, so that more would not be larger."""
_QUEUE_US, _QUEUE_SPREAD = 1.4, 0.7
"""Of the logarithm: 4 us in the middle."""
_BODY_SPREAD = 0.5
_TAIL_SHARE, _TAIL = 0.001, 30
_WRITES = 0.3
_SIZES = (4096, 4096, 8192, 16_384, 65_536)


def sampled(*, on_demand: bool = False, iops: int = IOPS, different: int = DIFFERENT) -> list[Frame]:
    """Each device has a middle of its own, 100 us to 5 ms, and 0.1 % of its I/Os take 30 times as long."""
    rnd = random.Random(3)
    middles = {device.name: rnd.uniform(4.6, 8.5) for device in DEVICES}
    return [_second(rnd, middles, iops, on_demand=on_demand) for _ in range(different)]


def uniform(least: int, *, on_demand: bool = False) -> list[Frame]:
    """With `least` to 31 buckets per histogram."""
    rnd = random.Random(3)
    flows = [Flow(device.name, op) for device in DEVICES for op in (("read", "write") if on_demand else ("read",))]
    frames = []
    for _ in range(DIFFERENT):
        done = {flow: Completed(4000 + rnd.randrange(500), 4096 * rnd.randrange(4000, 4500)) for flow in flows}
        basic = {Series(*flow, stage): _drawn(rnd, least) for flow in flows for stage in ("total", "hba", "queue")}
        stages = _on_demand_stages() if on_demand else ()
        traced = {Series(*flow, stage): _drawn(rnd, least) for flow in flows for stage in stages}
        frames.append(_frame(rnd, basic, done, done, traced))
    return frames


def buckets_each(frames: Iterable[Frame]) -> float:
    """The mean over all histograms that aren't empty."""
    reported = [len(histogram.buckets) for frame in frames for histogram in frame.histograms.values()]
    return sum(reported) / len(reported)


def _second(rnd: random.Random, middles: dict[str, float], iops: int, *, on_demand: bool) -> Frame:
    basic: dict[Series, Histogram] = {}
    traced: dict[Series, Histogram] = {}
    seen: dict[Flow, Completed] = {}
    kernel: dict[Flow, Completed] = {}
    for name, middle in middles.items():
        writes = round(iops * _WRITES) if on_demand else 0
        for op, mean in (("read", iops - writes), ("write", writes)):
            count = max(0, round(rnd.gauss(mean, mean**0.5)))
            if not count:
                continue
            flow = Flow(name, op)
            queue = [max(1, round(rnd.lognormvariate(_QUEUE_US, _QUEUE_SPREAD))) for _ in range(count)]
            driver = [round(_in_driver(rnd, middle)) for _ in range(count)]
            total = [one + other for one, other in zip(queue, driver, strict=True)]
            for stage, times in (("total", total), ("hba", driver), ("queue", queue)):
                basic[Series(*flow, stage)] = _histogram(times)
            size = sum(rnd.choice(_SIZES) for _ in range(count))
            seen[flow], kernel[flow] = Completed(count, size), Completed(count, size, sum(total))
            for stage in _on_demand_stages() if on_demand else ():
                share = 1.0 if stage == "total" else 0.7 if stage == "hba" else 0.03
                traced[Series(*flow, stage)] = _histogram([max(1, round(share * one)) for one in total[::ONE_IN]])
    return _frame(rnd, basic, seen, kernel, traced)


def _in_driver(rnd: random.Random, middle: float) -> float:
    times = _TAIL if rnd.random() < _TAIL_SHARE else 1
    return times * rnd.lognormvariate(middle, _BODY_SPREAD)


def _frame(
    rnd: random.Random,
    basic: dict[Series, Histogram],
    seen: dict[Flow, Completed],
    kernel: dict[Flow, Completed],
    traced: dict[Series, Histogram],
) -> Frame:
    by_total = {series: dict(histogram.buckets) for series, histogram in traced.items() if series.stage != "total"}
    return Frame(
        0,
        0.0,
        0,
        1_000_000,
        basic,
        seen=seen,
        kernel=kernel,
        outstanding={device.name: Outstanding(rnd.randrange(32), rnd.randrange(4)) for device in DEVICES},
        traced=Traced(traced, by_total, one_in=ONE_IN if traced else 0),
    )


def _on_demand_stages() -> tuple[str, ...]:
    return (*(one for one in STAGES if one != "resume"), UNACCOUNTED)


def _histogram(times: list[int]) -> Histogram:
    return Histogram.of(Counter(map(bucket_index, times)), sum(times), max(times))


def _drawn(rnd: random.Random, least: int) -> Histogram:
    base, width = rnd.randrange(40, 70), rnd.randint(least, 31)
    counts = {base + i: max(1, int(400 * rnd.random() * 2 ** (-abs(i - 8) / 3))) for i in range(width)}
    return Histogram.of(counts, sum(counts.values()) * rnd.randrange(200, 400), 400_000 + rnd.randrange(99_999))
