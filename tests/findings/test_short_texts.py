"""Short texts of findings: every rule gives one, whole in a line of 80 columns, also with long names."""

import ast
from pathlib import Path

import pytest

from latmon.findings import rules
from latmon.findings.rule import SHORT_CELLS, short_name, short_text, within

MODULES = sorted(Path(rules.__file__).parent.glob("[!_]*.py"))
LONG = "a-host-with-a-name-of-47-characters-as-clouds-g:nvme12n1"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_each_finding_of_a_rule_has_a_short_text(module):
    calls = [call for call in ast.walk(ast.parse(module.read_text())) if isinstance(call, ast.Call)]
    actual_calls = [call for call in calls if getattr(call.func, "id", "") == "Finding"]
    assert actual_calls
    for call in actual_calls:
        assert "short" in {keyword.arg for keyword in call.keywords}


def test_a_long_device_keeps_its_own_name():
    assert short_name(LONG) == "a-host-with-a-…:nvme12n1"
    assert short_name("sda") == "sda"
    assert short_name("x" * 40) == "x" * 23 + "…"


def test_a_clause_is_whole_or_left_out():
    text = short_text(LONG, "2 I/Os stuck for up to 105 s", ", of which nothing is known " * 3, "; 18 overtook")
    assert text == "a-host-with-a-…:nvme12n1: 2 I/Os stuck for up to 105 s; 18 overtook"
    assert short_text("", "12 of 40 pages", ": programs wait") == "12 of 40 pages: programs wait"
    assert within("kworker/0:1H-kblockd") == "kworker/0:1H-kb…"


def test_a_verdict_of_50_cells_fits_beside_any_name():
    assert len(short_text(LONG, "v" * 50)) == SHORT_CELLS
    assert "…" not in short_text(LONG, "v" * 50).partition(": ")[2]
