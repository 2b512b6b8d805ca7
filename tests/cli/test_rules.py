"""`latmon rules`: every rule is listed and shown with its thresholds, in the config's values."""

import pytest

from latmon.cli import config
from latmon.cli.main import run as main
from latmon.findings.rule import DEFAULT, settings_of
from latmon.findings.rules import RULES
from latmon.support.errors import UsageError


def test_a_line_per_rule(capsys):
    assert config.list_rules(RULES, settings_of({"bimodal-tail": "off"}, RULES)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        [rule.id, "off" if rule.id == "bimodal-tail" else "on"] for rule in RULES
    ]
    assert all(line.endswith(rule.fires) for line, rule in zip(lines, RULES, strict=True))


def test_all_rules_are_shown_with_every_threshold_its_unit_and_its_meaning(capsys):
    assert config.show_rule(None, RULES, DEFAULT) == 0
    shown = capsys.readouterr().out.split("\n\nname ")
    assert len(shown) == len(RULES)
    for text, rule in zip(shown, RULES, strict=True):
        assert rule.id in text.splitlines()[0]
        assert all(name in text for name in rule.explained_by)
        rows = [line.split() for line in text.partition("\nthreshold ")[2].splitlines()[1:]]
        assert [(row[0], float(row[1].replace(",", "")), row[2]) for row in rows] == [
            (name, threshold.value, threshold.unit) for name, threshold in rule.thresholds.items()
        ]
        assert all(threshold.meaning in text for threshold in rule.thresholds.values())


def test_a_rule_is_shown_with_the_config_s_value_and_the_default(capsys):
    assert config.show_rule("peer-outlier", RULES, settings_of({"peer-outlier": {"octaves": 3}}, RULES)) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("octaves")]
    assert line.split()[1:6] == ["3", "octaves", "0", "to", "60"]
    assert line.endswith("(default 2)")


def test_an_unknown_rule_is_refused_with_the_names():
    with pytest.raises(UsageError, match="there is no rule 'nope'; the rules are io-errors, command-timeouts, "):
        config.show_rule("nope", RULES, DEFAULT)


def test_the_config_file_s_thresholds_are_shown(tmp_path, monkeypatch, capsys):
    (tmp_path / "latmon").mkdir()
    (tmp_path / "latmon/config.yaml").write_text("findings: {starved-io: {overtaken: 77}, bimodal-tail: off}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["rules", "show", "starved-io"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("overtaken")]
    assert line.split()[1] == "77"
    assert main(["rules"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:2] == ["bimodal-tail", "off"]
