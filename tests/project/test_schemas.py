"""JSON Schemas of `report --json`, `diff --json` and the config against what the commands print and accept."""

import json
import re
from pathlib import Path

import config_schema
import pytest
import typed_schema
import yaml
from json_schema import mistakes
from report_json import summarised

from latmon.cli import config
from latmon.cli.main import run as main
from latmon.recording.parts import open_parts
from latmon.support.errors import UsageError
from latmon.support.paths import data_dir

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = sorted((ROOT / "tests/golden/recordings").glob("*.latmon.jsonl.gz"))
BUNDLED = sorted((ROOT / "docs/incidents/recordings").rglob("*.latmon.jsonl.gz"))
SCHEMAS = {path.stem: json.loads(path.read_text("utf-8")) for path in data_dir("schemas").glob("*.json")}
INCIDENTS = ("emulex", "e810", "serialised", "qumulo", "bubbles")
by_name = {"ids": lambda path: path.name.removesuffix(".latmon.jsonl.gz")}


def check_report(path):
    summary = json.loads(json.dumps(summarised(open_parts([path]), slo_us=20_000)))
    assert [*mistakes(summary, SCHEMAS["report"])] == []


@pytest.mark.parametrize("path", GOLDEN, **by_name)
def test_reports_of_all_kinds_of_recordings_are_described(path):
    check_report(path)


@pytest.mark.slow
@pytest.mark.parametrize("path", BUNDLED, **by_name)
def test_reports_of_the_bundled_recordings_are_described(path):
    check_report(path)


def diff(capsys, *words):
    assert main(["diff", "--json", *map(str, words)]) == 0
    return json.loads(capsys.readouterr().out)


def check_diff(capsys, directory, *words):
    files = [directory / f"{word}.latmon.jsonl.gz" if word[0] != "-" else word for word in words]
    assert [*mistakes(diff(capsys, *files), SCHEMAS["diff"])] == []


@pytest.mark.parametrize(
    "words",
    [
        "demo-host demo-emulex",
        *(
            pytest.param(f"demo-host {other}", marks=pytest.mark.slow)
            for other in ("procfs", "import-fio", "dtrace-linux")
        ),
        "demo-e810 demo-serialised demo-bubbles",
        "--a demo-e810 demo-serialised --b demo-bubbles demo-e810",
    ],
)
def test_diffs_and_sweeps_of_short_and_unlike_recordings_are_described(words, capsys):
    check_diff(capsys, GOLDEN[0].parent, *words.split())


@pytest.mark.slow
@pytest.mark.parametrize("words", [*(f"{one} {one}-healthy" for one in INCIDENTS), "e810 e810 e810-healthy"])
def test_diffs_of_the_bundled_recordings_are_described(words, capsys):
    check_diff(capsys, BUNDLED[0].parent, *words.split())


@pytest.mark.parametrize("name", typed_schema.schemas())
def test_the_schema_is_that_of_the_types(name):
    text = (data_dir("schemas") / f"{name}.json").read_text("utf-8")
    assert text == typed_schema.text_of(typed_schema.schemas()[name]), "make it again: python contrib/typed_schema.py"


def test_a_key_that_is_not_described_is_found():
    summary = summarised(open_parts([GOLDEN[0]]))
    summary["health"]["new"] = 1
    del summary["host"]["kernel"]
    summary["duration_s"] = None
    found = "\n".join(mistakes(summary, SCHEMAS["report"]))
    assert all(one in found for one in ("$.health: new", "$.host: no kernel", "$.duration_s: None is not number"))


def test_the_schema_of_the_config_is_that_of_its_checks():
    assert SCHEMAS["config"] == config_schema.schema(), "make it again: python contrib/config_schema.py"


def test_the_sample_of_the_config_is_that_of_the_settings():
    sample = config_schema.SAMPLE.read_text("utf-8")
    assert sample == config_schema.sample(), "make it again: python contrib/config_schema.py"


RIGHT = (
    "interval: 500ms",
    "interval: 2",
    "threshold: 0",
    "threshold: 1.5 ms",
    "history: 10min",
    "stages: all",
    "budget_percent: 2.5",
    "sweep: true",
    "theme: mine",
    "bpftrace: /usr/bin/bpftrace",
    "sort: IOPS",
    "filter: sd? -sdb",
    "columns: [IOPS, p99, max]",
    "columns: IOPS,p99",
    "screen: zoom",
    "screen: 3",
    "op: write",
    "views: {slow writes: {op: write, window: 5min}}",
    "findings: {tick-quantum: off, peer-outlier: {octaves: 3}}",
    "findings: {tick-quantum: on}",
    "on_finding: {command: [/bin/notify, a], record: 5min, severity: warning, syslog: true, directory: /var}",
)
WRONG = (
    "intervall: 1s",
    "interval: soon",
    "interval: true",
    "threshold: 5 weeks",
    "stages: some",
    "budget_percent: 200",
    "budget_percent: -1",
    "sweep: 3",
    "sort: size",
    f"filter: {'x' * 41}",
    "columns: [IOPS, shape]",
    "screen: 9",
    "screen: nothing",
    "op: sync",
    "views: {mine: {colour: red}}",
    "views: [mine]",
    "findings: {tick-quanta: off}",
    "findings: {peer-outlier: {octaves: 99}}",
    "findings: {peer-outlier: {octave: 3}}",
    "on_finding: {command: notify}",
    "on_finding: {command: [notify]}",
    "on_finding: {command: []}",
    "on_finding: {directory: var}",
    "on_finding: {severity: bad}",
    "on_finding: {then: stop}",
)


@pytest.mark.parametrize("text", RIGHT)
def test_what_latmon_accepts_the_schema_accepts(text, tmp_path):
    (tmp_path / "config.yaml").write_text(text)
    config.load_file(tmp_path / "config.yaml")
    assert [*mistakes(yaml.safe_load(text), SCHEMAS["config"])] == []


@pytest.mark.parametrize("text", WRONG)
def test_what_latmon_refuses_the_schema_refuses(text, tmp_path):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UsageError):
        config.load_file(tmp_path / "config.yaml")
    assert [*mistakes(yaml.safe_load(text), SCHEMAS["config"])] != []


def test_the_sample_without_its_comment_signs_is_right(tmp_path):
    text = re.sub(r"(?m)^#(?=\w|  )", "", (ROOT / "latmon/cli/sample.yaml").read_text("utf-8"))
    assert [*mistakes(yaml.safe_load(text), SCHEMAS["config"])] == []
    (tmp_path / "config.yaml").write_text(text)
    config.load_file(tmp_path / "config.yaml")


@pytest.mark.parametrize("words", [("report", "--schema"), ("diff", "--schema"), ("config", "schema")])
def test_a_command_prints_each_schema(words, capsys):
    with pytest.raises(SystemExit, match=r"^0$"):
        raise SystemExit(main([*words]))
    assert json.loads(capsys.readouterr().out) == SCHEMAS[words[0]]
