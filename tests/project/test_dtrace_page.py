"""docs/DTRACE.md agrees with the manifests of the D scripts, above all on where they have run."""

import re
from pathlib import Path

from fake_dtrace import manifests

from latmon.model.frame import STAGES

PAGE = (Path(__file__).parents[2] / "docs/DTRACE.md").read_text()
SCRIPTS = [one for one in manifests() if one.tool == "dtrace"]
SYSTEMS = ("portable", "linux", "illumos", "freebsd")


def rows(title):
    """The cells of the lines of a section's table, without its head."""
    lines = [line for line in PAGE.split(f"## {title}\n")[1].split("\n## ")[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_every_script_is_named_beside_its_platform_and_group():
    shown = [
        (cells[0].split(",")[0], *(set(re.findall(r"`(\w+)`", cell)) for cell in cells[1:]))
        for cells in rows("The scripts")
    ]
    assert shown == [
        (
            system,
            {manifest.name for manifest in SCRIPTS if manifest.platform == system and manifest.group == "always"},
            {manifest.name for manifest in SCRIPTS if manifest.platform == system and manifest.group != "always"},
        )
        for system in SYSTEMS
    ]


def test_scripts_that_have_run_are_named_with_the_tool():
    (line,) = [line for line in PAGE.splitlines() if line.startswith("- Only `")]
    assert set(re.findall(r"`(\w+)`", line)) == {manifest.name for manifest in SCRIPTS if manifest.ran_on}
    assert {where.partition(", ")[2] for manifest in SCRIPTS for where in manifest.ran_on} == {"DTrace 2.0.7"}
    assert "on Linux with DTrace 2.0.7" in line


def test_every_stage_has_its_row():
    assert tuple(cells[0].strip("`") for cells in rows("From where to where")) == STAGES


def test_options_of_the_page_are_those_that_are_given():
    from latmon_backends.dtrace.program import _OPTIONS  # noqa: PLC0415

    for name in ("dynvarsize", "aggsize", "bufsize"):
        assert f"`{name}={_OPTIONS[name]}`" in PAGE
