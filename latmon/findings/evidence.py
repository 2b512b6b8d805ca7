"""Evidence that several rules read: slow I/Os by stage, softirqs, handlers, time above the driver.

What rules on stages share. Slow is what the device's threshold says; where that tells nothing, what lies behind the
p99. Where no table of totals is there, the outliers that were told one by one stand for it. No judgment.

What rules on queues share: sums of a window or of one block, no judgment. By Little's law the share of the time that
passes above is the share of the outstanding I/Os that wait there, so gauges without any timed I/O tell it too.

Knows the kernels' names of limits and no rule.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from latmon.analysis import attribution
from latmon.analysis.attribution import by_vector
from latmon.analysis.littles_law import COUNTED, Found, times, times_of
from latmon.analysis.littles_law import of as law_of
from latmon.findings.facts import Block, Facts, merged
from latmon.findings.finding import Fact, Step, plain, sd_driver, sd_walk, setting, sysfs
from latmon.model.frame import OPS, UNACCOUNTED, Device, Limit, Outlier, Series, SoftirqRuns
from latmon.model.histogram import Histogram, bucket_index
from latmon.model.inflight import Depths, bucket_middle
from latmon.support.units import part, rate, whole

_BEYOND = 1 << 16
"""No bucket has so great an index."""


@dataclass(frozen=True, slots=True)
class Slow:
    """I/Os of `cut_us` and more to completion, and their time by stage; `resume` comes after it and isn't in it."""

    device: str
    cut_us: int
    count: int
    us: Mapping[str, int]

    def share(self, stage: str) -> float:
        """Of their time, 0..1."""
        whole = sum(self.us.values())
        return self.us.get(stage, 0) / whole if whole else 0.0

    def mean_us(self, stage: str) -> float:
        """Over all of them, whether they passed it or not."""
        return self.us.get(stage, 0) / self.count if self.count else 0.0


def slow(facts: Facts, device: str) -> Iterator[Slow]:
    """Above the threshold, then behind the p99: those that there are."""
    threshold = facts.thresholds_us.get(device)
    cuts = [attribution.tail_cut(facts.traced, device, threshold_us=threshold)] if threshold is not None else []
    cuts.append(attribution.tail_cut(facts.traced, device))
    found = [_traced(facts, device, cut) for cut in dict.fromkeys(cuts) if cut is not None]
    yield from (one for one in found if one.count)
    if not any(one.count for one in found) and (told := facts.outliers(device)):
        sums = Counter({UNACCOUNTED: sum(one.unaccounted_us for one in told)})
        for one in told:
            sums.update({stage: us for stage, us in one.stages_us.items() if stage != "resume"})
        yield Slow(device, min(one.total_us for one in told), len(told), sums)


def long_ones(found: Histogram, us: float) -> int:
    """How many of its values are about so long or longer: to a bucket."""
    first = bucket_index(int(us), found.bits)
    return sum(n for index, n in found.buckets if index >= first)


def lasting(facts: Facts, device: str, stage: str, us: float) -> int:
    """In how many blocks an I/O spent so long in a stage: of the last minute, or minutes where a block is as long."""
    return sum(_longest(block, device, stage) >= us for block in facts.blocks)


def time_in(facts: Facts, device: str, stage: str, buckets: range) -> int:
    """Of the traced I/Os whose total lies in these buckets the us in one stage."""
    tables = (facts.traced.by_total.get(Series(device, op, stage), {}) for op in OPS)
    return sum(us for table in tables for index, us in table.items() if index in buckets)


def _traced(facts: Facts, device: str, cut_us: int) -> Slow:
    tail = attribution.tail(facts.traced, device, cut_us=cut_us)
    buckets = range(bucket_index(cut_us), _BEYOND)
    sums = {part: time_in(facts, device, part, buckets) for part in attribution.PARTS if part != "resume"}
    return Slow(device, cut_us, tail.count, {part: us for part, us in sums.items() if us})


def _longest(block: Block, device: str, stage: str) -> int:
    if (traced := block.deep.tables.get("traced")) is None:
        return 0
    return max((one.max_bound or 0 for op in OPS if (one := traced.get(Series(device, op, stage)))), default=0)


_PATH = " softirq"
_NUMBERS = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
"""As the kernel counts them."""
_CAN_COMPLETE = ("BLOCK", "IRQ_POLL", "TASKLET", "HI")
"""Vectors in which drivers of disks complete, or hand on what they complete."""
_RUNNERS = {
    "irq_exit": "the end of an interrupt",
    "timer": "the end of the timer's interrupt",
    "ksoftirqd": "ksoftirqd",
    "other": "other code that let softirqs run",
}
_RAISERS = {"irq": "an interrupt", "softirq": "another softirq", "other": "a thread, outside of interrupts"}


def of_device(facts: Facts, device: str) -> Iterator[tuple[str, SoftirqRuns]]:
    """Vectors by which its requests were seen to complete; where no path was followed, those that may."""
    paths = facts.traced.paths.get(device, {})
    named = [path.removesuffix(_PATH) for path in paths if path.endswith(_PATH)]
    found = by_vector(facts.softirqs)
    for vector in named if paths else _CAN_COMPLETE:
        if vector in found:
            yield vector, found[vector]


def latest_cpu(facts: Facts, vector: str) -> int | None:
    """Where its longest wait was."""
    waits = {where.cpu: runs.delay.max_bound or 0 for where, runs in facts.softirqs.items() if where.vector == vector}
    return max(waits, key=lambda cpu: (waits[cpu], -cpu), default=None)


def ran_by(runs: SoftirqRuns) -> str:
    """What most often ran it, in words; empty when not known."""
    return _RUNNERS.get(most(runs.ran_in.items()), "")


def raised_by(runs: SoftirqRuns) -> str:
    """Where it was most often raised, in words; empty when not known."""
    return _RAISERS.get(most(runs.raised_in.items()), "")


def hog(told: Iterable[Outlier]) -> str:
    """Who ran instead of ksoftirqd, as comm (prio N), in the longest wait that names one; empty when none does."""
    waits = [wait for one in told for wait in one.waits if wait.stage == "softirq" and wait.instead]
    return max(waits, key=lambda wait: wait.delay_us).instead if waits else ""


def raisers(vector: str) -> str:
    """A command that shows the kernel stacks that raise it."""
    which = f" /args->vec == {_NUMBERS.index(vector)}/" if vector in _NUMBERS else ""
    return f"bpftrace -e 'tracepoint:irq:softirq_raise{which} {{ @[kstack] = count() }} interval:s:5 {{ exit() }}'"


def most(counts: Iterable[tuple[str, int]]) -> str:
    """The name with the greatest count; empty when there is none."""
    return max(counts, key=lambda one: (one[1], one[0]), default=("", 0))[0]


_MORE = re.compile(r" and \d+ more$")
_IRQ_THREAD = re.compile(r"irq/(\d+)-")


def devices_of(facts: Facts, text: str) -> tuple[str, ...]:
    """Block devices behind a handler, by its controller's address or a list of names that may have been cut."""
    listed = set(_MORE.sub("", text).split(", "))
    at = {one.name: (one.controller.split() or [""])[-1] for one in facts.devices.values()}
    behind = {text, *(address for name, address in at.items() if name in listed)} - {""}
    return tuple(name for name, address in at.items() if name in listed or address in behind)


def serves(facts: Facts, comm: str, device: str) -> bool:
    """Whether a thread's name ties it to a device: its interrupt's thread, or one with its own or its driver's name."""
    if irq := _IRQ_THREAD.match(comm):
        behind = [devices_of(facts, runs.device) for one, runs in facts.handlers.items() if one.irq == int(irq[1])]
        if any(behind):
            return any(device in some for some in behind)
    known = facts.devices.get(device)
    return any(
        name and re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z])", comm)
        for name in (device, known.driver if known else "")
    )


class Above(NamedTuple):
    """The share of the time above the driver, and how many I/Os, or ms that gauges looked at, it is of."""

    share: float
    of: int
    timed: bool
    """By stages; else by how many I/Os wait and how many the driver has."""

    @property
    def fact(self) -> Fact:
        by = f"{rate(self.of)} timed I/Os" if self.timed else "the depths alone, by Little's law"
        said = f"{part(self.share)} of the I/Os' time passes above the driver: {by}"
        return Fact("waiting", round(self.share, 3), said, "share", self.of)


class MeanSplit(NamedTuple):
    """Mean times of an I/O above the driver and from the driver on, and of how many I/Os."""

    queue_us: float
    driver_us: float
    ios: int


def mean_split(facts: Facts, device: str) -> MeanSplit | None:
    """Return the means of the stages, else those of a kernel that counts both times (Solaris); None without either."""
    driver, queue = facts.stage("hba", device), facts.stage("queue", device)
    if driver.mean is not None and queue.mean is not None:
        return MeanSplit(queue.mean, driver.mean, driver.count)
    done = facts.completed(device)
    if done is None or not done.count or done.time_us is None or done.queue_us is None:
        return None
    return MeanSplit(done.queue_us / done.count, (done.time_us - done.queue_us) / done.count, done.count)


def above_driver(facts: Facts, device: str) -> Above | None:
    """Of the window; None where nobody tells what waits from what the driver has."""
    waits = [facts.stage(stage, device, *COUNTED) for stage in ("queue", "requeue")]
    return _above(waits, facts.stage("total", device, *COUNTED), facts.depths(device))


def above_in(block: Block, device: str) -> Above | None:
    """The same of one block."""
    waits = [merged((block.histograms,), stage, device, COUNTED) for stage in ("queue", "requeue")]
    return _above(waits, merged((block.histograms,), "total", device, COUNTED), depths_in(block, device))


def depths_in(block: Block, device: str) -> Depths:
    """Moments are ms."""
    return block.depths[device].depths if device in block.depths else Depths()


def mean(moments: Mapping[int, int]) -> float:
    """Over all of the time; 0 where nobody looked."""
    ms = sum(moments.values())
    return sum(bucket_middle(depth) * n for depth, n in moments.items()) / ms if ms else 0.0


def many(ios: float) -> str:
    """So many in the mean, in words: 2.9, 41."""
    return f"{ios:.1f}" if ios < 10 else whole(round(ios))  # noqa: PLR2004 - below, a digit behind the point tells


def busy_share(moments: Mapping[int, int], least: int = 1) -> float:
    """Of the time there are so many or more."""
    ms = sum(moments.values())
    return sum(n for depth, n in moments.items() if depth >= least) / ms if ms else 0.0


def mean_bytes(facts: Facts, device: str) -> float:
    """Of an I/O; 0 where nobody counted."""
    done = facts.completed(device)
    return done.bytes / done.count if done and done.count else 0.0


def law(facts: Facts, device: str, bound: Limit | None) -> Found | None:
    """Little's law of a device over the window, and what lifting its ceiling would give."""
    sums = facts.depth_sums.get(device)
    if sums is None:
        return None
    timed = facts.stage("total", device, *COUNTED)
    by_issue = facts.origin.latency_from == "issue"
    done = {op: facts.completed(device, op) for op in OPS}
    whole = times(sums.depths, done, None if by_issue else times_of(timed), timed.max_bound)
    driver = timed if by_issue else facts.stage("hba", device, *COUNTED)
    return law_of(
        sums.depths,
        sums.span_us,
        facts.span_us,
        whole=whole,
        driver=times_of(driver),
        bound=bound,
        waiting=(one for one in (*facts.waiting, *facts.blocks[-1].unlisted) if one.device == device),
        left=facts.blocks[-1].in_flight.get(device, 0),
    )


def _above(waits: list[Histogram], total: Histogram, depths: Depths) -> Above | None:
    if any(waits) and total.sum:
        return Above(min(1.0, sum(one.sum or 0 for one in waits) / total.sum), total.count, True)
    queued, in_driver = mean(depths.queued), mean(depths.in_driver)
    if not queued or not depths.in_driver:
        return None
    return Above(queued / (queued + in_driver), sum(depths.in_driver.values()), False)


_FULL = "the device may answer that its queue is full, and who shares it waits longer; undone by the old value"
_MPT_SAS = (
    "update the adapter's driver where it is. Known: Solaris 11's mpt_sas under VMware's LSI Logic SAS, bug 24764515 "
    "(tagged command queuing disabled for SCSI-2 and SPC targets), patch 25485763, in 11.3.17.5.0; Doc ID 2238101.1"
)


def raising(device: Device, name: str) -> Iterator[Step]:
    """Of the limit `name` that a device has reached, or that is too low for it."""
    driver, at = device.driver or "its driver", sysfs(device.name)
    if name in ("queue_depth", "cmd_per_lun"):
        yield Step("raise it", _FULL, (setting(f"{at}/device/queue_depth", 32),))
        yield Step(
            f"find out who lowered it: a parameter of {driver}, a udev rule, or a full queue in the kernel's log"
        )
    elif name == "nr_requests":
        risk = "memory, and a longer queue for all of its users; undone by the old value"
        yield Step("raise it", risk, (setting(f"{at}/queue/nr_requests", 256),))
    elif name == "queue_type":
        yield Step(
            "turn tags on",
            "a device that can't do it may hang; undone by echo none",
            (setting(f"{at}/device/queue_type", "simple"),),
        )
    elif name in ("un_throttle", "un_f_opt_queueing", "m_notag"):
        look = sd_walk(device, "un_throttle", "un_min_throttle", "un_f_opt_queueing")
        yield Step("read what sd is set to; is tagged queueing off (un_f_opt_queueing 1)?", commands=(look,))
        yield Step(_MPT_SAS, "a reboot")
        yield from sd_config(
            device,
            "throttle-max:64",
            "else raise the throttle of this product's LUNs alone: a global one would hold for all disks",
            f"a reboot; {_FULL}",
        )
    else:
        lists = f"grep -H . /sys/module/{driver if plain(driver) else 'DRIVER'}/parameters/*"
        yield Step(
            f"raise the parameter of {driver} that sets {name}, and load it anew",
            "all of its disks are gone while it is loaded; undone by the old value and another load",
            (lists,),
        )


def sd_config(device: Device, properties: str, what: str, risk: str) -> Iterator[Step]:
    """Return the step that sets properties of one product's LUNs, in the configuration file of their driver."""
    driver = sd_driver(device)
    yield Step(
        f"{what}; in {driver}.conf, with vendor (8 characters) and product as iostat -En shows them, then load it anew "
        "or reboot",
        risk,
        (f'{driver}-config-list = "VENDOR  PRODUCT", "{properties}";', f"update_drv -vf {driver}"),
    )
