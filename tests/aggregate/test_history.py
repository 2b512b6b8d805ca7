"""The running sums of a window equal a merge of its frames."""

from dataclasses import replace

import pytest
from frames import START_MONO, disks, frame, host
from hypothesis import given
from hypothesis import strategies as st

from latmon.aggregate.history import Store, Window
from latmon.model.devices import IdleRows, WithIdle
from latmon.model.frame import OPS, Completed, Device, Flow, Frame, Health, Series
from latmon.model.histogram import Histogram, merge
from latmon.model.measurements import KERNEL, LATENCIES, SEEN
from latmon.model.packed_frame import COVERAGE
from latmon.recording.codec import IdleReader, IdleWriter

READ = Series("nvme0n1", "read", "total")
lists = st.lists(st.integers(0, 1 << 22), max_size=5)


@given(st.lists(lists, min_size=1, max_size=12), st.integers(1, 5))
def test_running_sums_equal_a_fresh_merge(seconds, length):
    frames = [frame(i, {READ: Histogram.record(values)} if values else {}) for i, values in enumerate(seconds)]
    window = Window(length * 1_000_000, frames)
    wanted = merge(f.histograms[READ] for f in frames[-length:] if READ in f.histograms)
    assert window.latency("nvme0n1", OPS) == wanted
    done = window.completed("nvme0n1", "read")
    assert (done.count if done else 0) == wanted.count


def test_a_maximum_that_a_higher_frame_lacks_is_unknown():
    window = Window(10**7, [frame(1, {READ: Histogram.record([5])}), frame(2, {READ: Histogram(((7, 1),))})])
    merged = window.latency("nvme0n1", ("read",))
    assert merged.max is None
    assert merged.sum is None
    assert merged.count == 2


def test_ops_are_merged_and_separated():
    (given_frame,) = host(1, 1)
    window = Window(10**7, [given_frame])
    read, write = (window.latency("nvme0n1", (op,)).count for op in ("read", "write"))
    assert (read, write) == (120, 80)
    assert window.latency("nvme0n1", OPS).count == 200


def test_coverage_is_of_what_the_probe_can_see():
    flow, untimed = Flow("nvme0n1", "read"), Flow("dm-0", "read")
    given_frame = Frame(
        1, 0.0, START_MONO, 1_000_000,
        seen={flow: Completed(99, 0)},
        kernel={flow: Completed(100, 0), untimed: Completed(50, 0)},
    )  # fmt: skip
    assert Window(10**6, [given_frame]).coverage({d.name: d for d in disks(1)}) == 0.99
    assert Window(10**6).coverage({}) is None


@pytest.mark.parametrize(
    ("seen", "kernel", "ratio"),
    [
        (6, 1, 1.0),
        (4, 5, None),
        (0, 20, 0.0),
        (25, 20, 1.0),
        (10, 20, 0.5),
        (31, 20, 1.0),
        (71, 20, 3.55),
        (1060, 1000, 1.06),
        (9717, 9584, 1.0),
        (10_500, 10_000, 1.05),
    ],
)
def test_a_few_ios_at_a_windows_ends_are_not_counted_twice(seen, kernel, ratio):
    flow = Flow("nvme0n1", "read")
    given_frame = Frame(1, 0.0, START_MONO, 10**6, seen={flow: Completed(seen, 0)}, kernel={flow: Completed(kernel, 0)})
    assert Window(10**6, [given_frame]).coverage({d.name: d for d in disks(1)}) == ratio


def test_the_kernels_count_is_preferred_to_the_probes():
    flow = Flow("nvme0n1", "read")
    given_frame = Frame(
        1, 0.0, START_MONO, 1_000_000, seen={flow: Completed(99, 10)}, kernel={flow: Completed(100, 20, 5)}
    )
    assert Window(10**6, [given_frame]).completed("nvme0n1", "read") == Completed(100, 20, 5)


def test_frames_without_kernel_counters_have_the_probes_count():
    """The first frames after a start have none, and a rate is over all frames. The mean is of the kernel's alone."""
    flow = Flow("nvme0n1", "read")
    alone = [Frame(i, 0.0, START_MONO + i * 10**6, 10**6, seen={flow: Completed(100, 400)}) for i in (1, 2)]
    both = [
        Frame(
            i,
            0.0,
            START_MONO + i * 10**6,
            10**6,
            seen={flow: Completed(99, 396)},
            kernel={flow: Completed(100, 400, 5000)},
        )
        for i in (3, 4, 5)
    ]
    window = Window(10 * 10**6, [*alone, *both])
    assert window.completed("nvme0n1", "read") == Completed(500, 2000)
    assert window.timed("nvme0n1", "read") == Completed(300, 1200, 15_000)
    window.move(both)
    assert window.completed("nvme0n1", "read") == Completed(300, 1200, 15_000)
    assert Window(10**6, alone).completed("nvme0n1", "read") == Completed(100, 400)


def test_devices_whose_rows_count_nothing_are_idle():
    """The first frame after a start has such rows of all idle devices."""
    idle = {Flow(f"sd{number}", op): Completed(0, 0, 0) for number in range(3) for op in ("read", "write")}
    busy = {Flow("nvme0n1", "read"): Completed(7, 28)}
    first = Frame(1, 0.0, START_MONO, 10**6, seen=busy, kernel=idle)
    assert Window(10**6, [first]).moved == {"nvme0n1"}
    assert Window(10**6, [first]).completed("sd0", "read") == Completed(0, 0, 0)
    assert Window(10**6, [IdleReader().decode(IdleWriter().encode(first))]).moved == {"nvme0n1"}


def test_a_window_that_moves_back_has_the_idle_devices_of_its_last_frame():
    """Back by a second, the frame that is added is the oldest one: a device of the frames after it had no row."""
    devices = [Device("sda", 8, 0), Device("sdb", 8, 16)]
    of_one = IdleRows.of(devices[:1], ("read",), has_queued=True)
    of_both = IdleRows.of(devices, ("read",), has_queued=True)
    rows = [of_one.kernel] * 3 + [of_both.kernel] * 7
    frames = [replace(frame(i), kernel=WithIdle({}, idle)) for i, idle in enumerate(rows)]
    window = Window(5 * 10**6, frames[:8])
    window.move(frames[:7])
    assert window.completed("sdb", "read") == Completed(0, 0, 0, merged=0)
    window.move(frames[:2])
    assert window.completed("sdb", "read") is None


def test_health_adds_up_over_the_window_and_forgets():
    frames = [frame(i, health=Health(lost_events=1, unmatched=i, recording="x")) for i in range(5)]
    state = Window(3_000_000, frames).health()
    assert (state.lost_events, state.unmatched, state.recording) == (3, 2 + 3 + 4, "x")


def test_the_store_is_bounded_and_knows_devices():
    store = Store(limit=10)
    for current_frame in host(2, 30):
        store.append(current_frame)
    assert (len(store.frames), store.arrived, sorted(store.devices)) == (10, 30, ["nvme0n1", "nvme1n1"])
    store.append(frame(31, removed=("nvme1n1",)))
    assert store.removed == {"nvme1n1"}
    store.append(frame(32, devices=disks(2)))
    assert not store.removed


def test_what_no_window_reaches_is_forgotten():
    store = Store()
    for number in range(0, 1000, 10):
        store.append(frame(number))
    assert len(store.frames) == 67


def test_only_the_stages_a_view_asks_for_are_kept():
    store = Store()
    kept = store.append(host(1, 1)[0])
    assert {s.stage for s in kept.histograms} == {"total"}


def test_time_going_backwards_is_another_boot():
    store = Store()
    window = Window(60_000_000)
    for number in (100, 101, 5):
        window.advance(store.append(frame(number, {READ: Histogram.record([5])})))
    assert len(store.frames) == 1
    assert window.latency("nvme0n1", ("read",)).count == 1


def test_devices_that_come_and_go_are_forgotten_with_the_frames_that_knew_them():
    store, window = Store(limit=20), Window(10_000_000)
    for number in range(500):
        (loop,) = disks(1)
        name = f"loop{number}"
        given_frame = frame(
            number,
            {Series(name, "read", "total"): Histogram.record([5])},
            devices=(replace(loop, name=name, kind="loop"),),
            removed=(f"loop{number - 1}",) if number else (),
        )
        window.advance(store.append(given_frame))
    assert len(store.devices) <= 21
    assert set(store.removed) < set(store.devices)
    assert [len(window._sums[table]) for table in (LATENCIES, KERNEL, SEEN, COVERAGE)] == [10] * 4


def test_another_boot_forgets_what_was_gone():
    store = Store()
    for current_frame in (frame(100, devices=disks(2)), frame(101, removed=("nvme1n1",)), frame(5, devices=disks(1))):
        store.append(current_frame)
    assert (set(store.devices), set(store.removed)) == ({"nvme0n1"}, set())


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([None, 0, 7])), min_size=1, max_size=12))
def test_counts_are_those_of_the_window(seconds):
    flow = Flow("nvme0n1", "read")
    frames = [
        Frame(i, 0.0, START_MONO + i * 10**6, 10**6, kernel={flow: Completed(n, n * 512, us)})
        for i, (n, us) in enumerate(seconds)
    ]
    done = Window(3_000_000, frames).completed(*flow)
    assert (done.count if done else 0) == sum(n for n, _ in seconds[-3:])
