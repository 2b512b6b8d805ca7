"""docs/FINDINGS.md describes every rule; thresholds are in `latmon rules show` (tests/cli/test_rules.py)."""

import re
from pathlib import Path

from latmon.findings.rules import RULES, TITLES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "FINDINGS.md").read_text(encoding="utf-8")
SECTIONS = dict(zip(*[iter(re.split(r"(?m)^### (.*)\n", PAGE)[1:])] * 2, strict=True))


def test_every_rule_has_its_section_in_their_order():
    assert list(SECTIONS) == [rule.id for rule in RULES]


def test_a_section_begins_with_when_its_rule_fires():
    for rule in RULES:
        sentence, _, _ = SECTIONS[rule.id].strip().partition(".")
        assert " ".join(sentence.split())[1:] == rule.fires[1:]


def test_a_threshold_that_a_section_names_is_its_rule_s():
    for rule in RULES:
        assert set(re.findall(r"`([a-z][a-z_]*)`", SECTIONS[rule.id])) <= set(rule.thresholds)


def test_every_rule_has_a_title_of_its_own_that_fits_a_line():
    assert list(TITLES) == [rule.id for rule in RULES]
    assert len(set(TITLES.values())) == len(RULES)
    assert all(len(title) <= 34 for title in TITLES.values())
