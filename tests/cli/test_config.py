"""The user's defaults; a mistake names file and key."""

import errno
import os
import re
from pathlib import Path
from random import Random

import pytest
from hostile import YAML_SPLINTERS, cases, mutated

from latmon.cli import config, options
from latmon.cli.config import Config
from latmon.cli.main import run as main
from latmon.findings.rule import DEFAULT
from latmon.findings.rules import peer_outlier
from latmon.support.errors import UsageError
from latmon.support.text import clean


@pytest.fixture
def home(tmp_path):
    (tmp_path / "cfg/latmon").mkdir(parents=True)
    return tmp_path


def load(home, text=None, system=None):
    if text is not None:
        (home / "cfg/latmon/config.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    if system is not None:
        (home / "system.yaml").write_text(system)
    return config.load({"XDG_CONFIG_HOME": str(home / "cfg")}, home / "system.yaml")


def test_no_file_says_nothing(home):
    assert load(home) == Config()


def test_an_empty_file_says_nothing(home):
    assert load(home, "# nothing\n") == Config()


def test_every_key(home):
    text = "theme: light\ninterval: 500ms\nbackend: procfs\nbpftrace: /opt/bpftrace\n"
    text += "dtrace: /opt/dtrace\nthreshold: 1s\n"
    assert load(home, text) == Config(
        {
            "theme": "light",
            "interval": 500_000,
            "backend": "procfs",
            "bpftrace": "/opt/bpftrace",
            "dtrace": "/opt/dtrace",
            "threshold": 1_000_000,
        }
    )


def test_a_bare_number_is_seconds(home):
    assert load(home, "interval: 2\n")[options.INTERVAL] == 2_000_000


def test_when_stages_are_traced_and_at_what_price(home):
    actual_config = load(home, "stages: all\nbudget_percent: 2.5\nmax_overhead: 20\n")
    assert actual_config.values == {"stages": "all", "budget_percent": 2.5, "max_overhead": 20}
    assert load(home, "budget_percent: 0\n")[options.BUDGET_PERCENT] == 0


def test_maps_sweep_only_where_it_is_asked_for(home):
    assert [load(home, text)[options.SWEEP] for text in ("", "sweep: true\n", "sweep: no\n", 'sweep: "true"\n')] == [
        None,
        True,
        False,
        True,
    ]


def test_the_users_file_beats_the_systems(home):
    assert load(home, "theme: mono\n", "theme: dark\ninterval: 5s\n") == Config(
        {"theme": "mono", "interval": 5_000_000}
    )


def test_without_xdg_it_is_below_home(tmp_path):
    (tmp_path / ".config/latmon").mkdir(parents=True)
    (tmp_path / ".config/latmon/config.yaml").write_text("theme: dark")
    loaded = config.load({"HOME": str(tmp_path), "XDG_CONFIG_HOME": "relative"}, tmp_path / "none")
    assert loaded[options.THEME] == "dark"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("colour: red", r"config.yaml:1: unknown key 'colour'; the keys are theme, ramp, interval"),
        ("1: red", r"config.yaml:1: unknown key 1"),
        ("interval: 10ms", r"config.yaml:1: interval: '10ms' is not an interval from 100ms to 1m"),
        ("interval: [1s]", r"config.yaml:1: interval: expected a text or a number, not a list"),
        ("stages: some", r"config.yaml:1: stages: 'some' is not one of auto, basic, all"),
        ("budget_percent: 101", r"config.yaml:1: budget_percent: '101' is not a share of one CPU from 0 \(no limit\)"),
        ("budget_percent: nan", r"config.yaml:1: budget_percent: 'nan' is not a share"),
        ("sweep: 2", r"config.yaml:1: sweep: '2' is not true or false"),
        ("sweep: [true]", r"config.yaml:1: sweep: expected `true` or `false`, not a list"),
        ("threshold: yes", r"config.yaml:1: threshold: expected a text or a number, not `true` or `false`"),
        ("theme: 2001-01-01", r"config.yaml:1: theme: expected a text or a number, not a date"),
        ("theme:", r"config.yaml:1: theme: expected a text or a number, not an empty value"),
        ("theme: {a: b}", r"config.yaml:1: theme: expected a text or a number, not keys with values"),
        ("interval: 1" + "0" * 5000, r"config.yaml:1: not valid YAML: '10+\S*' is no date or number"),
        ("interval: 1" + ":00" * 200 + ".0", r"config.yaml:1: not valid YAML: '1:00\S*' is no date or number"),
        ("theme: dark\ninterval: 2001-99-99", r"config.yaml:2: not valid YAML: '2001-99-99' is no date or number"),
        *(
            (f"theme: dark\ninterval: {tagged}", r"config.yaml:2: not valid YAML: tags are not allowed")
            for tagged in ('!!bool "x"', '!!timestamp "x"', '!!int ""', '!!float ""', "!!set [a]", "! x", "!!str x")
        ),
        ('theme: "a\\x1bb"', r"config.yaml:1: theme: .* is not a name"),
        ("theme: ''", r"config.yaml:1: theme: '' is not a name"),
        ("- theme", r"config.yaml: expected lines of `key: value`"),
        ("a: b: c", r"config.yaml:1: not valid YAML"),
        ("theme: !!python/object/apply:os.system [true]", r"config.yaml:1: not valid YAML"),
        (b"\xff\xfe\x00", r"config.yaml: not valid YAML"),
        (
            "theme: dark\nfilter: gr\xfcn".encode("latin-1"),
            r"config.yaml:2: not UTF-8: byte 0xfc; save the file as UTF-8",
        ),
        ("theme: dark\n\ninterval: 10ms", r"config.yaml:3: interval"),
        ("views:\n  a:\n    sort: p99\n    windows: 3", r"config.yaml:4: views: a: unknown key 'windows'"),
        ("findings:\n  starved-io: off\n  peers: off", r"config.yaml:3: findings: there is no rule 'peers'"),
        ("findings:\n  softirq-delay:\n    tail: 2", r"config.yaml:3: findings: softirq-delay: tail"),
        ("[" * 60_000, r"config.yaml"),
        ("x" * 70_000, r"config.yaml: longer than 65536 bytes"),
    ],
)
def test_mistakes(home, text, why):
    with pytest.raises(UsageError, match=why):
        load(home, text)


def test_a_directory_in_its_place(home):
    (home / "cfg/latmon/config.yaml").mkdir()
    with pytest.raises(UsageError, match="not a regular file"):
        load(home)


def test_another_users_file_is_refused_with_a_remedy(home, monkeypatch):
    """The state is that after `su -m`; root may read any file."""
    (home / "cfg/latmon/config.yaml").write_text("")
    denied = PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr(config.paths, "regular", lambda *_: (_ for _ in ()).throw(denied))
    with pytest.raises(UsageError, match="Permission denied; set XDG_CONFIG_HOME to another directory"):
        load(home)


def test_a_pipe_in_its_place_is_not_waited_for(home):
    os.mkfifo(home / "cfg/latmon/config.yaml")
    with pytest.raises(UsageError, match="not a regular file"):
        load(home)


def test_the_rules_numbers_and_which_are_off(home):
    settings = load(home, "findings:\n  peer-outlier: {octaves: 3}\n  bimodal-tail: off\n  starved-io: on\n").findings
    assert settings.of(peer_outlier.RULE)["octaves"] == 3.0
    assert settings.of(peer_outlier.RULE)["run"] == DEFAULT.of(peer_outlier.RULE)["run"]
    assert settings.off == {"bimodal-tail"}
    assert load(home, "theme: dark\n").findings == DEFAULT


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("findings: off", "expected a section of rules"),
        ("findings: {peers: off}", "no rule 'peers'; the rules are io-errors"),
        ("findings: {peer-outlier: 3}", "peer-outlier: expected off, or numbers by name: octaves"),
        ("findings: {peer-outlier: {octave: 3}}", "no number 'octave'; it has octaves"),
        ("findings: {softirq-delay: {tail: 2}}", "tail: 2 is not a number from 0 to 1 (share)"),
        ("findings: {softirq-delay: {tail: yes}}", "tail: True is not a number"),
        ("findings: {softirq-delay: {tail: .nan}}", "tail: nan is not a number"),
        ("findings: {softirq-delay: {tail: [1]}}", "is not a number"),
    ],
)
def test_a_rule_that_is_wrong_is_named(home, text, says):
    with pytest.raises(UsageError) as caught:
        load(home, text)
    assert says in str(caught.value)
    assert "config.yaml:1: findings" in str(caught.value)


def test_what_the_screen_shows_first(home):
    text = "sort: P99\nfilter: -sda\nwindow: 5min\ncolumns: [iops, max]\nscreen: 4\nop: write\nmouse: false\n"
    assert load(home, text).values == {
        "sort": "p99",
        "filter": "-sda",
        "window": 300_000_000,
        "columns": ("IOPS", "max"),
        "screen": "outliers",
        "op": "write",
        "mouse": False,
    }
    assert load(home, "columns: p50,p99\n")[options.COLUMNS] == ("p50", "p99")


def test_saved_views(home):
    actual_config = load(home, "views:\n  slow: {sort: max, columns: [p99]}\n  all: {}\nview: slow\n")
    assert actual_config.views == {"slow": {"sort": "max", "columns": ("p99",)}, "all": {}}
    assert actual_config[options.VIEW] == "slow"


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("sort: size\n", "sort: 'size' is not one of unlike, p99"),
        ("window: 1h\n", "window: '1h' is not a window from 15s"),
        ("columns: [IOPS, q]\n", "columns: 'q' is not one of device, label"),
        ("screen: 8\n", "screen: '8' is not one of overview, maps"),
        ("filter: " + "a" * 41 + "\n", "is not a filter of at most 40 printable characters"),
        ("views: slow\n", "views: expected a section"),
        ("views: {'': {sort: max}}\n", "views: a view needs a name"),
        ("views: {' ': {sort: max}}\n", "views: a view needs a name"),
        ("views: {slow: p99}\n", "views: slow: expected a section with the keys sort, filter"),
        ("views: {slow: {theme: dark}}\n", "views: slow: unknown key 'theme'; the keys are sort, filter"),
        ("views: {slow: {sort: size}}\n", "views: slow: sort: 'size' is not one of"),
    ],
)
def test_a_mistake_in_what_the_screen_shows_names_its_place(home, text, output):
    with pytest.raises(UsageError, match=r"config\.yaml") as raised:
        load(home, text)
    assert output in str(raised.value)


SAMPLE = b"""theme: light
interval: 500ms
threshold: 1s
stages: all
budget_percent: 2.5
columns: [IOPS, p99, max]
findings:
  peer-outlier: off
  softirq-delay: {tail: 0.5}
views:
  slow: {sort: max, window: 2min, filter: "!sda"}
"""
SPLINTERS = (*YAML_SPLINTERS, b"|\n", b"~", b"\t", b"\xe2\x80\xae", b"views:", b"findings:")


@pytest.mark.parametrize(("seed", "count"), cases(300))
def test_a_mutated_config_is_read_or_refused_in_one_sentence(tmp_path, seed, count):
    draw, refusals, path = Random(seed), [], tmp_path / "config.yaml"
    for _ in range(count):
        path.unlink(missing_ok=True)  # ext4 writes a file to the disk that is truncated and closed
        path.write_bytes(mutated(SAMPLE, draw, [SAMPLE], SPLINTERS))
        try:
            config.load_file(path)
        except UsageError as error:
            refusals.append(str(error))
    assert 0 < len(refusals) < count
    assert [refusal for refusal in refusals if clean(refusal, 10_000) != refusal] == []


@pytest.fixture
def command(home, monkeypatch, capsys):
    """Run `latmon config ...` with a system's file and a user's; it returns exit code, stdout, stderr."""
    monkeypatch.setattr(config, "SYSTEM", home / "system.yaml")
    monkeypatch.setattr(config.load, "__defaults__", (home / "system.yaml", None))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "cfg"))
    for name in ("SUDO_UID", "LATMON_BPFTRACE", "VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)

    def run(*words):
        code = main(["config", *words])
        return code, *capsys.readouterr()

    return run


def rows(text):
    return {tuple(re.split(r"  +", line.strip())) for line in text.splitlines()}


def test_each_setting_is_shown_with_its_place(home, command, monkeypatch):
    own, system = home / "cfg/latmon/config.yaml", home / "system.yaml"
    load(
        home,
        "# mine\ninterval: 500ms\ncolumns: [IOPS, p99]\nfindings: {tick-quantum: off}\n",
        "stages: basic\ninterval: 2s\nfindings:\n  peer-outlier: {octaves: 4}\n  tick-quantum: {share: 0.5}\n",
    )
    monkeypatch.setenv("LATMON_BPFTRACE", "/opt/bpftrace")
    code, out, err = command()
    assert (code, err) == (0, "")
    assert {
        ("interval", "500ms", f"{own}:2"),
        ("columns", "[IOPS, p99]", f"{own}:3"),
        ("stages", "basic", f"{system}:1"),
        ("bpftrace", "/opt/bpftrace", "LATMON_BPFTRACE"),
        ("theme", "dark", "default"),
        ("findings: tick-quantum", "false", f"{own}:4"),
        ("findings: peer-outlier", "{octaves: 4}", str(system)),
    } <= rows(out)


def test_a_file_is_checked_by_itself(home, command):
    file = home / "x.yaml"
    file.write_text("stages: all\nview: disks\nviews: {disks: {sort: max}}\ntheme: light\n")
    assert command("check", str(file)) == (0, f"{file}: no mistake\n", "")
    for text, line, why in (
        ("stages: all\nintervall: 1s\n", 2, "unknown key 'intervall'"),
        ("theme: none-such\n", 1, "no theme 'none-such'"),
        ("\nramp: none-such\n", 2, "no ramp 'none-such'"),
        ("view: none-such\n", 1, "no saved view"),
    ):
        file.write_text(text)
        code, out, err = command("check", str(file))
        assert (code, out) == (2, "")
        assert f"{file}:{line}: " in err
        assert why in err
    file.unlink()
    strange = home / "a: findings: peer-outlier"  # a directory's name may have the words of a mistake
    strange.mkdir()
    (strange / "x.yaml").write_text("stages: all\nfindings:\n  peer-outlier: off\n  tick-quantum: maybe\n")
    assert command("check", str(strange / "x.yaml"))[2].startswith(f"latmon: {strange}/x.yaml:4: findings: ")
    assert command("check", str(file))[::2] == (2, f"latmon: {file}: No such file\n")
    assert command("check", "x" * 300)[2].endswith("x: File name too long\n")


def test_both_files_are_checked_without_a_name(home, command):
    load(home, system="stages: all\n")
    code, out, _ = command("check")
    own = home / "cfg/latmon/config.yaml"
    assert (code, out) == (0, f"{home / 'system.yaml'}: no mistake\n{own}: there is none\n")


def test_an_edited_file_begins_with_the_sample_and_is_checked(home, command, monkeypatch):
    own = home / "cfg/latmon/config.yaml"
    monkeypatch.setenv("EDITOR", "sed -i s/^#stages:.*/stages:basic/")
    code, _, err = command("edit")
    assert (code, own.stat().st_mode & 0o777) == (2, 0o600), "the editor made a mistake: there is no blank"
    assert str(own) in err
    monkeypatch.setenv("VISUAL", "sed -i 's/^stages:/stages: /'")
    assert command("edit") == (0, f"{own}: no mistake\n", "")
    assert load(home)[options.STAGES] == "basic", "and the file was not replaced by the sample"


@pytest.mark.parametrize(
    ("editor", "why"), [("none-such", "is not installed"), ("'", "is not installed"), ("false", "ended with 1")]
)
def test_an_editor_that_fails_is_named(command, monkeypatch, editor, why):
    monkeypatch.setenv("EDITOR", editor)
    code, _, err = command("edit")
    assert code == 3
    assert why in err


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for whom editors are checked")
def test_root_starts_no_editor_of_another_user(home, command, monkeypatch):
    editor = home / "editor"
    editor.write_text(f"#!/bin/sh\ntouch {home}/ran\n")
    editor.chmod(0o755)
    os.chown(editor, 64123, -1)
    monkeypatch.setenv("EDITOR", str(editor))
    code, _, err = command("edit")
    assert code == 3
    assert "belongs to uid 64123" in err
    assert not (home / "ran").exists()


def test_only_check_takes_a_file(command):
    code, _, err = command("show", "x.yaml")
    assert code == 2
    assert "`latmon config check x.yaml`" in err


def test_the_defaults_are_those_of_the_page():
    page = (Path(__file__).parents[2] / "docs/CONFIG.md").read_text("utf-8")
    table = [re.split(r" *\| *", line) for line in page.splitlines() if line.startswith("| `")]
    documented = {
        key: row[3].replace("`", "") for row in table if len(row) > 5 for key in re.findall(r"`(\w+)`", row[1])
    }
    assert {key: documented[key] for key in options.SETTINGS} == {
        key: setting.default for key, setting in options.SETTINGS.items()
    }
