"""From the tracer's measured cost to a coarser sample, or to its end."""

from dataclasses import replace

import pytest

from latmon_backends.tracer.demand import COARSEST, Budget, BudgetVerdict, one_in
from latmon_backends.tracer.programs import TracerSample

ALL = TracerSample()


def spent(budget, percent, sample=ALL, iops=1_000.0):
    """Return the verdict of two measurements."""
    assert budget.evaluate(percent, sample, iops) is None
    return budget.evaluate(percent, sample, iops)


def test_within_the_budget_nothing_is_done():
    budget = Budget(5.0)
    assert [budget.evaluate(percent, ALL, 1e4) for percent in (4.9, 0.0, 5.0) * 3] == [None] * 9


def test_one_measurement_above_is_a_burst():
    budget = Budget(5.0)
    assert [budget.evaluate(percent, ALL, 1e4) for percent in (50.0, 1.0, 50.0, 1.0)] == [None] * 4


@pytest.mark.parametrize(
    ("iops", "percent", "one_in"), [(9_000, 6.0, 4), (20_000, 19.0, 16), (100_000, 70.0, 64), (5e6, 1000.0, 256)]
)
def test_the_sample_gets_as_coarse_as_the_requests_ask(iops, percent, one_in):
    assert spent(Budget(5.0), percent, iops=iops) == BudgetVerdict(TracerSample(one_in), percent)


def test_the_lesser_of_two_measurements_counts():
    budget = Budget(5.0)
    budget.evaluate(90.0, ALL, 5_000)
    assert budget.evaluate(8.0, ALL, 5_000) == BudgetVerdict(TracerSample(4), 8.0)


def test_where_few_requests_cost_much_files_interrupts_and_wake_ups_go_then_what_counts_every_request_then_all():
    budget = Budget(5.0)
    no_files, lean = TracerSample(files=False), TracerSample(lean=True, files=False)
    assert spent(budget, 14.0) == BudgetVerdict(no_files, 14.0)
    assert spent(budget, 12.0, no_files) == BudgetVerdict(lean, 12.0)
    assert spent(budget, 9.0, lean) == BudgetVerdict(replace(lean, one_in=4), 9.0)
    assert spent(budget, 7.0, replace(lean, one_in=4)) == BudgetVerdict(None, 7.0)


def test_beyond_the_coarsest_requests_alone_then_nothing():
    budget = Budget(5.0)
    coarse = TracerSample(COARSEST, files=False)
    assert spent(budget, 6.0, TracerSample(COARSEST), 5e6).sample == coarse
    assert spent(budget, 6.0, coarse, 5e6).sample == replace(coarse, lean=True)
    assert spent(budget, 6.0, replace(coarse, lean=True), 5e6).sample is None


def test_without_a_budget_they_may_take_what_they_take():
    budget = Budget(0.0)
    assert [budget.evaluate(100.0, ALL, 1e5) for _ in range(5)] == [None] * 5
    assert budget.first(1e9) == 1
    assert not budget.exceeded(100.0)


@pytest.mark.parametrize(("iops", "one_in"), [(0, 1), (9_000, 1), (11_000, 4), (100_000, 16), (1e9, COARSEST)])
def test_what_to_begin_with(iops, one_in):
    assert Budget(5.0).first(iops) == one_in


def test_what_it_cost_before_a_stop_says_nothing_about_the_next_time():
    budget = Budget(5.0)
    budget.evaluate(30.0, ALL, 1e5)
    budget.forget()
    assert budget.evaluate(30.0, ALL, 1e5) is None


@pytest.mark.parametrize(
    ("iops", "before", "expected"),
    [(0, 1, 1), (2_500, 1, 1), (7_500, 1, 4), (2_500, 4, 4), (1_500, 4, 1), (42_000, 4, 64), (1e9, 1, COARSEST)],
)
def test_without_a_budget_the_sample_depends_on_the_rate(iops, before, expected):
    assert one_in(iops, before) == expected
