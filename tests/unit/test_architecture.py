"""ARCHITECTURE.md's table names every module, so that a reader finds who owns what."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = [line for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines() if line.startswith("| ")]
NAMED = {word for line in TABLE for word in re.findall(r"[\w*]+", line.split("|")[1])}


@pytest.mark.parametrize("where", ["latmon", "backends/latmon_backends"])
def test_every_module_has_an_owner_in_the_table(where):
    modules = {path.stem for path in (ROOT / where).glob("*.py")}
    missing = {name for name in modules if name not in NAMED and not name.startswith(("__", "demo_"))}
    assert not missing
