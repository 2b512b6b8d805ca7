"""The fleet: real ssh servers on the loopback interface, failing hosts, what is left behind; names, clocks, merging."""

import asyncio
import contextlib
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
import sshd
from bpftraces import IN_CHROOT, each_bpftrace
from emulated import Watched
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import FRAMES
from terminal import Terminal, latmon, wait_for
from time_namespace import AHEAD, BOOTTIME_S, MONOTONIC_S, needs_time_namespace
from workload import CROWDED, LoopDevice, crowded, fio

from latmon.capture import registry
from latmon.capture.backend import Options
from latmon.cli import arguments, commands, headless
from latmon.model import measurements
from latmon.model.devices import IdleRows, WithIdle
from latmon.model.frame import (
    CgroupLimit,
    Completed,
    Device,
    Flow,
    Frame,
    Health,
    Limit,
    Mark,
    Missing,
    Origin,
    Outlier,
    Outstanding,
    Series,
    Taskq,
    Thread,
    Traced,
    Wait,
)
from latmon.model.histogram import Histogram
from latmon.model.inflight import Depths, InFlight, InFlightList, Issue
from latmon.model.measurements import HANDLERS, SOFTIRQS, WAKEUPS
from latmon.model.measurements.behind import Behind
from latmon.model.measurements.handlers import Handler, HandlerRuns
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns
from latmon.model.measurements.wakeups import Wakeups, by_thread
from latmon.recording import codec
from latmon.recording.codec import Gap
from latmon.recording.json_line import parse
from latmon.recording.reader import open_recording
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE, EXIT_UNAVAILABLE, EXIT_USAGE, UnavailableError, UsageError
from latmon.support.host import boot_id
from latmon.support.process import descendants
from latmon_backends.bpftrace.backend import RemoteBpftrace
from latmon_backends.fleet import backend as backend_module
from latmon_backends.fleet import host, merge, remote
from latmon_backends.fleet.backend import FleetBackend, _selected
from latmon_backends.fleet.host import Host, ShellCounters, ShellTree
from latmon_backends.fleet.merge import HostFrame, merged_frame, merged_origin
from latmon_backends.fleet.remote import HostAnswers, HostError, Offset

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
needs_ssh = pytest.mark.skipif(sshd.PROGRAM is None, reason="needs openssh-server")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a fleet's loop reads /proc")


def tools_in(directory: Path, *, latmon: str | None = None, python: bool = False, code: str = "pass") -> str:
    """Fill a directory with what a host has, and return it as its PATH: the tools of the script and no bpftrace.

    `latmon`: with a latmon, which runs these shell words before, and the Python `code`; `python`: with Python.
    """
    directory.mkdir()
    for name in ("sh", "id", "uname", "find", "cat", "date", "sleep", "readlink", "mktemp", "rm", "sed"):
        (directory / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    if python:
        (directory / "python3").symlink_to(Path(sys.executable).resolve())
    if latmon is not None:
        program = directory / "latmon"
        started = f"{code}; import sys; from latmon.cli.main import run as main; sys.exit(main(sys.argv[1:]))"
        lines = ("#!/bin/sh", latmon, f"export PYTHONPATH={ROOT}:{ROOT / 'backends'}")
        program.write_text("\n".join((*lines, f"exec {sys.executable} -c '{started}' \"$@\"")) + "\n")
        program.chmod(0o755)
    return str(directory)


@contextlib.contextmanager
def servers(scratch: Path, nets=None, before=None, **paths: str):
    """Run a server for each host with its PATH; `nets`, `before`: its network, the words that start it."""
    nets, before = nets or {}, before or {}
    with contextlib.ExitStack() as stack:
        started = {
            name: stack.enter_context(
                sshd.server(scratch, name, {"PATH": path}, net=nets.get(name), before=before.get(name, ()))
            )
            for name, path in paths.items()
        }
        yield sshd.client(scratch / "client", started), started


async def frames_until(backend, wanted):
    """Return the frames up to the first one that is wanted."""
    frames = []
    async with asyncio.timeout(PATIENCE_S):
        async for frame in backend.frames():
            frames.append(frame)
            if wanted(frame):
                return frames
    raise AssertionError


def hosts_of(frame):
    return {flow.device.partition(":")[0] for flow in frame.kernel}


def running(word: str) -> list[int]:
    """Return the processes whose command line or environment has the word, without this one."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            text = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
            if word.encode() in text and int(path.name) != os.getpid():
                found.append(int(path.name))
    return found


def gone(word: str, within_s: float = PATIENCE_S) -> bool:
    """Wait until no process has the word; return whether that came about."""
    deadline = time.monotonic() + within_s
    while running(word) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not running(word)


@contextlib.contextmanager
def killed(word: str):
    """Kill the processes with this word at the end, which their own end of input does not end."""
    try:
        yield
    finally:
        for pid in running(word):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def files_of(word: str) -> list[Path]:
    """Return the directories of latmon's files that the shells with this word have made."""
    shells = set(map(str, running(word)))
    paths = [path for at in ("/run", "/dev/shm", "/tmp") for path in Path(at).glob("latmon-fleet.*")]
    return [path for path in paths if path.name.split(".")[1] in shells]


def any_left(files: list[Path]) -> bool:
    return any(file.exists() for file in files)


@needs_ssh
async def test_two_hosts_with_and_without_latmon_are_one_capture(tmp_path):
    options = Options(interval_us=500_000)
    with servers(tmp_path, plain=tools_in(tmp_path / "1"), own=tools_in(tmp_path / "2", latmon="")) as (client, _):
        async with FleetBackend(options, ["plain", "own"], client) as backend:
            begun = time.monotonic_ns() // 1000
            frames = await frames_until(backend, lambda one: hosts_of(one) == {"plain", "own"})
            origin = backend.origin
    assert (origin.host, origin.tier) == ("2 hosts", "D")
    assert abs(frames[-1].mono_us - begun) < PATIENCE_S * 1e6
    assert abs(frames[-1].wall - time.time()) < PATIENCE_S
    named = {device.name: device for frame in frames for device in frame.devices}
    both = [(one, named.get(one.replace("plain:", "own:"))) for one in named if one.startswith("plain:")]
    both = [(one, other) for one, other in both if other is not None]  # a loop device may have come meanwhile
    assert both
    # the shell's report about a disk is what the reader of sysfs finds itself
    for name, other in both:
        assert (named[name].kind, named[name].driver, named[name].model) == (other.kind, other.driver, other.model)
        assert {limit.name for limit in named[name].limits} <= {limit.name for limit in other.limits}
    assert all("latmon" in one.untimed for name, one in named.items() if name.startswith("plain:"))


def hosts_of_each_kind(directory, mark):
    """Return name -> PATH of a host with a shell, with Python and with latmon; `mark` is a part of each PATH."""
    return {
        "plain": f"{tools_in(directory / '1')}:/{mark}",
        "carried": f"{tools_in(directory / '2', python=True)}:/{mark}",
        "own": f"{tools_in(directory / '3', latmon='')}:/{mark}",
    }


@pytest.mark.slow
@needs_ssh
async def test_nothing_is_left_on_a_host_after_the_end(tmp_path):
    mark = f"fleet-{tmp_path.name}-{os.getpid()}"
    paths = hosts_of_each_kind(tmp_path, mark)
    with servers(tmp_path, **paths) as (client, _):
        async with FleetBackend(Options(interval_us=500_000), [*paths], client) as backend:
            await frames_until(backend, lambda one: hosts_of(one) == {*paths})
            assert len(running(mark)) >= 3
            files = files_of(mark)
            assert files
        assert await asyncio.to_thread(gone, mark)
    assert not any_left(files)


@pytest.mark.slow
@needs_ssh
async def test_nothing_is_left_on_a_host_after_the_client_was_killed(tmp_path):
    mark = f"fleet-{tmp_path.name}-{os.getpid()}"
    paths = hosts_of_each_kind(tmp_path, mark)
    with servers(tmp_path, **paths) as (client, _):
        async with FleetBackend(Options(interval_us=500_000), [*paths], client) as backend:
            await frames_until(backend, lambda one: hosts_of(one) == {*paths})
            files = files_of(mark)
            for task in backend._running:
                task.cancel()
            for pid in running(str(tmp_path / "client")):
                os.kill(pid, signal.SIGKILL)
            assert await asyncio.to_thread(gone, mark)
    assert not any_left(files)


@pytest.mark.slow
@needs_ssh
async def test_a_host_that_dies_is_named_and_comes_back(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "PAUSES_S", (0.2,))
    options = Options(interval_us=500_000)
    with servers(tmp_path, plain=tools_in(tmp_path / "1"), other=tools_in(tmp_path / "2")) as (client, started):
        async with FleetBackend(options, ["plain", "other"], client) as backend:
            await frames_until(backend, lambda one: hosts_of(one) == {"plain", "other"})
            connection = backend._hosts[1]._connection
            connection._kill()
            failed = await frames_until(backend, lambda one: "other: " in one.health.notice)
            assert "other" not in hosts_of(failed[-1])
            left = {name for one in failed for name in one.removed}
            assert left
            assert all(name.startswith("other:") for name in left)
            back = await frames_until(backend, lambda one: "other" in hosts_of(one))
            assert left <= {device.name for device in back[-1].devices}
            assert started


@needs_ssh
async def test_no_host_at_all_is_an_error_with_each_reason(tmp_path):
    with servers(tmp_path, plain="/nowhere") as (client, started):
        refused = f"ssh://127.0.0.1:{sshd._free_port()}"
        with pytest.raises(UnavailableError) as error:
            async with FleetBackend(Options(), ["plain", refused], client):
                pass
        assert started
    assert "127.0.0.1: connect to host 127.0.0.1" in str(error.value)
    assert "refused" in str(error.value)


@pytest.mark.slow
@needs_ssh
async def test_a_host_whose_latmon_prints_rubbish_does_not_stop_the_others(tmp_path):
    path = tools_in(tmp_path / "2", latmon="while printf 'rubbish \\033[2J\\n'; do :; done")
    options = Options(interval_us=500_000)
    with servers(tmp_path, plain=tools_in(tmp_path / "1"), bad=path) as (client, _):
        async with FleetBackend(options, ["plain", "bad"], client) as backend:
            frames = await frames_until(backend, lambda one: "bad: " in one.health.notice)
    assert "can't read" in frames[-1].health.notice
    assert frames[-1].health.notice.isprintable()
    assert hosts_of(frames[-1]) == {"plain"}


@pytest.mark.slow
@needs_ssh
async def test_a_host_that_hangs_is_named_and_does_not_hold_up_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "SLOW_S", 0.5)
    monkeypatch.setattr(backend_module, "COMPILING_S", 0.5)
    mark = f"fleet-{tmp_path.name}-{os.getpid()}"
    path = f"{tools_in(tmp_path / '2', latmon='while :; do sleep 1; done')}:/{mark}"
    options = Options(interval_us=200_000)
    with servers(tmp_path, plain=tools_in(tmp_path / "1"), hung=path) as (client, _), killed(mark):
        async with FleetBackend(options, ["plain", "hung"], client) as backend:
            frames = await frames_until(backend, lambda one: "hung: starting" in one.health.notice and one.kernel)
    assert hosts_of(frames[-1]) == {"plain"}


@pytest.mark.slow
@needs_ssh
@pytest.mark.parametrize(
    ("latmon", "said"), [("sleep 20", "slow: starting"), pytest.param(None, "slow: connecting", marks=pytest.mark.slow)]
)
async def test_a_screen_begins_without_a_host_that_is_slow_and_names_it(tmp_path, monkeypatch, latmon, said):
    """One host's latmon, or its sshd, sleeps; it joins when it is ready, whatever the first hosts measure."""
    monkeypatch.setattr(backend_module, "OTHERS_S", 1.0)
    monkeypatch.setattr(backend_module, "OPENING_S", PATIENCE_S)
    options = Options(interval_us=500_000)
    paths = {"plain": tools_in(tmp_path / "1"), "slow": tools_in(tmp_path / "2", latmon=latmon)}
    with servers(tmp_path, **paths) as (client, started):
        if latmon is None:
            os.kill(started["slow"].pid, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            async with FleetBackend(options, [*paths], client, patient=False) as backend:
                first = next(host for host in backend._hosts if host.is_settled)
                assert (first.label, backend._hosts[1].is_settled) == ("plain", False)
                print(f"{said}: first screen after {time.monotonic() - begun:.1f} s")
                assert "total" in backend.origin.measured
                assert not backend.origin.reason
                frames = await frames_until(backend, lambda one: one.kernel)
                assert hosts_of(frames[-1]) == {"plain"}
                assert any(said in frame.health.notice for frame in frames)
                if latmon is None:
                    os.kill(started["slow"].pid, signal.SIGCONT)
                await frames_until(backend, lambda one: hosts_of(one) == {*paths})
        finally:
            os.kill(started["slow"].pid, signal.SIGCONT)


@pytest.mark.slow
@needs_ssh
async def test_a_limit_begins_without_hosts_that_are_not_ready_which_are_named_until_then(tmp_path):
    """A stopped latmon never gets ready; the usual patience is longer than the test's."""
    states = []
    mark = f"fleet-{tmp_path.name}-{os.getpid()}"
    paths = {
        "plain": tools_in(tmp_path / "1"),
        "hung": f"{tools_in(tmp_path / '2', latmon='while :; do sleep 1; done')}:/{mark}",
    }
    with servers(tmp_path, **paths) as (client, _), killed(mark):
        begun = time.monotonic()
        async with FleetBackend(
            Options(interval_us=200_000), [*paths], client, patience_s=15.0, waiting=states.append
        ) as backend:
            assert time.monotonic() - begun < backend_module.COMPILING_S
            frames = await frames_until(backend, lambda one: one.kernel)
    assert hosts_of(frames[-1]) == {"plain"}
    assert ["plain: connecting", "hung: connecting"] in states
    assert ["hung: starting"] in states
    assert states[-1] == ()


def test_the_limit_of_a_picture_and_of_a_recording_reaches_the_fleet(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(commands.privileges, "drop_root", lambda _: None)
    monkeypatch.setattr(headless, "once", lambda request, _: asked.append(request) or EXIT_DONE)
    monkeypatch.setattr(headless, "record", lambda request, *_: asked.append(request) or EXIT_DONE)
    for words in (["--once", "--timeout", "5s"], ["--record", str(tmp_path / "d"), "--timeout", "5s"], ["--once"]):
        assert commands.run(arguments.parse(["fleet", "a", *words])) == EXIT_DONE
    assert [FleetBackend(**registry._arguments(one))._patience_s for one in asked] == [5.0, 5.0, None]


def test_only_a_screen_begins_without_slow_hosts(monkeypatch):
    shown = []
    monkeypatch.setattr(commands.privileges, "drop_root", lambda _: None)
    monkeypatch.setattr(commands, "_watch", lambda request, *_, **__: shown.append(request) or EXIT_DONE)
    monkeypatch.setattr(headless, "once", lambda request, _: shown.append(request) or EXIT_DONE)
    for words in (["fleet", "a", "b"], ["fleet", "a", "b", "--once"]):
        assert commands.run(arguments.parse(words)) == EXIT_DONE
    assert [FleetBackend(**registry._arguments(one))._patient for one in shown] == [False, True]


async def first_notice(scratch, word, **paths):
    """Return the notices of a fleet of these hosts up to the first one with the word, and the last frame."""
    with servers(scratch, **paths) as (client, _):
        async with FleetBackend(Options(interval_us=500_000), [*paths], client) as backend:
            frames = await frames_until(backend, lambda one: word in one.health.notice)
    return "; ".join(frame.health.notice for frame in frames), frames[-1]


@pytest.mark.slow
@needs_ssh
async def test_a_host_without_bpftrace_is_measured_by_its_counters_and_named(tmp_path):
    said, _ = await first_notice(tmp_path, "bpftrace", own=tools_in(tmp_path / "1", latmon=""))
    assert "own: bpftrace is not installed: " in said


def write_program(directory, name, text):
    program = Path(directory, name)
    program.unlink(missing_ok=True)
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return program


@pytest.mark.slow
@needs_ssh
async def test_a_host_whose_sudo_refuses_is_measured_by_its_counters_and_named_with_the_remedy(tmp_path):
    path = tools_in(tmp_path / "1", latmon="", code="import os; os.geteuid = lambda: 1000")
    write_program(path, "bpftrace", "echo bpftrace v0.23.2")
    write_program(path, "sudo", "echo sudo: a password is required >&2; exit 1")
    said, last = await first_notice(tmp_path, "password", own=path)
    assert "own: bpftrace needs root (sudo: a password is required): connect as root, or let sudo start sh" in said
    assert not last.gap


def probed(directory: Path, bpftrace: str = "", *, suite: str = "host", sudo: str = "") -> str:
    """Return the PATH of a host with a bpftrace: that of a suite, or these shell words.

    `sudo`: the words of its sudo, for a user that is not root.
    """
    path = tools_in(directory)
    for name in ("grep", "env", "unshare", "mount"):
        (directory / name).symlink_to(shutil.which(name))
    if bpftrace:
        text = f'test "$1" != --version || {{ echo bpftrace v0.23.2; exit; }}; {bpftrace}'
        write_program(directory, "bpftrace", text)
    elif suite != "host":
        write_program(directory, "bpftrace", f'PATH={os.environ["PATH"]}; exec {IN_CHROOT} {suite} "$@"')
    else:
        (directory / "bpftrace").symlink_to(shutil.which("bpftrace"))
    if sudo:
        write_program(directory, "id", "case $1 in -u | -g) echo 1000 ;; *) echo somebody ;; esac")
        write_program(directory, "sudo", sudo)
    return path


REFUSED = "echo sudo: a password is required >&2; exit 1"


@pytest.mark.slow
@needs_ssh
@pytest.mark.parametrize(
    ("host_with", "said"),
    [
        pytest.param(tools_in, "no Python 3.11 that could run ours, and no bpftrace", marks=pytest.mark.slow),
        (lambda at: probed(at, "exit", sudo=REFUSED), "needs root (sudo: a password is required): connect as root, or"),
        (lambda at: probed(at, "while printf 'rubbish\\033[2J\\n'; do :; done"), "it prints no output of bpftrace"),
        pytest.param(
            *(lambda at: probed(at, "echo ERROR: No BTF >&2; exit 1"), "runs none of the probes here: block_"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["none", "sudo", "rubbish", "refuses"],
)
async def test_a_host_whose_bpftrace_can_not_run_is_measured_by_its_counters_and_named(tmp_path, host_with, said):
    with servers(tmp_path, plain=host_with(tmp_path / "1")) as (client, _):
        async with FleetBackend(Options(interval_us=500_000), ["plain"], client, RemoteBpftrace) as backend:
            frames = await frames_until(backend, lambda one: one.kernel)
            assert await asyncio.to_thread(gone, str(tmp_path / "1/bpftrace"))
    notices = "; ".join(frame.health.notice for frame in frames)
    assert said in notices
    assert notices.isprintable()
    assert not frames[-1].histograms
    assert any(device.limits for frame in frames for device in frame.devices)  # the facts came with the counters


READY = 'printf \'{"type":"printf","data":"ready block_a"}\\n\''


@pytest.mark.slow
@needs_ssh
@pytest.mark.parametrize(
    "then",
    [
        pytest.param("while printf 'rubbish\\n'; do :; done", marks=pytest.mark.slow, id="rubbish"),
        pytest.param("exec sleep 1000", id="nothing"),
    ],
)
async def test_a_bpftrace_that_is_ready_and_gives_no_interval_makes_way_for_the_counters(tmp_path, monkeypatch, then):
    monkeypatch.setattr(host, "STARTING_S", 3.0)
    monkeypatch.setattr(host, "PAUSES_S", (0.2,))
    with servers(tmp_path, plain=probed(tmp_path / "1", f"{READY}; {then}")) as (client, _):
        async with FleetBackend(Options(interval_us=500_000), ["plain"], client, RemoteBpftrace) as backend:
            frames = await frames_until(backend, lambda one: one.kernel)
            assert await asyncio.to_thread(gone, str(tmp_path / "1/bpftrace"))
    assert "its bpftrace gave no interval for " in "; ".join(frame.health.notice for frame in frames)


live_probe = [
    pytest.mark.live,
    needs_ssh,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("bpftrace", "fio", "losetup"))),
        reason="needs root, bpftrace, fio and losetup",
    ),
]


def marked(*marks):
    def put(test):
        for mark in marks:
            test = mark(test)
        return test

    return put


def is_probed(frame) -> bool:
    return frame.health.probes_attached > 0


@each_bpftrace
@marked(*live_probe[1:])
@pytest.mark.parametrize(
    "namespace",
    [
        pytest.param((), id="host"),
        pytest.param(AHEAD, id="time_namespace", marks=[pytest.mark.slow, needs_time_namespace]),
    ],
)
async def test_the_bpftrace_of_a_host_without_latmon_counts_what_fio_did(suite, namespace, tmp_path):
    path, options = probed(tmp_path / "1", suite=suite), Options(interval_us=500_000, threshold_us=1)
    job = {"name": "job", "rw": "randread", "rate_iops": 200, "size": "64m"}
    before = {"bare": namespace}
    with LoopDevice(tmp_path / "image") as disk, servers(tmp_path, before=before, bare=path) as (client, _):
        async with FleetBackend(options, ["bare"], client, RemoteBpftrace) as backend:
            first = await frames_until(backend, is_probed)
            backend.request_tracing(())
            begun = time.monotonic_ns() // 1000
            doing = asyncio.create_task(asyncio.to_thread(fio, tmp_path, 3, {**job, "filename": disk.path}))
            frames = await frames_until(backend, lambda _: doing.done())
            done = doing.result()["job"]["read"]
            ended = time.monotonic_ns() // 1000
            flow = Flow(f"bare:{disk.name}", "read")
            frames += await frames_until(backend, lambda one: one.mono_us > ended + 2_000_000 and flow in one.kernel)
            part = backend.taken_by_host()[-1]
        assert await asyncio.to_thread(gone, path)
    assert sum(frame.kernel[flow].count for frame in frames if flow in frame.kernel) == done.count
    seen = sum(frame.seen[flow].count for frame in frames if flow in frame.seen)
    timed = sum(
        frame.histograms[at].count for frame in frames for at in frame.histograms if at == Series(*flow, "total")
    )
    least = 0.93 - CROWDED * crowded()  # other tests run bpftrace, too: then the kernel skips some runs of tier C
    assert least * done.count <= timed <= seen <= done.count
    outliers = [outlier for frame in frames for outlier in frame.outliers if outlier.device == flow.device]
    assert outliers
    assert all(
        begun <= outlier.mono_us <= ended + 200_000 for outlier in outliers
    )  # two clocks: half a round trip and 10 ms
    assert any("bare: no stages are traced: this needs latmon on the host" in frame.health.notice for frame in frames)
    assert part.has_own_clock
    assert (part.origin.backend, part.origin.boot_id) == ("bpftrace", boot_id())
    assert "latmon on the host" in part.origin.why_untraced("queue", "handlers")
    named = {device.name: device for frame in (*first, *frames) for device in frame.devices}
    assert (named[flow.device].kind, named[flow.device].untimed) == ("loop", "")


def sshd_sessions(server) -> list[int]:
    """Return the processes of a server's connections."""
    return [pid for pid in descendants(server.pid) if words_of(pid)[0].startswith("sshd")]


@pytest.mark.slow
@marked(*live_probe)
@pytest.mark.parametrize("end", [pytest.param("client", marks=pytest.mark.slow), "connection"])
async def test_the_bpftrace_of_a_host_ends_with_its_connection(tmp_path, end):
    path = probed(tmp_path / "1", sudo='test "$1" = -n && shift; exec "$@"')
    with servers(tmp_path, bare=path) as (client, started):
        async with FleetBackend(Options(interval_us=500_000), ["bare"], client, RemoteBpftrace) as backend:
            await frames_until(backend, is_probed)
            probes = [pid for pid in running(f"{path}/bpftrace") if "-e" in words_of(pid)]
            assert probes
            for task in backend._running:
                task.cancel()
            for pid in running(str(tmp_path / "client")) if end == "client" else sshd_sessions(started["bare"]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert await asyncio.to_thread(gone, path)


needs_nets = pytest.mark.skipif(not sshd.can_have_nets(), reason="needs root, iproute2 and network namespaces")
TROUBLED = {
    "slow": "no frame since",
    "hangs": "no frame since",
    "dies": "(no frame since|Timeout, server|connect to host|Connection)",
    "full": "No space left on device",
    "sudo": r"its bpftrace needs root \(sudo: a password is required\): connect as root",
    "clock": "its clock is 2h ahead",
}
"""Host -> what a screen says about it."""
FULL = 'mount -t tmpfs -o size=100k tmpfs /run && mkdir /run/sshd && exec "$@"'
CLOCK = re.compile(r"(\d\d:\d\d:\d\d) \S+ +last")


def eight_hosts(scratch: Path) -> dict[str, str]:
    """Return name -> PATH of hosts of each kind, most of which come to grief."""
    ahead = "import time; real = time.time; time.time = lambda: real() + 7200.0"
    return {
        "agentless": probed(scratch / "1") if shutil.which("bpftrace") else tools_in(scratch / "1"),
        "single": tools_in(scratch / "2", python=True),
        "hangs": tools_in(scratch / "3", latmon=""),
        "slow": tools_in(scratch / "4"),
        "dies": tools_in(scratch / "5", python=True),
        "full": tools_in(scratch / "6", python=True),
        "sudo": probed(scratch / "7", "exit", sudo=REFUSED),
        "clock": tools_in(scratch / "8", latmon="", code=ahead),
    }


@pytest.mark.slow
@needs_ssh
@needs_nets
def test_a_screen_of_eight_hosts_ticks_while_they_fail_and_names_them_and_leaves_nothing(tmp_path):
    mark = f"fleet-{tmp_path.name}-{os.getpid()}"
    paths = {name: f"{path}:/{mark}" for name, path in eight_hosts(tmp_path).items()}
    full = {"full": ("unshare", "--mount", "--propagation", "private", "sh", "-c", FULL, "sh")}
    with sshd.nets(*paths) as (given_nets, nets), servers(tmp_path, nets, full, **paths) as (client, started):
        words = given_nets.words(*latmon("fleet", *paths))
        path = f"{client_bin(tmp_path, client)}:{os.environ['PATH']}"
        with Terminal(words, tmp_path, size=(40, 120), PATH=path) as terminal:
            watched = Watched(lambda: terminal.output, 120, 40)
            rows = wait_for(lambda: rows_of(watched.lines()) >= {*paths} - {"slow"}, 3 * PATIENCE_S, 0.2)
            assert rows, watched.lines()
            files = files_of(mark)
            assert files
            assert nets["slow"].shape("netem", "delay", "6s") or nets["slow"].shape(
                *("tbf", "rate", "1kbit", "burst", "2kb", "latency", "300s")
            )
            hung = [*descendants(started["hangs"].pid)]
            for pid in hung:
                os.kill(pid, signal.SIGSTOP)
            nets["dies"].ip("link", "set", "eth0", "down")
            dead = [*descendants(started["dies"].pid)]
            for pid in dead:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            # a shell that is killed removes nothing: the next connection to its host does
            of_dead = [one for one in files if int(one.name.split(".")[1]) in dead]
            said, ticks, begun = set(), {}, time.monotonic()

            def all_said() -> bool:
                text = " ".join(one.strip("│ ") for one in watched.lines())
                said.update(name for name, why in TROUBLED.items() if re.search(f"{name}: [^;]*{why}", text))
                ticks.setdefault(CLOCK.search(watched.lines()[0])[1], time.monotonic())
                return said == {*TROUBLED} and time.monotonic() - begun > 15

            wait_for(all_said, 3 * PATIENCE_S, 0.2)
            assert said == {*TROUBLED}, watched.lines()
            times = [*ticks.values(), time.monotonic()]
            # one a second where there is a CPU for it; a screen that waited for a host would stand for 30 s
            assert len(ticks) > 0.25 * (times[-1] - begun)
            assert max(after - before for before, after in itertools.pairwise(times)) < 15
            for pid, _ in terminal.processes("-m latmon"):
                os.kill(pid, signal.SIGKILL)
            assert not terminal.left(PATIENCE_S)

            def all_ended() -> bool:
                for pid in {*hung, *running(mark)}:  # what was stopped ends once it goes on
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
                return not running(mark)

            assert wait_for(all_ended, PATIENCE_S, 0.2)
            assert wait_for(lambda: not any_left([one for one in files if one not in of_dead]), PATIENCE_S, 0.2)
    for one in of_dead:
        shutil.rmtree(one, ignore_errors=True)


def rows_of(lines: list[str]) -> set[str]:
    """Return the hosts that have a row."""
    return {line.strip("│▸ ").partition(" ")[0] for line in lines}


QUIET = "import latmon.capture.backend as it; it.QUIET_S = 10.0"
MEASURING = """
import asyncio, sys
import latmon.capture.backend as it
it.QUIET_S = float(sys.argv[1])
from latmon_backends.bpftrace.backend import RemoteBpftrace
from latmon_backends.fleet.backend import FleetBackend

async def main():
    options = it.Options(interval_us=500_000)
    async with FleetBackend(options, sys.argv[3:], sys.argv[2].split(), RemoteBpftrace) as backend:
        async for frame in backend.frames():
            print(len({one.device.partition(":")[0] for one in frame.kernel}), flush=True)

asyncio.run(main())
"""


def ends_in_silence(scratch: Path, cut: str, words: str, quiet_s: float, **paths: str) -> bool:
    """Measure hosts, cut the connections so that nothing closes them, kill the fleet; return whether the words end."""
    with contextlib.ExitStack() as stack:
        here, nets = stack.enter_context(sshd.nets(*paths)) if cut == "network" else (None, {})
        client, _ = stack.enter_context(servers(scratch, nets, **paths))
        environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'backends'}"}
        started = [sys.executable, "-c", MEASURING, str(quiet_s), " ".join(client), *paths]
        started = started if here is None else here.words(*started)
        process = subprocess.Popen(started, env=environ, stdout=subprocess.PIPE, text=True)
        stack.enter_context(killed(str(scratch / "client")))
        try:
            assert f"{len(paths)}\n" in process.stdout
            assert running(words)
            for net in nets.values():
                net.ip("link", "set", "eth0", "down")
            for pid in running(str(scratch / "client")) if cut == "client" else ():
                if pid != process.pid:
                    os.kill(pid, signal.SIGSTOP)
        finally:
            process.kill()
            process.communicate()
        return gone(words, 3 * PATIENCE_S)


each_cut = pytest.mark.parametrize("cut", ["client", pytest.param("network", marks=needs_nets)])


@pytest.mark.slow
@needs_ssh
@each_cut
def test_a_host_that_nothing_comes_from_for_long_measures_no_longer(tmp_path, cut):
    mark = f"fleet-{tmp_path.name}-{os.getpid()}"
    own = tools_in(tmp_path / "2", latmon="", code=QUIET)
    assert ends_in_silence(tmp_path, cut, mark, 10, plain=f"{tools_in(tmp_path / '1')}:/{mark}", own=f"{own}:/{mark}")


@pytest.mark.slow
@marked(*live_probe)
@pytest.mark.parametrize("cut", ["client", pytest.param("network", marks=needs_nets)])
def test_the_bpftrace_of_a_host_that_nothing_comes_from_for_long_ends(tmp_path, cut):
    path = probed(tmp_path / "1", sudo='test "$1" = -n && shift; exec "$@"')
    compiling_s = 40  # until the first question
    assert ends_in_silence(tmp_path, cut, f"{path}/bpftrace", compiling_s, bare=path)


@pytest.mark.slow
@marked(*live_probe)
async def test_a_bpftrace_that_is_killed_on_its_host_is_started_again(tmp_path):
    path = probed(tmp_path / "1")
    with servers(tmp_path, bare=path) as (client, _):
        async with FleetBackend(Options(interval_us=500_000), ["bare"], client, RemoteBpftrace) as backend:
            await frames_until(backend, is_probed)
            for pid in running(f"{path}/bpftrace"):
                if words_of(pid)[0].endswith("/bpftrace"):
                    os.kill(pid, signal.SIGKILL)
            frames = await frames_until(backend, lambda one: "started again" in one.health.notice)
            assert "probe-restart" in frames[-1].gap


def words_of(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    return [""]


def test_a_suspend_of_a_host_ends_its_connection_because_its_clocks_moved_apart(tmp_path):
    shell_counters = counters(tmp_path)
    suspends = "f power/suspend_stats/success "
    first, second = tick(100.0, 10), tick(101.0, 17)
    taken(shell_counters, *FACTS, *first[:-1], f"{suspends}3", first[-1])
    assert taken(shell_counters, *second[:-1], f"{suspends}3", second[-1])
    with pytest.raises(HostError, match="suspended"):
        taken(shell_counters, *tick(102.0, 18)[:-1], f"{suspends}4")


def test_a_first_tick_that_comes_late_moves_no_time_and_drifting_clocks_do(tmp_path):
    now_us = [0]
    tree = ShellTree(tmp_path, Offset(1_000_000, 0.0, 500), clock=lambda: now_us[0])

    def shift_after(second: int, delay_us: int, drift_us: int) -> int:
        now_us[0] = 100_000_000 + second * 1_000_000 + 1_000_000 + delay_us + drift_us
        for line in tick(100.0 + second, 1):
            tree.take(line.encode())
        return tree.shift_us

    assert shift_after(0, 400_000, 0) == shift_after(1, 10_000, 0) == shift_after(2, 90_000, 0) == 1_000_000
    shifts = [shift_after(second, 10_000, 50 * second) for second in range(3, 400)]
    assert shifts == sorted(shifts)
    assert shifts[-1] == pytest.approx(1_000_000 + 50 * 400, abs=50 * 61)


@pytest.mark.parametrize(
    ("error_us", "first_minute_us", "paused_us"),
    [(0, 0, 0), (2_000_000, 0, 0), (-2_000_000, 0, 0), (0, 300_000, 0), (0, 0, 3_000_000)],
    ids=["exact", "slow pings", "slow questions", "loaded first minute", "paused"],
)
def test_a_time_that_was_asked_for_lies_between_question_and_answer(tmp_path, error_us, first_minute_us, paused_us):
    now_us = [0]
    tree = ShellTree(tmp_path, Offset(1_000_000 + error_us, 0.0, 500), clock=lambda: now_us[0])
    for second in range(1, 200):
        lacks_us = 1_000_000 + (paused_us if second > 100 else 0)
        read_us = (100 + second) * 1_000_000 + lacks_us
        tree.asked_us = read_us - 20_000
        now_us[0] = read_us + (first_minute_us if second < 90 else 5_000)
        for line in tick(100.0 + second, 1):
            tree.take(line.encode())
        assert lacks_us - 30_000 <= tree.shift_us <= now_us[0] - tree.up_us
    assert abs(tree.shift_us - lacks_us) <= 30_000


@pytest.mark.slow
@needs_ssh
async def test_a_clock_that_is_wrong_by_hours_is_named_and_moves_no_time(tmp_path):
    plain = tools_in(tmp_path / "1")
    (Path(plain) / "date").unlink()
    (Path(plain) / "date").write_text("#!/bin/sh\necho $(($(/bin/date +%s) - 10800))\n")
    (Path(plain) / "date").chmod(0o755)
    ahead = "import time; real = time.time; time.time = lambda: real() + 7200.0"
    own = tools_in(tmp_path / "2", latmon="", code=ahead)
    with servers(tmp_path, plain=plain, own=own) as (client, _):
        async with FleetBackend(Options(interval_us=500_000), ["plain", "own"], client) as backend:
            frames = await frames_until(backend, lambda one: hosts_of(one) == {"plain", "own"})
            said = "; ".join(frame.health.notice for frame in frames)
            recorded = backend.taken_by_host()
    assert "plain: its clock is 3h behind" in said
    assert "own: its clock is 2h ahead" in said
    walls = [frame.wall for frame in frames] + [host_part.frame.wall for host_part in recorded]
    assert all(abs(wall - time.time()) < PATIENCE_S for wall in walls)
    clocks = {host_part.label: host_part.origin.extra["fleet_clock"]["wall_s"] for host_part in recorded}
    assert clocks == {"plain": pytest.approx(10800, abs=60), "own": pytest.approx(-7200, abs=60)}


@needs_ssh
async def test_a_host_that_wants_a_password_is_named_with_the_remedy_and_nothing_is_asked(tmp_path, monkeypatch):
    asked = tmp_path / "asked"
    program = write_program(tmp_path, "askpass", f"echo x >> {asked}; echo x")
    for name, value in (("SSH_ASKPASS", str(program)), ("SSH_ASKPASS_REQUIRE", "force"), ("DISPLAY", ":0")):
        monkeypatch.setenv(name, value)
    with sshd.server(tmp_path, "secret", keys=False) as server:
        client = sshd.client(tmp_path / "client", {"secret": server})
        with pytest.raises(UnavailableError, match=r"secret: .*Permission denied \(.*ssh asks for no password here"):
            async with FleetBackend(Options(), ["secret"], client):
                pass
    assert not asked.exists()


@needs_ssh
@pytest.mark.parametrize(
    ("is_known", "remedy"),
    [
        (False, "connect once with ssh to check and keep its key"),
        (True, "its key is not the known one: connect with ssh, and find out why first"),
    ],
)
async def test_a_host_with_an_unknown_or_a_changed_key_is_named_with_its_remedy(tmp_path, is_known, remedy):
    known = tmp_path / "known_hosts"
    with sshd.server(tmp_path, "host") as server:
        key = (server.directory / "user.pub").read_text()  # any key but the host's own
        known.write_text(f"[127.0.0.1]:{server.port} {key}" if is_known else "")
        client = sshd.client(tmp_path / "client", {"host": server}, known)
        with pytest.raises(UnavailableError) as error:
            async with FleetBackend(Options(), ["host"], client):
                pass
    assert f"host: Host key verification failed: {remedy}" in str(error.value)


def client_bin(scratch: Path, client) -> Path:
    """Return a directory with a program `ssh` that has the servers' configuration."""
    directory = scratch / "client-bin"
    directory.mkdir()
    write_program(directory, "ssh", f'exec {shutil.which("ssh")} -F {client[2]} "$@"')
    return directory


def command(scratch: Path, client, *words: str) -> subprocess.Popen:
    """Start `latmon fleet` with a program `ssh` in PATH that has the servers' configuration."""
    directory = client_bin(scratch, client)
    environ = {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}", "PYTHONPATH": f"{ROOT}:{ROOT / 'backends'}"}
    return subprocess.Popen(
        [sys.executable, "-m", "latmon", "fleet", *words], env=environ, stderr=subprocess.PIPE, text=True
    )


@needs_ssh
def test_each_host_is_recorded_to_a_file_with_the_clock_of_this_host(tmp_path):
    mark = f"fleet-{tmp_path.name}-{os.getpid()}"
    paths = {
        "plain": f"{tools_in(tmp_path / '1')}:/{mark}",
        "own": f"{tools_in(tmp_path / '2', latmon='')}:/{mark}",
    }
    out = tmp_path / "recordings"
    with servers(tmp_path, **paths) as (client, _):
        words = ("--record", str(out), "--duration", "2s", "--interval", "500ms", *paths)
        _, complaints = (process := command(tmp_path, client, *words)).communicate(timeout=PATIENCE_S)
        assert gone(mark)
    assert process.returncode == EXIT_DONE, complaints
    files = {path.name.partition("-2")[0]: path for path in out.iterdir()}
    assert files.keys() == paths.keys()
    for file in files.values():
        recording = open_recording(file)
        frames = [item for item in recording if isinstance(item, Frame)]
        assert not recording.damage
        assert frames
        assert frames[0].devices
        assert all(":" not in device.name for device in frames[0].devices)
        assert abs(frames[-1].wall - time.time()) < PATIENCE_S
        assert "fleet_clock" in recording.origin.extra


@needs_ssh
def test_a_recording_names_hosts_that_hang_and_that_never_sent_a_frame(tmp_path):
    """Their files would pass for complete ones."""
    mark = f"fleet-{tmp_path.name}-{os.getpid()}"
    paths = {
        "plain": tools_in(tmp_path / "1"),
        "hangs": tools_in(tmp_path / "2"),
        "never": f"{tools_in(tmp_path / '3', latmon='while :; do sleep 1; done')}:/{mark}",
    }
    out = tmp_path / "recordings"
    with servers(tmp_path, **paths) as (client, started), killed(mark):
        words = ("--record", str(out), "--duration", "10s", "--timeout", "5s", "--interval", "500ms", *paths)
        process = command(tmp_path, client, *words)
        assert wait_for(lambda: len(list(out.glob("*"))) == 2, every=0.2)
        stopped = [*descendants(started["hangs"].pid), started["hangs"].pid]
        try:
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            _, complaints = process.communicate(timeout=PATIENCE_S)
        finally:
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
    assert process.returncode == EXIT_INCOMPLETE, complaints
    assert re.search(r"never sent no frame; hangs sent no frame in the last \d+ s", complaints)
    files = {path.name.partition("-2")[0]: [*open_recording(path)] for path in out.iterdir()}
    assert files.keys() == {"plain", "hangs"}
    gaps = {name: [item.reason for item in items if isinstance(item, Gap)] for name, items in files.items()}
    assert gaps["plain"] == []
    assert gaps["hangs"][-1] == "probe-silent"


@needs_ssh
@pytest.mark.parametrize("words", [("--record", "OUT", "--duration", "3s"), ("--once",)], ids=["record", "once"])
def test_a_capture_of_hosts_that_never_sent_a_frame_is_unavailable(tmp_path, words):
    mark = f"fleet-{tmp_path.name}-{os.getpid()}"
    path = f"{tools_in(tmp_path / '1', latmon='while :; do sleep 1; done')}:/{mark}"
    words = [str(tmp_path / "out") if word == "OUT" else word for word in words]
    with servers(tmp_path, never=path) as (client, _), killed(mark):
        process = command(tmp_path, client, *words, "--timeout", "2s", "never")
        _, complaints = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == EXIT_UNAVAILABLE, complaints
    assert "no host has sent a frame: never: " in complaints


async def test_a_connection_ends_where_what_ssh_has_started_keeps_its_pipes_open(tmp_path):
    """A ProxyCommand that hangs: the end of ssh is seen when its last pipe is closed."""
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nsleep 600 &\necho $! >&2\nexec sleep 600\n")
    ssh.chmod(0o755)
    connection = await remote.Connection.open("never", [str(ssh)])
    try:
        async with asyncio.timeout(60):
            while not connection._complaints:  # noqa: ASYNC110 - they come from a pipe
                await asyncio.sleep(0.02)
            await connection.close()
    finally:
        os.kill(int(connection._complaints[0]), signal.SIGKILL)


@contextlib.contextmanager
def small_disk(at: Path, size: str):
    """Mount a file system in memory; skips the test where that is not allowed."""
    at.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at)]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("needs root, and to mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


@pytest.mark.slow
@needs_ssh
def test_a_disk_that_fills_ends_the_recording_of_a_fleet_and_is_named(tmp_path):
    paths = {"plain": tools_in(tmp_path / "1"), "own": tools_in(tmp_path / "2", latmon="")}
    disk = tmp_path / "disk"
    with small_disk(disk, "300m"), servers(tmp_path, **paths) as (client, _):
        process = command(tmp_path, client, "--record", str(disk / "fleet"), "--interval", "500ms", *paths)
        assert wait_for(lambda: len(list(disk.glob("fleet/*"))) == len(paths), every=0.2)
        (disk / "load").write_bytes(bytes(60 << 20))
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == EXIT_INCOMPLETE, said
        assert "(0 hosts): recording to " in said
        assert "are free beside" in said
        for path in (disk / "fleet").iterdir():
            recording = open_recording(path)
            assert [item for item in recording if isinstance(item, Frame)]
            assert not recording.damage


@pytest.mark.slow
@needs_ssh
def test_nothing_is_left_on_a_host_after_latmon_was_killed(tmp_path):
    mark = f"fleet-{tmp_path.name}-{os.getpid()}"
    paths = {
        "plain": f"{tools_in(tmp_path / '1')}:/{mark}",
        "carried": f"{tools_in(tmp_path / '2', python=True)}:/{mark}",
    }
    out = tmp_path / "recordings"
    with servers(tmp_path, **paths) as (client, _):
        process = command(tmp_path, client, "--record", str(out), *paths)
        deadline = time.monotonic() + PATIENCE_S
        while len(list(out.glob("*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert running(mark)
        files = files_of(mark)
        process.kill()
        process.communicate()
        assert gone(mark)
    assert not any_left(files)


def test_a_feed_needs_pipes_because_the_end_of_its_input_ends_it():
    words = [sys.executable, "-m", "latmon", "fleet", "--feed"]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'backends'}"}
    done = subprocess.run(
        words, check=False, stdin=subprocess.DEVNULL, capture_output=True, env=environ, timeout=PATIENCE_S
    )
    assert done.returncode == EXIT_USAGE
    assert b"pipes" in done.stderr


FACTS = ("@facts", "f block/sda/queue/nr_requests 64", "f block/sda/device/model disk", "f block/sda/size 8", "@end")


ANEW = ((100.0, 10, 20), (101.0, 500, 21))
"""Uptime, reads and diskseq of two ticks."""


def tick(up: float, reads: int) -> tuple[str, ...]:
    return (f"@tick {up}", f"s 8 0 sda {reads} 0 80 5 0 0 0 0 0 5 5 0 0 0 0 0 0", "f block/sda/inflight 1 0", "@end")


def counters(root: Path) -> ShellCounters:
    now_us = itertools.count(101_000_000, 1_000_000)
    return ShellCounters(
        HostAnswers({"host": "a"}), Options(), root, Offset(1_000_000, 0.0, 500), "no latmon", clock=now_us.__next__
    )


def taken(shell_counters: ShellCounters, *lines: str) -> list[Frame]:
    return [
        frame
        for line in lines
        if shell_counters.tree.take(line.encode()) and (frame := shell_counters.frame()) is not None
    ]


def test_a_host_without_latmon_is_measured_by_the_difference_of_its_counters(tmp_path):
    (frame,) = taken(counters(tmp_path), *FACTS, *tick(100.0, 10), *tick(101.0, 17))
    assert frame.kernel[Flow("sda", "read")].count == 7
    assert (frame.mono_us, frame.dt_us) == (102_000_000, 1_000_000)
    assert frame.outstanding["sda"].in_driver == 1
    (device,) = frame.devices
    assert (device.name, device.model) == ("sda", "disk")
    assert [(limit.name, limit.value) for limit in device.limits] == [("nr_requests", 64)]


def test_a_device_made_anew_on_a_host_without_latmon_is_known_by_its_diskseq(tmp_path):
    """Its name and its directory stay: the facts are only sent again when a name comes or goes."""
    first, second = ((*tick(up, n)[:-1], f"f block/sda/diskseq {seq}", "@end") for up, n, seq in ANEW)
    (frame,) = taken(counters(tmp_path), *FACTS, *first, *second)
    assert frame.kernel[Flow("sda", "read")].count == 500


@pytest.mark.parametrize(
    "line",
    [
        "f ../../escaped x",
        "f block/../../../escaped x",
        "f /escaped x",
        "f block/.hidden x",
        "l block/sda/device ../../../..",
        "l block/sda/device /",
        "n block/sda/driver ../x",
        "x block/sda y",
        "",
        "f",
    ],
)
def test_no_line_of_a_host_leads_out_of_its_tree(tmp_path, line):
    root = tmp_path / "root"
    root.mkdir()
    shell_counters = counters(root)
    frames = taken(shell_counters, FACTS[0], line, *FACTS[1:], *tick(100.0, 10), line, *tick(101.0, 17))
    assert frames[0].health.undecoded_lines == 2
    assert not [path for path in tmp_path.rglob("*") if not path.is_relative_to(root)]
    links = [path for path in root.rglob("*") if path.is_symlink()]
    assert all(link.readlink().is_relative_to(root) for link in links)


def test_a_file_below_a_link_is_not_written_through_it(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    lines = ("@facts", "d devices/a", "l block/sda/device devices/a", "f block/sda/device/model x", "@end")
    taken(counters(root), *lines)
    assert (root / "sys/devices/a/model").read_text() == "x"


@pytest.mark.parametrize(
    ("disk", "gauge"),
    [
        ("8 0 sda 9223372036854775808 0 80", "1 0"),
        ("8 0 sda 17 0 9223372036854775807", "1 0"),
        ("8 0 sda -5 0 80", "1 0"),
        ("8 0 sda 17 0 80", "1 -7"),
        ("8 0 sda 17 0 80", "9223372036854775808 0"),
    ],
)
def test_counters_that_no_reader_takes_are_left_out(tmp_path, disk, gauge):
    """The frame of all hosts with them ended the screen, and a recording of the host had no frame."""
    hostile = ("@tick 101.0", f"s {disk} 5 0 0 0 0 0 5 5 0 0 0 0 0 0", f"f block/sda/inflight {gauge}", "@end")
    given_host = Host("a", "a", Options(), ("ssh",))
    facts = ("@facts", f"f block/sda/queue/nr_requests {'9' * 20}", *FACTS[2:])
    good, bad = taken(counters(tmp_path), *facts, *tick(100.0, 0), *tick(100.5, 0), *hostile)
    for frame in (good, bad):
        given_host._take_counted(frame, 0)
    assert [part.frame for part in given_host._waiting] == [good, bad]
    left_out = Flow("sda", "read") not in bad.kernel
    assert left_out != (bad.outstanding["sda"] == Outstanding(None, None))


def test_a_frame_that_no_reader_takes_ends_the_connection(tmp_path):
    given_host = Host("a", "a", Options(), ("ssh",))
    (good,) = taken(counters(tmp_path), *FACTS, *tick(100.0, 0), *tick(100.5, 0))
    bad = replace(good, kernel={Flow("sda", "read"): Completed(2**63, 0)})
    given_host._take_counted(good, 0)
    with pytest.raises(HostError, match="its counters are no numbers of a kernel: "):
        given_host._take_counted(bad, 0)
    assert [part.frame for part in given_host._waiting] == [good]


def parent_of_the_tree(runtime: object) -> str:
    with host.private_directory({"XDG_RUNTIME_DIR": str(runtime)}) as private_directory:
        return str(Path(private_directory).parent)


def test_a_runtime_directory_of_the_user_is_taken(tmp_path):
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    assert parent_of_the_tree(runtime) == str(runtime)
    assert parent_of_the_tree(tmp_path / "none") == parent_of_the_tree("") == "/dev/shm"


@pytest.mark.parametrize("change", ["owner", "mode", "above"])
def test_a_runtime_directory_that_another_user_can_change_is_not_taken(tmp_path, change):
    """`su` without `-` keeps the variable."""
    runtime = tmp_path / "runtime" / "0"
    runtime.mkdir(parents=True, mode=0o700)
    if change == "owner" and os.geteuid():
        pytest.skip("only root can give a directory away")
    if change == "owner":
        os.chown(runtime, 12345, -1)
    else:
        (runtime if change == "mode" else runtime.parent).chmod(0o777)
    assert parent_of_the_tree(runtime) == "/dev/shm"


def private_directory(environ) -> str:
    """Return the directory that the script makes for latmon's files on a host."""
    definition = remote._SCRIPT[remote._SCRIPT.index("private() {") :].partition("\n}\n")[0] + "\n}\n"
    text = definition.replace("/run ", "/nowhere ") + 'private; echo "$d"; rm -rf "$d"'
    done = subprocess.run(["sh", "-c", text], env=environ, text=True, capture_output=True, check=True)
    return str(Path(done.stdout.strip()).parent)


def test_a_host_keeps_latmons_files_in_no_directory_of_another_user(tmp_path):
    environ = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(tmp_path)}
    assert private_directory(environ) == str(tmp_path)
    if os.geteuid():
        pytest.skip("only root can give a directory away")
    os.chown(tmp_path, 12345, -1)
    assert private_directory(environ) == "/dev/shm"


def test_a_clock_that_is_wrong_is_reported_and_changes_no_time():
    given_host = Host("a", "a", Options(), ("ssh",))
    now_us = time.monotonic_ns() // 1000
    given_host._measured(now_us, 5_000_000, time.time() - 7200)
    assert given_host.news() == ["a: its clock is 2h behind"]
    given_host.origin = Origin("procfs", "a", "", "1")
    given_host._take(Frame(1, time.time() - 7200, 6_000_000, 1_000_000))
    (recorded,) = given_host.recorded()
    assert abs(recorded.frame.wall - time.time()) < PATIENCE_S
    (waiting,) = given_host.taken(now_us + 10**9, 0)
    assert abs(waiting.frame.mono_us + waiting.shift_us - now_us) < PATIENCE_S * 1e6


def test_a_clock_that_is_wrong_again_is_reported_again():
    given_host = Host("a", "a", Options(), ("ssh",))
    hours = (2, 2, 0, 0, 2, -3, 2)
    for lack in hours:
        given_host._check_clock(Offset(0, lack * 3600.0 + 0.1, 1000))
    assert given_host.news() == [
        f"a: its clock is {text}" for text in ("2h behind", "2h behind", "3h ahead", "2h behind")
    ]
    for lack_s in (0.9, 1.1, 0.9, 1.1):  # near the limit
        given_host._check_clock(Offset(0, lack_s, 1000))
    assert len(given_host.news()) == 1


def test_the_archive_has_what_a_capture_needs_and_no_screen():
    names = set(zipfile.ZipFile(io.BytesIO(remote.archive())).namelist())
    assert {"latmon/cli/main.py", "latmon_backends/bpftrace/backend.py", "yaml/__init__.py"} <= names
    assert "latmon/probes/linux/block_a.bt" in names
    assert not [name for name in names if name.startswith("latmon/tui")]
    assert remote.archive() == remote.archive.__wrapped__()


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=x", "", "a b", "a\nb", "a;b", "$(x)", "`x`", "user@-x", "a'b", "x" * 300, "ä", "\x1b[2J"]
)
def test_what_is_no_host_name_is_refused(name):
    with pytest.raises(ValueError, match="no host name"):
        remote.checked_host(name)


@pytest.mark.parametrize("name", ["db-07", "root@10.0.0.7", "ssh://me@db.example.com:2222", "fe80::1%eth0", "[::1]"])
def test_host_names_of_ssh_are_taken(name):
    assert remote.checked_host(name) == name


def test_labels_are_short_and_unique():
    assert remote.labels(["root@db-07.example.com", "db-08"]) == {"root@db-07.example.com": "db-07", "db-08": "db-08"}
    assert remote.labels(["a.example.com", "a.example.org"]) == {
        "a.example.com": "a.example.com",
        "a.example.org": "a.example.org",
    }
    assert list(remote.labels(["10.0.0.7", "10.0.0.8"]).values()) == ["10.0.0.7", "10.0.0.8"]
    with pytest.raises(UsageError, match="twice"):
        remote.labels(["a", "a"])
    with pytest.raises(UsageError, match="32"):
        remote.labels([f"h{n}" for n in range(33)])


def part(label="a", mono_us=5_000_000, shift_us=0, **values):
    return HostFrame(label, Frame(1, 100.0, mono_us, 1_000_000, **values), shift_us, ("sda",))


def merged(*parts):
    frame, refused = merged_or_refused(*parts)
    assert not refused
    return frame


def merged_or_refused(*parts):
    return merged_frame(parts, seq=7, wall=1000.0, mono_us=50_000_000, dt_us=1_000_000)


def test_hosts_are_apart_and_several_frames_of_one_host_add_up():
    histogram = Histogram.record([100, 200])
    series, flow = Series("sda", "read", "total"), Flow("sda", "read")
    values = {"histograms": {series: histogram}, "kernel": {flow: Completed(2, 8192, 300)}}
    frame = merged(part("a", **values), part("a", **values), part("b", **values))
    assert {at.device: h.count for at, h in frame.histograms.items()} == {"a:sda": 4, "b:sda": 2}
    assert {at.device: done.count for at, done in frame.kernel.items()} == {"a:sda": 4, "b:sda": 2}
    assert (frame.seq, frame.wall, frame.mono_us, frame.dt_us) == (7, 1000.0, 50_000_000, 1_000_000)


def decoded(frame):
    return codec.decode_frame(parse(codec.to_bytes(codec.encode_frame(frame))))


def test_the_same_thread_and_interrupt_of_two_hosts_are_two_in_a_frame_that_can_be_read():
    thread = Wakeups(Thread(15, "ksoftirqd/0", "other", 120), Histogram.record([2000]))
    values = {
        "tables": {
            WAKEUPS: by_thread([thread]),
            HANDLERS: {Handler(32, "virtio0"): HandlerRuns(Histogram.record([5]))},
            SOFTIRQS: {SoftirqCpu("BLOCK", 0): SoftirqRuns(Histogram.record([3]), Histogram.record([4]))},
        },
    }
    host_frames = [HostFrame(one.label, one.frame, 0, number=at) for at, one in enumerate((part("a"), part("b")))]
    host_frames = [
        replace(host_frame, frame=replace(host_frame.frame, **values)) for host_frame in (*host_frames, host_frames[0])
    ]
    frame = decoded(merged(*host_frames))
    assert {one.thread.comm: one.delay.count for one in frame[WAKEUPS].values()} == {
        "a:ksoftirqd/0": 2,
        "b:ksoftirqd/0": 1,
    }
    assert {(at.name, one.run.count) for at, one in frame[HANDLERS].items()} == {
        ("a:virtio0", 2),
        ("b:virtio0", 1),
    }
    assert {at.vector for at in frame[SOFTIRQS]} == {"a:BLOCK", "b:BLOCK"}


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(FRAMES, min_size=1, max_size=3))
def test_a_merged_frame_can_be_read_whatever_the_hosts_measure(frames):
    host_frames = [HostFrame(f"h{at}", frame, 0, number=at) for at, frame in enumerate(frames)]
    assert decoded(merged(*host_frames)).seq == 7


def test_an_outlier_has_the_time_of_this_host():
    outlier = Outlier(wall=3.0, mono_us=4_500_000, device="sda", op="read", total_us=200_000)
    (actual_outlier,) = merged(part(shift_us=45_000_000, outliers=(outlier,))).outliers
    assert (actual_outlier.device, actual_outlier.mono_us) == ("a:sda", 49_500_000)
    assert actual_outlier.wall == pytest.approx(999.5)


def test_losses_are_added_and_the_reason_for_counts_alone_is_the_devices():
    device = Device("sda", 8, 0, members=("sdb",), controller="host0 ahci")
    alone = HostFrame("b", Frame(1, 1.0, 1, 1, devices=(device,)), 0, ("sda",), "no latmon")
    frame = merged(part(health=Health(lost_events=2), devices=(device,)), part(health=Health(lost_events=3)), alone)
    assert frame.health.lost_events == 5
    first, second = frame.devices
    assert (first.name, first.members, first.controller, first.untimed) == ("a:sda", ("a:sdb",), "a:host0 ahci", "")
    assert (second.name, second.untimed) == ("b:sda", "no latmon")


def test_an_origin_measures_what_any_host_measures():
    timed = Origin("bpftrace", "a", "Linux 6.1", "1", tier="A", measured={"total": ()}, hz=250)
    counted = Origin("procfs", "b", "Linux 6.1", "1", tier="D", absent=(Missing("total", "counted"),))
    origin = merged_origin({"a": timed, "b": counted}, 3, 1_000_000, (10.0, 20))
    assert (origin.host, origin.tier, origin.kernel, origin.hz) == ("3 hosts", "A/D", "Linux 6.1", None)
    assert "total" in origin.measured
    assert not origin.reason
    assert merged_origin({"b": counted}, 1, 1_000_000, (10.0, 20)).reason


@pytest.mark.parametrize("phase_us", [0, -1000, 1000, 199_000, 201_000, 500_000, 799_000, 801_000])
def test_each_interval_has_one_frame_of_a_host_whatever_the_phase_of_its_clock(phase_us):
    given_host = Host("a", "a", Options(), ("ssh",))
    jitter = [0, 3000, -2500, 1500, -3000, 2000, 0, -1000] * 4
    ends = [1_000_000 * n + phase_us + late for n, late in enumerate(jitter, 1)]
    found = []
    for until in range(1_000_000, 30_000_000, 1_000_000):
        arrived = [end for end in ends if end <= until + 300_000]
        ends = ends[len(arrived) :]
        given_host._waiting.extend(part(mono_us=end) for end in arrived)
        found.append(len(given_host.taken(until, 200_000)))
    assert set(found[2:-2]) == {1}


class FakeConnection:
    """A host's lines without a host; it ends after them. Commands are kept, a clock command is answered."""

    def __init__(self, *lines: bytes, answers: bool = True) -> None:
        self.lines, self.sent, self._answers = list(lines), [], answers

    def send(self, data: bytes) -> None:
        self.sent.append(data)
        if self._answers and b'"clock"' in data:
            sent_us = json.loads(data)["clock"]
            self.lines.insert(0, to_line({"type": "clock", "n": sent_us, "mono": sent_us, "wall": time.time()}))

    async def line(self, _within_s: float) -> bytes:
        if not self.lines:
            raise HostError("the lines have ended")
        return self.lines.pop(0)


def to_line(value) -> bytes:
    return codec.to_bytes(value).rstrip(b"\n")


HEADER = to_line(codec.encode_origin(Origin("bpftrace", "a", "Linux 6.1", "1")))


async def followed(connection, label="a"):
    """Return a host that has read all lines of its connection."""
    given_host = Host(label, label, Options(), ("ssh",))
    given_host._connection = connection
    with pytest.raises(HostError, match="the lines have ended"):
        await given_host._follow_latmon(connection)
    return given_host


def waiting(one):
    return [found.frame for found in one._waiting]


async def test_idle_devices_of_a_host_keep_their_rows():
    rows = IdleRows.of([Device("sda", 8, 0), Device("sdb", 8, 16)], ("read",), has_queued=True)
    kernel = WithIdle({Flow("sda", "read"): Completed(1, 4096, 10)}, rows.kernel)
    gauges = WithIdle({"sda": Outstanding(1, 0)}, rows.outstanding)
    depths = WithIdle({"sda": Depths({1: 1000})}, rows.depths(1_000_000))
    frame = Frame(1, 100.0, 5_000_000, 1_000_000, kernel=kernel, outstanding=gauges, depths=depths)
    frame = replace(frame, devices=(Device("sda", 8, 0), Device("sdb", 8, 16)))
    line = to_line(codec.IdleWriter().encode(frame))
    assert b"idle" in line
    given_host = await followed(FakeConnection(HEADER, line))
    actual_frame = decoded(merged(*given_host._waiting))
    assert actual_frame.kernel.keys() == {Flow("a:sda", "read"), Flow("a:sdb", "read")}
    assert actual_frame.outstanding.keys() == actual_frame.depths.keys() == {"a:sda", "a:sdb"}
    assert actual_frame.outstanding["a:sdb"] == Outstanding(0, 0)


def test_times_before_this_hosts_boot_can_be_read():
    waits = (Wait("resume", "kworker", 7, 120, 3_000_000, 10),)
    outlier = Outlier(wall=3.0, mono_us=4_500_000, device="sda", op="read", total_us=200_000, waits=waits)
    stuck = InFlightList((InFlight("sda", "read", 1_000_000),), {1: 1}, since_us=1, at_us=2)
    values = {"outliers": (outlier,), "in_flight": stuck, "issues": {"sda": (Issue(1, 0, 512, "read", 1),)}}
    frame = decoded(merged(part(shift_us=-(10**12), **values)))
    assert frame.outliers[0].mono_us == frame.in_flight.oldest[0].began_us == frame.issues["a:sda"][0].mono_us == 0


def test_cgroups_with_long_paths_leave_no_host_out():
    paths = [f"/{at}/{'x' * 252}{at % 2}" for at in range(3)]
    issuers = {Issuer("sda", "read", path): IssuedIO(1, 512) for path in paths}
    limits = (CgroupLimit(paths[0], "sda", "read", 5, None, 1, 512),)
    behind = {Behind("sda", paths[0], path): 9 for path in paths}
    host_frames = [
        part("a" * 24, cgroup_limits=limits, tables={measurements.ISSUERS: issuers, measurements.BEHIND: behind})
    ]
    frame = decoded(merged(*host_frames))
    assert sorted(done.count for done in frame[measurements.ISSUERS].values()) == [1, 2], "two have the same end"
    assert sum(frame[measurements.BEHIND].values()) == 27
    names = {cgroup_limit.cgroup for cgroup_limit in (*frame[measurements.ISSUERS], *frame.cgroup_limits)}
    assert {(len(name), name[:26]) for name in names} == {(256, "a" * 24 + ":…")}


def test_a_host_whose_frame_no_reader_takes_is_left_out_and_named():
    much = {"kernel": {Flow("sda", "read"): Completed(2**62, 0, 0)}}
    long_name = "x" * 255
    wide = part("b", tables={HANDLERS: {Handler(1, long_name): HandlerRuns(Histogram.record([5]))}})
    frame, refused = merged_or_refused(part("a", **much), wide, part("c", **much), part("a", **much))
    assert refused.keys() == {"a", "b"}
    assert decoded(frame).kernel.keys() == {Flow("c:sda", "read")}
    disk = Device("sda", 8, 0, members=("sdb",), limits=(Limit("nr_requests", 64, "queue/nr_requests"),))
    assert merged(part(devices=(disk,)))


def test_losses_of_all_hosts_are_at_most_what_a_reader_takes():
    lost = Health(lost_events=2**62)
    assert decoded(merged(part("a", health=lost), part("b", health=lost))).health.lost_events == 2**63 - 1


def test_hosts_beyond_the_most_rows_of_a_frame_are_left_out_and_named(monkeypatch):
    monkeypatch.setattr(merge, "MAX_ITEMS", 2)
    two = {"outstanding": {"sda": Outstanding(0, 0), "sdb": Outstanding(0, 0)}}
    frame, refused = merged_or_refused(part("a", **two), part("b", **two))
    assert frame.outstanding.keys() == {"a:sda", "a:sdb"}
    assert "--device," in refused["b"]
    assert list(refused) == ["b"]


def test_hosts_beyond_the_longest_line_of_a_frame_are_left_out_and_named(monkeypatch):
    monkeypatch.setattr(merge, "MAX_LINE", 2_000)
    some = {"outstanding": {f"sd{at}": Outstanding(at, at) for at in range(30)}}
    frame, refused = merged_or_refused(part("a", **some), part("b", **some), part("c", **some), part("d", **some))
    assert len(codec.to_bytes(codec.encode_frame(frame))) <= 2_000
    assert list(refused) == ["d"]
    assert "--device," in refused["d"]


async def test_a_lost_answer_about_the_clock_is_asked_for_again(monkeypatch):
    """A host whose answer came too late stayed without rows for ever."""
    now = [100.0]
    connection = FakeConnection(HEADER, *(window(number) for number in range(1, 4)), answers=False)
    given_host = Host("a", "a", Options(), ("ssh",), clock=lambda: now.__setitem__(0, now[0] + 2.0) or now[0])
    given_host._connection = connection
    with pytest.raises(HostError, match="the lines have ended"):
        await given_host._follow_latmon(connection)
    assert not waiting(given_host)
    questions = [json.loads(line) for line in connection.sent]
    assert len(questions) == 2
    now_us = time.monotonic_ns() // 1000
    monkeypatch.setattr(host, "CUT_S", 1e9)
    given_host._measured(questions[1]["clock"], now_us, time.time())
    assert [frame.seq for frame in waiting(given_host)] == [1, 2, 3]


def test_an_offset_is_replaced_by_a_better_one_and_after_a_jump():
    now = [0.0]
    given_host = Host("a", "a", Options(), ("ssh",), clock=lambda: now[0])

    def measured(offset_us, took_us):
        """Take an answer that came after so long, by a clock that lacks so much to ours."""
        now_us = time.monotonic_ns() // 1000
        given_host._measured(now_us - took_us, now_us - took_us // 2 - offset_us, time.time())
        return given_host._offset.mono_us

    near = pytest.approx(7_000_000, abs=50_000)
    assert measured(7_000_000, 200_000) == near
    assert measured(6_000_000, 6_000_000) == near  # by 3 s either way: no better, and no contradiction
    assert measured(7_010_000, 100_000) == pytest.approx(7_010_000, abs=5_000)
    assert measured(1_000_000, 300_000) == pytest.approx(1_000_000, abs=50_000)  # the host was suspended
    now[0] = 3600.0
    assert measured(1_300_000, 500_000) == pytest.approx(1_300_000, abs=50_000)  # the clocks have drifted since


@pytest.mark.parametrize("answer", [{"wall": 1e300}, {"mono": -1}, {"mono": 2**62}, {"n": "1"}, {"wall": None}])
async def test_a_clock_answer_that_is_no_time_is_refused(answer):
    now_us = time.monotonic_ns() // 1000
    line = to_line({"type": "clock", "n": now_us, "mono": now_us, "wall": time.time()} | answer)
    given_host = await followed(FakeConnection(HEADER, line, line.replace(b"1e+300", b"1e999"), answers=False))
    assert given_host._undecoded == 2
    assert not given_host._is_measured


async def test_a_header_that_cannot_be_read_ends_the_connection():
    given_host = Host("a", "a", Options(), ("ssh",))
    with pytest.raises(HostError, match="header"):
        await given_host._follow_latmon(FakeConnection(to_line({"type": "header", "host": 7})))


async def test_a_host_without_a_frame_is_named_with_why_its_last_line_is_unreadable():
    now = [100.0]
    given_host = Host("a", "a", Options(), ("ssh",), clock=lambda: now[0])
    given_host._connection = FakeConnection(HEADER, to_line({"type": "window", "seq": "x"}))
    with pytest.raises(HostError, match="the lines have ended"):
        await given_host._follow_latmon(given_host._connection)
    now[0] = 110.0
    assert re.fullmatch(r"a: no frame since \S+: its latmon sends what this one can't read: .+", given_host.state)


async def test_the_last_way_of_a_host_is_named_with_why_it_failed(monkeypatch):
    async def nothing(_connection):
        return HostAnswers({"counters": "/proc", "kernel": "Linux 6.1"})

    async def opened(_name, _client):
        return AsyncMock(spec=remote.Connection)

    monkeypatch.setattr(host, "hello", nothing)
    monkeypatch.setattr(host.Connection, "open", opened)
    given_host = Host("a", "a", Options(), ("ssh",))
    given_host._useless = {"counters": "its clock is no number"}
    with pytest.raises(HostError, match=r"^its clock is no number$"):
        await given_host._connected()
    assert not given_host._useless


async def test_a_fault_in_a_connection_is_its_reason_and_it_connects_again(monkeypatch):
    monkeypatch.setattr(host, "PAUSES_S", (0.0,))
    tried, again = [], asyncio.Event()

    async def full(_self):
        tried.append(1)
        if len(tried) > 1:
            again.set()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Host, "_connected", full)
    given_host = Host("a", "a", Options(), ("ssh",))
    task = asyncio.create_task(given_host.run())
    async with asyncio.timeout(PATIENCE_S):
        await again.wait()
    task.cancel()
    assert "No space left" in given_host.state


def test_two_frames_of_a_host_in_an_interval_are_added_and_its_gauges_are_the_last_ones():
    runs = SoftirqRuns(Histogram.record([3, 4, 5]), Histogram.record([4]), {"timer": 3}, {"irq": 3})
    values = {
        "tables": {SOFTIRQS: {SoftirqCpu("BLOCK", 0): runs}},
        "depths": {"sda": Depths({0: 900, 1: 100}, {0: 1000})},
        "issues": {"sda": (Issue(1, 0, 512, "read", 1),)},
        "outstanding": {"sda": Outstanding(1, 0)},
        "in_flight": InFlightList((InFlight("sda", "read", 1_000_000),), {1: 1}),
        "health": Health(probes_attached=3, probes_wanted=4, lost_events=1),
    }
    frame = decoded(merged(part(**values), part("b"), part(**values)))
    (softirq,) = frame[SOFTIRQS].values()
    assert (softirq.delay.count, softirq.run.count, dict(softirq.ran_in)) == (6, 2, {"timer": 6})
    assert dict(frame.depths["a:sda"].in_driver) == {0: 1800, 1: 200}
    assert len(frame.issues["a:sda"]) == 2
    assert len(frame.in_flight.oldest) == frame.in_flight.older[1] == 1
    assert (frame.health.probes_attached, frame.health.probes_wanted, frame.health.lost_events) == (3, 4, 2)


def test_gaps_notices_task_queues_and_marks_of_hosts_are_in_the_frame():
    queue = Taskq("sd_taskq", 0, 8, 60, 1, 0, 2, 3)
    values = {"gap": "probe-restart", "taskqs": (queue,), "marks": (Mark("before", 4_500_000, 99.5),)}
    first = part("a", shift_us=45_000_000, health=Health(notice="the probe is restarted"), **values)
    frame = decoded(merged(first, part("b", health=Health(notice="no BTF"))))
    assert frame.gap == "a: probe-restart"
    assert frame.health.notice == "a: the probe is restarted; b: no BTF"
    assert [taskq.name for taskq in frame.taskqs] == ["a:sd_taskq"]
    (mark,) = frame.marks
    assert (mark.text, mark.mono_us, mark.wall) == ("a: before", 49_500_000, pytest.approx(999.5))


def test_a_device_that_leaves_and_returns_within_an_interval_is_there():
    frame = merged(part(removed=("sda",)), part(devices=(Device("sda", 8, 0),)))
    assert [device.name for device in frame.devices] == ["a:sda"]
    assert not frame.removed


def window(number: int, **values) -> bytes:
    return to_line(codec.encode_frame(Frame(number, 100.0 + number, number * 1_000_000, 1_000_000, **values)))


@pytest.mark.parametrize(
    "values",
    [
        lambda number: {"devices": (Device(f"d{number}", 8, 0),)},
        lambda number: {"outstanding": {f"d{number}": Outstanding(0, 0)}},
        lambda number: {"tables": {measurements.BEHIND: {Behind(f"d{number}", "/a", "/b"): 5}}},
    ],
    ids=["devices", "outstanding", "a declared table"],
)
async def test_a_host_that_names_devices_without_end_is_left(monkeypatch, values):
    monkeypatch.setattr(host, "_MAX_DEVICES", 3)
    lines = [HEADER, *(window(number, **values(number)) for number in range(1, 9))]
    endless = Host("a", "a", Options(), ("ssh",))
    endless._connection = FakeConnection(*lines, answers=False)
    with pytest.raises(HostError, match="it has named more than 3 devices"):
        await endless._follow_latmon(endless._connection)


async def test_frames_before_the_answer_about_the_clock_are_kept_with_their_devices():
    now_us = time.monotonic_ns() // 1000
    answer = to_line({"type": "clock", "n": now_us, "mono": now_us, "wall": time.time()})
    lines = (HEADER, window(1, devices=(Device("sda", 8, 0),)), window(2), answer, window(3))
    given_host = await followed(FakeConnection(*lines, answers=False))
    assert [frame.seq for frame in waiting(given_host)] == [1, 2, 3]
    assert [device.name for device in merged(*given_host._waiting).devices] == ["a:sda"]
    assert {host_frame.shift_us for host_frame in given_host._waiting} == {given_host._offset.mono_us}


async def test_lines_that_cannot_be_read_are_counted_in_the_next_frame():
    given_host = await followed(FakeConnection(HEADER, b"rubbish", window(1), b"{}", b"[]", b"x", window(2), window(3)))
    assert [frame.health.undecoded_lines for frame in waiting(given_host)] == [1, 2, 0]


async def test_a_host_appears_with_one_frame_and_all_its_devices():
    backend = FleetBackend(Options(), ["a"])
    (given_host,) = backend._hosts
    busy = {"kernel": {Flow("sda", "read"): Completed(5, 0, 0)}}
    lines = [window(number, devices=(Device("sda", 8, 0),) if number == 1 else (), **busy) for number in (1, 2, 3)]
    given_host._connection = FakeConnection(HEADER, *lines)
    with pytest.raises(HostError):
        await given_host._follow_latmon(given_host._connection)
    backend._end_us = 2_000_000 + given_host._offset.mono_us
    frame = backend._frame(3_000_000 + given_host._offset.mono_us, late=False)
    assert frame.kernel[Flow("a:sda", "read")].count == 5
    assert [device.name for device in frame.devices] == ["a:sda"]


@pytest.mark.parametrize("name", ["$(reboot)", "sda;reboot", "sd a", "sda`x`", "x" * 200, "../sda"])
async def test_a_device_with_a_name_that_a_shell_would_run_is_left_out_and_named(name):
    values = {
        "kernel": {Flow(one, "read"): Completed(5, 0, 0) for one in (name, "sda")},
        "devices": (Device(name, 8, 0), Device("cciss!c0d0", 8, 16)),
    }
    given_host = await followed(FakeConnection(HEADER, window(1, **values)))
    frame = decoded(merged(*given_host._waiting))
    assert {flow.device for flow in frame.kernel} == {"a:sda"}
    assert [device.name for device in frame.devices] == ["a:cciss!c0d0"]
    assert "is no name of a device" in given_host.news()[0]


def test_selected_devices_of_a_fleet_have_their_rows_alone():
    stuck = InFlightList(tuple(InFlight(name, "read", 1) for name in ("sda", "sdb")), {1: 2})
    limits = tuple(CgroupLimit("/x", name, "read", 1, None, 1, 1) for name in ("sda", "sdb"))
    values = {
        "kernel": {Flow(name, "read"): Completed(5, 0, 0) for name in ("sda", "sdb")},
        "thresholds_us": {"sda": 1000, "sdb": 1000},
        "traced": Traced(one_in=1, paths={"sda": {"irq": 1}, "sdb": {"irq": 1}}),
        "in_flight": stuck,
        "cgroup_limits": limits,
        "tables": {
            measurements.ISSUERS: {Issuer(name, "read", "/web.service"): IssuedIO(1, 512) for name in ("sda", "sdb")},
            HANDLERS: {Handler(1, "ahci"): HandlerRuns(Histogram.record([5]))},
        },
        "removed": ("sda", "sdb"),
    }
    several = [replace(part(label, **values), devices=("sda", "sdb")) for label in ("a", "b")]
    frame = decoded(merged(*(_selected(one, ("a:sda",)) for one in several)))
    assert (
        {flow.device for flow in frame.kernel} == frame.thresholds_us.keys() == frame.traced.paths.keys() == {"a:sda"}
    )
    assert (
        [one.device for one in frame.in_flight.oldest]
        == [cgroup_limit.device for cgroup_limit in frame.cgroup_limits]
        == ["a:sda"]
    )
    assert [(one.device, one.name) for one in frame[measurements.ISSUERS]] == [("a:sda", "a:web.service")]
    assert frame.traced.devices == frame.removed == ("a:sda",)
    assert [at.name for at in frame[HANDLERS]] == ["a:ahci"]
    assert _selected(several[0], ("sd*",)) == several[0]


def test_no_label_has_a_colon_which_separates_it_from_a_device():
    hosts = ["fe80::1%eth0", "[::1]", "ssh://root@[2001:db8::7]:2222", "ssh://a:22", "root@a", "a"]
    labels = remote.labels(hosts)
    assert not [label for label in labels.values() if set(label) & {":", "[", "]"}]
    assert len({*labels.values()}) == len(hosts)
    assert remote.labels(hosts[:2]) == {"fe80::1%eth0": "fe80--1%eth0", "[::1]": "0--1"}


async def test_tracing_is_requested_on_the_host_of_an_address():
    backend = FleetBackend(Options(), ["fe80::1", "fe80::2"])
    for current_host in backend._hosts:
        current_host._connection, current_host._takes_commands = FakeConnection(), True
    backend.request_tracing(("fe80--1:sda", "fe80--1:sdb"))
    first, second = (host._connection.sent for host in backend._hosts)
    assert [json.loads(line) for line in first] == [{"deepen": ["sda", "sdb"]}]
    assert not second


async def test_the_mode_of_tracing_is_that_of_later_connections(monkeypatch):
    given_host = Host("a", "a", Options(), ("ssh",))
    given_host.set_stages("all")
    connection = FakeConnection(b"@hello", b"@latmon /usr/bin/latmon", b"@ready", HEADER)

    async def opened(*_words):
        return connection

    async def closed():
        pass

    connection.close = closed
    monkeypatch.setattr(remote.Connection, "open", opened)
    with pytest.raises(HostError, match="the lines have ended"):
        await given_host._connected()
    (started,) = [line for line in connection.sent if line.startswith(b"latmon ")]
    assert b"--stages all" in started


@pytest.mark.parametrize(
    ("begin", "lines"),
    [
        (("@tick 100.0",), (f"s 8 {at} sda {at} 0 80" for at in range(10**6))),
        (("@facts",), (f"f block/sda/f{at} {'x' * 4096}" for at in range(10**6))),
    ],
)
def test_a_host_that_reports_without_an_end_is_refused(tmp_path, monkeypatch, begin, lines):
    monkeypatch.setattr(host, "_MAX_BYTES", 1 << 20)
    shell_counters = counters(tmp_path)
    taken(shell_counters, *FACTS, *begin)
    with pytest.raises(HostError, match="more devices than any host"):
        any(shell_counters.tree.take(line.encode()) for line in lines)
    assert len(shell_counters.tree._diskstats) < 10**5
    assert len(shell_counters.tree._fresh) < 1000


@pytest.mark.parametrize("line", ["rubbish", "f block/sda/inflight 1 0", "@tick 100.0", "@facts"])
def test_a_host_that_prints_lines_without_the_end_of_a_tick_is_refused(tmp_path, monkeypatch, line):
    monkeypatch.setattr(host, "_MAX_ANSWER", 1000)
    shell_counters = counters(tmp_path)
    taken(shell_counters, *FACTS, *tick(100.0, 10))
    with pytest.raises(HostError, match="without the end of a tick"):
        taken(shell_counters, *[line] * 1001)


@pytest.mark.parametrize("line", [b"rubbish", b"@refused latmon /x", b"@latmon /x"])
async def test_a_shell_that_never_is_ready_is_refused(line):
    with pytest.raises(HostError, match="does not run sh"):
        await remote.hello(FakeConnection(b"@hello", *[line] * 1000))


def test_counts_of_a_device_go_on_where_another_one_comes_or_leaves():
    more = (*FACTS[:-1], "f block/sdb/size 8", "f block/sdb/device/model disk", "@end")
    less = tuple(line for line in FACTS if "model" not in line)
    count, reads = itertools.count(1000, 7), []
    with host.private_directory(os.environ) as root:  # in memory, where no inode is used twice
        shell_counters, disks = counters(Path(root)), Path(root, "sys/block")
        for at, facts in enumerate((FACTS, more, less, more, FACTS)):
            frames = taken(shell_counters, *facts, *tick(100.0 + at, next(count)))
            reads += [frame.kernel[Flow("sda", "read")].count for frame in frames]
            assert (disks / "sdb").exists() == (facts is more)
            assert (disks / "sda/device/model").exists() == (facts is not less)
    assert reads == [7, 7, 7, 7]


def test_a_tick_writes_nothing_but_the_gauges_of_devices(tmp_path):
    shell_counters = counters(tmp_path)
    ticked = (*tick(100.0, 10)[:-1], *(f"f block/sda/queue/x{at} 1" for at in range(9)), "f block/sda/size 9", "@end")
    taken(shell_counters, *FACTS, *ticked)
    assert not list(tmp_path.rglob("x*"))
    assert (tmp_path / "sys/block/sda/size").read_text() == "8"
    assert (tmp_path / "sys/block/sda/inflight").read_text() == "1 0"


def answers(path: Path) -> list[str]:
    """Return what the script reports with this PATH, up to its first request."""
    environ = {"PATH": str(path)}
    run = subprocess.run(["sh"], input=remote._SCRIPT, env=environ, text=True, capture_output=True, check=False)
    return [line for line in run.stdout.splitlines() if line.startswith(("@latmon ", "@refused latmon "))]


def tool_answers(path: str, *before: str) -> dict[str, str]:
    """Return what the script reports about a host's bpftrace; `before`: words that start its shell."""
    text, shell = f"{remote._SCRIPT}tool\n", [*before, shutil.which("sh")]
    run = subprocess.run(shell, input=text, env={"PATH": path}, text=True, capture_output=True, check=False)
    return dict(line[1:].partition(" ")[::2] for line in run.stdout.splitlines() if line.startswith("@"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can read /proc/timer_list")
def test_the_script_reports_what_decides_how_a_bpftrace_measures(tmp_path):
    path = probed(tmp_path / "1", "exit")
    facts = tool_answers(path)
    assert (facts["bpftrace"], facts["version"]) == (f"{path}/bpftrace", "bpftrace v0.23.2")
    assert int(facts["cpus"]) >= os.cpu_count()
    ahead_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    assert abs(int(facts["ahead"]) / 1e9 - ahead_s) < 0.1
    assert facts.get("boottime", "0 0") == "0 0"
    types = Path("/sys/kernel/btf/vmlinux")
    assert ("io_start_time_ns" in facts["types"].split()) == (
        types.exists() and b"\0io_start_time_ns\0" in types.read_bytes()
    )


@needs_time_namespace
def test_the_script_reports_what_its_time_namespace_adds(tmp_path):
    facts = tool_answers(probed(tmp_path / "1", "exit"), *AHEAD)
    assert facts["boottime"] == f"{BOOTTIME_S} 0"
    assert int(facts["ahead"]) / 1e9 < BOOTTIME_S - MONOTONIC_S  # the kernel's clocks


@pytest.mark.parametrize(
    ("reported", "offset_us"),
    [
        ({}, 0),
        ({"boottime": "0 0"}, 0),
        ({"boottime": "90007 250000000"}, 90_007_250_000),
        ({"boottime": "-300 500000000"}, -299_500_000),
        ({"boottime": "9 x"}, 0),
    ],
)
def test_clocks_of_probes_are_without_the_offset_of_their_hosts_shell(reported, offset_us):
    assert host._probe_clocks(reported, 5_000_000) == {"monotonic": -offset_us, "boottime": 5_000_000 - offset_us}


def host_tools(root: Path) -> Path:
    (root / "above").mkdir(parents=True)
    return Path(tools_in(root / "above/bin", latmon=""))


def test_a_program_that_only_its_user_can_change_is_run(tmp_path):
    path = host_tools(tmp_path)
    assert answers(path) == [f"@latmon {path}/latmon"]
    (path / "latmon").rename(tmp_path / "above/real")
    (path / "latmon").symlink_to("../above2/real")
    (tmp_path / "above2").symlink_to("above")
    (path / "latmon").unlink()
    (path / "latmon").symlink_to("../../above2/real")
    assert answers(path) == [f"@latmon {path}/latmon"]


@pytest.mark.parametrize(
    ("name", "mode"), [("latmon", 0o757), ("", 0o757), ("..", 0o757), ("latmon", 0o775), ("", 0o775), ("..", 0o775)]
)
def test_a_program_that_another_user_or_a_group_can_change_is_refused(tmp_path, name, mode):
    path = host_tools(tmp_path)
    place = path / name
    if mode == 0o775:
        if os.geteuid():
            pytest.skip("only root can give a file to any group")
        os.chown(place, -1, 12345)
    place.chmod(mode)
    assert answers(path) == [f"@refused latmon {path}/latmon: another user can change it"]


def test_a_link_to_a_program_below_a_directory_of_others_is_refused(tmp_path):
    path, other = host_tools(tmp_path / "1"), host_tools(tmp_path / "2")
    (path / "latmon").unlink()
    (path / "latmon").symlink_to(other / "latmon")
    assert answers(path) == [f"@latmon {path}/latmon"]
    other.parent.chmod(0o777)
    assert answers(path) == [f"@refused latmon {path}/latmon: another user can change it"]
    other.parent.chmod(0o1777)
    assert answers(path) == [f"@latmon {path}/latmon"]


def test_a_host_whose_frame_was_left_out_returns_with_all_its_devices():
    backend = FleetBackend(Options(), ["a"])
    (given_host,) = backend._hosts
    given_host.origin = Origin("bpftrace", "a", "", "1")
    long_name = {"tables": {HANDLERS: {Handler(1, "x" * 255): HandlerRuns(Histogram.record([5]))}}}
    frames = []
    for end, values in enumerate(({"devices": (Device("sda", 8, 0),)}, long_name, {}), 1):
        given_host._take(Frame(end, 100.0, end * 1_000_000, 1_000_000, **values), 0)
        backend._end_us = (end - 1) * 1_000_000
        frames.append(backend._frame(end * 1_000_000, late=False))
    assert [[device.name for device in frame.devices] for frame in frames] == [["a:sda"], [], ["a:sda"]]
    assert [frame.removed for frame in frames] == [(), ("a:sda",), ()]
    assert "its frame is left out" in frames[1].health.notice


def test_an_interval_without_a_frame_of_a_host_has_its_state_and_none_of_its_counts():
    """On a crowded host the screen said `stages off` and `no probe` in every other interval."""
    backend = FleetBackend(Options(), ["a"])
    (given_host,) = backend._hosts
    given_host.origin = Origin("bpftrace", "a", "", "1")
    values = {
        "devices": (Device("sda", 8, 0),),
        "kernel": {Flow("sda", "read"): Completed(5, 0, 0)},
        "thresholds_us": {"sda": 1000},
        "traced": Traced(one_in=2, devices=("sda",), paths={"sda": {"irq": 3}}),
        "health": Health(probes_attached=3, probes_wanted=4, lost_events=1),
    }
    given_host._take(Frame(1, 100.0, 1_000_000, 1_000_000, **values), 0)
    frames = [decoded(backend._frame(end, late=False)) for end in (1_000_000, 2_000_000)]
    assert [sum(done.count for done in frame.kernel.values()) for frame in frames] == [5, 0]
    assert [(frame.traced.one_in, frame.traced.devices) for frame in frames] == [(2, ("a:sda",))] * 2
    assert [dict(frame.traced.paths) for frame in frames] == [{"a:sda": {"irq": 3}}, {}]
    assert [frame.health.probes_attached for frame in frames] == [3, 3]
    assert [frame.health.lost_events for frame in frames] == [1, 0]
    assert frames[1].thresholds_us == {"a:sda": 1000}
    assert not frames[1].devices
    assert not frames[1].removed
    given_host._last -= 60  # it is silent
    assert backend._frame(3_000_000, late=False).removed == ("a:sda",)


def test_the_tree_of_a_latmon_that_was_killed_is_removed_by_the_next_one(tmp_path):
    ended = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout.strip()
    dead, other = tmp_path / f"latmon-fleet-{ended}-x", tmp_path / "latmon-fleet-notes"
    alive = tmp_path / f"latmon-fleet-{os.getpid()}-x"
    for one in (dead, other, alive):
        (one / "sys").mkdir(parents=True)
    with host.private_directory({"XDG_RUNTIME_DIR": str(tmp_path)}) as private_directory:
        assert Path(private_directory).parent == tmp_path
        assert not dead.exists()
    assert {path.name for path in tmp_path.iterdir()} == {other.name, alive.name}
