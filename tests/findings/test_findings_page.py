"""docs/FINDINGS.md says what the rules and their table say."""

from pathlib import Path

from latmon.findings.rules import RULES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "FINDINGS.md").read_text(encoding="utf-8")


def test_the_table_of_thresholds_is_the_rules_own():
    rows = [
        f"| {rule.id} | `{name}` | {one.value:,.12g} | {one.unit} | {one.meaning} |"
        for rule in RULES
        for name, one in rule.thresholds.items()
    ]
    reported = [
        line for line in PAGE.partition("## Thresholds")[2].splitlines() if line.startswith("| ") and "`" in line
    ]
    assert reported == rows, "put these into docs/FINDINGS.md:\n" + "\n".join(rows)


def test_every_rule_has_its_section_in_their_order():
    assert [line[4:] for line in PAGE.splitlines() if line.startswith("### ")] == [rule.id for rule in RULES]
    assert all(rule.fires[1:] in PAGE for rule in RULES)
