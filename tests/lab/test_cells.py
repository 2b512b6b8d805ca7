"""The results of lab cells, without a guest."""

import cells
import pytest
from cells import PLACES, RESULTS, Place

HERE = Place("trixie", "A")
ROWS = {"gated: bottleneck": "bottleneck, queue 450 ms", "chained: handler": "handler"}


@pytest.fixture(autouse=True)
def checkout(tmp_path, monkeypatch):
    for name in ("CHECKOUT", "CACHE", "RESULTS"):
        monkeypatch.setattr(cells, name, tmp_path if name != "RESULTS" else tmp_path / RESULTS.name)
    for name in cells.RECORDED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("as it was")
    for name in cells.KEPT:
        (tmp_path / name).write_text("kept")
    return tmp_path


def row(cell: str) -> list[str]:
    (line,) = [one for one in cells.table(ROWS).splitlines() if one.startswith(f"| {cell} ")]
    return [word.strip() for word in line.strip("|").split("|")]


def test_a_recording_is_valid_until_what_it_depends_on_changes(checkout):
    assert cells.newest("queue", HERE) is None
    kept = cells.keep(checkout, cells.begun("queue", HERE))
    assert cells.newest("queue", HERE) == kept
    assert cells.newest("queue", Place("trixie", "B")) is None
    (checkout / cells.RECORDED[-1]).write_text("changed")
    assert cells.newest("queue", HERE) is None


def test_the_table_shows_what_passed_how_often_and_what_was_not_run(checkout):
    for begin in (1_000.0, 2_000.0):
        recorded = cells.keep(checkout, cells.begun("queue", HERE) | {"begin": begin})
        for _ in range(2):  # an evaluation again is no other pass
            with cells.noted("gated: bottleneck", recorded) as facts:
                facts |= {"added_ms": {"queue": 448.12, "hba": 0.2}, "injected_ms": 450, "found_s": 15.0}
    place = 2 + PLACES.index(HERE)
    assert row("gated: bottleneck")[place] == "passed 2x: queue 448.1 of 450 ms, after 15 s"
    assert row("chained: handler")[2:] == ["not run"] * len(PLACES)


def failing(recorded):
    with cells.noted("chained: handler", recorded) as facts:
        facts["others"] = [{"id": "starved-io", "device": "sick1", "severity": "warning"}]
        pytest.fail("another finding")


def test_a_failed_cell_keeps_its_facts_and_error(checkout):
    with pytest.raises(pytest.fail.Exception):
        failing(cells.keep(checkout, cells.begun("queue", HERE)))
    assert row("chained: handler")[2 + PLACES.index(HERE)] == "failed; also sick1 starved-io"
    (lines,) = cells.results().values()
    assert "another finding" in lines[0]["error"]
