"""Sums of rows from the beginning of a capture on: what is kept of them, and what two samples differ by."""

from latmon.model.measurements import MAJOR_FAULTS
from latmon.model.measurements.memory import Faulting
from latmon_backends.kernel.bounded_sums import BoundedSums, rows_between


def row(pid):
    return Faulting("/", f"sh/{pid}")


def test_an_addition_keeps_its_largest_rows():
    sums = BoundedSums(MAJOR_FAULTS, int)
    sums.add({row(pid): pid for pid in range(1, 30)})
    assert sorted(sums.rows.values()) == list(range(14, 30))
    before = sums.rows
    sums.add({row(29): 5})
    sums.add({})
    assert rows_between(MAJOR_FAULTS, before, sums.rows) == {row(29): 5}
    assert rows_between(MAJOR_FAULTS, sums.rows, sums.rows) == {}
    assert before[row(29)] == 29


def test_a_row_that_was_dropped_and_came_back_has_no_difference():
    assert rows_between(MAJOR_FAULTS, {row(1): 100}, {row(1): 5, row(2): 5}) == {row(2): 5}
