"""A host in a directory: /proc/diskstats and a sysfs with the shapes of real ones, changed at will by a test."""

from __future__ import annotations

import itertools
from pathlib import Path

IDLE = (0,) * 17
VIRTIO = "devices/pci0000:00/0000:00:04.0/virtio0"
MPTSAS_HOST = "devices/pci0000:00/0000:00:07.0/host2"
MPTSAS = f"{MPTSAS_HOST}/port-2:0/end_device-2:0/target2:0:0/2:0:0:0"
NVME = "devices/pci0000:00/0000:00:05.0/nvme/nvme0"
SUBSYSTEM = "devices/virtual/nvme-subsystem/nvme-subsys0"


class FakeHost:
    def __init__(self, root: Path, *, queued_in_column: bool = True) -> None:
        self.proc, self.sys, self.boot, self.etc = root / "proc", root / "sys", root / "boot", root / "etc"
        for directory in (self.proc, self.sys / "block", self.sys / "class/block", self.boot, self.etc):
            directory.mkdir(parents=True)
        self._gone = itertools.count()
        self._lines: dict[str, tuple[int, int, tuple[int, ...]]] = {}
        symbol = "blk_mq_in_driver_rw" if queued_in_column else "blk_mq_in_flight\0blk_mq_in_flight_rw"
        self.write("sys/kernel/btf/vmlinux", f"\0{symbol}\0")
        self._save()

    def write(self, path: str, text: str | bytes = "") -> Path:
        file = self.proc.parent / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def link(self, path: str, target: str) -> None:
        at = self.proc.parent / path
        at.parent.mkdir(parents=True, exist_ok=True)
        to = self.proc.parent / target
        to.mkdir(parents=True, exist_ok=True)
        at.unlink(missing_ok=True)
        at.symlink_to(to)

    def driver(self, device: str, bus: str, driver: str = "") -> None:
        self.link(f"sys/{device}/subsystem", f"sys/bus/{bus}")
        if driver:
            self.link(f"sys/{device}/driver", f"sys/bus/{bus}/drivers/{driver}")

    def disk(self, name: str, number: tuple[int, int], parent: str = "", *, mq: bool = True, size: int = 2048) -> str:
        """A whole disk under `parent` (a device) or virtual; answers its sysfs directory."""
        stored = name.replace("/", "!")
        inside = f"{parent}/block/{stored}" if parent and "nvme" not in name else f"{parent}/{stored}"
        path = f"sys/{inside}" if parent else f"sys/devices/virtual/block/{stored}"
        self.write(f"{path}/size", f"{size}\n")
        self.write(f"{path}/inflight", "       0        0\n")
        self.write(f"{path}/queue/iostats", "1\n")
        if mq:
            (self.proc.parent / path / "mq/0").mkdir(parents=True, exist_ok=True)
        for where in ("block", "class/block"):
            self.link(f"sys/{where}/{stored}", path)
        if parent:
            self.link(f"{path}/device", f"sys/{parent}")
        self.count(name, IDLE, number)
        return path

    def partition(self, disk: str, name: str, number: tuple[int, int]) -> None:
        path = f"{(self.sys / 'block' / disk).resolve().relative_to(self.proc.parent.resolve())}/{name}"
        self.write(f"{path}/partition", "1\n")
        self.link(f"sys/class/block/{name}", path)
        self.count(name, IDLE, number)

    def count(self, name: str, columns: tuple[int, ...], number: tuple[int, int] | None = None) -> None:
        at = number or self._lines[name][:2]
        self._lines[name] = (*at, columns)
        self._save()

    def unplug(self, name: str) -> None:
        del self._lines[name]
        # Kept aside and not deleted: sysfs never gives a directory's inode away again, a file system may at once.
        (self.sys / "block" / name).resolve().rename(self.proc.parent / f"gone-{next(self._gone)}")
        for where in ("block", "class/block"):
            (self.sys / where / name).unlink()
        self._save()

    def virtio(self, name: str = "vda", number: tuple[int, int] = (254, 0)) -> str:
        self.driver("devices/pci0000:00/0000:00:04.0", "pci", "virtio-pci")
        self.driver(VIRTIO, "virtio", "virtio_blk")
        self.write(f"sys/{VIRTIO}/vendor", "0x1af4\n")
        path = self.disk(name, number, VIRTIO)
        self.write(f"{path}/serial", "overlayblk\n")
        return path

    def mptsas(self, name: str = "sda", number: tuple[int, int] = (8, 0)) -> str:
        self.driver("devices/pci0000:00/0000:00:07.0", "pci", "mptsas")
        self.driver(MPTSAS, "scsi", "sd")
        self.write("sys/class/scsi_host/host2/proc_name", "mptsas\n")
        self.write(f"sys/{MPTSAS}/vendor", "QEMU    \n")
        self.write(f"sys/{MPTSAS}/model", "QEMU HARDDISK   \n")
        self.write(f"sys/{MPTSAS}/vpd_pg80", b"\x00\x80\x00\x09  SN-0042trailing")
        return self.disk(name, number, MPTSAS)

    def multipath(self) -> None:
        self.driver("devices/pci0000:00/0000:00:05.0", "pci", "nvme")
        self.driver(NVME, "nvme")
        self.driver(SUBSYSTEM, "nvme-subsystem")
        self.write(f"sys/{NVME}/transport", "pcie\n")
        for where in (NVME, SUBSYSTEM):
            self.write(f"sys/{where}/model", "QEMU NVMe Ctrl                          \n")
            self.write(f"sys/{where}/serial", "deadbeef            \n")
        self.disk("nvme0n1", (259, 1), SUBSYSTEM, mq=False)
        self.disk("nvme0c0n1", (259, 0), NVME)

    def _save(self) -> None:
        rows = (f"{a:4d} {b:7d} {name} {' '.join(map(str, cols))}\n" for name, (a, b, cols) in self._lines.items())
        self.write("proc/diskstats", "".join(rows))


def columns(reads: int = 0, writes: int = 0, in_flight: int = 0, flushes: int = 0) -> tuple[int, ...]:
    """17 columns: every I/O has 8 sectors and took 2 ms."""
    return (
        reads,
        0,
        reads * 8,
        reads * 2,
        writes,
        0,
        writes * 8,
        writes * 2,
        in_flight,
        0,
        0,
        0,
        0,
        0,
        0,
        flushes,
        flushes * 2,
    )
