"""`latmon watch`: a capture without a screen, for a service manager, that acts on findings.

A finding that begins is reported on stderr (the journal), saves the minutes before it as a recording, and runs the
user's command. The collector is a process of its own with the privilege that probes need; this one is the invoking
user, and so is the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import syslog
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latmon.capture import target
from latmon.capture.recorder import save
from latmon.capture.registry import Request
from latmon.capture.session import LEVELS, Session, followed, until_signal
from latmon.cli.config import Actions
from latmon.findings.engine import RuleEngine
from latmon.findings.rule import SEVERITIES, Finding, Settings
from latmon.model.frame import Frame, Origin
from latmon.recording.archive import Archive, completed
from latmon.recording.writer import private_frame
from latmon.report.summary import finding_values
from latmon.support import privileges, trust
from latmon.support.errors import LatmonError
from latmon.support.streams import Log
from latmon.support.units import rfc3339

SCHEMA = "latmon.finding/1"
COMMAND_S = 30.0
"""Longest run of a command."""
_MAX_REPORTED = 1000
"""Findings whose quiet period is remembered."""
_MAX_WAITING = 100
"""Findings that wait for their actions; commands run one at a time."""
_MAX_SAVED = 50
"""Recordings that one start saves after findings."""
_ENDING_S = 0.5
"""Time for a command after SIGTERM."""
BEGAN, ENDED = "began", "ended"


@dataclass(slots=True)
class _Standing:
    finding: Finding
    last_us: int
    reported: str
    """The severity that was reported; empty during the quiet period."""


class StandingFindings:
    """The findings that stand, and the decision when one is reported.

    A finding ends after `gone_us` without it, so that one at its threshold doesn't begin again and again. The same rule
    on the same device is reported again after `quiet_us` at the earliest, unless it is more severe.
    """

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._standing: dict[tuple[str, str], _Standing] = {}
        self._reported: dict[tuple[str, str], int] = {}

    def update(self, current: tuple[Finding, ...], mono_us: int) -> Iterator[tuple[str, Finding]]:
        """Yield BEGAN or ENDED and the finding, for each one that is reported now."""
        least = SEVERITIES.index(self._actions.severity)
        for one in current:
            if SEVERITIES.index(one.severity) >= least and self._begins(one, mono_us):
                yield BEGAN, one
        for key, standing in tuple(self._standing.items()):
            if mono_us - standing.last_us >= self._actions.gone_us:
                del self._standing[key]
                if standing.reported:
                    yield ENDED, standing.finding

    def _begins(self, one: Finding, mono_us: int) -> bool:
        """Note a finding that stands; return whether it is reported."""
        before = self._standing.get(one.key)
        reported = "" if before is None else before.reported
        is_worse = bool(reported) and SEVERITIES.index(one.severity) > SEVERITIES.index(reported)
        last_us = self._reported.get(one.key)
        is_due = last_us is None or mono_us - last_us >= self._actions.quiet_us
        begins = is_worse or (not reported and is_due)
        if begins:
            self._reported.pop(one.key, None)  # the latest one is the last
            self._reported[one.key] = mono_us
            if len(self._reported) > _MAX_REPORTED:
                del self._reported[next(iter(self._reported))]
        self._standing[one.key] = _Standing(one, mono_us, one.severity if begins else reported)
        return begins


class Actor:
    """Runs the actions of findings, one finding at a time."""

    def __init__(self, actions: Actions, origin: Origin, archive: Archive, log: Log, *, redact: bool) -> None:
        """`archive` has the minutes that are saved."""
        self._actions, self._origin, self._archive, self._log, self._redact = actions, origin, archive, log, redact
        self._waiting: asyncio.Queue[tuple[Finding, float]] = asyncio.Queue(_MAX_WAITING)
        self._saved = 0

    def add(self, one: Finding, wall: float) -> None:
        """Add a finding that began at `wall`."""
        if not (self._actions.command or self._actions.record_us):
            return
        try:
            self._waiting.put_nowait((one, wall))
        except asyncio.QueueFull:
            self._log(syslog.LOG_ERR, f"{_MAX_WAITING} findings wait for the command: nothing is done for {one.id}")

    async def run(self) -> None:
        """Run actions until the task is cancelled."""
        while True:
            one, wall = await self._waiting.get()
            try:
                recording = await self._record(one, wall) if self._actions.record_us else None
                if self._actions.command:
                    await self._command(self._values(one, wall, recording))
            except Exception as error:  # noqa: BLE001 - the actions of later findings must still run
                self._log(syslog.LOG_ERR, f"on_finding failed for {one.id}: {type(error).__name__}: {error}")

    def _values(self, one: Finding, wall: float, recording: Path | None) -> dict[str, Any]:
        found = finding_values(one)
        host = "" if self._redact else self._origin.host
        about = {"schema": SCHEMA, "host": host, "kernel": self._origin.kernel, "began": rfc3339(wall)}
        return about | {"recording": None if recording is None else str(recording), "finding": found}

    async def _record(self, one: Finding, wall: float) -> Path | None:
        """Save the minutes before the finding; None where that fails, which is reported."""
        if self._saved >= _MAX_SAVED:
            self._log(syslog.LOG_WARNING, f"{_MAX_SAVED} recordings were saved since the start: no more are saved")
            return None
        host = "" if self._redact else self._origin.host
        path = (self._actions.directory or Path.cwd()) / target.recording_name(f"{host}-{one.id}", wall)
        until = self._archive.stamps[-1].mono_us
        after = until - self._actions.record_us
        frames = completed(self._archive.frames(after, until), self._archive.known(after))
        try:
            path, many = await asyncio.to_thread(self._save, path, frames)
        except (LatmonError, OSError) as error:
            self._log(syslog.LOG_ERR, f"no recording of {one.id}: {error}")
            return None
        self._saved += 1
        self._log(syslog.LOG_INFO, f"saved {many:,} windows before {one.id} to {path}")
        return path

    def _save(self, path: Path, frames: Iterator[Frame]) -> tuple[Path, int]:
        path = target.unused(path)
        if shortage := target.short_of_space(path):
            raise LatmonError(shortage)
        return path, save(frames, self._origin, path, redact=self._redact)

    async def _command(self, values: dict[str, Any]) -> None:
        """Run the command with JSON on its stdin; its output goes to stderr, and its exit status is reported."""
        command = self._actions.command
        with tempfile.TemporaryFile() as given:
            given.write(json.dumps(values).encode() + b"\n")
            given.seek(0)
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=given,
                    stdout=sys.stderr.fileno(),
                    start_new_session=True,
                    cwd="/",
                    env=trust.environment(os.environ) if os.geteuid() == 0 else None,
                )
            except OSError as error:
                self._log(syslog.LOG_ERR, f"on_finding: {command[0]}: {error.strerror}")
                return
        ended = await _ended(process)
        level = syslog.LOG_INFO if ended == "exit status 0" else syslog.LOG_ERR
        self._log(level, f"{Path(command[0]).name} for {values['finding']['id']}: {ended}")


async def _ended(process: asyncio.subprocess.Process) -> str:
    """Wait for the end of a command, and end it with its process group after COMMAND_S; return how it ended."""
    try:
        async with asyncio.timeout(COMMAND_S):
            status = await process.wait()
    except TimeoutError:
        return f"ended by latmon after {COMMAND_S:g} s"
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL) if process.returncode is None else ():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            await asyncio.sleep(_ENDING_S)
    return f"exit status {status}" if status >= 0 else f"killed by signal {-status}"


def watch(request: Request, settings: Settings, actions: Actions, user: privileges.Invoker | None, log: Log) -> int:
    """Watch this host until a signal or the end of the capture; return the exit code."""
    session = Session(request)
    try:
        privileges.drop_root(user)
        ended_by = asyncio.run(until_signal(_watch(session, settings, actions, log, redact=request.redact)))
    finally:
        code = session.close()
    log(syslog.LOG_INFO, f"ended by {ended_by}")
    return code


async def _watch(session: Session, settings: Settings, actions: Actions, log: Log, *, redact: bool) -> None:
    archive = Archive(max(actions.record_us, 1))
    async with session.feed as feed:
        origin = feed.origin
        log(syslog.LOG_INFO, f"measuring with {origin.tool or origin.backend}; actions from {actions.severity} on")
        engine, standing = RuleEngine(origin, (), settings), StandingFindings(actions)
        actor = Actor(actions, origin, archive, log, redact=redact)
        acting = asyncio.create_task(actor.run())
        state = ""
        try:
            async for frame in followed(feed, log):
                archive.append(frame, feed.line)
                if state not in ("", frame.health.recording or "-"):
                    log(syslog.LOG_WARNING, frame.health.recording or "the recording has ended")
                state = frame.health.recording or "-"
                # log and command get the names that a finding has: of cgroups, mount points, threads
                if engine.take(private_frame(frame) if redact else frame):
                    for what, one in standing.update(engine.current, frame.mono_us):
                        log(LEVELS[one.severity], f"{one.severity}, {one.id} {what}: {one.summary}")
                        if what == BEGAN:
                            actor.add(one, frame.wall)
        finally:
            acting.cancel()
            await asyncio.wait({acting})
