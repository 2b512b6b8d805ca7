"""docs/DTRACE.md says of each D script what its manifest says: above all where it has run."""

from pathlib import Path

from latmon.manifest.loader import load_all
from latmon.model.frame import STAGES
from latmon.support.paths import data_dir

PAGE = (Path(__file__).parents[2] / "docs/DTRACE.md").read_text()
SYSTEMS = ("portable", "linux", "illumos", "freebsd")


def rows(title):
    """The cells of the lines of a section's table, without its head."""
    lines = [line for line in PAGE.split(f"## {title}\n")[1].split("\n## ")[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_the_table_of_scripts_is_what_the_manifests_say():
    found = [one for one in load_all(data_dir("probes")) if one.tool == "dtrace"]
    found.sort(key=lambda one: (SYSTEMS.index(one.platform), one.group != "always", one.name))
    assert rows("The scripts") == [
        [f"`{one.name}`", one.platform, one.group, one.cost, one.purpose, "; ".join(one.ran_on) or "nowhere yet"]
        for one in found
    ]


def test_every_stage_has_its_row():
    assert tuple(cells[0].strip("`") for cells in rows("From where to where")) == STAGES


def test_options_of_the_page_are_those_that_are_given():
    from latmon_backends.dtrace.tool import _OPTIONS  # noqa: PLC0415

    for name in ("dynvarsize", "aggsize", "bufsize"):
        assert f"`{name}={_OPTIONS[name]}`" in PAGE
