"""An unexpected exception: one sentence, exit code 1, the details in a file, never a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest
from terminal import environment

RECORDING = Path(__file__).parents[1] / "golden/recording-1.1.latmon.jsonl.gz"
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
        ("OSError(27, 'File too large')", "ulimit -f"),
        ("ImportError('x.so: failed to map segment from shared object')", "memory.max"),
        ("ImportError('x.so: cannot open shared object file: Too many open files')", "ulimit -n"),
        ("FileNotFoundError(2, 'No usable temporary directory found in []')", "TMPDIR"),
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
from latmon.__main__ import main; sys.argv[0] = "latmon"; main()
"""


@pytest.mark.parametrize("files", [5, 12, *(pytest.param(n, marks=pytest.mark.slow) for n in (6, 8, 10, 14, 16))])
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


_LITTLE_MEMORY = """
import resource, sys
pages = int(open("/proc/self/statm").read().split()[0])
most = pages * resource.getpagesize() + {0} * 1024
resource.setrlimit(resource.RLIMIT_AS, (most, most))
from latmon.__main__ import main
main()
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc of Linux")
@pytest.mark.parametrize(
    "kib", [1000, 6000, *(pytest.param(n, marks=pytest.mark.slow) for n in range(500, 30_000, 1_500))]
)
def test_no_size_of_memory_gives_a_traceback(tmp_path, kib):
    """The traceback's own modules would be imported where there is no memory for them."""
    environ = {**environment(), "XDG_STATE_HOME": str(tmp_path / "state")}
    command = [sys.executable, "-c", _LITTLE_MEMORY.format(kib), "report", str(RECORDING)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr
    assert "Error in sys.excepthook" not in done.stderr
    assert done.returncode == 0 or "latmon" in done.stderr


_LOOP = """
import asyncio, os
from latmon.support import failures, loop_errors
failures.install()
loop_errors.install()
def fail():
    raise {0}
async def main():
    read, write = os.pipe()
    os.write(write, b"x")
    asyncio.get_running_loop().add_reader(read, fail)  # as long as nothing reads it
    await asyncio.sleep(0.2)
    print("goes on")
asyncio.run(main())
"""


def test_a_callback_without_memory_ends_the_process_instead_of_logging_for_ever():
    done = crash({}, _LOOP.format("MemoryError"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "memory.max" in done.stderr


def test_an_error_of_a_callback_is_a_sentence_and_reported_once():
    done = crash({}, _LOOP.format("KeyError('a')"))
    assert (done.returncode, done.stdout) == (0, "goes on\n")
    assert done.stderr.startswith("latmon: an error was ignored, please report it: KeyError: 'a' (")
    assert done.stderr.count("\n") == 1


def test_an_error_of_a_finalizer_is_a_sentence():
    made = "type('Any', (), {'__del__': lambda self: 1 / 0})()"
    done = crash({}, f"from latmon.support import failures; failures.install(); {made}; print('goes on')")
    assert (done.returncode, done.stdout) == (0, "goes on\n")
    assert done.stderr.startswith("latmon: an error was ignored, please report it: ZeroDivisionError: ")
    assert done.stderr.count("\n") == 1


def test_half_an_installation_is_a_sentence():
    """A module of latmon's own that can't be read, before anything else is imported."""
    code = "import sys; sys.modules['latmon.cli.main'] = None; from latmon.__main__ import main; main()"
    done = crash({}, code)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("latmon: its own code can't be read: ")
    assert "install latmon again" in done.stderr
