"""Sizes of journals by superblocks that mkfs makes in files."""

import shutil
import subprocess

import pytest

from latmon_backends.kernel.journal_sizes import ext4_journal_bytes, xfs_log_bytes

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
