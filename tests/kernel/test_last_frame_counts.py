"""The kernel's counts of the first windows, read late, and of the last, where the probe was detached before."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from latmon.decode.framer import ProbeInterval
from latmon.model.frame import Completed, Flow, Health
from latmon.model.measurements import HUNG_OPERATIONS
from latmon.model.measurements.hung_operations import HungOperation, HungTime
from latmon_backends.kernel.counters import Sample
from latmon_backends.kernel.diskstats import Counters
from latmon_backends.probe.always_on import FrameBuilder
from latmon_backends.probe.tick_protocol import LastWindow, ProbeWindow, Tick

S = 1_000_000
LAG_US = S // 2
MANIFEST = SimpleNamespace(maps=(), clock="monotonic")
"""That of a script without bytes."""


def sample(mono_us, sda_writes):
    ops = {"read": Completed(7, 0, 0), "write": Completed(sda_writes, 0, 0)}
    still = {"read": Completed(3, 0, 0), "write": Completed(9, 0, 0)}
    counters = {"sda": Counters("sda", ops, 0), "loop3": Counters("loop3", still, 2)}
    return Sample(mono_us, 0.0, counters, shown=frozenset(counters))


STILL = {Flow("loop3", op): Completed(0, 0, 0) for op in ("read", "write")}


class Builder:
    """The builder of a probe's frames; each call adds a window of 1 s in which the kernel counts one write."""

    def __init__(self):
        there = SimpleNamespace(sample=lambda: sample(0, 5), known={}, devices=())
        self.frames = FrameBuilder(there, Path("/nonexistent"))
        self.number = 0

    def kernel(self, begin_lag_us, end_lag_us, kind=ProbeWindow, **more):
        self.number += 1
        ends = [
            Tick(one, one * S, sample(one * S + lag_us, 5 + one))
            for one, lag_us in ((self.number, begin_lag_us), (self.number + 1, end_lag_us))
        ]
        window = kind(*ends, ProbeInterval(seen={Flow("sda", "write"): Completed(1, 0)}), **more)
        return self.frames.make(window, MANIFEST, Health()).kernel


@pytest.fixture
def builder():
    return Builder()


def test_of_the_last_only_that_a_device_completed_nothing_is_kept(builder):
    """Otherwise it would be unknown whether its I/Os in flight still wait."""
    builder.kernel(0, 0)
    assert builder.kernel(0, LAG_US, LastWindow) == STILL


def test_of_a_last_window_in_which_the_probe_detached_for_long_they_are_left_out(builder):
    """The kernel counted on while it did: 37 % coverage was seen."""
    builder.kernel(0, 0)
    assert builder.kernel(0, 0, LastWindow, detaching_us=160_000) == STILL
    assert builder.kernel(0, 0, LastWindow, detaching_us=10_000) != STILL


@pytest.mark.parametrize(("kind", "lag_us"), [(ProbeWindow, LAG_US), (LastWindow, 1000)])
def test_of_the_same_time_or_in_between_they_are_whole(builder, kind, lag_us):
    builder.kernel(0, 0)
    assert builder.kernel(0, lag_us, kind)[Flow("sda", "write")] == Completed(1, 0, 0)


def test_at_the_start_they_are_left_out_until_they_are_read_in_time(builder):
    """Each window alone would have another coverage than 100 %, and so would their sum."""
    assert builder.kernel(800_000, 700_000) == builder.kernel(700_000, 1000) == STILL
    whole = [builder.kernel(1000, 2000), builder.kernel(2000, LAG_US), builder.kernel(LAG_US, 0)]
    assert all(Flow("sda", "write") in one for one in whole), "what one misses is in the next"


def test_of_a_reader_that_is_always_late_the_first_three_are_left_out(builder):
    kernels = [builder.kernel(number % 2 * LAG_US, (number + 1) % 2 * LAG_US) for number in range(5)]
    assert [kernel == STILL for kernel in kernels] == [True, True, True, False, False]


def test_after_a_restart_of_the_probe_they_are_left_out_again(builder):
    builder.kernel(0, 0)
    builder.frames.gap = "probe-restart"
    assert builder.kernel(LAG_US, 0) == STILL


def test_rows_without_a_device_are_kept(builder):
    """A file system with a server is on none: without them nobody learns that the server is silent."""
    server = HungOperation("", "/mnt/remote", "fuse.sshfs", "server", "cat/7")
    other = HungOperation("sdz", "/srv", "ext4", "frozen", "cat/8")
    begin, end = (
        replace(sample(at_us, 5), host_sums={HUNG_OPERATIONS: dict.fromkeys((server, other), HungTime(at_us, at_us))})
        for at_us in (S, 2 * S)
    )
    window = ProbeWindow(Tick(1, S, begin), Tick(2, 2 * S, end), ProbeInterval())
    frame = builder.frames.make(window, MANIFEST, Health())
    assert frame[HUNG_OPERATIONS] == {server: HungTime(S, S)}, "sdz is not selected"


def test_what_the_readers_of_the_kernel_s_files_left_out_is_a_notice(builder):
    begin, end = sample(S, 5), replace(sample(2 * S, 6), failed_looks=1, left_out=("nfs could not be read",))
    window = ProbeWindow(Tick(1, S, begin), Tick(2, 2 * S, end), ProbeInterval())
    health = builder.frames.make(window, MANIFEST, Health()).health
    assert (health.notice, health.undecoded_lines) == ("nfs could not be read", 1)
