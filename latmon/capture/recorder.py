"""The recorder: starts, feeds and stops the recording of a capture, and reports its state in one line.

Frames are written in order by a thread: a hanging disk, which latmon is used to analyse, must block neither the screen
nor the probes. The format is in latmon.recording.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from latmon.capture import target
from latmon.capture.backend import HostPart, allowed_silence_s
from latmon.model.devices import Inventory
from latmon.model.frame import Frame, Origin
from latmon.model.redaction import Redaction
from latmon.recording.parts import RecordingLimits, Rotation, beginning_after
from latmon.recording.writer import LostFileError, Writer
from latmon.support import output_files
from latmon.support.errors import UnavailableError
from latmon.support.process import SideThread
from latmon.support.streams import named
from latmon.support.text import listed
from latmon.support.units import counted

MAX_WAITING = 600
"""Frames buffered for a disk that hangs: ten minutes at 1 s, some 40 MB with 24 devices."""
CLOSING_S = 1.5
"""Time for a hanging disk to write the rest."""
SPACE_CHECK_S = 5.0
"""Time between two checks of the free space."""
_RESUME_S = 5.0
"""Time between two attempts to record again."""
_STALLED = "disk-stalled"
"""Reason of a gap for frames that had no room in the queue."""

P = ParamSpec("P")
T = TypeVar("T")
_REASON = "saved after the event"


class RecordingState(NamedTuple):
    """Name and trouble of a recording, as Health reports them."""

    name: str = ""
    trouble: str = ""


_IDLE = RecordingState()


class Recorder:
    """Writer of at most one recording at a time. `complete`: nothing is missing."""

    def __init__(
        self,
        origin: Origin,
        limits: RecordingLimits,
        space: Callable[[Path], str] = target.short_of_space,
        remarks: Callable[[Path], str] = lambda _: "",
        *,
        resumes: bool = False,
    ) -> None:
        """`space` returns why the file system has no room, `remarks` what is unusual about the file's directory.

        `resumes`: after an error the recording goes on in a new part, once that can be written.
        """
        self._resumes = resumes
        self._stopped: Rotation | None = None
        """The recording that goes on after an error."""
        self._resuming: asyncio.Task[None] | None = None
        self._resume_due = 0.0
        self._origin, self._limits, self._space, self._remarks = origin, limits, space, remarks
        self._inventory = Inventory()
        self._writer: Rotation | None = None
        self._writing: asyncio.Task[None] | None = None
        self._waiting: asyncio.Queue[Frame | None] = asyncio.Queue(MAX_WAITING)
        self._silent_s = 0.0
        self._path = Path()
        self._news = ""
        self._why = ""
        self._closing = "closed"
        self._last: Frame | None = None
        self._size = 0
        self._fresh = self._is_ending = False
        self._missed_us, self._missed_why = 0, _STALLED
        """Length and reason of the gap before the next frame that is written."""
        self._space_due = 0.0
        self.complete = True

    @property
    def interval_us(self) -> int:
        return self._origin.interval_us

    @property
    def active(self) -> bool:
        return self._writer is not None

    @property
    def state(self) -> RecordingState:
        """The file's name while recording, else why recording stopped, if the user didn't stop it."""
        if self._writer is None:
            return RecordingState(trouble=self._why)
        trouble = self._writer.trouble or self._writer.refusal
        return RecordingState(self._writer.path.name, trouble)

    @property
    def size(self) -> int:
        """Size of all parts in bytes, now or at the end of the recording."""
        return self._size if self._writer is None else self._writer.size

    def news(self) -> str:
        """Return a remark about the recording's directory, once."""
        news, self._news = self._news, ""
        return news

    def forget(self) -> None:
        """Forget the size of the previous recording, and why it stopped; nothing may be recorded now."""
        self._size, self._why = 0, ""

    async def start(self, path: Path) -> None:
        """Start recording; UnavailableError if the file can't be created. Its first frame contains all devices."""
        disk = SideThread("recorder")  # a new one: that of the previous recording may still hang
        try:
            await _on(disk, target.refuse, path)
            origin = self._origin if self._last is None else beginning_after(self._last, self._origin)
            self._news = await _on(disk, self._remarks, path)
            self._writer = await _on(disk, Rotation.create, path, origin, self._limits)
        except (UnavailableError, asyncio.CancelledError):
            disk.shutdown()
            raise
        self._path = path
        self._missed_us, self._missed_why = 0, _STALLED
        self._begin_writing(self._writer, disk)

    def _begin_writing(self, writer: Rotation, disk: SideThread) -> None:
        self._writer, self._stopped = writer, None
        self._closing = "stopped by itself"
        self._why, self._fresh, self._is_ending = "", True, False
        self._waiting = asyncio.Queue(MAX_WAITING)
        self._writing = asyncio.create_task(self._write(writer, self._waiting, disk))

    async def toggle(self, silent_s: float = 0.0) -> None:
        """Start in the current directory, or stop; a refusal is reported by `state` and doesn't end the capture.

        `silent_s` as for `stop`.
        """
        if self.active:
            await self.stop(silent_s=silent_s)
            return
        try:
            directory = target.default_directory(os.environ)
            host = "" if self._limits.redaction else self._origin.host
            await self.start(directory / target.recording_name(host, time.time()))
        except UnavailableError as refusal:
            self._why = f"not recording: {refusal}"

    def put(self, frame: Frame) -> None:
        """Add a frame of the capture without waiting; also needed while nothing is recorded."""
        self._inventory.note(frame)
        self._last = frame
        if self._writing is not None and self._writing.done():
            self._writing.result()
        if self._writer is None and self._stopped is not None:
            self._missed_us += frame.dt_us
            self._resume_when_due(self._stopped)
        if self._writer is None or self._is_ending:
            return
        try:
            self._waiting.put_nowait(self._inventory.complete(frame) if self._fresh else frame)
        except asyncio.QueueFull:
            self._missed_us += frame.dt_us
            self.complete = False
        else:
            self._fresh = False

    def _resume_when_due(self, stopped: Rotation) -> None:
        is_closed = self._writing is not None and self._writing.done()
        is_idle = self._resuming is None or self._resuming.done()
        if is_closed and is_idle and time.monotonic() >= self._resume_due:
            self._resume_due = time.monotonic() + _RESUME_S
            self._resuming = asyncio.create_task(self._resume(stopped))

    async def _resume(self, stopped: Rotation) -> None:
        """Record into the next part, if there is room and it can be created."""
        disk = SideThread("recorder")
        begun = False
        try:
            if not await _on(disk, self._space, self._path):
                await _on(disk, stopped.begin_again)
                begun = True
        except (UnavailableError, OSError):  # as before: `state` has the reason why it stopped
            pass
        finally:
            if not begun:
                disk.shutdown()
        if begun:
            self._begin_writing(stopped, disk)

    async def stop(self, reason: str = "closed", within: float = CLOSING_S, silent_s: float = 0.0) -> None:
        """Write buffered frames and close the file; a hanging disk is abandoned after `within` seconds.

        `silent_s`: seconds since the last frame that no frame will cover; a `gap` line reports them.
        """
        leave_by = time.monotonic() + within
        if self._resuming is not None:
            await asyncio.wait({self._resuming}, timeout=within)
            self._resuming.cancel()  # one whose disk hangs begins nothing any more
        self._closing, self._silent_s = reason, silent_s
        self._stopped = None
        if self._writing is None:
            return
        writing, self._is_ending = self._writing, True
        with contextlib.suppress(asyncio.QueueFull):
            self._waiting.put_nowait(None)
        done, _ = await asyncio.wait({writing}, timeout=max(0.0, leave_by - time.monotonic()))
        self._writing = None
        if not done:
            writing.cancel()
            self._give_up(f"the disk of {self._path} did not answer within {round(within, 2):g} s")
        for task in done:
            task.result()
        if self._writer is not None:
            self._size, self._writer = self._writer.size, None

    async def _write(self, writer: Rotation, waiting: asyncio.Queue[Frame | None], disk: SideThread) -> None:
        """Write the recording, from its first frame to its end line."""
        missing = _STALLED
        try:
            while (frame := await waiting.get()) is not None:
                missed = {self._missed_why: self._missed_us / 1e6}
                self._missed_us, self._missed_why = 0, _STALLED
                shortage = await _on(disk, self._append, writer, frame, missed)
                self.complete = self.complete and not writer.trouble
                if shortage:
                    missing = "enospc"
                    self._give_up(shortage)
                    break
        except BrokenPipeError:  # the reader needed no more; nothing is missing
            self._size, self._writer = writer.size, None
            self._why = "the reader of standard output has closed it"
        except OSError as error:
            missing = "write-error"
            self._give_up(f"{named(self._path)}: {error.strerror or error}")
        finally:
            # Started here and awaited below: after a cancellation because of a hanging disk nothing waits for it, and
            # the end line is still written when the disk answers again.
            missed_s = (self._missed_us + _left_us(waiting)) / 1e6
            self._missed_us, self._missed_why = 0, missing
            closed = _on(disk, _close, writer, self._closing, {missing: missed_s, "probe-silent": self._silent_s})
            disk.shutdown()
        try:
            await closed
        except LostFileError as error:
            self._give_up(f"{named(self._path)}: {error}")

    def _append(self, writer: Rotation, frame: Frame, missed: Mapping[str, float]) -> str:
        """Write gaps and the frame (in the thread); return why it should be the last one.

        `missed`: reason of a gap and its seconds.

        LostFileError where the file was removed or truncated.
        """
        writer.require_file()
        _note_gaps(writer, missed)
        writer.append(frame)
        return self._shortage()

    def _shortage(self) -> str:
        now = time.monotonic()
        if now < self._space_due:
            return ""
        self._space_due = now + SPACE_CHECK_S
        return self._space(self._path)

    def _give_up(self, why: str) -> None:
        """End the recording because of an error."""
        if self._writer is not None:
            self._stopped = self._writer if self._resumes else None
            self._size, self._writer = self._writer.size, None
        self._why = f"recording to {self._path.name} stopped: {why}"
        self.complete = False


def _has_stopped(recorder: Recorder) -> bool:
    """Return whether a recording stopped by itself."""
    return not recorder.active and recorder.state != _IDLE


class _LatestPart(NamedTuple):
    """The recorder of a host's latest frame, and when it was received, in s of the monotonic clock."""

    key: tuple[str, str, bool]
    received_s: float


class HostRecorders:
    """Recorders of a fleet, with a Recorder's methods: one recording per host, boot and clock, in one directory."""

    def __init__(
        self,
        origin: Origin,
        limits: RecordingLimits,
        taken: Callable[[], Iterable[HostPart]],
        space: Callable[[Path], str] = target.short_of_space,
        *,
        labels: Sequence[str] = (),
    ) -> None:
        """`taken` returns the hosts' frames since the last call; `space`: see Recorder; `labels`: all hosts' names."""
        self._origin, self._limits, self._taken, self._space = origin, limits, taken, space
        self._labels = tuple(labels)
        self._latest: dict[str, _LatestPart] = {}
        """By label."""
        self._silences: dict[str, float] = {}
        """Label -> seconds without a frame at the end of the recording, of hosts that had sent frames."""
        self._recorders: dict[tuple[str, str, bool], Recorder] = {}
        """By label, boot and whether its clock is the host's own: a recording has one monotonic clock."""
        self._starting: dict[tuple[str, str, bool], asyncio.Task[None]] = {}
        self._directory: Path | None = None
        self._why = ""
        self._refused: dict[tuple[str, str, bool], str] = {}

    @property
    def interval_us(self) -> int:
        return self._origin.interval_us

    @property
    def active(self) -> bool:
        """Return whether a host is recorded, or none has failed so far.

        A host without a frame doesn't count after a failure: what ends one recording, such as a full disk, ends all
        in the directory, and a host that can't be reached would keep the capture alive.
        """
        if self._directory is None:
            return False
        failed = self._refused.keys() | {key for key, recorder in self._recorders.items() if _has_stopped(recorder)}
        return not failed or len(failed) < len(self._recorders)

    @property
    def state(self) -> RecordingState:
        """Return the directory's name with the number of hosts recorded, and the first reason where some fail."""
        if self._directory is None:
            return RecordingState(trouble=self._why)
        name = (
            f"{self._directory.name} ({counted(sum(recorder.active for recorder in self._recorders.values()), 'host')})"
        )
        trouble = next((recorder.state.trouble for recorder in self._recorders.values() if _has_stopped(recorder)), "")
        trouble = trouble or next(iter(self._refused.values()), "")
        return RecordingState(name, trouble) if self.active else RecordingState(trouble=f"{name}: {trouble}")

    @property
    def size(self) -> int:
        return sum(recorder.size for recorder in self._recorders.values())

    @property
    def complete(self) -> bool:
        return not self._refused and all(recorder.complete for recorder in self._recorders.values())

    @property
    def has_frames(self) -> bool:
        """Return whether any host has sent a frame."""
        return bool(self._latest)

    def losses(self) -> str:
        """Return which hosts sent no frame, and after `stop` which sent none at the end; empty without any."""
        missing = [label for label in self._labels if label not in self._latest]
        sentences = [f"{self._named(missing)} sent no frame"] if missing else []
        for label, silent_s in self._silences.items():
            sentences.append(f"{self._named([label])} sent no frame in the last {silent_s:.0f} s")
        return "; ".join(sentences)

    def _named(self, labels: Sequence[str]) -> str:
        return counted(len(labels), "host") if self._limits.redaction else listed(labels)

    def news(self) -> str:
        """Return nothing: the hosts' disks are not this host's."""
        return ""

    async def start(self, path: Path) -> None:
        """Record into the directory `path` from now on; UnavailableError if that can't be."""
        disk = SideThread("recorder")
        try:
            await _on(disk, target.refuse_for_hosts, path)
            await _on(disk, output_files.make_directories, path)
        except OSError as error:
            raise UnavailableError(f"can't record to {path}: {error.strerror}") from None
        finally:
            disk.shutdown()
        self._directory, self._why = path, ""
        self._refused.clear()
        for recorder in self._recorders.values():  # they know the hosts' devices, and may have failed before
            recorder.forget()

    async def toggle(self, silent_s: float = 0.0) -> None:
        """Start in a new directory below the current one, or stop."""
        if self.active:
            await self.stop(silent_s=silent_s)
            return
        try:
            directory = target.default_directory(os.environ)
            await self.start(directory / target.recording_name("fleet", time.time(), ""))
        except UnavailableError as refusal:
            self._why = f"not recording: {refusal}"

    def put(self, _frame: Frame) -> None:
        """Add the hosts' own frames; their sum is not recorded."""
        for part in self._taken():
            key = part.label, part.origin.boot_id, part.has_own_clock
            recorder = self._recorders.get(key)
            if recorder is None:
                recorder = self._recorders[key] = Recorder(part.origin, self._limits, self._space)
            self._latest[part.label] = _LatestPart(key, time.monotonic())
            recorder.put(part.frame)
            if self._directory is not None and recorder.state == _IDLE and key not in self._starting | self._refused:
                self._starting[key] = asyncio.create_task(self._start(key, recorder, self._directory))

    async def _start(self, key: tuple[str, str, bool], recorder: Recorder, directory: Path) -> None:
        label = "" if self._limits.redaction else key[0]
        try:
            await recorder.start(target.unused(directory / target.recording_name(label, time.time())))
        except UnavailableError as refusal:
            self._refused[key] = str(refusal)
        finally:
            self._starting.pop(key, None)

    async def stop(self, reason: str = "closed", within: float = CLOSING_S, silent_s: float = 0.0) -> None:
        """Stop all recordings at once, those that start as soon as they have started; see Recorder."""
        silences = self._silences_now()  # first: a wait for a disk is no silence of a host
        self._directory = None  # a host's frame would start a new file while another host's disk takes its last ones
        self._silences = {label: seconds for (label, _, _), seconds in silences.items()}
        stops = []
        for key, recorder in self._recorders.items():
            own_silence_s = silences.get(key, 0.0)
            if own_silence_s:
                recorder.complete = False
            stops.append(self._stop_host(key, reason, within, max(silent_s, own_silence_s)))
        await asyncio.gather(*stops)

    async def _stop_host(self, key: tuple[str, str, bool], reason: str, within: float, silent_s: float) -> None:
        """Stop the recording of a host; `within`: seconds for its start and its end together."""
        leave_by = time.monotonic() + within
        if starting := self._starting.get(key):
            await asyncio.wait({starting}, timeout=within)
            within = max(0.0, leave_by - time.monotonic())
        await self._recorders[key].stop(reason, within, silent_s)

    def _silences_now(self) -> dict[tuple[str, str, bool], float]:
        """Return the seconds since the latest frame of each host that sends none any more."""
        silences = {}
        for part in self._latest.values():
            silent_s = time.monotonic() - part.received_s
            if silent_s > allowed_silence_s(self.interval_us):
                silences[part.key] = silent_s
        return silences


def _close(writer: Rotation, reason: str, missing: Mapping[str, float]) -> None:
    """Write a gap line for each reason with its seconds, and the closing line. LostFileError where the file is gone."""
    _note_gaps(writer, missing)
    try:
        writer.require_file()
    finally:
        try:
            writer.close(reason)
        except LostFileError:
            raise
        except OSError:
            pass


def _note_gaps(writer: Rotation, missing: Mapping[str, float]) -> None:
    for why, seconds in missing.items():
        if seconds:
            writer.gap(why, seconds)


def _left_us(waiting: asyncio.Queue[Frame | None]) -> int:
    """Drop the frames that are not written, and return their length in us."""
    left = 0
    while not waiting.empty():
        frame = waiting.get_nowait()
        left += 0 if frame is None else frame.dt_us
    return left


def _on(disk: SideThread, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
    """Start the call in that thread, even if the result is never awaited."""
    return asyncio.get_running_loop().run_in_executor(disk, partial(call, *args, **kwargs))


def save(frames: Iterable[Frame], origin: Origin, path: Path, *, redaction: Redaction | None = None) -> int:
    """Save frames as a recording, and return their number; UnavailableError leaves no file."""
    target.refuse(path)
    other_frames = iter(frames)
    first = next(other_frames, None)
    if first is None:
        return 0
    begun = replace(origin, start_mono_us=first.mono_us - first.dt_us, start_wall=first.wall - first.dt_us / 1e6)
    writer = Writer.create(path, begun, redaction=redaction, devices=first.devices)
    inode = writer.hold()
    many = 0
    try:
        for frame in chain((first,), other_frames):
            writer.append_whole(frame)
            many += 1
        writer.close_whole(_REASON)
    except BaseException:
        with contextlib.suppress(OSError, UnavailableError):  # an incomplete file must not remain
            output_files.unlink(path, inode)
        with contextlib.suppress(OSError):
            writer.close(_REASON)
        raise
    finally:
        os.close(inode)
    return many
