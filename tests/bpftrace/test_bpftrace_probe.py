"""A probe's start and end, with shell scripts in place of bpftrace that print what real versions printed."""

import asyncio
import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from terminal import environment, latmon, wait_for

from latmon.support.errors import UnavailableError
from latmon_backends.bpftrace.probe import BpftraceProbe
from latmon_backends.bpftrace.program import BpftraceProgram, BpftraceTool, variants
from latmon_backends.probe.events import Printed
from latmon_backends.probe.launcher import Direct
from latmon_backends.probe.process import RefusedError

READY = """echo '{"type": "printf", "data": "ready block_c 1"}'"""
TICK = """echo '{"type": "printf", "data": "tick block_c 0 1"}'"""
LAST = """echo '{"type": "printf", "data": "last block_c 1 2"}'"""
ATTACHED = """echo '{"type": "attached_probes", "data": {"probes": 3}}'"""
ENDS = f"trap '{LAST.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}; exit 0' TERM"
LIVES = "while :; do sleep 0.02; done"


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts a variant on a tool that is these lines of shell."""
    monkeypatch.setattr(BpftraceProbe, "ready_s", 60.0)
    (variant,) = [v for v in variants(100, 0, tmp_path) if v.manifest.tier == "C"]

    async def started(*lines):
        path = tmp_path / "bpftrace"
        path.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
        path.chmod(0o755)
        tool = BpftraceTool(str(path), sudo=False, mount_tracefs=False, map_keys=8192)
        return await BpftraceProbe.start(Direct(tool), BpftraceProgram((variant,), 8192))

    return started


async def texts(probe):
    texts = []
    while (event := await probe.next()) is not None:
        texts.append(event.text if isinstance(event, Printed) else type(event).__name__)
    return texts


async def test_a_probe_is_ready_when_its_line_came_and_it_lives(start):
    probe = await start(ENDS, ATTACHED, READY, TICK, LIVES)
    assert await probe.next() == Printed("tick block_c 0 1")
    probe.end()
    assert await texts(probe) == ["last block_c 1 2"]
    await probe.stop()


async def test_the_program_is_the_variants(start):
    with pytest.raises(RefusedError, match=r"^[4-9]$"):
        await start("""for word; do :; done; printf '%s' "$word" | grep -c block_c_tick >&2""")


@pytest.mark.parametrize("ready", [":", READY], ids=["before the ready line", "after it, as up to 0.23"])
async def test_a_refusal_is_one_sentence(start, ready):
    with pytest.raises(RefusedError, match=r"^tracepoint not found: block:block_rq_issue$"):
        await start(ready, "echo 'stdin:1:1-2: ERROR: tracepoint not found: block:block_rq_issue' >&2", "exit 1")


async def test_a_refusal_says_where_in_the_text(start):
    with pytest.raises(RefusedError) as refused:
        await start("echo 'stdin:41:1-2: ERROR: tracepoint not found: block:block_rq_issue' >&2", "exit 1")
    assert refused.value.line == 41


async def test_an_abort_is_a_refusal(start):
    with pytest.raises(RefusedError, match="Invalid probe type"):
        await start("echo 'FATAL: Invalid probe type made it to attachpoint parser' >&2", "kill -ABRT $$")


async def test_a_tool_that_is_gone_is_a_refusal(start, tmp_path):
    with pytest.raises(RefusedError, match="not found"):
        await start(f"exec {tmp_path}/none")


async def test_many_refusals_take_no_time(start):
    async with asyncio.timeout(30):
        for _ in range(3):
            with pytest.raises(RefusedError):
                await start("echo 'ERROR: no' >&2", "exit 1")


async def test_a_host_that_is_too_slow(start, monkeypatch):
    monkeypatch.setattr(BpftraceProbe, "ready_s", 0.3)
    with pytest.raises(UnavailableError, match="not ready within"):
        await start(ATTACHED, "exec sleep 60")


async def test_stop_right_after_the_start(start):
    probe = await start(READY, "exec sleep 60")
    await asyncio.wait_for(probe.stop(), 30)
    await asyncio.wait_for(probe.stop(), 30)


async def test_stop_while_someone_waits_for_the_next_event(start):
    probe = await start(READY, "exec sleep 60")
    waiting = asyncio.ensure_future(probe.next())
    await asyncio.sleep(0.1)
    await asyncio.wait_for(probe.stop(), 30)
    assert await asyncio.wait_for(waiting, 30) is None


async def test_an_unrequested_end_reports_its_reason(start):
    probe = await start(READY, "sleep 1", "echo 'ERROR: out of luck' >&2", "exit 9")
    assert await texts(probe) == []
    assert await probe.complaint() == "out of luck"
    await probe.stop()


VERSION = 'case $1 in --version) echo "bpftrace v0.23.2"; exit ;; esac'
NAMED = """for word; do :; done
for name in block_a block_b block_c; do case $word in *"ready $name "*) it=$name ;; esac; done
echo '{"type": "attached_probes", "data": {"probes": 9}}'
printf '{"type": "printf", "data": "ready %s 1"}\\n' "$it\""""
LIES = {
    "a wrong version": 'case $1 in --version) echo "bpftrace vBANANA" ;; *) echo nonsense ;; esac',
    "an endless version": "case $1 in --version) exec yes ;; *) exit 1 ;; esac",
    "garbage": f"{VERSION}\nhead -c 1000000 /dev/urandom\nexec sleep 100",
    "a line without an end": f"{VERSION}\nexec cat /dev/zero",
    "endless lines": f"{VERSION}\nexec yes",
    "garbage when it is ready": f"{VERSION}\n{NAMED}\nexec cat /dev/urandom",
    "a line without an end when it is ready": f"{VERSION}\n{NAMED}\nexec cat /dev/zero",
    "ticks without an end": f"{VERSION}\n{NAMED}\n"
    """exec yes "{\\"type\\": \\"printf\\", \\"data\\": \\"tick $it 1 1\\"}\"""",
    "half lines": f"""{VERSION}\n{NAMED}\nwhile :; do printf '{{"type": "printf", "da'; sleep 0.1; done""",
    "silence, and no end by SIGTERM": f"{VERSION}\n{NAMED}\ntrap '' TERM\nwhile :; do sleep 1; done",
    "endless complaints": f"{VERSION}\n{NAMED}\nexec yes >&2",
}


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: bpftrace runs for no other user")
@pytest.mark.parametrize("lie", LIES)
def test_a_bpftrace_that_lies_costs_neither_memory_nor_a_traceback(tmp_path, lie):
    """What it prints is refused, or the recording says what is missing; the capture ends in its time."""
    path, said = tmp_path / "bpftrace", tmp_path / "stderr"
    path.write_text(f"#!/bin/sh\n{LIES[lie]}\n")
    path.chmod(0o755)
    command = latmon("--record", str(tmp_path / "r.gz"), "--duration", "2s")
    with said.open("w") as err:
        process = subprocess.Popen(command, env=environment(LATMON_BPFTRACE=str(path)), stdout=err, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    text = said.read_text()
    assert "Traceback" not in text
    assert process.returncode in (0, 4), text
    why = "is no bpftrace" if "version" in lie and os.geteuid() == 0 else "runs none of the probes here"
    assert (why in text) == (process.returncode == 0), text
    assert usage.ru_maxrss < 400 * 1024, f"{usage.ru_maxrss / 1024:.0f} MB"
    assert wait_for(lambda: not running(str(path)), 5)


def running(word):
    """Return the processes with this word in their command line."""
    paths = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            paths += [path] * (word.encode() in path.read_bytes())
    return paths
