"""Recordings whose reader was stopped, or whose probe was gone as the capture ended.

A stopped reader loses nothing: one wide window with the sums of the probe, of the kernel and of our own reading of
/proc/diskstats, and no gap. A probe that is gone is a gap, whatever ends the capture.
"""

import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bpftraces import each_bpftrace, tool
from dtraces import CACHE, DTRACE, needs_dtrace
from terminal import Terminal, environment, holds_frames, latmon, wait_for
from workload import Capture, LoopDevice, has_counters

from latmon.model.frame import Frame
from latmon.recording.codec import End, Gap
from latmon.recording.reader import open_recording
from latmon.support.process import descendants
from latmon_backends.bpftrace.program import has_ring_buffer

ROOT = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("losetup"), reason="needs root and losetup")
HAS_DTRACE = needs_dtrace[:-1]
"""The last of them is for bpftool, which nothing here runs."""
pytestmark = [ROOT, pytest.mark.live]
STOPPED_S = 9.0
"""Longer than any probe may be silent before it is restarted."""
RATE = 300
READ_LATE_S = 1.0
"""The tool reads its maps after the tick that gives the window its end: 0.2 s later was seen beside four busy loops."""
STARTING_S = 120.0


READS = """
import mmap, os, random, sys, time
disk, rate = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), int(sys.argv[2])
blocks, into, due = os.lseek(disk, 0, os.SEEK_END) // 4096, mmap.mmap(-1, 4096), time.monotonic()
while True:
    os.preadv(disk, [into], 4096 * random.randrange(blocks))
    due += 1 / rate
    time.sleep(max(0, due - time.monotonic()))
"""
"""fio with a rate uses a whole CPU where it has measured a long sleep at its start."""


@pytest.fixture
def disk(tmp_path):
    """A disk of our own with RATE reads a second, until the test is over."""
    with LoopDevice(tmp_path / "image") as device:
        words = [sys.executable, "-c", READS, device.path, str(RATE)]
        with subprocess.Popen(words) as load:
            try:
                yield device.name
            finally:
                load.kill()


@pytest.fixture
def capture(disk, tmp_path, monkeypatch):
    """Starts a capture of the disk; `environ` names the tool."""
    running = []
    monkeypatch.setenv("LATMON_DTRACE", DTRACE)
    monkeypatch.setenv("LATMON_CHROOT_CACHE", CACHE)

    def start(backend, *words, **environ):
        # An I/O is no outlier here: on a busy host their records overflow the tool's buffer while it is not read.
        fast = ("--threshold", "60s") if backend != "procfs" else ()
        capture = Capture(tmp_path, "--backend", backend, "--device", disk, *fast, *words, **environ)
        running.append(capture)
        capture.__enter__()
        capture.disk = disk
        return capture

    yield start
    for one in running:
        one.__exit__()


def pid(capture):
    return capture._process.pid


def probe(capture, name="bpftrace"):
    """The running tool of a capture, None while there is none."""
    with_name = (descendant for descendant in descendants(pid(capture)) if comm(descendant) == name)
    return next(with_name, None)


def comm(one):
    try:
        return Path(f"/proc/{one}/comm").read_text().strip()
    except OSError:
        return ""


def pause(*pids):
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(STOPPED_S)
    for pid in reversed(pids):
        os.kill(pid, signal.SIGCONT)


def reads_on(capture):
    """Wait for two windows behind the wide one."""
    assert wait_for(
        lambda: len(capture.frames()) > 3 and not any(frame.late for frame in capture.frames()[-2:]), 60, 0.2
    )


def checked(capture):
    done = subprocess.run(
        latmon("check", str(capture.file)), env=environment(), capture_output=True, text=True, check=False
    )
    return done.stdout


def lost_nothing(capture):
    """One wide window, read late; the same sums by the probe, the kernel and us; `report` and `check` agree."""
    reported = capture.report()
    assert reported["gaps"] == []
    assert [one["reason"] for one in reported["late"]] == ["reader-late"]
    assert reported["late"][0]["duration_s"] >= STOPPED_S
    assert (reported["health"]["lost_events"], reported["health"]["map_full"]) == (0, 0)
    text = checked(capture)
    assert "1 read late" in text
    assert " gap" not in text
    (wide,) = [frame for frame in capture.frames() if frame.late]
    own = sum(
        one.count for one in capture.watch.between(wide.mono_us - wide.dt_us, wide.mono_us, capture.disk).values()
    )
    assert own > 0.5 * RATE * STOPPED_S, "the load went on"
    for counts in (wide.seen, wide.kernel):
        found = sum(done.count for flow, done in counts.items() if flow.device == capture.disk)
        assert counts == {} or abs(found - own) <= READ_LATE_S * RATE, (found, own)
    assert wide.seen or wide.kernel
    if reported["backend"] == "bpftrace":  # its maxima are of single ticks; DTrace's are of all time
        assert all(histogram.max is None for histogram in wide.histograms.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.crash)],
    ids=lambda number: number.name,
)
@each_bpftrace
def test_a_stopped_collector_reads_on(capture, suite, tmp_path, number):
    given_capture = capture("bpftrace", LATMON_BPFTRACE=tool(suite, tmp_path).path)
    before = probe(given_capture)
    pause(pid(given_capture))
    reads_on(given_capture)
    assert probe(given_capture) == before, "the probe was not restarted"
    assert given_capture.stop(number) == 0, given_capture.stderr
    lost_nothing(given_capture)


@pytest.mark.crash
@each_bpftrace
def test_a_paused_machine(capture, suite, tmp_path):
    """The probe stops too, as in a virtual machine that is paused; the on-demand probes as well."""
    given_capture = capture("bpftrace", "--stages", "all", LATMON_BPFTRACE=tool(suite, tmp_path).path)
    pause(pid(given_capture), *descendants(pid(given_capture)))
    reads_on(given_capture)
    assert given_capture.stop() == 0, given_capture.stderr
    lost_nothing(given_capture)
    wide = max((frame for frame in given_capture.frames() if frame.late), key=lambda frame: frame.dt_us)
    assert (
        sum(h.count for series, h in wide.traced.histograms.items() if series.stage == "total") > RATE * STOPPED_S / 2
    )


@pytest.mark.crash
@pytest.mark.parametrize("backend", ["bpftrace", "procfs", pytest.param("dtrace", marks=HAS_DTRACE)])
def test_a_collector_that_is_ended_before_it_goes_on(capture, backend):
    """The signal is served first: what the probe printed meanwhile is in the last window."""
    given_capture = capture(backend)
    os.kill(pid(given_capture), signal.SIGSTOP)
    time.sleep(STOPPED_S)
    os.kill(pid(given_capture), signal.SIGTERM)
    os.kill(pid(given_capture), signal.SIGCONT)
    assert given_capture.ended() == 0, given_capture.stderr
    lost_nothing(given_capture)


@pytest.mark.crash
@pytest.mark.parametrize("backend", ["procfs", pytest.param("dtrace", marks=HAS_DTRACE)])
def test_other_backends_read_on_as_well(capture, backend):
    given_capture = capture(backend)
    pause(pid(given_capture))
    reads_on(given_capture)
    assert given_capture.stop() == 0, given_capture.stderr
    lost_nothing(given_capture)


@pytest.mark.crash
@each_bpftrace
def test_a_duration_that_ends_while_the_collector_is_stopped(capture, suite, tmp_path):
    given_capture = capture("bpftrace", "--duration", "6s", LATMON_BPFTRACE=tool(suite, tmp_path).path)
    time.sleep(2)
    pause(pid(given_capture))
    assert given_capture.ended(60) == 0, given_capture.stderr
    lost_nothing(given_capture)


def kill_probe(capture):
    os.kill(probe(capture), signal.SIGKILL)


def stop_probe(capture):
    os.kill(probe(capture), signal.SIGSTOP)
    time.sleep(3)


GOES = {"killed": kill_probe, "hung": stop_probe}
ENDS = {
    "duration": (["--duration", "8s"], lambda _: None),
    "SIGTERM": ([], lambda capture: os.kill(pid(capture), signal.SIGTERM)),
    "Ctrl-C": ([], lambda capture: os.kill(pid(capture), signal.SIGINT)),
    "SIGTERM of parts": (["--max-size", "4M"], lambda capture: os.kill(pid(capture), signal.SIGTERM)),
}


@pytest.mark.crash
@each_bpftrace
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("way", GOES)
def test_a_probe_that_is_gone_at_the_end(capture, suite, tmp_path, way, end):
    words, ends = ENDS[end]
    given_capture = capture("bpftrace", *words, LATMON_BPFTRACE=tool(suite, tmp_path).path)
    assert wait_for(lambda: len(given_capture.frames()) >= 4, 60, 0.2)
    GOES[way](given_capture)
    ends(given_capture)
    assert given_capture.ended(60) == 4, given_capture.stderr
    if end == "duration" and "was started again" in given_capture.stderr:  # a quick restart was just in time
        assert [gap["reason"] for gap in given_capture.report()["gaps"]] == ["probe-restart"]
        return
    last, gap, closing = list(open_recording(given_capture.file))[-3:]
    assert (type(last), type(gap), type(closing)) == (Frame, Gap, End)
    assert gap.mono_us == last.mono_us
    assert gap.seconds > 0
    assert [gap["reason"] for gap in given_capture.report()["gaps"]] == ["probe-silent"]
    assert f"1 gap of {gap.seconds:g} s in all" in checked(given_capture)
    assert "s are missing: " in given_capture.stderr


@pytest.mark.crash
def test_a_probe_that_can_not_be_kept_running(capture):
    given_capture = capture("bpftrace")

    def killed():
        if actual_probe := probe(given_capture):
            os.kill(actual_probe, signal.SIGKILL)
        return not given_capture.runs

    assert wait_for(killed, 120, 0.5), given_capture.stderr
    assert given_capture.ended() == 1
    gaps = given_capture.report()["gaps"]
    assert {gap["reason"] for gap in gaps} == {"probe-restart"}
    frames = given_capture.frames()
    assert sum(gap["duration_s"] for gap in gaps) >= 0.5
    assert frames[-1].dt_us > 1, "it covers the time without counts"
    assert "ended 4 times" in frames[-1].health.notice or "could not be started again" in frames[-1].health.notice


@pytest.mark.crash
def test_a_collector_that_is_killed_leaves_no_end_line(capture):
    given_capture = capture("procfs")
    assert given_capture.stop(signal.SIGKILL) == -signal.SIGKILL
    assert any("without a closing line" in text for text in given_capture.report()["damage"])
    assert "without a closing line" in checked(given_capture)


@pytest.mark.crash
@pytest.mark.parametrize("backend", ["bpftrace", "procfs"])
@pytest.mark.parametrize("screen", [False, True], ids=["headless", "screen"])
def test_a_suspended_terminal(disk, tmp_path, backend, screen):
    """Ctrl-Z and `fg` in a shell on a real terminal. A screen reads the key, so it is sent the signal instead."""
    file = tmp_path / "x.latmon.jsonl.gz"
    words = latmon("--backend", backend, "--device", disk, "--stages", "basic", "--record", str(file))
    script = tmp_path / "shell"
    script.write_text(f"set -m\n{shlex.join([*words, *(['--tui'] if screen else [])])}\nsleep {STOPPED_S}\nfg %1\n")
    with Terminal(["bash", str(script)], tmp_path) as terminal:
        assert wait_for(lambda: holds_frames(file), STARTING_S, 0.2), terminal.output
        if screen:
            os.kill(terminal.screen, signal.SIGTSTP)
        else:
            terminal.type(b"\x1a")
        before = len(list(open_recording(file)))
        time.sleep(STOPPED_S + 3)
        assert wait_for(lambda: len(list(open_recording(file))) > before + 2, 60, 0.2), terminal.output[-2000:]
        terminal.type(b"q" if screen else b"\x03")
        assert terminal.left(30.0) == []
    reported = subprocess.run(
        latmon("report", str(file), "--json"), env=environment(), capture_output=True, text=True, check=True
    ).stdout
    summary = json.loads(reported)
    assert summary["gaps"] == []
    assert len(summary.get("late", [])) == (0 if screen else 1)
    frames = [frame for frame in open_recording(file) if isinstance(frame, Frame)]
    assert sum(frame.dt_us for frame in frames) == frames[-1].mono_us - frames[0].mono_us + frames[0].dt_us


def notices(one):
    """All of the capture so far."""
    return "\n".join(frame.health.notice for frame in one.frames())


CPUS = sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/online"))


@pytest.fixture
def last_cpu():
    """Switches a CPU off (False) and on; it is on again afterwards."""
    file = CPUS[-1]

    def switch(*, on):
        file.write_text(f"{on:d}\n")

    # Also where this process is killed: then the shell's input ends.
    words = ["sh", "-c", 'read -r _; echo 1 > "$1"', "sh", str(file)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True) as restoring:
        yield switch
        restoring.communicate(b"\n")
    assert wait_for(lambda: file.read_text() == "1\n", 10)


@pytest.mark.crash
@pytest.mark.skipif(not CPUS, reason="no CPU of this host can be switched off")
@pytest.mark.parametrize("first", ["on", "off"])
@each_bpftrace
def test_a_cpu_goes_and_comes_back(capture, suite, tmp_path, last_cpu, first):
    """All I/Os are counted once: `first` is the CPU's state when the probes start.

    bpftrace 0.17 prints no lines of a CPU that comes online: probes are restarted then, and at no other time.
    """
    if first == "off":
        last_cpu(on=False)
    bpftrace_tool = tool(suite, tmp_path)
    restarts = 0 if has_ring_buffer(bpftrace_tool, platform.release()) else 2
    given_capture = capture("bpftrace", "--stages", "all", LATMON_BPFTRACE=bpftrace_tool.path)
    before = probe(given_capture)
    for on in (first == "off", first == "on") * 2:
        last_cpu(on=on)
        many = len(given_capture.frames())
        assert wait_for(lambda many=many: len(given_capture.frames()) > many + 2, 60, 0.2)
    assert restarts or probe(given_capture) == before, notices(given_capture)
    if restarts:
        assert wait_for(lambda: "the tracer was restarted: CPU" in notices(given_capture), STARTING_S, 1.0), notices(
            given_capture
        )
    assert given_capture.stop() == (4 if restarts else 0), given_capture.stderr
    assert given_capture.stderr.count("bpftrace was started again (CPU") == restarts
    reported = given_capture.report()
    assert [gap["reason"] for gap in reported["gaps"]] == ["probe-restart"] * restarts
    assert (reported["health"]["lost_events"], reported["health"]["map_full"]) == (0, 0)
    for frame in given_capture.frames():
        assert all(done.count >= 0 for done in (*frame.seen.values(), *frame.kernel.values()))
    compared = [frame for frame in given_capture.frames() if has_counters(frame, given_capture.disk)]
    probed, kernel = (
        sum(
            done.count for frame in compared for flow, done in table(frame).items() if flow.device == given_capture.disk
        )
        for table in (lambda frame: frame.seen, lambda frame: frame.kernel)
    )
    assert kernel > RATE
    assert abs(probed - kernel) <= READ_LATE_S * RATE, (probed, kernel)
