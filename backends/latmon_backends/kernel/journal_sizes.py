"""Sizes of journals (ext4) and logs (xfs) by the superblock on the device.

The kernel has them in no file. The read is one of 4 KiB at the device's beginning, on a thread of its own, since a
device that is suspended or lost would keep it. It happens only where programs wait for the journal, and again after a
minute: a journal can be made again with another size, and a number of a device may be another one's by then.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import MappingProxyType
from typing import NamedTuple

from latmon.capture.mounts import Mount
from latmon.support.process import run_aside

_MOST = 16
"""File systems whose size is known, or asked for."""
_AGAIN_US = 60_000_000
_LARGEST = 1 << 48
"""Bytes of the largest journal, of 2^32 blocks of 64 KiB: who can write to the device may have put anything there."""
_READ = 4096
_EXT4_AT, _EXT4_MAGIC, _HAS_JOURNAL, _INODE_IS_BACKED_UP = 1024, 0xEF53, 0x4, 1
"""fs/ext4/ext4.h struct ext4_super_block: s_magic, s_feature_compat, s_jnl_backup_type with s_jnl_blocks, the copy of
the journal's inode, whose last two words are its size. A journal on another device has none."""
_XFS_MAGIC = 0x58465342
"""fs/xfs/libxfs/xfs_format.h struct xfs_dsb: sb_magicnum, sb_blocksize, sb_logstart, sb_logblocks, big-endian."""


def ext4_journal_bytes(block: bytes) -> int:
    """Return the size of the journal in an ext4; 0 where it has none of its own, or this is no ext4."""
    superblock = block[_EXT4_AT:]
    (magic,) = struct.unpack_from("<H", superblock, 0x38)
    (features,) = struct.unpack_from("<I", superblock, 0x5C)
    if magic != _EXT4_MAGIC or not features & _HAS_JOURNAL or superblock[0xFD] != _INODE_IS_BACKED_UP:
        return 0
    high, low = struct.unpack_from("<2I", superblock, 0x10C + 15 * 4)
    return int(high) << 32 | int(low)


def xfs_log_bytes(block: bytes) -> int:
    """Return the size of the log in an xfs; 0 where it is on another device, or this is no xfs."""
    magic, block_size = struct.unpack_from(">2I", block, 0)
    (log_start,) = struct.unpack_from(">Q", block, 48)
    (log_blocks,) = struct.unpack_from(">I", block, 96)
    return int(log_blocks) * int(block_size) if magic == _XFS_MAGIC and log_start else 0


_SIZES: Mapping[str, Callable[[bytes], int]] = MappingProxyType({"ext4": ext4_journal_bytes, "xfs": xfs_log_bytes})


def journal_bytes(kind: str, block: bytes) -> int:
    """Return the size of the journal in a file system of this type; 0 where it has none, or an impossible one."""
    size = _SIZES[kind](block)
    return size if size <= _LARGEST else 0


class _Asked(NamedTuple):
    """A size that was asked for."""

    at_us: int
    answer: Future[int]
    before: int
    """The size until there is an answer; 0: not known."""

    @property
    def bytes(self) -> int:
        """Return the size; 0 where it is not known."""
        if not self.answer.done():
            return self.before
        return self.answer.result() if self.answer.exception() is None else 0


class JournalSizes(NamedTuple):
    """Sizes that were asked for, by the number of the file system's device."""

    asked: Mapping[tuple[int, int], _Asked] = MappingProxyType({})

    def with_size_of(self, mount: Mount, mono_us: int) -> JournalSizes:
        """Ask for the size of a mount's journal, if that is new, or was asked for a minute ago."""
        if mount.kind not in _SIZES or not mount.source.startswith("/dev/"):
            return self
        known = self.asked.get(mount.number)
        if known is not None and (not known.answer.done() or mono_us - known.at_us < _AGAIN_US):
            return self
        others = {number: asked for number, asked in self.asked.items() if number != mount.number}
        if len(others) >= _MOST:  # those without an answer have a thread each
            others = {number: asked for number, asked in others.items() if not asked.answer.done()}
        if len(others) >= _MOST:
            return self
        answer = run_aside("journal size", lambda: _size(mount))
        asked = _Asked(mono_us, answer, 0 if known is None else known.bytes)
        return JournalSizes({**others, mount.number: asked})

    def bytes_of(self, number: tuple[int, int]) -> int:
        """Return a size; 0 where it is not known."""
        asked = self.asked.get(number)
        return 0 if asked is None else asked.bytes


def _size(mount: Mount) -> int:
    descriptor = os.open(mount.source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        number = os.major(status.st_rdev), os.minor(status.st_rdev)
        if not stat.S_ISBLK(status.st_mode) or number != mount.number:
            return 0
        block = os.pread(descriptor, _READ, 0)
    finally:
        os.close(descriptor)
    return journal_bytes(mount.kind, block) if len(block) == _READ else 0
