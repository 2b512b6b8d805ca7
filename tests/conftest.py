"""What all tests share: Hypothesis without a deadline, because a busy host makes examples slow; whose turn it is."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings

_TURNS, _WORKER = "LATMON_TEST_TURNS", "PYTEST_XDIST_WORKER"

settings.register_profile("latmon", deadline=None, max_examples=60)
settings.load_profile("latmon")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs probes on this host's kernel runs on one worker, one after the other."""
    for item in items:
        if item.path.parent.name == "live":
            item.add_marker(pytest.mark.xdist_group("kernel"))


def pytest_configure(config: pytest.Config) -> None:
    """Where the workers of this run find its locks."""
    if _WORKER not in os.environ:
        turns = tempfile.TemporaryDirectory(prefix="latmon-tests-")
        os.environ[_TURNS] = turns.name
        config.add_cleanup(turns.cleanup)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """A test that is marked `alone` compares times: no other test runs beside it, on whichever worker."""
    with _turn(Path(os.environ[_TURNS]), alone=item.get_closest_marker("alone") is not None):
        return (yield)


@contextmanager
def _turn(turns: Path, *, alone: bool) -> Iterator[None]:
    """Who is alone waits for all that run, and whoever comes later waits at the gate."""
    with (turns / "gate").open("w") as gate, (turns / "runs").open("w") as runs:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(runs, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield
