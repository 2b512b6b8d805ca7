"""The writer of a recording: one gzip member per second, one roll-up per minute, nothing half-written; redaction.

A write that fails (full disk, quota) is cut off at the last good end. Its windows are lost, and the next write that
succeeds has a `gap` line for them. The writer owns the file and its lock. The first minute gets no roll-up, because a
sum begins with a window; nor does the last one, because no other minute follows it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import select
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from latmon.aggregate.request_age import Waiting
from latmon.model.devices import carry
from latmon.model.frame import (
    IDLE,
    MOUNTED_DIRSYNC,
    MOUNTED_SYNC,
    NOT_KNOWN,
    READ_ONLY_MOUNT,
    CgroupLimit,
    Device,
    FileOperation,
    Frame,
    Mark,
    Missing,
    Origin,
    Outlier,
    Thread,
    Wait,
    comm_of,
)
from latmon.model.inflight import InFlightList
from latmon.model.measurements import WAKEUPS
from latmon.model.measurements.issuers import OTHERS
from latmon.model.measurements.wakeups import ThreadNumber, Wakeups
from latmon.model.redaction import Redaction
from latmon.model.table import AnyTable, Meaning
from latmon.recording import codec, members
from latmon.recording.codec import End, Gap
from latmon.recording.rollup import MinuteSums, minute_of, roll_up
from latmon.support import output_files, streams
from latmon.support.errors import UnavailableError

PendingLine = tuple[bytes, Frame | Mark | Gap | End]
"""A line of the next member, and its value."""
FLUSH_US = 1_000_000
_FLUSH_BYTES = 4 * 1024 * 1024
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_MAX_ASIDES = 100
REDACTED = "redacted"
_KEY = os.urandom(16)
_NUMBER = re.compile(r"[0-9]+:[0-9]+")
"""Mount point of a file system that isn't among latmon's mounts."""
_PATH = re.compile(r"(?<![\w./])/[^\s,;:()'\"]+")
_ADDRESS = re.compile(r"\b(\w*addr)=[^,\s]+")
_PROGRAMS = Thread(0, REDACTED, "", 120, kernel=False)
"""Replacement of all threads of programs: pids are private, too, so they are one."""
_LINES_OF_DRIVERS = re.compile(
    r"(?:blk_update_request: |print_req_error: )?(?:I/O|critical|Buffer I/O|timeout|[\w ]+) error\b.* dev |"
    r"sd \d+:|scsi \S+: |ata\d+|nvme\d+\w*: |nvme\d* |nvme nvme\d+\w*: |device-mapper: multipath: |"
    r"[\d,]+ commands? timed out "
)
"""Lines of the kernel's log about devices. Those of file systems may have names of files and processes."""
_IDENTIFIERS = re.compile(
    r"\b(?:nqn|iqn)\.[^\s\"',;]+"
    r"|\b(?:naa|eui|t10|wwn|uuid|nguid)[.:=-][^\s\"',;]+"
    r"|\b[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}\b"
    # of SAS and Fibre Channel; NAA names begin with 1, 2, 3, 5 or 6, and others may be a host's, too
    r"|\b(?:0x)?[\da-f]{16}(?:[\da-f]{16})?\b"
    r"|(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.]*\d)"
    # IPv6, WWPN and MAC: eight groups, six pairs, or groups around `::`; a SCSI address has four
    r"|(?<![\w:])(?:[\da-f]{1,4}:){7}[\da-f]{1,4}(?![\w:])"
    r"|(?<![\w:])(?:[\da-f]{2}:){5}[\da-f]{2}(?![\w:])"
    r"|(?<![\w:])(?:[\da-f]{1,4}(?::[\da-f]{1,4}){0,6})?::(?:[\da-f]{1,4}(?::[\da-f]{1,4}){0,6})?(?![\w:])",
    re.IGNORECASE,
)
"""Names of targets, hosts and volumes, and addresses, in lines of drivers of NVMe over fabrics, iSCSI, FC."""
_PRIVATE_REPORTS = frozenset(("by_path", MOUNTED_SYNC, MOUNTED_DIRSYNC, READ_ONLY_MOUNT))


def kernel_marks(items: Iterable[object]) -> list[Mark]:
    """Return the lines of the kernel's log, which a roll-up has, too; a note of the user ends spans."""
    return [item for item in items if isinstance(item, Mark) and item.device]


class Rolling:
    """Roll-ups of members that are written: call `due` before each, then `took` or `missed`."""

    def __init__(self) -> None:
        self._waiting = Waiting()
        self._sums: MinuteSums | None = None
        self._minute = -1
        self._begin = self._first_us = 0
        self._last_us: int | None = None

    def due(self, windows: Sequence[Frame], end: int) -> bytes:
        """Return the roll-up member for byte `end`, before the member with these windows; empty if there is none."""
        if not windows or minute_of(windows[-1].mono_us) == self._minute:
            return b""
        return self._roll_up(end)

    def last(self, end: int) -> bytes:
        """Return the roll-up member of the last minute for byte `end`; empty where the minute is not over."""
        is_over = self._last_us is not None and minute_of(self._last_us + 1) != self._minute
        return self._roll_up(end) if is_over else b""

    def _roll_up(self, end: int) -> bytes:
        if self._sums is None:
            return b""
        line = roll_up(self._sums)
        self._sums = None
        if line is None or self._last_us is None:
            return b""
        return members.pack(line, self._first_us, self._last_us, end - self._begin)

    def took(self, windows: Sequence[Frame], begin: int, marks: Sequence[Mark] = (), *, plain: bool) -> None:
        """Add a member that was written to byte `begin`.

        `marks`: the lines of the kernel's log that it has; `plain`: beside these it has only windows.
        """
        if windows and (self._sums is None or minute_of(windows[-1].mono_us) != self._minute):
            self._sums = MinuteSums(self._waiting, self._last_us)
            self._minute = minute_of(windows[-1].mono_us)
            self._begin, self._first_us = begin, windows[0].mono_us
        if self._sums is not None:
            for frame in windows:
                self._sums.add(frame)
            for mark in marks:
                self._sums.note_mark(mark)
            if not plain or not windows:
                self._sums.spoil()
        if windows:
            self._last_us = windows[-1].mono_us

    def missed(self) -> None:
        """Note that windows were not written."""
        if self._sums is not None:
            self._sums.spoil()


class LostFileError(OSError):
    """The file of a recording was removed or truncated while it was written."""


class Writer:
    """Writer of one file. `trouble`: why nothing is written at the moment; empty otherwise."""

    def __init__(self, descriptor: int, path: Path, *, redaction: Redaction | None = None) -> None:
        self._descriptor, self._path = descriptor, path
        self._redaction = redaction
        self._end = 0
        self._pending: list[PendingLine] = []
        self._missed: list[Frame] = []
        self._missed_us = 0
        self._missed_why = ""
        self._rolling = Rolling()
        self._windows = 0
        self._mono_us, self._wall = 0, 0.0
        self._written: tuple[int, float] = (0, 0.0)
        self._stopped = False
        self._is_stream = path == streams.STANDARD
        self.trouble = ""

    @classmethod
    def create(
        cls,
        path: Path,
        origin: Origin,
        *,
        redaction: Redaction | None = None,
        devices: tuple[Device, ...] = (),
    ) -> Self:
        """Create a file with its header on disk; UnavailableError if that fails. Nothing is ever overwritten."""
        writer = cls(_create(path), path, redaction=redaction)
        writer._begin(origin, devices)
        return writer

    @property
    def size(self) -> int:
        """Return the bytes of the file that can be read back."""
        return self._end

    @property
    def inode(self) -> tuple[int, int]:
        """Return the numbers of its device and inode, before it is closed."""
        status = os.fstat(self._descriptor)
        return status.st_dev, status.st_ino

    def require_file(self) -> None:
        """Raise LostFileError if what was written can't be read any more."""
        if self._is_stream or self._descriptor < 0:
            return
        if not os.fstat(self._descriptor).st_nlink:
            raise LostFileError("the file was removed while it was written")
        self._require_length()

    def _require_length(self) -> None:
        """Raise LostFileError if the file is shorter than what was written.

        After a write it also finds a truncation right before it, because the file is opened to append: a write at a
        place would make a truncated file as long as before.
        """
        if self._is_stream:
            return
        if os.fstat(self._descriptor).st_size < self._end:
            raise LostFileError("the file was truncated while it was written")

    def hold(self) -> int:
        """Return a descriptor of the file that keeps its lock after the writer is closed; the caller closes it."""
        return os.dup(self._descriptor)

    def append(self, frame: Frame) -> None:
        """Write a frame, at the latest after a second of the frames' own time."""
        if self._stopped:
            return
        for mark in frame.marks:
            self.mark(_private_mark(mark, self._redaction) if self._redaction else mark)
        kept = replace(frame, health=replace(frame.health, recording="", recording_trouble=""), marks=())
        kept = private_frame(kept, self._redaction) if self._redaction else kept
        if self._missed:
            kept = carry(self._missed, kept)
            self._missed = []
        self._pending.append((codec.to_bytes(codec.encode_frame(kept)), kept))
        self._mono_us, self._wall = kept.mono_us, kept.wall
        covered = sum(frame.dt_us for frame in self._frames())
        if covered + frame.dt_us // 2 >= FLUSH_US or sum(len(line) for line, _ in self._pending) >= _FLUSH_BYTES:
            self.flush()

    def gap(self, reason: str, seconds: float) -> None:
        """Note time without a frame between the last one and the next one."""
        self._note(Gap(reason, seconds, self._mono_us, self._wall))

    def mark(self, mark: Mark) -> None:
        """Write a mark, before the frame in whose interval it was set."""
        self._note(mark)

    def flush(self) -> None:
        """Write what is pending as one member, or count it as missed. LostFileError where the file is gone."""
        if not self._pending or self._stopped:
            return
        frames, begin = self._frames(), self._end
        roll_up = self._rolling.due(frames, begin)
        marks = kernel_marks(item for _, item in self._pending)
        plain = len(frames) + len(marks) == len(self._pending) and not self._missed_us
        if self._write(roll_up + self._packed(self._pending)):
            self._rolling.took(frames, begin + len(roll_up), marks, plain=plain)
            self._windows += len(frames)
            self._written = (self._mono_us, self._wall)
            self._pending = []
            self._missed_us, self._missed_why, self.trouble = 0, "", ""
            self._require_length()
        else:
            self._miss(frames)

    def close(self, reason: str = "closed") -> None:
        """Write what is pending and the closing line; no call after it does anything."""
        if self._descriptor < 0:
            return
        try:
            self.flush()
            if last := self._rolling.last(self._end):
                self._write(last)
            self._stop(reason)
        finally:
            os.close(self._descriptor)
            self._descriptor = -1

    def append_whole(self, frame: Frame) -> None:
        """Write a frame of a recording that is worth nothing unless it is complete. UnavailableError where it isn't."""
        self._require_whole(partial(self.append, frame))

    def close_whole(self, reason: str = "closed") -> None:
        """Close such a recording. UnavailableError where it isn't complete."""
        self._require_whole(partial(self.close, reason))

    def _require_whole(self, write: Callable[[], None]) -> None:
        try:
            write()
        except LostFileError as loss:
            raise UnavailableError(f"can't write {self._path}: {loss}") from None
        if self.trouble:
            raise UnavailableError(f"can't write {self._path}: {self.trouble}")

    def _begin(self, origin: Origin, devices: tuple[Device, ...]) -> None:
        """Write only the header: the file is a recording from its first moment."""
        self._mono_us, self._wall = origin.start_mono_us, origin.start_wall
        self._written = (self._mono_us, self._wall)
        if self._redaction:
            origin = private_origin(origin, self._redaction)
            devices = tuple(private_device(device) for device in devices)
        if not self._write(members.pack(codec.to_bytes(codec.encode_origin(origin, devices)), *self._span())):
            why = self.trouble
            with contextlib.suppress(OSError, UnavailableError):
                output_files.unlink(self._path, self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
            raise UnavailableError(f"can't record to {self._path}: {why}")

    def _frames(self) -> list[Frame]:
        return [item for _, item in self._pending if isinstance(item, Frame)]

    def _miss(self, frames: list[Frame]) -> None:
        """Forget windows that could not be written, except for the devices they named and the lines between them."""
        self._rolling.missed()
        self._pending = [entry for entry in self._pending if not isinstance(entry[1], Frame)][-_MAX_ASIDES:]
        self._missed_us += sum(frame.dt_us for frame in frames)
        if frames:
            self._missed = [carry((*self._missed, *frames[:-1]), frames[-1])]

    def _note(self, note: Gap | Mark) -> None:
        if not self._stopped:
            self._pending.append((codec.to_bytes(codec.encode_note(note)), note))

    def _stop(self, reason: str) -> None:
        """Write the closing line after the gap lines that are pending, and nothing more."""
        closing = codec.to_bytes(codec.encode_note(End(reason, self._windows)))
        is_written = self._write(self._packed([*self._pending, (closing, End(reason, self._windows))]))
        self._pending, self._stopped = [], True
        if is_written:
            self._require_length()

    def _packed(self, pending: Sequence[PendingLine]) -> bytes:
        gap = Gap(self._missed_why, self._missed_us / 1e6, *self._written)
        before = [codec.to_bytes(codec.encode_note(gap))] if self._missed_us else []
        return members.pack(b"".join((*before, *(line for line, _ in pending))), *self._span())

    def _span(self) -> tuple[int, int]:
        first = next((frame.mono_us for frame in self._frames()), self._mono_us)
        return first, self._mono_us

    def _stream(self, member: bytes) -> None:
        """Write all of it, however slowly the reader takes it."""
        while member:
            try:
                member = member[os.write(self._descriptor, member) :]
            except BlockingIOError:  # the reader's shell may have made the pipe non-blocking
                select.select([], [self._descriptor], [])
            except BrokenPipeError:  # the reader closed it
                raise
            except OSError as error:
                raise streams.StdoutError(error.errno, error.strerror) from None

    def _write(self, member: bytes) -> bool:
        """Put a member at the end, whole or not at all; `trouble`: why not.

        OSError of standard output: what went into a pipe can't be taken back.
        """
        if self._is_stream:
            self._stream(member)
            self._end += len(member)
            return True
        try:
            done = 0
            while done < len(member):
                done += os.write(self._descriptor, member[done:])
        except OSError as error:
            with contextlib.suppress(OSError):  # what can't be cut off is read around
                os.ftruncate(self._descriptor, self._end)
            self._missed_why = "enospc" if error.errno in _FULL else "write-error"
            self.trouble = f"nothing is written: {error.strerror or error}"
            return False
        self._end += len(member)
        return True


def _create(path: Path) -> int:
    """Return a new, empty, locked file that only its owner can read; for `-` standard output as it is."""
    if path == streams.STANDARD:
        return os.dup(sys.__stdout__.fileno() if sys.__stdout__ else 1)
    try:
        descriptor = output_files.create(path, os.O_RDWR | os.O_APPEND)
    except FileExistsError:
        raise UnavailableError(f"can't record to {path}: it exists and is never overwritten; name a new file") from None
    except OSError as error:
        raise UnavailableError(f"can't record to {path}: {error.strerror or error}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UnavailableError(f"can't record to {path}: another latmon is recording to it") from None
    except OSError:  # a file system without locks; O_EXCL has already kept a second writer away
        pass
    return descriptor


def private_origin(origin: Origin, redaction: Redaction) -> Origin:
    """Return the origin without the host's name and boot and without paths in sentences, marked as redacted."""
    extra = {**origin.extra, "redacted": True}
    if isinstance(refused := extra.pop("refused", None), Mapping):
        extra["refused"] = {key: private_text(str(why), redaction) for key, why in refused.items()}
    return replace(
        origin,
        host=REDACTED,
        boot_id="",
        reason=private_text(origin.reason, redaction),
        absent=_missing(origin.absent, redaction),
        probes_missing=_missing(origin.probes_missing, redaction),
        untraced=_missing(origin.untraced, redaction),
        extra=MappingProxyType(extra),
    )


def _missing(missing_probes: tuple[Missing, ...], redaction: Redaction) -> tuple[Missing, ...]:
    return tuple(replace(missing, reason=private_text(missing.reason, redaction)) for missing in missing_probes)


def private_text(text: str, redaction: Redaction) -> str:
    """Return a sentence without paths, which can be below a user's home.

    Those with a blank are known as a whole where they are a tool's or the home of the user that records.
    """
    named = (os.environ.get(name, "") for name in ("LATMON_BPFTRACE", "LATMON_DTRACE", "HOME"))
    for path in (*redaction.paths, *named):  # a tool below the home comes before the home
        if len(path) > 1:
            text = text.replace(path, f"/{REDACTED}")
    return _PATH.sub(REDACTED, text)


def _without_identifiers(text: str) -> str:
    return _IDENTIFIERS.sub(REDACTED, _ADDRESS.sub(rf"\1={REDACTED}", text))


def _private_mark(mark: Mark, redaction: Redaction) -> Mark:
    """Return a mark without a file system's line of the kernel's log, and without paths and identifiers in others."""
    if not mark.device:
        return mark
    if _LINES_OF_DRIVERS.match(mark.text) is None:
        return replace(mark, text=REDACTED)
    return replace(mark, text=_without_identifiers(private_text(mark.text, redaction)))


def private_device(device: Device) -> Device:
    """Return a device without volume names, mount points, serial numbers and addresses of network storage.

    Its path by udev has the latter, and names of targets.
    """
    reports = tuple(report for report in device.reports if report.name not in _PRIVATE_REPORTS)
    controller = _without_identifiers(device.controller)
    return replace(device, serial="", label="", controller=controller, reports=reports)


def private_frame(frame: Frame, redaction: Redaction) -> Frame:
    """Return a frame without programs' names and pids; its wake-ups still mark the kernel's threads."""
    kernel = frozenset(wakeups.thread.comm for wakeups in frame[WAKEUPS].values() if wakeups.thread.kernel)
    return replace(
        frame,
        devices=tuple(private_device(device) for device in frame.devices),
        outliers=tuple(_outlier(outlier, kernel) for outlier in frame.outliers),
        in_flight=_in_flight(frame.in_flight),
        cgroup_limits=_cgroup_limits(frame.cgroup_limits),
        tables={table: _private_rows(table, rows) for table, rows in frame.tables.items()}
        | {WAKEUPS: _private_wakeups(frame[WAKEUPS], kernel)},
        file_operations=tuple(_operation(operation, kernel) for operation in frame.file_operations),
        health=replace(frame.health, notice=private_text(frame.health.notice, redaction)),
        marks=tuple(_private_mark(mark, redaction) for mark in frame.marks),
    )


def _private_rows(table: AnyTable, rows: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return the rows of a declared table without names; those with the same key then are added up."""
    kept = {key: value for key, value in rows.items() if not table.is_private_row(key)}
    return table.with_new_names(kept, _HIDDEN)


def _hidden_cgroup(cgroup: str) -> str:
    return cgroup if cgroup in ("", "/", OTHERS) else _hidden(cgroup)


def _empty(value: str | int) -> str | int:
    return 0 if isinstance(value, int) else ""


def _hidden_mount(mount: str) -> str:
    """Return a mount point without its name: one that isn't known stays so, else it would be a mount of its own."""
    return mount if mount in ("", "/") or _NUMBER.fullmatch(mount) else _hidden(mount)


_HIDDEN: Mapping[Meaning, Callable[[Any], Any]] = MappingProxyType(
    {
        Meaning.CGROUP: _hidden_cgroup,
        Meaning.MOUNT: _hidden_mount,
        Meaning.PRIVATE: _empty,
        Meaning.PROCESS: _empty,
    }
)
"""What stands in place of a part of a key."""


def _operation(operation: FileOperation, kernel: frozenset[str]) -> FileOperation:
    """Return an operation without the names of its file and its process."""
    its = operation.file_system._replace(mount=_hidden_mount(operation.file_system.mount))
    comm = REDACTED if operation.comm else ""
    waits = tuple(_wait(wait, kernel) for wait in operation.waits)
    path = REDACTED if operation.path else ""
    split = operation.split
    if split is not None and split.holder:
        split = split._replace(holder=REDACTED, holder_thread=0)
    return replace(operation, file_system=its, path=path, pid=None, comm=comm, waits=waits, split=split)


def _cgroup_limits(limits: tuple[CgroupLimit, ...] | None) -> tuple[CgroupLimit, ...] | None:
    return None if limits is None else tuple(_cgroup_limit(cgroup_limit) for cgroup_limit in limits)


def _cgroup_limit(cgroup_limit: CgroupLimit) -> CgroupLimit:
    return replace(cgroup_limit, cgroup=_hidden(cgroup_limit.cgroup, cgroup_limit.root), root="", names=())


def _hidden(cgroup: str, root: str = "") -> str:
    # distinct, so that two cgroups stay two; with a secret key, because names of services can be guessed
    return f"/{REDACTED}-{blake2b(f'{root}{cgroup}'.encode(), digest_size=4, key=_KEY).hexdigest()}"


def _in_flight(in_flight: InFlightList | None) -> InFlightList | None:
    if in_flight is None:
        return None
    oldest = (io._replace(pid=None, comm=REDACTED if io.comm else "") for io in in_flight.oldest)
    return replace(in_flight, oldest=tuple(oldest))


def _outlier(outlier: Outlier, kernel: frozenset[str]) -> Outlier:
    waits = tuple(_wait(wait, kernel) for wait in outlier.waits)
    return replace(outlier, pid=None, comm=REDACTED if outlier.comm else "", waits=waits)


def _wait(wait: Wait, kernel: frozenset[str]) -> Wait:
    # the thread that waits for an I/O is its issuer; the one that completes it is the kernel's
    hidden = wait if wait.stage != "resume" else replace(wait, thread=REDACTED, pid=0)
    return replace(hidden, instead=_instead(wait.instead, kernel))


def _private_wakeups(rows: Mapping[ThreadNumber, Wakeups], kernel: frozenset[str]) -> Mapping[ThreadNumber, Wakeups]:
    """Return the kernel's threads, and then all threads of programs as one."""
    kept = {number: woken for number, woken in rows.items() if woken.thread.kernel}
    programs = [replace(woken, thread=_PROGRAMS) for woken in rows.values() if not woken.thread.kernel]
    as_one = WAKEUPS.sum_rows((ThreadNumber(_PROGRAMS.pid), woken) for woken in programs)
    return WAKEUPS.with_new_names(kept | as_one, {Meaning.THREAD: partial(_instead, kernel=kernel)})


def _instead(name: str, kernel: frozenset[str]) -> str:
    """Return `comm (prio N)` with its priority, which distinguishes real-time threads from others."""
    comm = comm_of(name)
    if comm == name:
        return name if name in kernel or name in ("", IDLE, NOT_KNOWN) else REDACTED
    return name if comm in kernel else f"{REDACTED}{name.removeprefix(comm)}"
