"""A signal that ends a command: also where the exception that its handler raises is lost."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from latmon.support import signals

ROOT = Path(signals.__file__).parents[2]
LOSES = """
import contextlib, os, signal, sys
sys.path.insert(0, sys.argv[1])
from latmon.support import signals
signals.install()
with contextlib.suppress(SystemExit):  # as compile() does
    os.kill(os.getpid(), int(sys.argv[2]))
print("goes on", flush=True)
signals.leave_if_received()
print("goes on too long")
"""


@pytest.mark.parametrize("number", signals.ENDING)
def test_a_signal_whose_exception_was_lost_ends_the_command_later(number):
    words = [sys.executable, "-c", LOSES, str(ROOT), str(int(number))]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "goes on\n", "")


IMPORTS = """
import os, signal, sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/backends"]
class Interrupts:
    left = [sys.argv[2]]
    def find_spec(self, name, *_):
        if name in self.left:
            self.left.clear()
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
sys.argv[1:] = sys.argv[3:]
from latmon.__main__ import main
main()
"""
GOLDEN = str(ROOT / "tests/golden/recording-1.1.latmon.jsonl.gz")


@pytest.mark.parametrize(
    ("module", "status"),
    [
        ("latmon.cli", -signal.SIGINT),
        ("latmon.cli.main", -signal.SIGINT),
        ("latmon.support.paths", -signal.SIGINT),
        ("latmon.support.signals", -signal.SIGINT),
        ("latmon.cli.arguments", 128 + signal.SIGINT),
        ("latmon.cli.commands", 128 + signal.SIGINT),
        ("latmon.report.command", 128 + signal.SIGINT),
        ("latmon.recording.reader", 128 + signal.SIGINT),
    ],
)
def test_ctrl_c_while_modules_are_imported_is_no_traceback(module, status):
    """The first is imported by the first line that can fail, before any handler of latmon's."""
    words = [sys.executable, "-c", IMPORTS, str(ROOT), module, "report", GOLDEN]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


IN_COMMAND = """
import os, signal, sys, weakref
sys.path.insert(0, sys.argv[1])
from latmon.cli import commands, main
from latmon.support import signals
def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)
class Name:
    __set_name__ = interrupt
class Value:
    __del__ = interrupt
def make_class(_):
    type("Any", (), {"name": Name()})
def callback(_):
    value = {1}
    reference = weakref.ref(value, interrupt)
    del value
    signals.leave_if_received()
def finalizer(_):
    Value()
    signals.leave_if_received()
commands.run, sys.argv[1:] = vars()[sys.argv[2]], ["rules"]
main.main()
"""


@pytest.mark.parametrize("place", ["make_class", "callback", "finalizer"])
def test_ctrl_c_where_python_changes_or_drops_an_exception_is_no_traceback(place):
    words = [sys.executable, "-c", IN_COMMAND, str(ROOT), place]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "")


def test_ctrl_c_that_is_ignored_stays_ignored():
    code = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{IMPORTS}"
    words = [sys.executable, "-c", code, str(ROOT), "latmon.cli.main", "rules"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_a_signal_nothing_ends():
    signals.leave_if_received()


@pytest.mark.parametrize(
    "words", [("--backend", "procfs", "--record", "OUT"), ("watch", "--backend", "procfs"), ("report", "IN")]
)
def test_a_command_that_lost_a_signal_at_its_start_ends(tmp_path, words):
    """The code that a start runs before the handlers of its capture, with a signal that an import has lost."""
    names = {"OUT": str(tmp_path / "r.latmon.jsonl.gz"), "IN": GOLDEN}
    words = [names.get(word, word) for word in words]
    code = f"""
import sys
from latmon.cli import main
from latmon.cli import arguments, commands
from latmon.support import signals
signals._received.append({int(signal.SIGTERM)})
sys.exit(commands.run(arguments.parse({words!r})))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60, env=dict(os.environ)
    )
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert "Traceback" not in done.stderr
