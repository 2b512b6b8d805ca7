"""The kernel's counts of a capture's last window, where the probe was detached before they were read."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from latmon.decode.framer import ProbeInterval
from latmon.model.frame import Completed, Flow, Health
from latmon_backends.kernel.counters import Sample
from latmon_backends.kernel.diskstats import Counters
from latmon_backends.probe.always_on import FrameBuilder
from latmon_backends.probe.tick_protocol import LastWindow, ProbeWindow, Tick

S = 1_000_000
LAG_US = S // 2


def sample(mono_us, sda_writes):
    ops = {"read": Completed(7, 0, 0), "write": Completed(sda_writes, 0, 0)}
    still = {"read": Completed(3, 0, 0), "write": Completed(9, 0, 0)}
    counters = {"sda": Counters("sda", ops, 0), "loop3": Counters("loop3", still, 2)}
    return Sample(mono_us, 0.0, counters, shown=frozenset(counters))


def kernel(kind, lag_us):
    frames = FrameBuilder(SimpleNamespace(sample=lambda: sample(0, 5), known={}, devices=()), Path("/nonexistent"))
    begin, end = Tick(0, S, sample(S, 5)), Tick(1, 2 * S, sample(2 * S + lag_us, 6))
    return frames.make(kind(begin, end, ProbeInterval()), Health(), counts_bytes=True, keeps_time_asleep=False).kernel


def test_they_are_of_more_than_the_window_so_only_that_a_device_completed_nothing_is_kept():
    """Otherwise it would be unknown whether its I/Os in flight still wait."""
    assert kernel(LastWindow, LAG_US) == {Flow("loop3", op): Completed(0, 0, 0) for op in ("read", "write")}


@pytest.mark.parametrize(("kind", "lag_us"), [(ProbeWindow, LAG_US), (LastWindow, 1000)])
def test_of_the_same_time_they_are_whole(kind, lag_us):
    assert kernel(kind, lag_us)[Flow("sda", "write")] == Completed(1, 0, 0)
