"""An unexpected exception: one sentence, exit code 1, the details in a file, never a traceback."""

import subprocess
import sys

import pytest
from terminal import environment

CRASH = "from latmon.cli import main as last_resort; last_resort.install(); raise KeyError('a\\n\\x1b[31mb')"


def crash(environ, code=CRASH):
    return subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False, cwd=_root()
    )


def _root():
    return __file__.rsplit("/tests/", 1)[0]


def test_one_sentence_and_the_details_in_a_file(tmp_path):
    done = crash({"XDG_STATE_HOME": str(tmp_path)})
    log = tmp_path / "latmon/crash.log"
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("latmon failed: KeyError: ")
    assert str(log) in done.stderr
    assert "\x1b" not in done.stderr
    assert "Traceback" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def test_the_log_grows_only_so_far(tmp_path):
    (tmp_path / "latmon").mkdir()
    log = tmp_path / "latmon/crash.log"
    log.write_text("x" * 300_000)
    crash({"XDG_STATE_HOME": str(tmp_path)})
    assert log.stat().st_size < 10_000
    crash({"XDG_STATE_HOME": str(tmp_path)})
    assert log.read_text().count("Traceback") == 2


@pytest.mark.parametrize("make", [lambda p: p.write_text(""), lambda p: p.mkdir() or (p / "crash.log").symlink_to("x")])
def test_a_log_that_cannot_be_kept(tmp_path, make):
    make(tmp_path / "latmon")
    done = crash({"XDG_STATE_HOME": str(tmp_path)})
    assert done.stderr.count("\n") == 1
    assert "could not be kept" in done.stderr


def test_without_xdg_it_is_below_home(tmp_path):
    crash({"HOME": str(tmp_path)})
    assert (tmp_path / ".local/state/latmon/crash.log").exists()


def test_root_that_can_not_be_given_up_keeps_nothing(tmp_path):
    refuses = "from latmon.support import privileges; privileges.drop_root = lambda _user: open('/none/at/all'); "
    done = crash({"XDG_STATE_HOME": str(tmp_path)}, refuses + CRASH)
    assert "could not be kept" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("raised", "named"),
    [
        ("OSError(24, 'Too many open files')", "ulimit -n"),
        ("OSError(23, 'Too many open files in system')", "fs.file-max"),
        ("BlockingIOError(11, 'Resource temporarily unavailable')", "pids.max"),
        ("BlockingIOError(11, 'write could not complete without blocking', 0)", "O_NONBLOCK"),
        ('RuntimeError("can\'t start new thread")', "pids.max"),
        ("OSError(12, 'Cannot allocate memory')", "memory.max"),
        ("MemoryError()", "memory.max"),
    ],
)
def test_a_limit_of_the_host_is_no_mistake_to_report(tmp_path, raised, named):
    done = crash({"XDG_STATE_HOME": str(tmp_path)}, CRASH.replace("KeyError('a\\n\\x1b[31mb')", raised))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert named in done.stderr
    assert not list(tmp_path.iterdir())


_LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0}))
from latmon.cli import main as last_resort; sys.argv[0] = "latmon"; last_resort.install(); sys.exit(last_resort.main())
"""


@pytest.mark.parametrize("files", [12, *(pytest.param(n, marks=pytest.mark.slow) for n in (6, 8, 10, 14, 16))])
def test_no_number_of_open_files_gives_more_than_a_sentence(tmp_path, files):
    words = ["--backend", "procfs", "--record", str(tmp_path / "r.gz"), "--duration", "1s"]
    environ = {**environment(), "XDG_STATE_HOME": str(tmp_path / "state")}
    command = [sys.executable, "-c", _LIMITED.format(files), *words]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (0, 1, 3)
    assert "Traceback" not in done.stderr
    assert "please report" not in done.stderr
    assert done.returncode == 0 or "Too many open files" in done.stderr or "ulimit -n" in done.stderr
    assert not (tmp_path / "state").exists()
