"""Sizes of journals by superblocks that mkfs makes in files."""

import shutil
import struct
import subprocess

import pytest
from cgroup_host import at_once

from latmon.capture.mounts import Mount
from latmon_backends.kernel import journal_sizes
from latmon_backends.kernel.journal_sizes import JournalSizes, ext4_journal_bytes, journal_bytes, xfs_log_bytes

MB = 1 << 20


def made(tmp_path, size, *command):
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} here")
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(size)
    subprocess.run([*command, image], check=True, capture_output=True)
    with image.open("rb") as file:
        return file.read(4096)


@pytest.mark.parametrize("size_mb", [2, 8])
@pytest.mark.parametrize("block", ["1024", "4096"])
def test_the_journal_of_an_ext4(tmp_path, size_mb, block):
    if block == "4096" and size_mb == 2:
        size_mb = 4  # it has 1,024 blocks at least
    head = made(tmp_path, 64 * MB, "mkfs.ext4", "-q", "-F", "-b", block, "-J", f"size={size_mb}")
    assert ext4_journal_bytes(head) == size_mb * MB
    assert xfs_log_bytes(head) == 0


def test_an_ext4_without_a_journal(tmp_path):
    assert ext4_journal_bytes(made(tmp_path, 16 * MB, "mkfs.ext4", "-q", "-F", "-O", "^has_journal")) == 0


def test_the_log_of_an_xfs(tmp_path):
    head = made(tmp_path, 512 * MB, "mkfs.xfs", "-q", "-f", "-l", "size=64m")
    assert xfs_log_bytes(head) == 64 * MB
    assert ext4_journal_bytes(head) == 0


def test_neither():
    assert (ext4_journal_bytes(bytes(4096)), xfs_log_bytes(bytes(4096))) == (0, 0)


def test_an_impossible_size_is_not_known():
    """A number of 64 bits made each line of a recording unreadable; the image of a loop device may be any user's."""
    xfs = bytearray(4096)
    struct.pack_into(">2I", xfs, 0, 0x58465342, 0xFFFFFFFF)
    struct.pack_into(">Q", xfs, 48, 1)
    struct.pack_into(">I", xfs, 96, 0xFFFFFFFF)
    ext4 = bytearray(4096)
    struct.pack_into("<H", ext4, 1024 + 0x38, 0xEF53)
    struct.pack_into("<I", ext4, 1024 + 0x5C, 4)
    ext4[1024 + 0xFD] = 1
    struct.pack_into("<2I", ext4, 1024 + 0x10C + 60, 0xFFFFFFFF, 0xFFFFFFFF)
    assert (journal_bytes("xfs", bytes(xfs)), journal_bytes("ext4", bytes(ext4))) == (0, 0)


@pytest.fixture
def size_on_disk(monkeypatch):
    """What the next read of a superblock returns."""
    size = {"bytes": 16 * MB}
    monkeypatch.setattr(journal_sizes, "run_aside", lambda _name, call: at_once(call))
    monkeypatch.setattr(journal_sizes, "_size", lambda _mount: size["bytes"])
    return size


def mount(number):
    return Mount(f"/srv/{number}", "ext4", f"/dev/loop{number}", "rw", (7, number))


def test_a_journal_that_was_made_again_has_its_new_size(size_on_disk):
    sizes = JournalSizes().with_size_of(mount(0), 1_000_000)
    size_on_disk["bytes"] = 128 * MB
    assert sizes.with_size_of(mount(0), 59_000_000) is sizes
    assert sizes.with_size_of(mount(0), 62_000_000).bytes_of((7, 0)) == 128 * MB


def test_the_17th_file_system_is_asked_for_too(size_on_disk):
    sizes = JournalSizes()
    for number in range(17):
        sizes = sizes.with_size_of(mount(number), number)
    assert sizes.bytes_of((7, 16)) == size_on_disk["bytes"]
    assert len(sizes.asked) <= 16
