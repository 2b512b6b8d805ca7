"""Command-line parsing: argv to one namespace per command. Each error is a UsageError that names the option.

The first word selects the command; without one it is the live TUI or a headless capture.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from latmon import __version__
from latmon.cli import options, values
from latmon.cli.options import Setting
from latmon.model.stages import OPS, STAGES
from latmon.support.errors import UsageError
from latmon.support.streams import STANDARD
from latmon.support.text import clean

MAX_MISTAKE = 300
MAX_VALUE_MISTAKE = 200
DEFAULT_DEMO, DEFAULT_TOUR = "host", "emulex"
"""Scenario of `demo`, and of `demo --tour`: the former has no tour."""
PROMETHEUS = "prometheus"
"""The backend of many hosts, which has options of its own."""
_NEEDS = {
    "live": dict.fromkeys(("max_size", "keep", "redact", "tui"), ("record", "--record FILE")),
    "watch": dict.fromkeys(("max_size", "keep"), ("record", "--record PATH")),
    "fleet": dict.fromkeys(("redact", "tui"), ("record", "--record DIR")),
    "report": {"ramp": ("html", "--html OUT")},
    "import": {"key": ("events", "--events A,B")},
    "trace": {"slow": ("stacks", "--stacks OUT"), "user_stacks": ("stacks", "--stacks OUT")},
    "check": {"repair": ("out", "-o OUT"), "out": ("repair", "--repair")},
}
"""Command -> option -> the option without which it has no effect, and its words."""
_HEADING = "commands (latmon COMMAND --help lists the options of each):"
_PARTS = "a recording; several are the parts of one capture; - is stdin"
_MAIN = "Show where I/O latency hides: a live terminal UI, or a recording without one."


def print_schema(name: str) -> None:
    """Print a JSON Schema: config, diff or report."""
    from latmon.support.paths import data_dir  # noqa: PLC0415  only who asks for one

    print((data_dir("schemas") / f"{name}.json").read_text("utf-8"), end="")


class _Schema(argparse.Action):
    """Option that prints the JSON Schema that `const` names, and ends."""

    def __init__(self, option_strings: Sequence[str], dest: str, const: str) -> None:
        text = "print the JSON Schema of --json, and end"
        super().__init__(option_strings, dest, nargs=0, const=const, default=argparse.SUPPRESS, help=text)

    def __call__(self, *_: Any) -> NoReturn:
        print_schema(self.const)
        raise SystemExit(0)


class _Layout(argparse.HelpFormatter):
    """Layout of a help text whose indented lines and headings stay lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = super()._fill_text
        lines = text.splitlines()
        return "\n".join(
            one if one[:1] in ("", " ") or one[-1:] == ":" else filled(one, width, indent) for one in lines
        )


class _Parser(argparse.ArgumentParser):
    """Parser whose errors are one sentence of a UsageError."""

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Parse a value. argparse itself would replace the sentence of a ValueError."""
        if not callable(action.type) or action.type is int:
            return super()._get_value(action, arg_string)
        try:
            return action.type(arg_string)
        except ValueError as error:
            raise argparse.ArgumentError(action, clean(str(error), MAX_VALUE_MISTAKE)) from None

    def error(self, message: str) -> NoReturn:
        text = clean(message.removeprefix("argument "), MAX_MISTAKE)
        unknown = message.removeprefix(_UNKNOWN).partition(" ")[0].partition("=")[0]
        if message.startswith(_UNKNOWN) and unknown.startswith("--"):
            shown = (action for action in self._actions if action.help != argparse.SUPPRESS)
            offered = {one.removeprefix("--"): one for action in shown for one in action.option_strings}
            text += _nearest(unknown.removeprefix("--"), offered) or _of_the_config(unknown)
        elif unknown in _COMMANDS and self.prog == "latmon":
            text = f"a command comes before its options: latmon {unknown} --OPTION..."
        raise UsageError(f"{text} (`{self.prog} --help` lists the options)")


_UNKNOWN = "unrecognized arguments: "


def _nearest(word: str, known: Mapping[str, object]) -> str:
    """Return a question that names the value of what is written most alike; empty where nothing is."""
    from difflib import get_close_matches  # noqa: PLC0415  only a mistake needs it

    found = get_close_matches(word[:80], [*known], 1)
    return f"; did you mean {known[found[0]]}?" if found else ""


def _of_the_config(option: str) -> str:
    """Return a sentence where an option that doesn't exist is a key of the config file; empty for any other."""
    key = option.removeprefix("--").replace("-", "_")
    if key not in options.SETTINGS:
        return ""
    if option in _live()._option_string_actions:  # noqa: SLF001  argparse has no other list of them
        return f"; {option} is an option of other commands, such as `latmon` alone"
    return f"; {key} is a key of the config file, not an option"


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line; `command` is `live` without a command. --help and --version print and exit."""
    if argv[:1] == ["help"]:
        if argv[1:] in ([], ["help"]):
            _print_help()
        argv = [*argv[1:], "--help"]
    name = argv[0] if argv and not argv[0].startswith("-") else ""
    if name and name not in _COMMANDS:
        near = _nearest(name, {one: one for one in _COMMANDS})
        raise UsageError(f"there is no command {clean(name)!r}{near or f'; the commands are {_listed_commands()}'}")
    parser = _of_command(name) if name else _live()
    args = parser.parse_args(argv[1:] if name else argv, argparse.Namespace(command=name or "live"))
    _check_needs(args)
    _check_log(args)
    if args.command in _CHECKS:
        _CHECKS[args.command](args)
    return args


def _listed_commands() -> str:
    return ", ".join((*_COMMANDS, "help"))


def _of_command(name: str) -> _Parser:
    purpose, add = _COMMANDS[name]
    parser = _Parser(prog=f"latmon {name}", description=_sentence(purpose), allow_abbrev=False, formatter_class=_Layout)
    add(parser)
    parser.epilog = "\n".join(filter(None, (parser.epilog, *_examples(name))))
    return parser


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command by its name; that of the live screen has an empty one."""
    return {"": _live(), **{name: _of_command(name) for name in _COMMANDS}}


def purpose(name: str) -> str:
    """Return what a command does, in a line; an empty name is the live screen's."""
    return _COMMANDS[name][0] if name else f"{_MAIN[0].lower()}{_MAIN[1:].removesuffix('.')}"


def _examples(command: str) -> list[str]:
    return ["\nexamples:", *(f"  {one}" for one in EXAMPLES[command])]


def _print_help() -> NoReturn:
    """Print the help of latmon with exit codes and environment, and end."""
    _live().print_help()
    for title, rows in (("exit codes", EXIT_CODES), ("environment", ENVIRONMENT)):
        width = max(map(len, rows))
        print(f"\n{title}:", *(f"  {name:<{width}}  {text}" for name, text in rows.items()), sep="\n")
    raise SystemExit(0)


EXIT_CODES = {
    "0": "done",
    "1": "failed while running",
    "2": "wrong option, value, key or theme",
    "3": "no usable backend, privilege, target or output; a file is unsafe for root",
    "4": "the capture has lost events, a full map or gaps; the import is incomplete",
    "5": "the recording can't be read; the text has nothing to import",
    "128+N": "ended by signal N; 0: a capture that has begun, and the screen by Ctrl-C",
}
ENVIRONMENT = {
    "LATMON_BPFTRACE": "absolute path of the bpftrace to use",
    "LATMON_DTRACE": "absolute path of the dtrace to use",
    "LATMON_KSTAT": "absolute path of the kstat to use (Solaris, illumos)",
    "LATMON_PROMETHEUS_PASSWORD": "password of --backend prometheus",
    "XDG_CONFIG_HOME": "has latmon/config.yaml and themes (default ~/.config)",
    "XDG_STATE_HOME": "has latmon/crash.log (default ~/.local/state)",
    "XDG_CACHE_HOME": "has latmon's cache (default ~/.cache)",
    "TMPDIR": "has the copy of standard input, where a FILE is -",
    "VISUAL, EDITOR": "the editor of `latmon config edit`",
    "NO_COLOR": "anything: no colours",
    "COLORTERM, TERM": "truecolor, or the colours of the terminal's name",
    "ESCDELAY": "ms after which an Esc is a key of its own (default 50)",
    "COLUMNS, LINES": "size of --once",
}
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "live": (
        "latmon",
        "latmon --stages all --threshold 20ms",
        "latmon --record host.latmon.jsonl.gz --duration 60s",
    ),
    "replay": ("latmon replay host.latmon.jsonl.gz", "latmon replay host.latmon.jsonl.gz --speed 10"),
    "report": (
        "latmon report host.latmon.jsonl.gz",
        "latmon report host.latmon.jsonl.gz --html case.html --slo 20ms",
    ),
    "diff": (
        "latmon diff before.latmon.jsonl.gz after.latmon.jsonl.gz",
        "latmon diff day.latmon.jsonl.gz@..upgrade day.latmon.jsonl.gz@upgrade",
        "latmon diff --a a1.gz a2.gz --b b1.gz b2.gz --html case.html",
        "latmon diff --sweep max_vec vec-2.gz vec-4.gz vec-8.gz",
    ),
    "check": (
        "latmon check host.latmon.jsonl.gz",
        "latmon check host.latmon.jsonl.gz host.part*.latmon.jsonl.gz",
        "latmon check host.latmon.jsonl.gz --repair -o clean.latmon.jsonl.gz",
    ),
    "export": (
        "latmon export host.latmon.jsonl.gz --to csv -o host.csv",
        "latmon export host.latmon.jsonl.gz --to svg --screen stages -o s.svg",
    ),
    "import": (
        "latmon import ticket.txt -o ticket.latmon.jsonl.gz",
        "latmon import bpftrace.txt --unit us -o b.latmon.jsonl.gz",
        "latmon import iostat.txt --from iostat --interval 10s -o i.latmon.jsonl.gz",
    ),
    "demo": ("latmon demo", "latmon demo --list", "latmon demo emulex --tour"),
    "doctor": ("latmon doctor", "sudo latmon doctor --self-test", "sudo latmon doctor --overhead"),
    "fleet": ("latmon fleet db1 db2 root@db3", "latmon fleet db1 db2 --record incident --duration 10min"),
    "exporter": ("sudo latmon exporter", "sudo latmon exporter --listen unix:/run/latmon.sock --stages auto"),
    "trace": (
        "sudo latmon trace --device sda",
        "sudo latmon trace --device sda --stacks slow.svg --slow 20ms",
    ),
    "watch": ("sudo latmon watch", "sudo latmon watch --record /var/lib/latmon --max-size 512M --keep 7d"),
    "probes": ("latmon probes", "latmon probes show stages"),
    "rules": ("latmon rules", "latmon rules show peer-outlier"),
    "config": ("latmon config", "latmon config check /etc/xdg/latmon/config.yaml", "latmon config edit"),
}
"""Command -> command lines for its help; the tests parse each of them."""


def _sentence(purpose: str) -> str:
    return f"{purpose[0].upper()}{purpose[1:]}."


def _live() -> _Parser:
    lines = "\n".join(f"  {name:<8} {purpose}" for name, (purpose, _) in _COMMANDS.items())
    parser = _Parser(
        prog="latmon",
        description=_MAIN,
        epilog="\n".join((f"{_HEADING}\n{lines}", *_examples("live"), "\nexit codes and environment: latmon help")),
        formatter_class=_Layout,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"latmon {__version__}")
    _measuring(parser)
    _watched(parser, "after the first window, or after --duration")
    _recording(parser.add_argument_group("recording"))
    _prometheus(parser.add_argument_group("--backend prometheus: many hosts"))
    return parser


def _prometheus(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--url", metavar="URL", help="http://HOST:9090 or https://USER@HOST of a Prometheus")
    parser.add_argument("--select", metavar="GLOB", type=values.glob, help="only hosts (label instance) that match")
    parser.add_argument(
        "--password-file",
        metavar="FILE",
        type=values.file,
        help="has the password of USER; without it LATMON_PROMETHEUS_PASSWORD",
    )


def _measuring(parser: argparse.ArgumentParser, *, here: bool = True, stages: str | None = None) -> None:
    """Add the options of a capture. `here`: it measures this host, and the options that only that has are listed.

    `stages`: when they are traced without `--stages`; None: on demand.
    """
    _add(parser, options.BACKEND, is_listed=here)
    _add(parser, options.INTERVAL)
    _add(parser, options.THRESHOLD)
    _add(parser, options.STAGES, text=f"{options.STAGES.help}; default {stages or 'auto'}", default=stages)
    _add(parser, options.MAX_OVERHEAD, is_listed=here)
    invasive = (
        "with --backend dtrace: run this probe, which slows the host down (none of latmon's own does); may be repeated"
    )
    parser.add_argument(
        "--invasive", metavar="PROBE", action="append", default=[], help=invasive if here else argparse.SUPPRESS
    )


def _recording(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--record", metavar="FILE", type=values.new_file, help="record to FILE without a screen; - is stdout"
    )
    parser.add_argument(
        "--duration",
        type=values.positive_duration,
        help="end after this time, such as 60s or 5min; also with --once and --inline",
    )
    _parts(parser)
    parser.add_argument("--tui", action="store_true", help="show the screen while recording")
    _logging(parser)


def _logging(parser: argparse._ActionsContainer) -> None:
    """Add the options of what a capture without a screen logs."""
    much = parser.add_mutually_exclusive_group()
    much.add_argument("-q", "--quiet", action="store_true", help="log warnings and errors alone, without a screen")
    much.add_argument("-v", "--verbose", action="store_true", help="log what is not measured, and progress, too")
    parser.add_argument(
        "--log-file", metavar="LOG", type=values.log_file, help="append what is logged to LOG, with times"
    )


def _parts(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--max-size",
        type=values.Size(values.MIN_SIZE, "2M, too little for a recording in parts"),
        metavar="SIZE",
        help="keep all parts together below SIZE, such as 512M",
    )
    parser.add_argument("--keep", type=values.age, metavar="TIME", help="remove parts older than TIME, such as 7d")
    _redact(parser)


def _check_needs(args: argparse.Namespace) -> None:
    """Raise UsageError for an option without the one that it belongs to."""
    for name, (other, words) in _NEEDS.get(args.command, {}).items():
        if getattr(args, name) and not getattr(args, other):
            raise UsageError(f"{'-o' if name == 'out' else _option(name)} needs {words}")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _check_log(args: argparse.Namespace) -> None:
    """Raise UsageError where the log would be written into the recording."""
    log, record = getattr(args, "log_file", None), getattr(args, "record", None)
    if (
        log is not None
        and record is not None
        and log.parent.resolve() / log.name == record.parent.resolve() / record.name
    ):
        raise UsageError("--log-file and --record name the same file")


def _check_stream(args: argparse.Namespace) -> None:
    """Raise UsageError for options that a stream on stdout can't have."""
    for name in ("max_size", "keep", "tui", "inline"):
        if args.record == STANDARD and getattr(args, name):
            raise UsageError(f"{_option(name)} needs a file: --record - is one stream without parts")


def _check_alone(args: argparse.Namespace, names: tuple[str, ...]) -> None:
    """Raise UsageError where more than one of these options is given."""
    given = [f"--{name}" for name in names if getattr(args, name)]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} are different outputs: choose one")


_DRAWN = ("theme", "ramp", "no_mouse")
_SHOWN = ("view", *options.OF_VIEWS, *_DRAWN)
"""Options of what is on a screen; plain text has none of _DRAWN."""


def _check_shown(args: argparse.Namespace, *, shows: bool, instead: str = "") -> None:
    """Raise UsageError for options of a screen where none is shown, and for those that a strip has no place for.

    `instead`: what the command does without a screen, or shows one with.
    """
    given = [name for name in _SHOWN if getattr(args, name) not in (None, False)]
    if given and not shows:
        raise UsageError(f"{_option(given[0])} needs a screen: {instead}")
    drawn = [name for name in _DRAWN if getattr(args, name)]
    if drawn and args.once:
        raise UsageError(f"--once prints plain text: it goes without {_option(drawn[0])}")
    if args.inline and args.screen is not None:
        raise UsageError("--inline shows the first devices and a finding: it goes without --screen")


def _check_live(args: argparse.Namespace) -> None:
    """Raise UsageError for options of a stream or a screen that the live command doesn't write or show."""
    _check_stream(args)
    _check_prometheus(args)
    _check_alone(args, ("once", "inline", "tui"))
    shows = args.record is None or args.tui or args.inline
    _check_shown(args, shows=shows, instead="--record FILE records everything, and has one with --tui or --inline")
    given = [name for name in ("quiet", "verbose", "log_file") if getattr(args, name)]
    if given and shows:
        raise UsageError(f"{_option(given[0])} is for a log: it needs --record FILE without a screen")
    if args.once and args.record is not None:
        raise UsageError("--once records nothing: with --record FILE take --inline or --tui")
    if args.duration and args.record is None and not (args.once or args.inline):
        raise UsageError("--duration needs --record FILE, --once or --inline")
    if args.bell and (args.once or (args.record is not None and not (args.tui or args.inline))):
        raise UsageError(
            "--bell needs a screen: it goes without --once, and with --record FILE it needs --tui or --inline"
        )


_OF_A_HOST = {
    **dict.fromkeys(("stages", "invasive", "threshold", "max_overhead"), "a host's own data"),
    "tui": "a capture of this host: take --record FILE without a screen",
    "bell": "rules that are evaluated here, and the exporters evaluate them",
    "redact": "devices: the names of a Prometheus's instances are those of hosts",
}
"""Options that a Prometheus doesn't serve, and what they need."""


def _check_prometheus(args: argparse.Namespace) -> None:
    """Raise UsageError for options of a Prometheus without one, and for those that it doesn't serve."""
    if args.backend != PROMETHEUS:
        if (
            given := next((name for name in ("url", "select", "password_file") if getattr(args, name, None)), "")
        ) != "":
            raise UsageError(f"{_option(given)} needs --backend {PROMETHEUS}")
        return
    if not args.url:
        raise UsageError(f"--backend {PROMETHEUS} needs --url URL")
    for name, needs in _OF_A_HOST.items():
        if getattr(args, name):
            raise UsageError(f"--backend {PROMETHEUS} goes without {_option(name)}, which needs {needs}")
    for name in ("record", "duration"):
        if args.inline and getattr(args, name):
            raise UsageError(f"--backend {PROMETHEUS} --inline goes without {_option(name)}: choose one")


_OF_A_FEED = frozenset(("command", "feed", "backend", "interval", "threshold", "stages", "invasive", "device"))


def _check_fleet(args: argparse.Namespace) -> None:
    """Raise UsageError for a fleet without hosts, for options of a screen without one, and for those of one host."""
    if args.feed:
        given = [name for name, value in vars(args).items() if value and name not in _OF_A_FEED]
        if given:
            what = "HOST" if given[0] == "hosts" else _option(given[0])
            raise UsageError(f"--feed sends frames of this host to the latmon fleet that runs it: it takes no {what}")
        return
    if not args.hosts:
        raise UsageError("name the hosts: latmon fleet HOST... (`latmon fleet --help` lists the options)")
    metavars = {"backend": "NAME", "invasive": "PROBE", "max_overhead": "PERCENT"}
    if name := next((one for one in metavars if getattr(args, one)), ""):
        option = f"{_option(name)} {metavars[name]}"
        raise UsageError(
            f"{_option(name)} is for one host: run `latmon {option}` on the host; a fleet takes what each host has"
        )
    if args.record == STANDARD:
        raise UsageError("--record of a fleet needs a directory: each host has a file of its own")
    if args.timeout and not args.once and (args.record is None or args.tui or args.inline):
        raise UsageError("--timeout needs --once, or --record DIR without a screen: a screen shows hosts as they come")
    _check_live(args)


def _check_replay(args: argparse.Namespace) -> None:
    """Raise UsageError for options of a replay that exclude each other."""
    _check_alone(args, ("once", "inline"))
    _check_shown(args, shows=True)
    if args.once and len(args.files) > 1:
        raise UsageError("--once prints the end of one recording: name one FILE")
    if args.once and args.speed is not None:
        raise UsageError("--speed plays a recording, and --once prints its end: choose one")


def _check_list(args: argparse.Namespace) -> None:
    """Raise UsageError for a name that a list doesn't use."""
    if args.action == "list" and args.name is not None:
        command = f"latmon {args.command}"
        raise UsageError(f"`{command} list` takes no name: `{command} show {clean(args.name, 80)}`")


def _check_config(args: argparse.Namespace) -> None:
    """Raise UsageError for a file that only `config check` reads."""
    if args.action != "check" and args.file is not None:
        raise UsageError(
            f"`latmon config {args.action}` takes no file: `latmon config check {clean(str(args.file), 80)}`"
        )


def _check_repair(args: argparse.Namespace) -> None:
    """Raise UsageError for a copy of several files."""
    if args.repair and len(args.files) > 1:
        raise UsageError("--repair copies one recording: name one FILE, and repair the parts of a capture one by one")


def _check_demo(args: argparse.Namespace) -> None:
    """Raise UsageError for outputs of a demo that exclude each other, and for options of an output that isn't made.

    Set the default scenario.
    """
    other = next((name for name in ("record", "list", "svg", "cast", "once", "inline") if getattr(args, name)), "")
    if args.tour and other:
        raise UsageError(f"--tour is on the screen and goes without --{other}: latmon demo NAME --tour")
    if args.list and args.scenario is not None:
        raise UsageError("--list lists all scenarios: it takes no SCENARIO")
    _check_alone(args, ("list", "record", "svg", "once", "inline"))
    _check_alone(args, ("list", "record", "cast", "once", "inline"))
    if args.svg == args.cast == STANDARD:
        raise UsageError("--svg - and --cast -: standard output is one file")
    exports = bool(args.svg or args.cast or args.once)
    if args.duration and not (exports or args.record):
        raise UsageError("--duration needs --record FILE, --svg FILE, --cast FILE or --once")
    for name in ("size", "at"):
        if getattr(args, name) and not exports:
            raise UsageError(f"--{name} needs --svg FILE, --cast FILE or --once")
    if args.speed is not None and not args.cast:
        raise UsageError("--speed needs --cast FILE")
    if args.bell and (exports or args.record):
        raise UsageError("--bell needs a screen")
    if args.device and args.record:
        raise UsageError("--device selects what is shown: --record writes all devices of the demo")
    instead = "--list lists all scenarios" if args.list else "--record writes all of the demo"
    _check_shown(args, shows=not (args.record or args.list), instead=instead)
    default = DEFAULT_TOUR if args.tour else DEFAULT_DEMO
    args.scenario = default if args.scenario is None else args.scenario


def _check_diff(args: argparse.Namespace) -> None:
    """Raise UsageError unless there are two captures at least, as FILEs or as --a and --b."""
    if bool(args.a) != bool(args.b):
        raise UsageError("--a and --b belong together: each names the runs of one side")
    if args.a and (args.files or args.sweep):
        raise UsageError(f"--a and --b name all captures: leave out {'the other files' if args.files else '--sweep'}")
    if not args.a and len(args.files) < 2:  # noqa: PLR2004  A and B
        raise UsageError("a comparison needs two captures at least: latmon diff A B, or --a FILE... --b FILE...")


def _check_doctor(args: argparse.Namespace) -> None:
    """Raise UsageError for a backend that nothing is measured with."""
    if args.backend and not (args.self_test or args.overhead):
        raise UsageError("--backend needs --self-test or --overhead")


def _check_trace(args: argparse.Namespace) -> None:
    """Raise UsageError for two outputs on standard output, and for private names in one."""
    if args.redact and args.user_stacks:
        raise UsageError("--user-stacks names processes and their functions, --redact hides names: leave one out")
    if args.out == args.stacks == STANDARD:
        raise UsageError("--output - and --stacks -: standard output is one file")


def _check_watch(args: argparse.Namespace) -> None:
    """Raise UsageError for a recording on standard output: its parts are files."""
    if args.record == STANDARD:
        raise UsageError("--record of watch needs a file or a directory: a service's recording has parts")


_CHECKS: dict[str, Callable[[argparse.Namespace], None]] = {
    "live": _check_live,
    "watch": _check_watch,
    "demo": _check_demo,
    "fleet": _check_fleet,
    "replay": _check_replay,
    "check": _check_repair,
    "diff": _check_diff,
    "doctor": _check_doctor,
    "trace": _check_trace,
    "probes": _check_list,
    "rules": _check_list,
    "config": _check_config,
}


def _replay(parser: argparse.ArgumentParser) -> None:
    _recordings(parser, f"{_PARTS}, and keys come from the terminal")
    parser.add_argument(
        "--speed",
        type=values.speed,
        help="play from the begin, this many times as fast; 0 shows the end at once; default: open on the worst minute",
    )
    _watched(parser, "as of the end of the recording", rings=False)
    _max_memory(parser, "1G")


def _report(parser: argparse.ArgumentParser) -> None:
    _recordings(parser, _PARTS)
    parser.add_argument(
        "--slo", metavar="TIME", type=values.objective, help="count I/Os of this time or longer by hour and day"
    )
    _forms(parser, "report", has_text=True)
    _add(parser, options.RAMP, text=f"with --html: {options.RAMP.help}")
    _max_memory(parser)


def _diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="*",
        type=values.span,
        help="recordings A and B (- is stdin), or more, which are compared as a sweep; FILE@NOTE is the part from the "
        "mark NOTE to the next mark, FILE@..NOTE the part before that mark, FILE@60s..NOTE the 60 s before it",
    )
    for side, other in (("a", "B"), ("b", "A")):
        parser.add_argument(
            f"--{side}",
            metavar="FILE",
            nargs="+",
            type=values.span,
            help=f"runs of {side.upper()}'s condition, which are joined and compared with those of {other}",
        )
    parser.add_argument(
        "--sweep",
        metavar="SETTING",
        type=values.setting,
        help="a row per value of this setting, such as max_vec or 'device sda queue_depth'; captures with the same "
        "value are joined",
    )
    _forms(parser, "diff")
    _max_memory(parser)


def _import(parser: argparse.ArgumentParser) -> None:
    from latmon.importers.registry import FORMATS, NAMES  # noqa: PLC0415  no other command needs them

    parser.epilog = "formats:\n" + "\n".join(f"  {one.name:<15} {one.purpose}" for one in FORMATS)
    parser.add_argument(
        "file",
        metavar="FILE",
        type=values.file,
        help="output of other tools, or a ticket or mail that has it; - is stdin",
    )
    parser.add_argument(
        "-o", dest="out", metavar="OUT", type=values.new_file, required=True, help="the new recording; - is stdout"
    )
    parser.add_argument(
        "--from",
        dest="from_format",
        metavar="FORMAT",
        choices=NAMES,
        help="read only this format (default: each format that is found)",
    )
    parser.add_argument("--unit", choices=("us", "ms", "ns", "s"), help="unit of tables whose text names none")
    parser.add_argument("--device", metavar="NAME", type=values.glob, help="device that all of the text describes")
    parser.add_argument("--op", choices=OPS, help="operation of tables whose text names none")
    parser.add_argument("--stage", choices=STAGES, help="stage of tables whose text names none")
    parser.add_argument(
        "--start", type=values.moment, metavar="TIME", help="when the first window begins, for a text without times"
    )
    parser.add_argument(
        "--interval", type=values.positive_duration, help="length of a window that has no time (default 1s)"
    )
    parser.add_argument(
        "--events", metavar="A,B", type=values.events, help="in a trace, measure the time from event A to event B"
    )
    parser.add_argument(
        "--key", metavar="FIELD", default="", help="with --events: the field in which A and its B agree"
    )
    text = "list I/Os that take at least this long (default 100ms)"
    _add(parser, options.THRESHOLD, text=text, default=100_000)
    parser.add_argument("--host", metavar="NAME", default="", help="host that the text is from")
    parser.add_argument(
        "--hz", type=values.hz, help="ticks per second of its kernel (CONFIG_HZ), for the rule tick-quantum"
    )
    parser.add_argument(
        "--first-report",
        choices=("keep", "drop"),
        default="",
        help="keep or drop iostat's first report (default: decided by its numbers); keep it if iostat ran with -y",
    )


def _demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "scenario", metavar="SCENARIO", nargs="?", help=f"one that --list names (default {DEFAULT_DEMO})"
    )
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    parser.add_argument(
        "--tour",
        action="store_true",
        help=f"explain a demo (default {DEFAULT_TOUR}) in five steps of 15 s; the key . goes to the next, Space pauses",
    )
    parser.add_argument(
        "--seed", type=values.seed, default=1, help="a number that selects another host with the same problem"
    )
    parser.add_argument(
        "--record", metavar="FILE", type=values.new_file, help="write a recording without a screen; - is stdout"
    )
    parser.add_argument(
        "--svg", metavar="FILE", type=values.new_file, help="write a picture of the end, without a screen"
    )
    parser.add_argument(
        "--cast", metavar="FILE", type=values.new_file, help="write an animation for asciinema; also with --svg"
    )
    parser.add_argument(
        "--duration",
        type=values.positive_duration,
        help="with --record, --svg, --cast and --once: end after this time (default: all, for host 3min)",
    )
    _pictures(parser.add_argument_group("--svg, --cast and --once"))
    _watched(parser, "as of the end of the demo")


def _check(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit code 0: the recording is clean or still being written; 5: it is damaged. If latmon was killed, its "
        "recording only lacks the closing line: every command reads it, and --repair writes a copy with that line. "
        "Of several files each is checked, and whether a part of their capture is missing between them (exit code 5). "
        "With --repair the exit code is 0 if the copy was written and is clean."
    )
    _recordings(parser, "a recording, or the parts of a capture; - is stdin")
    parser.add_argument("--repair", action="store_true", help="write what can be read to OUT; FILE is not changed")
    parser.add_argument(
        "-o", dest="out", metavar="OUT", type=values.new_file, help="with --repair: a new file, or - for stdout"
    )
    _max_memory(parser)


def _doctor(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit code 0: latmon can measure on this host; 3: it can't. With --self-test 0: every panel that measures on "
        "this host shows the delay that was made; 1: at least one panel doesn't; 3: the test can't run on this host, "
        "and the reason is printed. With --overhead 0: the cost is printed; 3: it can't be measured on this host."
    )
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    tests = parser.add_mutually_exclusive_group()
    tests.add_argument(
        "--overhead",
        action="store_true",
        help="measure what the probes cost, for 5 s of the I/O that the host has, then for 5 s with stages; needs root",
    )
    tests.add_argument(
        "--self-test",
        action="store_true",
        help="make a known delay on a temporary loop device and check that the panels show it; needs root; takes about "
        "8 s more than the start of the probes, which takes up to a minute with an old bpftrace, more on a loaded host",
    )
    _add(parser, options.BACKEND, text="with --self-test and --overhead: measure with this backend")


def _exporter(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Serves /metrics until SIGTERM: native histograms where Prometheus asks for protobuf, else 8 buckets as text. "
        "Files: contrib/ has a systemd unit and socket, "
        "Prometheus' rules and a dashboard for Grafana."
    )
    parser.add_argument(
        "--listen",
        metavar="ADDRESS",
        type=values.address,
        default=values.address("127.0.0.1:9750"),
        help="HOST:PORT, unix:/PATH, or systemd for the socket that it passes (default 127.0.0.1:9750)",
    )
    parser.add_argument(
        "--web-config",
        metavar="FILE",
        type=values.file,
        help="TLS and passwords, in the format that Prometheus' exporters share",
    )
    parser.add_argument(
        "--user",
        metavar="NAME",
        help="account of the process that answers requests, where latmon is root (default nobody); probes keep root",
    )
    _measuring(parser, stages="basic")
    _devices(parser)
    _logging(parser)


def _watch(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Runs until SIGTERM. The config's section on_finding sets what is done when a finding begins (docs/WATCH.md). "
        "contrib/ has a systemd unit."
    )
    _measuring(parser)
    _devices(parser)
    recording = parser.add_argument_group("recording")
    recording.add_argument(
        "--record",
        metavar="PATH",
        type=values.new_file,
        help="record all the time: a new file, or a directory, in which the file is named by host and time",
    )
    _parts(recording)
    _logging(parser)


def _trace(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Needs root and bpftrace. FILE is a recording: replay, report and export read it; `export --to blkparse` and "
        "`--to blktrace` are for other tools. Exit code 1: no I/O was traced; 4: some are missing, and the output "
        "counts them."
    )
    parser.add_argument(
        "--device", metavar="NAME", required=True, type=values.glob, help="disk or partition, such as sda or /dev/sda1"
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument(
        "--lba", metavar="A-B", type=values.sectors, help="only I/Os in these sectors of 512 bytes of the device"
    )
    only.add_argument(
        "--file", metavar="F", type=values.file, help="only I/Os in the blocks that this file has at the start"
    )
    only.add_argument(
        "--pid",
        metavar="P",
        type=values.Number("a process number", values.MAX_PID),
        help="only I/Os that this process issued",
    )
    only.add_argument(
        "--cgroup", metavar="C", default="", help="only I/Os charged to this cgroup or one below it: a path or its end"
    )
    _trace_bounds(parser)


def _trace_bounds(parser: argparse.ArgumentParser) -> None:
    """Add the options on how long, where to and how much `latmon trace` writes."""
    parser.add_argument(
        "--duration",
        type=values.positive_duration,
        default=10_000_000,
        help="trace for this time, such as 60s (default 10s)",
    )
    parser.add_argument(
        "-o",
        "--output",
        dest="out",
        metavar="FILE",
        type=values.new_file,
        help="the new recording, - is stdout (default: named by host and time, in the current directory)",
    )
    parser.add_argument(
        "--stacks",
        metavar="OUT",
        type=values.new_file,
        help="count the kernel stacks that submitted slow I/Os: folded text, or a flame graph if OUT ends in .svg",
    )
    parser.add_argument(
        "--user-stacks",
        action="store_true",
        help="with --stacks: also the user stacks and the names of the processes; needs frame pointers",
    )
    parser.add_argument(
        "--slow", metavar="TIME", type=options.THRESHOLD.kind, help="with --stacks: from this latency on (default 10ms)"
    )
    parser.add_argument(
        "--max-ios",
        metavar="N",
        type=values.Number("a number of I/Os", values.MAX_IOS),
        default=values.MAX_IOS // 5,
        help=f"end soon after so many I/Os (default {values.MAX_IOS // 5:,}, at most {values.MAX_IOS:,})",
    )
    parser.add_argument(
        "--max-rate",
        metavar="N",
        type=values.Number("a number of I/Os a second", values.MAX_IOS_PER_S),
        default=values.MAX_IOS_PER_S,
        help=f"leave out I/Os above so many a second (default and at most {values.MAX_IOS_PER_S:,})",
    )
    _redact(parser)


def _fleet(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Each HOST is measured by its own latmon, else by its Python or its bpftrace, else by the kernel's counters, "
        "which sh prints: nothing is installed there, and what runs there ends with the connection. Your OpenSSH "
        "configuration, keys and agent are used; ssh asks for nothing. The overview lists the hosts, and Enter opens "
        "one. Devices are named HOST:DEVICE."
    )
    parser.add_argument(
        "hosts", metavar="HOST", nargs="*", type=values.host, help="hosts as ssh takes them, at most 32"
    )
    parser.add_argument("--feed", action="store_true", help=argparse.SUPPRESS)  # what latmon fleet runs on a host
    _measuring(parser, here=False)
    recording = parser.add_argument_group("recording")
    recording.add_argument(
        "--record", metavar="DIR", type=values.new_path, help="record without a screen, each host to a file in DIR"
    )
    recording.add_argument(
        "--duration",
        type=values.positive_duration,
        help="end after this time, such as 60s; also with --once and --inline",
    )
    recording.add_argument(
        "--timeout",
        type=values.positive_duration,
        help="with --once and --record: begin after this time without hosts that are not ready (default: 12s for "
        "connections, 30s for probes)",
    )
    _redact(recording, "the hosts or their users")
    recording.add_argument("--tui", action="store_true", help="show the screen while recording")
    _logging(recording)
    _watched(parser, "after the first window, or after --duration")


def _probes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "show"), nargs="?", default="list", help="default list")
    parser.add_argument("name", metavar="NAME", nargs="?", help="with show: a probe or a group of probes")


def _rules(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "show"), nargs="?", default="list", help="default list")
    parser.add_argument("name", metavar="RULE", nargs="?", help="with show: only this rule (default: all rules)")


def _config(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Exit code 2: a file has a mistake, which is named with its line."
    parser.add_argument(
        "action",
        choices=("show", "check", "edit", "schema"),
        nargs="?",
        default="show",
        help="show each setting and where it was set (the default), check files, edit your own file in $VISUAL or "
        "$EDITOR, at first with a sample of all settings, or print the JSON Schema of a file, for editors",
    )
    parser.add_argument(
        "file", metavar="FILE", nargs="?", type=values.file, help="with check: this file (default: both files)"
    )


def _export(parser: argparse.ArgumentParser) -> None:
    from latmon.exporters.registry import FORMATS, SCREENS, VERSIONS  # noqa: PLC0415  of this command alone

    forms = "; ".join(f"{name}: {what}" for name, what in FORMATS.items())
    parser.add_argument("file", metavar="FILE", type=values.file, help="a recording; - is stdin")
    parser.add_argument("--to", metavar="FORMAT", choices=tuple(FORMATS), required=True, help=forms)
    parser.add_argument(
        "-o", metavar="OUT", dest="out", type=values.new_file, required=True, help="a new file, or - for stdout"
    )
    _devices(parser)
    parser.add_argument("--buckets", action="store_true", help="csv: write a row per bucket that contains I/Os")
    parser.add_argument(
        "--who", action="store_true", help="csv: write a row per cgroup, process, size, order and file system"
    )
    pictures = parser.add_argument_group("svg, text and cast")
    pictures.add_argument("--screen", choices=SCREENS, help="screen to draw (default overview)")
    _pictures(pictures)
    _theme(pictures)
    pictures.add_argument(
        "--duration", type=values.positive_duration, help="cast: show only this much of the recording"
    )
    pictures.add_argument(
        "--cast-version",
        type=int,
        choices=VERSIONS,
        help="cast: version of the file (default 2, which all players read)",
    )
    _max_memory(parser)


def _pictures(parser: argparse._ActionsContainer) -> None:
    """Add the options of pictures but --screen, which is an option of a screen that is watched, too."""
    parser.add_argument(
        "--size", metavar="80x24", type=values.screen_size, help="columns x lines of the screen (default 80x24)"
    )
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="time to draw: 90s after the begin, 14:05:30, or an RFC 3339 time (default: the end; cast: the begin)",
    )
    parser.add_argument("--speed", type=values.speed, help="cast: play this many times as fast (default 1)")


_COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "replay": ("show a recording on the same screen", _replay),
    "report": ("summarise a recording", _report),
    "diff": ("compare captures: what differs, where, and with what certainty", _diff),
    "check": ("check a recording for damage; --repair writes a clean copy", _check),
    "export": ("convert a recording to other tools' formats, or draw pictures of it", _export),
    "import": ("convert other tools' output to a recording", _import),
    "demo": ("show a synthetic host or a published incident; needs no privilege", _demo),
    "doctor": ("check what works on this host, why something doesn't, and what to do", _doctor),
    "fleet": ("show several hosts at once, over ssh", _fleet),
    "exporter": ("serve this host's I/O latency to Prometheus", _exporter),
    "trace": ("trace each I/O of a device for a while: stages, btt's table, seeks", _trace),
    "watch": ("watch this host as a service, and act on findings", _watch),
    "probes": ("list the probes, or show one", _probes),
    "rules": ("list the rules of the findings, with the meaning and values of their thresholds", _rules),
    "config": ("show the settings and where each was set, check a file, or edit it", _config),
}


def _recordings(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", type=values.file, help=text)


def _forms(parser: argparse.ArgumentParser, schema: str, *, has_text: bool = False) -> None:
    """Add the options of the forms of a report, of which one is given."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help=f"print JSON for programs, schema latmon.{schema}/1")
    form.add_argument("--schema", action=_Schema, const=schema)
    if has_text:
        form.add_argument("--text", action="store_true", help="print text (the default)")
    form.add_argument(
        "--html", metavar="OUT", type=values.file, help="write one HTML file that loads nothing else; - is stdout"
    )


def _redact(parser: argparse._ActionsContainer, whose: str = "the host or its users") -> None:
    parser.add_argument("--redact", action="store_true", help=f"do not write names that may identify {whose}")


def _max_memory(parser: argparse.ArgumentParser, default: str = "256M") -> None:
    parser.add_argument(
        "--max-memory",
        metavar="SIZE",
        type=values.Size(values.MIN_MEMORY, "64M, too little for any recording"),
        help=f"refuse recordings that take more memory than SIZE (Linux; default {default})",
    )


def _devices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        metavar="GLOB",
        action="append",
        default=[],
        type=values.glob,
        help="only devices that match; may be repeated",
    )


def _watched(parser: argparse.ArgumentParser, when: str, *, rings: bool = True) -> None:
    """Add the options of a screen that is watched. `when`: the time that --once shows; `rings`: it has a bell."""
    _devices(parser)
    _theme(parser)
    parser.add_argument(
        "--once",
        action="store_true",
        help=f"print one screen as plain text {when}; COLUMNS x LINES, else the terminal's size, else 80x24",
    )
    parser.add_argument(
        "--inline",
        action="store_true",
        help="show a strip of a few lines below the prompt: the first devices and a finding",
    )
    if rings:
        _add(parser, options.BELL)
    screen = parser.add_argument_group("screen")
    _add(screen, options.VIEW)
    for key in options.OF_VIEWS:
        _add(screen, options.SETTINGS[key])
    _add(screen, options.MOUSE)


def _theme(parser: argparse._ActionsContainer) -> None:
    _add(parser, options.THEME)
    _add(parser, options.RAMP)


def _add(
    parser: argparse._ActionsContainer,
    setting: Setting[Any],
    *,
    text: str = "",
    default: object = None,
    is_listed: bool = True,
) -> None:
    """Add the option of a setting. `text`: help of this command alone; `is_listed`: --help lists the option.

    A name is not checked here: where it is used, the sentence lists the names that there are.
    """
    shown = (text or setting.help) if is_listed else argparse.SUPPRESS
    if isinstance(setting.kind, values.Flag):
        parser.add_argument(setting.option, action="store_true", help=shown)
        return
    check = str if isinstance(setting.kind, values.Name) else setting.kind
    parser.add_argument(setting.option, metavar=setting.metavar, type=check, default=default, help=shown)
