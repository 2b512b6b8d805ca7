"""The self-test reports its results, or why it can't run. Needs no root."""

import asyncio
import errno
import json
import subprocess
from pathlib import Path

import pytest

from latmon.capture.backend import ProbeReport
from latmon.capture.registry import Request
from latmon.cli import arguments
from latmon.cli.main import run as main
from latmon.doctor import command, selftest
from latmon.doctor.checks import Check, Status
from latmon.doctor.command import PanelCheck, SelfTest, Verdict, render_json
from latmon.doctor.selftest import check_backend
from latmon.support.errors import UnavailableError, UsageError

TOOLS = ("unshare", "mount", "umount", "losetup", "truncate", "mkfifo")
OK = PanelCheck("outliers", Verdict.OK, "write of 4 KiB at sector 2,048 took 301 ms, 300 ms was made")
FAILED = PanelCheck("latency map", Verdict.FAILED, "no I/O of that latency")
UNMEASURED = PanelCheck("stages", Verdict.UNMEASURED, "not measured with procfs, tier D")


def host(root, tools=TOOLS, *, loops=True):
    """An environment with these programs alone, and its /dev."""
    (root / "bin").mkdir()
    for tool in tools:
        (root / "bin" / tool).write_text("#!/bin/sh\n")
        (root / "bin" / tool).chmod(0o755)
    if loops:
        (root / "loop-control").touch()
    return {"PATH": str(root / "bin")}


@pytest.fixture(autouse=True)
def no_admin_directories(monkeypatch):
    monkeypatch.setattr("latmon.doctor.selftest.search_path", lambda environ: environ["PATH"])


def test_another_system_a_user_and_a_host_without_loops_or_tools_are_refused_with_what_to_do(tmp_path):
    environ = host(tmp_path)
    selftest.refuse("linux", 0, environ, tmp_path)
    with pytest.raises(UnavailableError, match="this is sunos5"):
        selftest.refuse("sunos5", 0, environ, tmp_path)
    with pytest.raises(UnavailableError, match="sudo latmon doctor --self-test"):
        selftest.refuse("linux", 1000, environ, tmp_path)
    with pytest.raises(UnavailableError, match="modprobe loop"):
        selftest.refuse("linux", 0, environ, tmp_path / "bin")
    (tmp_path / "bin" / "losetup").unlink()
    with pytest.raises(UnavailableError, match="losetup, which can't be found: install util-linux"):
        selftest.refuse("linux", 0, environ, tmp_path)


def test_the_first_file_system_that_can_be_frozen_is_taken(tmp_path):
    environ = host(tmp_path, ("mkfs.xfs", "mkfs.btrfs", "fsfreeze"))
    assert selftest.file_system(environ)[0] == "xfs"
    (tmp_path / "bin" / "fsfreeze").unlink()
    assert selftest.file_system(environ) is None


def test_a_device_that_can_not_be_made_is_one_sentence_with_what_the_tool_reported(tmp_path):
    environ = host(tmp_path, ("sh",))
    for name, text in (("unshare", 'echo "unshare: unshare failed: Operation not permitted" >&2; exit 1'), ("sh", "")):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    why = r"can't make its device: unshare: .* Operation not permitted"
    with pytest.raises(UnavailableError, match=why), selftest.made_device(environ, print):
        pass


def test_a_container_is_named_only_where_one_is_likely(tmp_path):
    status = tmp_path / "status"
    status.write_text("Name:\tlatmon\nCapEff:\t000001ffffffffff\n")
    assert not selftest._contained(status, ())
    assert selftest._contained(status, (status,))
    status.write_text("CapEff:\t00000000a80425fb\n")
    assert selftest._contained(status, ())


class Gone:
    """A device that can neither be opened nor written to."""

    path = Path("/nowhere/loop9")
    name = "loop9"
    holds = False

    def written(self):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_device_that_can_not_be_opened_or_written_to_is_one_sentence():
    with pytest.raises(UnavailableError, match="can't open its device /nowhere/loop9: No such file"):
        selftest.capture(Gone(), Request("demo"), print)
    watch = selftest._WorkloadCapture(Gone(), 0, Request("demo"), print)
    with pytest.raises(UnavailableError, match=r"can't write to its device .*: No space left on device"):
        asyncio.run(watch.run())


def test_a_backend_that_reports_nothing_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(selftest, "_OPENING_S", 0.0)
    monkeypatch.setattr(selftest, "_STARTING_S", 0.0)
    watch = selftest._WorkloadCapture(Gone(), 0, Request("demo"), print)
    with pytest.raises(UnavailableError, match="the probes printed nothing"):
        asyncio.run(watch.run())


def test_a_device_that_is_still_there_is_named():
    assert selftest.left("/dev/loop9", 7).startswith("/dev/loop9 may still be there: process 7 removes it")
    for how, gone in (("exit 0", True), ("kill -9 $$", False)):
        with subprocess.Popen(["sh", "-c", how], stdin=subprocess.PIPE) as shell:
            assert selftest._end(shell) is gone


def test_a_line_for_each_check_and_one_for_all():
    self_test = SelfTest("", "loop9", "bpftrace 0.23.2, tier A", (OK, FAILED, UNMEASURED))
    assert command.lines(self_test) == [
        "self-test on loop9 with bpftrace 0.23.2, tier A",
        "outliers     ok        write of 4 KiB at sector 2,048 took 301 ms, 300 ms was made",
        "latency map  FAILED    no I/O of that latency",
        "stages       -         not measured with procfs, tier D",
        "self-test: 1 of 3 checks FAILED; 1 could not be checked.",
    ]
    assert command.exit_code(self_test) == 1


def test_what_is_not_measured_is_no_failure():
    self_test = SelfTest("", "loop9", "procfs, tier D", (OK, UNMEASURED))
    assert command.lines(self_test)[-1] == "self-test: passed; 1 could not be checked."
    assert command.exit_code(self_test) == 0


def test_a_refusal_is_a_line_and_exit_code_3():
    self_test = SelfTest(refused="it takes root: sudo latmon doctor --self-test")
    assert command.lines(self_test) == ["self-test  MISSING   it takes root: sudo latmon doctor --self-test"]
    assert command.values(self_test) == {"ran": False, "refused": self_test.refused}
    assert command.exit_code(self_test) == 3


def test_the_json_has_it_where_it_was_asked_for():
    checks = [Check("python", Status.OK, ""), Check("tier", Status.OK, "")]
    self_test = SelfTest("", "loop9", "procfs", (OK,))
    reported = json.loads(render_json(checks, ProbeReport("", ""), self_test))["self_test"]
    assert reported["passed"] is True
    assert reported["checks"] == [{"name": "outliers", "status": "ok", "what": OK.what}]
    assert "self_test" not in json.loads(render_json(checks, ProbeReport("", "")))


def test_the_options():
    args = arguments.parse(["doctor", "--self-test", "--backend", "procfs"])
    assert (args.self_test, args.backend) == (True, "procfs")
    with pytest.raises(UsageError, match="--backend needs --self-test"):
        arguments.parse(["doctor", "--backend", "procfs"])
    with pytest.raises(UsageError, match="and demo doesn't"):
        check_backend("demo")
    check_backend("auto")


def test_a_backend_that_is_none_is_refused_before_anything_runs(capsys):
    assert main(["doctor", "--self-test", "--backend", "nothing"]) == 2
    assert "there is no 'nothing'" in capsys.readouterr().err
