"""On-demand values for tests of the views: stages, outliers, handlers, softirqs and wake-ups, all deterministic."""

from functools import cache
from random import Random

import on_demand_frames

from latmon.model.frame import UNACCOUNTED, Missing, Series, Thread, Traced, Wait
from latmon.model.histogram import Histogram, bucket_index
from latmon.model.measurements.handlers import Handler, HandlerRuns
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns
from latmon.model.measurements.wakeups import Wakeups

WALL = 1_767_582_238.412907
MONO = 86_400_000_000
HOSTILE = r"\x1b[31m]52;c;[/red]x[@click=quit]"
"""What clean() leaves of an attack on the terminal."""


def traced(ios, device="sdc", op="write", **rest):
    """From single I/Os: mappings of stage -> us (the total is their sum, without resume)."""
    values, by_total = {}, {}
    for stages in ios:
        total = sum(us for stage, us in stages.items() if stage != "resume")
        values.setdefault("total", []).append(total)
        bucket = bucket_index(total)
        for stage, us in stages.items():
            values.setdefault(stage, []).append(us)
            of = by_total.setdefault(Series(device, op, stage), {})
            of[bucket] = of.get(bucket, 0) + us
    histograms = {Series(device, op, stage): Histogram.record(v) for stage, v in values.items()}
    return Traced(histograms=histograms, by_total=by_total, one_in=rest.pop("one_in", 1), **rest)


def together(*several):
    """Several devices' traces as in one frame."""
    return Traced(
        histograms={k: v for t in several for k, v in t.histograms.items()},
        by_total={k: v for t in several for k, v in t.by_total.items()},
        unfollowed={k: v for t in several for k, v in t.unfollowed.items()},
        paths={k: v for t in several for k, v in t.paths.items()},
        one_in=several[0].one_in,
    )


def softirq_ios(n=3000, slow=31, seed=1):
    """Mostly hba; the slow ones wait for their softirq."""
    rng = Random(seed)
    quick = [
        {
            "queue": rng.randrange(1, 8),
            "hba": int(rng.lognormvariate(4.5, 0.3)),
            "irq": rng.randrange(2, 9),
            "softirq": rng.randrange(3, 30),
            "resume": rng.randrange(5, 40),
            UNACCOUNTED: 0,
        }
        for _ in range(n)
    ]
    return quick + [
        {"queue": 3, "hba": 85, "irq": 6, "softirq": rng.randrange(20_000, 400_000), "resume": 2_000, UNACCOUNTED: 2}
        for _ in range(slow)
    ]


SDC = traced(
    softirq_ios(),
    paths={"sdc": {"BLOCK softirq": 3016}},
    unfollowed={"sdc": {"polled": 12, "batched completion": 3}},
    one_in=4,
    absent=(Missing("completion", "no completion thread on this path"),),
)
NVME = traced(
    [{"queue": 1, "hba": 90 + i % 40, "irq": 5, UNACCOUNTED: 0} for i in range(5000)],
    "nvme0n1",
    "read",
    paths={"nvme0n1": {"hard interrupt": 5000}},
)


def outlier(number=0, **changes):
    """One of seed 0's: the completion thread was woken and did not run."""
    mono_us = MONO + number * 137_000
    wait = Wait("completion", "emlxs_thread", 812, 97, mono_us + 94, 1_238_738, "zpool-data (prio 99)", 1_238_738)
    given = {"wall": WALL + number * 0.137, "overtaken_by": 12, "waits": (wait,)}
    return on_demand_frames.outlier(mono_us, **(given | changes))


def runs(*us):
    return Histogram.record(us)


HANDLERS = {
    Handler(24, "nvme0q1"): HandlerRuns(runs(*[4, 5, 6] * 900), returned={"handled": 2700}, device="nvme0n1"),
    Handler(11, "slow_none"): HandlerRuns(
        runs(*[21] * 4000),
        returned={"none": 4000},
        before_us=0,
        device="",
        shared_with=("nvme0q0", "virtio2", "ahci[0000:00:05.0]"),
    ),
    Handler(11, "nvme0q0"): HandlerRuns(
        runs(*[3] * 4000),
        returned={"handled": 3900, "none": 100},
        before_us=81_900,
        device="nvme1n1",
        shared_with=("slow_none", "virtio2"),
    ),
}


@cache  # the same each time, and a fifth of a second's work for each second of a host
def softirqs(cpus=4, slow_cpu=2):
    rng = Random(5)
    softirqs = {}
    for vector in ("BLOCK", "NET_RX", "TIMER"):
        for cpu in range(cpus):
            slow = vector == "BLOCK" and cpu == slow_cpu
            delays = [rng.randrange(2, 40) for _ in range(300)] + ([3_900] * 60 if slow else [])
            softirqs[SoftirqCpu(vector, cpu)] = SoftirqRuns(
                Histogram.record(delays),
                Histogram.record([d // 2 + 1 for d in delays]),
                {"irq_exit": 290, "timer": 60 if slow else 0, "ksoftirqd": 10},
                {"irq": 250, "softirq": 30, "other": 80},
            )
    return softirqs


def wakeups():
    return (
        Wakeups(
            Thread(812, "emlxs_thread", "other", 97, kernel=True),
            runs(*[30] * 500, 1_238_738, 90_000),
            {"zpool-data (prio 99)": 8, "swapper/3": 1},
        ),
        Wakeups(Thread(14, "ksoftirqd/0", "other", 120), runs(*[206] * 200)),
        Wakeups(Thread(4211, "ora_lgwr", "fifo", 49, kernel=False), runs(*[18] * 2000)),
    )
