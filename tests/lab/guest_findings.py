"""Inside a lab guest: loads without and then with an effect that a rule should name, all in one recording of latmon's.

    guest_findings.py LOAD... RESULT

Runs with the guest's own Python, like guest_stages.py beside it. The recording is beside the result, which records when
each load and each effect began and ended; who asked cuts it there. One recording, because to start the probes takes an
emulated guest minutes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "helpers"), *os.environ["PYTHONPATH"].split(":")]

from guest_counts import disks  # noqa: E402 - its place is known only now
from guest_outstanding import attribute, reads, scsi_debug  # noqa: E402
from guest_stages import ON_DEMAND_S, Told, hogs, mapped, run  # noqa: E402
from terminal import wait_for  # noqa: E402
from workload import Capture, now_us  # noqa: E402

WORK = Path("/tmp/latmon-lab")
CALM_S = 32.0
REST_S = 6.0
SICK_S = 66.0
"""A rule has 60 s to see it; bpftrace is some seconds behind in an emulated guest."""
BEHIND_S = 3.0
INTERVAL = "2s"
"""Fewer frames are less work for an emulated CPU."""
POLL_S = 3.0
"""To read a recording takes an emulated CPU a while, which the probes need."""
BUSY_S, FREE_S = 0.4, 0.1
"""A hog's: what it holds up takes longer than the disk does."""
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
HELD = 3
TIMEOUT_S = 600
"""No error handler comes in between."""
HOST_BUSY = 0x8000
EVERY = 2
"""Of scsi_debug's commands the host takes every second one only at the next try."""
ABOVE_HOGS, ABOVE_ALL = 70, 80
"""The hogs have 60: the load and the measurement don't wait for them, only what completes I/Os does."""

Switch = Callable[[], contextlib.AbstractContextManager[object]]


class Load:
    """fio on these devices, and what makes the effect beside it."""

    def __init__(self, *names: str, iodepth: int, fifo: int = 0) -> None:
        self.names, self.fifo, self.sick = names, fifo, names
        self.effects: dict[str, Switch] = {}
        """One after the other."""
        options = {"direct": 1, "ioengine": "libaio", "bs": "4k", "time_based": 1, "runtime": LOAD_S, "randrepeat": 0}
        options |= {"rw": "randread", "iodepth": iodepth, "size": "48M", "group_reporting": 1}
        words = ["fio", "--thread", *(f"--{name}={value}" for name, value in options.items())]
        for name in names:
            words += [f"--name={name}", f"--filename=/dev/{name}"]
        self._words = [*(("chrt", "--fifo", str(fifo)) if fifo else ()), *words]

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


def urgent() -> None:
    """The measurement doesn't wait for hogs; its start can't go before the kernel's own threads, which it needs."""
    mine = psutil.Process(os.getpid())
    for process in (mine, *mine.children(recursive=True)):
        for thread in process.threads():
            os.sched_setscheduler(thread.id, os.SCHED_FIFO, os.sched_param(ABOVE_ALL))


def say(what: str) -> None:
    """Print a step with its time, for readers of the log."""
    print(f"{time.monotonic():.0f} s: {what}", flush=True)


def made(load: Load) -> dict[str, Told]:
    """When the load ran alone, and when with each of its effects."""
    reported = {}
    with load.on():
        time.sleep(REST_S)  # to begin takes fio a while, in which it is urgent itself
        begun_us = now_us()
        time.sleep(CALM_S)
        calm = [begun_us, now_us()]
        for name, effect in load.effects.items():
            time.sleep(REST_S)
            effect_us = now_us()
            say(f"{name} begins")
            with effect():
                time.sleep(SICK_S)
                reported[name] = {"devices": load.sick, "calm_us": calm, "sick_us": [effect_us, now_us()]}
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
    """A SCSI host that is busy for every second command, then a disk that never answers a few reads."""
    load = Load(debug_disk(), iodepth=1)
    pace(QUICK_MS)

    @contextlib.contextmanager
    def requeues() -> Iterator[None]:
        (DRIVER / "every_nth").write_text(str(EVERY))
        (DRIVER / "opts").write_text(hex(HOST_BUSY))
        yield
        (DRIVER / "opts").write_text("0")
        (DRIVER / "every_nth").write_text("0")

    @contextlib.contextmanager
    def starved() -> Iterator[None]:
        attribute(*load.sick, "device/timeout", TIMEOUT_S)
        (faults,) = Path("/sys/kernel/debug/scsi_debug").glob("[0-9]*:*/error")
        faults.write_text(f"0 -{HELD} 0x28\n")  # READ(10): so many are never answered
        yield

    load.effects.update(requeues=requeues, starved=starved)
    return load


def peers() -> Load:
    """Six disks alike; what is below one of them waits longer."""
    run("modprobe", "null_blk", f"nr_devices={PEERS}", "gb=1")
    run("modprobe", "dm_delay")
    run("modprobe", "loop")
    tables = [f"0 131072 delay /dev/nullb{number} 0" for number in range(PEERS)]
    loops = []
    for number, table in enumerate(tables):
        mapped(f"v{number}", f"{table} {DELAYED_MS}")
        loops.append(run("losetup", "--find", "--show", "--direct-io=on", f"/dev/mapper/v{number}").strip())
    load = Load(*(Path(one).name for one in loops), iodepth=1)
    load.sick = (load.names[SLOW_ONE],)

    @contextlib.contextmanager
    def slower() -> Iterator[None]:
        volume = f"v{SLOW_ONE}"
        run("dmsetup", "suspend", "--nolockfs", volume)
        run("dmsetup", "load", volume, "--table", f"{tables[SLOW_ONE]} {SLOW_MS}")
        run("dmsetup", "resume", "--noudevsync", volume)
        yield

    load.effects["peers"] = slower
    return load


def threads() -> Load:
    """What completes I/Os runs below hogs: the guest is booted with threadirqs, so the NVMe disk's interrupt is a
    thread, and of what scsi_debug's timer raises only ksoftirqd runs the softirq."""
    name = debug_disk()
    pace(QUICK_MS)
    load = Load(*(disk for disk in disks() if disk.startswith("nvme")), name, iodepth=1, fifo=ABOVE_HOGS)
    load.effects["hogs"] = functools.partial(hogs, BUSY_S, FREE_S)
    return load


LOADS: dict[str, Callable[[], Load]] = {one.__name__: one for one in (ceiling, depth, disk, peers, threads)}


def main(*words: str) -> None:
    *names, result = words
    WORK.mkdir(exist_ok=True)
    COUNTED.write_text("1")
    loads = [LOADS[name]() for name in names]
    say("loads are there")
    with Capture(WORK, "--backend", "bpftrace", "--stages", "all", "--interval", INTERVAL) as capture:
        say("the first frame came")
        capture.watch.stop()  # it takes an emulated CPU, and no counters are wanted
        if not wait_for(lambda: any(frame.traced.one_in for frame in capture.frames()), ON_DEMAND_S, POLL_S):
            sys.exit(f"no stages were traced within {ON_DEMAND_S:.0f} s: {capture.stop()} {capture.stderr}")
        say("stages are traced")
        if any(load.fifo for load in loads):
            urgent()
        reported = {effect: one for load in loads for effect, one in made(load).items()}
        time.sleep(BEHIND_S)
        code, stderr = capture.stop(), capture.stderr
    shutil.copy(capture.file, Path(result).parent / "all.latmon.jsonl.gz")
    Path(result).write_text(
        json.dumps({"kernel": os.uname().release, "exit": code, "stderr": stderr, "effects": reported})
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
