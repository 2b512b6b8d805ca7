"""Tests of docs/LEARNED.md: it has a row for each script of findings/, and each script says what it shows."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "LEARNED.md").read_text(encoding="utf-8")
ROWS = re.findall(r"(?m)^\| \[([\w-]+)\]\(\.\./findings/([\w-]+)\.sh\) \| (.+) \| (.+) \|$", PAGE)
SCRIPTS = sorted((ROOT / "findings").iterdir())


def test_each_script_has_one_row():
    assert sorted(name for name, *_ in ROWS) == [script.stem for script in SCRIPTS]
    assert all(name == target for name, target, *_ in ROWS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_says_what_it_shows_and_fails_if_that_changes(script):
    text = script.read_text(encoding="utf-8")
    head = " ".join(line.removeprefix("# ") for line in text.split("\nset -eu\n")[0].splitlines()[1:])
    assert os.access(script, os.X_OK)
    assert head.startswith("One would guess: ")
    assert re.search(r"What happens[^:]*: ", head)
    assert re.search(r"Fails if the behaviour has changed\.$", head)
    assert "the behaviour has changed" in text.split("\nset -eu\n")[1]
    assert "latmon" not in text, "a script shows a fact of other software, without latmon"
