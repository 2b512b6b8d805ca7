"""`-` is standard input or output in every command, through real pipes and a real terminal."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import syslog
import termios
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from recorded import ORIGIN, frame

from latmon.cli.main import run as main
from latmon.model.frame import Frame
from latmon.recording.parts import RecordingLimits, Rotation
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.support import streams
from latmon.support.errors import EXIT_DONE, LatmonError, RecordingError, UnavailableError

REPO = Path(__file__).parents[2]
PATIENCE_S = 60
IMPORTED = REPO / "tests/golden/imports/fio.json"


def command(*words):
    """A latmon of this tree."""
    start = (
        f"import sys; sys.path[:0] = {[str(REPO), str(REPO / 'backends')]!r}; from latmon.__main__ import main; main()"
    )
    return [sys.executable, "-P", "-c", start, *map(str, words)]


def latmon(*words, given=b""):
    return subprocess.run(command(*words), input=given, capture_output=True, check=False, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    path = tmp_path_factory.mktemp("recorded") / "r"
    writer = Writer.create(path, ORIGIN)
    for seq in range(5):
        writer.append(frame(seq))
    writer.close()
    return path


@pytest.fixture
def piped(monkeypatch):
    """Standard input of this process; the copy of it is forgotten."""

    def pipe(data):
        read, write = os.pipe()
        os.write(write, data)
        os.close(write)
        monkeypatch.setattr(sys, "stdin", os.fdopen(read))
        streams._spooled.cache_clear()

    yield pipe
    streams._spooled.cache_clear()


def test_a_capture_goes_through_a_pipe_into_a_report(tmp_path):
    first = subprocess.Popen(
        command("--backend", "procfs", "--record", "-", "--duration", "1s"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    second = subprocess.run(
        command("report", "-", "--json"), stdin=first.stdout, capture_output=True, check=False, timeout=PATIENCE_S
    )
    first.stdout.close()
    text = first.stderr.read().decode()
    first.stderr.close()
    assert (first.wait(PATIENCE_S), second.returncode, second.stderr) == (0, 0, b"")
    assert json.loads(second.stdout)["backend"] == "procfs"
    assert "recording to standard output with procfs" in text
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_goes_away_ends_a_capture_quietly(tmp_path):
    capture = subprocess.Popen(
        command("--backend", "procfs", "--interval", "100ms", "--record", "-"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert capture.stdout.read(10)
    capture.stdout.close()
    text = capture.stderr.read().decode()
    capture.stderr.close()
    assert capture.wait(PATIENCE_S) == EXIT_DONE
    assert text.splitlines()[-1] == "latmon: the reader of standard output has closed it"
    assert "Traceback" not in text


def test_demo_and_import_write_to_a_pipe(tmp_path):
    for words in (("demo", "emulex", "--record", "-", "--duration", "3s"), ("import", "-", "-o", "-")):
        done = latmon(*words, given=IMPORTED.read_bytes())
        assert done.returncode == 0, done.stderr
        (tmp_path / "r").write_bytes(done.stdout)
        assert any(isinstance(one, Frame) for one in open_recording(tmp_path / "r"))


@pytest.mark.parametrize(
    "words",
    [
        ("report", "-"),
        ("report", "-", "--json"),
        ("report", "--html", "-", "-"),
        ("check", "-"),
        ("diff", "-", "FILE"),
        ("export", "-", "--to", "csv", "-o", "-"),
    ],
)
def test_readers_take_a_pipe(recorded, piped, capfd, words):
    piped(recorded.read_bytes())
    assert main([str(recorded) if word == "FILE" else word for word in words]) == 0
    assert capfd.readouterr().out


def test_a_clean_copy_goes_through_pipes(recorded, tmp_path):
    done = latmon("check", "-", "--repair", "-o", "-", given=recorded.read_bytes()[:-60])
    assert done.returncode == 0
    assert b"ended without a closing line" in done.stderr
    (tmp_path / "r").write_bytes(done.stdout)
    assert main(["check", str(tmp_path / "r")]) == 0


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("report", "-", "-"), 2, "standard input, which is one file"),
        (("diff", "-", "-"), 2, "standard input, which is one file"),
        (("--record", "-", "--max-size", "3M"), 2, "--max-size needs a file"),
        (("--record", "-", "--keep", "3h"), 2, "--keep needs a file"),
        (("--record", "-", "--tui"), 2, "--tui needs a file"),
        (("report", "-"), 5, "standard input is not a latmon recording"),
    ],
)
def test_what_can_t_be_piped_is_refused(piped, capsys, words, code, text):
    piped(b"no recording")
    assert main(list(words)) == code
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert text in err


def test_what_is_piped_in_is_bounded(piped, monkeypatch):
    monkeypatch.setattr(streams, "MAX_BYTES", 100)
    piped(b"x" * 101)
    with pytest.raises(RecordingError, match="standard input has more than"):
        streams.readable(Path("-"))


def test_standard_output_is_one_part(tmp_path, monkeypatch):
    """Neither a day nor a size begins another one."""
    with (tmp_path / "out").open("wb") as out:
        monkeypatch.setattr(sys, "__stdout__", out)
        rotation = Rotation.create(Path("-"), ORIGIN, RecordingLimits(keep_us=1_000_000))
        for seq in range(5):
            rotation.append(frame(seq))
        rotation.close()
    assert sum(isinstance(one, Frame) for one in open_recording(tmp_path / "out")) == 5
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


class Terminal:
    """A child whose controlling terminal is a pty; `given` is its standard input, which else is that terminal."""

    def __init__(self, *words, given=None):
        self.seen = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            if given is not None:
                read, write = os.pipe()
                os.write(write, given)
                os.close(write)
                os.dup2(read, 0)
            clean = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
            os.execve(sys.executable, command(*words), clean | {"TERM": "xterm-256color"})

    def read(self, until=None):
        """Until that was written, or to the end; False after PATIENCE_S."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and not (until and until in self.seen):
            if select.select([self.fd], [], [], 1)[0]:
                try:
                    self.seen += os.read(self.fd, 1 << 16)
                except OSError:
                    return until is None
        return until is not None and until in self.seen

    def code(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.mark.parametrize(
    "words",
    [
        *(pytest.param(one, marks=pytest.mark.slow) for one in (("--record", "-"), ("demo", "--record", "-"))),
        ("import", str(IMPORTED), "-o", "-"),
    ],
)
def test_a_terminal_gets_no_recording(words):
    terminal = Terminal(*words)
    assert terminal.read()
    assert terminal.code() == 2
    assert b"a recording is binary, and standard output is a terminal" in terminal.seen
    assert b"\x1f\x8b" not in terminal.seen


@pytest.mark.parametrize(
    "words",
    [
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in (("report", "-"), ("import", "-", "-o", "/nonexistent/out"))
        ),
        ("check", "-"),
    ],
)
def test_a_file_is_not_typed(words):
    terminal = Terminal(*words)
    assert terminal.read()
    assert terminal.code() == 2
    assert b"pipe a file into it" in terminal.seen


WRITERS = {
    "live": ("--backend", "procfs", "--record", "-", "--duration", "1s"),
    "demo": ("demo", "--record", "-", "--duration", "1s"),
    "import": ("import", str(IMPORTED), "-o", "-"),
    "repair": ("check", "FILE", "--repair", "-o", "-"),
    "export": ("export", "FILE", "--to", "csv", "-o", "-"),
    "report": ("report", "FILE"),
    "once": ("--backend", "procfs", "--once"),
    "replay": ("replay", "FILE", "--once"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "how", "why"),
    [(name, ">/dev/full", "No space left on device") for name in WRITERS]
    + [(name, ">&-", "it is not open for writing") for name in ("live", "report", "repair")],
)
def test_a_standard_output_that_takes_nothing(recorded, name, how, why):
    words = command(*(str(recorded) if one == "FILE" else one for one in WRITERS[name]))
    done = subprocess.run(
        ["sh", "-c", f'"$@" {how}', "sh", *words], capture_output=True, check=False, timeout=PATIENCE_S, text=True
    )
    assert done.returncode == 3, done.stderr
    assert f"latmon: can't write to stdout: {why}" in done.stderr.splitlines()


def test_a_piped_replay_takes_its_keys_from_the_terminal(recorded):
    terminal = Terminal("replay", "-", "--speed", "0", given=recorded.read_bytes())
    assert terminal.read(b"REPLAY"), terminal.seen
    os.write(terminal.fd, b"q")
    assert terminal.read()
    assert terminal.code() == 0


def test_a_piped_replay_without_a_terminal_says_so(recorded):
    done = subprocess.run(
        command("replay", "-"),
        stdin=recorded.open("rb"),
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
        start_new_session=True,
    )
    assert done.returncode == 3
    assert b"keys can't be read from /dev/tty" in done.stderr


@pytest.mark.parametrize(("stream", "begin"), [("pipe", "<6>latmon: "), ("other", "latmon: "), ("", "latmon: ")])
def test_lines_of_a_service_have_a_level_on_the_journals_stream_alone(monkeypatch, stream, begin):
    """A terminal of a systemd user session has the variable of another stream."""
    reading, writing = os.pipe()
    status = os.fstat(writing)
    names = {"pipe": f"{status.st_dev}:{status.st_ino}", "other": f"{status.st_dev}:{status.st_ino + 1}", "": ""}
    monkeypatch.setenv("JOURNAL_STREAM", names[stream])
    with os.fdopen(writing, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        streams.ServiceLog()(syslog.LOG_INFO, "ready")
    with os.fdopen(reading) as lines:
        assert lines.read() == f"{begin}ready\n"


@pytest.mark.parametrize(
    ("least", "logged"), [(streams.QUIET, "ew"), (streams.NORMAL, "ewi"), (streams.VERBOSE, "ewid")]
)
def test_a_log_has_what_is_important_enough_on_stderr_and_in_its_file(tmp_path, least, logged):
    out, path = io.StringIO(), tmp_path / "log"
    path.write_text("before\n")
    log = streams.ServiceLog(out, least=least, file=streams.LogFile(path))
    levels = (syslog.LOG_ERR, syslog.LOG_WARNING, syslog.LOG_INFO, syslog.LOG_DEBUG)
    for level, text in zip(levels, "ewid", strict=True):
        log(level, text)
    assert out.getvalue() == "".join(f"latmon: {text}\n" for text in logged)
    before, *lines = path.read_text().splitlines()
    assert before == "before"
    assert [line.rpartition(": ")[2] for line in lines] == list(logged)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ error latmon\[\d+\]: e", lines[0])


def test_a_log_file_is_the_users_alone_and_no_sentence_makes_two_lines(tmp_path):
    path = tmp_path / "log"
    streams.ServiceLog(io.StringIO(), file=streams.LogFile(path))(syslog.LOG_INFO, "a\nb\x1b[31m")
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(path.read_text().splitlines()) == 1
    assert "\x1b" not in path.read_text()


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("link", "it is a link"),
        ("fifo", "it is a pipe or a socket"),
        ("directory", "it is a directory"),
        ("absent directory", "No such file"),
    ],
)
def test_a_log_file_is_a_regular_one(tmp_path, kind, why):
    path = tmp_path / "log"
    if kind == "link":
        path.symlink_to(tmp_path / "other")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path = path / "log"
    with pytest.raises(UnavailableError, match=rf"^--log-file .*: {why}.*; name a"):
        streams.LogFile(path)
    assert not (tmp_path / "other").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("kind", ["file", "directory", "directory above", "hard link", "for all users"])
def test_root_logs_to_no_file_of_another_user(tmp_path, kind):
    path = tmp_path / "logs" / "log"
    path.parent.mkdir()
    path.write_text("before")
    if kind == "hard link":
        os.link(path, tmp_path / "other")
    elif kind == "for all users":
        path.chmod(0o666)
    else:
        os.chown({"file": path, "directory": path.parent, "directory above": tmp_path}[kind], 65534, 65534)
    with pytest.raises(
        LatmonError, match=r"^--log-file .*log is not written as root, because .*: .*name a file in a dir"
    ):
        streams.LogFile(path)
    assert path.read_text() == "before"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_may_log_to_a_file_of_its_own_in_a_directory_like_tmp(tmp_path):
    """Others can't replace what isn't theirs where the directory has the sticky bit."""
    tmp_path.chmod(0o1777)
    for _ in range(2):  # a new file, and the same one again
        assert not streams.LogFile(tmp_path / "log").write(syslog.LOG_INFO, "a")
    assert len((tmp_path / "log").read_text().splitlines()) == 2
    (tmp_path / "theirs").touch()
    os.chown(tmp_path / "theirs", 65534, 65534)
    with pytest.raises(LatmonError, match="belongs to"):
        streams.LogFile(tmp_path / "theirs")


def test_a_line_that_a_full_disk_cut_off_is_ended_before_the_next(tmp_path, monkeypatch):
    path, write = tmp_path / "log", os.write
    log = streams.LogFile(path)
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:30]))
        assert log.write(syslog.LOG_INFO, "a") == "No space left on device"
        assert not log.write(syslog.LOG_INFO, "b")
    assert not log.write(syslog.LOG_INFO, "c")
    assert not log.write(syslog.LOG_INFO, "d")
    lines = path.read_text().splitlines()
    assert [len(line) for line in lines[:2]] == [30, 29]
    assert lines[2].endswith(": c (2 lines before this one could not be written)")
    assert lines[3].endswith(": d")
    assert len(lines) == 4


def test_lines_that_a_full_disk_lost_are_reported_once_and_counted(tmp_path, monkeypatch):
    out, path = io.StringIO(), tmp_path / "log"
    log = streams.ServiceLog(out, file=streams.LogFile(path))
    with monkeypatch.context() as full:
        full.setattr(os, "write", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        for text in "abc":
            log(syslog.LOG_INFO, text)
    log(syslog.LOG_INFO, "d")
    assert out.getvalue().count("the log file can't be written: No space left on device") == 1
    assert path.read_text().endswith("d (3 lines before this one could not be written)\n")


def test_what_a_task_waits_for_is_a_line_that_is_removed(monkeypatch):
    out = io.StringIO()
    out.isatty = lambda: True
    monkeypatch.setattr(streams.sys, "stderr", out)
    monkeypatch.setattr(streams, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(streams, "_BETWEEN_S", 0.0)
    monkeypatch.setenv("COLUMNS", "40")
    with streams.Progress("waiting for") as progress:
        progress.wait(["db1: connecting", "db2: starting\x1b[31m", "db3: connecting"])
        assert out.getvalue() == "\rlatmon: waiting for db1: connecting, db"
        progress.wait(())
        assert out.getvalue().endswith("\r" + " " * 39 + "\r")
    assert out.getvalue().count("\r") == 3
