"""The results of lab cells, without a guest."""

import re

import cells
import pytest
from cells import CHECKOUT, HISTORY, PLACES, RESULTS, TABLE, Place, Row

HERE = Place("trixie", "A")
NOW = "0a1b2c"
ROWS = {
    "gated: bottleneck": Row("bottleneck, queue 450 ms", {"A": NOW}, "another rule"),
    "chained: handler": Row("handler", {"A": NOW}, places=(HERE,)),
}


@pytest.fixture(autouse=True)
def checkout(tmp_path, monkeypatch):
    names = {"CHECKOUT": ".", "CACHE": ".", "RESULTS": RESULTS.name, "HISTORY": "history.jsonl", "TABLE": TABLE.name}
    for name, path in names.items():
        monkeypatch.setattr(cells, name, tmp_path / path)
    for name in cells.KEPT:
        (tmp_path / name).write_text("kept")
    return tmp_path


def row(cell: str) -> list[str]:
    (line,) = [line for line in cells.table(ROWS).splitlines() if line.startswith(f"| {cell} ")]
    return [word.strip() for word in line.strip("|").split("|")]


def test_a_recording_is_valid_for_its_guest_place_and_inputs(checkout):
    assert cells.valid("queue", HERE, NOW) == []
    kept = [cells.keep(checkout, cells.begun("queue", HERE, NOW) | {"begin": begin}) for begin in (1_000.0, 2_000.0)]
    assert cells.valid("queue", HERE, NOW) == kept
    assert cells.valid("queue", Place("trixie", "B"), NOW) == []
    assert cells.valid("queue", HERE, "3d4e5f") == []


def test_inputs_differ_by_files_and_options(checkout):
    script = checkout / "block.bt"
    script.write_text("as it was")
    before = [cells.digest([script]), cells.digest([script], "--smp", 2), cells.digest([])]
    script.write_text("changed")
    assert len({*before, cells.digest([script])}) == 4


def test_a_guest_that_died_keeps_its_log_and_is_booted_again(checkout):
    (checkout / cells.KEPT[0]).unlink()
    kept = cells.keep(checkout, cells.begun("queue", HERE, NOW))
    assert (kept / "log").read_text() == "kept"
    with pytest.raises(AssertionError), cells.noted("gated: bottleneck", kept):
        raise AssertionError
    assert cells.results() == {}
    assert cells.valid("queue", HERE, NOW) == []


def test_the_table_shows_what_passed_how_often_and_what_was_not_run(checkout):
    for begin in (1_000.0, 2_000.0):
        recorded = cells.keep(checkout, cells.begun("queue", HERE, NOW) | {"begin": begin})
        for _ in range(2):  # an evaluation again is no other pass
            with cells.noted("gated: bottleneck", recorded) as facts:
                facts |= {"added_ms": {"queue": 448.12, "hba": 0.2}, "injected_ms": 450}
                facts |= {"due": "bottleneck", "found_s": 15.0}
    place = 2 + PLACES.index(HERE)
    cells_of = row("gated: bottleneck")
    assert cells_of[1] == "bottleneck, queue 450 ms; B: another rule"
    assert cells_of[place] == "passed 2 of 2: queue 448.1 of 450 ms, after 15 s"
    assert row("chained: handler")[2:] == ["not run" if one == HERE else "-" for one in PLACES]


def test_a_result_of_earlier_probes_is_shown_as_such(checkout):
    with cells.noted("chained: handler", cells.keep(checkout, cells.begun("sick", HERE, "3d4e5f"))):
        pass
    assert row("chained: handler")[2 + PLACES.index(HERE)] == "passed 1 of 1 (earlier probes)"


def test_what_tier_b_does_not_measure_is_shown_as_such(checkout):
    place = Place("trixie", "B")
    with cells.noted("lost: starved", cells.keep(checkout, cells.begun("queue", place, NOW))) as facts:
        facts["due"] = None
    rows = {"lost: starved": Row("starved", {"B": NOW}, "not measured here: no ages")}
    assert "| starved; B: not measured here: no ages |" in cells.table(rows)
    assert "| not measured here: passed 1 of 1 |" in cells.table(rows)


def failing(recorded):
    with cells.noted("chained: handler", recorded) as facts:
        facts["others"] = [{"id": "starved-io", "device": "sick1", "severity": "warning"}]
        pytest.fail("another finding")


def test_a_failed_cell_keeps_its_facts_and_error(checkout):
    with pytest.raises(pytest.fail.Exception):
        failing(cells.keep(checkout, cells.begun("queue", HERE, NOW)))
    assert row("chained: handler")[2 + PLACES.index(HERE)] == "passed 0 of 1; also sick1 starved-io"
    (lines,) = cells.results().values()
    assert "another finding" in lines[0]["error"]


def test_results_of_other_machines_count(checkout):
    column = 2 + PLACES.index(HERE)
    recorded = cells.keep(checkout, cells.begun("queue", HERE, NOW) | {"commit": "abc123", "begin": 1_000.0})
    for cell in ROWS:
        with cells.noted(cell, recorded):
            pass
    cells.write(ROWS)
    (checkout / TABLE.name).write_text((checkout / TABLE.name).read_text() + "\nA note.\n")
    (checkout / RESULTS.name).unlink()  # another machine
    with cells.noted("chained: handler", cells.keep(checkout, cells.begun("sick", HERE, "3d4e5f") | {"commit": "def"})):
        pass
    for _ in range(2):  # a result is one pass, however often it is written
        cells.write(ROWS)
    assert row("gated: bottleneck")[column : column + 2] == ["passed 1 of 1", "not run"]
    assert row("chained: handler")[column] == "passed 2 of 2 (1 with earlier probes)"
    text = (checkout / TABLE.name).read_text()
    assert text.endswith("|\n\nA note.\n")
    assert "\nCommits: `abc123`, `def`.\n" in text


def test_the_written_table_is_that_of_the_written_results(monkeypatch):
    pytest.importorskip("psutil")
    from test_findings import ROWS  # noqa: PLC0415  its module needs the lab's tools

    monkeypatch.setattr(cells, "HISTORY", HISTORY)
    monkeypatch.setattr(cells, "CHECKOUT", CHECKOUT)
    kept = [line for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    assert [_without_inputs(line) for line in cells.table(ROWS).splitlines()] == [_without_inputs(one) for one in kept]


def _without_inputs(line):
    """Probes may change between two tables."""
    return re.sub(r" \((\d+ with )?earlier probes\)", "", line)
