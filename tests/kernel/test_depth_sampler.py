import itertools
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from fake_host import FakeHost, columns

from latmon.model.frame import Outstanding
from latmon_backends.kernel import depth_sampler
from latmon_backends.kernel.counters import KernelSampler, difference, monotonic_us
from latmon_backends.kernel.depth_sampler import (
    BUDGET,
    LONGEST_S,
    SHORTEST_S,
    DepthFiles,
    DepthGauge,
    DepthSampler,
    Passes,
    SamplingPace,
    Watched,
)

SEEN, NOT_SEEN = Watched(1, has_queued=True), Watched(1, has_queued=False)


@pytest.fixture
def host(tmp_path):
    return FakeHost(tmp_path)


def set_gauge(host, name, *, column, reads=0, writes=0, done=0):
    path = (host.sys / "block" / name).resolve()
    counted = columns(done, in_flight=column)
    (path / "stat").write_text(" ".join(map(str, counted)) + "\n")
    (path / "inflight").write_text(f"{reads:8d} {writes:8d}\n")
    host.count(name, counted)


def open_files():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


# Files


def read(host, name="vda", *, has_queued=True):
    with DepthFiles(host.sys / "block" / name, has_queued=has_queued) as files:
        return files.read()


def test_what_the_driver_does_not_hold_waits(host):
    host.virtio()
    set_gauge(host, "vda", column=99, reads=10, writes=6)
    assert read(host) == DepthGauge(16, 83, moved=True)
    assert read(host, has_queued=False) == DepthGauge(16, None, moved=True)


def test_nothing_outstanding(host):
    host.virtio()
    set_gauge(host, "vda", column=0)
    assert read(host)[:2] == (0, 0)
    assert read(host, has_queued=False)[:2] == (0, None)


def test_what_completes_between_the_two_files_does_not_wait(host, monkeypatch):
    host.virtio()
    set_gauge(host, "vda", column=0)
    answers = iter((columns(in_flight=9), (4, 0), columns(in_flight=5)))
    monkeypatch.setattr(os, "pread", lambda *_: " ".join(map(str, next(answers))).encode())
    assert read(host)[:2] == (4, 1)


def test_nothing_is_left_open_where_one_file_is_missing(host):
    host.virtio()
    set_gauge(host, "vda", column=0)
    ((host.sys / "block/vda").resolve() / "inflight").unlink()
    before = open_files()
    with pytest.raises(FileNotFoundError):
        DepthFiles(host.sys / "block/vda", has_queued=True)
    assert open_files() == before


# Passes


class Told(list):
    def __call__(self, name, _watched, gauge):
        self.append((name, *gauge[:2]))

    def since(self):
        found = self[:]
        self.clear()
        return found


@pytest.fixture
def reported():
    return Told()


@pytest.fixture
def passes(host, reported):
    host.virtio()
    set_gauge(host, "vda", column=0)
    with Passes(host.proc, host.sys, reported) as passes:
        passes.watch({"vda": SEEN})
        yield passes


def test_a_quiet_device_is_read_without_its_files(passes, reported):
    passes.one(quiet=True)
    passes.one(quiet=False)
    passes.one(quiet=True)
    assert reported == [("vda", 0, 0)] * 2
    assert passes.open == set()


def test_one_that_does_something_is_read_at_each_pass(host, passes, reported):
    passes.one(quiet=True)
    set_gauge(host, "vda", column=3, reads=2)
    for _ in range(3):
        passes.one(quiet=False)
    assert reported.since() == [("vda", 0, 0)]
    passes.one(quiet=True)
    passes.one(quiet=False)
    assert reported == [("vda", 2, 1)] * 2
    assert passes.open == {"vda"}


def test_one_whose_counters_moved_is_looked_at_though_nothing_is_in_flight(host, passes):
    passes.one(quiet=True)
    set_gauge(host, "vda", column=0, done=7)
    passes.one(quiet=True)
    assert passes.open == {"vda"}


def test_one_that_fell_quiet_is_closed_after_a_while(host, passes, monkeypatch):
    monkeypatch.setattr(depth_sampler, "_QUIET", 3)
    set_gauge(host, "vda", column=1, reads=1)
    passes.one(quiet=True)
    set_gauge(host, "vda", column=0, done=1)
    for _ in range(4):
        passes.one(quiet=False)
        assert passes.open == {"vda"}
    passes.one(quiet=False)
    assert passes.open == set()


def test_a_stuck_request_keeps_it_busy(host, passes, monkeypatch, reported):
    monkeypatch.setattr(depth_sampler, "_QUIET", 3)
    set_gauge(host, "vda", column=1)
    for _ in range(20):
        passes.one(quiet=True)
    assert reported == [("vda", 0, 1)] * 20


def test_a_device_that_goes_away_is_dropped(host, passes, monkeypatch, reported):
    set_gauge(host, "vda", column=1, reads=1)
    before = open_files()
    passes.one(quiet=True)
    assert open_files() == before + 2

    def gone(*_):
        raise OSError(19, "No such device")

    monkeypatch.setattr(os, "pread", gone)
    host.unplug("vda")
    passes.one(quiet=True)
    assert reported.since() == [("vda", 1, 0)]
    assert open_files() == before


def test_one_that_comes_back_as_another_is_opened_again(host, passes, reported):
    set_gauge(host, "vda", column=1, reads=1)
    passes.one(quiet=True)
    host.unplug("vda")
    host.virtio()
    set_gauge(host, "vda", column=5, reads=5)
    passes.watch({"vda": Watched(2, has_queued=True)})
    passes.one(quiet=True)
    assert reported == [("vda", 1, 0), ("vda", 5, 0)]


def test_what_is_not_watched_is_not_read(host, passes, reported):
    host.mptsas()
    set_gauge(host, "vda", column=1, reads=1)
    set_gauge(host, "sda", column=1, reads=1)
    passes.one(quiet=True)
    passes.watch({"sda": NOT_SEEN})
    passes.one(quiet=True)
    assert reported == [("vda", 1, 0), ("sda", 1, None)]
    assert passes.open == {"sda"}


def test_open_files_are_bounded_and_no_device_is_left_out(host, passes, monkeypatch, reported):
    monkeypatch.setattr(depth_sampler, "MOST_OPEN", 1)
    host.mptsas()
    for name in ("vda", "sda"):
        set_gauge(host, name, column=1, reads=1)
    passes.watch({"vda": SEEN, "sda": SEEN})
    for _ in range(3):
        passes.one(quiet=True)
    assert sorted(reported) == [("sda", 1, 0)] * 3 + [("vda", 1, 0)] * 3
    assert len(passes.open) == 1


@pytest.mark.parametrize("text", ["", "1 2\n", "x y z\n", f"254 0 vda {'z ' * 17}\n"])
def test_what_is_not_understood_is_no_reading(host, passes, reported, text):
    (host.proc / "diskstats").write_text(text)
    ((host.sys / "block/vda").resolve() / "stat").write_text(text)
    passes.one(quiet=True)
    passes.one(quiet=True)
    assert reported == []
    assert passes.open == set()


# SamplingPace


@pytest.mark.parametrize(
    ("cost_s", "step_s"), [(0, SHORTEST_S), (100e-6, 100e-6 / BUDGET), (0.002, 0.002 / BUDGET), (10, LONGEST_S)]
)
def test_what_a_pass_costs_decides_how_many_there_are(cost_s, step_s):
    cpu = itertools.count(0, cost_s)
    pace = SamplingPace(lambda: next(cpu), lambda: 0.5)
    for _ in range(300):
        pause_s = pace.pause_s()
    assert pause_s == pytest.approx(step_s, rel=0.01)


def test_the_first_pauses_are_short():
    cpu = itertools.count(0, 50e-6)
    pace = SamplingPace(lambda: next(cpu), lambda: 0.5)
    assert all(SHORTEST_S <= pace.pause_s() <= 0.05 for _ in range(20))


def test_it_keeps_step_with_nothing():
    chances = itertools.cycle((0.0, 1.0))
    pace = SamplingPace(lambda: 0.0, lambda: next(chances))
    for _ in range(100):
        pauses = {round(pace.pause_s(), 4) for _ in range(2)}
    assert pauses == {0.005, 0.015}


# The thread


def until(happened):
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_depths_between_two_samples(host):
    host.virtio()
    set_gauge(host, "vda", column=5, reads=2, writes=1)
    kernel = KernelSampler(host.proc, host.sys)
    before = kernel.sample()
    assert (before.spent, difference(before, before).depths) == ({}, {})
    files = open_files()
    kernel.start()
    try:
        first = kernel.sample()
        until(lambda: kernel._depths._passes.open)
        time.sleep(0.1)
        after = kernel.sample()
    finally:
        kernel.close()
    assert open_files() <= files, "another file may have been closed meanwhile"
    reported = difference(first, after).depths["vda"]
    assert set(reported.in_driver) == {3}
    assert set(reported.queued) == {2}
    assert 100 <= sum(reported.in_driver.values()) <= (monotonic_us() - first.mono_us) / 1000


def test_a_disk_that_the_kernel_does_not_count_has_no_depths(host):
    path = host.virtio()
    set_gauge(host, "vda", column=5, reads=2)
    host.write(f"{path}/queue/iostats", "0\n")
    kernel = KernelSampler(host.proc, host.sys)
    kernel.sample()
    kernel.start()
    try:
        assert kernel.sample().spent == {}
    finally:
        kernel.close()


def test_the_frame_s_own_gauge_counts(host):
    host.virtio()
    sampler = DepthSampler(host.proc, host.sys, monotonic_us)
    watched = {"vda": SEEN}
    sampler.watch(1_000_000, watched, {"vda": Outstanding(4, 0)})
    sampler.watch(1_100_000, watched, {"vda": Outstanding(8, 2)})
    assert sampler.spent()["vda"].in_driver == {4: 50, 8: 50}
    sampler.watch(1_200_000, {}, {})
    assert sampler.spent() == {}


def test_a_read_that_hangs_does_not_block_the_sampler(host, monkeypatch):
    host.virtio()
    set_gauge(host, "vda", column=1, reads=1)
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(_self):
        hangs.set()
        goes_on.wait(600)
        return DepthGauge(1, 0, moved=True)

    monkeypatch.setattr(DepthFiles, "read", hang)
    sampler = DepthSampler(host.proc, host.sys, monotonic_us)
    sampler.watch(monotonic_us(), {"vda": SEEN}, {"vda": Outstanding(1, 0)})
    files = open_files()
    sampler.start()
    try:
        assert hangs.wait(60)
        sampler.watch(monotonic_us(), {"vda": SEEN}, {"vda": Outstanding(1, 0)})
        assert sampler.spent()["vda"].in_driver.keys() <= {1}
        sampler.close(0.05)
        assert not goes_on.is_set()
    finally:
        goes_on.set()
    until(lambda: open_files() == files)


def test_a_mistake_of_ours_is_not_silent(host, monkeypatch):
    def fail(*_self, **_quiet):
        raise ZeroDivisionError

    monkeypatch.setattr(depth_sampler.Passes, "one", fail)
    sampler = DepthSampler(host.proc, host.sys, monotonic_us)
    sampler.start()
    until(sampler._looking.done)
    with pytest.raises(ZeroDivisionError):
        sampler.spent()


@pytest.mark.skipif(not Path("/sys/block").is_dir(), reason="needs /sys/block")
def test_this_host_has_the_files():
    if not (devices := sorted(Path("/sys/block").iterdir())):
        pytest.skip("no block device here")
    gauges = []
    for device in devices:
        with suppress(OSError), DepthFiles(device, has_queued=True) as files:  # it may go meanwhile
            gauges.append(files.read())
    assert gauges
    assert all(gauge.in_driver >= 0 for gauge in gauges)


def test_a_sample_does_not_count_for_time_without_samples(host):
    """After a stop of 12 s two seconds are known, one at either end."""
    sampler = DepthSampler(host.proc, host.sys, lambda: 0)
    for mono_us, depth in ((0, 3), (12_000_000, 5)):
        sampler.watch(mono_us, {"vda": SEEN}, {"vda": Outstanding(depth, 0)})
    assert sampler.spent()["vda"].in_driver == {3: 1000, 5: 1000}
