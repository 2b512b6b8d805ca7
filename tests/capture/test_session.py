"""The UI's side of a real collector process, and of ones that misbehave."""

import asyncio
import json
import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from latmon.capture.backend import Options
from latmon.capture.registry import Request
from latmon.capture.session import (
    MAX_COMMAND,
    READ_SETTINGS,
    SCREEN_COMMANDS,
    TOGGLE,
    Session,
    mark_command,
    stages_command,
    until_signal,
)
from latmon.recording.reader import open_recording
from latmon.support.errors import EXIT_DONE, EXIT_FAILED, EXIT_UNAVAILABLE, LatmonError, UnavailableError
from latmon_backends.demo.backend import INCIDENTS

DEMO = Request(backend="demo", scenario="serialised", commands=SCREEN_COMMANDS)
"""A window of it takes a tenth of the time of the default host's, and a collector begins with ninety at once."""
PATIENCE_S = 60
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def session(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    sessions = []

    def start(request=DEMO, script=None):
        command = {} if script is None else {"command": (sys.executable, "-c", script)}
        sessions.append(Session(request, **command))
        return sessions[-1]

    yield start
    for session in sessions:
        session.close()


async def take(feed, count):
    frames = []
    async for frame in feed.frames():
        frames.append(frame)
        if len(frames) == count:
            break
    return frames


async def test_frames_of_a_real_collector(session):
    running = session()
    async with running.feed as feed:
        assert feed.origin.backend == "demo"
        frames = await take(feed, 5)
    assert [frame.seq for frame in frames] == [0, 1, 2, 3, 4]
    assert frames[0].devices == INCIDENTS[DEMO.scenario].host().devices
    assert frames[1].health.self_cpu_percent is not None
    assert running.close() == EXIT_DONE


async def test_origin_is_not_known_before_it_is_open(session):
    with pytest.raises(LatmonError, match="not opened its backend yet"):
        _ = session().feed.origin


async def test_the_collector_leaves_with_its_reader(session, monkeypatch):
    monkeypatch.setattr("latmon.capture.session.LEAVE_S", PATIENCE_S)
    running = session()
    async with running.feed as feed:
        await take(feed, 1)
    assert running.close() == EXIT_DONE
    assert not os.path.exists(f"/proc/{running.pid}")  # noqa: ASYNC240, PTH110 - /proc does not wait


async def test_a_collector_that_is_left_at_once_leaves_too(session, monkeypatch):
    """By itself: the kill would come after half of PATIENCE_S and make an exit code of its own."""
    monkeypatch.setattr("latmon.capture.session.LEAVE_S", PATIENCE_S)
    running = session()
    assert running.close() != EXIT_FAILED


async def test_the_collector_is_in_a_group_of_its_own_and_without_our_input(session):
    running = session()
    async with running.feed as feed:
        await take(feed, 1)
        assert os.getpgid(running.pid) == running.pid
        assert os.getsid(running.pid) == os.getsid(0)
        assert os.readlink(f"/proc/{running.pid}/fd/0") == "/dev/null"  # noqa: PTH115 - the same


async def test_the_key_records_and_health_says_so(session, tmp_path):
    running = session()
    async with running.feed as feed:
        await take(feed, 1)
        running.toggle_recording()
        async for frame in feed.frames():
            if frame.health.recording:
                break
        running.toggle_recording()
        async for after in feed.frames():
            if after.health.recording != frame.health.recording:  # ended, or the disk takes longer
                break
    running.close()
    (path,) = tmp_path.glob(f"{feed.origin.host}-*.latmon.jsonl.gz")
    assert path.name == frame.health.recording
    recording = open_recording(path)
    assert len(list(recording)) >= 2
    if "did not answer" not in after.health.recording:
        assert recording.damage == []


async def test_commands_reach_the_capture_in_their_order(session):
    """The other end here is a script that answers with what it was sent."""
    text = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1])); lines = s.makefile(); lines.readline(); "
    running = session(script=text + "sys.exit(''.join(lines.readline() for _ in range(3)).replace(chr(10), ' '))")
    running.set_stages("all")
    running.request_tracing(("sda", "nvme0n1"))
    running.request_tracing((), files=True)
    assert '{"stages":"all"} {"deepen":["sda","nvme0n1"]} {"deepen":[],"files":true}' in running.failure_reason()


async def test_a_capture_goes_on_whatever_it_is_reported(session):
    running = session()
    async with running.feed as feed:
        for tell in (
            lambda: running.set_stages("all"),
            lambda: running.request_tracing(("x",)),
        ):
            tell()
            assert await take(feed, 1)
    assert running.close() == EXIT_DONE


async def refused(running, command):
    """Send a command to a collector that measures; return how it ended."""
    async with running.feed as feed:
        await take(feed, 1)
        await asyncio.get_running_loop().sock_sendall(running._socket, command)
        with pytest.raises(LatmonError) as ended:
            await take(feed, 1_000_000)
    assert running.close() == EXIT_FAILED
    return str(ended.value)


@pytest.mark.parametrize("command", [TOGGLE, READ_SETTINGS, mark_command("x"), stages_command("all"), b'{"clock":1}\n'])
async def test_a_command_that_the_request_does_not_name_ends_the_capture(session, tmp_path, command):
    """As of an exporter, whose process without rights answers clients, beside a collector that stays root."""
    running = session(replace(DEMO, commands=()))
    name = next(iter(json.loads(command)))
    assert f"refuses: the command '{name}', which this capture does not take" in await refused(running, command)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (b"record\n", "a line that is no command"),
        (b"[" * 10_000 + b"\n", "a line that is no command"),
        (b"{}\n", "a line that is no command"),
        (b"[1]\n", "a line that is no command"),
        (b'{"record":"/etc/x"}\n', "the command 'record' with a value"),
        (b'{"stages":"?","record":"toggle"}\n', "the command 'stages' with a value"),
        (b'{"stages":["all"]}\n', "the command 'stages' with a value"),
        (b'{"deepen":[7]}\n', "the command 'deepen' with a value"),
        (b'{"mark":"x","span":[1]}\n', "the command 'mark' with a span"),
        (b'{"\\u001b[2J":1}\n', "the command '"),
        (b"x" * (MAX_COMMAND + 1), "a line of the feed is longer"),
    ],
)
async def test_a_command_that_latmon_does_not_send_ends_the_capture(session, command, reason):
    ended = await refused(session(), command)
    assert reason in ended
    assert ended.isprintable()


async def test_a_backend_that_cannot_open_is_reported_in_its_own_words(session, monkeypatch):
    monkeypatch.setenv("LATMON_BPFTRACE", "/nonexistent/bpftrace")
    running = session(Request(backend="bpftrace"))
    with pytest.raises(UnavailableError, match="bpftrace"):
        async with running.feed:
            pass
    assert running.close() == EXIT_UNAVAILABLE


async def test_auto_is_never_without_a_backend_and_says_why_it_is_a_lesser_one(session, monkeypatch):
    monkeypatch.setenv("LATMON_BPFTRACE", "/nonexistent/bpftrace")
    async with session(Request(options=Options(interval_us=100_000))).feed as feed:
        assert feed.origin.backend == "procfs"
        assert "/nonexistent/bpftrace" in feed.origin.reason
        assert await take(feed, 1)


async def test_a_target_that_is_there_is_exit_3(session, tmp_path):
    (tmp_path / "x").write_text("precious")
    running = session(replace(DEMO, record=tmp_path / "x"))
    with pytest.raises(UnavailableError, match="never overwritten"):
        async with running.feed:
            pass
    assert running.close() == EXIT_UNAVAILABLE


async def test_a_duration_is_the_end_of_the_stream_and_says_so(session, tmp_path):
    running = session(replace(DEMO, record=tmp_path / "x", duration_us=500_000))
    async with running.feed as feed:
        with pytest.raises(LatmonError, match="ended after 500ms as asked"):
            await take(feed, 1000)
        assert feed.exit == EXIT_DONE
    assert running.close() == EXIT_DONE


async def test_a_killed_collector_is_reported_as_killed(session):
    running = session()
    async with running.feed as feed:
        await take(feed, 1)
        os.kill(running.pid, signal.SIGKILL)
        with pytest.raises(LatmonError, match=r"^the collector was killed by SIGKILL$"):
            await take(feed, 1000)
    assert running.close() == EXIT_FAILED


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGINT, signal.SIGHUP))]
)
async def test_a_collector_that_is_ended_says_by_what(session, number):
    running = session()
    async with running.feed as feed:
        await take(feed, 1)
        os.kill(running.pid, number)
        with pytest.raises(LatmonError, match=f"ended by {number.name}"):
            await take(feed, 1000)
    assert running.close() == EXIT_DONE


async def test_a_crash_shows_its_last_sentence_only(session):
    running = session(
        script="import sys; print('x' * 100_000, file=sys.stderr); raise RuntimeError('no \\x1b[31m luck')"
    )
    with pytest.raises(LatmonError, match=r"^the collector failed: RuntimeError: no \\x1b\[31m luck$"):
        async with running.feed:
            pass
    assert running.close() == EXIT_FAILED


async def test_a_collector_that_says_nothing(session):
    with pytest.raises(LatmonError, match=r"^the collector failed: it printed no reason$"):
        async with session(script="").feed:
            pass


async def test_a_collector_that_does_not_leave_is_made_to(session, monkeypatch, tmp_path):
    monkeypatch.setattr("latmon.capture.session.LEAVE_S", 0.3)
    ignoring = tmp_path / "ignoring"
    script = "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    script += f"; pathlib.Path({str(ignoring)!r}).touch(); time.sleep(600)"
    running = session(script=script)
    async with asyncio.timeout(PATIENCE_S):
        while not ignoring.exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.02)
    assert running.close() == EXIT_FAILED


async def test_lines_of_any_length(session):
    big = 5_000_000
    script = f"""
import socket, sys
feed = socket.socket(fileno=int(sys.argv[1]))
feed.sendall(b'{{"type":"end","reason":"' + b"x" * {big} + b'","exit":3}}\\n')
"""
    with pytest.raises(UnavailableError, match=r"^x+…$"):
        async with session(script=script).feed:
            pass


async def test_a_module_in_the_current_directory_does_not_pass_for_ours(session, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('foreign')")
    running = session()
    async with running.feed as feed:
        assert await take(feed, 1)


def test_the_screen_alone_sends_commands():
    """What another module sends is refused, unless its request names it."""
    uses = r"\b(?:session|running)\.(toggle_recording|set_stages|request_tracing|mark|read_settings)\b"
    used = {path.name for path in (ROOT / "latmon").rglob("*.py") if re.search(uses, path.read_text())}
    assert used == {"app.py"}
    assert Request().commands == ()


def test_the_key_after_the_end_is_harmless(session):
    running = session()
    running.close()
    running.toggle_recording()


async def service(after=None):
    """Get a signal, and raise the error after it."""
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(PATIENCE_S)
    finally:
        if after is not None:
            raise after


async def test_a_signal_ends_a_service():
    assert await until_signal(service()) == "SIGTERM"


async def test_an_error_of_a_services_cleanup_after_a_signal_is_raised():
    with pytest.raises(UnavailableError, match="the disk is full"):
        await until_signal(service(UnavailableError("the disk is full")))


async def test_an_error_of_a_service_is_raised():
    async def failing():
        raise UnavailableError("no data")

    with pytest.raises(UnavailableError, match="no data"):
        await until_signal(failing())
