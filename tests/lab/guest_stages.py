"""Inside a lab guest: one incident of our own making while latmon traces all stages; what came of it as JSON.

    guest_stages.py INCIDENT RESULT

Runs with the guest's own Python, like guest_counts.py beside it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "helpers"), *os.environ["PYTHONPATH"].split(":")]

from guest_counts import disks  # noqa: E402 - its place is known only now
from terminal import wait_for  # noqa: E402
from workload import Capture, fio  # noqa: E402

SECONDS = 4
SETTLED_S = 4.0
BEHIND_S = 25.0
"""On one emulated CPU bpftrace is that far behind after a load."""
ON_DEMAND_S = 330.0
"""Several programs of the on-demand probes are compiled in an emulated guest."""
WORK = Path("/tmp/latmon-lab")
DELAY_MS = 25
HANDLER_US = 20
BURSTS = WORK / "bursts"
HOG, OTHER = "hog", "archiver"
HOG_PRIORITY = 60
"""Above the interrupt threads (50) and below the measurement."""
TURNS = 8
IOPS, THROTTLED_S = 50, 30
Told = dict[str, Any]


def run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def traced(
    *words: str,
    begin: Callable[[], object] = int,
    seconds: float = SECONDS,
    urgent: bool = False,
    **load: dict[str, object],
) -> Told:
    """The report of a capture around these fio jobs (job name -> options), all at once, after a call of `begin`."""
    with Capture(WORK, "--backend", "bpftrace", "--stages", "all", *words) as capture:
        if not wait_for(lambda: any(frame.traced.one_in for frame in capture.frames()), ON_DEMAND_S, 2.0):
            sys.exit(f"no stages were traced within {ON_DEMAND_S:.0f} s: {capture.stop()} {capture.stderr}")
        before = Path("/proc/interrupts").read_text()
        begin()
        issued = fio(
            WORK, seconds, *({"name": name, "rw": "randread", **job} for name, job in load.items()), urgent=urgent
        )
        time.sleep(SETTLED_S if len(os.sched_getaffinity(0)) > 1 else BEHIND_S)
        after = Path("/proc/interrupts").read_text()
        exit_code = capture.stop()
        shutil.copy(capture.file, Path(__file__).parents[2])  # beside the result
        return {
            "kernel": os.uname().release,
            "exit": exit_code,
            "stderr": capture.stderr,
            "report": capture.report(),
            "issued": {name: ops["read"].count for name, ops in issued.items()},
            "fio": {name: ops["read"]._asdict() for name, ops in issued.items()},
            "interrupts": [before, after],
        }


def on_every_disk(iodepth: int = 4) -> dict[str, dict[str, object]]:
    return {name: {"filename": f"/dev/{name}", "size": "64M", "iodepth": iodepth} for name in disks()}


def mapped(name: str, table: str) -> str:
    """A dm volume in a guest without udev; its kernel name."""
    run("modprobe", "dm_mod")
    run("dmsetup", "create", name, "--noudevsync", "--table", table)
    run("dmsetup", "mknodes", name)
    return f"dm-{os.minor(Path('/dev/mapper', name).stat().st_rdev)}"


def drivers() -> Told:
    """Every emulated disk, and a linear volume on the first."""
    member = disks()[0]
    volume = mapped("lab", f"0 65536 linear /dev/{member} 1572864")
    reported = traced(**on_every_disk(), volume={"filename": "/dev/mapper/lab", "size": "32M", "iodepth": 2})
    return reported | {"volume": volume, "member": member}


def debug_disk(delay_ms: float) -> str:
    """A SCSI disk without hardware that takes its time: scsi_debug completes from a timer."""
    run("modprobe", "sd_mod")
    before = set(Path("/sys/block").iterdir())
    run("modprobe", "scsi_debug", f"ndelay={round(delay_ms * 1_000_000)}", "dev_size_mb=64")
    wait_for(lambda: set(Path("/sys/block").iterdir()) - before, 20)
    (name,) = (path.name for path in set(Path("/sys/block").iterdir()) - before)
    wait_for(Path("/dev", name).exists, 20)
    return name


def debug_delay() -> Told:
    name = debug_disk(DELAY_MS)
    return traced(**{name: {"filename": f"/dev/{name}", "size": "32M", "iodepth": 4}}) | {"device": name}


def dm_delay() -> Told:
    """A volume that waits before it passes an I/O on to a quick disk."""
    run("modprobe", "null_blk", "nr_devices=1", "irqmode=2", "completion_nsec=100000", "gb=1")
    run("modprobe", "dm_delay")
    sectors = run("blockdev", "--getsz", "/dev/nullb0").strip()
    volume = mapped("slow", f"0 {sectors} delay /dev/nullb0 0 {DELAY_MS}")
    load = {"filename": "/dev/mapper/slow", "size": "64M", "iodepth": 4}
    return traced(slow=load) | {"volume": volume, "member": "nullb0"}


def threads() -> Told:
    """Nothing but the load: the guest is booted with threadirqs."""
    return traced(**on_every_disk())


def _named(name: str) -> None:
    Path("/proc/self/comm").write_text(name)


def _use_cpu(name: str, seconds: float) -> None:
    """Loop for so long, then append the time to the list of bursts."""
    begun = time.monotonic()
    while time.monotonic() < begun + seconds:
        pass
    with BURSTS.open("a") as bursts:
        bursts.write(f"{name} {time.monotonic() - begun:.3f}\n")


def hog(cpu: int, busy_s: float, rest_s: float, priority: float, other_s: float) -> None:
    """Use a CPU for a while, then rest, at a real-time priority.

    With `other_s`, another process uses it in one of TURNS turns, and for so long.
    Not all the time: since 6.12 the kernel lets a real-time thread starve the ones below it for good.
    """
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(int(priority)))
    turns, its_turn = os.pipe()
    if other_s and not os.fork():
        os.close(its_turn)
        _named(OTHER)
        while os.read(turns, 1):
            _use_cpu(OTHER, other_s)
        os._exit(0)
    _named(HOG)
    for turn in itertools.count(1):
        if other_s and turn % TURNS == 0:
            os.write(its_turn, b".")
            time.sleep(other_s + rest_s)  # once: this process must not be the last one on the CPU
        else:
            _use_cpu(HOG, busy_s)
            time.sleep(rest_s)


@contextlib.contextmanager
def hogs(
    busy_s: float = 0.04,
    rest_s: float = 0.01,
    priority: int = HOG_PRIORITY,
    other_s: float = 0.0,
    cpus: Collection[int] = (),
) -> Iterator[Told]:
    """One on each CPU, or on these; at the end the seconds that each program used a CPU are in what it yields."""
    words = [str(one) for one in (busy_s, rest_s, priority, other_s)]
    BURSTS.write_text("")
    processes = [
        subprocess.Popen([sys.executable, __file__, HOG, str(cpu), *words]) for cpu in cpus or os.sched_getaffinity(0)
    ]
    used: Told = {}
    try:
        yield used
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for line in BURSTS.read_text().splitlines():
        name, seconds = line.split()
        used[name] = used.get(name, 0.0) + float(seconds)


def pressed() -> Told:
    """Run `threads` with hogs that keep completion threads and waiters from their CPUs."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(80))
    jobs = [{"name": name, "rw": "randread", **job} for name, job in on_every_disk(1).items()]
    with Capture(WORK, "--backend", "bpftrace", "--stages", "all") as capture:
        wait_for(lambda: any(frame.traced.one_in for frame in capture.frames()), ON_DEMAND_S)
        with hogs():
            words = ["chrt", "--other", "0", sys.executable, __file__, "load", json.dumps(jobs)]
            subprocess.run(words, check=True, cwd=WORK)
        time.sleep(SETTLED_S)
        exit_code = capture.stop()
        return {"kernel": os.uname().release, "exit": exit_code, "stderr": capture.stderr, "report": capture.report()}


def shared() -> Told:
    """A stranger's slow handler before the disks' own on one vector: the guest is booted with pci=nomsi."""
    nvme = next(line for line in Path("/proc/interrupts").read_text().splitlines() if "nvme" in line)
    irq = nvme.split(":")[0].strip()
    run("modprobe", "-r", "nvme")
    run("insmod", "/host/slow_handler.ko", f"irq={irq}", f"us={HANDLER_US}")
    for module, disk in (("nvme", "nvme"), ("megaraid_sas", ""), ("sd_mod", "sd")):
        run("modprobe", module)
        wait_for(lambda disk=disk: not disk or any(name.startswith(disk) for name in disks()), 30)
    load = {name: job for name, job in on_every_disk().items() if name.startswith("nvme")}
    return traced(**load) | {"irq": int(irq), "us": HANDLER_US}


def in_cgroup(name: str, limit: Callable[[Path, str], object], **options: object) -> Told:
    """A load on a disk in a cgroup, for which `limit` is called with the cgroup and MAJOR:MINOR of the disk."""
    group = Path("/sys/fs/cgroup/slow.slice")
    Path("/sys/fs/cgroup/cgroup.subtree_control").write_text("+io")
    group.mkdir()
    limit(group, Path(f"/sys/block/{name}/dev").read_text().strip())

    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    load: dict[str, object] = {"filename": f"/dev/{name}", "size": "64M", **options}
    urgent = options.get("ioengine") == "psync"  # what fio waits for a CPU is its latency, too
    found = traced("--device", name, begin=enter, seconds=THROTTLED_S, urgent=urgent, **{name: load})
    return found | {"device": name}


def throttled() -> Told:
    """A disk that a cgroup may read IOPS times a second."""
    return in_cgroup(disks()[0], lambda group, disk: (group / "io.max").write_text(f"{disk} riops={IOPS}"), iodepth=16)


def costed() -> Told:
    """A disk of which iocost believes that it can read IOPS times a second; the submitting task waits for its share."""
    model = f"ctrl=user model=linear rbps=1000000000 rseqiops={IOPS} rrandiops={IOPS}"
    model += f" wbps=1000000000 wseqiops={IOPS} wrandiops={IOPS}"

    def limit(_group: Path, disk: str) -> None:
        Path("/sys/fs/cgroup/io.cost.model").write_text(f"{disk} {model}")
        Path("/sys/fs/cgroup/io.cost.qos").write_text(f"{disk} enable=1 ctrl=user min=100.00 max=100.00")

    return in_cgroup(disks()[0], limit, ioengine="psync")


def irq_poll() -> Told:
    """nvme over RDMA, emulated on a dummy network card: it completes in the IRQ_POLL softirq."""
    for module in ("dummy", "ib_core", "rdma_rxe", "rdma_cm", "nvmet", "nvmet-rdma", "nvme-rdma", "null_blk"):
        run("modprobe", module)
    for words in ("link add rdma0 type dummy", "addr add 10.9.9.1/24 dev rdma0", "link set rdma0 up"):
        run("ip", *words.split())
    run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "rdma0")
    subprocess.run(["mount", "-t", "configfs", "c", "/sys/kernel/config"], check=False, capture_output=True)
    target = Path("/sys/kernel/config/nvmet")
    values = {
        "subsystems/t/attr_allow_any_host": "1",
        "subsystems/t/namespaces/1/device_path": "/dev/nullb0",
        "subsystems/t/namespaces/1/enable": "1",
        "ports/1/addr_trtype": "rdma",
        "ports/1/addr_adrfam": "ipv4",
        "ports/1/addr_traddr": "10.9.9.1",
        "ports/1/addr_trsvcid": "4420",
    }
    for directory in ("subsystems/t", "subsystems/t/namespaces/1", "ports/1"):
        (target / directory).mkdir()
    for name, value in values.items():
        (target / name).write_text(value)
    (target / "ports/1/subsystems/t").symlink_to(target / "subsystems/t")
    run("nvme", "connect", "-t", "rdma", "-a", "10.9.9.1", "-s", "4420", "-n", "t", "-i", "2")
    wait_for(lambda: any(name.startswith("nvme") for name in disks()), 30)
    return traced(**on_every_disk(8))


INCIDENTS: dict[str, Callable[[], Told]] = {
    one.__name__: one for one in (drivers, debug_delay, dm_delay, threads, pressed, shared, throttled, costed, irq_poll)
}


def main(incident: str, result: str, *times: str) -> None:
    if incident == "load":
        fio(WORK, SECONDS, *json.loads(result))
        return
    if incident == HOG:
        hog(int(result), *map(float, times))
    WORK.mkdir(exist_ok=True)
    Path(result).write_text(json.dumps(INCIDENTS[incident]()))


if __name__ == "__main__":
    main(*sys.argv[1:])
