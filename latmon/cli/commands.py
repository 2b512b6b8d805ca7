"""The commands. Each loads only what it needs, so a headless capture never imports Textual."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import platform
import signal
import stat
import subprocess
import sys
import syslog
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from latmon.capture import registry, target
from latmon.capture.backend import Backend, Options
from latmon.capture.registry import Request
from latmon.cli import arguments, config, options
from latmon.cli.declaration import Option
from latmon.model.redaction import Redaction
from latmon.support import (
    failures,
    first_picture,
    host,
    memory,
    output_files,
    paths,
    privileges,
    process,
    streams,
    trust,
)
from latmon.support.errors import EXIT_DONE, LatmonError, RecordingError, ThemeError, UnavailableError, UsageError
from latmon.support.streams import STANDARD, ServiceLog
from latmon.support.text import clean

if TYPE_CHECKING:
    from latmon.capture.workload import Workload
    from latmon.findings.rule import Settings
    from latmon.tui.tour import Tour
    from latmon.views.selection import ScreenOptions

MAX_IGNORED = 1000
T = TypeVar("T")
U = TypeVar("U")
_NO_CURSOR = ("", "dumb", "unknown")
"""Values of TERM for a terminal whose cursor can't be moved."""
_LATMON = (sys.executable, "-P", "-s", "-m", "latmon")
_LONGEST_PASSWORD = 4096
"""Bytes; a file such as /dev/zero has a first line without an end."""
_PASSWORD_S = 30.0
"""Time for its first line: it may be a pipe, such as of `<(pass prometheus)`, to which nothing is written."""
_PROMETHEUS_WINDOW_US = 600_000_000
_PROMETHEUS_COLUMNS = ("model", "IOPS", "mean", "p50", "p99", "p99.9", "max", "depth", "queue", "peers")
"""Without MB/s, which a Prometheus doesn't have."""
_WITHOUT_INVASIVE = frozenset({"bpftrace", "procfs", "demo"})
_PREVIEW_US = 300_000
"""The first frame of the kernel's counters comes after this time."""
_OF_FILES = frozenset({"report", "diff", "check", "export", "import"})
"""Commands that read whole files and end."""


def run(args: argparse.Namespace) -> int:
    """Run the command of a command line and return its exit code."""
    _guard_root()
    with process.seldom_collecting() if args.command in _OF_FILES else nullcontext():
        if "max_memory" not in args:
            return _RUN[args.command](args)
        return _run_within_memory(args)


def _run_within_memory(args: argparse.Namespace) -> int:
    """Run a command that reads recordings, which may be hostile. RecordingError where they take too much memory."""
    default = memory.MAX_OF_SCREEN if args.command == "replay" else memory.MAX_BYTES
    max_bytes = default if args.max_memory is None else args.max_memory
    is_our_limit = False
    try:
        with memory.limited(max_bytes) as is_our_limit:
            return _RUN[args.command](args)
    except LatmonError:
        raise
    except Exception as error:
        if not is_our_limit or not failures.is_out_of_memory(error):
            raise
    # Here and not where the error is caught: its traceback refers to all that was read.
    raise RecordingError(
        f"{_named_files(args)} can't be read within {max_bytes >> 20} MiB of memory: "
        f"if you know who made it, --max-memory {max_bytes >> 18}M allows more"
    )


def _named_files(args: argparse.Namespace) -> str:
    """Return the names of the recordings of a command line."""
    files = [args.file] if args.command == "export" else list(args.files)
    if args.command == "diff":
        files += [*(args.a or ()), *(args.b or ())]
    return " and ".join(dict.fromkeys(streams.named(Path(file)) for file in files))


def _guard_root() -> None:
    """Refuse to run as root if another user can change latmon; remove such directories from PATH."""
    if os.geteuid() == 0:
        trust.require_installation()
        os.environ["PATH"] = trust.search_path(os.environ)
        output_files.drop_temporary_directory(os.environ)


def _live(args: argparse.Namespace) -> int:
    user = _user()
    defaults = config.load(os.environ, user=user)
    if args.backend == options.PROMETHEUS:
        return _prometheus(args, defaults, user)
    if args.record is not None:
        with privileges.acting_as(user):
            target.refuse(args.record)
    if defaults.ignored:
        streams.message(defaults.ignored, MAX_IGNORED)
    tools = _tools(defaults)
    request = replace(
        _request(args, defaults, tools),
        record=args.record,
        duration_us=args.duration,
        max_size=args.max_size,
        keep_us=args.keep,
        redact=args.redact,
    )
    if request.record is not None and not (args.tui or args.inline):
        from latmon.cli import headless

        workload = _workload(args, user)
        line = "" if workload is None or args.redact else workload.line
        log = _log(args, user)
        return headless.record(replace(request, workload=line), args.record, defaults.findings, log, workload)
    if args.baseline is not None:
        defaults = replace(defaults, findings=_with_baseline(defaults.findings, args.baseline))
    screen = partial(_screen, args, defaults, "LIVE", user, request)
    if args.once:
        from latmon.cli import headless

        return headless.once(request, screen())
    return _watch(request, screen, user, inline=args.inline, instead="latmon --record FILE --duration 60s")


def _workload(args: argparse.Namespace, user: privileges.Invoker | None) -> Workload | None:
    """Return the command to measure, which waits for the first window; None without one."""
    if not args.workload:
        return None
    from latmon.capture.workload import Workload

    workload = Workload(args.workload, is_named=not args.redact)
    with privileges.acting_as(user):
        workload.require(os.environ)
    workload.fork(user, output_files.umask_before())
    return workload


def _prometheus(args: argparse.Namespace, defaults: config.Config, user: privileges.Invoker | None) -> int:
    """Show or record the hosts of a Prometheus; there is no collector, and nothing runs as root."""
    privileges.drop_root(user)
    store = {
        "url": args.url,
        "password": _password(args.password_file),
        "select": args.select or "",
        "interval_us": args.interval,
        "devices": tuple(args.device),
        "brief": args.record is not None,
    }
    request = Request(
        options.PROMETHEUS,
        Options(devices=tuple(args.device), stages="basic"),
        record=args.record,
        duration_us=args.duration,
        max_size=args.max_size,
        keep_us=args.keep,
        redact=args.redact,
        store=store,
    )
    if args.record is not None:  # without rules here: the exporters evaluate them, of all their data
        with privileges.acting_as(user):
            target.refuse(args.record)
        from latmon.cli import headless

        return headless.record(request, args.record, None, _log(args, user))
    if not args.once:
        _need_terminal("latmon --backend prometheus --url URL --once", inline=args.inline)
    if args.window is None:
        args.window = _PROMETHEUS_WINDOW_US
    if args.columns is None:
        args.columns = _PROMETHEUS_COLUMNS
    screen = replace(_screen(args, defaults, "LIVE", request=request), findings=None)
    if args.once:
        from latmon.cli import headless

        return headless.once(request, screen)
    if args.inline:
        from latmon.tui import strip

        code = strip.run(registry.load("prometheus")(**store), screen)
        return EXIT_DONE if code is None else code
    first_picture.show("asking the Prometheus")
    from latmon.tui.app import run

    return run(registry.load("prometheus")(**store, quick=True), screen, visit=_visit)


def _visit(host: str) -> None:
    """Show a host by `latmon fleet` until that is left; a failure stays on the terminal until Enter.

    The screen of this process has ended, so that both are one job: Ctrl-Z stops and `fg` continues them together.
    """
    print(f"latmon fleet {clean(host)}", file=sys.stderr, flush=True)
    before = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for the other one, which would inherit SIG_IGN
    try:
        status = subprocess.run(  # noqa: S603  no shell reads it
            [*_LATMON, "fleet", "--", host],
            check=False,
            env={**trust.environment(os.environ), "PYTHONPATH": process.module_path()},
        ).returncode
    finally:
        signal.signal(signal.SIGINT, before)
    if status:
        print("latmon: Enter: back to the hosts of the Prometheus ", end="", file=sys.stderr, flush=True)
        sys.stdin.readline()


def _password(file: Path | None) -> str:
    """Return the password of a Prometheus. Raises UsageError for a file that can't be read."""
    if file is None:
        return os.environ.get("LATMON_PROMETHEUS_PASSWORD", "")
    try:
        line = paths.first_line(file, _LONGEST_PASSWORD, _PASSWORD_S)
        if len(line) > _LONGEST_PASSWORD:
            raise UsageError(f"--password-file {file}: its first line has more than {_LONGEST_PASSWORD} bytes")
        return line.decode().removesuffix("\r")
    except TimeoutError:
        why = f"it has no complete first line after {_PASSWORD_S:g} s"
    except (OSError, ValueError) as error:
        why = (isinstance(error, OSError) and error.strerror) or "its first line is no text in UTF-8"
    raise UsageError(f"--password-file {file}: {why}; name a file whose first line is the password")


def _tools(defaults: config.Config) -> dict[str, str]:
    """Return the paths of the tools that the config names, by their variable, where that isn't set.

    Raises UnavailableError with the key of a tool that can't be run, UntrustedError where latmon is root and others can
    change a tool or the file that names it.
    """
    trust.require_named(os.environ)
    tools = {}
    for tool in config.TOOLS:
        path = defaults[tool]
        if not path or os.environ.get(tool.variable):
            continue
        _check_named(tool.key, Path(path), defaults.named_in.get(tool.key))
        tools[tool.variable] = path
    return tools


def _check_named(name: str, path: Path, file: Path | None, *, root: bool = True) -> None:
    """Check a program that the config names; with `root`, latmon that is root runs it as root."""
    where = f" in {file}" if file else " in the config"
    root = root and os.geteuid() == 0
    if root and file is not None:
        _require_config(file, f"{name}: {path}{where}", "tool")
    if path.is_absolute() and root:
        trust.require(path, f"{name}: {path}{where}")
    if not (path.is_absolute() and os.access(path, os.X_OK) and stat.S_ISREG(paths.mode(path))):
        raise UnavailableError(f"{name}: {path}{where} must be the absolute path of a program that runs.")


def _require_config(file: Path, what: str, kind: str) -> None:
    """Raise UntrustedError where others can change a config whose key `what` names a tool or a directory."""
    remedy = "remove the key" if file == config.SYSTEM else f"name the {kind} in {config.SYSTEM} instead"
    trust.require_path(file, what, remedy)


def _check_saved_in(actions: config.Actions, file: Path | None) -> None:
    """Raise UntrustedError or UnavailableError where others decide in which directory root saves recordings."""
    if not actions.record_us or os.geteuid() != 0:
        return
    if actions.directory is not None and file is not None:
        _require_config(file, f"on_finding: directory: {actions.directory} in {file}", "directory")
    directory = actions.directory or Path.cwd()
    output_files.require(directory / "recording", f"on_finding: a recording in {directory}")


def _request(args: argparse.Namespace, defaults: config.Config, tools: Mapping[str, str]) -> Request:
    backend = _chosen(args, defaults, options.BACKEND, registry.AUTO)
    registry.check(backend)
    if args.invasive and (backend in _WITHOUT_INVASIVE or (backend == registry.AUTO and platform.system() == "Linux")):
        raise UsageError("--invasive needs --backend dtrace: the other backends have no probe that is invasive")
    paths.data_dir("probes")  # refuse an installation without probes, which would silently use the kernel's counters
    unset = Options()
    measured = Options(
        interval_us=_chosen(args, defaults, options.INTERVAL, unset.interval_us),
        devices=tuple(args.device),
        threshold_us=_chosen(args, defaults, options.THRESHOLD, unset.threshold_us),
        stages=_chosen(args, defaults, options.STAGES, unset.stages),
        invasive=tuple(args.invasive),
        max_overhead=_chosen(args, defaults, options.MAX_OVERHEAD, unset.max_overhead),
        budget_percent=_chosen(args, defaults, options.BUDGET_PERCENT, unset.budget_percent),
        tools=tools,
    )
    return Request(backend=backend, options=measured)


def _watch(
    request: Request,
    screen: Callable[[], ScreenOptions],
    user: privileges.Invoker | None,
    *,
    inline: bool,
    instead: str,
    tour: Tour | None = None,
) -> int:
    """Run the TUI or the strip of `--inline` on a collector of its own; return the exit code.

    The collector opens its probes while the options of the screen are read and Textual loads. `instead`: the command
    for a host without a terminal.
    """
    try:
        _need_terminal(instead, inline=inline)
    except UnavailableError:
        screen()  # an option that can't be used is reported first
        raise
    if not inline:
        first_picture.show("opening the backend")
    from latmon.capture.session import SCREEN_COMMANDS, Session

    session = Session(request if inline else replace(request, commands=SCREEN_COMMANDS))
    code: int | None
    try:
        options = screen()
        privileges.drop_all(user)
        if inline:
            from latmon.tui import strip

            code = strip.run(session.feed, options)
        else:
            preview = _preview(request)
            run = _screen_program()
            code = run(session.feed, options, session=session, preview=preview, tour=tour)
    finally:
        captured = session.close()
    return captured if code is None or (code == EXIT_DONE and request.record is not None) else code


def _with_baseline(settings: Settings, path: Path) -> Settings:
    """Return the settings of the rules with recordings to compare with. RecordingError where there are none."""
    from latmon.diff.baseline import BaselineFiles

    return replace(settings, baseline=BaselineFiles(path, time.time()))


def _screen_program() -> Callable[..., int | None]:
    """Load the screen. Its modules are no garbage: looking for some would take a tenth of the time."""
    gc.disable()
    try:
        from latmon.tui.app import run
    finally:
        gc.enable()
    return run


def _preview(request: Request) -> Backend | None:
    """Return a backend of the kernel's counters, to be shown while probes compile; None where none do.

    Its first interval begins now, so that it is over when the screen is there.
    """
    if not registry.compiling(request.backend) or request.backend in ("demo", "fleet"):
        return None
    from latmon.model.frame import PROBES_STARTING

    interval_us = min(request.options.interval_us, _PREVIEW_US)
    options = Options(interval_us=interval_us, devices=request.options.devices)
    preview = registry.load("procfs")(options, PROBES_STARTING)
    preview.begin()
    return preview  # type: ignore[no-any-return]  # classes of the registry are not known


def _replay(args: argparse.Namespace) -> int:
    from latmon.model.frame import Frame
    from latmon.recording.reader import open_recording

    _settle()
    screen = _screen(args, config.load(os.environ), "REPLAY")
    if args.once:
        return _replay_once(args, screen)
    if not args.inline and not _why_no_screen(is_stdin_read=STANDARD in args.files):
        first_picture.show("reading the recording")
    if STANDARD in args.files:
        streams.keys_from_terminal()
    files = _readable(args.files)
    # What no screen can show is reported before a missing terminal, and before a screen is drawn.
    if not any(isinstance(item, Frame) for recording in map(open_recording, files) for item in recording):
        names = " and ".join(map(str, files))
        raise RecordingError(f"{names} contains no window to draw; `latmon check` names the damage")
    _need_terminal(f"latmon report {args.files[0]}", inline=args.inline)
    source = registry.load("replay")(files, speed=1.0 if args.speed is None else args.speed)
    if args.inline:
        from latmon.tui import strip

        code = strip.run(source, screen)
        return EXIT_DONE if code is None else code
    from latmon.tui.app import run

    return run(source, screen)


def _replay_once(args: argparse.Namespace, screen: ScreenOptions) -> int:
    from latmon.cli import headless
    from latmon.exporters.registry import ExportOptions, Source
    from latmon.exporters.screen import screen_at
    from latmon.recording.reader import open_recording

    (path,) = _readable(args.files)
    options = ExportOptions(size=headless.screen_size(os.environ), shown=screen)
    source = Source(open_recording(path), tuple(args.device))
    with streams.Progress(f"reading {streams.named(path)}") as source.recording.progress:
        lines = screen_at(source, options)
    headless.show(lines)
    return EXIT_DONE


def _demo(args: argparse.Namespace) -> int:
    from latmon.cli import headless

    if args.list:
        return headless.list_scenarios()
    if args.scenario is None:
        args.scenario = options.DEFAULT_DEMO
    headless.check_scenario(args.scenario)
    tour = _tour(args.scenario) if args.tour else None
    user = _user()
    if args.record is not None:
        with privileges.acting_as(user):
            return headless.record_demo(args.scenario, args.seed, args.record, args.duration)
    defaults = config.load(os.environ, user=user)
    if args.svg or args.cast or args.once:
        with privileges.acting_as(user):
            return headless.export_demo(args, _screen(args, defaults, "DEMO"), tour)
    request = Request("demo", Options(devices=tuple(args.device)), scenario=args.scenario, seed=args.seed)
    screen = partial(_screen, args, defaults, "DEMO", user, request)
    return _watch(request, screen, user, inline=args.inline, instead=f"latmon demo {args.scenario} --once", tour=tour)


def _screen(
    args: argparse.Namespace,
    defaults: config.Config,
    mode: str,
    user: privileges.Invoker | None = None,
    request: Request | None = None,
) -> ScreenOptions:
    """Return the options of a screen, of the strip and of pictures. `request`: of the capture that is shown.

    An option overrides the saved view, the view the config's own keys. Raises UsageError for a view that is not saved,
    ThemeError for a theme or a ramp that can't be used; the user's own are read as the user.
    """
    from latmon.support.theme import AUTO, DEFAULT_THEME, load_theme
    from latmon.views.selection import ScreenOptions, Selection, ViewSettings

    with privileges.acting_as(user):
        saved = _saved_view(args, defaults)
    first = {key: _first(getattr(args, key), saved.get(key), defaults.values.get(key)) for key in options.OF_VIEWS}
    theme = _chosen(args, defaults, options.THEME, DEFAULT_THEME)
    ramp = _chosen(args, defaults, options.RAMP, AUTO)
    with privileges.acting_as(user), _named_by(args, defaults, "ramp"):
        try:
            colours = load_theme(theme, ramp=ramp)
        except ThemeError:
            with _named_by(args, defaults, "theme"):
                load_theme(theme)
            raise
    request = request or Request(options=Options(devices=tuple(args.device)))
    selection = Selection(
        globs=request.options.devices,
        threshold_us=request.options.threshold_us,
        backend=request.backend,
        stages=request.options.stages,
        sweep=defaults[options.SWEEP] is True,
    )
    return ScreenOptions(
        selection=ViewSettings(**first).over(selection),
        mode=mode,
        theme=colours,
        ramp=ramp,
        findings=defaults.findings,
        views={name: ViewSettings(**view) for name, view in defaults.views.items()},
        history_us=None if mode == "REPLAY" else defaults[options.HISTORY],
        record=request.record,
        redaction=request.redaction,
        bell=mode != "REPLAY" and (args.bell or defaults[options.BELL] is True),
        takes_mouse=defaults[options.MOUSE] is not False and not args.no_mouse,
        to_worst=mode == "REPLAY" and args.speed is None,
    )


@contextmanager
def _named_by(args: argparse.Namespace, defaults: config.Config, key: str) -> Iterator[None]:
    """Put the place in the config before the sentence on a theme or ramp that it names."""
    try:
        yield
    except ThemeError as error:
        if getattr(args, key) is not None or key not in defaults.named_in:
            raise
        raise UsageError(f"{config.place(defaults, key)}: {error}") from None


def _chosen(args: argparse.Namespace, defaults: config.Config, setting: Option[T], otherwise: U) -> T | U:
    """Return the value of an option, else that of the config, else `otherwise`."""
    value: T | U = _first(getattr(args, setting.key, None), defaults[setting], otherwise)
    return value


def _first(*values: Any) -> Any:
    """Return the first value that is set; None where none is."""
    return next((value for value in values if value is not None), None)


def _saved_view(args: argparse.Namespace, defaults: config.Config) -> Mapping[str, Any]:
    """Return the saved view that an option or the config names; empty where none does."""
    name = _chosen(args, defaults, options.VIEW, None)
    if name is None or name in defaults.views:
        return {} if name is None else defaults.views[name]
    where = config.place(defaults, "view") if args.view is None else "--view"
    known = ", ".join(defaults.views) or "none"
    raise UsageError(f"{where}: {name!r} is no saved view of the config, which has {known} (docs/CONFIG.md)")


def _tour(scenario: str) -> Tour:
    from latmon.tui.tour import load_tour

    return load_tour(scenario)


def _report(args: argparse.Namespace) -> int:
    _settle()
    from latmon.report.command import report_command

    defaults = config.load(os.environ)
    ramp = _chosen(args, defaults, options.RAMP, "auto")
    files = _readable(args.files)
    if args.runs:
        return _runs(files, args, defaults.findings)
    with _named_by(args, defaults, "ramp"):
        return report_command(
            files,
            as_json=args.json,
            html=args.html,
            is_brief=args.brief,
            settings=defaults.findings,
            ramp=ramp,
            slo_us=args.slo,
        )


def _runs(files: Sequence[Path], args: argparse.Namespace, settings: Settings) -> int:
    from latmon.diff.command import compared, print_compared, runs_of

    if len(files) > 1:
        raise UsageError("report --runs compares the runs of one file; latmon diff compares several")
    new_partial = partial(compared, runs_of(files[0]), (), "", settings)
    if args.html is None:
        return print_compared(new_partial(), as_json=args.json)
    from latmon.report.html import write_diff

    return write_diff(new_partial, args.html)


def _check(args: argparse.Namespace) -> int:
    _settle()
    from latmon.cli.check import check_command

    return check_command(_readable(args.files), args.out)


def _export(args: argparse.Namespace) -> int:
    _settle()
    from latmon.exporters.registry import export_command

    args.file = streams.readable(args.file)
    return export_command(args)


def _diff(args: argparse.Namespace) -> int:
    _settle()
    from latmon.diff.command import compared, print_compared

    sides = (args.a, args.b) if args.a else ()
    settings = config.load(os.environ).findings
    new_partial = partial(compared, args.files, sides, args.sweep or "", settings)
    if args.html is None:
        return print_compared(new_partial(), as_json=args.json)
    from latmon.report.html import write_diff

    return write_diff(new_partial, args.html)


def _import(args: argparse.Namespace) -> int:
    _settle()
    from latmon.importers.registry import import_command
    from latmon.importers.values import ImportOptions

    options = ImportOptions(
        unit=args.unit or "",
        device=clean(args.device or ""),
        op=args.op or "",
        stage=args.stage or "",
        events=args.events,
        key=args.key,
        threshold_us=args.threshold,
        interval_us=args.interval or ImportOptions().interval_us,
        has_interval=args.interval is not None,
        start=args.start,
        host=args.host,
        hz=args.hz,
        first_report=args.first_report or "",
    )
    return import_command(streams.readable(args.file), args.out, options, args.from_format or "")


def _doctor(args: argparse.Namespace) -> int:
    from latmon.doctor.command import doctor_command

    paths.data_dir("probes")
    defaults = config.load(os.environ, user=_user())
    tools = _tools(defaults)
    backend = args.backend or defaults[options.BACKEND] or ""
    check_host = partial(doctor_command, args.json, backend, ignored=defaults.ignored, tools=tools)
    if not (args.self_test or args.overhead):
        return check_host()
    from latmon.doctor.command import measure_overhead, print_progress
    from latmon.doctor.selftest import check_backend, self_test

    check_backend(backend or registry.AUTO)
    request = Request(backend or registry.AUTO, Options(stages="basic", tools=tools))
    if args.overhead:
        return check_host(measure=partial(measure_overhead, request, partial(print_progress, what="overhead")))
    return check_host(test=partial(self_test, request, print_progress))


def _exporter(args: argparse.Namespace) -> int:
    invoker = user = _user()
    defaults = config.load(os.environ, user=user)
    tools = _tools(defaults)
    request = _request(args, defaults, tools)
    log = _log(args, user)
    if args.user is not None and os.geteuid() != 0:
        raise UsageError("--user needs root: without it the exporter runs as you")
    if user is None and os.geteuid() == 0:
        user = _server_account(args.user, log)
    from latmon.metrics.server import serve
    from latmon.metrics.web_config import WebConfig

    try:
        web = WebConfig() if args.web_config is None else WebConfig.load(args.web_config)
    except UsageError:
        # Its message quotes the file, which sudo's user may be unable to read: then that is the message.
        with privileges.acting_as(invoker):
            WebConfig.load(args.web_config)
        raise
    return serve(request, defaults.findings, args.listen, web, user=user, log=log)


def _watch_findings(args: argparse.Namespace) -> int:
    user = _user()
    defaults = config.load(os.environ, user=user)
    tools = _tools(defaults)
    actions, where = defaults.on_finding, defaults.named_in.get("on_finding")
    if actions.command:
        _check_named("on_finding", Path(actions.command[0]), where, root=user is None)
        if user is None and os.geteuid() == 0:
            for word in actions.command[1:]:  # a script that an interpreter runs, which may be made later
                if word.startswith("/"):
                    trust.require_path(Path(word), f"on_finding: {word}", "let root own it")
    if user is None:
        _check_saved_in(actions, where)
    path = args.record
    with privileges.acting_as(user):
        if path is not None and paths.is_directory(path):
            path = target.unused(path / target.recording_name("" if args.redact else host.name(), time.time()))
        if path is not None:
            target.refuse(path)
    request = replace(
        _request(args, defaults, tools),
        record=path,
        max_size=args.max_size,
        keep_us=args.keep,
        redact=args.redact,
        resumes=True,
    )
    from latmon.cli.headless import watch

    return watch(request, defaults.findings, actions, user, _log(args, user, to_syslog=actions.syslog))


def _log(args: argparse.Namespace, user: privileges.Invoker | None, *, to_syslog: bool = False) -> ServiceLog:
    """Return the log that the options ask for; its file is the user's."""
    least = streams.QUIET if args.quiet else streams.VERBOSE if args.verbose else streams.NORMAL
    with privileges.acting_as(user):
        file = None if args.log_file is None else streams.LogFile(args.log_file)
    return ServiceLog(least=least, file=file, to_syslog=to_syslog)


def _trace(args: argparse.Namespace) -> int:
    paths.data_dir("probes")
    tools = _tools(config.load(os.environ, user=_user()))
    from latmon.capture.backend import TraceRequest
    from latmon.report.trace import trace_command

    request = TraceRequest(
        device=args.device,
        duration_us=args.duration,
        most=args.max_ios,
        per_s=args.max_rate,
        lba=args.lba,
        file=None if args.file is None else args.file.absolute(),
        pid=args.pid,
        cgroup=args.cgroup,
        stacks_us=None if args.stacks is None else 10_000 if args.slow is None else args.slow,
        user_stacks=args.user_stacks,
        tools=tools,
    )
    redaction = Redaction(tuple(tools.values())) if args.redact else None
    return trace_command(request, args.out, args.stacks, redaction)


def _server_account(name: str | None, log: ServiceLog) -> privileges.Invoker | None:
    """Return the user who answers the exporter's requests; None where root has to, which is logged."""
    try:
        user = privileges.account(name or "nobody")
        another = ", or name a user who can: --user NAME"
        privileges.need_readable(user, (Path(os.__file__), Path(arguments.__file__)), another)
    except UnavailableError as error:
        if name is not None:
            raise
        log(syslog.LOG_WARNING, f"requests are answered as root: {error}")
        return None
    return user


def _fleet(args: argparse.Namespace) -> int:
    user = _user()
    defaults = config.load(os.environ, user=user)
    if args.feed:
        tools = _tools(defaults)
        from latmon.capture.collector import serve_standard
        from latmon.capture.session import FLEET_COMMANDS

        request = _request(args, defaults, tools)
        options = replace(request.options, by_ssh=True)
        return asyncio.run(serve_standard(replace(request, options=options, commands=FLEET_COMMANDS)))
    privileges.drop_root(user)  # nothing here needs it: the hosts are the user's, and so are the keys
    request = replace(
        _request(args, defaults, {}),
        backend="fleet",
        hosts=tuple(args.hosts),
        record=args.record,
        duration_us=args.duration,
        redact=args.redact,
    )
    registry.load_target("fleet", "latmon_backends.fleet.remote:labels")(request.hosts)
    if request.record is not None and not (args.tui or args.inline):
        from latmon.cli import headless

        log = _log(args, user)
        with _patient(request, args) as asked:
            return headless.record(asked, request.record, defaults.findings, log)

    def screen() -> ScreenOptions:
        options = _screen(args, defaults, "LIVE", None, request)
        if len(args.hosts) == 1 or args.device or options.selection.columns:  # then devices are asked for
            return options
        return replace(options, selection=replace(options.selection, group="host"))

    if args.once:
        from latmon.cli import headless

        with _patient(request, args) as asked:
            return headless.once(asked, screen())
    shown = replace(request, store={"patient": False})
    return _watch(shown, screen, None, inline=args.inline, instead="latmon fleet HOST... --once")


@contextmanager
def _patient(request: Request, args: argparse.Namespace) -> Iterator[Request]:
    """Yield the request of a fleet that waits for all hosts, at most --timeout, and names them on a terminal."""
    timeout_s = None if args.timeout is None else args.timeout / 1e6
    with streams.Progress("waiting for", quiet=args.quiet) as progress:
        yield replace(request, store={"patience_s": timeout_s, "waiting": progress.wait})


def _probes(args: argparse.Namespace) -> int:
    from latmon.doctor import command

    return command.show_probe(args.name) if args.action == "show" else command.list_probes()


def _rules(args: argparse.Namespace) -> int:
    _settle()
    from latmon.findings.rules import RULES

    settings = config.load(os.environ).findings
    if args.action == "show":
        return config.show_rule(args.name, RULES, settings)
    return config.list_rules(RULES, settings)


def _config(args: argparse.Namespace) -> int:
    if args.action == "schema":
        arguments.print_schema("config")
        return EXIT_DONE
    user = _user()
    if args.action == "show":
        return config.show_config(config.load(os.environ, user=user), os.environ, user)
    privileges.drop_root(user)
    own = paths.config(os.environ) / "config.yaml"
    files = (own,) if args.action == "edit" else (config.SYSTEM, own) if args.file is None else (args.file,)
    if args.action == "edit":
        config.edit_config(own, os.environ)
    for file in files:
        found_config, exists = (
            config.load_file(file),
            bool(paths.mode(file)),
        )  # load_file reports one that can't be examined
        if file == args.file and not exists:
            raise UsageError(f"{file}: No such file")
        _check_names(found_config)
        print(f"{file}: {'no mistake' if exists else 'there is none'}")
    return EXIT_DONE


def _check_names(defaults: config.Config) -> None:
    """Raise UsageError for a view, theme or ramp in a file that there isn't."""
    from latmon.support.theme import AUTO, load_ramp, load_theme

    none = argparse.Namespace(view=None, theme=None, ramp=None)
    _saved_view(none, defaults)
    with _named_by(none, defaults, "theme"):
        load_theme(defaults[options.THEME] or "dark")
    ramp = defaults[options.RAMP]
    if ramp not in (None, AUTO):
        with _named_by(none, defaults, "ramp"):
            load_ramp(ramp, dark=True)


_RUN: dict[str, Callable[[argparse.Namespace], int]] = {
    "live": _live,
    "replay": _replay,
    "demo": _demo,
    "report": _report,
    "diff": _diff,
    "check": _check,
    "export": _export,
    "import": _import,
    "doctor": _doctor,
    "exporter": _exporter,
    "trace": _trace,
    "watch": _watch_findings,
    "fleet": _fleet,
    "probes": _probes,
    "rules": _rules,
    "config": _config,
}


def _user() -> privileges.Invoker | None:
    """Return the user who called sudo, and use that user's home and settings from now on."""
    user = privileges.invoker(os.environ, os.geteuid())
    privileges.adopt_home(user, os.environ)
    privileges.need_readable(user, (Path(os.__file__), Path(arguments.__file__)))
    return user


def _readable(files: list[Path]) -> list[Path]:
    return [streams.readable(path) for path in files]


def _settle() -> None:
    """Drop root before a command that starts no probe opens a file, which may belong to another user."""
    privileges.drop_root(_user())


def _need_terminal(instead: str, *, inline: bool) -> None:
    """Raise UnavailableError where no screen, or no strip, can be drawn; it names the command that needs none."""
    term = os.environ.get("TERM", "")
    if inline and not sys.stdout.isatty():
        raise UnavailableError("--inline is drawn on stdout, and that is no terminal: use --once")
    if inline and term in _NO_CURSOR:
        raise UnavailableError(f"--inline can't be redrawn on this terminal (TERM={term}): use --once")
    if not inline and (why := _why_no_screen()):
        raise UnavailableError(f"{why}; without a terminal use: {instead}")


def _why_no_screen(*, is_stdin_read: bool = False) -> str:
    """Return why no screen can be drawn, as the beginning of a sentence; empty where one can.

    `is_stdin_read`: standard input is the recording, and keys are read from the terminal later.
    """
    term = os.environ.get("TERM", "")
    if not sys.stderr.isatty():
        return "stderr is no terminal, and the screen is drawn there"
    if not is_stdin_read and not sys.stdin.isatty():
        return "stdin is no terminal, and keys are read there"
    return f"the terminal can't be drawn on (TERM={term})" if term in _NO_CURSOR else ""
