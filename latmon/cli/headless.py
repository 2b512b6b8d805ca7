"""Captures and demos without a live screen: `--record FILE`, `--once`, `latmon watch`; lists and pictures of demos.

A capture prints progress and findings on stderr; `--once` prints one picture as text. Never imports Textual. Rules are
evaluated as in the TUI; findings are not recorded. A demo is deterministic per seed; its backend is loaded by name and
owns the scenarios.

`latmon watch` is for a service manager and acts on findings: one that begins is reported on stderr (the journal), saves
the minutes before it as a recording, and runs the user's command. The collector is a process of its own with the
privilege that probes need; `latmon watch` is the invoking user, and so is the command.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from syslog import LOG_DEBUG, LOG_ERR, LOG_INFO, LOG_NOTICE, LOG_WARNING
from typing import TYPE_CHECKING, Any, TextIO

from latmon.aggregate.request_age import Waiting
from latmon.capture import registry, target
from latmon.capture.backend import Backend
from latmon.capture.collector import Capture, CaptureCounts, Outcome
from latmon.capture.registry import Request, compiling
from latmon.capture.session import LEVELS, details, notice_level
from latmon.exporters.registry import SIZES, ExportOptions, Source, writer
from latmon.findings.engine import RuleEngine, by_kind, evaluated_by
from latmon.findings.episodes import FindingSummary, summarise_episodes
from latmon.findings.rule import DEFAULT, NOTICE, Finding, Settings
from latmon.findings.rules import RULES
from latmon.model.devices import carry
from latmon.model.frame import Frame, Health, Origin
from latmon.model.redaction import Redaction
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.report.in_flight import in_flight_by_device, not_completed
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE, LatmonError, RecordingError, UsageError
from latmon.support.streams import QUIET, STANDARD, Progress, ServiceLog, message, named, output, terminal_size
from latmon.support.text import encodable
from latmon.support.units import counted, show_duration, show_size

if TYPE_CHECKING:
    from latmon.capture.workload import Workload
    from latmon.exporters.screen import Moments
    from latmon.tui.tour import Tour
    from latmon.views.lines import Line
    from latmon.views.selection import ScreenOptions
import json
import syslog
from dataclasses import dataclass

from latmon.capture.recorder import save
from latmon.capture.session import Session, followed, until_signal
from latmon.cli.config import Actions
from latmon.findings.rule import SEVERITIES
from latmon.recording.archive import Archive, completed
from latmon.recording.writer import private_frame, private_origin, private_text
from latmon.report.findings import reported_finding
from latmon.support import privileges, signals, trust
from latmon.support.streams import Log
from latmon.support.typed_json import to_json
from latmon.support.units import rfc3339

_REPORTED_EVERY_US = 60_000_000
MAX_FINDINGS = 20
"""Limit of new findings that are printed during the capture, and of findings at its end."""
ENDING = {
    signal.SIGINT: "ended by Ctrl-C",
    signal.SIGTERM: "ended by SIGTERM",
    signal.SIGHUP: "ended by the terminal's hang-up",
}
DEMO_WINDOWS = 180
"""Windows of a scenario without an end: three minutes, which include all of its phases."""
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


class FindingReporter:
    """Rule engine over the frames of one capture, which reports findings as sentences."""

    def __init__(self, settings: Settings | None) -> None:
        """Evaluate the rules with these settings, none where they are None."""
        self._settings = settings
        self._watch: RuleEngine | None = None
        self._begun_us: int | None = None
        self._reported: set[tuple[str, ...]] = set()
        self._failed: set[str] = set()

    def begin(self, origin: Origin) -> None:
        """Start with a new capture."""
        self._watch = None if self._settings is None else RuleEngine(origin, (), self._settings)
        self._begun_us = None
        self._reported, self._failed = set(), set()

    def take(self, frame: Frame) -> Iterator[tuple[int, str]]:
        """Add the next frame; yield level and sentence of each new finding that is not a notice."""
        if self._watch is None:
            return
        self._begun_us = frame.mono_us - frame.dt_us if self._begun_us is None else self._begun_us
        if not self._watch.take(frame):
            return
        yield from self._failures(self._watch)
        for finding in self._watch.current:
            begun = (*finding.key, *finding.state)
            if finding.severity != NOTICE and begun not in self._reported and len(self._reported) < MAX_FINDINGS:
                self._reported.add(begun)
                after = _in_seconds(max(1.0, (frame.mono_us - self._begun_us) / 1e6))
                yield LEVELS[finding.severity], f"finding after {after}: {_named(finding)}"

    def all_reported(self) -> Iterator[tuple[int, str]]:
        """Yield all findings, the most urgent first, and which rules were evaluated unless none was."""
        if self._watch is None:
            return
        long_enough = self._watch.evaluated > 0
        self._watch.finish()
        summaries = summarise_episodes(self._watch.episodes)
        yield from self._failures(self._watch)
        who, why = self._evaluated(self._watch)
        others = "`latmon report` names the others and why"
        if not summaries and long_enough:
            yield LOG_INFO, f"no finding; {who}, {others}" if why else f"no finding, by {who}"
        for summary in summaries[:MAX_FINDINGS]:
            yield LEVELS[summary.finding.severity], f"finding, {_long(summary)}: {_named(summary.finding)}"
        if len(summaries) > MAX_FINDINGS:
            yield LOG_WARNING, f"and {len(summaries) - MAX_FINDINGS:,} more findings, which `latmon report` lists"
        if summaries and why:
            yield LOG_INFO, f"{who}, {others}"

    def _failures(self, watch: RuleEngine) -> Iterator[tuple[int, str]]:
        """Yield a sentence for each rule that failed, once."""
        for rule, words in watch.failed.items():
            if rule not in self._failed:
                self._failed.add(rule)
                yield LOG_ERR, f"rule {rule} failed: {words}; the other rules are still evaluated"

    def _evaluated(self, watch: RuleEngine) -> tuple[str, str]:
        off = frozenset[str]() if self._settings is None else self._settings.off
        return evaluated_by(len(RULES) - len(off), by_kind(watch.silent - off), watch.failed, watch.partly)


def _named(finding: Finding) -> str:
    return f"{finding.severity}, {finding.id}: {finding.summary}"


def _in_seconds(seconds: float) -> str:
    return show_duration(round(seconds) * 1_000_000)


def _long(summary: FindingSummary) -> str:
    seconds = round(summary.end_wall - summary.begin_wall)
    lasted = f"for {_in_seconds(seconds)}" if seconds else "once"
    many = f"{summary.episodes:,} times, {summary.found_us / 1e6:.0f} of {summary.of_s:.0f} s"
    return lasted if summary.episodes == 1 else many


class RecordingProgress:
    """Sink that updates one line on a terminal; elsewhere it prints the first and last line, and notices."""

    def __init__(
        self,
        path: Path,
        out: TextIO,
        settings: Settings | None = DEFAULT,
        log: ServiceLog | None = None,
        *,
        redaction: Redaction | None = None,
        is_alone: bool = True,
    ) -> None:
        """Report on the recording `path` to `out`; `settings`: see FindingReporter; `log`: it prints to `out`, too.

        `redaction`: findings and notices have the names that the recording has; `is_alone`: nothing else writes to
        the terminal.
        """
        self._path, self._out, self._redaction = path, out, redaction
        self._log = log or ServiceLog(out)
        self._findings = FindingReporter(settings)
        self._live = out.isatty() and self._log.least > QUIET and is_alone
        self._reported_us = 0
        self._began_us: int | None = None
        self._traces_stages = True
        self._line = self._noticed = self._remark = self._latest = ""
        self._counted: tuple[float, CaptureCounts] | None = None
        """The seconds of its frames so far, and their counts."""
        self._shown = self._gaps = 0
        self._waiting = Waiting()

    @property
    def has_windows(self) -> bool:
        return self._began_us is not None

    def starting(self, backend: str = "auto") -> None:
        """Print that the capture starts: bpftrace 0.17 compiles for up to half a minute before data is recorded."""
        why = compiling(backend)
        self._write(LOG_INFO, f"starting, nothing is recorded yet{f' ({why})' if why else ''}")

    def remark(self, text: str) -> None:
        """Print a remark on the file's file system before the capture starts, such as that it does not answer."""
        self._remark = private_text(text, self._redaction) if self._redaction else text
        if text:
            self._write(LOG_NOTICE, self._remark)

    def note(self, text: str) -> None:
        """Print a sentence."""
        self._write(LOG_NOTICE, text)

    def opened(self, origin: Origin) -> None:
        origin = private_origin(origin, self._redaction) if self._redaction else origin
        self._traces_stages = origin.traces_stages
        self._findings.begin(origin)
        self._write(LOG_INFO, f"recording to {named(self._path)} with {origin.tool or origin.backend}")
        if origin.reason:
            self._write(LOG_WARNING, origin.reason)
        for sentence in details(origin):
            self._write(LOG_DEBUG, sentence)

    def offer(self, frame: Frame, tally: CaptureCounts) -> None:
        if self._began_us is None:
            self._began_us = frame.mono_us - frame.dt_us
        frame = private_frame(frame, self._redaction) if self._redaction else frame
        self._waiting.add(frame)
        self._gaps = tally.gaps
        self._counted = (frame.mono_us - self._began_us) / 1e6, tally
        self._line = self._progress_line()
        notice = frame.health.notice
        if self._remark and notice.endswith(self._remark):  # printed before the capture started
            notice = notice.removesuffix(self._remark).removesuffix("; ")
        is_new, self._latest = notice != self._latest, notice
        if notice and is_new:
            self._noticed = notice
            self._write(notice_level(frame), notice)
        for level, sentence in self._findings.take(frame):
            self._write(level, sentence)
        if self._live:
            self._overwrite(self._line)
        elif frame.mono_us - max(self._reported_us, self._began_us) >= _REPORTED_EVERY_US:
            self._reported_us = frame.mono_us
            self._write(LOG_DEBUG, f"recorded {self._line}")

    def ended(self, outcome: Outcome) -> None:
        if self._live:
            self._overwrite("")
        if self._line:  # the length of its frames, not the requested one, and the size of the whole file
            self._write(LOG_INFO, f"recorded {self._progress_line()}")
        rows = self._waiting.ages.oldest
        if waits := not_completed(
            in_flight_by_device((aged.device, aged.count, aged.age_us, aged.at_least) for aged in rows)
        ):
            self._write(LOG_NOTICE, waits)
        for level, finding_text in self._findings.all_reported() if self._line else ():
            self._write(level, finding_text)
        reason = private_text(outcome.reason, self._redaction) if self._redaction else outcome.reason
        text = [reason] if reason != self._noticed else []
        gaps = f"{counted(self._gaps, 'gap')}: " if self._gaps else ""
        lost = [f"{gaps}the recording is incomplete"] if outcome.exit == EXIT_INCOMPLETE else []
        if text or lost:
            self._write(LOG_INFO if outcome.exit == EXIT_DONE else LOG_WARNING, "; ".join([*text, *lost]))

    def _progress_line(self) -> str:
        if self._counted is None:
            return ""
        seconds, tally = self._counted
        return _progress(seconds, tally, self._size(), stages=self._traces_stages)

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def _overwrite(self, line: str) -> None:
        try:
            self._out.write("\r" + line.ljust(self._shown) + ("" if line else "\r"))
            self._out.flush()
        except OSError:  # the terminal is gone; the recording goes on
            self._live = False
        self._shown = len(line)

    def _write(self, level: int, text: str) -> None:
        if self._live and self._shown:
            self._overwrite("")
        self._log(level, text)


class _Recording(RecordingProgress):
    """Progress of a capture that ends when its recording ends, because nothing else shows the frames."""

    def __init__(
        self,
        request: Request,
        path: Path,
        settings: Settings | None,
        log: ServiceLog | None,
        workload: Workload | None = None,
    ) -> None:
        """`workload`: the command that begins with the first window, and whose end is that of the recording."""
        super().__init__(path, sys.stderr, settings, log, redaction=request.redaction, is_alone=workload is None)
        self._workload = workload
        self._outcome = ""
        """How the command has ended."""
        self._trouble = ""
        """Why nothing is written at the moment, as of the last frame."""
        self.capture = Capture(request, self, ahead=self.remark)

    def _size(self) -> int:
        return self.capture.recorded_bytes  # without a system call on the disk, which may hang

    def offer(self, frame: Frame, tally: CaptureCounts) -> None:
        if self._workload is not None and not self.has_windows:
            self._workload.begin(self._ended_workload)
            self.capture.mark(f"command: {self._workload.line}")
        super().offer(frame, tally)
        if self._outcome:  # the window in which the command has ended
            self.capture.stop(self._outcome)
        trouble, before = frame.health.recording_trouble, self._trouble
        self._trouble = trouble
        if not self.capture.recording:
            self.capture.stop(trouble or "recording stopped")
        elif trouble and trouble != before:
            self._write(LOG_ERR, frame.health.recording_state)
        elif before and not trouble:
            self._write(LOG_WARNING, f"{frame.health.recording} is written again")

    def _ended_workload(self) -> None:
        """End the recording with the command, which its last window includes."""
        if self._workload is not None:
            self._outcome = f"{self._workload.name}: {self._workload.outcome}"
            self.capture.mark(self._outcome)
            if self.capture.finishes:
                self.capture.stop(self._outcome)


def record(
    request: Request,
    path: Path,
    settings: Settings | None = DEFAULT,
    log: ServiceLog | None = None,
    workload: Workload | None = None,
) -> int:
    """Capture to `path` until the duration, a signal or the backend ends it; return the exit code.

    `settings`: see FindingReporter; `log`: None logs to stderr. `workload`: a command whose end ends the capture; the
    exit code is the command's, unless that is 0.
    """
    try:
        return asyncio.run(_record(request, path, settings, log, workload))
    finally:
        if workload is not None:
            workload.close()


async def _record(
    request: Request, path: Path, settings: Settings | None, log: ServiceLog | None, workload: Workload | None
) -> int:
    progress = _Recording(request, path, settings, log, workload)
    loop = asyncio.get_running_loop()
    ended_by: list[signal.Signals] = []
    forwarded: set[signal.Signals] = set()

    def stop(number: signal.Signals) -> None:
        if workload is not None and workload.runs and number not in forwarded:
            forwarded.add(number)
            workload.forward(number)  # its end ends the recording; the same signal again ends that at once
            return
        ended_by.append(number)
        progress.capture.stop(ENDING[number], at_once=number is not signal.SIGINT)

    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored on purpose by nohup and by `&` in a script
            loop.add_signal_handler(number, stop, number)
    signals.leave_if_received()
    progress.starting(request.backend)
    outcome = await progress.capture.run()
    if ended_by and not progress.has_windows:  # a signal ends a capture complete, but not one that has not begun
        outcome = Outcome(f"{outcome.reason}: nothing was recorded", 128 + ended_by[0])
    progress.ended(outcome)
    return outcome.exit if workload is None else await _exit_of(workload, outcome, progress, ended_by)


async def _exit_of(
    workload: Workload, outcome: Outcome, progress: _Recording, ended_by: Sequence[signal.Signals]
) -> int:
    """Return the command's exit code, else the recording's; wait for a command that a failed recording left behind."""
    if workload.runs and not ended_by:
        progress.note(f"{workload.name} still runs: it goes on without a recording")
        await workload.ended.wait()
        progress.note(f"{workload.name}: {workload.outcome}")
    if workload.failure is not None:
        raise workload.failure
    return workload.code or outcome.exit


class _Picture:
    """Sink that feeds a screen and ends the capture after the first whole window, unless the capture has a duration.

    A probe's first window is left out: the probe attaches while it lasts, and a coverage of 221 % was seen in it, which
    no later window of a single picture corrects.
    """

    def __init__(self, request: Request, options: ScreenOptions, size: tuple[int, int]) -> None:
        self.capture = Capture(request, self)
        self.screen: Moments | None = None
        self._request, self._options, self._size = request, options, size
        self._covered_us = self._interval_us = 0
        self._first: Frame | None = None

    def opened(self, origin: Origin) -> None:
        from latmon.exporters.screen import Moments  # noqa: PLC0415  --record draws nothing

        self._interval_us = origin.interval_us
        self.screen = Moments(origin, self._options, self._size, name=time.strftime("live, %Y-%m-%d %Z"))

    def offer(self, frame: Frame, _counts: CaptureCounts) -> None:
        if self.screen is None:
            return
        if self._first is None:
            self._first = frame
            if frame.health.probes_wanted:
                return
        elif self.screen.last is None:
            frame = carry((self._first,), frame)
        self.screen.append(frame)
        self._covered_us += frame.dt_us
        # that of the kernel's counters may be a short one
        if self._request.duration_us is None and 2 * self._covered_us >= self._interval_us:
            self.capture.stop("the first window is complete", at_once=True)

    def lines(self) -> list[Line]:
        """Return the screen; of the first window where there is no other. Empty where there is none."""
        if self.screen is None or self._first is None:
            return []
        if self.screen.last is None:
            self.screen.append(self._first)
        return self.screen.lines()


def once(request: Request, options: ScreenOptions) -> int:
    """Print the screen after the first window or the duration, and return the exit code.

    Raises UnavailableError where the backend can't run.
    """
    if sys.stderr.isatty() and (why := compiling(request.backend)):
        message(f"starting ({why})")
    picture = _Picture(request, options, screen_size(os.environ))
    outcome = asyncio.run(picture.capture.run())
    if not (lines := picture.lines()):
        raise LatmonError(f"no window was captured: {outcome.reason}")
    show(lines)
    lost = picture.capture.lost_hosts()
    if lost.reason:
        message(lost.reason)
    return outcome.exit or lost.exit


def show(lines: Iterable[Line]) -> None:
    """Print a screen to standard output, as far as its encoding has the characters."""
    from latmon.exporters.screen import text_of  # noqa: PLC0415  --record draws nothing

    sys.stdout.write(encodable(text_of(lines), sys.stdout.encoding or "utf-8"))


def screen_size(environ: Mapping[str, str]) -> tuple[int, int]:
    """Return columns and lines by COLUMNS and LINES, else by the terminal on standard output, else 80x24.

    On a terminal a line is left for the prompt. The size is limited to what a screen can be drawn in.
    """
    columns, lines = shutil.get_terminal_size()
    if sys.stdout.isatty() and not environ.get("LINES"):
        lines -= 1
    (least_x, least_y), (most_x, most_y) = SIZES
    return min(max(columns, least_x), most_x), min(max(lines, least_y), most_y)


def _progress(seconds: float, tally: CaptureCounts, size: int, *, stages: bool) -> str:
    trouble = [
        f"{counted(count, noun)}{what}"
        for count, noun, what in (
            (tally.lost_events, "event", " lost"),
            (tally.map_full, "map update", " lost"),
            (tally.gaps, "gap", ""),
            (tally.late, "window", " read late"),
        )
        if count
    ]
    return ", ".join(
        [f"{seconds:.0f} s", f"{tally.completed:,} I/Os", show_size(size), *_on_demand(tally, stages=stages), *trouble]
    )


def _on_demand(tally: CaptureCounts, *, stages: bool) -> list[str]:
    """Return the number of outliers and whether stages are traced, each only where there are any."""
    left_out = f" ({tally.suppressed:,} left out)" if tally.suppressed else ""
    outliers = [f"{counted(tally.above, 'outlier')}{left_out}"] if tally.above else []
    sampled = f" of 1 in {tally.one_in}" if tally.one_in > 1 else ""
    return [*outliers, *([f"stages{sampled} traced"] if tally.one_in and stages else [])]


def scenarios() -> Mapping[str, str]:
    """Return the scenarios: name -> one sentence."""
    names: Mapping[str, str] = sys.modules[registry.load("demo").__module__].SCENARIOS
    return names


def check_scenario(scenario: str) -> None:
    """Raise UsageError for an unknown scenario."""
    if scenario not in scenarios():
        raise UsageError(f"there is no demo {scenario!r}; the demos are {', '.join(scenarios())}")


def list_scenarios() -> int:
    """Print the scenarios, wrapped on a terminal and one per line in a pipe; return the exit code."""
    known = scenarios()
    column = max(map(len, known)) + 2
    width = terminal_size(sys.stdout).columns if sys.stdout.isatty() else sys.maxsize
    for name, purpose in known.items():
        lines = textwrap.wrap(purpose, max(width - column - 1, column)) or [""]
        print(f"{name:<{column}}{lines[0]}")
        for line in lines[1:]:
            print(f"{'':<{column}}{line}")
    return EXIT_DONE


def export_demo(args: argparse.Namespace, shown: ScreenOptions, tour: Tour | None = None) -> int:
    """Write the pictures and films that the command line names, from a recording that is then removed.

    The same arguments and config make the same bytes. `tour`: a film is of its stops. Return the exit code.
    """
    from latmon.exporters.screen import screen_at  # noqa: PLC0415  the other commands draw nothing

    given: dict[str, Any] = {name: value for name in ("size", "at", "speed") if (value := getattr(args, name))}
    outs = {form: out for form in ("svg", "cast") if (out := getattr(args, form)) is not None}
    with tempfile.TemporaryDirectory(prefix="latmon-") as directory, contextlib.ExitStack() as files:
        # a name that is taken is refused before the demo is made
        opened = {form: files.enter_context(output(out)) for form, out in outs.items()}
        name = f"latmon demo {args.scenario}"  # the caption of its pictures
        path = Path(directory) / name
        duration_us = args.duration if tour is None else tour.length_us
        count = _recorded_demo(args.scenario, args.seed, path, duration_us)
        source = Source(open_recording(path), tuple(args.device))
        try:
            if args.once:
                sized = {"size": screen_size(os.environ)} | given
                show(screen_at(source, ExportOptions(**sized, shown=shown)))
            for form, file in opened.items():
                options = ExportOptions(**given, shown=shown)
                with Progress(
                    f"writing {named(outs[form])}", quiet=outs[form] == STANDARD
                ) as source.recording.progress:
                    if tour is None:
                        writer(form, options)(source, file, options)
                    else:
                        from latmon.tui.tour_cast import write_tour  # noqa: PLC0415  it knows all keys

                        write_tour(source, file, options, tour, shown, command=f"{name} --tour")
                what = f"{counted(count, 'window')} of {args.scenario}, seed {args.seed}, as {form}"
                message(f"{what} in {named(outs[form])}")
        except RecordingError as error:  # that path is gone when a user reads it
            raise RecordingError(str(error).replace(str(path), name)) from None
    return EXIT_DONE


def record_demo(scenario: str, seed: int, path: Path, duration_us: int | None = None) -> int:
    """Write a scenario's recording without pauses and without data of this host; return the exit code."""
    target.refuse(path)
    count = _recorded_demo(scenario, seed, path, duration_us)
    verb = "is" if count == 1 else "are"
    message(f"{counted(count, 'window')} of {scenario}, seed {seed}, {verb} in {named(path)}")
    return EXIT_DONE


def _recorded_demo(scenario: str, seed: int, path: Path, duration_us: int | None) -> int:
    """Write the recording and return the number of its windows."""
    demo = registry.load("demo")
    known = demo(scenario, seed=seed)
    windows = known.windows or DEMO_WINDOWS
    if duration_us is not None:
        windows = max(1, round(duration_us / known.origin.interval_us))
    with Progress(f"making {scenario}", quiet=path == STANDARD) as progress:
        return asyncio.run(_write_demo(demo(scenario, seed=seed, speed=0, limit=windows), path, windows, progress))


async def _write_demo(backend: Backend, path: Path, windows: int, progress: Callable[[int, int], None]) -> int:
    count = 0
    async with backend:
        writer = Writer.create(path, backend.origin)
        try:
            async for frame in backend.frames():
                writer.append_whole(frame)
                count += 1
                progress(count, windows)
            writer.close_whole()
        finally:
            with contextlib.suppress(OSError):
                writer.close()
    return count


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
        for finding in current:
            if SEVERITIES.index(finding.severity) >= least and self._begins(finding, mono_us):
                yield BEGAN, finding
        for key, standing in tuple(self._standing.items()):
            if mono_us - standing.last_us >= self._actions.gone_us:
                del self._standing[key]
                if standing.reported:
                    yield ENDED, standing.finding

    def _begins(self, finding: Finding, mono_us: int) -> bool:
        """Note a finding that stands; return whether it is reported."""
        before = self._standing.get(finding.key)
        reported = "" if before is None else before.reported
        is_worse = bool(reported) and SEVERITIES.index(finding.severity) > SEVERITIES.index(reported)
        last_us = self._reported.get(finding.key)
        is_due = last_us is None or mono_us - last_us >= self._actions.quiet_us
        begins = is_worse or (not reported and is_due)
        if begins:
            self._reported.pop(finding.key, None)  # the latest one is the last
            self._reported[finding.key] = mono_us
            if len(self._reported) > _MAX_REPORTED:
                del self._reported[next(iter(self._reported))]
        self._standing[finding.key] = _Standing(finding, mono_us, finding.severity if begins else reported)
        return begins


class Actor:
    """Runs the actions of findings, one finding at a time."""

    def __init__(
        self, actions: Actions, origin: Origin, archive: Archive, log: Log, *, redaction: Redaction | None
    ) -> None:
        """`archive` has the minutes that are saved."""
        self._actions, self._origin, self._archive = actions, origin, archive
        self._log, self._redaction = log, redaction
        self._waiting: asyncio.Queue[tuple[Finding, float]] = asyncio.Queue(_MAX_WAITING)
        self._saved = 0

    def add(self, finding: Finding, wall: float) -> None:
        """Add a finding that began at `wall`."""
        if not (self._actions.command or self._actions.record_us):
            return
        try:
            self._waiting.put_nowait((finding, wall))
        except asyncio.QueueFull:
            self._log(syslog.LOG_ERR, f"{_MAX_WAITING} findings wait for the command: nothing is done for {finding.id}")

    async def run(self) -> None:
        """Run actions until the task is cancelled."""
        while True:
            finding, wall = await self._waiting.get()
            try:
                recording = await self._record(finding, wall) if self._actions.record_us else None
                if self._actions.command:
                    await self._command(self._values(finding, wall, recording))
            except Exception as error:  # noqa: BLE001 - the actions of later findings must still run
                self._log(syslog.LOG_ERR, f"on_finding failed for {finding.id}: {type(error).__name__}: {error}")

    def _values(self, one: Finding, wall: float, recording: Path | None) -> dict[str, Any]:
        finding = to_json(reported_finding(one))
        host = "" if self._redaction else self._origin.host
        about = {"schema": SCHEMA, "host": host, "kernel": self._origin.kernel, "began": rfc3339(wall)}
        return about | {"recording": None if recording is None else str(recording), "finding": finding}

    async def _record(self, finding: Finding, wall: float) -> Path | None:
        """Save the minutes before the finding; None where that fails, which is reported."""
        if self._saved >= _MAX_SAVED:
            self._log(syslog.LOG_WARNING, f"{_MAX_SAVED} recordings were saved since the start: no more are saved")
            return None
        host = "" if self._redaction else self._origin.host
        path = (self._actions.directory or Path.cwd()) / target.recording_name(f"{host}-{finding.id}", wall)
        until = self._archive.stamps[-1].mono_us
        after = until - self._actions.record_us
        frames = completed(self._archive.frames(after, until), self._archive.known(after))
        try:
            path, many = await asyncio.to_thread(self._save, path, frames)
        except (LatmonError, OSError) as error:
            self._log(syslog.LOG_ERR, f"no recording of {finding.id}: {error}")
            return None
        self._saved += 1
        self._log(syslog.LOG_INFO, f"saved {many:,} windows before {finding.id} to {path}")
        return path

    def _save(self, path: Path, frames: Iterator[Frame]) -> tuple[Path, int]:
        path = target.unused(path)
        if shortage := target.short_of_space(path):
            raise LatmonError(shortage)
        return path, save(frames, self._origin, path, redaction=self._redaction)

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
        ended_by = asyncio.run(until_signal(_watch(session, settings, actions, log, redaction=request.redaction)))
    finally:
        code = session.close()
    log(syslog.LOG_INFO, f"ended by {ended_by}")
    return code


def _change_of_recording(before: Health, now: Health) -> str:
    """Return a sentence where a recording or its trouble has begun or ended; empty where nothing has changed."""
    if before.recording_state == now.recording_state:
        return ""
    has_resumed = now.records and not before.records and before.recording_trouble
    return f"{'the recording goes on: ' if has_resumed else ''}{now.recording_state or 'the recording has ended'}"


async def _watch(
    session: Session, settings: Settings, actions: Actions, log: Log, *, redaction: Redaction | None
) -> None:
    archive = Archive(max(actions.record_us, 1))
    async with session.feed as feed:
        origin = feed.origin
        log(syslog.LOG_INFO, f"measuring with {origin.tool or origin.backend}; actions from {actions.severity} on")
        engine, standing = RuleEngine(origin, (), settings), StandingFindings(actions)
        actor = Actor(actions, origin, archive, log, redaction=redaction)
        acting = asyncio.create_task(actor.run())
        before: Health | None = None
        try:
            async for frame in followed(feed, log, redaction=redaction):
                archive.append(frame, feed.line)
                if before is not None and (change := _change_of_recording(before, frame.health)):
                    log(syslog.LOG_WARNING, change)
                before = frame.health
                # log and command get the names that a finding has: of cgroups, mount points, threads
                if engine.take(frame):
                    for what, finding in standing.update(engine.current, frame.mono_us):
                        log(LEVELS[finding.severity], f"{finding.severity}, {finding.id} {what}: {finding.summary}")
                        if what == BEGAN:
                            actor.add(finding, frame.wall)
        finally:
            acting.cancel()
            await asyncio.wait({acting})
