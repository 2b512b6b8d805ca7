import asyncio
import gzip
import os
import subprocess
import sys
import time

import pytest

from latmon.capture.backend import Backend
from latmon.cli import headless
from latmon.model.frame import OPS, STAGES, Flow, Frame, Series
from latmon.model.histogram import Histogram, merge
from latmon.support.errors import UsageError
from latmon.support.text import is_clean
from latmon_backends.demo import host_window
from latmon_backends.demo.backend import BACKFILL, SCENARIOS, DemoBackend

pytestmark = pytest.mark.xdist_group("demo")


async def take(backend: Backend) -> list[Frame]:
    async with backend as opened:
        return [frame async for frame in opened.frames()]


def over(frames: list[Frame], device: str, op: str, stage: str = "total") -> Histogram:
    return merge(f.histograms[s] for f in frames if (s := Series(device, op, stage)) in f.histograms)


@pytest.mark.slow
async def test_a_seed_decides_every_frame_and_a_longer_run_begins_with_the_shorter_one(period):
    assert await take(DemoBackend(speed=0, limit=20)) == period[:20]
    assert await take(DemoBackend(seed=8, speed=0, limit=1)) != period[:1]


async def test_a_second_reading_starts_over():
    backend = DemoBackend("serialised", speed=0, limit=3)
    assert await take(backend) == await take(backend)


def test_the_host_has_the_nine_devices_and_says_so_once(period):
    assert [d.name for d in period[0].devices] == [
        "nvme0n1",
        "nvme1n1",
        "sda",
        "sdb",
        "sdc",
        "sdd",
        "sde",
        "sdf",
        "dm-0",
    ]
    assert all(f.devices == () for f in period[1:])
    assert {d.controller for d in period[0].devices if d.driver == "mpt3sas"} == {"0000:3b:00.0"}
    volume = period[0].devices[-1]
    assert (volume.timed, volume.members) == (False, ("sda", "sdb"))


def test_windows_follow_each_other_without_a_hole(period):
    for seq, frame in enumerate(period):
        assert frame.seq == seq
        assert frame.mono_us - period[0].mono_us == seq * 1_000_000
        assert frame.wall == pytest.approx(period[0].wall + seq)
        assert frame.dt_us == 1_000_000


def test_every_name_is_one_of_the_model(period):
    for frame in period:
        assert all(s.op in OPS and s.stage in STAGES and is_clean(s.device) for s in frame.histograms)
        assert {s.device for s in frame.histograms} <= {d.name for d in host_window.DEVICES if d.timed}


def test_stages_add_up_to_the_total(period):
    for frame in period:
        for series, total in frame.histograms.items():
            if series.stage != "total":
                continue
            queue, hba = (frame.histograms[series._replace(stage=stage)] for stage in ("queue", "hba"))
            assert queue.count == hba.count == total.count == frame.seen[Flow(*series[:2])].count
            assert queue.sum + hba.sum == total.sum
            assert total.max is None or total.max < queue.max_bound + hba.max_bound


def test_coverage_is_slightly_below_one(period):
    seen = sum(c.count for f in period for c in f.seen.values())
    kernel = sum(c.count for f in period for flow, c in f.kernel.items() if flow.device != "dm-0")
    assert 0.999 < seen / kernel < 1
    assert sum(f.health.skipped for f in period) == kernel - seen


def test_the_volume_is_counted_by_the_kernel_alone(period):
    for frame in period:
        parts = [frame.kernel.get(Flow(disk, "read")) for disk in ("sda", "sdb")]
        assert frame.kernel[Flow("dm-0", "read")].bytes == sum(p.bytes for p in parts if p)
        assert Flow("dm-0", "read") not in frame.seen
        assert frame.outstanding["dm-0"].queued is None


@pytest.mark.slow
def test_one_disk_is_unlike_its_peers(whole_period):
    tails = {disk: over(whole_period, disk, "read").quantile(0.999) for disk in ("sda", "sdb", "sdc", "sdd", "sde")}
    assert tails.pop("sdd") > 2 * max(tails.values())
    medians = [over(whole_period, disk, "read").quantile(0.5) for disk in ("sda", "sdd")]
    assert max(medians) < 1.5 * min(medians), "only the tail gives it away"


@pytest.mark.slow
def test_there_are_flushes_discards_a_burst_and_a_pause(whole_period):
    assert over(whole_period, "sda", "flush").count > 100
    assert over(whole_period, "nvme0n1", "discard").count > 100
    writes = [f.seen[Flow("sda", "write")].count for f in whole_period if Flow("sda", "write") in f.seen]
    assert max(writes) > 3 * sorted(writes)[len(writes) // 2]
    idle = [f for f in whole_period if not f.kernel[Flow("nvme1n1", "read")].count]
    assert len(idle) >= 10
    assert all(f.outstanding["nvme1n1"].in_driver == 0 for f in idle)


@pytest.mark.slow
async def test_the_history_comes_at_once_and_then_the_pace_holds():
    start = time.monotonic()
    async with DemoBackend(speed=20, limit=BACKFILL + 4) as backend:
        arrivals = [time.monotonic() - start async for _ in backend.frames()]
    assert arrivals[-1] >= 4 / 20
    assert arrivals[0] < 1


async def test_a_reader_that_stops_leaves_nothing_behind():
    async with DemoBackend() as backend:
        async for _ in backend.frames():
            break
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_the_origin_says_what_is_not_measured():
    origin = DemoBackend(seed=3).origin
    assert origin.tool == "host, seed 3"
    assert {m.name for m in origin.absent} | set(origin.measured) == set(STAGES)
    assert "synthetic" in origin.reason


def test_scenarios_are_named_with_a_sentence():
    assert all(sentence.endswith(".") for sentence in SCENARIOS.values())
    with pytest.raises(UsageError, match="the demos are: host"):
        DemoBackend("nosuch")
    with pytest.raises(UsageError, match="backwards"):
        DemoBackend(speed=-1)


async def test_an_incident_ends_and_the_host_does_not():
    backend = DemoBackend("emulex-healthy", speed=0, limit=2)
    assert backend.windows == 180
    assert len(await take(backend)) == 2
    assert DemoBackend().windows is None


def test_a_list_fits_its_terminal_and_is_a_line_each_in_a_pipe(monkeypatch, capsys):
    headless.list_scenarios()
    assert len(capsys.readouterr().out.splitlines()) == len(SCENARIOS)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    headless.list_scenarios()
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) < 60
    assert lines[0].startswith("host ")


@pytest.mark.parametrize(("name", "length"), [("host", "1s"), pytest.param("qumulo", "3s", marks=pytest.mark.slow)])
def test_a_demo_is_the_same_whatever_the_order_of_sets_is(name, length, tmp_path):
    def recorded(seed):
        path = tmp_path / f"{seed}.latmon.jsonl.gz"
        command = [sys.executable, "-P", "-m", "latmon", "demo", name, "--record", str(path), "--duration", length]
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True)
        return gzip.decompress(path.read_bytes())

    assert recorded("1") == recorded("2")
