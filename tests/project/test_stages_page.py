"""docs/STAGES.md and the doctor report the same coverage of each stage, that of the manifests."""

import re
from functools import cache
from pathlib import Path

import pytest

from latmon.manifest import load
from latmon.model.frame import STAGES, Missing, Origin
from latmon.model.stages import ADMISSION
from latmon.support.paths import data_dir
from latmon_backends.bpftrace.backend import DRIVERS, stages
from latmon_backends.bpftrace.tracer import choose, on_demand_manifests

PAGE = (Path(__file__).parents[2] / "docs/STAGES.md").read_text()
ROWS = {
    cells[0].strip("` "): [cell.strip() for cell in cells[1:]]
    for line in PAGE.splitlines()
    if line.startswith("| `") and (cells := line.strip("|").split("|"))
}
SHOWN = (ADMISSION, *STAGES)
ALWAYS = {"block_a": 0, "block_ap": 0, "block_b": 0, "block_c": 1}
"""Script -> its column of the page."""
ON_DEMAND = {"A": 2, "C": 3}


@cache
def doctors(name="block_a", tier="A"):
    """The doctor's rows on a host that has every hook."""
    always = load(data_dir("probes") / f"linux/{name}.yaml")
    origin = Origin(
        "bpftrace",
        "h",
        "k",
        "0",
        measured={stage: always.includes.get(stage, ()) for stage in always.stages},
        absent=tuple(Missing(stage, why) for stage, why in always.absent.items()),
    )
    chosen = choose(on_demand_manifests(), tier, lambda _: True, {"timer_context": (1,)}, {}, cpus=4)
    return {stage.stage: stage for stage in stages(origin, {tier: chosen})}


@pytest.mark.parametrize(("name", "column"), ALWAYS.items())
@pytest.mark.parametrize("stage", SHOWN)
def test_what_is_always_measured(name, column, stage):
    text, reported = ROWS[stage][column], doctors(name)[stage].always
    text = ROWS[stage][0] if text == "the same" else text
    if text == "-" or text.startswith("in "):
        assert reported.startswith("no: ")
        assert text == "-" or text in reported
    elif text.startswith("as "):
        assert reported == f"yes {text}"
    elif inside := re.match(r"with (.*) in it", text):
        assert reported == f"yes, with {inside[1]} in it"
    else:
        assert reported == "yes"


@pytest.mark.parametrize(("tier", "column"), ON_DEMAND.items())
@pytest.mark.parametrize("stage", SHOWN)
def test_what_is_traced(tier, column, stage):
    text, reported = ROWS[stage][column], doctors(tier=tier)[stage].traced[tier]
    assert (text == "-") == reported.startswith("no: ")
    for script in re.findall(r"\w+_[ac]\b", text):
        assert script in reported


def test_how_drivers_complete_is_the_same_on_the_page_and_for_the_doctor():
    table = PAGE.split("## Path by driver")[1].split("\n## ")[0]
    lines = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")][1:]
    assert {cells[0].strip(): cells[1].strip() for cells in lines} == DRIVERS


def test_every_stage_has_its_row():
    assert tuple(ROWS) == SHOWN
