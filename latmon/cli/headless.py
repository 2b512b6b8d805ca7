"""Captures and demos without a live screen: `--record FILE`, `--once`, and `--list`, `--svg` and `--cast` of demos.

A capture prints progress and findings on stderr; `--once` prints one picture as text. Never imports Textual. Rules are
evaluated as in the TUI; findings are not recorded. A demo is deterministic per seed; its backend is loaded by name and
owns the scenarios.
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
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
from latmon.findings.engine import FindingSummary, RuleEngine, by_kind, evaluated_by, summarise_episodes
from latmon.findings.rule import DEFAULT, NOTICE, Finding, Settings
from latmon.findings.rules import RULES
from latmon.model.devices import carry
from latmon.model.frame import Frame, Origin
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.report.formatting import in_flight_by_device, not_completed
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE, LatmonError, RecordingError, UsageError
from latmon.support.streams import QUIET, STANDARD, Progress, ServiceLog, named, output, terminal_size
from latmon.support.text import encodable
from latmon.support.units import counted, show_duration, show_size

if TYPE_CHECKING:
    from latmon.exporters.screen import Moments
    from latmon.views.lines import Line
    from latmon.views.selection import ScreenOptions

_REPORTED_EVERY_US = 60_000_000
MAX_FINDINGS = 20
"""Limit of new findings that are printed during the capture, and of findings at its end."""


class FindingReporter:
    """Rule engine over the frames of one capture, which reports findings as sentences."""

    def __init__(self, settings: Settings | None) -> None:
        """Evaluate the rules with these settings, none where they are None."""
        self._settings = settings
        self._watch: RuleEngine | None = None
        self._begun_us: int | None = None
        self._reported: set[tuple[str, str]] = set()
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
        for one in self._watch.current:
            if one.severity != NOTICE and one.key not in self._reported and len(self._reported) < MAX_FINDINGS:
                self._reported.add(one.key)
                after = _in_seconds(max(1.0, (frame.mono_us - self._begun_us) / 1e6))
                yield LEVELS[one.severity], f"finding after {after}: {_named(one)}"

    def all_reported(self) -> Iterator[tuple[int, str]]:
        """Yield all findings, the most urgent first, and which rules were evaluated unless none was."""
        if self._watch is None:
            return
        long_enough = self._watch.evaluated > 0
        self._watch.finish()
        found = summarise_episodes(self._watch.episodes)
        yield from self._failures(self._watch)
        who, why = self._evaluated(self._watch)
        if not found and long_enough:
            yield LOG_INFO, f"no finding; {who}; {why}" if why else f"no finding, by {who}"
        for one in found[:MAX_FINDINGS]:
            yield LEVELS[one.finding.severity], f"finding, {_long(one)}: {_named(one.finding)}"
        if len(found) > MAX_FINDINGS:
            yield LOG_WARNING, f"and {len(found) - MAX_FINDINGS:,} more findings, which `latmon report` lists"
        if found and why:
            yield LOG_INFO, f"{who}; {why}"

    def _failures(self, watch: RuleEngine) -> Iterator[tuple[int, str]]:
        """Yield a sentence for each rule that failed, once."""
        for rule, words in watch.failed.items():
            if rule not in self._failed:
                self._failed.add(rule)
                yield LOG_ERR, f"rule {rule} failed: {words}; the other rules are still evaluated"

    def _evaluated(self, watch: RuleEngine) -> tuple[str, str]:
        off = frozenset[str]() if self._settings is None else self._settings.off
        return evaluated_by(len(RULES) - len(off), by_kind(watch.silent - off), watch.failed, watch.partly)


def _named(one: Finding) -> str:
    return f"{one.severity}, {one.id}: {one.summary}"


def _in_seconds(seconds: float) -> str:
    return show_duration(round(seconds) * 1_000_000)


def _long(one: FindingSummary) -> str:
    seconds = round(one.end_wall - one.begin_wall)
    lasted = f"for {_in_seconds(seconds)}" if seconds else "once"
    return lasted if one.episodes == 1 else f"{one.episodes:,} times"


ENDING = {
    signal.SIGINT: "ended by Ctrl-C",
    signal.SIGTERM: "ended by SIGTERM",
    signal.SIGHUP: "ended by the terminal's hang-up",
}


class RecordingProgress:
    """Sink that updates one line on a terminal; elsewhere it prints the first and last line, and notices."""

    def __init__(
        self, path: Path, out: TextIO, settings: Settings | None = DEFAULT, log: ServiceLog | None = None
    ) -> None:
        """Report on the recording `path` to `out`; `settings`: see FindingReporter; `log`: it prints to `out`, too."""
        self._path, self._out = path, out
        self._log = log or ServiceLog(out)
        self._findings = FindingReporter(settings)
        self._live = out.isatty() and self._log.least > QUIET
        self._reported_us = 0
        self._began_us: int | None = None
        self._traces_stages = True
        self._line = self._noticed = self._remark = self._latest = ""
        self._shown = self._gaps = 0
        self._waiting = Waiting()

    def starting(self, backend: str = "auto") -> None:
        """Print that the capture starts: bpftrace 0.17 compiles for up to half a minute before data is recorded."""
        why = compiling(backend)
        self._write(LOG_INFO, f"starting, nothing is recorded yet{f' ({why})' if why else ''}")

    def remark(self, text: str) -> None:
        """Print a remark on the file's file system before the capture starts, such as that it does not answer."""
        self._remark = text
        if text:
            self._write(LOG_NOTICE, text)

    def opened(self, origin: Origin) -> None:
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
        self._waiting.add(frame)
        self._gaps = tally.gaps
        self._line = _progress((frame.mono_us - self._began_us) / 1e6, tally, self._size(), stages=self._traces_stages)
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
        if self._line:
            self._write(LOG_INFO, f"recorded {self._line}")  # the length of its frames, not the requested one
        rows = self._waiting.ages.oldest
        if waits := not_completed(
            in_flight_by_device((one.device, one.count, one.age_us, one.at_least) for one in rows)
        ):
            self._write(LOG_NOTICE, waits)
        for level, found in self._findings.all_reported() if self._line else ():
            self._write(level, found)
        text = [outcome.reason] if outcome.reason != self._noticed else []
        gaps = f"{counted(self._gaps, 'gap')}: " if self._gaps else ""
        lost = [f"{gaps}the recording is incomplete"] if outcome.exit == EXIT_INCOMPLETE else []
        if text or lost:
            self._write(LOG_INFO if outcome.exit == EXIT_DONE else LOG_WARNING, "; ".join([*text, *lost]))

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
        self, request: Request, path: Path, out: TextIO, settings: Settings | None, log: ServiceLog | None
    ) -> None:
        super().__init__(path, out, settings, log)
        self._state = ""
        """Name of the file, and why nothing is written at the moment, as of the last frame."""
        self.capture = Capture(request, self, ahead=self.remark)

    def _size(self) -> int:
        return self.capture.recorded_bytes  # without a system call on the disk, which may hang

    def offer(self, frame: Frame, tally: CaptureCounts) -> None:
        super().offer(frame, tally)
        state, before = frame.health.recording, self._state
        self._state = state
        if not self.capture.recording:
            self.capture.stop(state or "recording stopped")
        elif state != before and ": " in state:
            self._write(LOG_ERR, state)
        elif state != before and ": " in before:
            self._write(LOG_WARNING, f"{state} is written again")


def record(request: Request, path: Path, settings: Settings | None = DEFAULT, log: ServiceLog | None = None) -> int:
    """Capture to `path` until the duration, a signal or the backend ends it; return the exit code.

    `settings`: see FindingReporter; `log`: None logs to stderr.
    """
    return asyncio.run(_record(request, path, settings, log))


async def _record(request: Request, path: Path, settings: Settings | None, log: ServiceLog | None) -> int:
    progress = _Recording(request, path, sys.stderr, settings, log)
    loop = asyncio.get_running_loop()
    for number, reason in ENDING.items():
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored on purpose by nohup and by `&` in a script
            stop = partial(progress.capture.stop, reason, at_once=number is not signal.SIGINT)
            loop.add_signal_handler(number, stop)
    progress.starting(request.backend)
    outcome = await progress.capture.run()
    progress.ended(outcome)
    return outcome.exit


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
        print(f"latmon: starting ({why})", file=sys.stderr)
    picture = _Picture(request, options, screen_size(os.environ))
    outcome = asyncio.run(picture.capture.run())
    if not (lines := picture.lines()):
        raise LatmonError(f"no window was captured: {outcome.reason}")
    show(lines)
    return outcome.exit


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


DEMO_WINDOWS = 180
"""Windows of a scenario without an end: three minutes, which include all of its phases."""


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


def export_demo(args: argparse.Namespace, shown: ScreenOptions) -> int:
    """Write the pictures and films that the command line names, from a recording that is then removed.

    The same arguments and config make the same bytes. Return the exit code.
    """
    from latmon.exporters.screen import screen_at  # noqa: PLC0415  the other commands draw nothing

    given: dict[str, Any] = {name: value for name in ("size", "at", "speed") if (value := getattr(args, name))}
    if args.speed == 0:
        raise UsageError("--speed 0: a cast needs a speed above 0, such as 10")
    outs = {form: out for form in ("svg", "cast") if (out := getattr(args, form)) is not None}
    with tempfile.TemporaryDirectory(prefix="latmon-") as directory, contextlib.ExitStack() as files:
        # a name that is taken is refused before the demo is made
        opened = {form: files.enter_context(output(out)) for form, out in outs.items()}
        name = f"latmon demo {args.scenario}"  # the caption of its pictures
        path = Path(directory) / name
        count = _recorded_demo(args.scenario, args.seed, path, args.duration)
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
                    writer(form, options)(source, file, options)
                what = f"{counted(count, 'window')} of {args.scenario}, seed {args.seed}, as {form}"
                print(f"latmon: {what} in {named(outs[form])}", file=sys.stderr)
        except RecordingError as error:  # that path is gone when a user reads it
            raise RecordingError(str(error).replace(str(path), name)) from None
    return EXIT_DONE


def record_demo(scenario: str, seed: int, path: Path, duration_us: int | None = None) -> int:
    """Write a scenario's recording without pauses and without data of this host; return the exit code."""
    target.refuse(path)
    count = _recorded_demo(scenario, seed, path, duration_us)
    verb = "is" if count == 1 else "are"
    print(f"latmon: {counted(count, 'window')} of {scenario}, seed {seed}, {verb} in {named(path)}", file=sys.stderr)
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
                writer.append(frame)
                count += 1
                progress(count, windows)
        finally:
            writer.close()
    return count
