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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_whose_exception_was_lost_ends_the_command_later(number):
    words = [sys.executable, "-c", LOSES, str(ROOT), str(int(number))]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "goes on\n", "")


def test_without_a_signal_nothing_ends():
    signals.leave_if_received()


@pytest.mark.parametrize(
    "words", [("--backend", "procfs", "--record", "OUT"), ("watch", "--backend", "procfs"), ("report", "IN")]
)
def test_a_command_that_lost_a_signal_at_its_start_ends(tmp_path, words):
    """The code that a start runs before the handlers of its capture, with a signal that an import has lost."""
    names = {"OUT": str(tmp_path / "r.latmon.jsonl.gz"), "IN": str(ROOT / "tests/golden/recording-1.1.latmon.jsonl.gz")}
    words = [names.get(word, word) for word in words]
    code = f"""
import sys
from latmon import __main__
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
