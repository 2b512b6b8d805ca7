"""Steps of traced I/Os: each I/O's add up to Q2C, and the seek map has each I/O in its place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.capture.backend import TraceCost, TraceCounts
from latmon.model.frame import Outlier
from latmon.report.trace import SeekMap, TraceTable, steps, trace_text

TIMES = st.integers(0, 10**7)


def traced(mono_us=0, sector=0, size=4096, op="read", **fields):
    stages = fields.pop("stages_us", {"queue": 0, "hba": 10})
    total = sum(stages.values()) + fields.get("unaccounted_us", 0)
    return Outlier(0.0, mono_us, "sda", op, total, stages, sector=sector, bytes=size, **fields)


def test_an_io_that_was_inserted_has_the_steps_of_btt():
    outlier = traced(
        stages_us={"queue": 30, "requeue": 5, "hba": 100, "irq": 2, "softirq": 3, "resume": 50},
        unaccounted_us=1,
        admission_us=7,
        inserted_us=10,
    )
    assert steps(outlier) == {"Q2G": 7, "G2I": 10, "I2D": 20, "requeue": 5, "D2C": 106, "Q2C": 148}


def test_an_io_that_was_never_inserted_has_no_g2i():
    assert steps(traced(stages_us={"queue": 3, "hba": 9})) == {"G2D": 3, "D2C": 9, "Q2C": 12}


def test_without_the_stages_only_the_whole_is_known():
    assert steps(Outlier(0.0, 0, "sda", "read", 12)) == {"Q2C": 12}


@given(st.tuples(TIMES, TIMES, TIMES), st.none() | TIMES, st.none() | TIMES, st.none() | TIMES)
def test_q2c_is_the_sum_of_the_other_steps(known, requeue, admission, inserted):
    queue, hba, unaccounted = known
    stages = {"queue": queue, "hba": hba} | ({} if requeue is None else {"requeue": requeue})
    actual_steps = steps(
        traced(stages_us=stages, unaccounted_us=unaccounted, admission_us=admission, inserted_us=inserted)
    )
    assert actual_steps.pop("Q2C") == sum(actual_steps.values())
    assert min(actual_steps.values()) >= 0


def test_a_table_has_exact_sums_and_counts():
    table = TraceTable()
    for us in (10, 20, 90):
        table.add(traced(stages_us={"queue": us, "hba": 2 * us}, admission_us=1))
    table.add(traced(stages_us={"queue": 0, "hba": 5}, op="write"))
    rows = {step.name: histogram for step, histogram in table.step_rows()}
    assert list(rows) == ["Q2G", "G2D", "D2C", "Q2C"]
    assert (rows["D2C"].count, rows["D2C"].sum, rows["D2C"].max) == (4, 245, 180)
    assert rows["Q2C"].sum == sum(row.sum for name, row in rows.items() if name != "Q2C")
    assert [(op, histogram.count) for op, histogram in table.op_rows()] == [("read", 3), ("write", 1)]
    assert [name for name, _ in table.stage_rows()] == ["admission", "queue", "hba"]
    assert (table.ios, table.bytes) == (4, 4 * 4096)


def test_each_reason_why_an_io_has_no_times_is_named_by_itself():
    table = TraceTable()
    table.add(traced())
    untimed = {"start not seen": 3, "older than 71 minutes": 1_000}
    counts = TraceCounts(traced=1, untimed=untimed, completed=(1_004, 1_004))
    cost = TraceCost(seconds=1.0, kernel_ns=0, cpu_ns=0)
    text = " ".join(" ".join(trace_text(table, SeekMap(), counts, cost, every=True)).split())
    assert "3 not timed: start not seen; 1,000 not timed: older than 71 minutes" in text
    assert "iostats" not in text
    assert "/proc/diskstats counts as many" in text


def test_the_seek_map_has_each_io_in_its_cell():
    seeks = SeekMap()
    for at in range(10):
        seeks.add(traced(at * 100, at * 8))
    seeks.add(traced(sector=None))
    grid = seeks.grid(10, 10)
    assert [row.index(1) for row in grid] == list(range(9, -1, -1))
    assert sum(map(sum, grid)) == 10
    assert (seeks.extent, seeks.span_us) == ((0, 79), (0, 900))
    assert seeks.seeks() == (9, 9, 0)


def test_seeks_are_in_the_order_of_issue():
    seeks = SeekMap()
    for mono_us, sector in ((200, 1000), (0, 0), (100, 8), (300, 508)):
        seeks.add(traced(mono_us, sector))
    assert seeks.seeks() == (3, 1, 984)


def test_an_empty_map_has_no_seeks():
    assert SeekMap().seeks() == (0, 0, 0)
    with pytest.raises(ValueError, match="empty"):
        SeekMap().grid(1, 1)
