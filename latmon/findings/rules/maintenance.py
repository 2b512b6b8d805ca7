"""maintenance: work on a volume, or discards, run beside the I/Os of programs.

An array that is checked or rebuilt, a file system that is balanced, a thread of the kernel that initialises or cleans a
file system, a drive that tests itself and a storm of discards (fstrim, blkdiscard, the mount option discard) take time
of disks that nobody asked for in that moment. It ends by
itself, so that advice about hardware is wrong meanwhile. The I/Os of programs in the blocks in which the work ran are
compared with those in the blocks in which it did not, as for a noisy neighbour, or with those before it began. An
array's own counters are without the I/Os of its check; of a disk whose file system is balanced they are with them. A
thread is known by the I/Os that it issues, and is a finding only where those of programs are slower. No finding: work
that waits, a few discards, and discards that are fast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from latmon.findings import maintenance_threads
from latmon.findings.evidence import maintenance_of
from latmon.findings.facts import Block, Facts, mean_time_of
from latmon.findings.maintenance_threads import WORKS
from latmon.findings.op_load import OpLoad, op_load
from latmon.findings.program_ios import ios_by_program
from latmon.findings.quiet_times import DISCARDS, discard_share, is_without, time_of
from latmon.findings.quiet_times import OPS as OPS_OF_PROGRAMS
from latmon.findings.rule import (
    LATENCIES,
    NOTICE,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    plain,
    setting,
    short_text,
    sysfs,
    within,
)
from latmon.model import measurements
from latmon.model.frame import OPS, Device, Flow
from latmon.model.stages import plural_of_op
from latmon.support.units import counted, part, spelled

ID = "maintenance"
_COUNTED = (measurements.KERNEL, measurements.SEEN)
_MORE = 2.0
"""How many times as many, or as large, the programs' own I/Os may become."""
_BY_KERNEL, _BY_TOOL = "as of at most a minute ago", "as a tool reports it every five minutes"
"""Ages of reports: Device.reports."""
_SELF_TESTS = {1: "short self-test", 2: "extended self-test"}
_SHARE_OF_RUNS = 0.5
"""Least share of a block in which work that is no discard ran, so that the block counts as one with it."""
_MOST_OF_OP = 0.5
"""Share of the I/Os of an op from which on they are those of a thread's work, or a program is named for them."""
_NAME_CELLS = 12
_THREAD_STEPS: Mapping[str, tuple[Step, ...]] = MappingProxyType(
    {
        "ext4lazyinit": (
            Step(
                "let it wait longer after each group of blocks: with init_itable=N it waits N times as long as the "
                "last one took (10 where nothing is set); it ends when all inode tables are zeroed",
                "it takes longer until then; undone by the old value",
                ("mount -o remount,init_itable=100 /MOUNT",),
            ),
            Step(
                "let mkfs zero them where the next file system is made: mkfs.ext4 -E lazy_itable_init=0",
                "mkfs is slower",
            ),
        ),
        "f2fs_gc": (
            Step("see whether it is told to hurry, and how full the file system is", commands=("df -h /MOUNT",)),
            Step(
                "let it work while the device is idle",
                "the file system has fewer free segments until then; undone by the old value",
                ("echo 0 > /sys/fs/f2fs/DEVICE/gc_urgent",),
            ),
        ),
        "btrfs-cleaner": (
            Step("see which subvolumes are still to be removed", commands=("btrfs subvolume list -d /MOUNT",)),
            Step("delete snapshots at night, a few at a time", "they take up space until then"),
        ),
        "bcache_writeback": (
            Step("see how much is still to be written", commands=("cat /sys/block/bcache0/bcache/dirty_data",)),
            Step(
                "let it write slower",
                "the cache has less room for writes; undone by the old value",
                ("echo 8192 > /sys/block/bcache0/bcache/writeback_rate_minimum",),
            ),
        ),
    }
)
"""Work of a thread -> what to do about it."""
_REFUTED = "the I/Os take as long after the work has ended, or while it is paused"


class _Effect(NamedTuple):
    """I/Os of an op while the work ran and while it did not: their number meanwhile, and their mean times."""

    device: str
    op: str
    ios: int
    during_us: float
    otherwise_us: float
    until_us: int | None
    """CLOCK_MONOTONIC of the end of the time before the work; None where it did not run in a part of the minute."""

    @property
    def times(self) -> float:
        return self.during_us / self.otherwise_us

    @property
    def added_us(self) -> float:
        return (self.during_us - self.otherwise_us) * self.ios


class _Work(NamedTuple):
    """Work that ran in the window."""

    device: Device
    name: str
    lasted_us: int
    effect: _Effect | None
    """None: the I/Os of programs did not become slower, or that isn't known."""
    sufferer: str = ""
    """The program that issues most of the I/Os that became slower; empty: not known, or none issues most."""


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device on which work runs."""
    for name in sorted(facts.devices):
        device = facts.device(name)
        work = (
            _kernel_work(facts, device, limits)
            or _thread_work(facts, device, limits)
            or _discards(facts, device, limits)
        )
        if work is not None:
            yield _finding(facts, work)
        elif (reported := _by_tools(device)) and _has_io(facts, name):
            yield _finding(facts, _Work(device, reported, 0, None))
        elif missing := _missing_disks(device):
            yield _degraded(facts, device, missing)


def _kernel_work(facts: Facts, device: Device, limits: Thresholds) -> _Work | None:
    """Return what the kernel does with an array or a file system at the end of the window."""
    running = [row.work for row in facts.window[-1][measurements.MAINTENANCE] if row.device == device.name]
    if not running:
        return None
    name = running[0]
    work = measurements.Maintenance(device.name, name)
    effect = _effect(facts, device, work, _runs(work), limits)
    return _Work(device, name, sum(time_of(block, work) for block in facts.window), effect)


def _runs(work: measurements.Maintenance) -> Callable[[Block], bool]:
    """Return a test of a block for the work having run in most of it."""
    return lambda block: time_of(block, work) >= _SHARE_OF_RUNS * block.span_us


def _thread_work(facts: Facts, device: Device, limits: Thresholds) -> _Work | None:
    """Return what a thread of the kernel does at the end of the window, where the I/Os of programs are slower."""
    works = {
        row.work for block in facts.window for row in maintenance_threads.shares(block) if row.device == device.name
    }
    for name in sorted(works):
        row = measurements.Maintenance(device.name, name)

        def is_busy(block: Block, row: measurements.Maintenance = row) -> bool:
            return maintenance_threads.runs(block, row, limits["busy"])

        busy = [block for block in facts.window if is_busy(block)]
        if not busy or busy[-1] is not facts.window[-1]:
            continue
        ops = [op for op in OPS_OF_PROGRAMS if not _is_most_of_op(busy, row, op)]
        effect = _effect(facts, device, row, is_busy, limits, ops=ops)
        if effect is not None:
            lasted_us = sum(block.span_us for block in busy)
            return _Work(device, name, lasted_us, effect, _sufferer(busy, effect))
    return None


def _is_most_of_op(blocks: Sequence[Block], row: measurements.Maintenance, op: str) -> bool:
    """Return whether most I/Os of an op are those of a thread's work."""
    by_program = [ios for ios in ios_by_program(blocks, row.device) if ios.op == op]
    own = sum(ios.latency.count for ios in by_program if maintenance_threads.is_thread_of(row.work, ios.name))
    return own > _MOST_OF_OP * sum(ios.latency.count for ios in by_program)


def _sufferer(blocks: Sequence[Block], effect: _Effect) -> str:
    """Return the program that issues most of the I/Os of the effect's op; empty: none does, or not known."""
    by_program = [ios for ios in ios_by_program(blocks, effect.device) if ios.op == effect.op]
    program_ios = max(by_program, key=lambda ios: ios.latency.count, default=None)
    if program_ios is None or program_ios.is_of_kernel:
        return ""
    return (
        program_ios.name
        if program_ios.latency.count > _MOST_OF_OP * sum(ios.latency.count for ios in by_program)
        else ""
    )


def _discards(facts: Facts, device: Device, limits: Thresholds) -> _Work | None:
    """Return the discards of a device, where they took much of its time in the last block."""
    if device.name not in facts.once("devices with discards", lambda: _with_discards(facts)):
        return None

    def is_busy(block: Block) -> bool:
        return discard_share(block, device.name) >= limits["busy"]

    busy = [block for block in facts.window if is_busy(block)]
    times = mean_time_of(busy, device.name, "discard")
    if times is None or busy[-1].end_us <= facts.window[-1].begin_us or times.ios < limits["discards"]:
        return None
    effect = None
    if _discard_share(busy, device.name) >= limits["part"]:
        effect = _effect(facts, device, measurements.Maintenance(device.name, DISCARDS), is_busy, limits)
    lasted_us = sum(block.span_us for block in busy)
    is_most = _discard_share(facts.window, device.name) >= limits["share"]
    if effect is None and not (is_most and facts.lasts(lasted_us, limits["lasting_us"])):
        return None
    return _Work(device, DISCARDS, lasted_us, effect)


def _with_discards(facts: Facts) -> frozenset[str]:
    rows = (row for table in _COUNTED for row in facts[table].items())
    return frozenset(flow.device for flow, done in rows if flow.op == "discard" and done.count)


def _time_us(blocks: Sequence[Block], device: str, *ops: str) -> float:
    """Return the time of all I/Os of these ops; of a probe without sums by the kernel's counters."""
    means = (mean_time_of(blocks, device, op) for op in ops)
    return sum(times.ios * times.mean_us for times in means if times is not None)


def _discard_share(blocks: Sequence[Block], device: str) -> float:
    """Return the part of the time of all I/Os in these blocks that discards took."""
    whole_us = _time_us(blocks, device, *OPS)
    return _time_us(blocks, device, "discard") / whole_us if whole_us else 0.0


def _by_tools(device: Device) -> str:
    """Return the work that a tool reports: a scan of a pool, or the test that a drive's log says it runs; or empty."""
    scan = device.reported_value("zfs_scan")
    if isinstance(scan, str):
        return scan
    kind = device.reported_value("self_test")
    return _SELF_TESTS.get(kind, "self-test") if isinstance(kind, int) and kind else ""


def _has_io(facts: Facts, name: str) -> bool:
    return facts.has_io(name) or facts.completed(name) is not None


def _missing_disks(device: Device) -> int:
    missing = device.reported_value("degraded")
    return missing if isinstance(missing, int) else 0


def _effect(
    facts: Facts,
    device: Device,
    work: measurements.Maintenance,
    runs: Callable[[Block], bool],
    limits: Thresholds,
    *,
    ops: Sequence[str] = OPS_OF_PROGRAMS,
) -> _Effect | None:
    """Return the op of the device, or of a disk below an array without times, that lost most time to the work."""
    is_timed = facts.completed(device.name, *OPS_OF_PROGRAMS) or facts.has_io(device.name)
    flows = [Flow(name, op) for name in ((device.name,) if is_timed else device.members) for op in ops]
    during = [block for block in facts.blocks if runs(block)]
    otherwise = [block for block in facts.blocks if is_without(work)(block)]
    beside = [_effect_on(flow, op_load(otherwise, *flow), None, during, limits) for flow in flows]
    before = None if facts.quiet is None else facts.quiet.before(work)
    if before is not None and not any(beside):
        beside = [_effect_on(flow, before.loads.get(flow), before.end_us, during, limits) for flow in flows]
    effects = [effect for effect in beside if effect is not None]
    return max(effects, key=lambda effect: effect.added_us, default=None)


def _effect_on(
    flow: Flow, quick: OpLoad | None, until_us: int | None, during: list[Block], limits: Thresholds
) -> _Effect | None:
    """Return how much longer the I/Os of an op take than `quick`; None where that isn't due to the work, or unknown."""
    slow = op_load(during, *flow)
    if slow is None or quick is None or min(slow.ios, quick.ios) < limits["ios"]:
        return None
    if slow.iops > _MORE * quick.iops:
        return None
    # What was before is older: programs may issue other I/Os by now.
    if until_us is not None and not 1 / _MORE <= (slow.size or 1) / (quick.size or 1) <= _MORE:
        return None
    if slow.mean_us < limits["times"] * quick.mean_us or slow.mean_us - quick.mean_us < limits["more_us"]:
        return None
    return _Effect(flow.device, flow.op, slow.ios, slow.mean_us, quick.mean_us, until_us)


def _finding(facts: Facts, work: _Work) -> Finding:
    name, effect = work.device.name, work.effect
    at = _progress(work.device)
    lasted = f" for {spelled(work.lasted_us)} of the last minute" if work.lasted_us else ""
    summary = f"{name}: {_in_words(work)}{at}{lasted}"
    if effect is not None:
        when = "else" if effect.until_us is None else "before it"
        summary += (
            f"; {effect.op}s{_of(work)} take {spelled(effect.during_us)} on average meanwhile, "
            f"{when} {spelled(effect.otherwise_us)}"
        )
    return Finding(
        id=ID,
        severity=NOTICE if effect is None else WARNING,
        device=name,
        summary=summary,
        facts=tuple(_facts(facts, work)),
        where=Where("overview", name),
        steps=tuple(_steps(work)),
        refuted_by=_REFUTED,
        share=_share(facts, work),
        also=work.device.members,
        state=(work.name, ""),
        short=_short(work),
    )


def _short(work: _Work) -> str:
    """Return the short text: what it costs, and the work."""
    name, effect = work.device.name, work.effect
    runs = f"{within(_in_words(work), 36)}{_progress(work.device)}"
    if effect is None:
        return short_text(name, runs)
    whose = f" of {within(work.sufferer, _NAME_CELLS)}" if work.sufferer else ""
    took = f"{plural_of_op(effect.op)}{whose} take {spelled(effect.during_us)}, else {spelled(effect.otherwise_us)}"
    return short_text(name, took, f": {work.name} runs" if work.name in WORKS else f": {runs}")


def _in_words(work: _Work) -> str:
    if work.name == DISCARDS:
        return "a storm of discards runs"
    if work.name in WORKS:
        return f"{work.name} {WORKS[work.name].does}"
    return f"{work.name} runs" if work.name.startswith(("md ", "btrfs ", "zfs ")) else f"its {work.name} runs"


def _of(work: _Work) -> str:
    """Return whose I/Os became slower, as the end of a noun."""
    if work.effect is not None and work.effect.device != work.device.name:
        return f" of {work.effect.device}"
    return f" of {work.sufferer}" if work.sufferer else ""


def _progress(device: Device) -> str:
    """Return how far the work is, as of its last reading; empty where that isn't known."""
    for name in ("sync_percent", "zfs_scan_percent", "self_test_percent"):
        done = device.reported_value(name)
        if isinstance(done, int):
            return f" ({done} % done)"
    return ""


def _share(facts: Facts, work: _Work) -> float:
    effect = work.effect
    if effect is None or not facts.span_us:
        return 0.0
    return (1 - effect.otherwise_us / effect.during_us) * min(1.0, work.lasted_us / facts.span_us)


def _facts(facts: Facts, work: _Work) -> Iterator[Fact]:
    device, effect = work.device, work.effect
    lasted = f"for {spelled(work.lasted_us)} of the last minute" if work.lasted_us else _BY_TOOL
    yield Fact("work", work.name, f"{work.name}, {lasted}")
    if effect is not None:
        name = f" of {effect.device}"
        text = f"{effect.op}s{name} take {spelled(effect.during_us)} on average while it runs"
        yield Fact("during_us", round(effect.during_us), text, "us", effect.ios)
        when = "while it does not"
        if effect.until_us is not None:
            when = f"in the minute before it began, {spelled(facts.end_us - effect.until_us)} ago"
        text = f"{effect.op}s{name} take {spelled(effect.otherwise_us)} on average {when}"
        yield Fact("otherwise_us", round(effect.otherwise_us), text, "us")
    else:
        yield Fact("effect", 0, "no I/Os were seen to take longer meanwhile, as far as there is a time without it")
    if work.name == DISCARDS:
        yield from _discard_facts(facts, device.name)
    for name, text, age in (
        ("sync_percent", "done: {} %", _BY_KERNEL),
        ("sync_speed", "speed: {:,} KiB/s", _BY_KERNEL),
        ("degraded", "missing disks: {}", _BY_KERNEL),
        ("zfs_scan_percent", "done: {} %", _BY_TOOL),
        ("self_test_percent", "done: {} %", _BY_TOOL),
    ):
        value = device.reported_value(name)
        if isinstance(value, int) and (value or name != "degraded"):
            yield Fact(name, value, f"{text.format(value)}, {age}")
    if device.members:
        yield Fact("members", ", ".join(device.members), f"it is on {', '.join(device.members)}")


def _discard_facts(facts: Facts, name: str) -> Iterator[Fact]:
    share, times = _discard_share(facts.window, name), mean_time_of(facts.window, name, "discard")
    text = f"discards take {part(share)} of the time of its I/Os"
    yield Fact("discard_share", round(share, 3), text, "share", None if times is None else times.ios)
    if times is not None:
        text = f"a discard takes {spelled(times.mean_us)} on average"
        yield Fact("discard_us", round(times.mean_us), text, "us", times.ios)
    issuers = Counter[str]()
    for issuer, done in facts[measurements.ISSUERS].items():
        if issuer.device == name and issuer.op == "discard":
            issuers[issuer.comm if issuer.is_process else issuer.name] += done.count
    for at, (issuer_name, count) in enumerate(issuers.most_common(2), 1):
        yield Fact(f"issuer_{at}", issuer_name, f"{counted(count, 'discard')} by {issuer_name}", "ios")


def _steps(work: _Work) -> Iterator[Step]:
    name = work.device.name if plain(work.device.name) else "DEVICE"
    kind, _, action = work.name.partition(" ")
    if kind == "md":
        yield Step("see how far it is, and when it ends", commands=("cat /proc/mdstat",))
        yield Step(
            "let it run slower while programs wait",
            "it takes longer; a rebuild that takes longer leaves the array without its redundancy for longer",
            (setting(f"{sysfs(name)}/md/sync_speed_max", 10_000),),
        )
        if action in ("check", "repair"):
            yield Step(
                "stop it, and let the timer start it at night (mdcheck_start.timer, /etc/cron.d/mdadm)",
                "none for the data: it is checked another time",
                (setting(f"{sysfs(name)}/md/sync_action", "idle"),),
            )
    elif kind == "btrfs":
        status = "scrub" if action == "scrub" else "balance"
        yield Step("see how far it is", commands=(f"btrfs {status} status /MOUNT", "btrfs filesystem show"))
        if action == "scrub":
            yield Step(
                "let it run slower while programs wait (Linux 5.14), or stop it and let it go on at night",
                "none for the data; undone by btrfs scrub limit -a -l 0 /MOUNT (no limit), and by btrfs scrub resume",
                ("btrfs scrub limit -a -l 20m /MOUNT", "btrfs scrub cancel /MOUNT"),
            )
        if action == "balance":
            yield Step(
                "pause it while programs wait, and let it go on at night",
                "none for the data; it is resumed by btrfs balance resume",
                ("btrfs balance pause /MOUNT",),
            )
    elif work.name in WORKS:
        yield from _THREAD_STEPS[work.name]
    elif work.name == DISCARDS:
        yield Step("see who discards: screen 7", commands=("systemctl list-timers fstrim.timer",))
        yield Step(
            "trim in smaller pieces or at night: fstrim.timer, and not the mount option discard on a slow device",
            "the device has fewer free blocks until then, so that its writes may become slower",
        )
        yield Step(
            "let the kernel send smaller discards",
            "a trim takes longer; undone by the old value",
            (setting(f"{sysfs(name)}/queue/discard_max_bytes", 1 << 26),),
        )
    elif kind == "zfs":
        yield Step("see how far it is", commands=("zpool status",))
        if action.startswith("scrub"):
            yield Step(
                "pause it while programs wait, and let it go on at night (zpool scrub)",
                "none for the data: it is checked later",
                ("zpool scrub -p POOL",),
            )
    else:
        yield Step("see how far it is", commands=(f"nvme self-test-log /dev/{name}",))
        yield Step(
            "abort it where programs wait, and start it at night",
            "none for the data: the drive is tested another time",
            (f"nvme device-self-test /dev/{name} --self-test-code=0xf",),
        )


def _degraded(facts: Facts, device: Device, missing: int) -> Finding:
    disks = device.reported_value("raid_disks")
    of_all = f" of {disks}" if disks is not None else ""
    name = device.name if plain(device.name) else "DEVICE"
    lacks = (
        f"{counted(missing, 'disk')}{of_all} of the array is missing"
        if missing == 1
        else (f"{counted(missing, 'disk')}{of_all} of the array are missing")
    )
    return Finding(
        id=ID,
        severity=NOTICE,
        device=device.name,
        summary=f"{device.name}: {lacks}: reads of their data take I/Os of the others, and no other disk may fail",
        facts=(Fact("degraded", missing, f"missing disks: {missing}{of_all}"), *maintenance_of(facts, device.name)),
        where=Where("overview", device.name),
        steps=(
            Step("see which disk is missing, and why", commands=(f"mdadm --detail /dev/{name}", "cat /proc/mdstat")),
            Step(
                "replace it",
                "the rebuild makes all I/Os slower, and a second failure meanwhile loses the array",
                (f"mdadm --manage /dev/{name} --add /dev/NEW",),
            ),
        ),
        refuted_by="the array has all of its disks (mdadm --detail)",
        also=device.members,
        state=("degraded", ""),
        short=short_text(device.name, lacks, ": no other may fail"),
    )


RULE = Rule(
    ID,
    "an array is checked or lacks a disk, a file system is balanced or initialised, a drive tests itself, or discards "
    "take time",
    evaluate,
    needs=LATENCIES,
    thresholds={
        "times": Threshold(2.0, "times", "as long I/Os take on average while it runs, at least: a warning"),
        "more_us": Threshold(200, "us", "longer at least"),
        "ios": Threshold(100, "ios", "of one op at least, while it runs and while it does not"),
        "busy": Threshold(0.2, "share", "of a block's time discards take at least, all together"),
        "part": Threshold(0.2, "share", "of the time of all I/Os in discards at least, where others are slower"),
        "share": Threshold(0.5, "share", "of the time of all I/Os in discards at least, where no others are slower"),
        "discards": Threshold(10, "ios", "discards at least"),
        "lasting_us": Threshold(12_000_000, "us", "of discards at least, where no others are slower"),
    },
)
