"""ARCHITECTURE.md's first table names every package, and nothing that isn't there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BACKENDS = "backends/latmon_backends"
TABLE = (ROOT / "ARCHITECTURE.md").read_text().partition("| package | owns |")[2].partition("\n\n")[0]
NAMED = {
    name.rstrip("/").replace("...", BACKENDS)
    for line in TABLE.splitlines()
    for name in re.findall(r"`([\w./]+)`", line.split("|")[1] if "|" in line else "")
}


def test_every_package_has_a_row():
    packages = {
        str(path.parent.relative_to(ROOT))
        for part in ("latmon", BACKENDS)
        for path in (ROOT / part).rglob("__init__.py")
    }
    assert packages - {"latmon"} <= NAMED


def test_every_name_of_the_table_exists():
    assert NAMED
    assert [name for name in NAMED if not (ROOT / name).exists()] == []
