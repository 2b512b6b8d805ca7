"""Windows of issues, synthetic and recorded: sorted by LBA, in order of arrival, or too few for an order."""

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.analysis.issue_order import LbaOrder, arrived_us, lba_order, merge_orders, overtaken, summary
from latmon.model.inflight import Issue

RECORDED = {
    name: tuple(Issue(*row) for row in rows)
    for name, rows in json.loads(
        (Path(__file__).parents[1] / "golden/issue-windows.json").read_text(encoding="utf-8")
    ).items()
}
"""Random reads of 4 KiB, 64 at once, on a loop device that takes 4 at a time: by scheduler."""
BEGIN, APART = 10_000_000, 100


def came(sectors, op="read", apart=APART):
    """(arrival, sector, op) of each, in the order of arrival."""
    return [(BEGIN + n * apart, sector, op) for n, sector in enumerate(sectors)]


def issued(requests, begin=BEGIN + 1_000_000, apart=APART):
    """Issued in this order."""
    return tuple(
        Issue(begin + n * apart, sector, 4096, op, begin + n * apart - arrival)
        for n, (arrival, sector, op) in enumerate(requests)
    )


def scattered(count, seed=1):
    return Random(seed).sample(range(0, 8 * 100_000, 8), count)


def by_lba(requests):
    return sorted(requests, key=lambda request: request[1])


# Who passed whom


@pytest.mark.parametrize(
    ("arrivals", "passed"),
    [
        ([], ()),
        ([0], (0,)),
        ([0, 100, 200], (0, 0, 0)),
        ([100, 200, 0], (0, 0, 2)),
        ([200, 100, 0], (0, 1, 2)),
        ([0, 300, 200, 100, 400], (0, 0, 1, 2, 0)),
        # A batch, and stamps that were rounded: none was first.
        ([100, 100, 100], (0, 0, 0)),
        ([101, 100], (0, 0)),
        ([102, 100], (0, 1)),
    ],
)
def test_who_came_later_and_went_first_is_counted(arrivals, passed):
    assert overtaken(issued([(arrival, 8, "read") for arrival in arrivals], begin=1000)) == passed


@given(st.lists(st.integers(0, 2000), max_size=40))
def test_it_is_what_comparing_each_with_each_gives(arrivals):
    some = issued([(arrival, 8, "read") for arrival in arrivals], begin=10_000)
    expected = tuple(
        sum(arrived_us(before) >= arrived_us(one) + 2 for before in some[:at]) for at, one in enumerate(some)
    )
    assert overtaken(some) == expected


# The verdict


def test_sorted_by_lba():
    order = lba_order(issued(by_lba(came(scattered(128)))))
    assert order.is_sorted
    assert order.ascending_share == 1.0
    assert 0.35 < order.arrival_share < 0.65
    assert order.reordered > 100
    assert summary(order).startswith("sorted by LBA: 100% ascend, arrival order would be ")
    assert "the request that waited longest, 1." in summary(order)


def test_the_victim_at_the_end_of_the_disk():
    """It came first and lies highest: every other one goes before it."""
    sectors = [8 * 1_000_000, *scattered(127)]
    order = lba_order(issued(by_lba(came(sectors))))
    assert (order.most_overtaken, order.longest_overtaken) == (127, 127)
    assert summary(order).endswith("the request that waited longest, 1.01 s, was overtaken by 127 or more later ones")
    wait_us = order.longest_wait_us
    assert "waited longest" not in summary(order, known_us=wait_us)
    assert "waited longest" in summary(order, known_us=wait_us - 1)


def test_what_passed_it_is_known_where_its_whole_wait_is_in_the_window():
    late = [(BEGIN + 50, 80_000_000, "read")]
    requests = came(scattered(100))
    some = issued([*requests[:1], *requests[1:60], *late, *requests[60:]], begin=BEGIN + 10, apart=APART)
    order = lba_order(some)
    assert order.longest_overtaken == 59
    assert not order.longest_is_older
    assert summary(order).endswith("was overtaken by 59 later ones")


def test_in_order_of_arrival():
    order = lba_order(issued(came(scattered(128))))
    assert (order.reordered, order.most_overtaken, order.is_sorted) == (0, 0, False)
    assert summary(order) == "in order of arrival"


def test_a_sequential_load_is_not_called_sorted():
    order = lba_order(issued(came(range(0, 1024, 8))))
    assert not order.is_sorted
    assert summary(order) == "in order of arrival; 100% ascend as they came: a sequential load"


def test_a_few_out_of_place():
    requests = came(scattered(128))
    requests[10], requests[11] = requests[11], requests[10]
    text = summary(lba_order(issued(requests)))
    assert text.startswith("nearly in order of arrival: 1 of 128 were overtaken by later ones")


def test_another_order_than_lba():
    order = lba_order(issued(came(scattered(128))[::-1]))
    assert not order.is_sorted
    assert summary(order).startswith("not in order of arrival: 127 of 128 were overtaken by later ones, ")


def test_reads_and_writes_are_sorted_apart():
    """Ascending batches of either: from one to the other it goes back, which is no lack of order."""
    both = came(scattered(64, 2), "read") + came(scattered(64, 3), "write")
    reads, writes = (by_lba([one for one in both if one[2] == op]) for op in ("read", "write"))
    batches = [one for at in range(0, 64, 16) for one in (*reads[at : at + 16], *writes[at : at + 16])]
    order = lba_order(issued(batches))
    assert order.ascending_share == 1.0
    assert order.is_sorted


def test_too_few_say_nothing():
    order = lba_order(issued(by_lba(came(scattered(20)))))
    assert (order.ascending_share, order.arrival_share, order.is_sorted) == (None, None, False)
    assert summary(order).startswith("too few for an order: 20 requests; the request that waited longest, ")
    assert summary(lba_order(issued(came(scattered(3))))) == "too few for an order: 3 requests"


def test_nothing_at_all():
    assert lba_order(()) == LbaOrder() == merge_orders([])
    assert summary(LbaOrder()) == "too few for an order: 0 requests"


def test_batches_that_came_at_once_are_not_taken_for_what_they_became():
    """Sixteen with one stamp, sorted within: how they came isn't known, so the share is of moments."""
    sectors = scattered(16 * 64)
    requests = [(BEGIN + at // 16 * 5000, sector, "read") for at, sector in enumerate(sectors)]
    batches = [one for at in range(0, len(requests), 16) for one in by_lba(requests[at : at + 16])]
    order = lba_order(issued(batches))
    assert (order.reordered, order.arrival_pairs) == (0, 63)
    assert 0.25 < order.arrival_share < 0.75
    assert summary(order) == "in order of arrival"


def test_all_at_once_is_not_known():
    some = issued([(BEGIN, sector, "read") for sector in sorted(scattered(128))])
    assert lba_order(some).arrival_share is None
    assert summary(lba_order(some)) == "in order of arrival"


# Several windows


def test_windows_are_added():
    given_lba_order, other = (
        lba_order(issued(by_lba(came(scattered(40, 5))))),
        lba_order(issued(by_lba(came(scattered(50, 6))))),
    )
    both = merge_orders([given_lba_order, LbaOrder(), other])
    assert both.count == 90
    assert both.pairs == 39 + 49
    assert both.most_overtaken == max(given_lba_order.most_overtaken, other.most_overtaken)
    assert both.longest_wait_us == max(given_lba_order.longest_wait_us, other.longest_wait_us)
    assert merge_orders([given_lba_order]) == given_lba_order


def test_no_pair_is_made_across_windows():
    windows = [issued(came([800 - 8 * n])) for n in range(64)]
    assert merge_orders(lba_order(window) for window in windows).ascending_share is None


# Recorded


@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name):
    order = lba_order(RECORDED[name])
    assert order.count >= 120
    if name.startswith("none"):
        assert summary(order) == "in order of arrival"
    else:
        assert order.is_sorted
        assert order.most_overtaken > 20
        assert order.arrival_share == pytest.approx(0.5, abs=0.1)


@given(
    st.lists(
        st.builds(
            Issue,
            st.integers(0, 2**62),
            st.integers(0, 2**62),
            st.integers(0, 2**32),
            st.sampled_from(["read", "write", "other"]),
            st.integers(0, 2**40),
        ),
        max_size=200,
    )
)
def test_any_window_has_a_verdict(issues):
    order = lba_order(issues)
    assert summary(order)
    assert 0 <= order.reordered <= order.count == len(issues)
    assert max(overtaken(issues), default=0) == order.most_overtaken


def test_the_verdict_names_the_scheduler_where_it_is_known():
    order = lba_order(issued(came(scattered(64))))
    text = summary(order)
    assert summary(order, "mq-deadline") == f"mq-deadline: {text}"
    assert summary(order, "none") == f"no scheduler: {text}"
    assert summary(LbaOrder(), "none") == summary(LbaOrder())
