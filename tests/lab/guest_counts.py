"""Inside a lab guest: fio on every disk while latmon records, and what came of it as JSON in the file named last.

With the word `cgroups` before it: two jobs in two cgroups of version 2. With `nfs`: two jobs on files of an NFS mount,
which the guest serves itself. With `zfs`: the same on ZFS, whose modules and tools are in /host/zfs.tar.

Runs with the guest's own Python; beside it lie latmon, tests/live and PyYAML, and no package else.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import struct
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from latmon.model import measurements

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "helpers"), *os.environ["PYTHONPATH"].split(":")]

from workload import (  # noqa: E402 - its place is known only now
    CALLS,
    OPS,
    STARTING_S,
    Capture,
    by_strace,
    fio,
    now_us,
    of_mount,
    strace,
    wait_for,
)

SYS = Path("/sys/block")
ROOT_DISK = "vda"
SECONDS = 4
SETTLED_S = 4.0


def disks() -> list[str]:
    """All disks but the guest's own and loops; a multipath NVMe disk is the one that can be opened."""
    return [
        path.name
        for path in sorted(SYS.iterdir())
        if path.name.startswith(("sd", "nvme", "vd")) and path.name != ROOT_DISK and Path("/dev", path.name).exists()
    ]


def jobs(name: str) -> list[dict[str, object]]:
    disk = {"filename": f"/dev/{name}", "size": "64M"}
    found = [{"name": name, **disk, "rw": "randrw", "iodepth": 4, "fsync": 16}]
    if int((SYS / name / "queue/discard_max_bytes").read_text()):
        found.append({"name": f"{name}-trim", **disk, "offset": "512M", "rw": "randtrim", "bs": "64k", "rate_iops": 20})
    return found


def volume(member: str) -> str:
    """A dm volume over the last quarter of a disk, in a guest without udev; its kernel name."""
    table = f"0 65536 linear /dev/{member} 1572864"
    for words in (["modprobe", "dm_mod"], ["dmsetup", "create", "lab", "--noudevsync", "--table", table]):
        subprocess.run(words, check=True)
    subprocess.run(["dmsetup", "mknodes", "lab"], check=True)
    return f"dm-{os.minor(Path('/dev/mapper/lab').stat().st_rdev)}"


def in_cgroups(work: Path, disk: str) -> dict[str, object]:
    """Two cgroups of version 2 with a job each on one disk: what fio issued, io.stat counted and latmon reported."""
    root = Path("/sys/fs/cgroup")
    (root / "cgroup.subtree_control").write_text("+io")
    loads = {
        "reads.service": {"rw": "randread", "iodepth": 4, "rate_iops": 300},
        "writes.service": {"rw": "randwrite", "iodepth": 4, "bs": "16k", "rate_iops": 150},
    }
    with Capture(work, "--backend", "bpftrace", "--device", disk) as capture, ThreadPoolExecutor() as pool:
        time.sleep(SETTLED_S)
        running = {}
        for name, load in loads.items():
            (root / name).mkdir()
            job = {"name": name, "filename": f"/dev/{disk}", "size": "64M", **load}
            running[name] = pool.submit(fio, work, SECONDS, job, cgroup=root / name)
        issued = {name: running[name].result()[name] for name in loads}
        time.sleep(SETTLED_S)
        capture.stop()
    return {
        "issued": {name: {op: one[:2] for op, one in by_op.items()} for name, by_op in issued.items()},
        "io.stat": {name: (root / name / "io.stat").read_text() for name in loads},
        "reported": capture.report()["cgroups"],
        "number": (SYS / disk / "dev").read_text().strip(),
    }


NFS_SERVER = """
modprobe nfsd; mkdir -p /srv/nfs /mnt/nfs /run/rpc_pipefs
mount -t nfsd nfsd /proc/fs/nfsd; mount -t rpc_pipefs rpc /run/rpc_pipefs
rpcbind -w; nfsdcld
exportfs -i -o rw,fsid=0,no_root_squash,insecure,no_subtree_check 127.0.0.1:/srv/nfs
rpc.mountd -N 3; rpc.nfsd -N 3 4
mount -t nfs4 -o vers=4.2 127.0.0.1:/ /mnt/nfs
"""
"""Without systemd. rpcbind: else the kernel waits a minute for it; nfsdcld: else a new server has 90 s of grace."""


ZFS = """
tar -C / --keep-directory-symlink -xf /host/zfs.tar
for module in spl zfs; do insmod /lib/modules/$(uname -r)/extra/$module.ko; done
zpool create -O mountpoint=/mnt/zfs lab /dev/{disk}p1
"""
"""Without udev: in a partition, for zpool waits for udev where it makes partitions itself."""
_BLKPG, _ADD_PARTITION = 0x1269, 1
_MIB = 1 << 20


def add_partition(disk: str, size: int) -> None:
    """Tell the kernel of a partition behind the first MiB (linux/blkpg.h): the guests have no sfdisk and no addpart."""
    part = ctypes.create_string_buffer(struct.pack("qqi64s64s4x", _MIB, size, 1, b"", b""))
    words = struct.pack("iiiP", _ADD_PARTITION, 0, len(part.raw) - 1, ctypes.addressof(part))
    with Path("/dev", disk).open("rb") as file:
        fcntl.ioctl(file, _BLKPG, words)


def on_files(work: Path, point: str, *traced: object, **writes: object) -> dict[str, object]:
    """Reads, writes and syncs of files at a mount: fio's numbers, strace's of a command, and latmon's of both."""
    calls = {"ioengine": "psync", "directory": point, "size": "4M", "rate_iops": 100}
    reads, write = (
        {"name": "reads", "rw": "randread", **calls},
        {"name": "writes", "rw": "randwrite", **calls, **writes},
    )
    fio(work, 0.5, reads)  # writes its file
    with Capture(work, "--backend", "bpftrace", "--stages", "all") as capture:
        wait_for(lambda: any(frame[measurements.FILES] for frame in capture.frames()), STARTING_S, 1.0)
        issued = fio(work, SECONDS, reads, write)
        time.sleep(SETTLED_S)
        ended_us = now_us()
        text = strace(work, *traced) if traced else ""
        time.sleep(SETTLED_S)
        exit_code = capture.stop()
    frames = capture.frames()
    parts = (
        [frame for frame in frames if frame.mono_us <= ended_us],
        [frame for frame in frames if frame.mono_us > ended_us],
    )
    counts: Counter[str] = Counter()
    for frame in parts[0]:
        counts.update({"|".join(series): latency.count for series, latency in frame[measurements.FILES].items()})
    return {
        "issued": {name: {op: one._asdict() for op, one in by_op.items()} for name, by_op in issued.items()},
        "strace": by_strace(text, point),
        "files": dict(counts),
        "reported": [
            {op: (one.count, one.quantile(0.99)) for op, one in of_mount(part, point).items()} for part in parts
        ],
        "arc": [frame.host_context["arc"].ratio for frame in frames if "arc" in frame.host_context],
        "exit": exit_code,
        "stderr": capture.stderr,
        "health": capture.report()["health"],
    }


def on_nfs(work: Path) -> dict[str, object]:
    """Files on NFS, and below them those of the server."""
    subprocess.run(["sh", "-exc", NFS_SERVER], check=True)
    return on_files(work, "/mnt/nfs", direct=0, fsync=8)


def on_zfs(work: Path, disk: str) -> dict[str, object]:
    """Files on a pool of one disk."""
    add_partition(disk, 1000 * _MIB)
    subprocess.run(["sh", "-exc", ZFS.format(disk=disk)], check=True)
    return on_files(work, "/mnt/zfs", sys.executable, "-c", CALLS, "/mnt/zfs", direct=0, fsync=8)


def main(result: Path, what: str = "") -> None:
    work = Path("/tmp/latmon-lab")
    work.mkdir()
    names = disks()
    if what in ("nfs", "zfs"):
        result.write_text(json.dumps(on_nfs(work) if what == "nfs" else on_zfs(work, names[0])))
        return
    if what == "cgroups":
        result.write_text(json.dumps(in_cgroups(work, names[0])))
        return
    on_top = {"name": "volume", "filename": "/dev/mapper/lab", "size": "32M", "rw": "randrw", "iodepth": 2}
    name_on_top = volume(names[0])
    with Capture(work, "--backend", "bpftrace") as capture:
        issued = fio(work, SECONDS, on_top, *(job for name in names for job in jobs(name)))
        time.sleep(SETTLED_S)
        exit_code = capture.stop()
        reported = {
            "kernel": os.uname().release,
            "exit": exit_code,
            "stderr": capture.stderr,
            "skipped": sum(frame.health.skipped or 0 for frame in capture.frames()),
            "report": capture.report(),
            "volume": {"name": name_on_top, "member": names[0], "reads": issued["volume"]["read"].count},
            "diskstats": {name: capture.watch.between(0, 2**63, name) for name in names},
            "issued": {
                name: {op: issued[job["name"]][op][:2] for job in jobs(name) for op in OPS if op in issued[job["name"]]}
                for name in names
            },
        }
    result.write_text(json.dumps(reported))


if __name__ == "__main__":
    main(Path(sys.argv[-1]), *sys.argv[1:-1])
