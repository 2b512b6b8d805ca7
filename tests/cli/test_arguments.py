"""The command line's words. Every mistake is a sentence that names the option."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latmon.cli import arguments, config, options
from latmon.cli.commands import _request, _screen
from latmon.support import errors
from latmon.support.errors import EXIT_USAGE, UsageError


def test_no_words_are_the_live_screen():
    args = arguments.parse([])
    assert args.command == "live"
    assert args.record is args.backend is args.interval is None
    assert args.device == []


def test_everything_of_a_capture():
    line = "--record f --duration 5m --max-size 512M --redact --tui --backend procfs --interval 250ms --threshold 1s"
    line += " --stages all"
    args = arguments.parse([*line.split(), "--device", "sd*", "--device", "nvme0n1", "--theme", "mono"])
    assert args.record == Path.cwd() / "f"
    assert (args.duration, args.max_size, args.interval, args.threshold) == (300_000_000, 512 << 20, 250_000, 1_000_000)
    assert args.stages == "all"
    assert args.redact
    assert args.tui
    assert args.device == ["sd*", "nvme0n1"]


def test_a_command_to_measure_is_all_that_is_behind_the_dashes():
    args = arguments.parse(["--record", "f", "--redact", "--", "fio", "--record", "x", "--", "y"])
    assert (args.workload, args.redact, args.record) == (["fio", "--record", "x", "--", "y"], True, Path.cwd() / "f")
    assert arguments.parse(["--record", "f"]).workload == []


def test_other_commands():
    assert arguments.parse(["replay", "a", "b", "--speed", "2.5"]).speed == 2.5
    assert arguments.parse(["report", "a", "--json"]).json
    assert arguments.parse(["demo", "--seed", "7"]).seed == 7
    assert arguments.parse(["demo", "host", "--record", "x"]).record == Path.cwd() / "x"
    assert arguments.parse(["doctor", "--json"]).json
    assert arguments.parse(["probes"]).action == "list"
    assert arguments.parse(["probes", "show", "block"]).name == "block"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--interval 5x", "--interval: '5x' is not a duration such as 250ms"),
        ("--interval 99ms", "--interval: '99ms' is not an interval from 100ms to 1m"),
        ("--interval 61s", "--interval: '61s' is not an interval"),
        ("--interval", "--interval: expected one argument"),
        ("--stages some", "--stages: 'some' is not one of auto, basic, all"),
        ("--threshold -1s", "--threshold: expected one argument"),
        ("--record f --duration 0", "--duration: '0' is not a duration above zero"),
        ("--record f --max-size 1k", "--max-size: '1k' is less than 2M"),
        ("--record f --keep 1s", "--keep: '1s' is less than a minute"),
        ("--record f --keep x", "--keep: 'x' is not a duration"),
        ("-- fio", "a command behind -- needs --record FILE"),
        ("--record f --", "-- needs a command behind it: latmon --record FILE -- COMMAND"),
        ("--record f fio", "unrecognized arguments: fio"),
        ("--record f --tui -- fio", "COMMAND has the terminal: it goes without --tui"),
        ("--record - -- fio", "COMMAND writes to standard output"),
        ("--record f --duration 3s -- fio", "COMMAND ends the recording: it goes without --duration"),
        ("report a --runs --slo 5ms", "--runs compares as latmon diff does, without --slo"),
        ("trace", "the following arguments are required: --device"),
        ("trace --device a --lba 5", "--lba: '5' is not a range of sectors such as 2048-4095"),
        ("trace --device a --lba 9-3", "--lba: '9-3' ends before it begins"),
        ("trace --device a --lba 1-2 --pid 3", "--pid: not allowed with argument --lba"),
        ("trace --device a --pid 0", "--pid: '0' is not a process number from 1 to 4,194,303"),
        ("trace --device a --max-rate 20001", "--max-rate: '20001' is not a number of I/Os a second from 1 to 20,000"),
        ("trace --device a --slow 1ms", "--slow needs --stacks OUT"),
        ("trace --device a --user-stacks", "--user-stacks needs --stacks OUT"),
        ("trace --device a --stacks x --user-stacks --redact", "--user-stacks names processes and their functions"),
        ("trace --device a -o - --stacks -", "--output - and --stacks -: standard output is one file"),
        ("--keep 7d", "--keep needs --record FILE"),
        ("--record f --max-size x", "--max-size: 'x' is not a size such as 512M"),
        ("--duration 5s", "--duration needs --record FILE"),
        ("--once --inline", "--once and --inline are different outputs: choose one"),
        ("--inline --tui --record f", "--inline and --tui are different outputs"),
        ("--once --theme light", "--once prints plain text: it goes without --theme"),
        ("replay a --once --no-mouse", "--once prints plain text: it goes without --no-mouse"),
        ("demo --once --ramp mono", "--once prints plain text: it goes without --ramp"),
        ("--once --record f", "--once records nothing: with --record FILE take --inline or --tui"),
        ("--inline --record -", "--inline needs a file: --record - is one stream"),
        ("--bell --once", "--bell needs a screen"),
        ("--baseline d --once", "--baseline compares minutes: it goes without --once"),
        ("--baseline d --record f", "--baseline needs a screen"),
        ("--bell --record f", "--bell needs a screen"),
        ("--max-size 5M", "--max-size needs --record FILE"),
        ("--redact", "--redact needs --record FILE"),
        ("--backend prometheus --url http://x --record f --redact", "prometheus goes without --redact, which needs"),
        ("--quiet", "--quiet is for a log: it needs --record FILE"),
        ("--log-file l --record f --tui", "--log-file is for a log"),
        ("--log-file - --record f", "--log-file: expected the name of a file: what is logged is on stderr"),
        ("--log-file d/../f --record f", "--log-file and --record name the same file"),
        ("watch --log-file f --record f", "--log-file and --record name the same file"),
        ("fleet h --verbose --once", "--verbose is for a log"),
        ("watch --quiet --verbose", "not allowed with argument"),
        ("--tui", "--tui needs --record FILE"),
        ("--rec f", "unrecognized arguments: --rec f"),
        ("top", "there is no command 'top'; the commands are replay, report, "),
        ("replay", "the following arguments are required: FILE"),
        ("replay x --speed nan", "--speed: 'nan' is not a speed"),
        ("replay x --speed -1", "--speed: "),
        ("report", "FILE"),
        ("report x --json --text", "--text: not allowed with argument --json"),
        ("demo --seed -5", "--seed"),
        ("demo emulex --tour --record f", "--tour is on the screen or in a --cast FILE and goes without --record"),
        ("demo --tour --list", "goes without --list"),
        ("demo --duration 5s", "--duration needs --record FILE"),
        ("demo --tour --svg f", "--tour is on the screen or in a --cast FILE and goes without --svg"),
        ("demo --tour --cast f --duration 5s", "--tour has its own length and devices: it goes without --duration"),
        ("demo --record f --cast g", "--record and --cast are different outputs"),
        ("demo --once --svg f", "--svg and --once are different outputs"),
        ("demo --svg - --cast -", "standard output is one file"),
        ("demo --size 80x24", "--size needs --svg FILE, --cast FILE or --once"),
        ("demo --svg f --speed 2", "--speed needs --cast FILE"),
        ("demo --bell --cast f", "--bell needs a screen"),
        ("replay a --once --inline", "--once and --inline are different outputs"),
        ("replay a b --once", "--once prints the end of one recording: name one FILE"),
        ("demo --seed 1.5", "--seed: '1.5' is not a whole number"),
        ("probes drop", "action: 'drop' is not one of list, show"),
        ("probes list block", "`latmon probes list` takes no name: `latmon probes show block`"),
        ("rules list extra", "`latmon rules list` takes no name: `latmon rules show extra`"),
        ("rules show a b", "unrecognized arguments: b"),
        ("demo emulex --list", "--list lists all scenarios: it takes no SCENARIO"),
        ("demo --list --record f", "--list and --record are different outputs"),
        ("demo --record f --device sda", "--record writes all devices of the demo"),
        ("--record f --filter sda", "--filter needs a screen: --record FILE records everything"),
        ("--record f --theme nope", "--theme needs a screen"),
        ("--record - --no-mouse", "--no-mouse needs a screen"),
        ("demo --record f --sort p99", "--sort needs a screen: --record writes all of the demo"),
        ("demo --list --ramp mono", "--ramp needs a screen"),
        ("--inline --screen maps", "--inline shows the first devices and a finding: it goes without --screen"),
        ("replay a --inline --screen 3", "goes without --screen"),
        ("replay a --once --speed 2", "--speed plays a recording, and --once prints its end"),
        ("replay a --once --speed 0", "--speed plays a recording, and --once prints its end"),
        ("report a --ramp mono", "--ramp needs --html OUT"),
        ("import a -o b --key id", "--key needs --events A,B"),
        ("doctor --backend procfs", "--backend needs --self-test or --overhead"),
        ("doctor --overhead --self-test", "not allowed with argument --overhead"),
        ("--max-overhead 101", "--max-overhead: '101' is not a share of one CPU"),
        ("check a -o b", "-o needs --repair"),
        ("check a --repair", "--repair needs -o OUT"),
        ("live", "there is no command 'live'; the commands are"),
        ("reprot a", "there is no command 'reprot'; did you mean report?"),
        ("help reprot", "there is no command 'reprot'; did you mean report?"),
        ("--recrod f", "unrecognized arguments: --recrod f; did you mean --record? (`latmon --help`"),
        ("replay a --sped=2", "unrecognized arguments: --sped=2; did you mean --speed?"),
        ("report a --zzzz", "unrecognized arguments: --zzzz (`latmon report --help`"),
        ("--theme light demo --once", "a command comes before its options: latmon demo --OPTION... (`latmon --help`"),
        ("-v report f", "a command comes before its options: latmon report --OPTION..."),
        ("--history 1h", "unrecognized arguments: --history 1h; history is a key of the config file, not an option"),
        ("report a --theme light", "--theme light; --theme is an option of other commands, such as `latmon` alone"),
        ("watch --record -", "--record of watch needs a file or a directory"),
        ("fleet a --bakend procfs", "unrecognized arguments: --bakend procfs (`latmon fleet --help`"),
        ("fleet", "name the hosts: latmon fleet HOST..."),
        ("fleet a --backend procfs", "--backend is for one host: run `latmon --backend NAME` on the host"),
        ("fleet a --invasive stages_x", "--invasive is for one host: run `latmon --invasive PROBE` on the host"),
        ("fleet a --max-overhead 5", "--max-overhead is for one host: run `latmon --max-overhead PERCENT` on the host"),
        ("fleet a --keep 7d", "unrecognized arguments: --keep 7d"),
        ("fleet a --record -", "--record of a fleet needs a directory"),
        ("fleet a --timeout 5s", "--timeout needs --once, or --record DIR without a screen"),
        ("fleet a --timeout 5s --record d --tui", "--timeout needs --once, or --record DIR without a screen"),
        ("fleet a --once --timeout 0", "--timeout: '0' is not a duration above zero"),
        ("fleet --feed a", "--feed sends frames of this host to the latmon fleet that runs it: it takes no HOST"),
        ("fleet --feed --once", "it takes no --once"),
        ("watch --record /nowhere/latmon/", "there is no directory /nowhere/latmon/: make it first"),
        ("fleet --feed --no-mouse", "it takes no --no-mouse"),
    ],
)
def test_mistakes(line, why):
    with pytest.raises(UsageError) as refusal:
        arguments.parse(line.split())
    assert why in str(refusal.value)
    assert refusal.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    "argv", [["--device", ""], ["--device", "[" * 100_000], ["--record", ""], ["--record", "a\0b"]]
)
def test_empty_values(argv):
    with pytest.raises(UsageError, match=f"^{argv[0]}: expected"):
        arguments.parse(argv)


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["replay", "--help"], ["demo", "-h"]])
def test_help_is_data_on_stdout(argv, capsys):
    with pytest.raises(SystemExit) as left:
        arguments.parse(argv)
    assert left.value.code == 0
    printed = capsys.readouterr()
    assert "latmon" in printed.out
    assert printed.err == ""


def test_rules_name_options_that_their_commands_have():
    """A part of a command line with a name that no option has would never be given."""
    names = {command: {option.name for option in options.of_command(command)} for command in arguments.COMMANDS}

    def has(command, part):
        return set(re.findall(r"(?:^| )(--?[a-z][a-z-]*|^[a-z]+)", part)) <= names[command]

    for option in options.OPTIONS:
        assert set(option.commands) <= names.keys()
        for rule in (*option.needs, *option.excludes):
            commands = set(option.commands) & set(rule.commands or option.commands)
            if commands:
                assert all(any(has(command, part) for command in commands) for part in (*rule.parts, *rule.unless))
            if rule in option.needs:
                assert all(any(has(command, part) for part in rule.parts) for command in commands)


@pytest.mark.parametrize(
    ("command", "others"),
    [
        ("fleet", ("--backend", "--invasive", "--feed", "--keep", "--max-size", "--url")),
        ("watch", ("--once", "--theme", "--screen", "--url", "--duration")),
        ("exporter", ("--record", "--once", "--theme", "--url", "--redact")),
    ],
)
def test_help_lists_no_option_that_does_not_apply(command, others, capsys):
    with pytest.raises(SystemExit):
        arguments.parse([command, "--help"])
    shown = capsys.readouterr().out
    assert "--interval" in shown
    assert not [one for one in others if f"{one} " in shown or f"{one}\n" in shown or f"[{one}]" in shown]


@pytest.mark.parametrize("command", arguments.COMMANDS)
def test_each_example_of_a_help_is_a_command_line(command, capsys):
    with pytest.raises(SystemExit):
        arguments.parse([*([] if command == "live" else [command]), "--help"])
    shown = capsys.readouterr().out
    for line in arguments.COMMANDS[command].examples:
        assert len(line) < 78
        assert f"\n  {line}\n" in shown
        words = line.removeprefix("sudo ").split()
        assert words[0] == "latmon"
        assert arguments.parse(words[1:]).command == command


@pytest.mark.parametrize(("command", "default"), [("watch", "auto"), ("fleet", "auto"), ("exporter", "basic")])
def test_help_names_when_stages_are_traced_by_default(command, default, capsys):
    with pytest.raises(SystemExit):
        arguments.parse([command, "--help"])
    assert f"devices (all); default {default} " in f"{' '.join(capsys.readouterr().out.split())} "
    assert arguments.parse([command, *(["a"] if command == "fleet" else [])]).stages in (default, None)


@pytest.mark.parametrize("words", [["help"], ["help", "help"]])
def test_help_of_all_has_exit_codes_and_environment(capsys, words):
    with pytest.raises(SystemExit) as left:
        arguments.parse(words)
    shown = capsys.readouterr().out
    assert left.value.code == 0
    assert "\nexit codes:\n" in shown
    assert all(f"\n  {name}" in shown for name in (*arguments.EXIT_CODES, *arguments.ENVIRONMENT))
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert {str(code) for code in codes} == arguments.EXIT_CODES.keys() - {"128+N"}


def test_help_of_one_command_is_its_own(capsys):
    for words in (["help", "check"], ["check", "--help"]):
        with pytest.raises(SystemExit):
            arguments.parse(words)
    first, second = capsys.readouterr().out.split("usage: ")[1:]
    assert first == second


@settings(max_examples=settings.default.max_examples // 5)
@given(st.lists(st.text(max_size=12), max_size=5))
def test_any_line_is_understood_or_refused(argv):
    if argv[:1] == ["help"] or any(word in ("-h", "--help", "--version") or word.startswith("-h") for word in argv):
        return
    try:
        text = vars(arguments.parse(argv))["command"]
    except UsageError as refusal:
        text = str(refusal)
    assert text.isprintable()


@pytest.mark.parametrize(("text", "hours"), [("7d", 168), ("1.5d", 36), ("12h", 12)])
def test_days_are_for_what_is_kept(text, hours):
    assert arguments.parse(["--record", "f", "--keep", text]).keep == hours * 3_600_000_000


@pytest.mark.parametrize("command", [[], ["demo"], ["replay", "f"]], ids=["live", "demo", "replay"])
def test_what_the_screen_shows_first(command):
    given = ["--sort", "MAX", "--filter=-sda", "--window", "2min", "--columns", "iops,P99", "--screen", "maps"]
    args = arguments.parse([*command, *given, "--op", "read", "--view", "slow", "--no-mouse"])
    assert (args.sort, args.filter, args.window, args.columns) == ("max", "-sda", 120_000_000, ("IOPS", "p99"))
    assert (args.screen, args.op, args.view, args.no_mouse) == ("maps", "read", "slow", True)


def test_an_option_beats_the_saved_view_and_that_the_config():
    defaults = config.Config(
        {"sort": "name", "op": "read", "window": 30_000_000}, views={"a": {"sort": "max", "op": "write"}}
    )
    first = _screen(arguments.parse(["demo", "--view", "a", "--op", "flush"]), defaults, "DEMO").selection
    assert (first.sort, first.op, first.window_us) == ("max", "flush", 30_000_000)
    with pytest.raises(UsageError, match=r"--view: 'b' is no saved view of the config, which has a"):
        _screen(arguments.parse(["demo", "--view", "b"]), defaults, "DEMO")
    with pytest.raises(UsageError, match=r"--view: '' is no saved view"):
        _screen(arguments.parse(["demo", "--view", ""]), defaults, "DEMO")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("view: fast\nviews: {slow: {sort: max}}", ":1: view: 'fast' is no saved view of the config, which has slow"),
        ("sort: max\ntheme: darkest", ":2: theme: no theme 'darkest'; there are dark,"),
        ("ramp: red\ntheme: dark", ":1: ramp: no ramp 'red'; there are auto,"),
        ("ramp: red\ntheme: darkest", ":2: theme: no theme 'darkest'"),
    ],
)
def test_a_name_that_the_config_has_is_blamed_on_its_file_and_line(tmp_path, text, says):
    path = tmp_path / "latmon/config.yaml"
    path.parent.mkdir()
    path.write_text(f"{text}\n")
    defaults = config.load({"XDG_CONFIG_HOME": str(tmp_path)}, tmp_path / "none")
    with pytest.raises(UsageError, match=f"^{path}{says}"):
        _screen(arguments.parse(["demo"]), defaults, "DEMO")
    with pytest.raises(UsageError, match=r"^no ramp 'grey'"):
        _screen(
            arguments.parse(["demo", "--theme", "dark", "--ramp", "grey"]),
            replace(defaults, values={**defaults.values, "view": None}),
            "DEMO",
        )


@pytest.mark.parametrize(
    ("words", "limit"), [((), 20.0), (("--max-overhead", "5"), 5.0), (("--max-overhead", "0"), 0.0)]
)
def test_the_limit_of_all_probes_is_that_of_the_config_without_an_option(words, limit):
    assert _request(arguments.parse(words), config.Config({"max_overhead": 20.0}), {}).options.max_overhead == limit


def test_a_screen_has_what_its_capture_has():
    args = arguments.parse(["--device", "sd*", "--threshold", "5ms", "--stages", "all", "--bell"])
    shown = _screen(
        args, config.Config({"sweep": True, "history": 60_000_000}), "LIVE", None, _request(args, config.Config(), {})
    )
    first = shown.selection
    assert (first.globs, first.threshold_us, first.stages, first.sweep) == (("sd*",), 5_000, "all", True)
    assert (shown.mode, shown.bell, shown.history_us, shown.to_worst) == ("LIVE", True, 60_000_000, False)
    replayed = _screen(arguments.parse(["replay", "f"]), config.Config({"bell": True, "mouse": False}), "REPLAY")
    assert (replayed.bell, replayed.takes_mouse, replayed.to_worst) == (False, False, True)
