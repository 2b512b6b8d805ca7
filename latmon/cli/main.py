"""The commands. Each loads only what it needs, so a headless capture never imports Textual.

Owns the exit codes and the messages of refused commands; arguments.py owns the options.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latmon.capture import registry, target
from latmon.capture.backend import Backend, Options
from latmon.capture.registry import Request
from latmon.cli import arguments, config
from latmon.support import paths, privileges, streams, trust
from latmon.support.errors import EXIT_DONE, LatmonError, UnavailableError, UsageError
from latmon.support.streams import STANDARD
from latmon.support.text import clean

if TYPE_CHECKING:
    from latmon.findings.rule import Settings
    from latmon.tui.tour import Tour

MAX_SENTENCE = 1000
_NO_CURSOR = ("", "dumb", "unknown")
"""Values of TERM for a terminal whose cursor can't be moved."""
_ONE_FILE = "- is standard input, which is one file: name it once"


def main(argv: list[str]) -> int:
    """Run the command line and return its exit code; every error is one sentence on stderr."""
    os.umask(0o077)
    try:
        try:
            args = arguments.parse(argv)
            _guard_root()
            return _RUN[args.command](args)
        finally:
            sys.stdout.flush()
    except LatmonError as error:
        return _refused(error)
    except BrokenPipeError:  # `latmon report F | head`: a closed pipe is no failure
        streams.drop()
        return EXIT_DONE
    except streams.StdoutError as error:
        streams.drop()
        return _refused(streams.explain(error))


def _guard_root() -> None:
    """Refuse to run as root if another user can change latmon; remove such directories from PATH."""
    if os.geteuid() == 0:
        trust.require_installation()
        os.environ["PATH"] = trust.search_path(os.environ)


def _refused(error: LatmonError) -> int:
    with contextlib.suppress(OSError):  # the terminal was closed
        print(f"latmon: {clean(str(error), MAX_SENTENCE)}", file=sys.stderr)
    return error.exit_code


def _live(args: argparse.Namespace) -> int:
    user = _user()
    defaults = config.load(os.environ, user=user)
    if args.record is not None:
        with privileges.acting_as(user):
            target.refuse(args.record)
    if defaults.ignored:
        print(f"latmon: {clean(defaults.ignored, MAX_SENTENCE)}", file=sys.stderr)
    _name_tools(defaults)
    request = _request(args, defaults)
    if args.once or (request.record is not None and not (args.tui or args.inline)):
        from latmon.cli import headless
        from latmon.exporters.registry import ExportOptions

        if request.record is None:
            options = ExportOptions(size=headless.screen_size(os.environ), view=_look(args, defaults)["view"])
            return headless.once(request, options, defaults.findings)
        return headless.record(request, request.record, defaults.findings)
    bell = args.bell or bool(defaults.bell)
    if args.inline:
        return _strip(request, _look(args, defaults), user, "live", defaults.findings, bell=bell)
    _need_terminal("latmon --record FILE --duration 60s")
    return _watch(request, _screen(args, defaults), user, "live", defaults, bell=bell)


def _name_tools(defaults: config.Config) -> None:
    """Set the variables of the tools that the config names.

    Raises UnavailableError with the key of a tool that can't be run, UntrustedError where latmon is root and others can
    change a tool or the file that names it.
    """
    trust.require_named(os.environ)
    for name in config.TOOLS:
        path, variable = getattr(defaults, name), f"LATMON_{name.upper()}"
        if not path or os.environ.get(variable):
            continue
        _check_named(name, Path(path), defaults.named_in.get(name))
        os.environ[variable] = path


def _check_named(name: str, path: Path, file: Path | None) -> None:
    where = f" in {file}" if file else " in the config"
    if os.geteuid() == 0 and file is not None:
        remedy = "remove the key" if file == config.SYSTEM else f"name the tool in {config.SYSTEM} instead"
        trust.require_path(file, f"{name}: {path}{where}", remedy)
    if path.is_absolute():
        trust.require(path, f"{name}: {path}{where}")
    if not (path.is_absolute() and os.access(path, os.X_OK) and path.is_file()):
        raise UnavailableError(f"{name}: {path}{where} must be the absolute path of a program that runs.")


def _request(args: argparse.Namespace, defaults: config.Config) -> Request:
    backend = args.backend or defaults.backend or registry.AUTO
    registry.check(backend)
    paths.data_dir("probes")  # refuse an installation without probes, which would silently use the kernel's counters
    options = Options(
        interval_us=args.interval or defaults.interval or Options().interval_us,
        devices=tuple(args.device),
        threshold_us=defaults.threshold if args.threshold is None else args.threshold,
        stages=args.stages or defaults.stages or Options().stages,
        invasive=tuple(args.invasive),
        budget_percent=Options().budget_percent if defaults.budget_percent is None else defaults.budget_percent,
    )
    return Request(
        backend=backend,
        options=options,
        record=args.record,
        duration_us=args.duration,
        max_size=args.max_size,
        keep_us=args.keep,
        redact=args.redact,
    )


def _watch(
    request: Request,
    look: Mapping[str, Any],
    user: privileges.Invoker | None,
    title: str,
    defaults: config.Config,
    *,
    tour: Tour | None = None,
    bell: bool = False,
) -> int:
    """Run the TUI on its own collector, which opens its probes while Textual loads; return the exit code."""
    from latmon.capture.session import Session

    session = Session(request)
    try:
        privileges.drop_root(user)
        preview = _preview(request)
        from latmon.tui.app import run

        code = run(
            session.feed,
            devices=request.options.devices,
            threshold_us=request.options.threshold_us,
            toggle_recording=session.toggle_recording,
            title=title,
            backend=request.backend,
            stages=request.options.stages,
            set_stages=session.set_stages,
            request_tracing=session.request_tracing,
            mark=session.mark,
            history_us=defaults.history,
            sweep=bool(defaults.sweep),
            redact=request.redact,
            findings=defaults.findings,
            tour=tour,
            **look,
            bell=bell,
            record=request.record,
            preview=preview,
        )
    finally:
        captured = session.close()
    return captured if code == EXIT_DONE and request.record is not None else code


def _strip(
    request: Request,
    look: dict[str, Any],
    user: privileges.Invoker | None,
    title: str,
    rules: Settings,
    *,
    bell: bool,
) -> int:
    """Draw the strip of `--inline` from a collector of its own; return the exit code."""
    _need_terminal_below()
    from latmon.capture.session import Session

    session = Session(request)
    try:
        privileges.drop_root(user)
        from latmon.tui.strip import run

        code = run(session.feed, devices=request.options.devices, title=title, findings=rules, bell=bell, **look)
    finally:
        captured = session.close()
    return captured if code is None or (code == EXIT_DONE and request.record is not None) else code


_STARTING = "the probes that time each I/O are starting"
_PREVIEW_US = 300_000
"""The first frame of the kernel's counters comes after this time."""


def _preview(request: Request) -> Backend | None:
    """Return a backend of the kernel's counters, to be shown while probes compile; None where none do.

    Its first interval begins now, so that it is over when the screen is there.
    """
    if not registry.compiling(request.backend) or request.backend == "demo":
        return None
    interval_us = min(request.options.interval_us, _PREVIEW_US)
    preview = registry.load("procfs")(Options(interval_us=interval_us, devices=request.options.devices), _STARTING)
    preview.begin()
    return preview  # type: ignore[no-any-return]  # classes of the registry are not known


def _replay(args: argparse.Namespace) -> int:
    _settle()
    if args.once:
        return _replay_once(args)
    if args.inline:
        return _replay_inline(args)
    if STANDARD in args.files:
        streams.keys_from_terminal()
    _need_terminal(f"latmon report {args.files[0]}")
    from latmon.capture import registry
    from latmon.tui.app import run

    source = registry.load("replay")(_readable(args.files), speed=1.0 if args.speed is None else args.speed)
    defaults = config.load(os.environ)
    return run(
        source,
        devices=tuple(args.device),
        threshold_us=None,
        toggle_recording=None,
        title="replay",
        sweep=bool(defaults.sweep),
        findings=defaults.findings,
        to_worst=args.speed is None,
        **_screen(args, defaults),
    )


def _replay_once(args: argparse.Namespace) -> int:
    from latmon.cli import headless
    from latmon.exporters.registry import ExportOptions, Source
    from latmon.exporters.screen import screen_at
    from latmon.recording.reader import open_recording

    (path,) = _readable(args.files)
    view = _look(args, config.load(os.environ))["view"]
    options = ExportOptions(size=headless.screen_size(os.environ), view=view)
    headless.show(screen_at(Source(open_recording(path), tuple(args.device)), options))
    return EXIT_DONE


def _replay_inline(args: argparse.Namespace) -> int:
    _need_terminal_below()
    if STANDARD in args.files:
        streams.keys_from_terminal()
    from latmon.tui.strip import run

    defaults = config.load(os.environ)
    source = registry.load("replay")(_readable(args.files), speed=1.0 if args.speed is None else args.speed)
    run(
        source,
        **_look(args, defaults),
        devices=tuple(args.device),
        title="replay",
        findings=defaults.findings,
    )
    return EXIT_DONE


def _demo(args: argparse.Namespace) -> int:
    from latmon.cli import headless

    if args.list:
        return headless.list_scenarios()
    headless.check_scenario(args.scenario)
    tour = _tour(args.scenario) if args.tour else None
    user = _user()
    if args.record is not None:
        with privileges.acting_as(user):
            return headless.record_demo(args.scenario, args.seed, args.record, args.duration)
    if args.svg or args.cast or args.once:
        with privileges.acting_as(user):
            return headless.export_demo(args, _look(args, config.load(os.environ, user=user))["view"])
    request = Request("demo", Options(devices=tuple(args.device)), scenario=args.scenario, seed=args.seed)
    defaults = config.load(os.environ, user=user)
    bell = args.bell or bool(defaults.bell)
    if args.inline:
        return _strip(request, _look(args, defaults), user, "demo", defaults.findings, bell=bell)
    _need_terminal("latmon demo --record FILE")
    return _watch(request, _screen(args, defaults), user, "demo", defaults, tour=tour, bell=bell)


def _look(args: argparse.Namespace, defaults: config.Config) -> dict[str, Any]:
    """Return the arguments of `tui.app.run` and `tui.strip.run` for the colours and what is shown first.

    An option overrides the saved view, the view the config's own keys.
    """
    name = args.view or defaults.view
    if name is not None and name not in defaults.views:
        known = ", ".join(defaults.views) or "none"
        raise UsageError(f"--view: {name!r} is no saved view of the config, which has {known} (docs/CONFIG.md)")
    saved = defaults.views[name] if name is not None else {}
    values = {}
    for key in config.VIEW:
        asked = getattr(args, key)
        values[key] = asked if asked is not None else saved.get(key, getattr(defaults, key))
    return {
        "theme": args.theme or defaults.theme,
        "ramp": args.ramp or defaults.ramp,
        "view": values,
    }


def _screen(args: argparse.Namespace, defaults: config.Config) -> dict[str, Any]:
    """Return the arguments of `tui.app.run` for its look, the saved views and the mouse."""
    mouse = defaults.mouse is not False and not args.no_mouse
    return {**_look(args, defaults), "views": defaults.views, "takes_mouse": mouse}


def _tour(scenario: str) -> Tour:
    from latmon.tui.tour import load_tour

    return load_tour(scenario)


def _report(args: argparse.Namespace) -> int:
    _settle()
    from latmon.report.command import report_command

    rules = config.load(os.environ).findings
    return report_command(_readable(args.files), as_json=args.json, html=args.html, settings=rules)


def _check(args: argparse.Namespace) -> int:
    _settle()
    from latmon.cli.check import check_command

    return check_command(streams.readable(args.file), args.out)


def _export(args: argparse.Namespace) -> int:
    _settle()
    from latmon.exporters.registry import export_command

    args.file = streams.readable(args.file)
    return export_command(args)


def _diff(args: argparse.Namespace) -> int:
    _settle()
    from latmon.diff.command import diff_command

    if [args.first, *args.others].count(str(STANDARD)) > 1:
        raise UsageError(_ONE_FILE)
    return diff_command([args.first, *args.others], as_json=args.json)


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
        threshold_us=args.threshold or ImportOptions().threshold_us,
        interval_us=args.interval,
        start=args.start,
        host=args.host,
        first_report=args.first_report,
    )
    return import_command(streams.readable(args.file), args.out, options, args.from_format or "")


def _doctor(args: argparse.Namespace) -> int:
    from latmon.doctor.command import doctor_command

    paths.data_dir("probes")
    defaults = config.load(os.environ, user=_user())
    _name_tools(defaults)
    backend = args.backend or defaults.backend or ""
    if not args.self_test:
        return doctor_command(args.json, backend, ignored=defaults.ignored)
    from latmon.doctor.command import print_progress
    from latmon.doctor.selftest.run import check_backend, self_test

    check_backend(backend or registry.AUTO)
    test = partial(self_test, backend or registry.AUTO, print_progress)
    return doctor_command(args.json, backend, test, ignored=defaults.ignored)


def _probes(args: argparse.Namespace) -> int:
    from latmon.cli import listings

    return listings.show_probe(args.name) if args.action == "show" else listings.list_probes()


def _rules(args: argparse.Namespace) -> int:
    _settle()
    from latmon.cli import listings

    settings = config.load(os.environ).findings
    return listings.show_rule(args.name, settings) if args.action == "show" else listings.list_rules(settings)


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
    "probes": _probes,
    "rules": _rules,
}


def _user() -> privileges.Invoker | None:
    """Return the user who called sudo, and use that user's home and settings from now on."""
    user = privileges.invoker(os.environ, os.geteuid())
    privileges.adopt_home(user, os.environ)
    privileges.need_readable(user, (Path(os.__file__), Path(arguments.__file__)))
    return user


def _readable(files: list[Path]) -> list[Path]:
    if files.count(STANDARD) > 1:
        raise UsageError(_ONE_FILE)
    return [streams.readable(one) for one in files]


def _settle() -> None:
    """Drop root before a command that starts no probe opens a file, which may belong to another user."""
    privileges.drop_root(_user())


def _need_terminal_below() -> None:
    """Raise UnavailableError where no strip can be redrawn on standard output."""
    term = os.environ.get("TERM", "")
    if not sys.stdout.isatty():
        raise UnavailableError("--inline is drawn on stdout, and that is no terminal: use --once")
    if term in _NO_CURSOR:
        raise UnavailableError(f"--inline can't be redrawn on this terminal (TERM={term}): use --once")


def _need_terminal(instead: str) -> None:
    """Raise UnavailableError where no screen can be drawn; it names the command that needs none."""
    term = os.environ.get("TERM", "")
    if not sys.stderr.isatty():
        raise UnavailableError(f"stderr is no terminal, and the screen is drawn there; without one use: {instead}")
    if not sys.stdin.isatty():
        raise UnavailableError(f"stdin is no terminal, and keys are read there; without one use: {instead}")
    if term in _NO_CURSOR:
        raise UnavailableError(f"the terminal can't be drawn on (TERM={term}); without one use: {instead}")
