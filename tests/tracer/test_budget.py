"""From the tracer's measured cost to a coarser sample, or to its end."""

import pytest

from latmon_backends.tracer.demand import COARSEST, Budget, BudgetVerdict


def test_within_the_budget_nothing_is_done():
    budget = Budget(5.0)
    assert [budget.evaluate(percent, 1) for percent in (4.9, 0.0, 5.0) * 3] == [None] * 9


def test_one_measurement_above_is_a_burst():
    budget = Budget(5.0)
    assert [budget.evaluate(percent, 1) for percent in (50.0, 1.0, 50.0, 1.0)] == [None] * 4


@pytest.mark.parametrize(("percent", "one_in"), [(6.0, 4), (19.0, 4), (30.0, 16), (1000.0, 256), (9000.0, 256)])
def test_the_sample_gets_as_coarse_as_the_excess_asks(percent, one_in):
    budget = Budget(5.0)
    assert budget.evaluate(percent, 1) is None
    assert budget.evaluate(percent, 1) == BudgetVerdict(one_in, percent)


def test_the_lesser_of_two_measurements_counts():
    budget = Budget(5.0)
    budget.evaluate(90.0, 1)
    assert budget.evaluate(8.0, 1) == BudgetVerdict(4, 8.0)


def test_a_sample_that_does_not_help_is_the_end():
    budget = Budget(5.0)
    assert [budget.evaluate(30.0, 1) for _ in range(2)][1].one_in == 16
    assert [budget.evaluate(29.0, 16) for _ in range(2)][1] == BudgetVerdict(0, 29.0)


def test_beyond_the_coarsest_is_the_end():
    budget = Budget(5.0)
    assert [budget.evaluate(6.0, COARSEST) for _ in range(2)][1].one_in == 0


def test_without_a_budget_they_may_take_what_they_take():
    budget = Budget(0.0)
    assert [budget.evaluate(100.0, 1) for _ in range(5)] == [None] * 5
    assert budget.first(1e9) == 1
    assert not budget.exceeded(100.0)


@pytest.mark.parametrize(("iops", "one_in"), [(0, 1), (9_000, 1), (11_000, 4), (100_000, 16), (1e9, COARSEST)])
def test_what_to_begin_with(iops, one_in):
    assert Budget(5.0).first(iops) == one_in


def test_what_it_cost_before_a_stop_says_nothing_about_the_next_time():
    budget = Budget(5.0)
    budget.evaluate(30.0, 1)
    budget.forget()
    assert budget.evaluate(30.0, 1) is None
