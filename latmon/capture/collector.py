"""One capture from opening to its end, and the collector process, which runs one independent of the terminal.

A capture passes a backend's frames to the recorder and to a sink, drops privileges, and has an exit code; the headless
command runs one with a sink of its own. `Ending` controls its end: after an urgent stop everything is closed within
LEAVING_S.

The collector is started by session.py with its end of a socket pair: `python -m latmon.capture.collector FD`. First
line in: the request; then commands. Out: the feed. It leaves by itself within 2 s when the socket closes. On a host of
a fleet, `latmon fleet --feed` is the same over standard input and output, with the request from its options.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import socket
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from latmon.capture import registry, target
from latmon.capture.backend import Backend, Configured, Finishing, OfHosts, TracesOnDemand, allowed_silence_s
from latmon.capture.recorder import HostRecorders, Recorder, RecordingState
from latmon.capture.registry import Request, opened
from latmon.capture.session import MAX_BACKLOG, MAX_COMMAND, Lines, Outlet
from latmon.model.frame import Frame, Mark, Origin, Settings, changes
from latmon.model.measurements import ABOVE
from latmon.model.stages import STAGES_MODES
from latmon.recording.codec import to_bytes
from latmon.recording.parts import RecordingLimits
from latmon.support import failures, loop_errors, privileges
from latmon.support.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INCOMPLETE,
    EXIT_UNAVAILABLE,
    LatmonError,
    ProbeGoneError,
    UsageError,
)
from latmon.support.process import OwnCpu, OwnProcesses, call_with_deadline
from latmon.support.streams import STANDARD
from latmon.support.text import clean
from latmon.support.units import show_duration

SAME_TIME_S = 0.05
GRACE_S = 2.0
"""Time after the duration in which a silent backend may report the last frame."""
LEAVING_S = 1.9
"""Limit from the end of a capture to a closed recording, whatever hangs: the collector has 2 s without a UI."""
FINISHING_S = 1.4
"""A probe tool takes up to 1.3 s to detach; the rest of LEAVING_S remains for the recording."""
PATIENCE_S = 3.6
"""Additional time for the tracer's last counts if the stop is not urgent: 5 s with FINISHING_S."""
TOGGLING_S = 0.5
"""Time to wait for a key that toggles the recording at the end."""
MAX_MARKS = 100
"""Marks between two frames."""
Opener = Callable[[Request], AbstractAsyncContextManager[Backend]]
_MAX_READINGS = 32
"""Readings of settings that are kept: the screen's of the two minutes that a span has at most, one each 5 s."""
_COUNTERS = "D"
"""Tier without probes, whose frames are whole intervals."""
FAREWELL_S = 0.5
"""Time for the UI, which may be stopped, to read the end line."""
MAX_MARK = 200
MAX_NAME = 40
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def now() -> float:
    """Return the time of the event loop's clock in s."""
    return asyncio.get_running_loop().time()


class Ending:
    """The end of one capture. `stopped` is why it was stopped; `gone` is why the probe ended before that."""

    def __init__(self) -> None:
        self.stopped = self.gone = ""
        self._scope: asyncio.Timeout | None = None
        self._hurried = asyncio.Event()
        self._over = False
        self._leave_by = math.inf
        self._last_frame_s = self._ended = 0.0

    @property
    def is_asked_for(self) -> bool:
        """Whether a stop or the duration ended the capture, and not a cancelled task or an error."""
        return bool(self.stopped) or (self._scope is not None and self._scope.expired())

    def scoped(self, scope: asyncio.Timeout) -> None:
        """Set the timeout scope that a stop or the duration cancels."""
        self._scope = scope

    def stop(self, reason: str, *, at_once: bool) -> None:
        """End the capture; the first reason counts. A second call, or `at_once`, is urgent."""
        if at_once or self.stopped or self._over:
            self._hurried.set()
        if self.stopped:
            return
        self.stopped = reason
        self._reschedule(0)

    def note_frame(self) -> None:
        self._last_frame_s = now()

    def due(self, duration_us: int | None, interval_us: int) -> float:
        """Schedule the end of the duration and return when its last frame is due; GRACE_S more for a silent backend."""
        if duration_us is None or self._scope is None:
            return math.inf
        end = now() + duration_us / 1e6
        self._scope.reschedule(end + GRACE_S)
        return end - interval_us / 2e6

    def begun(self) -> None:
        """Begin the end: from now on neither a stop nor the duration cancels anything."""
        if not self._over:
            self._ended = now()
        self._over = True
        self._reschedule(None)
        self._scope = None
        self._hurry()

    def _reschedule(self, when: float | None) -> None:
        """Reschedule the scope; one that is being left raises RuntimeError and needs no change."""
        with contextlib.suppress(RuntimeError):
            if self._scope is not None and not self._scope.expired():
                self._scope.reschedule(when)

    def leave_by(self) -> float:
        """Return the time by which everything must be closed."""
        return min(self._leave_by, now() + LEAVING_S)

    async def fetch(self, backend: Finishing) -> tuple[Frame, ...]:
        """Return the counts since the last frame; empty without any. `gone`: why they are lost."""
        try:
            frames = await self._fetched(backend)
        except ProbeGoneError as gone:
            self.gone = str(gone)
            return ()
        if frames:
            self._last_frame_s = now()
        return frames

    async def _fetched(self, backend: Finishing) -> tuple[Frame, ...]:
        """Wait for all counts until the stop becomes urgent, then only for those available at once."""
        if not self._hurried.is_set():
            hurrying = asyncio.create_task(self._hurried.wait())
            frames = await _first(asyncio.create_task(backend.finish(PATIENCE_S)), hurrying, PATIENCE_S + FINISHING_S)
            if frames or not self._hurried.is_set():
                return frames
        self._hurry()
        return await _first(asyncio.create_task(backend.finish(0.0)), None, FINISHING_S)

    def silent_s(self, interval_us: int) -> float:
        """Return the seconds without a frame at the end of the capture; 0 where less than an interval is missing.

        If the probe had ended, the time is missing unless the last frame had just arrived.
        """
        silent_s = (self._ended or now()) - self._last_frame_s
        allowed_s = SAME_TIME_S if self.gone else allowed_silence_s(interval_us)
        return silent_s if silent_s > allowed_s else 0.0

    def _hurry(self) -> None:
        if self._hurried.is_set():
            self._leave_by = self.leave_by()


async def _first(
    finishing: asyncio.Task[tuple[Frame, ...]], other: asyncio.Task[Any] | None, within: float
) -> tuple[Frame, ...]:
    """Return the result of `finishing` unless `other` or the time ends first; end both."""
    waiting: set[asyncio.Task[Any]] = {finishing, *([other] if other else [])}
    try:
        await asyncio.wait(waiting, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        return finishing.result() if finishing.done() else ()
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Reason why a capture ended, in one sentence, and its exit code."""

    reason: str
    exit: int = EXIT_DONE


@dataclass(slots=True)
class CaptureCounts:
    """Counts over the whole capture; `complete` is false after a loss that makes its sums too small."""

    frames: int = 0
    completed: int = 0
    lost_events: int = 0
    map_full: int = 0
    gaps: int = 0
    late: int = 0
    """Wide windows that were read late; their sums are complete."""
    above: int = 0
    """I/Os above their device's threshold."""
    suppressed: int = 0
    """The number of them without a record."""
    one_in: int = 0
    """Current sampling rate: one request in so many is traced; 0: none."""

    def note(self, frame: Frame) -> None:
        self.frames += 1
        self.completed += sum(done.count for done in (frame.seen or frame.kernel).values())
        self.lost_events += frame.health.lost_events
        self.map_full += frame.health.map_full
        self.gaps += bool(frame.gap)
        self.late += frame.late
        self.above += sum(frame[ABOVE].values())
        self.suppressed += frame.health.suppressed
        self.one_in = frame.traced.one_in

    @property
    def complete(self) -> bool:
        return not (self.lost_events or self.map_full or self.gaps)


@dataclass(frozen=True, slots=True, eq=False)
class _Noted:
    """A note of the user, and the task that reads or has read its settings."""

    text: str
    mono_us: int
    wall: float
    reading: asyncio.Task[Settings] | None

    @property
    def is_ready(self) -> bool:
        return self.reading is None or self.reading.done()

    @property
    def changed(self) -> Settings | None:
        """Changed settings; None where they could not be read in time."""
        read = self.reading is not None and self.reading.done() and not self.reading.cancelled()
        return self.reading.result() if self.reading is not None and read else None


class Sink(Protocol):
    """Receiver of a capture's origin and frames. Neither call may wait."""

    def opened(self, origin: Origin) -> None: ...

    def offer(self, frame: Frame, counts: CaptureCounts) -> None: ...


class Capture:
    """One capture: `run` runs it once, `stop` ends it, the other methods are commands of the user."""

    def __init__(
        self,
        request: Request,
        sink: Sink,
        opener: Opener = registry.opened,
        ahead: Callable[[str], None] | None = None,
        family: OwnProcesses | None = None,
    ) -> None:
        """`ahead` gets remarks about the recording's directory before the start; without it the first frame has them.

        `family`: the processes whose I/O is latmon's own; None: this process and its children.
        """
        self._request, self._sink, self._opener, self._ahead = request, sink, opener, ahead
        self._family = family or OwnProcesses(os.getpid())
        self._counts = CaptureCounts()
        self._ending = Ending()
        self._silent_s = 0.0
        self._recorder: Recorder | HostRecorders | None = None
        self._backend: Backend | None = None
        self._stages = request.options.stages
        self._toggling: asyncio.Task[None] | None = None
        self._marks: list[_Noted] = []
        self._reading: asyncio.Task[Settings] | None = None
        self._readings: deque[tuple[int, int, asyncio.Task[Settings]]] = deque(maxlen=_MAX_READINGS)
        """Completed readings of the settings with their begins and ends, on CLOCK_MONOTONIC in us."""

    async def run(self) -> Outcome:
        """Run the capture and return how it ended; LatmonError if it can't start."""
        user = privileges.invoker(os.environ, os.geteuid())
        try:
            async with asyncio.timeout(0 if self._ending.stopped else None) as scope:
                self._ending.scoped(scope)
                if self._request.record is not None:
                    await self._see(self._request.record, user)
                async with self._opener(self._request) as backend:
                    if user is None:  # sudo starts the probes that die, and the tracer
                        privileges.drop_root(None)
                    else:  # the root helper does
                        privileges.drop_all(user)
                    ended = await self._follow(backend)
        except TimeoutError:
            if not scope.expired():
                raise
            ended = Outcome(self._ending.stopped or self._full_duration())
        return self._with_losses(ended)

    def stop(self, reason: str, *, at_once: bool = False) -> None:
        """End the capture with complete counts; the first reason counts. `at_once`, or a second call: wait less."""
        self._ending.stop(reason, at_once=at_once)

    def toggle_recording(self) -> None:
        """Start or stop a recording named by host and time; nothing happens before the backend is open."""
        if self._recorder is not None and (self._toggling is None or self._toggling.done()):
            silent_s = self._ending.silent_s(self._recorder.interval_us)
            self._toggling = asyncio.create_task(self._recorder.toggle(silent_s))

    def mark(self, text: str, span: tuple[int, int] | None = None) -> None:
        """Add a note to the next frame, with the settings that have changed.

        They are those of the last reading within `span`, on CLOCK_MONOTONIC in us; without one they are read now.
        """
        if len(self._marks) < MAX_MARKS:
            at = time.monotonic_ns() // 1000
            within = [task for begin, end, task in self._readings if span and span[0] <= begin and end <= span[1]]
            self._marks.append(_Noted(text, at, time.time(), within[-1] if within else self.read_settings()))

    def set_stages(self, mode: str) -> None:
        """Set when the tracer runs, if the backend has one; the result is in the next frames."""
        self._stages = mode
        if isinstance(self._backend, TracesOnDemand):
            self._backend.set_stages(mode)

    def request_tracing(self, devices: tuple[str, ...], *, files: bool = False) -> None:
        """Trace these devices (empty: all) for a while; repeated calls make an early one without a backend harmless."""
        if isinstance(self._backend, TracesOnDemand):
            self._backend.request_tracing(devices, files=files)

    @property
    def recorded_bytes(self) -> int:
        """Size on disk of the recording that is being written."""
        return 0 if self._recorder is None else self._recorder.size

    @property
    def recording(self) -> bool:
        return self._recorder is not None and self._recorder.active

    @property
    def finishes(self) -> bool:
        """Whether the counts since the last frame are recorded at the end; not those of counters without probes."""
        return isinstance(self._backend, Finishing) and self._backend.origin.tier not in ("", _COUNTERS)

    def lost_hosts(self) -> Outcome:
        """Return which hosts of a fleet sent no frame, or none at the end, and the exit code; without any no reason."""
        if not isinstance(self._recorder, HostRecorders):
            return Outcome("")
        if not self._recorder.has_frames:
            return Outcome(self._silence(), EXIT_UNAVAILABLE)
        losses = self._recorder.losses()
        return Outcome(losses, EXIT_INCOMPLETE if losses else EXIT_DONE)

    def _silence(self) -> str:
        """Return that no host has sent a frame, and of each host why; names are left out where they are redacted."""
        sentence = "no host has sent a frame"
        if self._request.redaction or not isinstance(self._backend, OfHosts) or not self._backend.states:
            return sentence
        return f"{sentence}: {'; '.join(self._backend.states)}"

    async def _follow(self, backend: Backend) -> Outcome:
        """Pass frames to recorder and sink; the recording is always closed before the backend."""
        origin = backend.origin
        if self._request.workload:
            origin = replace(origin, extra={**origin.extra, "command": self._request.workload})
        limits = _limits(self._request)
        recorder: Recorder | HostRecorders
        if isinstance(backend, OfHosts):
            recorder = HostRecorders(origin, limits, backend.taken_by_host, labels=backend.labels)
        else:
            recorder = Recorder(origin, limits, remarks=self._remarks, resumes=self._request.resumes)
        self._recorder = recorder
        if self._request.record is not None:
            await recorder.start(self._request.record)
        self._backend = backend
        if self._stages != self._request.options.stages:  # the user was faster than the probes
            self.set_stages(self._stages)
        self._sink.opened(origin)
        ending = self._ending
        try:
            return await self._pump(backend, recorder)
        except asyncio.CancelledError:
            if ending.is_asked_for:
                await self._last_frame(backend, recorder)
            raise
        finally:
            ending.begun()
            self._silent_s = ending.silent_s(origin.interval_us)
            self._counts.gaps += bool(self._silent_s)
            await self._close(recorder, ending.leave_by())

    async def _see(self, path: Path, user: privileges.Invoker | None) -> None:
        """Check whether a recording can be started there; the file system may hang."""

        def see() -> str:
            if self._request.hosts:
                target.refuse_for_hosts(path)
                return ""
            target.refuse(path)
            return "" if self._ahead is None else self._remarks(path)

        ahead = self._ahead or (lambda _: None)
        back = privileges.act_as(user)
        remark = await call_with_deadline(see, f"the file system of {path}", ahead)
        back()  # not after a time-out: it would wait for the same file system, and nothing needs root any more
        if remark:
            ahead(remark)

    async def _close(self, recorder: Recorder | HostRecorders, leave_by: float) -> None:
        if self._toggling is not None:
            await asyncio.wait({self._toggling}, timeout=min(TOGGLING_S, leave_by - now()))
        await recorder.stop(self._ending.stopped or "closed", within=leave_by - now(), silent_s=self._silent_s)

    async def _pump(self, backend: Backend, recorder: Recorder | HostRecorders) -> Outcome:
        due = self._ending.due(self._request.duration_us, backend.origin.interval_us)
        self._ending.note_frame()
        cpu = OwnCpu()
        notice = ""
        async for bare in backend.frames():
            frame = _with_own_health(_reported(bare, recorder.news()), cpu, recorder.state)
            notice = frame.health.notice
            self._ending.note_frame()
            self._take(frame, recorder)
            if now() >= due:
                await self._last_frame(backend, recorder)
                return Outcome(self._full_duration())
        failed = backend.origin.backend not in registry.FINITE
        return Outcome(notice or f"{backend.origin.backend} has no more frames", EXIT_FAILED if failed else EXIT_DONE)

    async def _last_frame(self, backend: Backend, recorder: Recorder | HostRecorders) -> None:
        """Add the counts since the last frame, so that the totals of a capture include its end."""
        self._ending.begun()
        if recorder.active and isinstance(backend, Finishing):
            frames = await self._ending.fetch(backend)
            for frame in frames:
                self._take(frame, recorder, last=frame is frames[-1])

    def read_settings(self) -> asyncio.Task[Settings] | None:
        """Start to read the current settings; notes during one reading share it."""
        if not isinstance(self._backend, Configured):
            return None
        if self._reading is None or self._reading.done():
            begin = time.monotonic_ns() // 1000
            self._reading = asyncio.create_task(_changed(self._backend, self._backend.origin.settings))
            self._reading.add_done_callback(
                lambda task: self._readings.append((begin, time.monotonic_ns() // 1000, task))
            )
        return self._reading

    def _take(self, bare: Frame, recorder: Recorder | HostRecorders, *, last: bool = False) -> None:
        self._family.refresh()
        # other hosts' pids are not those of this one; their own latmon has marked its I/Os
        own = bare if self._request.hosts else _with_own_io(bare, self._family)
        frame = replace(own, marks=(*own.marks, *self._marked(own, last=last))) if self._marks else own
        self._counts.note(frame)
        recorder.put(frame)
        self._sink.offer(frame, self._counts)

    def _marked(self, frame: Frame, *, last: bool) -> Iterator[Mark]:
        """Yield the notes since the previous frame, moved into this one's interval: a demo has its own clock.

        A note whose settings are still being read is the next frame's, where there is one.
        """
        ready = [mark for mark in self._marks if last or mark.is_ready]
        self._marks = [mark for mark in self._marks if mark not in ready]
        for noted in ready:
            at = min(max(noted.mono_us, frame.mono_us - frame.dt_us), frame.mono_us)
            wall = frame.wall - (frame.mono_us - at) / 1e6 if at != noted.mono_us else noted.wall
            yield Mark(noted.text, at, wall, noted.changed)

    def _remarks(self, path: Path) -> str:
        options = self._request.options
        if path == STANDARD or self._request.store:  # then this host's disks are not those measured
            return ""
        return target.remarks(path, options.devices, options.proc, options.sys)

    def _full_duration(self) -> str:
        return f"ended after {show_duration(self._request.duration_us or 0)} as asked"

    def _with_losses(self, ended: Outcome) -> Outcome:
        """Return the outcome with exit code 4 if data was lost; the reason names what is missing at the end."""
        if self._silent_s:
            why = self._ending.gone or "the probe printed nothing"
            ended = replace(ended, reason=f"{ended.reason}; the last {self._silent_s:.1f} s are missing: {why}")
        if self._request.record is not None and (lost := self.lost_hosts()).reason:
            exit_code = lost.exit if ended.exit == EXIT_DONE else ended.exit
            ended = Outcome(f"{ended.reason}; {lost.reason}", exit_code)
        if self._recorder is not None and not self._recorder.complete:
            name, trouble = self._recorder.state
            if trouble and not name and trouble not in ended.reason:
                ended = replace(ended, reason=f"{ended.reason}; {trouble}")
        complete = self._counts.complete and (self._recorder is None or self._recorder.complete)
        return ended if complete or ended.exit != EXIT_DONE else replace(ended, exit=EXIT_INCOMPLETE)


async def _changed(backend: Configured, before: Settings) -> Settings:
    return changes(before, await backend.settings())


def _limits(request: Request) -> RecordingLimits:
    return RecordingLimits(request.max_size, request.redaction, request.keep_us)


def _reported(frame: Frame, news: str) -> Frame:
    """Return the frame with the recorder's notice in addition to its own."""
    if not news:
        return frame
    notice = "; ".join(text for text in (frame.health.notice, news) if text)
    return replace(frame, health=replace(frame.health, notice=notice))


def _with_own_io(frame: Frame, family: OwnProcesses) -> Frame:
    """Return the frame with latmon's own I/Os marked, in outliers and requests in flight."""
    outliers = tuple(
        replace(outlier, own=True) if family.has(outlier.pid, outlier.comm, outlier.mono_us) else outlier
        for outlier in frame.outliers
    )
    in_flight = frame.in_flight
    if in_flight is not None:
        own = (io._replace(own=family.has(io.pid, io.comm, io.began_us)) for io in in_flight.oldest)
        in_flight = replace(in_flight, oldest=tuple(own))
    return replace(frame, outliers=outliers, in_flight=in_flight) if outliers or in_flight else frame


def _with_own_health(frame: Frame, cpu: OwnCpu, recording: RecordingState) -> Frame:
    """Return the frame with state of the recording and CPU usage, unless a demo has set the latter."""
    spent = cpu.percent() if frame.health.self_cpu_percent is None else frame.health.self_cpu_percent
    name, trouble = recording
    return replace(
        frame, health=replace(frame.health, self_cpu_percent=spent, recording=name, recording_trouble=trouble)
    )


class Collector(asyncio.Protocol):
    """Protocol of the socket to the UI, or of two pipes: one capture from its first line to the end of either side."""

    def __init__(self, request: Request | None = None, quiet_s: float = 0.0) -> None:
        """Without a request the first line is one. After `quiet_s` without a line the capture ends; 0: never."""
        self._quiet_s = quiet_s
        self._ending: asyncio.TimerHandle | None = None
        self._lines = Lines(MAX_COMMAND)
        self._commands = () if request is None else request.commands
        self._refusal = ""
        self._transport: asyncio.WriteTransport | None = None
        self._capture: Capture | None = None
        self.requested: asyncio.Future[Request | None] = asyncio.get_running_loop().create_future()
        if request is not None:
            self.requested.set_result(request)
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.WriteTransport):
            transport.set_write_buffer_limits(high=MAX_BACKLOG)
            self._transport = transport
        self._wait_on()

    def _wait_on(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        if self._quiet_s:
            why = f"nothing came from latmon fleet for {self._quiet_s:.0f} s"
            self._ending = asyncio.get_running_loop().call_later(self._quiet_s, self.stop, why)

    def data_received(self, data: bytes) -> None:
        self._wait_on()
        if self._refusal:
            return
        try:
            for line in self._lines.feed(data):
                self._take_line(line)
        except LatmonError as error:
            self._refusal = f"the collector ends, because it was sent what it refuses: {error}"
            self.stop(self._refusal)

    def _take_line(self, line: bytes) -> None:
        """Take the request, which comes while the sender has the collector's rights, or a command."""
        if self.requested.done():
            self._execute(line)
            return
        request = Request.decode(line)
        self._commands = request.commands
        self.requested.set_result(request)

    def connection_lost(self, _exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        self.stop("the user interface is gone")

    def stop(self, reason: str) -> None:
        if not self.requested.done():
            self.requested.set_result(None)
        if self._capture is not None:
            self._capture.stop(reason, at_once=True)

    async def collect(self, request: Request) -> int:
        """Run the capture, write its end line, and return its exit code."""
        if self._transport is None:
            raise LatmonError("the collector has no feed to write to")
        outlet = Outlet(self._transport)
        self._capture = Capture(request, outlet, opened, family=OwnProcesses(os.getpid(), os.getppid()))
        try:
            outcome = Outcome("") if self._refusal else await self._capture.run()
        except LatmonError as error:
            outcome = Outcome(str(error), error.exit_code)
        if self._refusal:
            outcome = Outcome(self._refusal, EXIT_FAILED)
        outlet.end(outcome.reason, outcome.exit)
        self._transport.close()
        await asyncio.wait({self.lost}, timeout=FAREWELL_S)
        return outcome.exit

    def _execute(self, line: bytes) -> None:
        """Execute a command; those of a capture are ignored before it begins.

        LatmonError for a command that the request doesn't name, and for a value that latmon doesn't
        send: the sender may have fewer rights than this process.
        """
        name, value, details = _parsed(line)
        if name not in self._commands:
            raise LatmonError(f"the command {name!r}, which this capture does not take")
        capture = self._capture
        match name, value:
            case "clock", int(number):
                self._answer(clock_line(number))
            case _ if capture is None:
                pass
            case "record", "toggle":
                capture.toggle_recording()
            case "stages", str(mode) if mode in STAGES_MODES:
                capture.set_stages(mode)
            case "mark", str(text):
                capture.mark(clean(text, MAX_MARK), _span(details.get("span")))
            case "settings", "read":
                capture.read_settings()
            case "deepen", [*devices] if all(isinstance(device, str) for device in devices):
                capture.request_tracing(tuple(devices), files=details.get("files") is True)
            case _:
                raise LatmonError(f"the command {name!r} with a value that latmon does not send")

    def _answer(self, line: bytes) -> None:
        if self._transport is not None:
            self._transport.write(line)


def _parsed(line: bytes) -> tuple[str, Any, Mapping[str, Any]]:
    """Return the name of a command, its value, and all that the line has. LatmonError for what is none."""
    try:
        command = json.loads(line)
    except (ValueError, RecursionError):
        command = None
    if not isinstance(command, dict) or not command:
        raise LatmonError("a line that is no command")
    name, value = next(iter(command.items()))
    return clean(name, MAX_NAME), value, command


def _span(value: object) -> tuple[int, int] | None:
    """Return a span's begin and end in us; None where there is none. LatmonError for another value."""
    match value:
        case None:
            return None
        case [int(begin), int(end)]:
            return begin, end
    raise LatmonError("the command 'mark' with a span that is no time")


def clock_line(number: int) -> bytes:
    """Encode the answer to the command `{"clock": number}`: CLOCK_MONOTONIC in us and the wall clock in s."""
    return to_bytes({"type": "clock", "n": number, "mono": time.monotonic_ns() // 1000, "wall": round(time.time(), 6)})


async def serve(fd: int) -> int:
    """Run one capture over an inherited socket, and return its exit code."""
    loop = asyncio.get_running_loop()
    _, collector = await loop.create_connection(Collector, sock=socket.socket(fileno=fd))
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, collector.stop, f"the collector was ended by {number.name}")
    request = await collector.requested
    return EXIT_FAILED if request is None else await collector.collect(request)


async def serve_standard(request: Request) -> int:
    """Run one capture with its commands on standard input and its feed on standard output; return its exit code.

    It ends when either is closed, as by an ssh connection that was cut, and when no command comes for too long.
    UsageError where they are no pipes.
    """
    modes = [os.fstat(file.fileno()).st_mode for file in (sys.stdin, sys.stdout)]
    if not all(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes):
        raise UsageError("--feed is run by latmon fleet, over pipes on standard input and output")
    loop = asyncio.get_running_loop()
    collector = Collector(request, request.options.quiet_s)
    for connect, file in ((loop.connect_write_pipe, sys.stdout), (loop.connect_read_pipe, sys.stdin)):
        await connect(lambda: collector, file)
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, collector.stop, f"the collector was ended by {number.name}")
    return await collector.collect(request)


def main() -> int:
    """Run the collector process; an unexpected error goes to stderr, whose last line the UI shows."""
    os.umask(0o077)
    failures.install()
    loop_errors.install()
    return asyncio.run(serve(int(sys.argv[1])))


if __name__ == "__main__":
    sys.exit(main())
