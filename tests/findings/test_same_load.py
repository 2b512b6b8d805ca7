"""How many times as long I/Os take as earlier in the window: right values, and loads that can't be compared."""

import pytest
from finding_cases import depths, done, facts_of, frame, timed

from latmon.findings.same_load import times_slower, were_quick

IDLE, FULL = {0: 4900, 1: 100}, {1: 5000}


def blocks(*loads, op="write"):
    """Return facts with a block of 5 s for each (I/Os, us of each, bytes, times in use)."""
    return facts_of(
        frame(
            100 + 5 * at,
            kernel=done("sda", ios, op, size),
            histograms=timed("sda", [(ios, {"total": us})], op),
            depths={"sda": depths(busy)},
        )
        for at, (ios, us, size, busy) in enumerate(loads)
    )


def test_ios_of_the_same_load_that_take_longer():
    window = blocks(*[(200, 2_000, 4096, IDLE)] * 3, *[(200, 47_000, 4096, FULL)] * 3).window
    assert times_slower("sda", "write", window[:3], window[3:]) == pytest.approx(23.5)
    assert times_slower("sda", "read", window[:3], window[3:]) is None
    assert times_slower("sda", "write", window[:0], window[3:]) is None


@pytest.mark.parametrize(
    ("now", "is_compared"),
    [
        ((220, 20_000, 4096, FULL), True),
        ((20, 20_000, 4096, FULL), True),  # a program that waits for each does fewer
        ((20, 6_000, 4096, FULL), False),  # far fewer than they take longer
        ((400, 20_000, 4096, FULL), True),  # more, of which the device does far fewer while it is busy
        ((400, 20_000, 4096, {0: 4800, 20: 200}), False),  # more at a time, which wait for each other
        ((200, 20_000, 65_536, FULL), False),  # larger
    ],
)
def test_another_load_is_not_compared(now, is_compared):
    window = blocks(*[(200, 2_000, 4096, IDLE)] * 3, *[now] * 3).window
    assert (times_slower("sda", "write", window[:3], window[3:]) is not None) == is_compared


@pytest.mark.parametrize(("us", "is_quick"), [(2_000, True), (10_000, False)])
def test_ios_were_quick_where_they_took_a_third_or_less(us, is_quick):
    facts = blocks(*[(200, us, 4096, IDLE)] * 4, *[(200, 20_000, 4096, FULL)] * 8)
    assert were_quick(facts, "sda", "write") == is_quick
    assert not were_quick(blocks((200, us, 4096, IDLE)), "sda", "write")
