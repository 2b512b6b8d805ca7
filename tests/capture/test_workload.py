"""The command that a recording measures: its exit code, signals, what it inherits, and when it is not run."""

import asyncio
import os
import re
import signal
import sys

import psutil
import pytest

from latmon.capture.workload import NOT_EXECUTABLE, NOT_FOUND, CommandError, Workload
from latmon.support.process import descendants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it forks")


@pytest.fixture
def workload():
    workloads = []

    def make(*words, umask=0o022, **options):
        workload = Workload(words, **options)
        workload.fork(None, umask)
        workloads.append(workload)
        return workload

    yield make
    for current_workload in workloads:
        current_workload.close()


async def until(holds):
    for _ in range(1_500):
        if holds():
            return
        await asyncio.sleep(0.02)
    pytest.fail("it does not begin")


async def ended(one):
    calls = []
    one.begin(lambda: calls.append(one.code))
    async with asyncio.timeout(30):
        await one.ended.wait()
    assert calls == [one.code]
    return one


@pytest.mark.parametrize(
    ("script", "code", "outcome"),
    [
        ("exit 0", 0, r"exit code 0 after \d+\.\d s"),
        ("exit 3", 3, r"exit code 3 after \d+\.\d s"),
        ("exit 143", 143, r"exit code 143 after \d+\.\d s"),
        ("kill -TERM $$", 143, r"killed by SIGTERM after \d+\.\d s \(exit code 143\)"),
        ("kill -KILL $$", 137, r"killed by SIGKILL after \d+\.\d s \(exit code 137\)"),
    ],
)
async def test_its_exit_code_is_that_of_a_shell(workload, script, code, outcome):
    one = await ended(workload("sh", "-c", script))
    assert (one.code, one.runs, one.failure) == (code, False, None)
    assert re.fullmatch(outcome, one.outcome)


async def test_one_that_is_not_released_is_never_run(workload, tmp_path):
    given_workload = workload("touch", str(tmp_path / "made"))
    given_workload.close()
    await asyncio.sleep(0.3)
    assert not (tmp_path / "made").exists()


async def test_it_has_the_umask_of_the_user_and_the_standard_files(workload, tmp_path):
    await ended(workload("sh", "-c", f"umask > {tmp_path}/umask; ls /proc/self/fd > {tmp_path}/files", umask=0o027))
    assert (tmp_path / "umask").read_text().strip() == "0027"
    assert {"0", "1", "2"} <= set((tmp_path / "files").read_text().split()) <= {"0", "1", "2", "3"}, "3: ls itself"


async def test_it_is_no_descendant_of_latmon_whose_own_io_it_would_be(workload, tmp_path):
    given_workload = workload("sh", "-c", f"echo $$ > {tmp_path}/pid; sleep 60")
    given_workload.begin(lambda: None)
    await until(lambda: given_workload.runs and (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())
    assert pid not in set(descendants(os.getpid()))
    assert os.getpgid(pid) == os.getpgrp(), "the terminal's Ctrl-C reaches both"
    given_workload.forward(signal.SIGTERM)
    async with asyncio.timeout(30):
        await given_workload.ended.wait()
    assert given_workload.code == 128 + signal.SIGTERM
    assert not psutil.pid_exists(pid)
    given_workload.forward(signal.SIGTERM)


async def test_a_signal_can_be_handled_by_it(workload):
    given_workload = workload("sh", "-c", 'trap "exit 7" HUP; while :; do sleep 0.05; done')
    given_workload.begin(lambda: None)
    await until(lambda: given_workload.runs)
    await asyncio.sleep(0.5)
    given_workload.forward(signal.SIGHUP)
    async with asyncio.timeout(30):
        await given_workload.ended.wait()
    assert given_workload.code == 7


@pytest.mark.parametrize(
    ("word", "code", "text"),
    [
        ("no-such-program", NOT_FOUND, "no-such-program: command not found: nothing was run"),
        ("/nowhere/program", NOT_FOUND, "/nowhere/program: command not found: nothing was run"),
        ("/etc/passwd", NOT_EXECUTABLE, "/etc/passwd can't be run: Permission denied"),
    ],
)
async def test_what_can_not_be_run_is_refused_before_anything_starts(workload, word, code, text):
    with pytest.raises(CommandError, match=text) as refused:
        Workload([word]).require(os.environ)
    assert refused.value.exit_code == code
    one = await ended(workload(word))  # it is gone since it was looked up
    assert one.code == code
    assert str(one.failure) == text


def test_what_can_be_run_is_taken():
    Workload(["sh"]).require(os.environ)
    Workload(["/bin/sh"]).require({})


def test_private_words_are_left_out():
    private, named = Workload(["fio", "--name=secret x"], is_named=False), Workload(["/usr/bin/fio", "--name=a b"])
    assert (private.line, private.name) == ("the command", "the command")
    assert (named.line, named.name) == ("/usr/bin/fio '--name=a b'", "fio")
