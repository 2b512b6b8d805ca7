"""Idle devices share their rows: on the feed, in the history and in the rules, all numbers are as with their own."""

from dataclasses import replace

import pytest
from fake_host import FakeHost, columns

from latmon.aggregate.accumulator import Accumulator
from latmon.aggregate.history import Store, Window
from latmon.aggregate.request_age import Waiting
from latmon.capture.session import Lines
from latmon.findings.facts import block_of, depths_of
from latmon.model.coverage import by_device, total
from latmon.model.devices import IdleRows, WithIdle, busy_rows
from latmon.model.frame import OPS, Completed, Device, Flow, Frame, Outstanding
from latmon.model.inflight import Depths, InFlightList
from latmon.model.measurements import KERNEL
from latmon.model.packed_frame import COVERAGE
from latmon.recording.archive import Archive
from latmon.recording.codec import IdleReader, IdleWriter, encode_frame, to_bytes
from latmon.recording.json_line import parse
from latmon.views.history import DepthWindow
from latmon_backends.kernel import block_devices
from latmon_backends.kernel.counters import FrameClock, KernelSampler, difference

DEVICES = (*(Device(f"sd{letter}", 8, at) for at, letter in enumerate("abcd")), Device("md0", 9, 0, timed=False))
ADDED, GONE = Device("sde", 8, 64), Device("sdf", 8, 80)
ADDED_AT, GONE_AT, AWAY = 40, 66, range(50, 90)
"""First frames with ADDED and without GONE; `sdd` is away in the meantime."""
NAMES = tuple(one.name for one in (*DEVICES, ADDED, GONE))
US = 1_000_000


def devices_at(at):
    """`sde` is plugged in and `sdf` is unplugged midway, `sdd` is unplugged and comes back."""
    devices = tuple(device for device in DEVICES if device.name != "sdd" or at not in AWAY)
    return (*devices, *((ADDED,) if at >= ADDED_AT else ()), *((GONE,) if at < GONE_AT else ()))


def frames(many=130):
    """`sda` is always busy, `sdb`, `sde` and `sdf` each tenth second, `sdc` has an I/O that never completes.

    Others are idle.
    """
    before, rows = (), IdleRows()
    for at in range(many):
        now = devices_at(at)
        if now != before:
            rows = IdleRows.of(now, OPS[:4], has_queued=True)
        each = {"sda", *(f"sd{one}" for one in "bef" if at % 10 == 3), *(["sdc"] if at > 20 else [])}
        names = [device.name for device in now if device.name in each]
        done = {"sda": 5, "sdb": 7, "sdc": 0, "sde": 8, "sdf": 9}
        kernel = {Flow(name, op): Completed(done[name], 4096, 900, merged=0) for name in names for op in OPS[:4]}
        gauges = {name: Outstanding(2 if name == "sdc" else 0, 1) for name in names}
        depths = {name: Depths({0: 400, 2: 600}, {0: 1000}) for name in names}
        seen = {"sda": Completed(5, 4096), **({"sdd": Completed(at % 2, 0)} if at not in AWAY else {})}
        yield Frame(
            at,
            1e9 + at,
            (at + 1) * US,
            US,
            seen={Flow(name, "read"): completed for name, completed in seen.items()},
            kernel=WithIdle(kernel, rows.kernel),
            outstanding=WithIdle(gauges, rows.outstanding),
            depths=WithIdle(depths, rows.depths(US)),
            in_flight=InFlightList(since_us=5 * US, at_us=(at + 1) * US) if at > 5 else None,
            devices=tuple(device for device in now if device not in before),
            removed=tuple(one.name for one in before if one not in now),
        )
        before = now


def complete(frame):
    """Return the frame with rows of their own for all devices."""
    return replace(frame, kernel=dict(frame.kernel), outstanding=dict(frame.outstanding), depths=dict(frame.depths))


def test_the_feed_leaves_idle_devices_out_and_its_reader_puts_them_back():
    writer, reader, lines = IdleWriter(), IdleReader(), Lines()
    for frame in frames():
        text = to_bytes(writer.encode(frame))
        assert frame.seq == 0 or b"md0" not in text
        (line,) = lines.feed(text)
        assert reader.decode(parse(line)) == complete(frame)


def test_a_first_frame_without_counters_leaves_idle_devices_out_too():
    """Else all devices would be busy in it, and the rules would look at each of them for a minute."""
    frame = replace(next(iter(frames(1))), kernel={})
    sent = IdleReader().decode(parse(to_bytes(IdleWriter().encode(frame))))
    assert sent == complete(frame)
    assert busy_rows(sent.depths) == busy_rows(frame.depths)
    assert busy_rows(sent.outstanding) == busy_rows(frame.outstanding)


def test_a_device_that_is_neither_busy_nor_idle_is_not_put_back():
    reader = IdleReader((*DEVICES, Device("sdx", 8, 99)))
    frame = next(iter(frames(1)))
    writer = IdleWriter()
    first = writer.encode(replace(frame, devices=(*DEVICES, Device("sdx", 8, 99))))
    assert first["idle"]["but"] == ["sdx"]
    assert "sdx" not in reader.decode(parse(to_bytes(first))).outstanding


def test_a_recording_has_all_rows():
    frame = next(iter(frames(1)))
    assert encode_frame(frame) == encode_frame(complete(frame))


def test_an_earlier_time_has_all_rows():
    writer, archive, all_frames = IdleWriter(), Archive(), list(frames())
    for frame in all_frames:
        archive.append(frame, to_bytes(writer.encode(frame)))
    for begin, end in ((12, 17), (38, 95)):
        assert list(archive.frames(begin * US, end * US)) == [complete(frame) for frame in all_frames[begin:end]]


def test_sums_are_those_of_complete_frames():
    lean, accumulator = Accumulator(), Accumulator()
    waiting = Waiting(), Waiting()
    for frame in frames():
        for sums, state, one in ((lean, waiting[0], frame), (accumulator, waiting[1], complete(frame))):
            sums.add(one)
            state.add(one)
        assert waiting[0].ages == waiting[1].ages
    assert lean.depths == accumulator.depths
    assert lean.gauges == accumulator.gauges
    assert dict(lean[KERNEL]) == dict(accumulator[KERNEL])
    devices = {device.name: device for device in (*DEVICES, ADDED, GONE)}
    assert total(lean[COVERAGE], devices) == total(accumulator[COVERAGE], devices)
    busy = block_of(lean, waiting[0])
    assert depths_of((busy,))["sdb"] == accumulator.depths["sdb"]
    assert "sdd" not in busy.depth_sums


def test_blocks_have_the_idle_time_of_devices_that_were_there():
    accumulator, blocks, sums, waiting = Accumulator(), [], Accumulator(), Waiting()
    for frame in frames():
        accumulator.add(complete(frame))
        sums.add(frame)
        waiting.add(frame)
        if frame.seq % 7 == 6 or frame.seq == 129:
            blocks.append(block_of(sums, waiting))
            sums = Accumulator()
    depths = depths_of(tuple(blocks))
    assert depths == {name: accumulator.depths[name] for name in ("sda", "sdb", "sdc", "sde", "sdf")}
    assert depths["sde"].span_us == (130 - ADDED_AT) * US


def test_coverage_counts_what_the_probe_saw_of_an_idle_device():
    frame = list(frames(2))[1]
    devices = {device.name: device for device in DEVICES}
    assert total(by_device(frame), devices) == total(by_device(complete(frame)), devices)


@pytest.mark.parametrize("length_us", [15 * US, 60 * US, 100 * US])
def test_windows_are_those_of_complete_frames(length_us):
    stores, windows = (Store(), Store()), (Window(length_us), Window(length_us))
    for frame in frames():
        for store, window, one in zip(stores, windows, (frame, complete(frame)), strict=True):
            window.advance(store.append(one))
    lean, whole_window = windows
    for name, op in ((name, op) for name in NAMES for op in OPS):
        assert lean.completed(name, op) == whole_window.completed(name, op)
    until = 130 * US
    depths = [DepthWindow(length_us, store.depths, until) for store in stores]
    for name in NAMES:
        first, second = (depth_window.read(name) for depth_window in depths)
        assert (first is None) == (second is None) == (name == "sdf" and length_us < 65 * US)
        if first is not None:
            assert (first.depths, first.span_us) == (second.depths, second.span_us)


@pytest.fixture
def host(tmp_path):
    host = FakeHost(tmp_path)
    for at in range(block_devices.CHECKED + 8):
        path = host.disk(f"sd{at}", (8, at))
        host.write(f"{path}/queue/nr_requests", "64\n")
    return host


def test_files_of_many_idle_devices_are_read_in_turn(host, monkeypatch):
    read = []
    content = block_devices.content
    monkeypatch.setattr(block_devices, "content", lambda path: read.append(path) or content(path))
    now = iter(range(0, 100 * US, US))
    sampler = KernelSampler(host.proc, host.sys, clock=FrameClock(lambda: next(now), lambda: 0.0))
    before = sampler.sample()
    assert len(before.idle.queued) == block_devices.CHECKED + 8
    read.clear()
    host.count("sd3", columns(reads=9))
    after = sampler.sample()
    names = {path.relative_to(host.sys / "block").parts[0] for path in read}
    assert 0 < len(names) <= 8
    interval = difference(before, after)
    assert {flow.device for flow in interval.kernel.busy} == {"sd3"}
    assert interval.kernel[Flow("sd3", "read")].count == 9
    assert interval.kernel[Flow("sd4", "read")] == Completed(0, 0, 0, merged=0)


def test_a_limit_of_one_of_many_devices_is_noticed(host):
    now = iter(range(0, 100 * US, US))
    sampler = KernelSampler(host.proc, host.sys, clock=FrameClock(lambda: next(now), lambda: 0.0))
    sampler.sample()
    host.write("sys/block/sd5/queue/nr_requests", "2\n")
    changed = [device.name for _ in range(2 * block_devices.LIMITS_S) for device in sampler.sample().devices]
    assert changed == ["sd5"]
    host.unplug("sd7")
    assert sampler.sample().removed == ("sd7",)


@pytest.mark.parametrize("empty_loops", [0, 200])
def test_limits_of_devices_with_io_are_read_before_those_of_idle_ones(host, empty_loops):
    for at in range(block_devices.CHECKED + 8, 200):
        host.disk(f"sd{at}", (8 + at // 256, at % 256))
    for at in range(empty_loops):
        host.disk(f"loop{at}", (7, at))
    now = iter(range(0, 100 * US, US))
    sampler = KernelSampler(host.proc, host.sys, clock=FrameClock(lambda: next(now), lambda: 0.0))
    for at in range(30):
        host.count("sd5", columns(reads=at))
        sampler.sample()
    host.write("sys/block/sd5/queue/nr_requests", "2\n")
    for seconds in range(1, 30):
        host.count("sd5", columns(reads=100 + seconds))
        if "sd5" in [device.name for device in sampler.sample().devices]:
            break
    assert seconds <= block_devices.LIMITS_S + 1


@pytest.mark.parametrize("restart", [50, 250], ids=["below the old totals", "above the old totals"])
def test_a_replug_of_one_of_many_devices_is_counted_once(host, restart):
    host.count("sd3", columns(reads=200))
    now = iter(range(0, 100 * US, US))
    sampler = KernelSampler(host.proc, host.sys, clock=FrameClock(lambda: next(now), lambda: 0.0))
    before, counts = sampler.sample(), []
    host.unplug("sd3")
    host.disk("sd3", (8, 3))
    for at in range(20):
        host.count("sd3", columns(reads=restart + 10 * at))
        after = sampler.sample()
        counts.append(difference(before, after).kernel[Flow("sd3", "read")].count)
        before = after
    assert counts == [restart, *[10] * 19]
