"""A host with thousands of disks: /proc and sysfs in a directory, and a bpftrace that prints what its disks do.

`python large_host.py` is that bpftrace: it takes the real one's arguments, prints the always-on probe's maps as 0.23
does, cumulative and in the order of their values, and counts the same I/Os in the directory's diskstats. latmon's own
decoder, collector and screen read both. A disk with an odd number in the list of busy ones reads, the others write too.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOSTS, MAJOR = 16, 259
_QUEUE = {"nr_requests": 256, "scheduler": "[none] mq-deadline", "iostats": 1, "write_cache": "write through"}
_SHAPES = 64
"""Different seconds of a disk; which one it has is drawn for each second."""
_READ, _WRITE = 0, 1


def disk_name(number: int) -> str:
    """Return sda for 0, sdaa for 26, as the sd driver does."""
    letters = ""
    number += 1
    while number:
        number, at = divmod(number - 1, 26)
        letters = chr(97 + at) + letters
    return f"sd{letters}"


@dataclass(frozen=True, slots=True)
class LargeHost:
    """A directory with `proc`, `sys`, and the program `bpftrace`."""

    root: Path
    disks: int
    busy: int
    per_second: int = 20

    @property
    def bpftrace(self) -> Path:
        return self.root / "bpftrace"

    def write(self) -> None:
        """Write all files; the root must be a directory that only root can change."""
        proc, sys_root = self.root / "proc", self.root / "sys"
        for directory in (proc, sys_root / "block", sys_root / "class/block", sys_root / "class/scsi_host"):
            directory.mkdir(parents=True)
        _put(sys_root / "kernel/btf/vmlinux", "\0blk_mq_in_driver_rw\0")
        for number in range(HOSTS):
            _put(sys_root / f"class/scsi_host/host{number}/proc_name", "mpt3sas\n")
            _put(sys_root / f"class/scsi_host/host{number}/can_queue", "9536\n")
            pci = sys_root / f"devices/pci0000:00/0000:{number:02x}:00.0"
            pci.mkdir(parents=True)
            (pci / "subsystem").symlink_to(_made(sys_root / "bus/pci"))
        for number in range(self.disks):
            self._disk(sys_root, number)
        _put(proc / "diskstats", Disks(self.disks, self.busy, self.per_second).diskstats())
        words = (sys.executable, Path(__file__).resolve(), self.root, self.disks, self.busy, self.per_second)
        _put(self.bpftrace, f'#!/bin/sh\nexec {" ".join(map(str, words))} "$@"\n')
        self.bpftrace.chmod(0o755)

    def _disk(self, sys_root: Path, number: int) -> None:
        name, host = disk_name(number), number % HOSTS
        device = sys_root / f"devices/pci0000:00/0000:{host:02x}:00.0/host{host}/target/{number}"
        path = device / "block" / name
        _put(path / "size", "2048\n")
        _put(path / "stat", "0 " * 17 + "\n")
        _put(path / "inflight", "       0        0\n")
        (path / "mq/0").mkdir(parents=True)
        _put(path / "mq/0/nr_tags", "256\n")
        for key, value in _QUEUE.items():
            _put(path / "queue" / key, f"{value}\n")
        _put(device / "vendor", "SEAGATE \n")
        _put(device / "model", f"ST{8 + 4 * (number % 3)}000NM001G\n")
        _put(device / "wwid", f"naa.5000c500{number:08x}\n")
        _put(device / "queue_depth", "254\n")
        (device / "subsystem").symlink_to(_made(sys_root / "bus/scsi"))
        (path / "device").symlink_to(device)
        (sys_root / "block" / name).symlink_to(path)
        (sys_root / "class/block" / name).symlink_to(path)


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class Disks:
    """Counters of the disks, which `second` advances."""

    def __init__(self, disks: int, busy: int, per_second: int) -> None:
        self.names = [disk_name(number) for number in range(disks)]
        self.busy = [number * disks // busy for number in range(busy)]
        self._random = random.Random(7)
        self._per_second = per_second
        self._shapes = [self._shape() for _ in range(_SHAPES)]
        self.maps: dict[str, dict[str, int]] = {}
        self._counted: dict[int, Counter[tuple[int, str]]] = {}
        self._columns = [[0] * 17 for _ in self.names]
        self.tick = 0

    def second(self) -> None:
        """Advance all counters by a second; the disk in the middle is eight times as slow as its peers."""
        maps, slow = self.maps, self.busy[len(self.busy) // 2]
        for number in self.busy:
            key = (MAJOR << 20 | number) << 16
            for op, buckets, total_us in self._random.choice(self._shapes):
                added = 24 if number == slow else 0
                count = sum(buckets.values())
                for bucket, n in buckets.items():
                    _add(maps, "block_a_same", key | op << 8 | (bucket + added), n)
                    if bucket % 5 == 0:
                        _add(maps, "block_a_queue", key | op << 8 | 9, n)
                        _add(maps, "block_a_queue_sum", key | op << 8, 4 * n)
                _add(maps, "block_a_hba_sum", key | op << 8, total_us << (3 if added else 0))
                _add(maps, "block_a_bytes", key | op << 8, 4096 * count)
                most = (1 << (max(buckets) + added) // 8 + 2) - 1
                maps.setdefault("block_a_max", {})[str(key | op << 8 | self.tick & 1)] = self.tick << 32 | most
                columns, at = self._columns[number], 4 * op
                columns[at] += count
                columns[at + 2] += 8 * count
                columns[at + 3] += total_us // 1000
            maps.setdefault("block_a_level", {})[str(key)] = 400_000
        self.tick += 1

    def diskstats(self) -> str:
        """Return the text of /proc/diskstats."""
        lines = zip(self.names, self._columns, strict=True)
        return "".join(f"{MAJOR:4d} {at:7d} {name} {' '.join(map(str, one))}\n" for at, (name, one) in enumerate(lines))

    def printed(self, names: Sequence[str]) -> Iterator[str]:
        """Yield the lines of the maps that have entries."""
        for name in names:
            if rows := self.maps.get(name):
                in_order = dict(sorted(rows.items(), key=lambda row: row[1]))
                yield json.dumps({"type": "map", "data": {f"@{name}": in_order}})

    def _shape(self) -> list[tuple[int, dict[int, int], int]]:
        shapes = []
        for op in (_READ, _WRITE):
            buckets = Counter(round(self._random.gauss(64, 4)) for _ in range(max(1, self._per_second // 2)))
            shapes.append((op, dict(buckets), 300 * sum(buckets.values())))
        return shapes


def _add(maps: dict[str, dict[str, int]], name: str, key: int, n: int) -> None:
    rows = maps.setdefault(name, {})
    rows[str(key)] = rows.get(str(key), 0) + n


MAPS = (
    "same total max hba queue hba_sum queue_sum bytes untimed unmatched above suppressed level".split()  # noqa: SIM905
)


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def line(text: str) -> str:
    return json.dumps({"type": "printf", "data": f"{text}\n"})


def main() -> None:
    """Run as bpftrace: `large_host.py ROOT DISKS BUSY PER_SECOND -f json ... -e PROGRAM`, or `... --version`."""
    root, numbers, words = Path(sys.argv[1]), [int(one) for one in sys.argv[2:5]], sys.argv[5:]
    if "--version" in words:
        print("bpftrace v0.23.2")
        return
    program = words[-1]
    _say(json.dumps({"type": "attached_probes", "data": {"probes": 4}}))
    if "ready block_a" not in program:
        signal.pause()
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
    disks = Disks(*numbers)
    _say(line(f"ready block_a {time.monotonic_ns()}"))
    due = time.monotonic()
    names = [f"block_a_{one}" for one in MAPS]
    while not ended:
        now = time.monotonic_ns()
        tick = disks.tick
        disks.second()
        temporary = root / "proc/diskstats.new"
        temporary.write_text(disks.diskstats())
        temporary.rename(root / "proc/diskstats")
        _say(line(f"tick block_a {tick} {now}"), *disks.printed(names), line("done block_a"))
        due = max(due + (1.0 if tick else 0.1), time.monotonic() - 1.0)
        time.sleep(max(0.0, due - time.monotonic()))
    _say(line(f"last block_a {disks.tick} {time.monotonic_ns()}"), *disks.printed(names))
    os._exit(0)


if __name__ == "__main__":
    main()
