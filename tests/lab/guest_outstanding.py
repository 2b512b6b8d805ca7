"""Inside a lab guest: outstanding I/O of our own making while latmon records; what came of it as JSON.

    guest_outstanding.py INCIDENT [ARGUMENT...] RESULT

Runs with the guest's own Python, like guest_stages.py beside it. The expected values are found by other means here:
`cat` in sysfs, blktrace, and the clock around the process that waits.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "helpers"), *os.environ["PYTHONPATH"].split(":")]

from guest_counts import disks  # noqa: E402 - its place is known only now
from guest_stages import ON_DEMAND_S, SETTLED_S, Told, mapped, run  # noqa: E402
from terminal import wait_for  # noqa: E402
from workload import Capture, fio, now_us  # noqa: E402

from latmon.aggregate.request_age import Waiting  # noqa: E402
from latmon.model.frame import Frame  # noqa: E402

WORK = Path("/tmp/latmon-lab")
LOAD_S = 15
"""Where CPUs are emulated the gauges are read once a second."""
IODEPTH = 16
DELAY_MS = 100
"""So long that the guest, not the disks, waits: emulated probes keep up with 250 I/Os a second in all."""
HELD_S = 30
HZ = 250
"""HZ of Debian's kernels, which no file in the guest has."""
AFTER_S = 12
"""bpftrace is some seconds behind in an emulated guest."""
TIMEOUT_S = 300
"""No error handler comes in between."""
FAR_MIB = 200
SLOW_MS = 40
"""So slow that the guest, not the disk, waits: 25 I/Os a second are little work for emulated probes."""
STREAM_S = 45
EXPIRE_MS = 4000
STARVED = 8
"""Batches of 16 reads before a write."""
THRESHOLD = "2s"
"""Above what 16 outstanding take, below what the victims wait."""
INTERVAL_S = 10
"""What is known of an outlier comes from two probes, and is waited for two frames."""
CAUGHT_UP_S = 240
POLL_S = 2.0
"""To read a recording takes an emulated CPU a while, which the probes need."""
CREATED_WRITES = 300
VICTIMS = ("read", "read", "write")
BY_HAND = """
cd /sys/block/$1
host=/sys/class/scsi_host/$(readlink -f device | grep -o 'host[0-9]*' | head -n 1)
for file in device/queue_depth device/queue_type queue/nr_requests mq/0/nr_tags device/sqsize $host/can_queue \\
    $host/cmd_per_lun $host/nr_hw_queues $host/host_tagset; do
    [ -f $file ] && echo "$(basename $file) $(cat $file)"
done
echo "queues $(ls -d mq/* | wc -l)"
echo "driver $(readlink -f device | grep -o 'usb[0-9]' | head -n 1) $(cat $host/proc_name 2>/dev/null)"
"""


def by_hand(device: str) -> dict[str, str]:
    """Return the settings as an administrator would look them up."""
    lines = (line.partition(" ") for line in run("sh", "-c", BY_HAND, "sh", device).splitlines())
    return {name: value.strip() for name, _, value in lines}


def scsi_debug(*words: str) -> list[str]:
    """SCSI disks without hardware, which complete from a timer; the kernel's names of the new ones."""
    run("modprobe", "sd_mod")
    before = set(disks())
    run("modprobe", "scsi_debug", "dev_size_mb=256", *words)
    wait_for(lambda: set(disks()) - before, 20)
    time.sleep(1)  # the other units of the host
    return sorted(set(disks()) - before)


def attribute(device: str, name: str, value: object) -> None:
    Path("/sys/block", device, name).write_text(str(value))


def reads(device: str) -> int:
    """Completed since boot."""
    return int(Path("/sys/block", device, "stat").read_text().split()[0])


def reported_by(capture: Capture) -> Told:
    exit_code = capture.stop()
    return {
        "kernel": os.uname().release,
        "exit": exit_code,
        "stderr": capture.stderr,
        "report": capture.report(),
        "frames": list(_ages(capture.frames())),
    }


def _ages(frames: list[Frame]) -> Iterator[Told]:
    """A frame's I/Os in flight, and the ages that a reader computes from all frames so far."""
    waiting = Waiting()
    for frame in frames:
        waiting.add(frame)
        still = frame.in_flight
        yield {
            "end_us": frame.mono_us,
            "outstanding": {name: (now.in_driver, now.queued) for name, now in frame.outstanding.items()},
            "at_us": None if still is None else still.at_us,
            "still": None if still is None else [request._asdict() for request in still.oldest],
            "issued": {name: [issue.sector for issue in window] for name, window in frame.issues.items()},
            "writes": {flow.device: done.count for flow, done in frame.kernel.items() if flow.op == "write"},
            "traced": {
                series.device: histogram.count
                for series, histogram in frame.traced.histograms.items()
                if (series.op, series.stage) == ("write", "total")
            },
            "removed": list(frame.removed),
            "notice": frame.health.notice,
            "older": {str(age): count for age, count in waiting.ages.older.items()},
            "ages": [
                {"device": row.device, "age_us": row.age_us, "at_least": row.at_least, "count": row.count}
                | ({"request": row.request._asdict()} if row.request else {})
                for row in waiting.ages.oldest
            ],
        }


def follows(capture: Capture, words: tuple[str, ...]) -> None:
    """Waits for the probe that follows requests, where it was asked for."""
    if "all" in words and not wait_for(
        lambda: any(frame.in_flight is not None for frame in capture.frames()), ON_DEMAND_S, POLL_S
    ):
        sys.exit(f"no request was followed within {ON_DEMAND_S:.0f} s: {capture.stop()} {capture.stderr}")


def seen_us(frame: Frame) -> int:
    """When the probe looked that a frame has the news of."""
    return frame.in_flight.at_us if frame.in_flight else 0


def catches_up(capture: Capture) -> None:
    """Waits for the news of all until now."""
    over_us = now_us()
    wait_for(lambda: any(seen_us(frame) > over_us for frame in capture.frames()), CAUGHT_UP_S, POLL_S)


def loaded(words: tuple[str, ...], *names: str) -> Told:
    """A capture with 16 reads in flight on each of these."""
    by_name = {name: by_hand(name) for name in names}
    with Capture(WORK, *words) as capture:
        follows(capture, words)
        jobs = [{"name": name, "filename": f"/dev/{name}", "rw": "randread", "iodepth": IODEPTH} for name in names]
        issued = fio(WORK, LOAD_S, *({**job, "size": "64M"} for job in jobs))
        if "all" in words:
            catches_up(capture)
        time.sleep(SETTLED_S)
        done = {name: ops["read"].count for name, ops in issued.items()}
        return reported_by(capture) | {"by_hand": by_name, "issued": done}


def ceilings(*words: str) -> Told:
    """can_queue 3; beside it, on another host, queue_depth 3 and no restriction; and a USB disk."""
    (host,) = scsi_debug("max_queue=3", f"ndelay={DELAY_MS * 1_000_000}")
    alone = loaded(words, host)
    run("modprobe", "-r", "scsi_debug")
    (usb,) = disks()
    restricted, free = scsi_debug("max_queue=192", "max_luns=2", f"ndelay={DELAY_MS * 1_000_000}")
    attribute(restricted, "device/queue_depth", 3)
    names = {"can_queue": host, "queue_depth": restricted, "free": free, "usb": usb}
    return {"names": names, "alone": alone, "beside": loaded(words, restricted, free, usb)}


def controllers(*words: str) -> Told:
    """Whatever disks the guest has, and a SCSI host of no hardware."""
    scsi_debug(f"ndelay={DELAY_MS * 1_000_000}")
    return loaded(words, *disks())


class Reader:
    """One direct read of 4 KiB, which may take its time."""

    def __init__(self, path: str, block: int) -> None:
        self._start(path, block, [f"if={path}", "of=/dev/null", "bs=4096", "count=1", f"skip={block}", "iflag=direct"])

    def _start(self, path: str, block: int, words: list[str]) -> None:
        self.path, self.sector = path, block * 8
        self.began_us = now_us()
        self.process = subprocess.Popen(["dd", *words], stderr=subprocess.DEVNULL)
        self.ended_us: int | None = None

    @property
    def over(self) -> bool:
        if self.ended_us is None and self.process.poll() is not None:
            self.ended_us = now_us()
        return self.ended_us is not None

    def reported(self, device: str) -> Told:
        times = {"began_us": self.began_us, "ended_us": self.ended_us}
        return {"device": device, "sector": self.sector, "pid": self.process.pid, **times}


def held(*words: str) -> Told:
    """Reads that are held for 30 s: by a suspended volume under another, by a disk that doesn't answer, and behind it
    in the block layer; and one that is held until after the recording."""
    run("modprobe", "null_blk", "nr_devices=1", "gb=1")
    bottom = mapped("bottom", "0 65536 linear /dev/nullb0 0")
    names = {"top": mapped("top", "0 65536 linear /dev/mapper/bottom 0"), "bottom": bottom}
    names["never"] = mapped("never", "0 65536 linear /dev/nullb0 65536")
    (names["silent"],) = scsi_debug("ndelay=1000")
    silent = f"/dev/{names['silent']}"
    attribute(names["silent"], "device/queue_depth", 1)
    attribute(names["silent"], "device/timeout", TIMEOUT_S)
    with Capture(WORK, *words) as capture:
        follows(capture, words)
        time.sleep(SETTLED_S)
        Path("/sys/bus/pseudo/drivers/scsi_debug/delay").write_text(str(HELD_S * HZ))
        for name in ("bottom", "never"):
            run("dmsetup", "suspend", "--noflush", "--nolockfs", name)
        readers = {"silent": Reader(silent, 1000), "top": Reader("/dev/mapper/top", 2000)}
        readers["never"] = Reader("/dev/mapper/never", 3000)
        time.sleep(1)
        readers["behind"] = Reader(silent, 9000)
        wait_for(lambda: readers["silent"].over or now_us() > readers["top"].began_us + HELD_S * 1_000_000, TIMEOUT_S)
        run("dmsetup", "resume", "--noudevsync", "bottom")
        wait_for(lambda: readers["silent"].over and readers["top"].over, TIMEOUT_S)
        if "all" in words:
            catches_up(capture)
        time.sleep(AFTER_S)
        on = {**{name: names[name] for name in ("silent", "top", "never")}, "behind": names["silent"]}
        reported = {name: reader.reported(on[name]) for name, reader in readers.items()}
        reported = reported_by(capture) | {"names": names, "readers": reported}
    run("dmsetup", "resume", "--noudevsync", "never")
    return reported


def writes(path: str, count: int) -> None:
    """Direct writes of 4 KiB, one after the other."""
    run("dd", "if=/dev/zero", f"of={path}", "bs=4096", f"count={count}", "oflag=direct", "conv=notrunc")


class Writer(Reader):
    """One direct write of 4 KiB, which may take its time."""

    def __init__(self, path: str, block: int) -> None:
        words = ["if=/dev/zero", f"of={path}", "bs=4096", "count=1", f"seek={block}", "oflag=direct", "conv=notrunc"]
        self._start(path, block, words)


def created(*words: str) -> Told:
    """A volume that is created while latmon records: 300 writes, then four that its suspension holds for 30 s.

    No device without requests is there before. After it the volume is removed, and another one gets its number.
    """
    run("modprobe", "null_blk", "nr_devices=1", "gb=1")
    with Capture(WORK, *words) as capture:
        follows(capture, words)
        time.sleep(SETTLED_S)
        name = mapped("late", "0 65536 linear /dev/nullb0 0")
        writes("/dev/mapper/late", CREATED_WRITES)
        run("dmsetup", "suspend", "--noflush", "--nolockfs", "late")
        writers = [Writer("/dev/mapper/late", 1000 * n) for n in range(1, 5)]
        time.sleep(HELD_S)
        run("dmsetup", "resume", "--noudevsync", "late")
        wait_for(lambda: all(writer.over for writer in writers), TIMEOUT_S)
        catches_up(capture)
        run("dmsetup", "remove", "--noudevsync", "late")
        time.sleep(SETTLED_S)
        again = mapped("again", "0 65536 linear /dev/nullb0 65536")
        writes("/dev/mapper/again", CREATED_WRITES)
        catches_up(capture)
        time.sleep(AFTER_S)
        reported = reported_by(capture)
    return reported | {"device": name, "again": again, "writers": [writer.reported(name) for writer in writers]}


@contextlib.contextmanager
def blktraced(device: str) -> Iterator[Path]:
    """The events of a block device while in it, a line each: action, op, sector, sectors, seconds."""
    path = Path(__file__).parents[2] / "events"
    tracer = subprocess.Popen(["blktrace", "-d", f"/dev/{device}", "-b", "1024", "-n", "8", "-D", WORK, "-o", "events"])
    wait_for(Path("/sys/kernel/debug/block", device, "dropped").exists, 20)
    time.sleep(1)
    try:
        yield path
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
        words = ["blkparse", "-q", "-i", "events", "-D", str(WORK), "-f", "%a %d %S %n %T.%9t\n"]
        with path.open("w") as out:
            subprocess.run(words, check=True, stdout=out, cwd=WORK)


def overtaken() -> Told:
    """Now and then an I/O far away, while a sequential stream keeps mq-deadline before it."""
    run("modprobe", "mq-deadline")
    (device,) = scsi_debug(f"ndelay={SLOW_MS * 1_000_000}")
    attribute(device, "device/queue_depth", 1)
    attribute(device, "queue/scheduler", "mq-deadline")
    attribute(device, "queue/nomerges", 2)
    attribute(device, "queue/iosched/read_expire", EXPIRE_MS)
    attribute(device, "queue/iosched/writes_starved", STARVED)
    stream = {"name": "stream", "filename": f"/dev/{device}", "rw": "read", "iodepth": IODEPTH, "size": "64M"}
    victims = []
    # blktrace first: where it begins the kernel patches tracepoints that latmon's probes would run in.
    words = ("--stages", "all", "--threshold", THRESHOLD, "--interval", f"{INTERVAL_S}s", "--device", device)
    with blktraced(device) as events, Capture(WORK, "--backend", "bpftrace", *words) as capture:
        wait_for(lambda: any(frame.traced.one_in for frame in capture.frames()), ON_DEMAND_S, POLL_S)
        time.sleep(SETTLED_S)
        neighbours = subprocess.Popen([sys.executable, __file__, "load", json.dumps(stream)], cwd=WORK)
        wait_for(lambda: reads(device) > 10 * IODEPTH, 60)
        for number, op in enumerate(VICTIMS):
            block = (FAR_MIB + number) * 256
            ends = {"read": (f"if=/dev/{device}", "of=/dev/null", f"skip={block}", "iflag=direct")}
            ends["write"] = ("if=/dev/zero", f"of=/dev/{device}", f"seek={block}", "oflag=direct")
            run("dd", *ends[op], "bs=4096", "count=1", "conv=notrunc")
            victims.append({"op": op, "sector": block * 8})
        neighbours.terminate()
        neighbours.wait()
        subprocess.run(["killall", "fio"], check=False)  # of its own, and maybe over
        catches_up(capture)
        time.sleep(2 * INTERVAL_S)
        reported = reported_by(capture)
    return reported | {"device": device, "victims": victims, "events": events.read_text()}


INCIDENTS: dict[str, Callable[..., Told]] = {
    one.__name__: one for one in (ceilings, controllers, held, created, overtaken)
}


def main(incident: str, *arguments: str) -> None:
    *words, result = arguments
    WORK.mkdir(exist_ok=True)
    if incident == "load":
        fio(WORK, STREAM_S, json.loads(result))
        return
    Path(result).write_text(json.dumps(INCIDENTS[incident](*words)))


if __name__ == "__main__":
    main(*sys.argv[1:])
