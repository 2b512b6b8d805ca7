"""Table of the options and arguments of all commands, and of the keys of the config file.

The parsers of the command line, the checks of combinations, --help, man pages and completions come from it; of the
keys also the config's defaults, its JSON Schema and its sample.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from latmon.cli import values
from latmon.cli.declaration import Option, Rule
from latmon.model import stages
from latmon.support.streams import STANDARD
from latmon.support.units import LONGEST_THRESHOLD_US

MEASURED = "what is measured"
TOOLS = "the tool that runs the probes; under sudo only the system's file may name it"
PROMETHEUS = "prometheus"
"""The backend of many hosts, which has options of its own."""
DEFAULT_DEMO = "host"
"""Scenario of `demo`."""
DEFAULT_THRESHOLD_US = 100_000
"""Outlier threshold of an import."""
DEFAULT_TRACE_US = 10_000_000
RECORDING, SCREEN_HEADING, PICTURES = "recording", "screen", "pictures"
"""Headings in the help."""
_CAPTURES = ("live", "fleet")
"""Commands that show or record what is measured."""
_WATCHED = (*_CAPTURES, "replay", "demo")
"""Commands with a screen."""
_MEASURING = (*_CAPTURES, "exporter", "watch")

_PARTS = "a recording; several are the parts of one capture; - is stdin"
_TRACED = "trace stages on demand (auto), never (basic), or always and for all devices (all); default"
_COMPARED = "which are joined and compared with those of"
_ONE_OUTPUT = "{option} and {part} are different outputs: choose one"
_TWO_SIDES = "--a and --b belong together: each names the runs of one side"
_ALL_CAPTURES = "--a and --b name all captures: leave out"
_LOGGED = "{option} is for a log: it needs --record FILE without a screen"
_WAITED_FOR = "{option} needs --once, or --record DIR without a screen: a screen shows hosts as they come"
_OF_A_FEED = frozenset(("command", "feed", "backend", "interval", "threshold", "stages", "invasive", "device"))


def _needs(*parts: str, commands: tuple[str, ...] = ()) -> tuple[Rule]:
    """Return the rule that one of these parts is needed."""
    return (Rule(parts, commands=commands),)


def _not_of_prometheus(why: str) -> Rule:
    sentence = f"{{part}} goes without {{option}}, which needs {why}"
    return Rule((f"--backend {PROMETHEUS}",), sentence, commands=("live",))


_OF_A_HOST = _not_of_prometheus("a host's own data")
_OF_ONE_HOST = Rule(
    ("--feed",),
    "{option} is for one host: run `latmon {usage}` on the host; a fleet takes what each host has",
    commands=("fleet",),
)
_NOT_WITHOUT_A_SCREEN = Rule(
    ("--record",),
    "{option} needs a screen: --record FILE records everything, and has one with --tui or --inline",
    unless=("--tui", "--inline"),
    commands=_CAPTURES,
)
_ON_SCREEN = (
    _NOT_WITHOUT_A_SCREEN,
    Rule(("--record",), "{option} needs a screen: --record writes all of the demo", commands=("demo",)),
    Rule(("--list",), "{option} needs a screen: --list lists all scenarios"),
)
_NOT_IN_TEXT = Rule(("--once",), "{part} prints plain text: it goes without {option}")
_NOT_IN_A_STRIP = Rule((f"--backend {PROMETHEUS} --inline",), "{part} goes without {option}: choose one")
_NOT_ONCE = Rule(("--once",), "{part} records nothing: with {option} FILE take --inline or --tui")
_IN_A_FILE = Rule(("--record -",), "{option} needs a file: --record - is one stream without parts", commands=("live",))
_AS_PICTURE = _needs("--svg", "--cast", "--once", "--to svg", "--to text", "--to cast")


def _one_standard_input(args: argparse.Namespace) -> str:
    files = [*args.files]
    if args.command == "diff":
        files += [*(args.a or ()), *(args.b or ())]
    names = [str(file) for file in files]
    return "- is standard input, which is one file: name it once" if names.count(str(STANDARD)) > 1 else ""


def _files_of_replay(args: argparse.Namespace) -> str:
    if args.once and len(args.files) > 1:
        return "--once prints the end of one recording: name one FILE"
    return _one_standard_input(args)


def _files_of_check(args: argparse.Namespace) -> str:
    if args.repair and len(args.files) > 1:
        return "--repair copies one recording: name one FILE, and repair the parts of a capture one by one"
    return _one_standard_input(args)


def _files_of_diff(args: argparse.Namespace) -> str:
    if not args.a and not args.b and len(args.files) < 2:  # noqa: PLR2004  A and B
        return "a comparison needs two captures at least: latmon diff A B, or --a FILE... --b FILE..."
    return _one_standard_input(args)


def _hosts_of_fleet(args: argparse.Namespace) -> str:
    if args.feed or args.hosts:
        return ""
    return "name the hosts: latmon fleet HOST... (`latmon fleet --help` lists the options)"


def _only_a_feed(args: argparse.Namespace) -> str:
    given = [name for name, value in vars(args).items() if value and name not in _OF_A_FEED]
    if not (args.feed and given):
        return ""
    what = "HOST" if given[0] == "hosts" else f"--{given[0].replace('_', '-')}"
    return f"--feed sends frames of this host to the latmon fleet that runs it: it takes no {what}"


def _log_beside_recording(args: argparse.Namespace) -> str:
    log, record = args.log_file, getattr(args, "record", None)
    if log is None or record is None:
        return ""
    is_one_file = log.parent.resolve() / log.name == record.parent.resolve() / record.name
    return "--log-file and --record name the same file" if is_one_file else ""


def _our_themes() -> Sequence[str]:
    from latmon.support.theme import OUR_THEMES  # noqa: PLC0415  only the JSON Schema lists them

    return OUR_THEMES


def _our_ramps() -> Sequence[str]:
    from latmon.support.theme import AUTO, OUR_RAMPS  # noqa: PLC0415  as in _our_themes

    return (AUTO, *OUR_RAMPS)


def _imported_formats() -> Sequence[str]:
    from latmon.importers.registry import NAMES  # noqa: PLC0415  no other command needs them

    return NAMES


def _exported_formats() -> Sequence[str]:
    from latmon.exporters.registry import FORMATS  # noqa: PLC0415  no other command needs them

    return tuple(FORMATS)


def _drawn_screens() -> Sequence[str]:
    from latmon.exporters.registry import SCREENS  # noqa: PLC0415  as in _exported_formats

    return SCREENS


THEME = Option(
    "--theme NAME",
    "dark, light, high-contrast, mono, solarized, colour-blind, phosphor or one of your own",
    values.Name(_our_themes),
    key="theme",
    needs=_needs("--to svg", "--to cast", commands=("export",)),
    excludes=(_NOT_IN_TEXT,),
    default="dark",
    comment="dark, light, high-contrast, mono, solarized, colour-blind, phosphor",
)
RAMP = Option(
    "--ramp NAME",
    "colours of counts: auto, cividis, viridis, inferno, mono or one of your own",
    values.Name(_our_ramps),
    key="ramp",
    needs=_needs("--to svg", "--to cast", commands=("export",)),
    excludes=(_NOT_IN_TEXT,),
    default="auto",
    comment="colours of heat maps: auto, cividis, viridis, inferno, mono",
)
INTERVAL = Option(
    "--interval INTERVAL",
    "time between two frames, 100ms to 60s (default 1s)",
    values.Duration("an interval", lambda: (values.MIN_INTERVAL_US, values.MAX_INTERVAL_US)),
    key="interval",
    group=MEASURED,
    default="1s",
    comment="length of a frame, 100ms to 60s",
)
BACKEND = Option(
    "--backend NAME",
    "measure with this backend: auto (the default), bpftrace, dtrace, procfs",
    values.Name(lambda: ("auto", "bpftrace", "dtrace", "procfs")),
    key="backend",
    group=MEASURED,
    unlisted_in=("fleet",),
    needs=(_OF_ONE_HOST,),
    excludes=(Rule((f"--backend {PROMETHEUS}",), "{part} needs --url URL", unless=("--url",), commands=("live",)),),
    default="auto",
    comment="auto, bpftrace, dtrace, procfs",
)
BPFTRACE = Option(
    key="bpftrace",
    kind=values.ToolPath(),
    group=TOOLS,
    default="found in PATH",
    example="/usr/bin/bpftrace",
    variable="LATMON_BPFTRACE",
)
DTRACE = Option(
    key="dtrace",
    kind=values.ToolPath(),
    group=TOOLS,
    default="found in PATH",
    example="/usr/sbin/dtrace",
    variable="LATMON_DTRACE",
)
THRESHOLD = Option(
    "--threshold THRESHOLD",
    "list I/Os that take at least this long, such as 100ms",
    values.Duration("a threshold", lambda: (0, LONGEST_THRESHOLD_US)),
    key="threshold",
    group=MEASURED,
    excludes=(_OF_A_HOST,),
    default="per device",
    example="20ms",
    comment="I/Os above it are outliers; without it 8 times the device's mean, at least 1ms",
)
STAGES = Option(
    "--stages WHEN",
    f"{_TRACED} auto",
    values.OneOf(lambda: stages.STAGES_MODES),
    key="stages",
    group=MEASURED,
    excludes=(_OF_A_HOST,),
    default="auto",
    comment="when stages are traced: auto, basic (never), all (always)",
)
HISTORY = Option(
    key="history",
    kind=values.Duration("a history", lambda: (values.MIN_HISTORY_US, values.MAX_HISTORY_US)),
    group=MEASURED,
    default="1h",
    comment="how far back the live screen can go",
)
BUDGET_PERCENT = Option(
    key="budget_percent",
    kind=values.CpuPercent(),
    group=MEASURED,
    default="10",
    comment="what tracing may cost, in percent of one CPU; 0: no limit",
)
MAX_OVERHEAD = Option(
    "--max-overhead PERCENT",
    "limit of all probes and their tool in percent of one CPU, such as 5: above it the tracer is stopped, or the "
    "capture where no tracer runs; 0: no limit",
    values.CpuPercent(),
    key="max_overhead",
    group=MEASURED,
    unlisted_in=("fleet",),
    needs=(_OF_ONE_HOST,),
    excludes=(_OF_A_HOST,),
    default="no limit",
    example="20",
    comment="above it the tracer ends, then latmon: all probes, in percent of one CPU; 0: no limit",
)
SWEEP = Option(
    key="sweep",
    kind=values.Flag(),
    default="false",
    comment="true: for a slow link to a terminal that can't move cells",
)
BELL = Option(
    "--bell",
    "ring the terminal's bell for each new critical finding",
    values.Flag(),
    key="bell",
    excludes=(
        Rule(("--once", "--svg", "--cast"), "{option} needs a screen: it goes without {part}"),
        _not_of_prometheus("rules that are evaluated here, and the exporters evaluate them"),
    ),
    default="false",
    comment="true: the bell rings for each new critical finding",
)
MOUSE = Option(
    "--no-mouse",
    "leave the mouse to the terminal",
    values.Flag(),
    key="mouse",
    excludes=(_NOT_IN_TEXT,),
    default="true",
    comment="false leaves the mouse to the terminal",
)
VIEW = Option(
    "--view NAME",
    "a saved view of the config (the key V shows the next one)",
    values.Name(),
    key="view",
    example="disks",
    comment="the saved view at the start",
)
SORT = Option(
    "--sort NAME",
    "order of the devices: unlike (the default), p99, max, IOPS, MB/s, out, name",
    values.OneOf(values.sort_names),
    key="sort",
    default="unlike",
    comment="unlike, p99, max, IOPS, MB/s, out, name",
    is_of_view=True,
)
FILTER = Option(
    "--filter WORDS",
    "only devices with these words in name, driver or model; !sda or -sda: without it",
    values.Filter(),
    key="filter",
    example="sd? -sdb",
    comment="only devices with these words in name, driver or model",
    is_of_view=True,
)
WINDOW = Option(
    "--window TIME",
    "time on the screen, 15s to 10min; default 1min",
    values.Duration("a window", values.window_limits_us),
    key="window",
    default="1min",
    comment="time on the screen, 15s to 10min",
    is_of_view=True,
)
COLUMNS = Option(
    "--columns A,B",
    "columns of the device table, such as IOPS,p99,max",
    values.Columns(),
    key="columns",
    default="all that fit",
    example="[IOPS, p99, max, depth]",
    is_of_view=True,
)
SCREEN = Option(
    "--screen NAME",
    "the first screen: overview, maps, zoom, stages, files, in-flight, ... or 1 to 7",
    values.Screen(),
    key="screen",
    excludes=(Rule(("--inline",), "{part} shows the first devices and a finding: it goes without {option}"),),
    default="overview",
    comment="the first screen, or 1 to 7",
    is_of_view=True,
)
OP = Option(
    "--op NAME",
    "only read, write, flush, discard or other",
    values.OneOf(lambda: ("all", *stages.OPS)),
    key="op",
    default="all",
    comment="all, read, write, flush, discard, other",
    is_of_view=True,
)
SETTINGS: Mapping[str, Option[Any]] = {
    declared.key: declared for declared in [*globals().values()] if isinstance(declared, Option) and declared.key
}
"""All keys of the config that have a value."""
OF_VIEWS = tuple(key for key, declared in SETTINGS.items() if declared.is_of_view)
"""Keys of a saved view."""
_FILES = Option(usage="FILE", dest="files", nargs="+", kind=values.file)
_NAME = Option(
    usage="NAME",
    dest="name",
    nargs="?",
    kind=str,
    excludes=(Rule(("action list",), "`latmon {command} list` takes no name: `latmon {command} show {name}`"),),
)
_MAX_MEMORY = Option(
    "--max-memory SIZE",
    "refuse recordings that take more memory than SIZE (Linux; default 256M)",
    values.Size(values.MIN_MEMORY, "64M, too little for any recording"),
)


def _declared(
    commands: tuple[str, ...],
    *listed: Option[Any],
    heading: str = "",
    needs: tuple[Rule, ...] = (),
    excludes: tuple[Rule, ...] = (),
) -> list[Option[Any]]:
    """Return options with what they have in common: their commands, their heading, and rules before their own."""
    return [
        option._replace(
            commands=option.commands or commands,
            heading=heading,
            needs=(*needs, *option.needs),
            excludes=(*excludes, *option.excludes),
        )
        for option in listed
    ]


OPTIONS: list[Option[Any]] = []
"""All options and arguments, in the order of the help."""
OPTIONS += _declared(
    ("replay",),
    _FILES._replace(help=f"{_PARTS}, and keys come from the terminal", check=_files_of_replay),
    Option(
        "--speed SPEED",
        "play from the begin, this many times as fast; 0 shows the end at once; default: open on the worst minute",
        values.speed,
        excludes=(Rule(("--once",), "{option} plays a recording, and {part} prints its end: choose one"),),
    ),
)
OPTIONS += _declared(
    ("report",),
    _FILES._replace(help=_PARTS, check=_one_standard_input),
    Option("--slo TIME", "count I/Os of this time or longer by hour and day", values.objective),
    Option(
        "--runs",
        "compare the runs that are in an imported text, or the parts between marks, as latmon diff does",
        excludes=(Rule(("--slo",), "{option} compares as latmon diff does, without {part}"),),
    ),
)
OPTIONS += _declared(
    ("check",),
    _FILES._replace(help="a recording, or the parts of a capture; - is stdin", check=_files_of_check),
    Option("--repair", "write what can be read to OUT; FILE is not changed", needs=_needs("-o")),
    Option(
        "-o OUT", "with --repair: a new file, or - for stdout", values.new_file, dest="out", needs=_needs("--repair")
    ),
)
OPTIONS += _declared(
    ("diff",),
    Option(
        "FILE",
        "recordings A and B (- is stdin), or more, which are compared as a sweep; FILE@NOTE is the part from the "
        "mark NOTE to the next mark, FILE@..NOTE the part before that mark, FILE@60s..NOTE the 60 s before it",
        values.span,
        dest="files",
        nargs="*",
        check=_files_of_diff,
    ),
    Option(
        "--a FILE",
        f"runs of A's condition, {_COMPARED} B",
        values.span,
        nargs="+",
        needs=(Rule(("--b",), _TWO_SIDES),),
        excludes=(Rule(("files",), f"{_ALL_CAPTURES} the other files"), Rule(("--sweep",), f"{_ALL_CAPTURES} --sweep")),
    ),
    Option(
        "--b FILE", f"runs of B's condition, {_COMPARED} A", values.span, nargs="+", needs=(Rule(("--a",), _TWO_SIDES),)
    ),
    Option(
        "--sweep SETTING",
        "a row per value of this setting, such as max_vec or 'device sda queue_depth'; captures with the same "
        "value are joined",
        values.setting,
    ),
)
OPTIONS += _declared(
    ("report", "diff"),
    Option("--json", "print JSON for programs; --schema describes it", one_of="forms"),
    Option("--schema", "print the JSON Schema of --json, and end", has_schema=True, one_of="forms"),
    Option("--text", "print text (the default)", commands=("report",), one_of="forms"),
    Option("--html OUT", "write one HTML file that loads nothing else; - is stdout", values.file, one_of="forms"),
    Option(
        "--brief",
        "with --html: two pages, the impact and the worst findings",
        commands=("report",),
        needs=_needs("--html"),
        excludes=(Rule(("--runs",), "{part} compares runs: it goes without {option}"),),
    ),
    RAMP._replace(commands=("report",), help=f"with --html: {RAMP.help}", needs=_needs("--html"), excludes=()),
)
OPTIONS += _declared(
    ("export",),
    Option("FILE", "a recording; - is stdin", values.file, dest="file"),
    Option(
        "--to FORMAT", "format of the output, one of those below", values.OneOf(_exported_formats), is_required=True
    ),
    Option("-o OUT", "a new file, or - for stdout", values.new_file, dest="out", is_required=True),
    Option(
        "--buckets",
        "csv: write a row per bucket that contains I/Os",
        needs=_needs("--to csv"),
        excludes=(Rule(("--who",), "{option} and {part} are two files: export twice"),),
    ),
    Option("--who", "csv: write a row per cgroup, process, size, order and file system", needs=_needs("--to csv")),
)
OPTIONS += _declared(
    ("import",),
    Option("FILE", "output of other tools, or a ticket or mail that has it; - is stdin", values.file, dest="file"),
    Option("-o OUT", "the new recording; - is stdout", values.new_file, dest="out", is_required=True),
    Option(
        "--from FORMAT",
        "read only this format (default: each format that is found)",
        values.OneOf(_imported_formats),
        dest="from_format",
    ),
    Option("--unit", "unit of tables whose text names none", values.OneOf(lambda: ("us", "ms", "ns", "s"))),
    Option("--device NAME", "device that all of the text describes", values.glob),
    Option("--op", "operation of tables whose text names none", values.OneOf(lambda: stages.OPS)),
    Option("--stage", "stage of tables whose text names none", values.OneOf(lambda: stages.STAGES)),
    Option("--start TIME", "when the first window begins, for a text without times", values.moment),
    Option("--interval INTERVAL", "length of a window that has no time (default 1s)", values.positive_duration),
    Option("--events A,B", "in a trace, measure the time from event A to event B", values.events),
    Option(
        "--key FIELD", "with --events: the field in which A and its B agree", str, unset="", needs=_needs("--events")
    ),
    THRESHOLD._replace(unset=DEFAULT_THRESHOLD_US, help="list I/Os that take at least this long (default 100ms)"),
    Option("--host NAME", "host that the text is from", str, unset=""),
    Option("--hz HZ", "ticks per second of its kernel (CONFIG_HZ), for the rule tick-quantum", values.hz),
    Option(
        "--first-report",
        "keep or drop iostat's first report (default: decided by its numbers); keep it if iostat ran with -y",
        values.OneOf(lambda: ("keep", "drop")),
    ),
)
OPTIONS += _declared(
    ("demo",),
    Option("SCENARIO", f"one that --list names (default {DEFAULT_DEMO})", str, dest="scenario", nargs="?"),
    Option(
        "--list",
        "list the scenarios",
        excludes=(
            Rule(("scenario",), "{option} lists all scenarios: it takes no SCENARIO"),
            Rule(("--record", "--svg", "--cast", "--once", "--inline"), _ONE_OUTPUT),
        ),
    ),
    Option(
        "--tour",
        f"explain a demo (default {DEFAULT_DEMO}) in five steps of 15 s; the key . goes to the next, Space pauses",
        excludes=(
            Rule(
                ("--record", "--list", "--svg", "--once", "--inline"),
                "{option} is on the screen or in a --cast FILE and goes without {part}: latmon demo NAME --tour",
            ),
            Rule(("--duration", "--at", "--device"), "{option} has its own length and devices: it goes without {part}"),
        ),
    ),
    Option("--seed SEED", "a number that selects another host with the same problem", values.seed, unset=1),
    Option(
        "--record FILE",
        "write a recording without a screen; - is stdout",
        values.new_file,
        excludes=(Rule(("--svg", "--cast", "--once", "--inline"), _ONE_OUTPUT),),
    ),
    Option(
        "--svg FILE",
        "write a picture of the end, without a screen",
        values.new_file,
        excludes=(
            Rule(("--once", "--inline"), _ONE_OUTPUT),
            Rule(("--svg - --cast -",), "--svg - and --cast -: standard output is one file"),
        ),
    ),
    Option(
        "--cast FILE",
        "write an animation for asciinema; also with --svg",
        values.new_file,
        excludes=(Rule(("--once", "--inline"), _ONE_OUTPUT),),
    ),
    Option(
        "--duration DURATION",
        "with --record, --svg, --cast and --once: end after this time (default: all, for host 3min)",
        values.positive_duration,
        needs=_needs("--record", "--svg", "--cast", "--once"),
    ),
)
OPTIONS += _declared(
    ("doctor",),
    Option("--json", "print JSON for programs"),
    Option(
        "--overhead",
        "measure what the probes cost, for 5 s of the I/O that the host has, then for 5 s with stages; needs root",
        one_of="tests",
    ),
    Option(
        "--self-test",
        "make a known delay on a temporary loop device and check that the panels show it; needs root; takes about "
        "8 s more than the start of the probes, which takes up to a minute with an old bpftrace, more on a loaded host",
        one_of="tests",
    ),
    BACKEND._replace(
        help="with --self-test and --overhead: measure with this backend", needs=_needs("--self-test", "--overhead")
    ),
)
OPTIONS += _declared(
    ("fleet",),
    Option("HOST", "hosts as ssh takes them, at most 32", values.host, dest="hosts", nargs="*", check=_hosts_of_fleet),
    Option(
        "--feed",
        "send frames of this host to the latmon fleet that runs it",
        unlisted_in=("fleet",),
        check=_only_a_feed,
    ),
)
OPTIONS += _declared(
    ("exporter",),
    Option(
        "--listen ADDRESS",
        "HOST:PORT, unix:/PATH, or systemd for the socket that it passes (default 127.0.0.1:9750)",
        values.address,
        unset="127.0.0.1:9750",
    ),
    Option("--web-config FILE", "TLS and passwords, in the format that Prometheus' exporters share", values.file),
    Option(
        "--user NAME",
        "account of the process that answers requests, where latmon is root (default nobody); probes keep root",
        str,
    ),
)
OPTIONS += _declared(
    ("trace",),
    Option("--device NAME", "disk or partition, such as sda or /dev/sda1", values.glob, is_required=True),
    Option("--lba A-B", "only I/Os in these sectors of 512 bytes of the device", values.sectors, one_of="only"),
    Option("--file F", "only I/Os in the blocks that this file has at the start", values.file, one_of="only"),
    Option(
        "--pid P",
        "only I/Os that this process issued",
        values.Number("a process number", values.MAX_PID),
        one_of="only",
    ),
    Option(
        "--cgroup C",
        "only I/Os charged to this cgroup or one below it: a path or its end",
        str,
        unset="",
        one_of="only",
    ),
    Option(
        "--duration DURATION",
        "trace for this time, such as 60s (default 10s)",
        values.positive_duration,
        unset=DEFAULT_TRACE_US,
    ),
    Option(
        "-o, --output FILE",
        "the new recording, - is stdout (default: named by host and time, in the current directory)",
        values.new_file,
        dest="out",
        excludes=(Rule(("--output - --stacks -",), "--output - and --stacks -: standard output is one file"),),
    ),
    Option(
        "--stacks OUT",
        "count the kernel stacks that submitted slow I/Os: folded text, or a flame graph if OUT ends in .svg",
        values.new_file,
    ),
    Option(
        "--user-stacks",
        "with --stacks: also the user stacks and the names of the processes; needs frame pointers",
        needs=_needs("--stacks"),
        excludes=(
            Rule(("--redact",), "{option} names processes and their functions, {part} hides names: leave one out"),
        ),
    ),
    Option(
        "--slow TIME", "with --stacks: from this latency on (default 10ms)", THRESHOLD.kind, needs=_needs("--stacks")
    ),
    Option(
        "--max-ios N",
        f"end soon after so many I/Os (default {values.MAX_IOS // 5:,}, at most {values.MAX_IOS:,})",
        values.Number("a number of I/Os", values.MAX_IOS),
        unset=values.MAX_IOS // 5,
    ),
    Option(
        "--max-rate N",
        f"leave out I/Os above so many a second (default and at most {values.MAX_IOS_PER_S:,})",
        values.Number("a number of I/Os a second", values.MAX_IOS_PER_S),
        unset=values.MAX_IOS_PER_S,
    ),
)
OPTIONS += _declared(
    ("probes", "rules"),
    Option("action", "default list", values.OneOf(lambda: ("list", "show")), nargs="?", unset="list"),
    _NAME._replace(commands=("probes",), help="with show: a probe or a group of probes"),
    _NAME._replace(commands=("rules",), usage="RULE", help="with show: only this rule (default: all rules)"),
)
OPTIONS += _declared(
    ("config",),
    Option(
        "action",
        "show each setting and where it was set (the default), check files, edit your own file in $VISUAL or "
        "$EDITOR, at first with a sample of all settings, or print the JSON Schema of a file, for editors",
        values.OneOf(lambda: ("show", "check", "edit", "schema")),
        nargs="?",
        unset="show",
    ),
    Option(
        "FILE",
        "with check: this file (default: both files)",
        values.file,
        dest="file",
        nargs="?",
        needs=(Rule(("action check",), "`latmon config {action}` takes no file: `latmon config check {file}`"),),
    ),
)
OPTIONS += _declared(
    _MEASURING,
    BACKEND,
    INTERVAL,
    THRESHOLD,
    STAGES._replace(commands=(*_CAPTURES, "watch")),
    STAGES._replace(commands=("exporter",), unset="basic", help=f"{_TRACED} basic"),
    MAX_OVERHEAD,
    Option(
        "--invasive PROBE",
        "with --backend dtrace: run this probe, which slows the host down (none of latmon's own does); may be repeated",
        str,
        is_repeatable=True,
        unlisted_in=("fleet",),
        needs=(_OF_ONE_HOST,),
        excludes=(_OF_A_HOST,),
    ),
    Option(
        "--device GLOB",
        "only devices that match; may be repeated",
        values.glob,
        is_repeatable=True,
        commands=(*_WATCHED, "exporter", "watch", "export"),
        excludes=(
            Rule(
                ("--record",),
                "{option} selects what is shown: --record writes all devices of the demo",
                commands=("demo",),
            ),
        ),
    ),
)
OPTIONS += _declared(
    _WATCHED,
    Option(
        "--once",
        "print one screen as plain text after the first window, or after --duration; COLUMNS x LINES, else the "
        "terminal's size, else 80x24",
        commands=_CAPTURES,
        excludes=(Rule(("--inline", "--tui"), _ONE_OUTPUT),),
    ),
    Option(
        "--once",
        "print one screen as plain text as of the end; COLUMNS x LINES, else the terminal's size, else 80x24",
        commands=("replay", "demo"),
        excludes=(Rule(("--inline",), _ONE_OUTPUT),),
    ),
    Option(
        "--inline",
        "show a strip of a few lines below the prompt: the first devices and a finding",
        excludes=(Rule(("--tui",), _ONE_OUTPUT), _IN_A_FILE),
    ),
    BELL._replace(commands=(*_CAPTURES, "demo"), excludes=(*_ON_SCREEN, *BELL.excludes)),
    Option(
        "--baseline PATH",
        "compare with recordings of the same hour of another day: a file, or a directory of `latmon watch --record`",
        values.file,
        commands=("live",),
        excludes=(
            _NOT_WITHOUT_A_SCREEN,
            Rule(("--once",), "{option} compares minutes: it goes without {part}"),
            _not_of_prometheus("latencies of this host's devices"),
        ),
    ),
)
OPTIONS += _declared(
    ("export",),
    Option(
        "--screen NAME",
        "screen to draw: overview (the default), maps, zoom, stages, files, in-flight, slow-ios, ...",
        values.ScreenName(_drawn_screens),
        needs=_needs("--to svg", "--to text", "--to cast"),
    ),
    Option(
        "--size 80x24",
        "columns x lines of the screen (default 80x24)",
        values.screen_size,
        commands=("demo", "export"),
        needs=_AS_PICTURE,
    ),
    Option(
        "--at TIME",
        "time to draw: 90s after the begin, 14:05:30, or an RFC 3339 time (default: the end; cast: the begin)",
        str,
        commands=("demo", "export"),
        needs=_AS_PICTURE,
    ),
    Option(
        "--speed SPEED",
        "cast: play this many times as fast (default 1)",
        values.cast_speed,
        commands=("demo", "export"),
        needs=_needs("--cast", "--to cast"),
    ),
    Option(
        "--duration DURATION",
        "cast: show only this much of the recording",
        values.positive_duration,
        needs=_needs("--to cast"),
    ),
    Option(
        "--cast-version",
        "cast: version of the file (default 2, which all players read)",
        values.OneOf(lambda: ("2", "3")),
        needs=_needs("--to cast"),
    ),
    heading=PICTURES,
)
OPTIONS += _declared(
    _WATCHED,
    VIEW,
    SORT,
    FILTER,
    WINDOW,
    COLUMNS,
    SCREEN,
    OP,
    MOUSE,
    THEME._replace(commands=(*_WATCHED, "export")),
    RAMP._replace(commands=(*_WATCHED, "export")),
    heading=SCREEN_HEADING,
    excludes=_ON_SCREEN,
)
OPTIONS += _declared(
    ("live",),
    Option(
        "COMMAND",
        "with --record FILE: record while this command and its arguments run, as the user who called sudo; the exit "
        "code is the command's",
        values.word,
        dest="workload",
        nargs="*",
        is_behind_dashes=True,
        needs=(Rule(("--record",), "a command behind -- needs {parts}"),),
        excludes=(
            Rule(("--record -",), "COMMAND writes to standard output: it goes without {part}, and needs --record FILE"),
            Rule(("--tui", "--inline", "--once"), "COMMAND has the terminal: it goes without {part}"),
            Rule(("--duration",), "COMMAND ends the recording: it goes without {part}"),
            Rule((f"--backend {PROMETHEUS}",), "COMMAND runs on this host: it goes without {part}"),
        ),
    ),
)
OPTIONS += _declared(
    _CAPTURES,
    Option(
        "--record FILE",
        "record to FILE without a screen; - is stdout",
        values.new_file,
        commands=("live",),
        excludes=(_NOT_ONCE, _NOT_IN_A_STRIP),
    ),
    Option(
        "--record DIR",
        "record without a screen, each host to a file in DIR",
        values.new_path,
        commands=("fleet",),
        excludes=(
            Rule(("--record -",), "{option} of a fleet needs a directory: each host has a file of its own"),
            _NOT_ONCE,
        ),
    ),
    Option(
        "--record PATH",
        "record all the time: a new file, or a directory, in which the file is named by host and time",
        values.new_file,
        commands=("watch",),
        excludes=(
            Rule(("--record -",), "{option} of watch needs a file or a directory: a service's recording has parts"),
        ),
    ),
    Option(
        "--duration DURATION",
        "end after this time, such as 60s or 5min; also with --once and --inline",
        values.positive_duration,
        needs=_needs("--record", "--once", "--inline"),
        excludes=(_NOT_IN_A_STRIP,),
    ),
    Option(
        "--timeout TIMEOUT",
        "with --once and --record: begin after this time without hosts that are not ready (default: 12s for "
        "connections, 30s for probes)",
        values.positive_duration,
        commands=("fleet",),
        needs=(Rule(("--once", "--record"), _WAITED_FOR),),
        excludes=(Rule(("--inline", "--tui"), _WAITED_FOR),),
    ),
    Option(
        "--max-size SIZE",
        "keep all parts together below SIZE, such as 512M",
        values.Size(values.MIN_SIZE, "2M, too little for a recording in parts"),
        commands=("live", "watch"),
        needs=_needs("--record"),
        excludes=(_IN_A_FILE,),
    ),
    Option(
        "--keep TIME",
        "remove parts older than TIME, such as 7d",
        values.age,
        commands=("live", "watch"),
        needs=_needs("--record"),
        excludes=(_IN_A_FILE,),
    ),
    Option(
        "--redact",
        "do not write names that may identify hosts or their users",
        commands=(*_CAPTURES, "watch", "trace"),
        needs=_needs("--record", commands=_CAPTURES),
        excludes=(_not_of_prometheus("devices: the names of a Prometheus's instances are those of hosts"),),
    ),
    Option(
        "--tui",
        "show the screen while recording",
        needs=_needs("--record"),
        excludes=(_IN_A_FILE, _not_of_prometheus("a capture of this host: take --record FILE without a screen")),
    ),
    heading=RECORDING,
)
OPTIONS += _declared(
    _MEASURING,
    Option("-q, --quiet", "log warnings and errors alone, without a screen", one_of="levels"),
    Option("-v, --verbose", "log what is not measured, and progress, too", one_of="levels"),
    Option("--log-file LOG", "append what is logged to LOG, with times", values.log_file, check=_log_beside_recording),
    heading="log",
    needs=(Rule(("--record",), _LOGGED, commands=_CAPTURES),),
    excludes=(Rule(("--inline", "--tui"), _LOGGED, commands=_CAPTURES),),
)
OPTIONS += _declared(
    ("live",),
    Option("--url URL", "http://HOST:9090 or https://USER@HOST of a Prometheus", str),
    Option("--select GLOB", "only hosts (label instance) that match", values.glob),
    Option("--password-file FILE", "has the password of USER; without it LATMON_PROMETHEUS_PASSWORD", values.file),
    heading=f"--backend {PROMETHEUS}: many hosts",
    needs=_needs(f"--backend {PROMETHEUS}"),
)
OPTIONS += _declared(
    ("report", "diff", "check", "export"),
    _MAX_MEMORY,
    _MAX_MEMORY._replace(commands=("replay",), help=_MAX_MEMORY.help.replace("256M", "1G")),
)


def of_command(name: str) -> list[Option[Any]]:
    """Return the options and arguments of a command; `live` is the command without a name."""
    return [option for option in OPTIONS if name in option.commands]
