"""latmon in a time namespace, as containers with checkpoint and restore have: times are right with real probes.

The host's bpftrace by default, 0.23 and 0.27 under the marker `versions`. The disk is held where an I/O must not end.
"""

import shutil
import subprocess
import time

import pytest
from bpftraces import each_bpftrace, tool
from terminal import environment, latmon, wait_for
from test_held_at_the_end import wait_for_list
from test_sampled_depths import frozen, held
from time_namespace import AHEAD, MONOTONIC_S, needs_time_namespace
from workload import STARTING_S, Capture, LoopDevice, fio

from latmon.model.frame import Frame
from latmon.recording.reader import open_recording

pytestmark = [
    pytest.mark.live,
    needs_time_namespace,
    pytest.mark.skipif(
        not all(map(shutil.which, ("bpftrace", "fio", "losetup"))), reason="needs bpftrace, fio, losetup"
    ),
]
SECONDS = 3.0
APART_S = 2.0
"""The most that a time on a busy host may be off; the offset of the namespace is a day."""
SLOW_US = 2_500_000


@pytest.fixture
def disk(tmp_path):
    with LoopDevice(tmp_path / "disk", 64 << 20) as made:
        yield made


def reads(disk, directory):
    """Read for SECONDS; return the wall clock before and after, and the number of reads."""
    begun = time.time()
    job = {"name": "reads", "filename": disk.path, "rw": "randread", "rate_iops": 200}
    done = fio(directory, SECONDS, job)["reads"]["read"]
    return begun, time.time(), done.count


def assert_within(stamps, begun, ended):
    assert begun - APART_S <= min(stamps)
    assert max(stamps) <= ended + APART_S


@each_bpftrace
def test_a_recording_has_each_window_and_the_date(disk, tmp_path, suite):
    started = time.time()
    words = ("--backend", "bpftrace", "--stages", "all", "--device", disk.name, "--threshold", "1us")
    with Capture(tmp_path, *words, before=AHEAD, LATMON_BPFTRACE=tool(suite, tmp_path).path) as capture:
        assert wait_for(lambda: any(frame.traced.one_in for frame in capture.frames()), STARTING_S, 0.2)
        begun, ended, issued = reads(disk, tmp_path)
        # The windows of an end that is read late are one.
        assert wait_for(lambda: capture.frames()[-1].wall > ended + 1, STARTING_S, 0.2)
        assert capture.stop() == 0, capture.stderr
        stopped = time.time()
        frames = capture.frames()
    assert_within([frame.wall for frame in frames], started, stopped)
    assert not any(frame.gap for frame in frames)
    assert sum(frame.dt_us for frame in frames) / 1e6 >= ended - begun
    assert len([frame for frame in frames if begun <= frame.wall <= ended]) >= SECONDS - 1
    assert all(abs(frame.mono_us / 1e6 - MONOTONIC_S - time.monotonic()) < STARTING_S for frame in frames)
    timed = sum(series.count for frame in frames for at, series in frame.histograms.items() if at.stage == "total")
    assert 0.5 * issued <= timed <= issued
    traced = sum(series.count for frame in frames for at, series in frame.histograms.items() if at.stage == "hba")
    assert 0 < traced <= issued
    outliers = [outlier for frame in frames for outlier in frame.outliers]
    assert any(outlier.stages_us for outlier in outliers)
    assert_within([outlier.wall for outlier in outliers], begun, ended)


@frozen
@each_bpftrace
def test_the_age_of_a_held_request(disk, tmp_path, suite):
    with held(disk, tmp_path) as (inner, thaw):
        words = ("--backend", "bpftrace", "--stages", "all", "--device", inner.name)
        with Capture(tmp_path, *words, before=AHEAD, LATMON_BPFTRACE=tool(suite, tmp_path).path) as capture:
            followed = wait_for_list(capture)
            begun = time.monotonic()
            write = ["dd", "if=/dev/zero", f"of={inner.path}", "bs=4096", "count=1", "oflag=direct"]
            with subprocess.Popen(write, stderr=subprocess.DEVNULL) as writer:
                try:
                    time.sleep(SLOW_US / 1e6 + 1.5)
                    assert capture.stop() == 0, capture.stderr
                    age_us = (time.monotonic() - begun) * 1e6
                finally:
                    thaw()
            lists = [frame.in_flight for frame in capture.frames() if frame.in_flight is not None]
            (row,) = capture.report()["devices"][inner.name]["in_flight"]
    assert SLOW_US <= row["age_us"] <= age_us
    if followed:
        assert (row["op"], row["pid"]) == ("write", writer.pid)
        (waiting,) = lists[-1].oldest
        assert SLOW_US <= lists[-1].at_us - waiting.began_us <= age_us
        assert lists[-1].since_us <= waiting.began_us


@each_bpftrace
def test_a_trace_has_each_io_and_its_time(disk, tmp_path, suite):
    file, err = tmp_path / "t.latmon.jsonl.gz", tmp_path / "err"
    words = ("trace", "-o", str(file), "--device", disk.name, "--duration", "300s")
    environ = environment(LATMON_BPFTRACE=tool(suite, tmp_path).path)
    with err.open("w") as said:
        process = subprocess.Popen(
            [*AHEAD, *latmon(*words)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, env=environ
        )
    try:
        wait_for(lambda: "tracing" in err.read_text() or process.poll() is not None, STARTING_S, 0.1)
        begun, ended, issued = reads(disk, tmp_path)
        process.terminate()
        assert process.wait(STARTING_S) == 0, err.read_text()
    finally:
        process.kill()
        process.wait()
    frames = [item for item in open_recording(file) if isinstance(item, Frame)]
    ios = [outlier for frame in frames for outlier in frame.outliers]
    assert 0.5 * issued <= len(ios) <= issued
    assert_within([io.wall for io in ios], begun, ended)
    assert_within([frame.wall for frame in frames], begun, ended)


@each_bpftrace
def test_one_screen_as_text(disk, tmp_path, suite):
    environ = environment(LATMON_BPFTRACE=tool(suite, tmp_path).path)
    words = ("--once", "--backend", "bpftrace", "--device", disk.name)
    done = subprocess.run(
        [*AHEAD, *latmon(*words)], env=environ, capture_output=True, text=True, check=False, timeout=STARTING_S
    )
    assert done.returncode == 0, done.stderr
    assert disk.name in done.stdout
