"""`latmon watch`: when a finding is reported, and what is done then, by a real process with real commands."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest
from terminal import environment, latmon, wait_for

from latmon.cli import headless
from latmon.cli.config import Actions
from latmon.cli.headless import BEGAN, ENDED, Actor, StandingFindings
from latmon.cli.main import run as main
from latmon.findings.engine import RuleEngine
from latmon.findings.rule import CRITICAL, DEFAULT, NOTICE, WARNING, Finding, Where
from latmon.model import measurements
from latmon.model.frame import Frame, Health, Origin
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer
from latmon.model.redaction import Redaction
from latmon.recording.archive import Archive

SECOND = 1_000_000
EVIL = 'sd"; touch x;\n$(id)\x1b[31m'


def finding(severity=WARNING, device="sda", rule="peer-outlier"):
    return Finding(rule, severity, device, f"{device} is slow", (), Where("overview"), (), "nothing")


def reported(actions, *states):
    """What is reported after each state: seconds and the findings that stand."""
    standing = StandingFindings(actions)
    return [
        [(what, finding.severity) for what, finding in standing.update(tuple(current), seconds * SECOND)]
        for seconds, *current in states
    ]


def test_a_finding_begins_and_ends_once():
    given_finding = finding()
    assert reported(Actions(), (5, given_finding), (10, given_finding), (70,), (129,), (200,)) == [
        [(BEGAN, WARNING)],
        [],
        [(ENDED, WARNING)],
        [],
        [],
    ]


def test_a_finding_at_its_threshold_does_not_begin_again():
    given_finding = finding()
    states = [(5, given_finding), (10,), (15, given_finding), (20,), (25, given_finding)]
    assert reported(Actions(), *states) == [[(BEGAN, WARNING)], [], [], [], []]


def test_a_quiet_period_has_neither_a_begin_nor_an_end():
    given_finding = finding()
    states = [(5, given_finding), (100,), (200, given_finding), (300,), (700, given_finding)]
    assert reported(Actions(), *states) == [[(BEGAN, WARNING)], [(ENDED, WARNING)], [], [], [(BEGAN, WARNING)]]


def test_a_finding_that_gets_worse_is_reported_again():
    states = [(5, finding()), (10, finding(CRITICAL)), (15, finding()), (20, finding(CRITICAL))]
    assert reported(Actions(), *states) == [[(BEGAN, WARNING)], [(BEGAN, CRITICAL)], [], []]


def test_notices_are_reported_where_they_are_wanted():
    assert reported(Actions(), (5, finding(NOTICE))) == [[]]
    assert reported(Actions(severity=NOTICE), (5, finding(NOTICE))) == [[(BEGAN, NOTICE)]]


def test_devices_and_rules_are_apart():
    some = [(5, finding()), (10, finding(), finding(device="sdb"), finding(rule="bimodal-tail"))]
    assert [len(one) for one in reported(Actions(), *some)] == [1, 2]


def script(directory, text, name="act"):
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def acted(command, *findings):
    """What is logged of the actions of some findings."""
    said, event = [], asyncio.Event()

    def log(level, text):
        said.append((level, text))
        if len(said) == len(findings):
            event.set()

    actor = Actor(
        Actions(command=tuple(command)),
        Origin("demo", "db-07", "Linux 6.12", "0.1.0"),
        Archive(SECOND),
        log,
        redaction=None,
    )

    async def run():
        acting = asyncio.create_task(actor.run())
        for finding in findings:
            actor.add(finding, 1_767_582_000.0)
        await event.wait()
        acting.cancel()
        await asyncio.wait({acting})

    asyncio.run(asyncio.wait_for(run(), 300))
    return said


@pytest.mark.parametrize("redact", [False, True])
def test_findings_and_log_have_no_private_names_where_they_are_redacted(monkeypatch, redact):
    """Replace cgroups in findings, and paths in notices and in the reason of a backend."""
    issuers, notice = {Issuer("sda", "read", "/ann.slice"): IssuedIO(1, 512)}, "no room for /home/ann/b"
    frame = Frame(0, 1.0, SECOND, SECOND, health=Health(notice=notice), tables={measurements.ISSUERS: issuers})
    taken, said = [], []
    monkeypatch.setattr(RuleEngine, "take", lambda _, one: taken.append(one))

    class Feed:
        origin, line = Origin("demo", "db-07", "Linux 6.12", "0.1.0", reason="/home/ann/bpftrace is too old"), None
        __aexit__ = AsyncMock(return_value=None)

        async def __aenter__(self):
            return self

        async def frames(self):
            yield frame

    session = SimpleNamespace(feed=Feed())
    redaction = Redaction() if redact else None
    asyncio.run(headless._watch(session, DEFAULT, Actions(), lambda _, text: said.append(text), redaction=redaction))
    assert ("ann" in str(taken)) is not redact
    assert [("ann" in text) for text in said if "too old" in text or "no room" in text] == [not redact] * 2


def test_a_command_gets_json_and_no_shell_reads_it(tmp_path):
    command = script(tmp_path, f'cat > {tmp_path}/in; echo "$@" > {tmp_path}/words')
    assert acted([command, "$(id)", ";x"], finding(device=EVIL)) == [(6, "act for peer-outlier: exit status 0")]
    assert (tmp_path / "words").read_text() == "$(id) ;x\n"
    document = json.loads((tmp_path / "in").read_text())
    assert (document["schema"], document["host"], document["recording"]) == ("latmon.finding/1", "db-07", None)
    assert (document["finding"]["id"], document["finding"]["device"]) == ("peer-outlier", EVIL)


def test_commands_run_one_at_a_time(tmp_path):
    command = script(tmp_path, f"cat >/dev/null; mkdir {tmp_path}/busy || exit 9; sleep 0.2; rmdir {tmp_path}/busy")
    said = acted([command], *(finding(device=f"sd{one}") for one in "abc"))
    assert [text.rpartition(" ")[2] for _, text in said] == ["0", "0", "0"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exit 7", "exit status 7"),
        ("kill -9 $$", "killed by signal 9"),
        pytest.param("yes > /dev/null", "ended by latmon after 0.5 s", marks=pytest.mark.slow),
        ("trap '' TERM; sleep 1000 & sleep 1000", "ended by latmon after 0.5 s"),
        ("exec <&-; sleep 0.1", "exit status 0"),
    ],
)
def test_how_a_command_ended_is_reported(tmp_path, monkeypatch, text, said):
    monkeypatch.setattr(headless, "COMMAND_S", 0.5 if "ended by latmon" in said else 100.0)
    ((level, found),) = acted([script(tmp_path, text)], finding())
    assert found == f"act for peer-outlier: {said}"
    assert (level == 6) == (said == "exit status 0")
    assert wait_for(lambda: not left_over(tmp_path))


def left_over(directory):
    """Processes whose command line names the directory."""
    done = subprocess.run(["pgrep", "-f", str(directory)], capture_output=True, text=True, check=False)
    return set(done.stdout.split()) - {str(os.getpid())}


def test_a_command_that_does_not_exist_is_reported(tmp_path):
    assert acted([f"{tmp_path}/none"], finding()) == [(3, f"on_finding: {tmp_path}/none: No such file or directory")]


@contextlib.contextmanager
def watching(directory, config, *words):
    """`latmon watch` on the demo, with what it prints; it ends with 0 on SIGTERM."""
    home = directory / "config/latmon"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text(config)
    said = directory / "stderr"
    with said.open("w") as err:
        process = subprocess.Popen(
            latmon("watch", "--backend", "demo", *words),
            stdin=subprocess.DEVNULL,
            stdout=err,
            stderr=err,
            cwd=directory,
            env=environment(XDG_CONFIG_HOME=str(directory / "config"), NOTIFY_SOCKET=""),
        )
    try:
        yield SimpleNamespace(process=process, said=said.read_text)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, said.read_text()
        assert "Traceback" not in said.read_text()
        assert "ended by SIGTERM" in said.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_findings_run_the_command_and_save_what_came_before(tmp_path):
    command = script(tmp_path, f"cat >> {tmp_path}/in; echo from the command")
    config = f"on_finding:\n  command: [{command}]\n  record: 1min\n  directory: {tmp_path}\n"
    saved = tmp_path / "all"
    saved.mkdir()
    with watching(tmp_path, config, "--record", str(saved)) as run:
        assert wait_for(lambda: run.said().count("act for ") >= 4 or run.process.poll() is not None), run.said()
        assert run.said().count("exit status 0") >= 4
        assert "\nfrom the command\n" in run.said()
    rows = [json.loads(line) for line in (tmp_path / "in").read_text().splitlines()]
    found = {row["finding"]["id"] for row in rows}
    assert {"completion-wakeup", "starved-io", "tick-quantum", "outstanding-ceiling"} <= found
    assert len({(row["finding"]["id"], row["finding"]["device"]) for row in rows}) == len(rows)
    for row in rows:
        assert row["finding"]["id"] in row["recording"]
        assert main(["check", row["recording"]]) == 0
    (path,) = saved.glob("*.latmon.jsonl.gz")
    assert main(["check", str(path)]) == 0


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{command: mail root}", "command: expected a list of texts"),
        ("{command: [mail]}", "command: 'mail' is not the absolute path"),
        ("{command: []}", "command: expected a list"),
        ("{record: 2h}", "record: at most 1h"),
        ("{severity: bad}", "severity: 'bad' is not one of notice, warning, critical"),
        ("{shell: x}", "unknown key 'shell'; the keys are command, record, directory"),
        ("{directory: here}", "directory: 'here' is not the absolute path"),
        ("[x]", "expected a section with the keys command"),
    ],
)
def test_a_wrong_section_is_named_with_file_and_line(tmp_path, monkeypatch, capsys, section, said):
    path = tmp_path / "latmon/config.yaml"
    path.parent.mkdir()
    path.write_text(f"# first\non_finding: {section}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["watch", "--backend", "demo"]) == 2
    error = capsys.readouterr().err
    assert f"{path}:2: on_finding: {said}" in error


def test_actions_of_later_findings_run_after_one_that_failed(tmp_path, monkeypatch):
    command, real, tries = script(tmp_path, "cat > /dev/null"), headless.tempfile.TemporaryFile, []

    def full():
        tries.append(1)
        if len(tries) == 1:
            raise OSError(28, "No space left on device")
        return real()

    monkeypatch.setattr(headless.tempfile, "TemporaryFile", full)
    (_, first), (_, second) = acted([command], finding(), finding(device="sdb"))
    assert first == "on_finding failed for peer-outlier: OSError: [Errno 28] No space left on device"
    assert second == "act for peer-outlier: exit status 0"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("before", ["", "/bin/sh, "])
def test_root_runs_no_command_that_others_can_change(tmp_path, monkeypatch, capsys, before):
    command = script(tmp_path, "true")
    os.chown(command, 12_345, 12_345)
    path = tmp_path / "latmon/config.yaml"
    path.parent.mkdir()
    path.write_text(f"on_finding: {{command: [{before}{command}]}}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["watch", "--backend", "demo"]) == 3
    assert "12345" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_runs_no_script_that_others_can_make_later(tmp_path, monkeypatch, capsys):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 12_345, 12_345)
    path = tmp_path / "latmon/config.yaml"
    path.parent.mkdir()
    path.write_text(f"on_finding: {{command: [/bin/sh, {theirs}/new]}}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["watch", "--backend", "demo"]) == 3
    assert f"on_finding: {theirs}/new is not used as root, because {theirs} belongs to" in capsys.readouterr().err
