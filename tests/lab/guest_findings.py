"""Inside a lab guest: loads without and then with an effect that a rule should name, all in one recording of latmon's.

    guest_findings.py LOAD... RESULT

Runs with the guest's own Python, like guest_stages.py beside it. The recording is beside the result, which records when
each load and each effect began and ended; who asked cuts it there. One recording, because to start the probes takes an
emulated guest minutes. Some effects are harmless twins of others: no rule should name them.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "helpers"), *os.environ["PYTHONPATH"].split(":")]

from guest_counts import disks  # noqa: E402 - its place is known only now
from guest_outstanding import attribute, reads, scsi_debug  # noqa: E402
from guest_stages import ON_DEMAND_S, Told, hogs, mapped, run  # noqa: E402
from terminal import wait_for  # noqa: E402
from workload import Capture, now_us  # noqa: E402

WORK = Path("/tmp/latmon-lab")
CALM_S = 32.0
REST_S = 10.0
"""The records of an effect's last I/Os come some seconds later."""
SICK_S = 66.0
"""A rule has 60 s to see it; bpftrace is some seconds behind in an emulated guest."""
BEHIND_S = 3.0
"""The probes print what belongs to a moment up to so much later."""
INTERVAL = "5s"
"""The blocks of rules are as long. Fewer frames are less work for an emulated CPU, which does little else."""
POLL_S = 3.0
"""To read a recording takes an emulated CPU a while, which the probes need."""
BUSY_S, FREE_S, OTHER_S = 0.4, 0.1, 0.7
"""A hog's: what it holds up takes longer than the disk does. The other process has the longest waits, the hog most."""
BELOW_THREADS, BELOW_HOGS = 40, 30
"""The interrupt threads have 50."""
DRIVER = Path("/sys/bus/pseudo/drivers/scsi_debug")
COUNTED = Path("/proc/sys/kernel/bpf_stats_enabled")
"""On from the beginning: to switch it the kernel patches its code, into which emulated CPUs run (guests.py)."""
LOAD_S = 600
"""Longer than any recording: it is ended with it."""
DELAY_MS = 100
"""So slow that the guest, not the disks, waits: emulated probes keep up with some hundred I/Os a second."""
QUICK_MS = 10
"""So quick that to be sent again takes longer."""
PEERS = 6
DELAYED_MS, SLOW_MS, SLOW_ONE = 28, 240, 3
"""dm-delay's, by the kernel's tick of 4 ms."""
RARE_AT, RARE = 40_960, 2_048
"""Begin and length of a slow part of a volume in sectors: 2.1 % of the 48 MiB that fio reads at random."""
HELD = 3
TIMEOUT_S = 600
"""No error handler comes in between."""
HOST_BUSY = 0x8000
REFUSED_MS = 20
"""A command takes so long on a host that refuses some; a refused one is sent again after 50 ms."""
EVERY = {"requeues": 2, "some_requeues": 4, "few_requeues": 16}
"""Of scsi_debug's commands the host takes every so many only at the next try."""
RING_IODEPTH = 32
"""Its ring has 32 descriptors, and no indirect ones: 16 tags, and room for ten reads, which need three each."""
SERVICE_US = 10_000
SHORT_US = 100
"""Far less than a tick of the kernel, which is nearly all of the time of an I/O that waits for it."""
GATED_MS, GATE_MS = 50, 500
"""A read takes so long, and the queue runs once in so long: it waits for the rest."""
LOST_MS, DRAWN_MS = 40, 20
POLLED_PAUSE_US = 40_000
FEW_TAGS = 4
"""The least that the kernel allows."""
STRANGER_MS = 4
HANDLER_MS = 2
"""The slow handler's; the disk takes 4 ms."""
IDLE_READS = 3
ADMIN_COMMAND = 0xC0484E41  # NVME_IOCTL_ADMIN_CMD, linux/nvme_ioctl.h
GET_FEATURES, NUMBER_OF_QUEUES = 0x0A, 7
ADMIN_S = 0.02
"""Between two commands of a program that monitors the disk's controller."""
ABOVE_HOGS = 70
"""The hogs have 60: the load doesn't wait for them, only what completes I/Os does."""
LOADED_CPU, OTHER_CPU = 0, 1
"""An emulated CPU that measures is busy for half a second at a time, which would delay interrupt threads, too."""

Switch = Callable[[], contextlib.AbstractContextManager[Told | None]]
"""It may yield what is known of the effect, complete at its end."""


class Load:
    """fio on these devices, and what makes the effect beside it."""

    def __init__(
        self, *names: str, iodepth: int, fifo: int = 0, cpu: int | None = None, beside: str = "", **more: object
    ) -> None:
        """`beside`: options of another fio job on each device; `cpu`: of the jobs, the measurement is on the other one;
        `more`: options of all jobs. fio itself, which sleeps for 10 ms again and again, is on LOADED_CPU then."""
        self.names, self.fifo, self.sick = names, fifo, names
        self.cpu = LOADED_CPU if fifo else cpu
        self.effects: dict[str, Switch] = {}
        """One after the other."""
        self.prepare: Callable[[], object] = int
        """Called before it begins: loads that follow each other use the same disks."""
        more |= {} if self.cpu is None else {"cpus_allowed": self.cpu}
        options = {"direct": 1, "ioengine": "libaio", "bs": "4k", "time_based": 1, "runtime": LOAD_S, "randrepeat": 0}
        options |= {"rw": "randread", "iodepth": iodepth, "size": "48M", "group_reporting": 1, **more}
        words = ["fio", "--thread", *(f"--{name}={value}" for name, value in options.items())]
        for name in names:
            words += [f"--name={name}", f"--filename=/dev/{name}"]
            words += [f"--name={name}-beside", f"--filename=/dev/{name}", *beside.split()] if beside else []
        place = () if self.cpu is None else ("taskset", "--cpu-list", str(LOADED_CPU))
        self._words = [*place, *(("chrt", "--fifo", str(fifo)) if fifo else ()), *words]

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        self.begin()
        try:
            yield
        finally:
            self._process.kill()  # not waited for: it may be held

    def begin(self) -> None:
        """Returns when it reads."""
        before = {name: reads(name) for name in self.names}
        self._process = subprocess.Popen(self._words, cwd=WORK, stdout=subprocess.DEVNULL)
        wait_for(lambda: all(reads(name) > count for name, count in before.items()), 120, 0.5)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def lower(self, fifo: int) -> None:
        """Give all of its threads that real-time priority."""
        run("chrt", "--all-tasks", "--fifo", "--pid", str(fifo), str(self._process.pid))


def apart(cpu: int) -> None:
    """Move the measurement to that CPU, where it neither waits for hogs nor delays what the load waits for."""
    mine = psutil.Process(os.getpid())
    for process in (mine, *mine.children(recursive=True)):
        for thread in process.threads():
            os.sched_setaffinity(thread.id, {cpu})


def say(what: str) -> None:
    """Print a step with its time, for readers of the log."""
    print(f"{time.monotonic():.0f} s: {what}", flush=True)


def made(load: Load) -> dict[str, Told]:
    """When the load ran alone, and when with each of its effects."""
    reported = {}
    load.prepare()
    with load.on():
        time.sleep(REST_S)  # to begin takes fio a while, in which it is urgent itself
        begun_us = now_us()
        time.sleep(CALM_S)
        calm = [begun_us, now_us()]
        for name, effect in load.effects.items():
            time.sleep(REST_S)
            say(f"{name} begins")
            with effect() as known:
                effect_us = now_us()
                time.sleep(SICK_S)
                reported[name] = {"devices": load.sick, "names": load.names, "calm_us": calm}
                reported[name]["sick_us"] = [effect_us, now_us()]
            reported[name]["known"] = known
    return reported


@functools.cache
def debug_disk() -> str:
    (name,) = scsi_debug(f"ndelay={DELAY_MS * 1_000_000}", "max_queue=192")
    return name


def pace(ms: int) -> None:
    """Set the latency of scsi_debug's disks, while nothing is in flight."""
    (DRIVER / "ndelay").write_text(str(ms * 1_000_000))


def ceiling() -> Load:
    """A SCSI host that takes all commands, then one that takes three."""
    load = Load(debug_disk(), iodepth=16)

    @contextlib.contextmanager
    def narrow() -> Iterator[None]:
        load.end()
        wait_for(lambda: not subprocess.run(["modprobe", "-r", "scsi_debug"], check=False).returncode, 30, 1.0)
        if scsi_debug(f"ndelay={DELAY_MS * 1_000_000}", "max_queue=3") != list(load.names):
            sys.exit("the disk came back under another name")
        load.begin()
        yield

    load.effects["ceiling"] = narrow
    return load


def depth() -> Load:
    """A disk that is given three commands at a time."""
    load = Load(debug_disk(), iodepth=16)

    @contextlib.contextmanager
    def narrow() -> Iterator[None]:
        was = Path("/sys/block", *load.sick, "device/queue_depth").read_text()
        attribute(*load.sick, "device/queue_depth", 3)
        yield
        attribute(*load.sick, "device/queue_depth", was)

    load.effects["depth"] = narrow
    return load


def disk() -> Load:
    """A disk that never answers a few reads."""
    load = Load(debug_disk(), iodepth=1)
    pace(QUICK_MS)

    @contextlib.contextmanager
    def starved() -> Iterator[None]:
        attribute(*load.sick, "device/timeout", TIMEOUT_S)
        (faults,) = Path("/sys/kernel/debug/scsi_debug").glob("[0-9]*:*/error")
        faults.write_text(f"0 -{HELD} 0x28\n")  # READ(10): so many are never answered
        yield

    load.effects["starved"] = starved
    return load


def refusals() -> Load:
    """A SCSI host that is busy for some of the commands."""
    load = Load(debug_disk(), iodepth=1)
    pace(REFUSED_MS)

    @contextlib.contextmanager
    def busy(every: int) -> Iterator[None]:
        (DRIVER / "every_nth").write_text(str(every))
        (DRIVER / "opts").write_text(hex(HOST_BUSY))
        yield
        (DRIVER / "opts").write_text("0")
        (DRIVER / "every_nth").write_text("0")

    load.effects |= {name: functools.partial(busy, every) for name, every in EVERY.items()}
    return load


def ring() -> Load:
    """A virtio disk that is sent one read at a time, then more than its ring has room for."""
    (name,) = (disk for disk in disks() if disk.startswith("vd"))
    load, many = Load(name, iodepth=1), Load(name, iodepth=RING_IODEPTH)

    @contextlib.contextmanager
    def full_ring() -> Iterator[None]:
        load.end()
        with many.on():
            yield

    load.effects["full_ring"] = full_ring
    return load


def peers() -> Load:
    """Six disks alike; what is below one of them waits longer: for all reads, for some, and for some on all of them."""
    run("modprobe", "null_blk", f"nr_devices={PEERS}", "gb=1")
    run("modprobe", "dm_delay")
    run("modprobe", "loop")
    loops = []
    for number in range(PEERS):
        mapped(f"v{number}", delayed(number, DELAYED_MS))
        loops.append(run("losetup", "--find", "--show", "--direct-io=on", f"/dev/mapper/v{number}").strip())
    load = Load(*(Path(loop).name for loop in loops), iodepth=1)
    load.sick = (load.names[SLOW_ONE],)

    @contextlib.contextmanager
    def slower(table: Callable[[int], str], *numbers: int) -> Iterator[None]:
        for number in numbers:
            remapped(number, table(number))
        yield
        for number in numbers:
            remapped(number, delayed(number, DELAYED_MS))

    load.effects["peers"] = functools.partial(slower, functools.partial(delayed, ms=SLOW_MS), SLOW_ONE)
    load.effects["rare"] = functools.partial(slower, rarely_delayed, SLOW_ONE)
    load.effects["rare_on_all"] = functools.partial(slower, rarely_delayed, *range(PEERS))
    return load


def delayed(number: int, ms: int, begin: int = 0, sectors: int = 131_072) -> str:
    """Return the line of a volume's table for a part of the disk below it."""
    return f"{begin} {sectors} delay /dev/nullb{number} {begin} {ms}"


def rarely_delayed(number: int) -> str:
    """Return the table of a volume with a slow part."""
    remainder = RARE_AT + RARE
    parts = ((0, RARE_AT, DELAYED_MS), (RARE_AT, RARE, SLOW_MS), (remainder, 131_072 - remainder, DELAYED_MS))
    return "\n".join(delayed(number, ms, begin, sectors) for begin, sectors, ms in parts)


def remapped(number: int, table: str) -> None:
    """Give a volume another table while it is in use."""
    volume, file = f"v{number}", WORK / "table"
    file.write_text(table + "\n")
    run("dmsetup", "suspend", "--nolockfs", volume)
    run("dmsetup", "load", volume, str(file))
    run("dmsetup", "resume", "--noudevsync", volume)


def vector() -> Load:
    """A strange driver's slow handler on the line of an NVMe disk: behind the disk's own handlers, then before them,
    then with an idle disk whose controller is monitored. The guest is booted with pci=nomsi.

    Another disk controller's quick handler on that line runs before the disk's at all times.
    """
    run("modprobe", "megaraid_sas")  # it shares the line only where another driver already does
    reload_nvme()
    (name,) = (disk for disk in disks() if disk.startswith("nvme"))
    line = next(line for line in Path("/proc/interrupts").read_text().splitlines() if "nvme" in line)
    irq = line.split(":")[0].strip()
    load = Load(name, iodepth=1)

    @contextlib.contextmanager
    def behind() -> Iterator[None]:
        run("insmod", "/host/slow_handler.ko", f"irq={irq}", f"us={HANDLER_MS * 1000}")
        yield

    @contextlib.contextmanager
    def shared() -> Iterator[None]:
        load.end()
        reload_nvme()  # the disk's handlers are the last ones now
        load.begin()
        yield
        load.end()

    @contextlib.contextmanager
    def idle() -> Iterator[Told]:
        before, over, known = reads(name), threading.Event(), Told()
        with ThreadPoolExecutor() as pool:
            commands = pool.submit(monitored, name, over)
            for number in range(IDLE_READS):
                time.sleep(1)
                run("dd", f"if=/dev/{name}", "of=/dev/null", "bs=4096", "count=1", f"skip={number}", "iflag=direct")
            yield known
            over.set()
        known |= {"admin": commands.result(), "reads": reads(name) - before}

    load.effects |= {"behind": behind, "shared": shared, "idle": idle}
    return load


def reload_nvme() -> None:
    """Remove the NVMe disk's handlers and add them behind the others of the line."""
    run("modprobe", "-r", "nvme")
    run("modprobe", "nvme")
    if not wait_for(lambda: any(disk.startswith("nvme") for disk in disks()), 60, 0.5):
        sys.exit("the NVMe disk did not come back")


def monitored(name: str, over: threading.Event) -> int:
    """Ask a disk's controller for a feature again and again, which is no I/O and ends with an interrupt; how often."""
    command = (ctypes.c_uint32 * 18)(GET_FEATURES)  # struct nvme_admin_cmd
    command[10] = NUMBER_OF_QUEUES
    count = 0
    with Path("/dev", name).open("rb", buffering=0) as device:
        while not over.wait(ADMIN_S):
            fcntl.ioctl(device, ADMIN_COMMAND, command)
            count += 1
    return count


def threads() -> Load:
    """What completes I/Os runs below hogs: the guest is booted with threadirqs, so the NVMe disk's interrupt is a
    thread, and of what scsi_debug's timer raises only ksoftirqd runs the softirq."""
    name = debug_disk()
    pace(QUICK_MS)
    load = Load(*(disk for disk in disks() if disk.startswith("nvme")), name, iodepth=1, fifo=ABOVE_HOGS)
    load.effects["hogs"] = functools.partial(hogs, BUSY_S, FREE_S, other_s=OTHER_S, cpus={LOADED_CPU})

    @contextlib.contextmanager
    def lower_hogs() -> Iterator[Told]:
        """What completes the NVMe disk's I/Os runs before the hogs, fio doesn't."""
        load.lower(BELOW_HOGS)
        with hogs(BUSY_S, FREE_S, BELOW_THREADS, cpus={LOADED_CPU}) as used:
            yield used

    load.effects["lower_hogs"] = lower_hogs
    return load


MECHANISM = {
    "chained": "chained",
    "late_softirq": "softirq",
    "late_thread": "threaded",
    "lba_sorted": "single",
    "polled": "polled",
    "shared_line": "shared",
}
"""Loads whose disks aren't plain. sick_disk has two of each mechanism: the second one is the healthy twin."""
LIKE = 4
"""Plain disks behind them, one of which gets another distribution of latencies."""
DISKS: list[str] = []
"""The mechanism of each disk: only what the loads of this guest need, since each costs an emulated CPU time."""


def needed(names: Sequence[str]) -> Iterator[str]:
    """Yield the mechanisms of the disks that these loads need."""
    for one in sorted({MECHANISM.get(name, "plain") for name in names if name != "distributed"}):
        yield from (one, one)
    yield from ("plain",) * (LIKE * ("distributed" in names))


@functools.cache
def sick_disks(cpu: int) -> None:
    each = (f"us={','.join([str(SERVICE_US)] * len(DISKS))}", f"mechanism={','.join(DISKS)}")
    run("insmod", "/host/sick_disk.ko", f"disks={len(DISKS)}", f"cpu={cpu}", *each)


def put(disk: str, name: str, value: int) -> int:
    """Set a parameter of one of sick_disk's disks; return its last value."""
    file = Path("/sys/module/sick_disk/parameters", name)
    words, number = file.read_text().strip().split(","), int(disk.removeprefix("sick"))
    before, words[number] = int(words[number]), str(value)
    file.write_text(",".join(words))
    return before


def of_pair(
    mechanism: str,
    effect: str,
    *,
    us: int = SERVICE_US,
    values: Mapping[str, int] = MappingProxyType({}),
    alone: bool = False,
    iodepth: int = 1,
    cpu: int | None = None,
    **options: Any,
) -> Load:
    """Two disks of a mechanism under the same load, each I/O takes `us`; the effect sets parameters of the first.

    `alone`: the second one has no load. `options`: of the load.
    """
    sick_disks(LOADED_CPU if cpu is None else cpu)
    number = DISKS.index(mechanism)
    load = Load(*(f"sick{one}" for one in (number, number + 1)[: 2 - alone]), iodepth=iodepth, cpu=cpu, **options)
    load.sick = load.names[:1]
    return changing(load, effect, us, values)


def changing(load: Load, effect: str, us: int, values: Mapping[str, int]) -> Load:
    """Let the effect set parameters of the load's sick disk; each of its I/Os takes `us`."""

    @contextlib.contextmanager
    def sick() -> Iterator[None]:
        before = {name: put(*load.sick, name, value) for name, value in values.items()}
        time.sleep(2 * BEHIND_S)  # of what is in flight, and of the time before
        yield
        for name, value in before.items():
            put(*load.sick, name, value)

    def prepare() -> None:
        for current_name in load.names:
            put(current_name, "us", us)

    load.prepare = prepare
    load.effects[effect] = sick
    return load


def chained() -> Load:
    """Two handlers that a third one calls, one after the other: the stranger's is slow."""
    return of_pair("chained", "chained", values={"stranger": 1000 * STRANGER_MS})


def shared_line() -> Load:
    """Two handlers on one interrupt: the stranger's, which comes first, is slow."""
    return of_pair("shared", "shared_line", values={"stranger": 1000 * STRANGER_MS})


def rarely_slow() -> Load:
    """One I/O in two hundred takes 50 times as long."""
    return of_pair("plain", "rarely_slow", values={"rare": 200, "times": 50})


def refusing() -> Load:
    """A driver that takes three of sixteen requests, of the 64 that it says."""
    return of_pair("plain", "refusing", iodepth=16, us=1000 * DELAY_MS, values={"most": 3})


def gated() -> Load:
    """A driver that has room and stops its queue, as at a reset or a failover."""
    return of_pair("plain", "gated", iodepth=8, us=1000 * GATED_MS, values={"gate": GATE_MS})


def sent_back() -> Load:
    """A driver that sends every second request back, which is sent again AGAIN_MS later."""
    return of_pair("plain", "sent_back", values={"again": 2})


def never_completed() -> Load:
    """A read that isn't completed, while others are; the last load of a guest: fio waits for it."""
    return of_pair("plain", "never_completed", iodepth=4, us=1000 * LOST_MS, values={"lost": 1})


def few_tags() -> Load:
    """A queue depth of four: other reads wait for a tag."""
    load = of_pair("plain", "few_tags", iodepth=16, us=1000 * DELAY_MS)

    @contextlib.contextmanager
    def few() -> Iterator[None]:
        was = Path("/sys/block", *load.sick, "queue/nr_requests").read_text()
        attribute(*load.sick, "queue/nr_requests", FEW_TAGS)
        time.sleep(2 * BEHIND_S)
        yield
        attribute(*load.sick, "queue/nr_requests", was)

    load.effects["few_tags"] = few
    return load


def distributed() -> Load:
    """Four like disks with 50 reads a second each, one of which has a distribution of times: one read in a hundred
    takes 20 times as long."""
    sick_disks(LOADED_CPU)
    load = Load(*(f"sick{number}" for number in range(len(DISKS) - LIKE, len(DISKS))), iodepth=1)
    load.sick = load.names[:1]
    drawn = [DRAWN_MS] * 99 + [20 * DRAWN_MS]
    Path("/sys/module/sick_disk/parameters/drawn").write_text(",".join(str(1000 * ms) for ms in drawn))
    return changing(load, "distributed", 1000 * DRAWN_MS, {"random": 1})


def polled() -> Load:
    """Completion without an interrupt, in fio's poll: nothing is wrong with it. An emulated CPU that polls all of the
    time makes the guest's clock slow: fio sleeps between two reads."""
    return of_pair("polled", "polled", ioengine="io_uring", hipri=1, thinktime=POLLED_PAUSE_US)


def late_softirq() -> Load:
    """A softirq that is raised in a thread, without a wake-up of ksoftirqd: the timer's interrupt runs it. Those of
    another disk would, and so do those of other timers."""
    return of_pair("softirq", "late_softirq", alone=True, cpu=OTHER_CPU, values={"us": SHORT_US, "late": 1})


def late_thread() -> Load:
    """A completion thread that runs below hogs, and one above them; fio runs above all."""
    load = of_pair("threaded", "late_thread", fifo=ABOVE_HOGS)
    (twin,) = (one.pid for one in psutil.process_iter() if one.name() == f"sick_done/{DISKS.index('threaded') + 1}")
    run("chrt", "--fifo", "--pid", str(ABOVE_HOGS), str(twin))
    load.effects["late_thread"] = functools.partial(hogs, BUSY_S, FREE_S, cpus={LOADED_CPU})
    return load


def lba_sorted() -> Load:
    """A disk that serves by LBA, and reads far below those of a stream."""
    stream = "--rw=read --offset=100M --size=900M --iodepth=4"
    return of_pair("single", "lba_sorted", beside=stream, values={"sorted": 1})


_SCSI = (ceiling, depth, disk, refusals)
_SICK = (chained, late_softirq, late_thread, lba_sorted, rarely_slow, refusing, shared_line)
_MORE = (distributed, few_tags, gated, never_completed, polled, sent_back)
LOADS: dict[str, Callable[[], Load]] = {
    one.__name__: one for one in (*_SCSI, *_SICK, *_MORE, peers, ring, threads, vector)
}


def main(*words: str) -> None:
    *names, result = words
    WORK.mkdir(exist_ok=True)
    COUNTED.write_text("1")
    DISKS.extend(needed(names))
    loads = [LOADS[name]() for name in names]
    say("loads are there")
    with Capture(WORK, "--backend", "bpftrace", "--stages", "all", "--interval", INTERVAL) as capture:
        say("the first frame came")
        capture.watch.stop()  # it takes an emulated CPU, and no counters are wanted
        if not wait_for(lambda: any(frame.traced.one_in for frame in capture.frames()), ON_DEMAND_S, POLL_S):
            sys.exit(f"no stages were traced within {ON_DEMAND_S:.0f} s: {capture.stop()} {capture.stderr}")
        say("stages are traced")
        for cpu in {load.cpu for load in loads} - {None}:
            apart(LOADED_CPU + OTHER_CPU - cpu)
        reported = {effect: one for load in loads for effect, one in made(load).items()}
        time.sleep(BEHIND_S)
        code, stderr = capture.stop(), capture.stderr
    shutil.copy(capture.file, Path(result).parent / "all.latmon.jsonl.gz")
    Path(result).write_text(
        json.dumps({"kernel": os.uname().release, "exit": code, "stderr": stderr, "effects": reported})
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
