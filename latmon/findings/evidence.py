"""Evidence that several rules read: slow I/Os by stage, softirqs, handlers, time above the driver, steps on limits.

Slow I/Os are those above the device's threshold or, where none is that slow, above the p99. Where no requests were
traced, recorded outliers replace them. Knows no rule and no threshold.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from latmon.analysis import attribution
from latmon.analysis.attribution import file_rows, nfs_rows
from latmon.analysis.hardware_place import Place, place_of
from latmon.analysis.limits import elevator, number
from latmon.analysis.littles_law import COUNTED, LawCheck, times, times_of
from latmon.analysis.littles_law import of as law_of
from latmon.analysis.threshold import Slower
from latmon.findings.facts import Block, Facts, mean_waiting_in
from latmon.findings.rule import FLEET, Fact, Step, duration_facts, plain, sd_driver, sd_walk, setting, sysfs, threads
from latmon.model.devices import thread_of
from latmon.model.frame import (
    ASLEEP,
    DIRTY_LIMIT,
    FILE_PARTS,
    FOR_CPU,
    FROZEN,
    JOURNAL,
    LOCK,
    MEMORY,
    NEARLY_ALL,
    NOT_KNOWN,
    OPS,
    OTHER_IO,
    OWN_IO,
    RUNNING,
    SERVER,
    SWAP,
    UNACCOUNTED,
    Device,
    Flow,
    Limit,
    Series,
    Wait,
    comm_of,
)
from latmon.model.histogram import Histogram, bucket_index
from latmon.model.inflight import mean_depth
from latmon.model.measurements import (
    ABOVE,
    FILE_TIMES,
    FILES,
    HANDLERS,
    MAINTENANCE,
    NFS_OPERATIONS,
    SOFTIRQS,
    TRACED_LATENCIES,
)
from latmon.model.measurements.softirqs import SoftirqRuns
from latmon.model.measurements.wakeups import Wakeups
from latmon.model.stages import ABOVE_DRIVER
from latmon.support.units import counted, part, rate, spelled, whole

IF_DEVICE = "if most of the time is in driver and device (hba on screen 2)"
"""Condition of steps about hardware where stages are not known."""
_NOT_OF_DEVICE = frozenset((FOR_CPU, LOCK, SERVER, MEMORY, FROZEN, RUNNING))
"""Parts of the time of operations on files that are not their device's. The journal's I/O is, and the dirty limit
follows the speed at which it writes."""
_SMALL_PART = 0.01
PART_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        OWN_IO: "asleep for I/O of its own",
        FOR_CPU: "waiting for a CPU",
        LOCK: "asleep for a lock",
        JOURNAL: "asleep for the journal",
        OTHER_IO: "asleep for I/O that another thread issued, or that is held back",
        DIRTY_LIMIT: "asleep at the limit of dirty pages",
        SERVER: "asleep for a server or a FUSE program",
        MEMORY: "asleep for free memory",
        FROZEN: "asleep because the file system is frozen",
        ASLEEP: "asleep for something else",
        RUNNING: "running",
    }
)
"""Part of the time of operations on files -> what their thread did, in words."""
ELSEWHERE = Step(
    "find out what the operations on files wait for besides their I/O, which is less than half of their time: a lock "
    "of a file that many threads write, the journal, or a CPU"
)
_VECTORS = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
"""Softirq vectors by the kernel's numbers (include/linux/interrupt.h)."""
_RUNNERS = {
    "irq_exit": "the end of an interrupt",
    "timer": "the end of the timer's interrupt",
    "ksoftirqd": "ksoftirqd",
    "other": "other code that let softirqs run",
}
_RAISERS = {"irq": "an interrupt", "softirq": "another softirq", "other": "a thread, outside of interrupts"}
_MOST = 0.5
"""From this share of the waits on a thread ran for most of them."""
_MORE = re.compile(r" and \d+ more$")
_IRQ_THREAD = re.compile(r"irq/(\d+)-")
WHOLE = "whole"
"""Place of a swap area that is a whole disk."""
_FULL = "the device may answer that its queue is full, and others that share it wait longer; undone by the old value"
_MPT_SAS = (
    "update the adapter's driver where it is. Known: Solaris 11's mpt_sas under VMware's LSI Logic SAS, bug 24764515 "
    "(tagged command queuing disabled for SCSI-2 and SPC targets), patch 25485763, in 11.3.17.5.0; Doc ID 2238101.1"
)
_MOST_DISKS = 3
_FAST_US = 20_000
"""Mean time of a device's I/Os from which on it isn't called healthy."""


@dataclass(frozen=True, slots=True)
class SlowIos:
    """I/Os that took `cut_us` or more to completion, and their time by stage without `resume`, which follows it."""

    device: str
    cut_us: int
    count: int
    us: Mapping[str, int]

    def share(self, *stages: str) -> float:
        """Return the share of these stages in their time, 0..1."""
        total = sum(self.us.values())
        return sum(self.us.get(stage, 0) for stage in stages) / total if total else 0.0

    def lost_share(self, facts: Facts, *stages: str) -> float:
        """Return the share of these stages of the slow I/Os in the time of all I/Os of the device, by `lost_share`."""
        timed = facts.traced_stage("total", self.device) or facts.latency(self.device)
        return lost_share(sum(self.us.get(stage, 0) for stage in stages), timed)

    def share_text(self, *stages: str) -> str:
        """Return the share of stages as the beginning of a sentence: `97 % of the time of I/Os above 10 ms`."""
        return f"{part(self.share(*stages))} of the time of I/Os above {spelled(self.cut_us)}"

    def mean_us(self, *stages: str) -> float:
        """Return the mean time in these stages over all of them, including those that skipped a stage."""
        return sum(self.us.get(stage, 0) for stage in stages) / self.count if self.count else 0.0


def lost_share(lost_us: float, timed: Histogram) -> float:
    """Return the share of a device's I/O time that is lost to a cause, 0..1: the `share` that ranks a finding.

    All of the time of a few slow I/Os may be little of the device's. `timed`: the latency of all its I/Os, measured as
    the lost time is; 0 where it is not known.
    """
    all_us = timed.nearest_sum
    return min(1.0, lost_us / all_us) if all_us else 0.0


def slow_ios(facts: Facts, device: str) -> Sequence[SlowIos]:
    """Return the I/Os above the threshold, then those above the p99, each only where there are any."""
    return facts.once(("slow", device), lambda: tuple(_slow_ios(facts, device)))


def _slow_ios(facts: Facts, device: str) -> Iterator[SlowIos]:
    threshold, cuts = facts.thresholds_us.get(device), list[int | None]()
    if device in facts.traced_devices:
        cuts += [attribution.tail_cut(facts.traced, device, threshold_us=threshold)] if threshold is not None else []
        cuts.append(attribution.tail_cut(facts.traced, device))
    parts_above = [_traced_above(facts, device, cut) for cut in dict.fromkeys(cuts) if cut is not None]
    if threshold is not None and parts_above:
        parts_above[0] = _from_threshold(facts, parts_above[0], threshold)
    yield from (slow for slow in parts_above if slow.count)
    if not any(slow.count for slow in parts_above) and (outliers := facts.outliers(device)):
        cut_us = min(outlier.total_us for outlier in outliers)
        yield SlowIos(device, cut_us, len(outliers), attribution.parts_us(outliers))


def _from_threshold(facts: Facts, slow: SlowIos, threshold_us: int) -> SlowIos:
    """Return the I/Os above the threshold itself, where it is in a bucket whose slow I/Os are all recorded.

    `slow`: those from the next bound of a bucket on. An automatic threshold moves in the window.
    """
    if facts.origin.threshold_us != threshold_us:
        return slow
    above = Slower(sum(facts[ABOVE].get(Flow(slow.device, op), 0) for op in OPS), threshold_us)
    if not above.ios:  # most devices have none, and sums of each of them would take half of the time of a rule
        return slow
    outliers = facts.outliers(slow.device)
    more = attribution.of_threshold_bucket(facts.traced, slow.device, OPS, above, outliers)
    if more is None:
        return slow
    us = Counter(slow.us)
    us.update(attribution.parts_us(more))
    return SlowIos(slow.device, threshold_us, slow.count + len(more), {stage: n for stage, n in us.items() if n})


def is_device_most(facts: Facts, device: str) -> bool | None:
    """Return whether most of the slow I/Os' time is that of driver and device; None where that is not known.

    The time of a driver that hands its I/Os to a thread of this host contains that thread's waits for a CPU: it is not
    known to be the device's.
    """
    share = _driver_share(facts, device)
    if share is None:
        return None
    if share < _MOST:
        return False
    return None if _holds_others(facts, device) or thread_of(device, facts.device(device).driver) else True


def _driver_share(facts: Facts, device: str) -> float | None:
    """Return the share of the stage hba in the time of the slow I/Os, of all where stages have no totals; or None."""
    for slow in slow_ios(facts, device):
        if slow.us.keys() - {UNACCOUNTED}:
            return slow.share("hba")
    for stage in (facts.stage, facts.traced_stage):
        driver, total = stage("hba", device), stage("total", device)
        if driver.sum is not None and total.sum:
            return min(1.0, driver.sum / total.sum)
    return None


def _holds_others(facts: Facts, device: str) -> bool:
    """Return whether the stage hba includes the waits for the softirq or thread that completes an I/O."""
    if device in facts.traced_devices:
        return "hba" in facts.traced.includes_of(device)
    return bool(facts.origin.measured.get("hba"))


def kernel_log_facts(facts: Facts, device: str) -> Iterator[Fact]:
    """Yield the newest line of the kernel's log about a device, with its age; nothing where none is known."""
    line = facts.kernel_line(device)
    if line is not None:
        age_us = max(0, round((facts.wall - line.wall) * 1e6))
        yield Fact("kernel_log", line.text, f"the kernel's log, {spelled(age_us)} ago: {line.text}")


def what_keeps_the_cpu(by: str, *, is_sun: bool) -> Step:
    """Return the step that looks at the thread that had a CPU; `by`: its label, empty where it is not known."""
    return Step(
        f"find out why {by or 'something'} keeps the CPU: is it meant to run for so long, and on that CPU?",
        commands=(threads(comm_of(by), is_sun=is_sun),),
    )


def kernel_log_step(text: str) -> Step:
    """Return the step to read the kernel's log: the evidence has one line of it, or none where it may not be read."""
    return Step(text, commands=("dmesg | tail -n 50",))


def hardware_steps(facts: Facts, device: str, steps: Iterable[Step]) -> Iterator[Step]:
    """Yield steps about a device's hardware where most of the time is the device's.

    Where that is not known, they begin with the condition. Where a thread of this host does the I/Os, the step is to
    look at that thread: the device below it has a row of its own, if it has hardware.
    """
    if thread := thread_of(device, facts.device(device).driver):
        yield Step(f"see whether {thread} waits for a CPU (screen 5): hba contains that wait, and what is below it")
        return
    is_most = is_device_most(facts, device)
    if is_most is None:
        yield from (step._replace(what=f"{IF_DEVICE}: {step.what}") for step in steps)
    elif is_most:
        yield from steps


def io_share_of_files(facts: Facts, device: str, ops: Iterable[str], io_ops: Iterable[str] = OPS) -> float | None:
    """Return the most that a device's I/Os can be of the time of these operations on its files; None: not known.

    Where the operations' time is split, it is the part in which their threads may have waited for the device. Else the
    I/Os are all of `io_ops` in the blocks in which operations were traced, those of other programs too. What is left is
    waiting for locks, for I/Os of others on other devices, and for a CPU.
    """
    files_us = io_us = 0
    wanted, issued = frozenset(ops), tuple(io_ops)
    if (share := _split_share(facts, device, wanted)) is not None:
        return share
    for block in facts.window:
        its = ((series, latency) for series, latency in block[FILES].items() if series.device == device)
        sums = [latency.sum for series, latency in its if series.op in wanted]
        if not sums:
            continue
        timed = block.stage("total", device, *issued) or block.traced_stage("total", device, *issued)
        if timed.sum is None or None in sums:
            return None
        files_us += sum(us for us in sums if us is not None)
        io_us += timed.sum
    return io_us / files_us if files_us and io_us else None


def _split_share(facts: Facts, device: str, ops: frozenset[str]) -> float | None:
    """Return the most that a device can be of the time of these operations by its parts; None where it isn't split."""
    rows = file_rows(facts[FILES], facts[FILE_TIMES])
    parts = Counter[str]()
    for row in rows:
        if row.file_system.device == device and row.op in ops:
            parts.update(row.all_parts)
    if not parts.keys() - {RUNNING} or not parts.total():
        return None
    return 1 - sum(parts[name] for name in _NOT_OF_DEVICE) / parts.total()


def explained_by_locks(facts: Facts, device: str) -> tuple[str, ...]:
    """Return the rule about locks, where these have half of the time of all operations on the device's files."""
    parts = Counter[str]()
    for row in file_rows(facts[FILES], facts[FILE_TIMES]):
        if row.file_system.device == device:
            parts.update(row.all_parts)
    return ("not-the-disk",) if parts.total() and parts[LOCK] >= _MOST * parts.total() else ()


def split_facts(parts: Mapping[str, int], ops: str) -> Iterator[Fact]:
    """Yield the parts of the time of operations on files but those below 1 %; `parts`: as `FileRow.all_parts`."""
    whole_us = sum(parts.values())
    for name in (*FILE_PARTS, RUNNING):
        share = parts.get(name, 0) / max(whole_us, 1)
        if share >= _SMALL_PART or (name == OWN_IO and whole_us):
            text = f"{PART_TEXTS[name]}: {part(share)} of the time of its {ops}"
            yield Fact(f"{name.replace(' ', '_').replace('/', '')}_share", round(share, 3), text, "share")


def nfs_facts(facts: Facts, mount: str) -> Iterator[Fact]:
    """Yield whether the calls of an NFS mount wait for the server or in the client; nothing of others."""
    rows = [(key.op, calls) for key, calls in nfs_rows(facts[NFS_OPERATIONS]) if key.mount == mount]
    whole_us = sum(calls.execute_us for _, calls in rows)
    if not whole_us:
        return
    share = min(1.0, sum(calls.round_trip_us for _, calls in rows) / whole_us)
    queue_share = min(1.0, sum(calls.queue_us for _, calls in rows) / whole_us)
    text = (
        f"of the time of its NFS calls, {part(share)} is round trips (network and server), {part(queue_share)} is "
        "before the last transmission (the client's queue)"
    )
    yield Fact("nfs_round_trip_share", round(share, 3), text, "share", sum(calls.calls for _, calls in rows))
    op, calls = rows[0]
    round_trip, execute = spelled(calls.round_trip_mean_us), spelled(calls.execute_mean_us)
    text = f"a {op} takes {execute} on average: the server and the network {round_trip}, the client's queue {{}}"
    yield from duration_facts(("nfs_queue_us", calls.queue_mean_us, text, calls.calls))
    again = sum(calls.retransmissions for _, calls in rows)
    if again:
        timeouts = sum(calls.timeouts for _, calls in rows)
        text = (
            f"its calls were sent again {counted(again, 'time')}, with {counted(timeouts, 'major time-out')}: waits "
            "for answers that did not come are in the client's queue, of calls that failed in neither"
        )
        yield Fact("nfs_retransmissions", again, text)


def waits_elsewhere(facts: Facts, device: str, ops: Iterable[str], io_ops: Iterable[str] = OPS) -> bool:
    """Return whether the device's I/Os certainly are less than half of the time of these operations on its files."""
    share = io_share_of_files(facts, device, ops, io_ops)
    return share is not None and share < _MOST


def files_facts(facts: Facts, device: str, ops: Iterable[str], io_ops: Iterable[str] = OPS) -> Iterator[Fact]:
    """Yield how much of the time of operations on files the device's I/Os can be; nothing where it may be all."""
    share = io_share_of_files(facts, device, ops, io_ops)
    if share is not None and share < 1:
        text = f"all I/Os of {device} are {part(share)} of the time of these operations on its files"
        yield Fact("io_share", round(share, 3), text, "share")


def where_it_is(device: Device) -> Iterator[Step]:
    """Yield the step that finds the drive in its rack; nothing where its place isn't known, or it has none."""
    slot, path = device.report("slot"), device.report("by_path")
    if slot is None and path is None:
        return
    places = []
    if slot is not None:
        places.append(f"slot {slot.value}")
    if path is not None:
        places.append(f"by-path/{path.value}")
    if place_of(device) is Place.OUTSIDE:
        yield Step(f"find the volume where it comes from ({', '.join(places)})")
        return
    name = device.name if plain(device.name) else "DEVICE"
    lights = [f"ledctl locate=/dev/{name}"]
    if slot is not None and slot.source.startswith("enclosure/"):
        component = f"/sys/class/{slot.source}/locate"
        if not any(character in component for character in "'…\\"):  # else it is cut, or not plain: another file
            lights.append(f"echo 1 > '{component}'")
    yield Step(
        f"find the drive ({', '.join(places)}) and turn its light on",
        "none for the data; the light stays on until it is turned off (ledctl locate_off=, echo 0)",
        tuple(lights),
    )


def maintenance_of(facts: Facts, device: str) -> Iterator[Fact]:
    """Yield the work that ran on a device in the window, or on a volume that it is a part of."""
    for row, us in facts[MAINTENANCE].items():
        if device == row.device or device in facts.device(row.device).members:
            text = f"{row.work} of {row.device} ran for {spelled(us)} of that time"
            yield Fact(f"ran_{row.work.replace(' ', '_')}", row.work, text)


def count_from(found: Histogram, us: float) -> int:
    """Return how many values are `us` or greater, with the precision of a bucket."""
    first = bucket_index(int(us), found.bits)
    return sum(n for index, n in found.buckets if index >= first)


def blocks_with(facts: Facts, device: str, stage: str, us: float) -> int:
    """Return the number of blocks in which an I/O spent `us` or more in a stage."""
    return sum(_longest(block, device, stage) >= us for block in facts.blocks)


def time_in(facts: Facts, device: str, stage: str, buckets: range) -> int:
    """Return the us that traced I/Os whose total lies in these buckets spent in one stage."""
    tables = (facts.traced.by_total.get(Series(device, op, stage), {}) for op in OPS)
    return sum(us for table in tables for index, us in table.items() if index in buckets)


def _traced_above(facts: Facts, device: str, cut_us: int) -> SlowIos:
    count = count_from(attribution.total_of(facts.traced, device), cut_us)
    if not count:
        return SlowIos(device, cut_us, 0, {})
    sums = attribution.tail_us(facts.traced, device, OPS, cut_us)
    return SlowIos(device, cut_us, count, {stage: us for stage, us in sums.items() if us and stage != "resume"})


def _longest(block: Block, device: str, stage: str) -> int:
    def longest() -> int:
        traced = block[TRACED_LATENCIES]
        return max(
            (histogram.max_bound or 0 for op in OPS if (histogram := traced.get(Series(device, op, stage)))), default=0
        )

    return block.once(("longest", stage, device), longest)


def completing_softirqs(facts: Facts, device: str) -> Iterator[tuple[str, SoftirqRuns]]:
    """Yield the vectors that completed the device's requests; all possible ones where no path names the vector."""
    for key in attribution.vectors_in(facts.vectors, facts.traced.paths.get(device, {}), device):
        yield key, facts.vectors[key]


def slowest_cpu(facts: Facts, vector: str) -> int | None:
    """Return the CPU with the vector's longest wait; None where the vector did not run."""
    waits = {where.cpu: runs.delay.max_bound or 0 for where, runs in facts[SOFTIRQS].items() if where.vector == vector}
    return max(waits, key=lambda cpu: (waits[cpu], -cpu), default=None)


def ran_by(runs: SoftirqRuns) -> str:
    """Return in words where it ran most often; empty where that is not known."""
    return _RUNNERS.get(most_frequent(runs.ran_in.items()), "")


def raised_by(runs: SoftirqRuns) -> str:
    """Return in words where it was raised most often; empty where that is not known."""
    return _RAISERS.get(most_frequent(runs.raised_in.items()), "")


def raiser(facts: Facts, vector: str) -> Iterator[Fact]:
    """Yield the kernel functions that raise a vector most often outside of interrupts; nothing where not traced."""
    counts = facts.traced.raisers.get(vector, {})
    if most := most_frequent(counts.items()):
        of = sum(counts.values())
        text = f"{counts[most]:,} of {of:,} raises outside of interrupts are by {most}"
        yield Fact("raiser", most, text, of=of)


class Dominant(NamedTuple):
    """The label of the dominant thread, and its weight."""

    label: str = ""
    weight: int = 0


def dominant(labels: Mapping[str, int]) -> Dominant:
    """Return the thread with the greatest weight over all of its labels, as its own heaviest label.

    A label is `comm (prio N)`, and a thread's priority may change from wait to wait (a time-sharing class, a boost).
    """
    names = Counter[str]()
    for label, weight in labels.items():
        names[comm_of(label)] += weight
    if not names:
        return Dominant()
    name = max(names, key=lambda comm: (names[comm], comm))
    own = [label for label in labels if comm_of(label) == name]
    return Dominant(max(own, key=lambda label: (labels[label], label)), names[name])


class Instead(NamedTuple):
    """The thread that ran on the CPU that another one waited for: for `us` of the `waited_us`."""

    label: str = ""
    """comm (prio N); empty where it is not known."""
    us: int = 0
    """0: it is only known to have run there last. It may have a small part of the time, so it is no culprit."""
    waited_us: int = 0

    @property
    def share(self) -> float:
        """Return its share of the time; 0 where its time is not known."""
        return self.us / self.waited_us if self.waited_us else 0.0

    @property
    def is_most(self) -> bool:
        """Return whether it is known to have run for at least half of the time."""
        return self.share >= _MOST

    @property
    def name(self) -> str:
        """Return its name without its priority."""
        return self.label.partition(" (prio ")[0]

    @property
    def who(self) -> str:
        """Return it as the subject of a clause, with how much of the time was its."""
        share = self.share
        if not self.is_most:
            return f"{self.label}, among others,"
        return self.label if share >= NEARLY_ALL else f"mostly {self.label}"

    @property
    def fact(self) -> Fact:
        spans = f"on its CPU for {spelled(self.us)} of {spelled(self.waited_us)}" if self.us else "last before it"
        return Fact("instead", self.label, f"{self.label} ran {spans}")


def ran_instead(wakeups: Iterable[Wakeups], waits: Iterable[Wait]) -> Instead:
    """Return the thread that ran longest while one waited; where no times are known, the last one of most waits.

    The times are those of all late wake-ups, else those of the recorded waits.
    """
    ran, late, last = Counter[str](), Counter[str](), Counter[str]()
    ran_in_waits, timed_us = Counter[str](), 0
    for wakeup in wakeups:
        ran.update(wakeup.ran_us)
        late.update(wakeup.instead)
    for wait in waits:
        last[wait.instead] += wait.delay_us
        if wait.instead and wait.ran_us:
            ran_in_waits[wait.instead] += wait.ran_us
            timed_us += wait.delay_us
    known = {label: us for label, us in ran.items() if label != NOT_KNOWN}
    if known:
        by = dominant(known)
        return Instead(by.label, by.weight, ran.total())
    if ran_in_waits:
        by = dominant(ran_in_waits)
        return Instead(by.label, by.weight, timed_us)
    return Instead(dominant({label: us for label, us in last.items() if label} or late).label)


def raise_stacks(vector: str) -> str:
    """Return the command that prints the kernel stacks that raise a vector."""
    name = vector.rpartition(":")[2]
    which = f" /args->vec == {_VECTORS.index(name)}/" if name in _VECTORS else ""
    return f"bpftrace -e 'tracepoint:irq:softirq_raise{which} {{ @[kstack] = count() }} interval:s:5 {{ exit() }}'"


def most_frequent(counts: Iterable[tuple[str, int]]) -> str:
    """Return the name with the greatest count; empty where there is none."""
    return max(counts, key=lambda pair: (pair[1], pair[0]), default=("", 0))[0]


def devices_of(facts: Facts, text: str) -> tuple[str, ...]:
    """Return the block devices of a handler from its controller's address, or from a list of names that may be cut."""
    addresses = facts.once("addresses", lambda: _addresses(facts))
    listed = addresses.keys() & _MORE.sub("", text).split(", ")
    behind = {text, *(addresses[name] for name in listed)} - {""}
    return tuple(name for name, address in addresses.items() if name in listed or address in behind)


def _addresses(facts: Facts) -> dict[str, str]:
    """Return the address of each device's controller."""
    return {device.name: _address(device, host_before(facts, device.name)) for device in facts.devices.values()}


def _address(device: Device, host: str) -> str:
    """Return its controller's address as handlers have it; empty where it is not known."""
    last = (device.controller.split() or [""])[-1].removeprefix(host)
    return last and host + last


def host_before(facts: Facts, name: str) -> str:
    """Return the host in front of a fleet's name, with its colon; empty where the capture is of one host."""
    return name[: name.find(":") + 1] if facts.origin.backend == FLEET else ""


def swap_of(device: Device) -> str:
    """Return where a device has a swap area: WHOLE, a partition, a file; empty where it has none."""
    place = device.reported_value(SWAP)
    return "" if place is None else str(place)


def serves(facts: Facts, comm: str, device: str) -> bool:
    """Return whether a thread's name ties it to a device: its interrupt's thread, or the name of it or its driver."""
    host = host_before(facts, device)
    if not comm.startswith(host):
        return False
    comm = comm.removeprefix(host)
    if irq := _IRQ_THREAD.match(comm):
        handlers = ((handler, runs) for handler, runs in facts[HANDLERS].items() if handler.name.startswith(host))
        behind = [devices_of(facts, runs.device) for handler, runs in handlers if handler.irq == int(irq[1])]
        if any(behind):
            return any(device in devices for devices in behind)
    return any(
        name and re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z])", comm)
        for name in (device.removeprefix(host), facts.device(device).driver)
    )


class AboveDriver(NamedTuple):
    """The share of the I/Os' time above the driver, and the number of timed I/Os.

    Without timed ones (None) the share is that of outstanding I/Os which wait above, by Little's law.
    """

    share: float
    timed: int | None

    @property
    def fact(self) -> Fact:
        by = f"{rate(self.timed)} timed I/Os" if self.timed else "from the depths, by Little's law"
        text = f"{part(self.share)} of the I/Os' time passes above the driver: {by}"
        return Fact("waiting", round(self.share, 3), text, "share", self.timed)


class MeanSplit(NamedTuple):
    """Mean times of an I/O above the driver and from the driver on, and the number of I/Os."""

    queue_us: float
    driver_us: float
    ios: int


def mean_split(facts: Facts, device: str) -> MeanSplit | None:
    """Return the means of the stages, else those of a kernel that counts both times (Solaris); None without either."""
    for stage in (facts.stage, facts.traced_stage):
        driver, queue = stage("hba", device), stage("queue", device)
        if driver.mean is not None and queue.mean is not None:
            return MeanSplit(queue.mean, driver.mean, driver.count)
    done = facts.completed(device)
    if done is None or not done.count or done.time_us is None or done.queue_us is None:
        return None
    return MeanSplit(done.queue_us / done.count, (done.time_us - done.queue_us) / done.count, done.count)


def above_driver(part: Facts | Block, device: str) -> AboveDriver | None:
    """Return the share of the window or block; None where no source separates waiting I/Os from those in the driver."""
    for stage in (part.stage, part.traced_stage):
        waits, total = [stage(name, device, *COUNTED) for name in ABOVE_DRIVER], stage("total", device, *COUNTED)
        if any(waits) and total.sum:
            return AboveDriver(min(1.0, sum(histogram.sum or 0 for histogram in waits) / total.sum), total.count)
    depths = part.depths(device)
    queued, in_driver = mean_depth(depths.queued), mean_depth(depths.in_driver)
    if not queued or not depths.in_driver:
        return None
    return AboveDriver(queued / (queued + in_driver), None)


def waiting(part: Facts | Block, device: str) -> float | None:
    """Return the mean number of I/Os that wait above the driver, in the window or block.

    Where no gauge counts them (Linux before 6.10) they are computed from the traced waits. None without either.
    """
    queued = part.depths(device).queued
    return mean_depth(queued) if queued else mean_waiting_in(part, device)


def many(ios: float) -> str:
    """Return a mean number of I/Os as a text: 2.9, 41."""
    return f"{ios:.1f}" if ios < 10 else whole(round(ios))  # noqa: PLR2004 - the first decimal matters below


def mean_bytes(facts: Facts, device: str, *ops: str) -> float:
    """Return the mean size of an I/O; 0 where completions were not counted. No op: all ops."""
    done = facts.completed(device, *ops)
    return done.bytes / done.count if done and done.count else 0.0


def limit_values(device: Device) -> dict[str, int | str]:
    """Return the values of a device's limits by name."""
    return {limit.name: limit.value for limit in device.limits}


def littles_law(facts: Facts, device: str, bound: Limit | None) -> LawCheck | None:
    """Return Little's law of a device over the window and the effect of lifting `bound`; None without depths."""
    sums = facts.depth_sums.get(device)
    if sums is None:
        return None
    timed = facts.stage("total", device, *COUNTED)
    by_issue = facts.origin.latency_from == "issue"
    done = {op: facts.counted(Flow(device, op)) for op in OPS}
    mean_times = times(sums.depths, done, None if by_issue else times_of(timed), timed.max_bound)
    driver = timed if by_issue else facts.stage("hba", device, *COUNTED)
    return law_of(
        sums.depths,
        sums.span_us,
        facts.span_us,
        whole=mean_times,
        driver=times_of(driver),
        bound=bound,
        waiting=(aged for aged in (*facts.waiting, *facts.blocks[-1].unlisted) if aged.device == device),
        left=facts.blocks[-1].in_flight.get(device, 0),
    )


def raise_limit(device: Device, name: str) -> Iterator[Step]:
    """Yield the steps that raise the limit `name`, which a device has reached or which is too low for it."""
    driver, at = device.driver or "its driver", sysfs(device.name)
    if name in ("queue_depth", "cmd_per_lun"):
        yield Step("raise queue_depth", _FULL, (setting(f"{at}/device/queue_depth", 32),))
        yield Step(
            f"find out what lowered it: a parameter of {driver}, a udev rule, or a full queue in the kernel's log"
        )
    elif name == "nr_requests":
        risk = "more memory, and a longer queue for all of its users; undone by the old value"
        # Without a scheduler the kernel refuses more requests than there are tags (blk_mq_update_nr_requests).
        tags = number(limit_values(device).get("nr_tags", "")) if elevator(device.limits) in (None, "none") else None
        yield Step("raise nr_requests", risk, (setting(f"{at}/queue/nr_requests", min(tags or 256, 256)),))
    elif name == "max_sectors_kb":
        yield Step(
            "set max_sectors_kb to what the device takes at most (max_hw_sectors_kb), or to 1280, the usual value",
            "large I/Os hold up small ones for longer; undone by the old value",
            (f"cat {at}/queue/max_hw_sectors_kb", setting(f"{at}/queue/max_sectors_kb", 1280)),
        )
    elif name == "queue_type":
        yield Step(
            "turn tagged queueing on",
            "a device that can't do it may hang; undone by echo none",
            (setting(f"{at}/device/queue_type", "simple"),),
        )
    elif name in ("un_throttle", "un_f_opt_queueing", "m_notag"):
        look = sd_walk(device, "un_throttle", "un_min_throttle", "un_f_opt_queueing")
        yield Step("read the settings of sd: is tagged queueing off (un_f_opt_queueing 1)?", commands=(look,))
        yield Step(_MPT_SAS, "a reboot")
        yield from sd_config(
            device,
            "throttle-max:64",
            "else raise the throttle of this product's LUNs alone: a global one would apply to all disks",
            f"a reboot; {_FULL}",
        )
    elif name in ("sd_max_throttle", "ssd_max_throttle"):
        yield Step(
            f"remove the line that sets {name} for all disks, so that each has its own limit",
            f"a reboot; {_FULL}",
            (f"grep -n {name} /etc/system",),
        )
        yield from sd_config(
            device,
            "throttle-max:32",
            "where a product takes fewer than the driver's 256, set the throttle of its LUNs alone",
            "a reboot; undone by removing the line",
        )
    else:
        lists = f"grep -H . /sys/module/{driver if plain(driver) else 'DRIVER'}/parameters/*"
        yield Step(
            f"raise the parameter of {driver} that sets {name}, and reload it",
            "all of its disks are gone while it reloads; undone by the old value and another reload",
            (lists,),
        )


def sd_config(device: Device, properties: str, text: str, risk: str) -> Iterator[Step]:
    """Yield the step that sets properties of one product's LUNs, in the configuration file of their driver."""
    driver = sd_driver(device)
    yield Step(
        f"{text}; in {driver}.conf, with vendor (8 characters) and product as iostat -En shows them, then reload it "
        "or reboot",
        risk,
        (f'{driver}-config-list = "VENDOR  PRODUCT", "{properties}";', f"update_drv -vf {driver}"),
    )


def without_scheduler(device: Device, scheduler: str, harm: str = "") -> Step:
    """Return the step that turns a device's I/O scheduler off.

    Each change of the scheduler gives nr_requests the default of the new one (blk_mq_init_sched, blk_mq_exit_sched).
    """
    requests = number(limit_values(device).get("nr_requests", ""))
    undone = f"undone by writing {scheduler}"
    if requests is not None:
        undone = f"{undone}, and then {requests} to nr_requests, which each change of the scheduler resets"
    return Step(
        f"try without {scheduler}",
        f"{harm or f'{scheduler} no longer shares the device fairly or sorts for it'}; {undone}",
        (setting(f"{sysfs(device.name)}/queue/scheduler", "none"),),
    )


def disk_facts(facts: Facts, host: str) -> Iterator[Fact]:
    """Yield what the I/Os of a host's devices take meanwhile, the slowest first."""
    means: dict[str, float] = {}
    for device in facts.busy:
        mean_us = facts.latency(device).mean
        if mean_us is not None and device.startswith(host):
            means[device] = mean_us
    slowest = sorted(means, key=lambda device: -means[device])
    if not slowest:
        yield Fact("disks", "", "no I/O of a device was timed meanwhile")
        return
    text = ", ".join(f"{device} {spelled(means[device])}" for device in slowest[:_MOST_DISKS])
    verdict = "the disks are healthy: an I/O takes" if means[slowest[0]] < _FAST_US else "an I/O of the disks takes"
    yield Fact("disks", text, f"{verdict} {text} on average")
