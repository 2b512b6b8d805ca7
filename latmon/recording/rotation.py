"""Rotation: a new part every day or at its share of --max-size; the oldest parts are removed.

Each part is a whole recording, and no frame is lost or doubled between two. Only parts of this capture are unlinked.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from latmon.model.devices import Inventory
from latmon.model.frame import Frame, Origin
from latmon.recording.parts import CONTINUED, CapturePart, as_part, part_path
from latmon.recording.writer import Writer
from latmon.support import streams
from latmon.support.errors import UnavailableError

DAY_US = 86_400_000_000
SHARES = 8
"""Parts in which a capture with a maximum is kept: unlinking one loses an eighth of it."""
MIN_SHARE = 1024 * 1024
MIN_SIZE = 2 * MIN_SHARE
"""One part that is whole, and the one that is written."""
_RETRY_US = 60_000_000
_NAMES_TRIED = 1_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a recording: bytes in all, the age at which a part is removed, and whether it is redacted."""

    max_size: int | None = None
    redact: bool = False
    keep_us: int | None = None

    @property
    def share(self) -> int | None:
        """Return the bytes of a part."""
        return None if self.max_size is None else max(MIN_SHARE, self.max_size // SHARES)

    @property
    def length_us(self) -> int:
        """Return the longest time of a part: with --keep 1h a part of a day would be too long."""
        return DAY_US if self.keep_us is None else min(DAY_US, self.keep_us)


@dataclass(frozen=True, slots=True)
class _Finished:
    """Closed part. Another file may have its name by now, and even its inode number, but hardly its size, too."""

    path: Path
    inode: tuple[int, int]
    size: int
    ended_us: int

    @property
    def is_there(self) -> bool:
        """Return whether its name is still its own; True for a file server that doesn't answer."""
        try:
            status = self.path.lstat()
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return (status.st_dev, status.st_ino, status.st_size) == (*self.inode, self.size)


class Rotation:
    """Writer of parts with a Writer's methods. `trouble`: why nothing is written; `refusal`: why parts stay."""

    def __init__(self, first: Path, origin: Origin, limits: Limits) -> None:
        self._first, self._origin, self._limits = first, origin, limits
        self._is_stream = first == streams.STANDARD
        self._capture = secrets.token_hex(8)
        self._inventory = Inventory()
        self._finished: deque[_Finished] = deque()
        self._number = self._name = 1
        self._largest = 0
        self._fresh = False
        self._last: Frame | None = None
        self._retry_us = 0
        self.path = first
        self._writer = self._open(first)
        self._began_us: int | None = None
        self._size = self._writer.size
        self.refusal = ""

    @classmethod
    def create(cls, path: Path, origin: Origin, limits: Limits) -> Self:
        """Create the first part with its header; UnavailableError when there can't be one."""
        return cls(path, origin, limits)

    @property
    def trouble(self) -> str:
        return self._writer.trouble

    @property
    def size(self) -> int:
        """Return the bytes of all parts after the latest frame; one number, so that other threads may read it."""
        return self._size

    def append(self, frame: Frame) -> None:
        """Write a frame to this part, or to the next one if this one is full."""
        if self._is_due(frame):
            self._rotate(frame)
        if self._began_us is None:
            self._began_us = frame.mono_us - frame.dt_us
        self._inventory.note(frame)
        before = self._writer.size
        # removed devices are listed again, because a reader of all parts knew them from the part before
        whole = replace(self._inventory.complete(frame), removed=frame.removed) if self._fresh else frame
        self._writer.append(whole)
        self._fresh = False
        self._last = frame
        self._largest = max(self._largest, self._writer.size - before)
        self._retire(frame.mono_us)
        self._size = self._bytes()

    def gap(self, reason: str, seconds: float) -> None:
        """Note time without a frame before the next one."""
        self._writer.gap(reason, seconds)

    def close(self, reason: str = "closed") -> None:
        try:
            self._writer.close(reason)
        finally:
            self._size = self._bytes()
            self._finished.clear()

    def _bytes(self) -> int:
        return self._writer.size + sum(one.size for one in self._finished)

    def _is_due(self, frame: Frame) -> bool:
        if self._began_us is None or self._last is None or frame.mono_us < self._retry_us or self._is_stream:
            return False
        share = self._limits.share
        return frame.mono_us - self._began_us > self._limits.length_us or (
            share is not None and self._writer.size + self._largest > share
        )

    def _rotate(self, frame: Frame) -> None:
        """Begin the next part; if that fails, go on with this one and try again in a minute."""
        self._writer.flush()
        if self._writer.trouble:
            return
        old, old_path = self._writer, self.path
        self._number += 1
        try:
            path = self._free_name()
            self._writer = self._open(path)
        except (UnavailableError, OSError) as refusal:
            self._number -= 1
            self._writer = old
            self.refusal = f"{refusal}; {old_path.name} goes on instead"
            self._retry_us = frame.mono_us + _RETRY_US
            return
        self.path, self._fresh, self.refusal = path, True, ""
        self._finish(old, old_path, CONTINUED + (f"part {self._number}" if self._limits.redact else path.name))
        self._began_us = None

    def _finish(self, old: Writer, path: Path, reason: str) -> None:
        """Close a part whose windows are written."""
        inode = (0, 0)
        with contextlib.suppress(OSError):  # a file server without the file
            inode = old.inode
        with contextlib.suppress(OSError):  # its windows are there
            old.close(reason)
        self._finished.append(_Finished(path, inode, old.size, self._last.mono_us if self._last is not None else 0))

    def _free_name(self) -> Path:
        """Return the next free name: parts of an earlier capture may be beside an unlinked first file."""
        for _ in range(_NAMES_TRIED):
            self._name += 1
            path = part_path(self._first, self._name)
            if not os.path.lexists(path):
                return path
        raise UnavailableError(f"{path.name} and the names before it are taken")

    def _open(self, path: Path) -> Writer:
        # a name may have what --redact hides
        part = CapturePart(self._number, self._capture, "" if self._limits.redact else self._first.name)
        last = self._last
        origin = self._origin if last is None else beginning_after(last, self._origin)
        return Writer.create(path, as_part(origin, part), redact=self._limits.redact)

    def _retire(self, now_us: int) -> None:
        """Unlink parts that are too old, and the oldest part while the next member might not fit."""
        for one in [one for one in self._finished if not one.is_there]:
            self._finished.remove(one)
        keep_us, most = self._limits.keep_us, self._limits.max_size
        while self._finished and keep_us is not None and now_us - self._finished[0].ended_us > keep_us:
            self._unlink(self._finished.popleft())
        while self._finished and most is not None and self._bytes() + self._largest > most:
            self._unlink(self._finished.popleft())

    def _unlink(self, part: _Finished) -> None:
        try:
            part.path.unlink()
        except OSError as error:
            self.refusal = f"{part.path.name} can't be unlinked: {error.strerror or error}"


def beginning_after(last: Frame, origin: Origin) -> Origin:
    """Return the origin of a recording that begins in the middle of a capture, after its frame `last`."""
    return replace(origin, start_wall=last.wall, start_mono_us=last.mono_us)
