"""The root helper: what it starts and what it refuses. Its tool is a shell script."""

import asyncio
import contextlib
import errno
import json
import os
import re
import select
import socket
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import ClassVar

import pytest
from hostile import mutated

from latmon.manifest import load
from latmon.support.paths import data_dir
from latmon_backends.bpftrace.probe import BpftraceProbe
from latmon_backends.bpftrace.program import BpftraceProgram, BpftraceTool
from latmon_backends.dtrace import probe as dtrace_probe
from latmon_backends.dtrace import program as dtrace_program
from latmon_backends.dtrace.probe import NumberedNames
from latmon_backends.probe import launcher as probe_launcher
from latmon_backends.probe.launcher import MAX_MESSAGE, STARTER, RootLauncher, Script
from latmon_backends.probe.process import RefusedError
from latmon_backends.root_helper import MAX_CHILDREN, MalformedError, Starter

BLOCK_C = load(data_dir("probes") / "linux/block_c.yaml")
VALUES = {"step_ms": 200, "gate_ns": 900_000_000, "threshold_us": 0}
READY = """echo '{"type": "printf", "data": "ready block_c 1"}'"""
LIVES = f"{READY}; trap 'echo over; exit 3' TERM; while :; do sleep 0.05; done"


def tool(tmp_path, lines):
    path = tmp_path / "bpftrace"
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return BpftraceTool(str(path), sudo=False, mount_tracefs=False, map_keys=8192)


def program(**values):
    return BpftraceProgram((Script(BLOCK_C, VALUES | values),), 4096)


@pytest.fixture
async def launcher(tmp_path):
    """Makes one whose tool is these lines of shell."""
    made = []

    def make(lines=LIVES, known=1):
        made.append(RootLauncher(tool(tmp_path, lines), known))
        return made[-1]

    yield make
    for root_launcher in made:
        await root_launcher.close()


async def gone(pid, seconds=30.0):
    """The limit is 2 s on a host that does nothing else."""
    until = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:  # noqa: ASYNC110, ASYNC240 - /proc raises no event
        await asyncio.sleep(0.02)
    return not Path(f"/proc/{pid}").exists()  # noqa: ASYNC240 - the same


async def test_a_probe_started_by_it_is_a_probe_like_any_other(launcher):
    probe = await BpftraceProbe.start(launcher(), program())
    assert Path(f"/proc/{probe.pid}/stat").read_text().split()[3] != str(os.getpid())  # noqa: ASYNC240 - /proc does not wait
    probe.end()
    async with asyncio.timeout(30):
        assert await probe._child.returncode() == 3
        await probe.stop()


async def test_an_answer_that_came_while_we_were_stopped_is_one(launcher, monkeypatch):
    """Longer than it may take: the process that kept root is not given up."""
    given_launcher = launcher()
    await given_launcher.totals(os.getpid())
    monkeypatch.setattr(probe_launcher, "_ANSWER_S", 0.2)

    def stopped():
        assert select.select([given_launcher._socket], [], [], 60)[0], "no answer within 60 s"
        time.sleep(0.4)

    asyncio.get_running_loop().call_soon(stopped)
    await given_launcher.totals(os.getpid())
    assert not given_launcher._gone


async def test_a_refusal_is_reported(launcher):
    with pytest.raises(RefusedError, match="out of luck"):
        await BpftraceProbe.start(launcher("echo 'ERROR: out of luck' >&2; exit 1"), program())


async def test_what_is_run_is_the_manifests_program(launcher, tmp_path):
    keep = f"""for word; do :; done; printf '%s' "$word" > {tmp_path}/program"""
    with pytest.raises(RefusedError):
        await BpftraceProbe.start(launcher(keep), program(step_ms=123))
    assert (tmp_path / "program").read_text() == program(step_ms=123).text()


async def test_dtrace_is_started_with_d_scripts_alone(tmp_path):
    path = tmp_path / "dtrace"
    path.write_text("#!/bin/sh\necho '@@ ready io_d 1'\nexec sleep 60\n")
    path.chmod(0o755)
    root_launcher = RootLauncher(dtrace_program.DtraceTool(str(path), "linux"), 1)
    values = {"step_ms": 100, "gate_ns": 900_000_000, "threshold_us": 0}
    scripts = (next(dtrace_program.fillings(load(data_dir("probes") / "dtrace/io_d.yaml"), values)),)
    probe = await dtrace_probe.DtraceProbe.start(root_launcher, dtrace_program.DtraceProgram(scripts), NumberedNames())
    await probe.stop()
    with pytest.raises(OSError, match="root helper has ended"):
        await root_launcher.launch(program())
    await root_launcher.close()


async def test_devices_are_traced_by_its_own_children_alone(launcher, monkeypatch):
    """It asks in parts, because a message has an end."""
    monkeypatch.setattr(probe_launcher, "MAX_CHANGES", 2)
    given_launcher = launcher(known=os.getpid())
    asked = []
    monkeypatch.setattr(given_launcher, "_ask", ask := record_of(given_launcher._ask, asked))
    assert not await given_launcher.trace_devices(1, {8: True, 9: False, 10: True})  # a process that isn't its child
    assert asked == [{"trace": [1, [[8, True], [9, False]]]}, {"trace": [1, [[10, True]]]}]
    assert (await ask({"stats": False}))[0] == {"stats": False}, "it has answered and goes on"


def test_a_process_that_it_did_not_start_is_not_written_to(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(probe_launcher, "trace_devices", lambda pid, *_: not written.append(pid))
    starter = Starter(tool(tmp_path, LIVES), 4711, {"block_c": BLOCK_C})
    starter.children[4712] = None
    found = [starter.answer({"trace": [pid, [[8, True]]]})[0] for pid in (1, 4711, 4712)]
    assert (found, written) == ([{"traced": False}, {"traced": False}, {"traced": True}], [4712])
    assert starter.answer({"trace": [4712, [[probe_launcher.SAMPLE, 3]]]})[0] == {"traced": True}
    for wrong in (-1, 1024, True):
        with pytest.raises(MalformedError):
            starter.answer({"trace": [4712, [[probe_launcher.SAMPLE, wrong]]]})


def record_of(ask, asked):
    async def record(request):
        asked.append(request)
        return await ask(request)

    return record


async def test_counters_of_its_own_children_and_of_nobody_else(launcher):
    given_launcher = launcher(known=os.getpid())
    assert (await given_launcher.totals(os.getpid())).skipped is None  # readable, and no tool of ours
    assert (await given_launcher.totals(1)).skipped is None
    probe = await BpftraceProbe.start(given_launcher, program())
    assert (await given_launcher.totals(probe.pid)).run_ns is None
    await probe.stop()
    assert (await given_launcher.totals(probe.pid)).run_ns is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have run times counted")
async def test_run_times_are_counted_as_long_as_asked(launcher):
    given_launcher = launcher()
    assert await given_launcher.count_time(on=True) in (True, False)
    assert await given_launcher.count_time(on=False) is False


async def test_several_at_a_time_but_not_any_number(launcher):
    given_launcher = launcher()
    probes = [await BpftraceProbe.start(given_launcher, program()) for _ in range(MAX_CHILDREN)]
    with pytest.raises(OSError, match="run already"):
        await given_launcher.launch(program())
    await asyncio.gather(*(probe.stop() for probe in probes))
    probe = await BpftraceProbe.start(given_launcher, program())
    await probe.stop()


async def test_it_and_its_probes_end_with_latmon(tmp_path):
    """A latmon that is killed closes nothing itself."""
    code = f"""
import asyncio, os
from latmon.manifest import load
from latmon.support.paths import data_dir
from latmon_backends.bpftrace.probe import BpftraceProbe
from latmon_backends.bpftrace.program import BpftraceProgram, BpftraceTool
from latmon_backends.probe.launcher import RootLauncher, Script
block_c = load(data_dir("probes") / "linux/block_c.yaml")
program = BpftraceProgram((Script(block_c, {VALUES}),), 4096)
async def main():
    one = RootLauncher(BpftraceTool(**{asdict(tool(tmp_path, LIVES))}), 1)
    probe = await BpftraceProbe.start(one, program)
    print(one._process.pid, probe.pid, flush=True)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    path = os.pathsep.join(sys.path)
    killed = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code), env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE
    )
    starter, probe = map(int, (await killed.communicate())[0].split())
    assert await gone(starter)
    assert await gone(probe)


async def test_when_it_is_gone_nothing_can_be_had_and_nothing_hangs(launcher):
    given_launcher = launcher()
    probe = await BpftraceProbe.start(given_launcher, program())
    given_launcher._process.kill()
    given_launcher._process.wait()
    with pytest.raises(OSError, match="root helper has ended"):
        await given_launcher.launch(program())
    assert (await given_launcher.totals(probe.pid)).skipped is None
    assert await given_launcher.count_time(on=True) is False
    await asyncio.wait_for(probe.stop(), 30)


# What it does not


@contextlib.contextmanager
def starter(tmp_path):
    """The process and a socket to it, for messages that ours never sends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    named = json.dumps(["bpftrace", asdict(tool(tmp_path, f"touch {tmp_path}/ran"))])
    words = [*STARTER, str(theirs.fileno()), named, "1"]
    path = os.pathsep.join(word for word in sys.path if Path(word).is_absolute())
    with subprocess.Popen(words, pass_fds=(theirs.fileno(),), env=os.environ | {"PYTHONPATH": path}) as process:
        theirs.close()
        ours.settimeout(60)
        with ours:
            yield process, ours


START = {"start": {"keys": 4096, "joined": True, "scripts": [["block_c", VALUES]]}}
WRONG = {
    "no json": b"start",
    "deep nesting": b"[" * 10_000,
    "no object": [1],
    "nothing": {},
    "two at once": {"stats": True, "totals": 1},
    "another word": {"run": "id"},
    "a command": {"start": "id"},
    "a script that isn't ours": {"start": {"keys": 4096, "joined": True, "scripts": [["../../tmp/x", VALUES]]}},
    "text in a value": {
        "start": {"keys": 4096, "joined": True, "scripts": [["block_c", VALUES | {"step_ms": '1 { system("id") }'}]]}
    },
    "a value that is too large": {
        "start": {"keys": 4096, "joined": True, "scripts": [["block_c", VALUES | {"step_ms": 10**9}]]}
    },
    "a list in a value": {
        "start": {"keys": 4096, "joined": True, "scripts": [["block_c", VALUES | {"step_ms": [200]}]]}
    },
    "no value": {"start": {"keys": 4096, "joined": True, "scripts": [["block_c", {}]]}},
    "no scripts": {"start": {"keys": 4096, "joined": True, "scripts": []}},
    "too many scripts": {"start": {"keys": 4096, "joined": True, "scripts": [["block_c", VALUES]] * 100}},
    "maps without end": {"start": {"keys": 10**9, "joined": True, "scripts": [["block_c", VALUES]]}},
    "something more": {"start": {"keys": 4096, "joined": True, "scripts": [["block_c", VALUES]], "path": "/bin/sh"}},
    "no number": {"totals": "1"},
    "no bool": {"stats": "yes"},
    "no device": {"trace": [1, [["sda", True]]]},
    "a device out of range": {"trace": [1, [[1 << 32, True]]]},
    "no word on a device": {"trace": [1, [[8388608, 2]]]},
    "too many devices": {"trace": [1, [[8388608, True]] * 10_000]},
    "too long": b'{"stats":true' + b" " * MAX_MESSAGE + b"}",
}


@pytest.mark.parametrize("wrong", [name for name in WRONG if not isinstance(WRONG[name], bytes)])
def test_what_is_not_right_is_not_answered(tmp_path, wrong):
    starter = Starter(tool(tmp_path, f"touch {tmp_path}/ran"), 1, {"block_c": BLOCK_C})
    with pytest.raises(MalformedError):
        starter.answer(json.loads(json.dumps(WRONG[wrong])))
    assert not starter.children


SPLINTERS = (
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"-1", b"1e999", b"NaN", b"9" * 30, b"0.5"),
    *(
        b'"system(\\"id\\")"',
        b'"../../x"',
        b'"start":',
        b'"totals":',
        b'"stats":',
        b'"trace":',
        b'"block_c"',
        b"\\ud800",
    ),
)


class NoProcess:
    """In place of a process that would be started: the text of its program is kept."""

    texts: ClassVar[set[str]] = set()

    def __init__(self, words, **_):
        self.texts.add(words[-1])
        raise OSError(errno.EAGAIN, "no process here")


@pytest.mark.parametrize("count", [3_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_mutated_request_is_answered_or_malformed(tmp_path, monkeypatch, count):
    """No other exception, and what would be started is block_c with numbers in its range."""
    monkeypatch.setattr("latmon_backends.root_helper.subprocess.Popen", NoProcess)
    monkeypatch.setattr("latmon_backends.root_helper.trusted", lambda program: program)
    monkeypatch.setattr(probe_launcher, "open_stats", lambda: os.open("/dev/null", os.O_RDONLY))
    NoProcess.texts.clear()
    (tmp_path / "proc").mkdir()
    starter = Starter(tool(tmp_path, "exit 1"), 1, {"block_c": BLOCK_C}, tmp_path / "proc")
    right = [START, {"totals": 1}, {"stats": True}, {"stats": False}, {"trace": [1, [[8_388_608, True]]]}]
    texts, draw, answers = [json.dumps(request).encode() for request in right], Random(count), 0
    for _ in range(count):
        text = mutated(draw.choice(texts), draw, texts, SPLINTERS)
        try:
            request = json.loads(text)
        except (ValueError, RecursionError):
            continue
        with contextlib.suppress(MalformedError):
            starter.answer(request)
            answers += 1
    assert answers > count // 1000
    assert NoProcess.texts
    assert len({re.sub(r"\d+", "N", text) for text in NoProcess.texts}) == 1
    assert not starter.children


@pytest.mark.parametrize(
    "wrong",
    ["too long", *(pytest.param(one, marks=pytest.mark.slow) for one in ("no json", "deep nesting", "a command"))],
)
def test_and_it_ends_the_process(tmp_path, wrong):
    with starter(tmp_path) as (process, ours):
        message = WRONG[wrong]
        ours.send(message if isinstance(message, bytes) else json.dumps(message).encode())
        assert ours.recv(100) == b""
        assert process.wait(60) == 0
    assert not (tmp_path / "ran").exists()


def test_what_is_right_runs(tmp_path):
    """Else the test above proves nothing."""
    with starter(tmp_path) as (process, ours):
        ours.send(json.dumps(START).encode())
        reply, files, _, _ = socket.recv_fds(ours, 1000, 3)
        assert json.loads(reply)["pid"] > 0
        assert len(files) == 3
        assert os.read(files[1], 100) == b""  # its end
        for file in files:
            os.close(file)
        ours.close()
        assert process.wait(60) == 0
    assert (tmp_path / "ran").exists()
