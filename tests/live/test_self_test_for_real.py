"""The self-test for real: a loop device, a held write, every panel; and nothing is left of it, however it ends."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from bpftraces import each_bpftrace, tool
from terminal import environment, latmon, wait_for

ALONE = """
import sys
from latmon.capture.registry import Request
from latmon.doctor.selftest import self_test
found = self_test(Request("procfs"), lambda text: print(text, file=sys.stderr, flush=True))
print(found.refused, *(f"{one.name}={one.verdict.value}" for one in found.checks), sep="\\n")
"""
"""Without the doctor's own checks, which ask bpftrace for seconds."""
GONE_S = 2.0 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
"""Each program that takes something away waits for its turn on a busy host."""

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        os.geteuid() != 0 or not Path("/dev/loop-control").exists() or not shutil.which("mkfs.ext4"),
        reason="needs root, loop devices and mkfs.ext4",
    ),
]


def loops():
    """The self-test's own loop devices: their files are in a private namespace."""
    found = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            found += [path.parts[3]] * bool(re.search(r"latmon-self-test|^/(tmp/)?lower", path.read_text()))
        except OSError:  # gone meanwhile
            continue
    return found


def mounts():
    """Return the mounts of all processes: a namespace that none has is gone."""
    mounts = []
    for path in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            mounts += [path] * ("latmon-self-test" in path.read_text())
        except OSError:
            continue
    return mounts


def shells():
    paths = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            paths += [path] * (b"latmon-self-test\0" in path.read_bytes())
        except OSError:
            continue
    return paths


def left():
    return [*loops(), *mounts(), *shells()]


@pytest.fixture(autouse=True)
def nothing_is_left():
    assert not left()
    yield
    assert wait_for(lambda: not left(), 60), left()


@pytest.mark.slow
def test_the_kernels_counters_show_what_they_can():
    done = subprocess.run(
        [sys.executable, "-c", ALONE], env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    refused, *reported = done.stdout.splitlines()
    assert not refused, done.stderr
    verdicts = dict(line.split("=") for line in reported)
    assert {name for name, verdict in verdicts.items() if verdict == "ok"} >= {"device", "diskstats", "depths"}, (
        verdicts
    )
    assert {verdicts[name] for name in ("counts", "latency map", "stages", "outliers")} == {"unmeasured"}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("when", ["made /dev", "writing", "delaying a write for 1,200"])
def test_however_it_ends_nothing_is_left_after_2_s(number, when):
    running = subprocess.Popen(
        [sys.executable, "-c", ALONE], env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    with running:
        assert any(line.startswith(when) for line in running.stderr)
        assert shells()
        time.sleep(0.2)
        running.send_signal(number)
        ended = time.monotonic()
        assert wait_for(lambda: not left(), GONE_S, 0.05), left()
        assert time.monotonic() - ended < GONE_S + 0.5


@pytest.mark.slow
@each_bpftrace
def test_every_panel_shows_the_delay(suite, tmp_path):
    named = str(tool(suite, tmp_path).path)
    done = subprocess.run(
        latmon("doctor", "--json", "--self-test"),
        env=environment(LATMON_BPFTRACE=named),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    reported = json.loads(done.stdout)["self_test"]
    assert done.returncode == 0, reported
    verdicts = {one["name"]: one["status"] for one in reported["checks"]}
    always = {"device", "counts", "diskstats", "latency map", "stages", "depths", "outliers"}
    assert {name for name, status in verdicts.items() if status == "ok"} >= always
    assert reported["measured_with"].startswith("bpftrace")
    assert "delaying a write for 1,200 ms" in done.stderr


@pytest.mark.slow
@each_bpftrace
def test_the_cost_of_probes_is_measured(suite, tmp_path):
    file = tmp_path / "data"
    file.write_bytes(bytes(1 << 20))
    stop = threading.Event()
    thread = threading.Thread(target=write_on, args=(file, stop))
    thread.start()
    try:
        done = subprocess.run(
            latmon("doctor", "--json", "--overhead"),
            env=environment(LATMON_BPFTRACE=str(tool(suite, tmp_path).path)),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    finally:
        stop.set()
        thread.join()
    cost = json.loads(done.stdout)["overhead"]
    assert done.returncode == 0, (cost, done.stderr)
    assert [one["name"] for one in cost["without_stages"]] == ["always-on probe", "latmon"]
    assert [one["name"] for one in cost["with_stages"]] == ["always-on probe", "tracer", "latmon"]
    for one in (*cost["without_stages"], *cost["with_stages"]):
        assert one["ios"] > 0
        assert one["cpu_ns"] > 0
        assert (one["run_ns"] is None) == (one["name"] == "latmon")
    always, tracer = cost["with_stages"][0], cost["with_stages"][1]
    assert 100 < always["run_ns"] / always["ios"] < 100_000
    assert tracer["runs"] > always["runs"] > always["ios"]
    assert Path("/proc/sys/kernel/bpf_stats_enabled").read_text().strip() == "0"


def write_on(file, stop):
    """Write to the file's disk some hundred times per second."""
    with file.open("r+b") as data:
        while not stop.wait(0.005):
            os.pwrite(data.fileno(), os.urandom(4096), 0)
            os.fdatasync(data.fileno())
