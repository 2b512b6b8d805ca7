"""Command-line parsing: argv to one namespace per command. Each error is a UsageError that names the option.

The first word selects the command; without one it is the live TUI or a headless capture. The options of a command are
those of the table in latmon/cli/options.py.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from latmon import __version__
from latmon.cli import options, values
from latmon.cli.declaration import Option, mistake
from latmon.support.errors import UsageError
from latmon.support.text import clean

LIVE = "live"
"""The command without a name."""
MAX_MISTAKE = 300
MAX_VALUE_MISTAKE = 200
_HEADING = "commands (latmon COMMAND --help lists the options of each):"
_PICTURES = "svg, text and cast"
_UNKNOWN = "unrecognized arguments: "
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


class Command(NamedTuple):
    """A command: what its help and its page have beside the options."""

    purpose: str
    examples: tuple[str, ...]
    """Command lines; the tests parse each of them."""
    epilog: str | Callable[[], str] = ""
    """End of the help, before the examples."""
    headings: Mapping[str, str] = {}
    """Heading of options -> another heading for them; empty: none."""


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line; `command` is `live` without a command. --help and --version print and exit."""
    if argv[:1] == ["help"]:
        if argv[1:] in ([], ["help"]):
            _print_help()
        argv = [*argv[1:], "--help"]
    name = argv[0] if argv and not argv[0].startswith("-") else ""
    if name == LIVE or (name and name not in COMMANDS):
        near = _nearest(name, {command: command for command in _named_commands()})
        raise UsageError(f"there is no command {clean(name)!r}{near or f'; the commands are {_listed_commands()}'}")
    command = name or LIVE
    declared = options.of_command(command)
    known = argparse.Namespace(command=command)
    behind = next((option for option in declared if option.is_behind_dashes), None)
    if behind is not None:
        argv, words = _parted(argv)
        setattr(known, behind.destination, words)
    args = _parser(command).parse_args(argv[1:] if name else argv, known)
    sentence = mistake(args, declared)
    if sentence:
        raise UsageError(sentence)
    return args


def _parted(argv: list[str]) -> tuple[list[str], list[str]]:
    """Return the words before `--`, and those behind it. UsageError for a `--` without one."""
    if "--" not in argv:
        return argv, []
    at = argv.index("--")
    if at + 1 == len(argv):
        raise UsageError("-- needs a command behind it: latmon --record FILE -- COMMAND")
    return argv[:at], argv[at + 1 :]


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command by its name; that of the live screen has an empty one."""
    return {"" if name == LIVE else name: _parser(name) for name in COMMANDS}


def purpose(name: str) -> str:
    """Return what a command does, in a line; an empty name is the live screen's."""
    return COMMANDS[name or LIVE].purpose


def print_schema(name: str) -> None:
    """Print a JSON Schema: config, diff or report."""
    from latmon.support.paths import data_dir  # noqa: PLC0415  only who asks for one

    print((data_dir("schemas") / f"{name}.json").read_text("utf-8"), end="")


def _parser(name: str) -> _Parser:
    command = COMMANDS[name]
    parser = _Parser(
        prog="latmon" if name == LIVE else f"latmon {name}",
        description=f"{command.purpose[0].upper()}{command.purpose[1:]}.",
        epilog="\n".join(_end_of_help(name, command)),
        formatter_class=_Layout,
        allow_abbrev=False,
    )
    if name == LIVE:
        parser.add_argument("--version", action="version", version=f"latmon {__version__}")
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    sets: dict[str, argparse._ActionsContainer] = {}
    for option in options.of_command(name):
        if option.is_behind_dashes:
            continue
        heading = command.headings.get(option.heading, option.heading)
        if heading not in groups:
            groups[heading] = parser.add_argument_group(heading)
        if option.one_of and option.one_of not in sets:
            sets[option.one_of] = groups[heading].add_mutually_exclusive_group()
        _add(sets[option.one_of] if option.one_of else groups[heading], option, name)
    return parser


def _end_of_help(name: str, command: Command) -> Iterable[str]:
    """Yield the parts of a help behind the options."""
    if name == LIVE:
        yield _HEADING
        yield from (f"  {named:<8} {purpose(named)}" for named in _named_commands())
    elif command.epilog:
        yield command.epilog if isinstance(command.epilog, str) else command.epilog()
    for option in options.of_command(name):
        if option.is_behind_dashes:
            yield f"\n-- {option.usage}..."
            yield textwrap.fill(option.help, 78, initial_indent="  ", subsequent_indent="  ")
    yield "\nexamples:"
    yield from (f"  {example}" for example in command.examples)
    if name == LIVE:
        yield "\nexit codes and environment: latmon help"


def _add(container: argparse._ActionsContainer, option: Option[Any], command: str) -> None:
    """Add an option to the parser of a command.

    A name is not checked here: where it is used, the sentence lists the names that there are.
    """
    keywords: dict[str, Any] = {"help": argparse.SUPPRESS if command in option.unlisted_in else option.help}
    if option.flags:
        keywords["dest"] = option.destination
    if option.has_schema:
        container.add_argument(*option.flags, action=_Schema, const=command, **keywords)
        return
    if not option.has_value:
        container.add_argument(*option.flags, action="store_true", **keywords)
        return
    keywords |= {
        "type": str if isinstance(option.kind, values.Name) else option.kind,
        "metavar": option.metavar,
        "default": option.initial,
    }
    if option.metavar is None and isinstance(option.kind, values.OneOf):
        keywords["choices"] = option.kind.names()
    if option.nargs is not None:
        keywords["nargs"] = option.nargs
    if option.is_required:
        keywords["required"] = True
    if option.is_repeatable:
        keywords["action"] = "append"
    container.add_argument(*option.flags or [option.destination], **keywords)


def _named_commands() -> list[str]:
    return [name for name in COMMANDS if name != LIVE]


def _listed_commands() -> str:
    return ", ".join((*_named_commands(), "help"))


def _print_help() -> NoReturn:
    """Print the help of latmon with exit codes and environment, and end."""
    _parser(LIVE).print_help()
    for title, rows in (("exit codes", EXIT_CODES), ("environment", ENVIRONMENT)):
        width = max(map(len, rows))
        print(f"\n{title}:", *(f"  {name:<{width}}  {text}" for name, text in rows.items()), sep="\n")
    raise SystemExit(0)


class _Schema(argparse.Action):
    """Option that prints the JSON Schema that `const` names, and ends."""

    def __init__(self, option_strings: Sequence[str], dest: str, const: str, help: str) -> None:  # noqa: A002  argparse's
        super().__init__(option_strings, dest, nargs=0, const=const, default=argparse.SUPPRESS, help=help)

    def __call__(self, *_: Any) -> NoReturn:
        print_schema(self.const)
        raise SystemExit(0)


class _Layout(argparse.HelpFormatter):
    """Layout of a help text whose indented lines and headings stay lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = super()._fill_text
        lines = text.splitlines()
        return "\n".join(
            line if line[:1] in ("", " ") or line[-1:] == ":" else filled(line, width, indent) for line in lines
        )


class _Parser(argparse.ArgumentParser):
    """Parser whose errors are one sentence of a UsageError."""

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Parse a value. argparse itself would replace the sentence of a ValueError."""
        if not callable(action.type):
            return super()._get_value(action, arg_string)
        try:
            return action.type(arg_string)
        except ValueError as error:
            raise argparse.ArgumentError(action, clean(str(error), MAX_VALUE_MISTAKE)) from None

    def error(self, message: str) -> NoReturn:
        text = clean(message.removeprefix("argument "), MAX_MISTAKE)
        unknown = message.removeprefix(_UNKNOWN).partition(" ")[0].partition("=")[0]
        if message.startswith(_UNKNOWN) and unknown.startswith("--"):
            offered: dict[str, str] = {}
            for action in self._actions:
                if action.help != argparse.SUPPRESS:
                    offered |= {flag.removeprefix("--"): flag for flag in action.option_strings}
            text += _nearest(unknown.removeprefix("--"), offered) or _of_others(unknown)
        elif unknown in COMMANDS and self.prog == "latmon":
            text = f"a command comes before its options: latmon {unknown} --OPTION..."
        raise UsageError(f"{text} (`{self.prog} --help` lists the options)")


def _nearest(word: str, known: Mapping[str, object]) -> str:
    """Return a question that names the value of what is written most alike; empty where nothing is."""
    from difflib import get_close_matches  # noqa: PLC0415  only a mistake needs it

    near = get_close_matches(word[:80], [*known], 1)
    return f"; did you mean {known[near[0]]}?" if near else ""


def _of_others(option: str) -> str:
    """Return a sentence on an option of other commands or a key of the config file; empty for any other word."""
    for name in COMMANDS:
        if any(option in declared.flags for declared in options.of_command(name)):
            command = "`latmon` alone" if name == LIVE else f"`latmon {name}`"
            return f"; {option} is an option of other commands, such as {command}"
    key = option.removeprefix("--").replace("-", "_")
    return f"; {key} is a key of the config file, not an option" if key in options.SETTINGS else ""


def _formats(formats: Mapping[str, str]) -> str:
    width = max(map(len, formats))
    return "\n".join(("formats:", *(f"  {name:<{width}} {purpose}" for name, purpose in formats.items())))


def _imported_formats() -> str:
    from latmon.importers.registry import FORMATS  # noqa: PLC0415  no other command needs them

    return _formats({importer.name: importer.purpose for importer in FORMATS})


def _exported_formats() -> str:
    from latmon.exporters.registry import FORMATS  # noqa: PLC0415  no other command needs them

    return _formats(FORMATS)


COMMANDS: Mapping[str, Command] = {
    "live": Command(
        purpose="show where I/O latency hides: a live terminal UI, or a recording without one",
        examples=(
            "latmon",
            "latmon --stages all --threshold 20ms",
            "latmon --record host.latmon.jsonl.gz --duration 60s",
            "sudo latmon --record job.latmon.jsonl.gz -- fio job.fio",
        ),
    ),
    "replay": Command(
        purpose="show a recording on the same screen",
        examples=("latmon replay host.latmon.jsonl.gz", "latmon replay host.latmon.jsonl.gz --speed 10"),
    ),
    "report": Command(
        purpose="summarise a recording",
        examples=(
            "latmon report host.latmon.jsonl.gz",
            "latmon report host.latmon.jsonl.gz --html case.html --slo 20ms",
        ),
    ),
    "diff": Command(
        purpose="compare captures: what differs, where, and with what certainty",
        examples=(
            "latmon diff before.latmon.jsonl.gz after.latmon.jsonl.gz",
            "latmon diff day.latmon.jsonl.gz@..upgrade day.latmon.jsonl.gz@upgrade",
            "latmon diff --a a1.gz a2.gz --b b1.gz b2.gz --html case.html",
            "latmon diff --sweep max_vec vec-2.gz vec-4.gz vec-8.gz",
        ),
    ),
    "check": Command(
        purpose="check a recording for damage; --repair writes a clean copy",
        examples=(
            "latmon check host.latmon.jsonl.gz",
            "latmon check host.latmon.jsonl.gz host.part*.latmon.jsonl.gz",
            "latmon check host.latmon.jsonl.gz --repair -o clean.latmon.jsonl.gz",
        ),
        epilog=(
            "Exit code 0: the recording is clean or still being written; 5: it is damaged. If latmon was killed, its "
            "recording only lacks the closing line: every command reads it, and --repair writes a copy with that "
            "line. Of several files each is checked, and whether a part of their capture is missing between them "
            "(exit code 5). With --repair the exit code is 0 if the copy was written and is clean."
        ),
    ),
    "export": Command(
        purpose="convert a recording to other tools' formats, or draw pictures of it",
        examples=(
            "latmon export host.latmon.jsonl.gz --to csv -o host.csv",
            "latmon export host.latmon.jsonl.gz --to svg --screen stages -o s.svg",
        ),
        epilog=_exported_formats,
        headings={options.PICTURES: _PICTURES, options.SCREEN_HEADING: _PICTURES},
    ),
    "import": Command(
        purpose="convert other tools' output to a recording",
        examples=(
            "latmon import ticket.txt -o ticket.latmon.jsonl.gz",
            "latmon import bpftrace.txt --unit us -o b.latmon.jsonl.gz",
            "latmon import iostat.txt --from iostat --interval 10s -o i.latmon.jsonl.gz",
        ),
        epilog=_imported_formats,
    ),
    "demo": Command(
        purpose="show a synthetic host or a published incident; needs no privilege",
        examples=("latmon demo", "latmon demo --list", "latmon demo emulex --tour"),
        headings={options.PICTURES: "--svg, --cast and --once"},
    ),
    "doctor": Command(
        purpose="check what works on this host, why something doesn't, and what to do",
        examples=("latmon doctor", "sudo latmon doctor --self-test", "sudo latmon doctor --overhead"),
        epilog=(
            "Exit code 0: latmon can measure on this host; 3: it can't. With --self-test 0: every panel that "
            "measures on this host shows the delay that was made; 1: at least one panel doesn't; 3: the test can't "
            "run on this host, and the reason is printed. With --overhead 0: the cost is printed; 3: it can't be "
            "measured on this host."
        ),
    ),
    "fleet": Command(
        purpose="show several hosts at once, over ssh",
        examples=("latmon fleet db1 db2 root@db3", "latmon fleet db1 db2 --record incident --duration 10min"),
        epilog=(
            "Each HOST is measured by its own latmon, else by its Python or its bpftrace, else by the kernel's "
            "counters, which sh prints: nothing is installed there, and what runs there ends with the connection. "
            "Your OpenSSH configuration, keys and agent are used; ssh asks for nothing. The overview lists the "
            "hosts, and Enter opens one. Devices are named HOST:DEVICE."
        ),
    ),
    "exporter": Command(
        purpose="serve this host's I/O latency to Prometheus",
        examples=("sudo latmon exporter", "sudo latmon exporter --listen unix:/run/latmon.sock --stages auto"),
        epilog=(
            "Serves /metrics until SIGTERM: native histograms where Prometheus asks for protobuf, else 8 buckets as "
            "text. Files: contrib/ has a systemd unit and socket, Prometheus' rules and a dashboard for Grafana."
        ),
    ),
    "trace": Command(
        purpose="trace each I/O of a device for a while: stages, btt's table, seeks",
        examples=("sudo latmon trace --device sda", "sudo latmon trace --device sda --stacks slow.svg --slow 20ms"),
        epilog=(
            "Needs root and bpftrace. FILE is a recording: replay, report and export read it; `export --to blkparse` "
            "and `--to blktrace` are for other tools. Exit code 1: no I/O was traced; 4: some are missing, and the "
            "output counts them."
        ),
        headings={options.RECORDING: ""},
    ),
    "watch": Command(
        purpose="watch this host as a service, and act on findings",
        examples=("sudo latmon watch", "sudo latmon watch --record /var/lib/latmon --max-size 512M --keep 7d"),
        epilog=(
            "Runs until SIGTERM. The config's section on_finding sets what is done when a finding begins "
            "(docs/WATCH.md). contrib/ has a systemd unit."
        ),
    ),
    "probes": Command(purpose="list the probes, or show one", examples=("latmon probes", "latmon probes show stages")),
    "rules": Command(
        purpose="list the rules of the findings, with the meaning and values of their thresholds",
        examples=("latmon rules", "latmon rules show peer-outlier"),
    ),
    "config": Command(
        purpose="show the settings and where each was set, check a file, or edit it",
        examples=("latmon config", "latmon config check /etc/xdg/latmon/config.yaml", "latmon config edit"),
        epilog="Exit code 2: a file has a mistake, which is named with its line.",
    ),
}
