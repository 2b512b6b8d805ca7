"""Inside a lab guest: disks whose commands time out or are only slow, and arrays that are checked or lack a disk.

    guest_timeouts.py LOAD... RESULT

As guest_findings.py beside it: one recording of latmon's, and a result that has when each load and each effect began
and ended. Only the always-on probe runs, which an emulated guest starts in a fraction of the time.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "helpers"), *os.environ["PYTHONPATH"].split(":")]

from guest_counts import disks  # noqa: E402 - its place is known only now
from guest_findings import BEHIND_S, DRIVER, INTERVAL, WORK, Load, made, say  # noqa: E402
from guest_outstanding import attribute, scsi_debug  # noqa: E402
from guest_stages import Told, run  # noqa: E402
from terminal import wait_for  # noqa: E402
from workload import Capture  # noqa: E402

DELAY_MS, SLOW_MS = 100, 900
"""A command of scsi_debug's takes so long, and in the twin: it can take no second."""
TIMER_S = 4
IGNORED, EVERY = 0x4, 20
"""scsi_debug's option to answer nothing, and of how many commands."""
LOST_RESETS = "3 -1000000 0xff", "0 -1000000 0x28"
"""scsi_debug's errors: aborts fail, READ(10) isn't answered."""
NVME_DEEP, NVME_DEEPER = 16, 64
"""Reads in flight on a drive of 20 IOPS: 0.8 s each, and 3.2 s, longer than the guest's nvme_core.io_timeout of 2 s."""
ARRAY, MEMBER_MIB = "md0", 512
CHECK_KB_S = 2000
"""Slow enough for a check to outlast the recording."""


def time_outs_of(name: str) -> int:
    return int(Path("/sys/block", name, "device/iotmo_cnt").read_text(), 16)


def scsi() -> Load:
    """A disk that is only slow; then one that doesn't answer one command in 20, each of which is aborted; then one
    that answers no read, and whose aborts fail, so that it is reset, and given up."""
    (name,) = scsi_debug(f"ndelay={DELAY_MS * 1_000_000}", "max_queue=64", "statistics=1")
    attribute(name, "device/timeout", TIMER_S)
    load = Load(name, iodepth=4)

    def put(option: str, value: int) -> None:
        (DRIVER / option).write_text(str(value))

    @contextlib.contextmanager
    def slow() -> Iterator[Told]:
        known, before = Told(), time_outs_of(name)
        load.end()
        put("ndelay", SLOW_MS * 1_000_000)
        load.begin()
        yield known
        load.end()
        put("ndelay", DELAY_MS * 1_000_000)
        load.begin()
        known |= {"time_outs": time_outs_of(name) - before}

    @contextlib.contextmanager
    def unanswered() -> Iterator[Told]:
        known, before = Told(), time_outs_of(name)
        put("every_nth", EVERY)
        put("opts", IGNORED)
        yield known
        put("opts", 0)
        put("every_nth", 0)
        known |= {"time_outs": time_outs_of(name) - before}

    @contextlib.contextmanager
    def given_up() -> Iterator[Told]:
        known, before = Told(), time_outs_of(name)
        (errors,) = Path("/sys/kernel/debug/scsi_debug").glob("[0-9]*:*/error")
        for error in LOST_RESETS:
            errors.write_text(f"{error}\n")
        yield known
        state = Path("/sys/block", name, "device/state").read_text().strip()
        known |= {"time_outs": time_outs_of(name) - before, "state": state}

    load.effects |= {"slow": slow, "unanswered": unanswered, "given_up": given_up}
    return load


def nvme() -> Load:
    """A throttled drive with more and more reads in flight: slow, then slower than the driver's timer."""
    run("modprobe", "nvme")
    if not wait_for(lambda: any(disk.startswith("nvme") for disk in disks()), 60, 0.5):
        sys.exit("there is no NVMe disk")
    (name,) = (disk for disk in disks() if disk.startswith("nvme"))
    load = Load(name, iodepth=1)

    @contextlib.contextmanager
    def deep(iodepth: int) -> Iterator[None]:
        load.end()
        with Load(name, iodepth=iodepth).on():
            yield
        time.sleep(2)
        load.begin()

    load.effects |= {"nvme_slow": lambda: deep(NVME_DEEP), "nvme_unanswered": lambda: deep(NVME_DEEPER)}
    return load


def array() -> Load:
    """A mirror of two disks that take one I/O at a time: healthy, checked, and without one of its disks."""
    run("modprobe", "null_blk", "nr_devices=0")
    run("modprobe", "raid1")
    if not os.path.ismount("/sys/kernel/config"):
        run("mount", "-t", "configfs", "configfs", "/sys/kernel/config")
    members = []
    for name in ("nullb8", "nullb9"):
        directory = Path("/sys/kernel/config/nullb", name)
        directory.mkdir()
        values = {"size": MEMBER_MIB, "memory_backed": 1, "irqmode": 2, "completion_nsec": 10_000_000}
        values |= {"submit_queues": 1, "hw_queue_depth": 1, "power": 1}
        for attribute_name, value in values.items():
            (directory / attribute_name).write_text(str(value))
        members.append(f"/dev/{name}")  # so called since Linux 6.6
    mirror = f"/dev/{ARRAY}"
    run(*f"mdadm --create {mirror} --run --assume-clean --level=1 --bitmap=none --raid-devices=2".split(), *members)
    attribute(ARRAY, "md/sync_speed_max", CHECK_KB_S)
    load = Load(ARRAY, iodepth=1)

    @contextlib.contextmanager
    def checked() -> Iterator[Told]:
        attribute(ARRAY, "md/sync_action", "check")
        known = Told()
        yield known
        known |= {"action": Path("/sys/block", ARRAY, "md/sync_action").read_text().strip()}
        attribute(ARRAY, "md/sync_action", "idle")

    @contextlib.contextmanager
    def degraded() -> Iterator[Told]:
        run("mdadm", mirror, "--fail", members[1])
        yield Told(degraded=Path("/sys/block", ARRAY, "md/degraded").read_text().strip())

    load.effects |= {"checked": checked, "degraded": degraded}
    return load


LOADS: dict[str, Callable[[], Load]] = {load.__name__: load for load in (scsi, nvme, array)}


def main(*words: str) -> None:
    *names, result = words
    WORK.mkdir(exist_ok=True)
    loads = [LOADS[name]() for name in names]
    say("loads are there")
    with Capture(WORK, "--backend", "bpftrace", "--stages", "basic", "--interval", INTERVAL) as capture:
        say("the first frame came")
        capture.watch.stop()  # it takes an emulated CPU, and no counters are wanted
        reported = {effect: facts for load in loads for effect, facts in made(load).items()}
        time.sleep(BEHIND_S)
        code, stderr = capture.stop(), capture.stderr
    shutil.copy(capture.file, Path(result).parent / "all.latmon.jsonl.gz")
    log = run("dmesg")
    Path(result).write_text(
        json.dumps({"kernel": os.uname().release, "exit": code, "stderr": stderr, "effects": reported, "log": log})
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
