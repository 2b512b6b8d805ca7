"""The user's defaults; a mistake names file and key."""

import errno
import os
from random import Random

import pytest
from hostile import mutated

from latmon.cli import config
from latmon.cli.config import Config
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
    assert load(home, text) == Config("light", 500_000, "procfs", "/opt/bpftrace", "/opt/dtrace", 1_000_000)


def test_a_bare_number_is_seconds(home):
    assert load(home, "interval: 2\n").interval == 2_000_000


def test_when_stages_are_traced_and_at_what_price(home):
    found = load(home, "stages: all\nbudget_percent: 2.5\n")
    assert (found.stages, found.budget_percent) == ("all", 2.5)
    assert load(home, "budget_percent: 0\n").budget_percent == 0


def test_maps_sweep_only_where_it_is_asked_for(home):
    assert [load(home, text).sweep for text in ("", "sweep: true\n", "sweep: no\n", 'sweep: "true"\n')] == [
        None,
        True,
        False,
        True,
    ]


def test_the_users_file_beats_the_systems(home):
    assert load(home, "theme: mono\n", "theme: dark\ninterval: 5s\n") == Config(theme="mono", interval=5_000_000)


def test_without_xdg_it_is_below_home(tmp_path):
    (tmp_path / ".config/latmon").mkdir(parents=True)
    (tmp_path / ".config/latmon/config.yaml").write_text("theme: dark")
    assert config.load({"HOME": str(tmp_path), "XDG_CONFIG_HOME": "relative"}, tmp_path / "none").theme == "dark"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("colour: red", r"config.yaml:1: unknown key 'colour'; the keys are theme, ramp, interval"),
        ("1: red", r"config.yaml:1: unknown key 1"),
        ("interval: 10ms", r"config.yaml:1: interval: '10ms' is not an interval from 100ms to 1m"),
        ("interval: [1s]", r"config.yaml:1: interval: expected one value, not list"),
        ("stages: some", r"config.yaml:1: stages: 'some' is not one of auto, basic, all"),
        ("budget_percent: 101", r"config.yaml:1: budget_percent: '101' is not a share of one CPU from 0 \(no budget\)"),
        ("budget_percent: nan", r"config.yaml:1: budget_percent: 'nan' is not a share"),
        ("sweep: 2", r"config.yaml:1: sweep: '2' is not true or false"),
        ("sweep: [true]", r"config.yaml:1: sweep: expected one value, not list"),
        ("threshold: yes", r"config.yaml:1: threshold: expected one value, not bool"),
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
    with pytest.raises(UsageError, match="Permission denied; XDG_CONFIG_HOME names another directory"):
        load(home)


def test_a_pipe_in_its_place_is_not_waited_for(home):
    os.mkfifo(home / "cfg/latmon/config.yaml")
    with pytest.raises(UsageError, match="not a regular file"):
        load(home)


def test_the_rules_numbers_and_which_are_off(home):
    found = load(home, "findings:\n  peer-outlier: {octaves: 3}\n  bimodal-tail: off\n  starved-io: on\n").findings
    assert found.of(peer_outlier.RULE)["octaves"] == 3.0
    assert found.of(peer_outlier.RULE)["run"] == DEFAULT.of(peer_outlier.RULE)["run"]
    assert found.off == {"bimodal-tail"}
    assert load(home, "theme: dark\n").findings == DEFAULT


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("findings: off", "expected a section of rules"),
        ("findings: {peers: off}", "no rule 'peers'; the rules are starved-io"),
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
    found = load(home, text)
    assert (found.sort, found.filter, found.window, found.columns) == ("p99", "-sda", 300_000_000, ("IOPS", "max"))
    assert (found.screen, found.op, found.mouse) == ("outliers", "write", False)
    assert load(home, "columns: p50,p99\n").columns == ("p50", "p99")


def test_saved_views(home):
    found = load(home, "views:\n  slow: {sort: max, columns: [p99]}\n  all: {}\nview: slow\n")
    assert found.views == {"slow": {"sort": "max", "columns": ("p99",)}, "all": {}}
    assert found.view == "slow"


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
SPLINTERS = (
    *(
        b":",
        b"- ",
        b"\n",
        b"\n  ",
        b"{",
        b"}",
        b"[",
        b"]",
        b"&a ",
        b"*a",
        b"<<: ",
        b"!!python/object:os.system ",
        b"|\n",
    ),
    *(
        b"null",
        b"~",
        b"1e999",
        b".nan",
        b"-1",
        b"9" * 40,
        b"\t",
        b"\x00",
        b"\xff",
        b"\xe2\x80\xae",
        b"views:",
        b"findings:",
    ),
)


@pytest.mark.parametrize("count", [300, pytest.param(30_000, marks=pytest.mark.slow)])
def test_a_mutated_config_is_read_or_refused_in_one_sentence(home, count):
    draw, refusals = Random(count), []
    for _ in range(count):
        text = mutated(SAMPLE, draw, [SAMPLE], SPLINTERS)
        try:
            load(home, text)
        except UsageError as error:
            refusals.append(str(error))
    assert 0 < len(refusals) < count
    assert [one for one in refusals if clean(one, 10_000) != one] == []
