"""The real command line: exit codes, one sentence per refusal, data on stdout, nothing of Textual without a screen."""

import gzip
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from shutil import copyfile

import pytest

from latmon.cli import commands, headless
from latmon.cli.config import Config
from latmon.cli.main import run as main
from latmon.model.frame import Frame, Mark
from latmon.recording.codec import End
from latmon.recording.reader import open_recording
from latmon.support import privileges
from latmon.support.errors import UnavailableError, UsageError

NOBODY = {"SUDO_UID": "65534", "SUDO_GID": "65534"}
EVE = {"SUDO_UID": "64123", "SUDO_GID": "64123"}
"""A user that this host doesn't list, so its home is known from the environment only."""
ROOT = Path(__file__).resolve().parents[2]
RECORDING = ROOT / "tests/golden/recording-1.1.latmon.jsonl.gz"
SYSTEM_PYTHON = "/usr/bin/python3"
"""One that every user may read, unlike the tests' own."""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")
as_anyone = pytest.mark.skipif(
    not Path(SYSTEM_PYTHON).exists()
    or subprocess.run([SYSTEM_PYTHON, "-c", "import enum; enum.StrEnum"], capture_output=True, check=False).returncode
    or not all(path.stat().st_mode & 0o005 == 0o005 for path in (ROOT, *ROOT.parents)),
    reason="needs a Python 3.11 and a checkout that every user can read",
)


@pytest.fixture
def latmon(tmp_path):
    def run(*words, cwd=tmp_path, code=None, python=sys.executable, **environ):
        roots = os.pathsep.join((str(ROOT), str(ROOT / "backends")))
        homes = {
            "HOME": str(tmp_path),
            "XDG_CONFIG_HOME": str(tmp_path / "cfg"),
            "XDG_STATE_HOME": str(tmp_path / "st"),
        }
        start = ["-m", "latmon"] if code is None else ["-c", code]
        return subprocess.run(
            [python, *start, *words],
            env={**os.environ, "PYTHONPATH": roots, "TERM": "xterm", **homes, **environ},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def here(tmp_path, monkeypatch, capfd):
    """The command line in this process, with neither a terminal nor input."""

    def run(*words, **environ):
        monkeypatch.chdir(tmp_path)
        homes = {"HOME": tmp_path, "XDG_CONFIG_HOME": tmp_path / "cfg", "XDG_STATE_HOME": tmp_path / "st"}
        for name, value in {"PATH": os.environ["PATH"], "TERM": "xterm", **homes, **environ}.items():
            monkeypatch.setenv(name, str(value))
        capfd.readouterr()
        code = main(list(words))
        return subprocess.CompletedProcess(words, code, *capfd.readouterr())

    return run


def is_one_sentence(done):
    """The lines after those on the start and the file, where it came that far."""
    ahead = ("latmon: starting, nothing is recorded yet", "latmon: the recording lies on ")
    sentences = [line for line in done.stderr.splitlines(keepends=True) if not line.startswith(ahead)]
    return (
        done.stdout == ""
        and len(sentences) == 1
        and sentences[0].startswith("latmon: ")
        and sentences[0].endswith("\n")
    )


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("", 3, "latmon --record FILE --duration 60s"),
        ("demo", 3, "latmon demo host --once"),
        ("demo --tour", 3, "latmon demo host --once"),
        (f"replay {RECORDING}", 3, f"latmon report {RECORDING}"),
        ("--record f --tui --backend demo", 3, "no terminal"),
        ("--interval 1y", 2, "--interval: '1y'"),
        ("--backend nope", 2, "--backend: there is no 'nope'"),
        ("--backend procfs --invasive x --once", 2, "--invasive needs --backend dtrace"),
        ("--backend replay", 2, "--backend"),
        ("demo nope", 2, "there is no demo 'nope'"),
        (
            "demo e810-healthy --tour",
            2,
            "no tour of the demo 'e810-healthy'; the tours are bubbles, e810",
        ),
        ("demo nope --tour", 2, "there is no demo 'nope'"),
        ("demo nope --record f", 2, "there is no demo 'nope'"),
        ("nope", 2, "there is no command 'nope'"),
        ("probes show nope", 2, "there is no probe 'nope'"),
        ("rules show nope", 2, "there is no rule 'nope'"),
        ("report nope", 5, "nope"),
        ("--record no/such/dir/f", 3, "there is no directory"),
        ("--record /proc/f", 3, "can't record"),
        ("--backend bpftrace --record f", 3, "bpftrace"),
        ("--backend bpftrace --once", 3, "bpftrace"),
        ("--inline", 3, "--inline is drawn on stdout, and that is no terminal: use --once"),
        ("demo --inline", 3, "use --once"),
        (f"replay {RECORDING} --inline", 3, "use --once"),
        ("replay nope --once", 5, "nope"),
        ("demo --svg no/such/dir/f --duration 1s", 3, "can't write"),
    ],
)
def test_refusals(here, words, code, text, tmp_path):
    done = here(*words.split(), LATMON_BPFTRACE="/nonexistent/bpftrace")
    assert done.returncode == code, done.stderr
    assert text in done.stderr
    assert is_one_sentence(done), done
    assert not (tmp_path / "f").exists()


def test_a_refusal_of_a_process_is_the_same(latmon):
    done = latmon("demo", "nope")
    assert done.returncode == 2
    assert is_one_sentence(done), done


@pytest.mark.parametrize(
    "term", ["dumb", pytest.param("", marks=pytest.mark.slow), pytest.param("unknown", marks=pytest.mark.slow)]
)
def test_a_terminal_that_cannot_be_drawn_on(term, tmp_path):
    code = f"import os, pty; os.environ['TERM'] = {term!r}; "
    code += "raise SystemExit(os.waitstatus_to_exitcode(pty.spawn([__import__('sys').executable, '-m', 'latmon'])))"
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "can't be drawn on" in done.stdout


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "can't be read: No such file"),
        (b"garbage", "is not a latmon recording"),
        (RECORDING.read_bytes()[:600], "contains no window to draw; `latmon check` names the damage"),
    ],
)
def test_what_cannot_be_replayed_is_reported_before_a_missing_terminal(here, tmp_path, content, why):
    if content is not None:
        (tmp_path / "f").write_bytes(content)
    done = here("replay", "f")
    assert done.returncode == 5
    assert f"f {why}" in done.stderr
    assert is_one_sentence(done)


@pytest.mark.parametrize(("make", "why"), [(os.mkfifo, "FIFO"), (os.mkdir, "directory"), (Path.touch, "exists")])
def test_targets_that_are_there(here, tmp_path, make, why):
    make(tmp_path / "f")
    done = here("--record", "f", "--backend", "demo")
    assert done.returncode == 3
    assert why in done.stderr
    assert is_one_sentence(done)


def test_a_link_is_not_followed(here, tmp_path):
    (tmp_path / "f").symlink_to(tmp_path / "elsewhere")
    done = here("--record", "f", "--backend", "demo")
    assert done.returncode == 3
    assert "symbolic link" in done.stderr
    assert not (tmp_path / "elsewhere").exists()


def test_a_capture_and_its_report(latmon, here, tmp_path):
    done = latmon("--record", "f", "--backend", "procfs", "--duration", "2s", "--interval", "400ms")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "ended after 2s as asked" in done.stderr
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600
    items = list(open_recording(tmp_path / "f"))
    assert 4 <= len([frame for frame in items if isinstance(frame, Frame)]) <= 6
    assert isinstance(items[-1], End)
    report = here("report", "f", "--json")
    assert report.returncode == 0
    assert json.loads(report.stdout)["schema"] == "latmon.report/1"


def test_a_demos_recording_is_the_same_bytes_for_the_same_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(headless, "DEMO_WINDOWS", 2)
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert main(["demo", "--seed", seed, "--record", str(tmp_path / name)]) == 0
    first, again, other = ((tmp_path / name).read_bytes() for name in "abc")
    assert first == again
    assert gzip.decompress(first) != gzip.decompress(other)
    assert len([frame for frame in open_recording(tmp_path / "a") if isinstance(frame, Frame)]) == 2


def test_one_window_of_a_demo_is_reported_in_the_singular(tmp_path, capsys):
    headless.record_demo("host", 1, tmp_path / "r", 1_000_000)
    assert capsys.readouterr().err.startswith("latmon: 1 window of host, seed 1, is in ")


def test_a_demo_s_recording_is_as_long_as_is_asked_for(tmp_path):
    assert main(["demo", "serialised", "--record", str(tmp_path / "f"), "--duration", "7s"]) == 0
    assert len([frame for frame in open_recording(tmp_path / "f") if isinstance(frame, Frame)]) == 7


def test_lists_are_data(here):
    assert here("demo", "--list").stdout.startswith("host ")
    assert "tier" in here("probes", "show", here("probes").stdout.split()[0]).stdout


def test_a_reader_that_has_enough_is_no_failure(latmon):
    code = "import os, sys; r, w = os.pipe(); os.close(r); os.dup2(w, 1)\n"
    code += "from latmon.__main__ import main; sys.exit(main())"
    done = latmon("report", str(RECORDING), code=code)
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_current_directory_that_was_removed_is_a_sentence(latmon):
    code = (
        "import os, tempfile; os.chdir(tempfile.mkdtemp()); os.rmdir(os.getcwd())\n"
        "from latmon.__main__ import main; main()"
    )
    shown = latmon("export", str(RECORDING), "--to", "csv", "-o", "a", code=code)
    assert (shown.returncode, shown.stdout) == (3, "")
    assert shown.stderr == "latmon: the current directory was removed: change to one that exists\n"
    assert latmon("report", str(RECORDING), code=code).returncode == 0


def test_another_file_that_is_not_there_is_no_matter_of_the_current_directory(monkeypatch):
    monkeypatch.setattr(commands, "run", lambda _: Path("/none/there").read_bytes())
    with pytest.raises(FileNotFoundError, match="/none/there"):
        main(["probes"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("words", ["export F --to csv -o -", "demo --duration 2s --svg -", "check F --repair -o -"])
def test_an_error_output_that_is_full_costs_no_output(latmon, tmp_path, words):
    code = (
        "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 2)\n"
        "os.dup2(os.open('out', os.O_WRONLY | os.O_CREAT), 1)\n"
        "from latmon.__main__ import main; main()"
    )
    assert latmon(*words.replace("F", str(RECORDING)).split(), code=code).returncode == 0
    assert (tmp_path / "out").stat().st_size > 1000


def test_a_capture_that_a_signal_ends_before_it_began_is_not_done(latmon, tmp_path):
    code = (
        "import os, signal, threading; from latmon.cli import headless\n"
        "headless.RecordingProgress.starting = lambda *_: os.kill(os.getpid(), signal.SIGTERM)\n"
        "from latmon.__main__ import main; main()"
    )
    ended = latmon("--backend", "procfs", "--record", str(tmp_path / "r"), code=code)
    assert (ended.returncode, (tmp_path / "r").exists()) == (143, False)
    assert ended.stderr.endswith("latmon: ended by SIGTERM: nothing was recorded\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(("words", "unbuffered"), [("export F --to jsonl -o -", "1"), ("-h", "")])
def test_a_full_disk_behind_stdout_is_reported_in_a_sentence(latmon, words, unbuffered):
    code = "import os, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)\n"
    code += "from latmon.__main__ import main; sys.exit(main())"
    done = latmon(*words.replace("F", str(RECORDING)).split(), code=code, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (3, "latmon: can't write to stdout: No space left on device\n")


def config(tmp_path, text):
    (tmp_path / "cfg/latmon").mkdir(parents=True)
    (tmp_path / "cfg/latmon/config.yaml").write_text(text)


def test_the_config_is_the_default_and_an_option_beats_it(latmon, tmp_path):
    config(tmp_path, "backend: procfs\ninterval: 60s\n")
    assert latmon("--record", "f", "--duration", "800ms", "--interval", "400ms").returncode == 0
    recording = open_recording(tmp_path / "f")
    assert (recording.origin.backend, recording.origin.interval_us) == ("procfs", 400_000)


def test_the_environment_beats_the_config(here, tmp_path):
    config(tmp_path, "backend: bpftrace\nbpftrace: /from/config\n")
    assert "/from/config" in here("--record", "f", LATMON_BPFTRACE="").stderr
    assert "/from/environment" in here("--record", "f", LATMON_BPFTRACE="/from/environment").stderr


@as_root
def test_a_tool_of_the_config_is_run_and_redacted(latmon, tmp_path):
    """Under root a tool has to print its version. Its name has a blank, so that no pattern finds it as a whole."""
    tool = tmp_path / "private tool"
    tool.write_text("#!/bin/sh\necho something else\n")
    tool.chmod(0o755)
    config(tmp_path, f"bpftrace: {tool}\n")
    refused = latmon("--record", "f", "--duration", "500ms", "--backend", "bpftrace")
    assert f"LATMON_BPFTRACE: {tool} is no bpftrace" in refused.stderr
    latmon("--record", "r", "--duration", "500ms", "--redact")
    assert "LATMON_BPFTRACE: redacted is no bpftrace" in open_recording(tmp_path / "r").origin.reason


def test_a_mistake_in_the_config_names_file_and_key(here, tmp_path):
    config(tmp_path, "interval: soon\n")
    done = here("--record", "f")
    assert done.returncode == 2
    assert "cfg/latmon/config.yaml:1: interval: 'soon'" in done.stderr
    assert is_one_sentence(done)


@pytest.fixture
def nobodys():
    """A directory of the user nobody; pytest's own is closed to all but root."""
    with tempfile.TemporaryDirectory() as made:
        os.chown(made, 65534, 65534)
        yield Path(made)


@as_root
@as_anyone
def test_under_sudo_the_recording_is_the_users(latmon, nobodys):
    words = ("--record", "f", "--backend", "procfs", "--duration", "200ms", "--interval", "100ms")
    done = latmon(*words, cwd=nobodys, python=SYSTEM_PYTHON, **NOBODY)
    assert done.returncode == 0, done.stderr
    assert ((nobodys / "f").stat().st_uid, (nobodys / "f").stat().st_gid) == (65534, 65534)


@as_root
@as_anyone
def test_under_sudo_a_directory_of_roots_is_refused_at_once(latmon, tmp_path):
    done = latmon("--record", str(tmp_path / "f"), "--backend", "demo", python=SYSTEM_PYTHON, **NOBODY)
    assert done.returncode == 3
    assert "can't record to" in done.stderr
    assert is_one_sentence(done)


LONG = "x" * 5000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("report", LONG), 5),
        (("import", LONG, "-o", "-"), 5),
        (("diff", f"{LONG}@a", LONG), 5),
        (("config", "check", LONG), 2),
        (("demo", "emulex", "--record", f"{LONG}/"), 2),
        (("fleet", "localhost", "--record", LONG), 3),
        (("watch", "--record", LONG), 3),
    ],
)
def test_a_name_that_is_too_long_is_refused_in_one_sentence(latmon, tmp_path, words, code):
    """Path.is_file and its like raise OSError for it, as they do below a directory of another user."""
    done = latmon(*words)
    assert (done.returncode, done.stdout) == (code, "")
    assert is_one_sentence(done)
    assert not (tmp_path / "st/latmon/crash.log").exists()


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("/nope", "--password-file /nope: No such file or directory"),
        ("/dev/zero", "--password-file /dev/zero: its first line has more than 4096 bytes"),
        ("/proc/self/exe", "--password-file /proc/self/exe: its first line is no text in UTF-8"),
    ],
)
def test_a_password_file_that_is_none_is_refused_in_one_sentence(here, file, why):
    done = here("--backend", "prometheus", "--url", "http://127.0.0.1:1", "--password-file", file, "--once")
    assert done.stderr.startswith(f"latmon: {why}")
    assert is_one_sentence(done)


def test_a_password_from_a_pipe_is_waited_for(tmp_path):
    """Such as of <(pass prometheus), which asks for a passphrase first."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write():
        with pipe.open("w") as file:
            for part in ("se", "cret\r\nmore"):
                time.sleep(0.1)
                file.write(part)
                file.flush()

    thread = threading.Thread(target=write)
    thread.start()
    assert commands._password(pipe) == "secret"
    thread.join()


@pytest.mark.parametrize("has_writer", [False, True])
def test_a_password_from_a_pipe_to_which_none_is_written_is_refused(tmp_path, monkeypatch, has_writer):
    monkeypatch.setattr(commands, "_PASSWORD_S", 0.3)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    if has_writer:
        os.write(writer, b"half a line")
    else:
        os.close(writer)
    with pytest.raises(
        UsageError, match=r"no complete first line after 0\.3 s; name a file whose first line is the pass"
    ):
        commands._password(pipe)
    if has_writer:
        os.close(writer)


def test_a_directory_of_settings_that_cannot_exist_is_none(here):
    done = here("report", str(RECORDING), XDG_STATE_HOME=f"/{LONG}", XDG_CACHE_HOME=f"/{LONG}")
    assert (done.returncode, done.stderr) == (0, "")


def test_lines_of_a_recording_packed_by_hand_are_imported_as_the_report_advises(here, tmp_path):
    (tmp_path / "packed.gz").write_bytes(gzip.compress(gzip.decompress(RECORDING.read_bytes())))
    advice = here("report", "packed.gz")
    assert advice.returncode == 5
    assert "latmon import" in advice.stderr
    assert here("import", "packed.gz", "-o", "out.gz").returncode == 0
    assert here("report", "out.gz").returncode == 0


@as_root
def test_under_sudo_an_installation_that_the_user_cannot_read_is_refused(latmon, tmp_path):
    (tmp_path / "latmon").symlink_to(ROOT / "latmon")
    tmp_path.chmod(0o700)
    done = latmon("--record", "f", "--backend", "demo", PYTHONPATH=str(tmp_path), **NOBODY)
    assert done.returncode == 3
    assert "can't read" in done.stderr
    assert is_one_sentence(done)


@as_root
@as_anyone
def test_under_sudo_a_report_is_read_as_the_user(latmon, nobodys):
    copyfile(RECORDING, nobodys / "f")
    (nobodys / "f").chmod(0o600)
    refused = latmon("report", "f", cwd=nobodys, python=SYSTEM_PYTHON, **NOBODY)
    assert refused.returncode == 5
    assert "Permission denied" in refused.stderr
    os.chown(nobodys / "f", 65534, 65534)
    assert latmon("report", "f", cwd=nobodys, python=SYSTEM_PYTHON, **NOBODY).returncode == 0


@pytest.fixture
def tools(tmp_path):
    """A search path of root's: its bpftrace and dtrace refuse to run, so that nothing is measured."""
    directory = tmp_path / "tools"
    directory.mkdir()
    for name in ("bpftrace", "dtrace"):
        (directory / name).write_text("#!/bin/sh\necho 'ERROR: the tool of root' >&2\nexit 1\n")
        (directory / name).chmod(0o755)
    return f"{directory}:/usr/bin:/bin"


@pytest.fixture
def attack(nobodys):
    """Settings of eve's that name a tool of eve's; it leaves a mark, with the uid that ran it."""
    tool = nobodys / "tool"
    tool.write_text(f"#!/bin/sh\nid -u >>{nobodys}/ran\nexit 1\n")
    tool.chmod(0o755)
    config(nobodys, f"theme: light\nbpftrace: {tool}\ndtrace: {tool}\n")
    subprocess.run(["chown", "-R", "64123:64123", nobodys], check=True)
    return tool


@pytest.fixture
def as_started(monkeypatch, nobodys, tools, tmp_path):
    """This process as sudo, or a shell of root's, would start it with a variable."""

    def become(variable, value, who):
        monkeypatch.chdir(tmp_path if not who["SUDO_UID"] else nobodys)  # who is to record must be able to write there
        monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
        monkeypatch.setattr(privileges, "need_readable", lambda *_any: None)
        for drop in ("drop_root", "drop_all"):  # for good, were it to come so far
            monkeypatch.setattr(privileges, drop, lambda _user: None)
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
        for name, set_to in {"PATH": tools, "HOME": "/nowhere", variable: str(value), **who}.items():
            monkeypatch.setenv(name, set_to)

    return become


def ran(tool):
    return (tool.parent / "ran").exists()


RECORD = ("--record", "f", "--backend", "bpftrace", "--duration", "200ms")


@as_root
@as_anyone
@pytest.mark.parametrize(
    "words",
    [RECORD, ("doctor",), pytest.param(("doctor", "--json"), marks=pytest.mark.slow)],
    ids=["record", "doctor", "json"],
)
def test_under_sudo_the_users_settings_name_no_tool(latmon, nobodys, attack, tools, words):
    cfg = str(nobodys / "cfg")
    done = latmon(*words, cwd=nobodys, python=SYSTEM_PYTHON, PATH=tools, XDG_CONFIG_HOME=cfg, HOME="/", **EVE)
    assert not ran(attack), "a tool of the user's ran as root"
    assert f"{cfg}/latmon/config.yaml: bpftrace and dtrace are ignored under sudo" in done.stderr + done.stdout
    assert "name the tool in /etc/xdg/latmon/config.yaml instead" in done.stderr + done.stdout
    assert "the tool of root" in done.stderr + done.stdout


@as_root
@pytest.mark.parametrize("who", [{"SUDO_UID": ""}, EVE], ids=["root", "sudo"])
@pytest.mark.parametrize("words", [RECORD, ("doctor",), ("doctor", "--self-test"), ("--backend", "procfs")])
@pytest.mark.parametrize("variable", ["LATMON_BPFTRACE", "LATMON_DTRACE", "LATMON_KSTAT"])
def test_root_runs_no_tool_that_a_variable_names(as_started, capsys, attack, *, words, who, variable):
    as_started(variable, attack, who)
    assert main(list(words)) == 3
    text = capsys.readouterr()
    assert text.out == ""
    assert text.err.startswith(f"latmon: {variable}={attack} is not used as root, because {attack.parent} belongs to ")
    assert text.err.endswith("uid 64123: put it where only root can write, such as /usr/local/bin\n")
    assert not ran(attack)


@as_root
@pytest.mark.parametrize("words", [RECORD, ("doctor",)], ids=["record", "doctor"])
def test_root_without_sudo_takes_no_tool_from_settings_of_another_user(latmon, nobodys, attack, tools, words):
    done = latmon(*words, PATH=tools, XDG_CONFIG_HOME=str(nobodys / "cfg"), SUDO_UID="")
    assert done.returncode == 3
    assert is_one_sentence(done), done
    assert f"bpftrace: {attack} in {nobodys}/cfg/latmon/config.yaml is not used as root, because" in done.stderr
    assert "belongs to uid 64123" in done.stderr
    assert "name the tool in /etc/xdg/latmon/config.yaml instead" in done.stderr
    assert not ran(attack)


@as_root
def test_settings_of_another_user_that_name_no_tool_stay_usable(latmon, nobodys, tmp_path):
    config(nobodys, "backend: procfs\ninterval: 200ms\n")
    subprocess.run(["chown", "-R", "64123:64123", nobodys], check=True)
    done = latmon("--record", "f", "--duration", "200ms", XDG_CONFIG_HOME=str(nobodys / "cfg"), SUDO_UID="")
    assert done.returncode in (0, 4), done.stderr  # a busy host may leave a gap
    assert open_recording(tmp_path / "f").origin.interval_us == 200_000


HELPERS = """
import os, subprocess, sys
from latmon.capture.session import COLLECTOR
from latmon_backends.probe.launcher import STARTER
path = os.pathsep.join(sys.path[1:])
for words in (COLLECTOR, STARTER):
    subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.DEVNULL, check=False)
"""


@as_anyone
def test_python_runs_nothing_of_the_users_home_in_a_helper_process(latmon, tmp_path):
    """Under sudo these processes start as root with the user's HOME."""
    version = subprocess.run(
        [
            SYSTEM_PYTHON,
            "-c",
            "import sysconfig; print(sysconfig.get_path('purelib', 'posix_user', {'userbase': '.local'}))",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    home = tmp_path / "home"
    (home / version).mkdir(parents=True)
    (home / version / "usercustomize.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('x')\n")
    latmon(code="import os", python=SYSTEM_PYTHON, HOME=str(home))
    if not (tmp_path / "ran").exists():
        pytest.skip("this Python looks for nothing in the home directory")
    (tmp_path / "ran").unlink()
    latmon(code=HELPERS, python=SYSTEM_PYTHON, HOME=str(tmp_path / "elsewhere"))
    assert not (tmp_path / "ran").exists()
    done = latmon(
        code=f"import os; os.environ['HOME'] = {str(home)!r}\n{HELPERS}", python=SYSTEM_PYTHON, HOME="/nowhere"
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists(), "it ran usercustomize.py"


@as_root
@as_anyone
def test_under_sudo_a_crash_is_written_down_as_the_user(latmon, nobodys, tmp_path):
    """Its directory may be a link to one of root's."""
    (tmp_path / "roots").mkdir()
    (nobodys / "latmon").symlink_to(tmp_path / "roots")
    code = "from latmon.cli import main; main.install(); raise ZeroDivisionError"
    done = latmon(code=code, cwd="/", python=SYSTEM_PYTHON, HOME="/", XDG_STATE_HOME=str(nobodys), **NOBODY)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "could not be kept" in done.stderr
    assert not list((tmp_path / "roots").iterdir())


SCREEN = """
import os, sys, types
app = types.ModuleType("latmon.tui.app")
app.run = lambda *_args, **_more: print(os.getresuid()) or 0
sys.modules["latmon.tui.app"], sys.modules["latmon.tui.app"] = types.ModuleType("latmon.tui.app"), app
from latmon.cli.main import run as main
from latmon.cli import commands
commands._need_terminal = lambda _instead, **_how: None
commands._screen = lambda *_args: None  # this Python may lack the packages that draw
sys.exit(main(sys.argv[1:]))
"""


@as_root
@as_anyone
def test_under_sudo_a_replay_is_drawn_by_the_user(latmon, nobodys):
    (nobodys / "f").write_bytes(RECORDING.read_bytes())
    done = latmon("replay", "f", cwd=nobodys, code=SCREEN, python=SYSTEM_PYTHON, **NOBODY)
    assert (done.returncode, done.stdout) == (0, "(65534, 65534, 65534)\n"), done.stderr


def test_a_tool_of_the_config_is_meant_by_its_key(monkeypatch):
    for name in ("LATMON_DTRACE", "LATMON_BPFTRACE"):
        monkeypatch.setenv(name, "")
    assert commands._tools(Config({"dtrace": "/bin/sh"})) == {"LATMON_DTRACE": "/bin/sh"}
    assert os.environ["LATMON_DTRACE"] == ""
    monkeypatch.setenv("LATMON_DTRACE", "/bin/sh")
    assert commands._tools(Config({"dtrace": "/nowhere/dtrace"})) == {}, "the environment beats the file"
    with pytest.raises(UnavailableError, match="bpftrace: /nowhere in the config"):
        commands._tools(Config({"bpftrace": "/nowhere"}))


@pytest.mark.skipif(sys.platform != "linux", reason="procfs is Linux'")
def test_a_command_is_recorded_to_its_end_and_its_exit_code_passed_on(latmon, tmp_path):
    done = latmon("--backend", "procfs", "--record", "x.gz", "--", "sh", "-c", "echo out; exit 3")
    assert (done.returncode, done.stdout) == (3, "out\n")
    assert "sh: exit code 3 after" in done.stderr
    items = [*open_recording(tmp_path / "x.gz")]
    texts = [item.text for item in items if isinstance(item, Mark)]
    assert texts[0] == "command: sh -c 'echo out; exit 3'"
    assert texts[1].startswith("sh: exit code 3 after ")
    (end,) = (item for item in items if isinstance(item, End))
    assert end.reason == texts[1]
    assert open_recording(tmp_path / "x.gz").origin.extra["command"] == "sh -c 'echo out; exit 3'"
    size = (tmp_path / "x.gz").stat().st_size
    assert f"{size / 1024:.1f} KiB" in done.stderr
    private = latmon("--backend", "procfs", "--record", "y.gz", "--redact", "--", "sh", "-c", "true")
    assert private.returncode == 0
    assert "the command: exit code 0 after" in private.stderr
    assert b"sh -c" not in gzip.decompress((tmp_path / "y.gz").read_bytes())


def test_a_command_that_is_not_there_records_nothing(latmon, tmp_path):
    done = latmon("--backend", "procfs", "--record", "x.gz", "--", "no-such-program")
    assert done.returncode == 127
    assert "no-such-program: command not found: nothing was run" in done.stderr
    assert not (tmp_path / "x.gz").exists()
