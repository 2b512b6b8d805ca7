"""The probe's process with real shells: its output and status come through, and it never outlives its parent."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from latmon.support.process import descendants
from latmon_backends.probe import process
from latmon_backends.probe.process import Child, shimmed

ROOT = Path(__file__).resolve().parents[2]
linux = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for orphans in /proc")
MARK = "LATMON_TEST_CHILD"
IGNORES_TERM = "trap '' TERM; echo up; while :; do sleep 0.02; done"
SHORT_S = 0.3
"""The grace of a tool that ignores SIGTERM, where the test is not about its length."""
TALKS = "while :; do echo 0123456789012345678901234567890123456789; done"


@asynccontextmanager
async def started(command, grace_s=process.GRACE_S, **environment):
    child = await Child.start(shimmed(command, environment, sudo=False, mount_tracefs=False, grace_s=grace_s))
    try:
        yield child
    finally:
        await child.stop()


def child(script, mark="1", grace_s=process.GRACE_S, **environment):
    return started(["sh", "-c", script], grace_s, **{MARK: mark, **environment})


async def whole(one):
    portions = []
    while portion := await one.read():
        portions.append(portion)
    return b"".join(portions)


def marked(mark):
    """Processes that were started with our mark: the tool and what it started, not the shim before it."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(entry.name)
        except OSError:
            continue
    return found


def in_session(session):
    """Commands of a session's living processes."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            name, _, remainder = (entry / "stat").read_text("utf-8", "replace").rpartition(")")
        except OSError:
            continue
        fields = remainder.split()
        if fields[3] == str(session) and fields[0] != "Z":
            found.append(name.partition("(")[2])
    return found


def gone(alive, seconds):
    deadline = time.monotonic() + seconds
    while alive() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive()


async def test_output_and_status_come_through():
    async with child("echo one; echo two; echo bad >&2; exit 7") as given_child:
        assert await whole(given_child) == b"one\ntwo\n"
        assert await given_child.read() == b""
        assert await given_child.complaints() == ["bad"]
        assert await given_child.returncode() == 7


async def test_the_end_is_seen_when_it_happens():
    async with child("echo bad >&2; exit 3") as given_child:
        async with asyncio.timeout(30):
            assert await whole(given_child) == b""
            assert await given_child.complaints() == ["bad"]


async def test_a_signal_is_reported_as_a_shell_reports_it():
    async with child("kill -ABRT $$") as given_child:
        await whole(given_child)
        assert await given_child.returncode() == 128 + signal.SIGABRT


async def test_a_command_that_is_not_there():
    async with started(["/nonexistent/bpftrace"]) as one:
        await whole(one)
        assert await one.returncode() == 127
        assert "No such file" in (await one.complaints())[-1]


async def test_the_environment_reaches_the_tool():
    async with child('printf %s "$BPFTRACE_MAP_KEYS_MAX"', BPFTRACE_MAP_KEYS_MAX="8192") as given_child:
        assert await whole(given_child) == b"8192"


async def test_the_tool_reads_nothing_from_our_pipe():
    async with child("cat; echo end") as given_child:
        assert await whole(given_child) == b"end\n"


async def test_no_core_is_left():
    async with child("ulimit -c") as given_child:
        assert await whole(given_child) == b"0\n"


async def test_complaints_are_bounded_and_clean():
    async with child(
        r"i=0; while [ $i -lt 500 ]; do echo line $i >&2; i=$((i+1)); done; printf '\033[2J\377\n' >&2"
    ) as given_child:
        await whole(given_child)
        text = await given_child.complaints()
    assert len(text) == 60
    assert text[0] == "line 441"
    assert text[-1] == r"\x1b[2J\xff"


async def test_a_cancellation_at_the_end_of_the_output_is_not_lost():
    """Seen: a SIGTERM right after the end of a probe was lost, and the capture started the probe again and went on."""
    async with child("sleep 60") as given_child:
        listening, given_child._listening = given_child._listening, asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(given_child.complaints())
        await asyncio.sleep(0)
        given_child._listening.set_result(None)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        given_child._listening = listening


async def test_a_flood_of_complaints_doesnt_stop_the_tool():
    async with child("head -c 3000000 /dev/zero >&2; echo through") as given_child:
        assert await asyncio.wait_for(whole(given_child), 60) == b"through\n"
        assert all(len(line) <= 300 for line in await given_child.complaints())


async def test_end_lets_the_tool_say_its_last():
    async with child("trap 'echo last; exit 0' TERM; echo ready; while :; do sleep 0.02; done") as given_child:
        assert await given_child.read() == b"ready\n"
        given_child.end()
        assert await whole(given_child) == b"last\n"
        assert await given_child.returncode() == 0


STAYS = "trap '' TERM; echo up; exec sleep 60"
KILLS = {
    "by the shim": (STAYS, None, True),
    "by the shim while it is stopped": (STAYS, signal.SIGSTOP, True),
    "by another": (STAYS, signal.SIGKILL, False),
    "not": ("echo up; exec sleep 60", None, False),
}


@linux
@pytest.mark.parametrize(("script", "number", "killed"), KILLS.values(), ids=KILLS)
async def test_the_status_tells_who_killed_the_tool(script, number, killed):
    """However late it is read: after the shim has lost its patience."""
    async with child(script, "whose", SHORT_S if killed else process.GRACE_S) as given_child:
        assert await given_child.read() == b"up\n"
        if number is not None:
            async with asyncio.timeout(30):
                # no event tells; while the shell becomes sleep it has no environment
                while not (pids := marked("whose")):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            for pid in pids:
                os.kill(int(pid), number)
        given_child.end()
        await asyncio.sleep(SHORT_S + (SHORT_S if killed else process.GRACE_S))
        assert await whole(given_child) == b""
        assert await given_child.was_killed() == killed


async def test_stop_is_quick_with_a_tool_that_obeys():
    async with child("trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done") as given_child:
        await given_child.read()
        async with asyncio.timeout(30):
            await given_child.stop()
        assert await given_child.returncode() == 0


@linux
async def test_a_tool_that_ignores_sigterm_is_gone_within_two_seconds():
    async with child(IGNORES_TERM, "stubborn") as given_child:
        await given_child.read()
        async with asyncio.timeout(30):
            await given_child.stop()
        # SIGKILL ends the group's other processes shortly after the shim, not at once.
        assert gone(lambda: marked("stubborn"), 30), marked("stubborn")


@linux
@pytest.mark.parametrize("script", [TALKS, f"trap '' TERM; {TALKS}"], ids=["obeys", "ignores SIGTERM"])
async def test_stop_while_the_tool_talks(script):
    async with child(script, "chatty", SHORT_S) as given_child:
        await given_child.read()
        async with asyncio.timeout(30):
            await given_child.stop()
        assert gone(lambda: marked("chatty"), 30), marked("chatty")


async def test_a_killed_tool_whose_output_fills_the_pipe_is_gone(monkeypatch):
    """CPython 3.11 waits for the end of the output as well, which a reader that has paused never sees."""
    monkeypatch.setattr(process, "_KILL_AFTER_S", 0.3)
    child = await Child.start(["sh", "-c", "trap '' TERM; exec yes"])
    reads = []

    async def read():
        reads.append(child)
        await asyncio.sleep(60.0 if len(reads) == 1 else 0.0)  # as slow as on a crowded host
        return await Child.read(child)

    monkeypatch.setattr(child, "read", read)
    async with asyncio.timeout(30):
        await child.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


async def test_stop_while_a_read_is_waiting():
    async with child("exec sleep 60") as given_child:
        reading = asyncio.ensure_future(given_child.read())
        await asyncio.sleep(0.1)
        await asyncio.wait_for(given_child.stop(), 30)
        assert await reading == b""


async def test_stop_after_stop():
    async with child("echo up") as given_child:
        await given_child.stop()
        await given_child.stop()
        assert await given_child.returncode() in (0, 128 + signal.SIGTERM)


@linux
async def test_nothing_of_the_shim_is_left():
    for script in ("exit 0", "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done", IGNORES_TERM):
        async with child(script, "shim", SHORT_S) as given_child:
            await given_child.read()
            session = given_child._process.pid
            await given_child.stop()
        assert gone(lambda session=session: in_session(session), 2), in_session(session)


@linux
async def test_the_shim_ends_with_its_tool():
    async with child("exit 0", "ended") as given_child:
        await whole(given_child)
        await given_child.returncode()
        assert gone(lambda: in_session(given_child._process.pid), 0.5), in_session(given_child._process.pid)


PARENT = """
import asyncio, sys
from latmon_backends.probe.process import Child

async def main():
    one = await Child.start(sys.argv[1:])
    print((await one.read()).decode(), one._process.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@linux
@pytest.mark.parametrize(
    "script", ["echo up; exec sleep 60", IGNORES_TERM, TALKS], ids=["silent", "ignores SIGTERM", "talks"]
)
def test_the_parents_sigkill_ends_the_tool(script):
    mark = f"parent-{os.getpid()}"
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, *shimmed(["sh", "-c", script], {MARK: mark}, sudo=False, mount_tracefs=False)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "backends") + os.pathsep + str(ROOT)},
        stdout=subprocess.PIPE,
    ) as parent:
        text = parent.stdout.readline()
        assert text
        assert marked(mark)
        parent.kill()
        parent.wait()
        assert gone(lambda: marked(mark), 2), f"left after 2 s: {marked(mark)}"


async def test_what_is_done_after_the_tool_is_done_also_after_its_kill(tmp_path):
    """With the tool's own process id, and its status is still reported."""
    command = ["sh", "-c", f"echo $$; {IGNORES_TERM}"]
    child = await Child.start(shimmed(command, {}, sudo=False, grace_s=0.1, after=f"echo $p >{tmp_path}/gone; "))
    try:
        text = b""
        while b"up" not in text:
            text += await child.read()
    finally:
        await child.stop()
    assert (tmp_path / "gone").read_bytes().split() == text.split()[:1]
    assert await child.was_killed()


def test_the_words_of_a_shimmed_command():
    plain = shimmed(["bpftrace", "-e", "x"], {"A": "1"}, sudo=False, mount_tracefs=False)
    assert plain[:2] == ["sh", "-c"]
    assert plain[-5:] == ["env", "A=1", "bpftrace", "-e", "x"]
    privileged = shimmed(["bpftrace"], {}, sudo=True, mount_tracefs=True)
    assert privileged[:3] == ["sudo", "-n", "sh"]
    assert privileged[privileged.index("unshare") :][:4] == ["unshare", "--mount", "--propagation", "unchanged"]
    assert privileged[-2:] == ["sh", "bpftrace"]


CHROOT = """
set -eu
top=$1
shift
mount -t tmpfs chroot "$top"
mount --make-shared "$top"
root=$top/root
mkdir "$root"
for path in /bin /sbin /lib*; do
    if [ -L "$path" ]; then cp -P "$path" "$root"; else mkdir "$root$path"; mount --rbind "$path" "$root$path"; fi
done
for path in /usr /proc /dev; do mkdir "$root$path"; mount --rbind "$path" "$root$path"; done
mkdir "$root/sys"
mount --bind /sys "$root/sys"
mount --make-shared "$root/sys"
chroot "$root" "$@" </dev/stdin
! grep "$root/sys/kernel" /proc/self/mountinfo
"""
"""Shell text that runs a command in a chroot of shared mounts, whose root is no mount point and which has no tracefs.
It fails where the command left a mount below /sys."""


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="only root on Linux may mount")
@pytest.mark.skipif(not Path("/sys/kernel/tracing").is_dir(), reason="this kernel has no tracefs")
def test_a_tool_in_a_chroot_has_its_tracefs_and_mounts_nothing_outside(tmp_path):
    tool = ["sh", "-c", "ls -d /sys/kernel/tracing/events"]
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", CHROOT, "sh", str(tmp_path)]
    words += shimmed(tool, {}, sudo=False, mount_tracefs=True)
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as chrooted:
        chrooted.wait(60)  # with its standard input open: the end of that ends the tool
        output, complaints = chrooted.communicate()
    assert (output, chrooted.returncode) == ("/sys/kernel/tracing/events\n", 0), complaints


async def test_sudo_stays_in_the_terminals_session_and_out_of_its_reach(tmp_path, monkeypatch):
    (tmp_path / "sudo").write_text('#!/bin/sh\nshift\nexec "$@"\n')
    (tmp_path / "sudo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    command = ["sh", "-c", IGNORES_TERM]
    child = await Child.start(shimmed(command, {MARK: "sudo"}, sudo=True, mount_tracefs=False, grace_s=SHORT_S))
    try:
        assert await child.read() == b"up\n"
        assert os.getsid(child.pid) == os.getsid(0)  # its ticket is found
        assert {os.getpgid(pid) for pid in (child.pid, *descendants(child.pid))} == {child.pid}  # Ctrl-C isn't for it
    finally:
        await child.stop()
    assert gone(lambda: marked("sudo"), 1), marked("sudo")


async def test_without_sudo_the_probe_has_a_session_of_its_own():
    async with child("exec sleep 60") as given_child:
        assert os.getsid(given_child.pid) == os.getpgid(given_child.pid) == given_child.pid


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may take a higher priority")
async def test_a_preferred_tool_comes_before_others():
    async with started(["sh", "-c", "read x; exec sleep 30"]) as one:
        await asyncio.sleep(0.2)
        one.prefer()
        assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in descendants(one.pid)][:1] == [-10]


async def test_a_program_is_one_word_whatever_is_in_it():
    program = "BEGIN { printf(\"$(id) `id` 'quoted' %d\\n\", 1); }\n"
    async with started(["printf", "%s", program]) as one:
        assert (await whole(one)).decode() == program


@pytest.mark.slow
async def test_who_is_asked_has_the_time_that_it_takes_and_who_is_hung_up_on_has_not():
    slow = "trap 'sleep 1.8; echo last; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    async with child(slow) as one:
        assert await one.read() == b"up\n"
        one.end(patient=True)
        assert await whole(one) == b"last\n"
    async with child(slow) as one:
        assert await one.read() == b"up\n"
        one.end()
        assert await whole(one) == b""


@linux
async def test_a_cancelled_stop_leaves_no_process():
    async with child(IGNORES_TERM, "cancelled") as given_child:
        await given_child.read()
        stopping = asyncio.create_task(given_child.stop())
        await asyncio.sleep(0.1)
        stopping.cancel()
        await asyncio.wait({stopping})
        assert stopping.cancelled()
        assert given_child._listening.done()
        assert gone(lambda: marked("cancelled"), 30), marked("cancelled")


async def test_its_time_runs_from_the_hang_up():
    async with child(IGNORES_TERM, "asked", SHORT_S) as given_child:
        await given_child.read()
        given_child.end()
        await asyncio.sleep(0.2)
        async with asyncio.timeout(30):
            await given_child.stop()


@pytest.mark.parametrize("turns", range(4))
async def test_who_is_cancelled_while_it_starts_leaves_nothing(turns, monkeypatch):
    monkeypatch.setattr(process, "_KILL_AFTER_S", 0.2)
    starting = asyncio.ensure_future(Child.start(["/bin/sh", "-c", "exec sleep 60"]))
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    async with asyncio.timeout(30):
        await asyncio.wait({starting})
    assert starting.cancelled()


@linux
async def test_a_tool_can_print_for_a_while_without_a_reader(tmp_path):
    """12 s of ticks are more than the 64 KiB of a pipe; a tool that waits in its write loses events."""
    done = tmp_path / "done"
    async with child(f"head -c 500000 /dev/zero; touch {done}; exec sleep 60"), asyncio.timeout(30):
        while not done.exists():  # noqa: ASYNC110 - a file raises no event
            await asyncio.sleep(0.05)
