import asyncio
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fake_host import FakeHost, columns

from latmon.capture.backend import Backend, Configured, Options
from latmon.model.frame import STAGES, Completed, Flow
from latmon.support.errors import UnavailableError
from latmon_backends import procfs
from latmon_backends.kernel.counters import difference
from latmon_backends.kernel.nfs import NfsReader
from latmon_backends.kernel.system import PsutilSampler
from latmon_backends.procfs import ProcfsBackend

TICK_US = 30_000


@pytest.fixture
def host(tmp_path):
    fake = FakeHost(tmp_path)
    fake.virtio()
    return fake


def options(host, interval_us=TICK_US, devices=()):
    return Options(interval_us=interval_us, devices=devices, proc=host.proc, sys=host.sys)


async def take(backend, count, between=lambda _seq: None):
    async with backend:
        frames = []
        async for frame in backend.frames():
            frames.append(frame)
            if len(frames) == count:
                return frames
            between(frame.seq)
    return frames


async def test_frames_hold_what_was_counted_and_the_first_all_devices(host):
    frames = await take(
        ProcfsBackend(options(host)), 3, lambda seq: host.count("vda", columns(5 * seq + 5, in_flight=seq))
    )
    assert [frame.seq for frame in frames] == [0, 1, 2]
    assert [device.name for device in frames[0].devices] == ["vda"]
    assert [frame.devices for frame in frames[1:]] == [(), ()]
    assert [frame.kernel[Flow("vda", "read")] for frame in frames] == [
        Completed(0, 0, 0, merged=0),
        Completed(5, 5 * 4096, 10_000, merged=0),
        Completed(5, 5 * 4096, 10_000, merged=0),
    ]
    assert not any(frame.histograms or frame.seen for frame in frames)


async def test_what_was_asked_for_in_vain_is_reported_once(host):
    asked = replace(options(host), stages="all", threshold_us=0)
    first, second = await take(ProcfsBackend(asked), 2)
    assert first.health.notice.startswith("--stages all and --threshold have no effect")
    assert second.health.notice == ""


@pytest.mark.parametrize(("stages", "threshold_us", "named"), [("auto", None, ""), ("basic", 5, "--threshold")])
async def test_what_needs_nothing_is_not_in_vain(host, stages, threshold_us, named):
    (only,) = await take(ProcfsBackend(replace(options(host), stages=stages, threshold_us=threshold_us)), 1)
    assert only.health.notice.partition(" has no effect")[0] == named


async def test_the_schedule_does_not_drift(monkeypatch):
    """10 ms of work per tick would add up; the clock is one that waits for nothing."""
    clock = SimpleNamespace(us=5_000_000)

    async def until(due_us):
        clock.us = max(clock.us, due_us)

    monkeypatch.setattr(procfs, "monotonic_us", lambda: clock.us)
    monkeypatch.setattr(procfs, "_until", until)
    woken = []
    async for _ in procfs._ticks(5_000_000, TICK_US):
        woken.append(clock.us)
        clock.us += 10_000
        if len(woken) == 8:
            break
    assert woken == [5_000_000 + n * TICK_US for n in range(1, 9)]


async def test_frames_have_no_time_between_them(host):
    backend = ProcfsBackend(options(host))
    frames = await take(backend, 3)
    assert sum(frame.dt_us for frame in frames) == frames[-1].mono_us - backend.origin.start_mono_us


async def test_a_reader_that_was_late_misses_ticks_and_says_so(host):
    frames = await take(ProcfsBackend(options(host)), 2, lambda _seq: time.sleep(0.1))
    assert [frame.late for frame in frames[1:]] == [True]
    assert frames[1].dt_us > 2 * TICK_US
    assert frames[1].gap == ""


async def test_a_reader_that_was_stopped_while_it_waited_marks_the_wide_frame_itself(host):
    asyncio.get_running_loop().call_later(TICK_US * 1.5 / 1e6, time.sleep, 0.5)
    frames = await take(ProcfsBackend(options(host)), 4)
    assert [frame.late for frame in frames] == [frame.dt_us >= 2 * TICK_US for frame in frames]
    assert max(frame.dt_us for frame in frames) > 400_000


async def test_what_was_counted_while_it_was_stopped_is_in_the_last_frame(host):
    async with ProcfsBackend(options(host)) as backend:
        frames = backend.frames()
        await anext(frames)
        host.count("vda", columns(700))
        time.sleep(0.3)  # noqa: ASYNC251 - as a stop of the whole process
        (last,) = await backend.finish(0)
        assert (last.late, last.kernel[Flow("vda", "read")].count) == (True, 700)
        assert not await backend.finish(0), "no interval has passed since"
        await frames.aclose()


async def test_a_suspended_host_is_a_gap(host):
    slept = iter((0, 0, 5_000_000, 5_000_000))
    frames = await take(ProcfsBackend(options(host), suspended_us=lambda: next(slept)), 3)
    assert [frame.gap for frame in frames] == ["", "suspended", ""]


async def test_a_long_interval_has_a_short_first_frame(host, monkeypatch):
    monkeypatch.setattr("latmon_backends.procfs._FIRST_US", 10_000)
    (first,) = await take(ProcfsBackend(options(host, interval_us=60_000_000)), 1)
    assert first.dt_us < 30_000_000
    first, second = await take(ProcfsBackend(options(host, interval_us=100_000)), 2)
    assert first.dt_us + second.dt_us >= 100_000


async def test_only_the_chosen_devices(host):
    host.mptsas()
    (frame,) = await take(ProcfsBackend(options(host, devices=("sd*",))), 1)
    assert {flow.device for flow in frame.kernel} == {"sda"}


async def test_the_origin_holds_settings_and_they_can_be_read_again(host):
    queue = host.sys / "class/block/vda/queue"
    queue.mkdir(exist_ok=True)
    (queue / "nr_requests").write_text("256\n")
    async with ProcfsBackend(options(host)) as backend:
        assert backend.origin.settings["device vda"]["nr_requests"] == "256"
        (queue / "nr_requests").write_text("64\n")
        assert (await backend.settings())["device vda"]["nr_requests"] == "64"
        assert isinstance(backend, Configured)


async def test_a_device_that_left_before_the_first_frame_is_not_in_it(host):
    host.mptsas()
    async with ProcfsBackend(options(host)) as backend:
        frames = backend.frames()
        waiting = asyncio.ensure_future(anext(frames))
        await asyncio.sleep(0)
        host.unplug("sda")
        assert [device.name for device in (await waiting).devices] == ["vda"]
        await frames.aclose()


def test_the_origin_says_what_is_missing_and_why(host):
    host.write("proc/sys/kernel/random/boot_id", "1234-abcd\n")
    backend: Backend = ProcfsBackend(options(host), "bpftrace is not installed")
    origin = backend.origin
    assert (origin.backend, origin.tier, origin.reason) == ("procfs", "D", "bpftrace is not installed")
    assert [missing.name for missing in origin.absent] == list(STAGES)
    assert all(missing.reason for missing in origin.absent)
    assert (origin.boot_id, origin.measured, origin.latency_from) == ("1234-abcd", {}, "")


async def test_lines_not_understood_reach_the_health_line(host):
    with (host.proc / "diskstats").open("a") as file:
        file.write("rubbish\n")
    (frame,) = await take(ProcfsBackend(options(host)), 1)
    assert frame.health.undecoded_lines == 1


async def test_a_reader_that_fails_is_in_the_health_line_and_frames_go_on(host, monkeypatch):
    def fail(*_):
        raise ValueError("nonsense")

    monkeypatch.setattr(NfsReader, "look", fail)
    frames = await take(ProcfsBackend(options(host)), 5)
    assert [frame.health.notice for frame in frames if frame.health.notice] == [
        "nfs could not be read: ValueError: nonsense"
    ]
    assert sum(frame.health.undecoded_lines for frame in frames) == 1


async def test_counters_that_cannot_be_read_end_the_opening_with_a_sentence(host):
    backend = ProcfsBackend(options(host))
    (host.proc / "diskstats").unlink()
    with pytest.raises(UnavailableError, match="counters can't be read"):
        await backend.__aenter__()


def test_without_diskstats_psutil_is_asked(tmp_path):
    nowhere = Options(proc=tmp_path, sys=tmp_path)
    assert ProcfsBackend(nowhere).origin.tool == "psutil"


def io(reads, writes, **more):
    return SimpleNamespace(
        read_count=reads, write_count=writes, read_bytes=reads * 4096, write_bytes=writes * 4096, **more
    )


def test_psutil_counts_by_name_and_has_no_flushes():
    answers = iter(({"ada0": io(1, 1)}, {"ada0": io(4, 1, read_time=7), "da1": io(2, 0)}))
    sampler = PsutilSampler(ask=lambda: next(answers))
    before = sampler.sample()
    interval = difference(before, sampler.sample())
    assert interval.kernel[Flow("ada0", "read")] == Completed(3, 3 * 4096, 7000)
    assert set(interval.kernel) == {Flow(name, op) for name in ("ada0", "da1") for op in ("read", "write")}
    assert [device.name for device in interval.devices] == ["da1"]
    assert interval.outstanding == {}


def test_psutil_devices_come_and_go_and_are_chosen_by_glob():
    answers = iter(({"ada0": io(1, 1), "cd0": io(0, 0)}, {"cd0": io(0, 0)}))
    sampler = PsutilSampler(("ada*",), ask=lambda: next(answers))
    assert [device.name for device in sampler.sample().devices] == ["ada0"]
    assert sampler.sample().removed == ("ada0",)


def test_psutil_that_cannot_report_is_one_sentence():
    def refuse():
        raise NotImplementedError("not on this system")

    with pytest.raises(UnavailableError, match="not on this system"):
        PsutilSampler(ask=refuse).sample()


def test_psutil_on_a_system_without_disks():
    assert PsutilSampler(ask=dict).sample().devices == ()
