"""Settings of all tests: Hypothesis without a deadline, because a busy host makes examples slow; one test's turn."""

import fcntl
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from workload import crowded
from xdist.scheduler import LoadGroupScheduling

from latmon import manifest
from latmon.support.paths import data_dir
from latmon_backends.bpftrace import backend as bpftrace_backend

_TURNS, _WORKER = "LATMON_TEST_TURNS", "PYTEST_XDIST_WORKER"
_KEY = pytest.StashKey["Turns"]()
_LONG_ID = 200
_LONG = ("live", "backends", "tui", "cli", "metrics", "capture", "tracer", "support", "project", "recording", "probe")
"""Packages whose tests take longest. They begin first, so that the last files of a run are short ones."""

# Where a host wants no bytecode kept, each worker and each of some hundred children would compile all of it again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Some hundred tests load all shipped manifests, which do not change during a run: a tenth of a second each time.
_PROBES, _parse, _parsed = data_dir("probes"), manifest._parsed, cache(manifest._parsed)
manifest._parsed = lambda path: deepcopy(_parsed(path)) if path.is_relative_to(_PROBES) else _parse(path)

settings.register_profile("latmon", deadline=None, max_examples=15)
settings.register_profile("thorough", deadline=None, max_examples=250)  # make test-thorough
settings.load_profile("latmon")


_UMASK = os.umask(0o022)
"""That of the test run; read by setting it for a moment."""
os.umask(_UMASK)


@pytest.fixture(autouse=True)
def _umask_and_environment() -> Iterator[None]:
    """Restore what the command line sets for its process: a later test's ssh would log in as another user."""
    variables = dict(os.environ)
    os.umask(_UMASK)  # a fixture of a whole module may have run a command before
    yield
    os.umask(_UMASK)
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)


@pytest.fixture(autouse=True, scope="session")
def _cache_of_root(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what a test's tool can run apart from what this host's own can."""
    bpftrace_backend.ROOT_CACHE = tmp_path_factory.mktemp("cache")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests with probes on this host's kernel on one worker one by one, and long packages first.

    A test that fails while the host is crowded runs once more, and the summary names it: most tests use real processes
    and terminals, and a process that waits for seconds for a CPU is not latmon's fault.
    """
    for item in items:
        item.add_marker(pytest.mark.flaky(reruns=1, condition=crowded))
        if item.path.parent.name == "live" and not _has_no_probe(item):
            item.add_marker(pytest.mark.xdist_group("kernel"))
    items.sort(key=_turn)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Leave out modules and items of tests, which stay, from each collection of garbage: they are a million objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _turn(item: pytest.Item) -> tuple[bool, int]:
    package = item.path.parent.name
    in_group = item.get_closest_marker("xdist_group") is not None
    return not in_group, _LONG.index(package) if package in _LONG else len(_LONG)


def _has_no_probe(item: pytest.Item) -> bool:
    """Return whether a live test starts no probe."""
    return item.path.name == "test_processes.py" and item.get_closest_marker("live") is None


def pytest_xdist_auto_num_workers() -> int:
    """Two workers for a CPU, because half of a test's time is waiting for processes; 4 at most."""
    return min(2 * (os.cpu_count() or 1), 4)


class FileScheduling(LoadGroupScheduling):
    """A whole file at a time for a worker: what a fixture of a module makes is made once. A group stays a group."""

    def _split_scope(self, nodeid: str) -> str:
        return super()._split_scope(nodeid).partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> FileScheduling:
    """Schedule files in the order of the collection."""
    config.option.loadscopereorder = False
    return FileScheduling(config, log)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Cut ids of long texts: each worker sends all ids, and one more with each report."""
    return f"{val[:20]!r}, {len(val)} long" if isinstance(val, str | bytes) and len(val) > _LONG_ID else None


def pytest_configure(config: pytest.Config) -> None:
    """Set up where the workers of this run find its locks, and signals that children inherit."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:  # in the background or under nohup
            signal.signal(number, usual)
    if _WORKER not in os.environ:
        turns = tempfile.TemporaryDirectory(prefix="latmon-tests-")
        os.environ[_TURNS] = turns.name
        config.add_cleanup(turns.cleanup)
    config.stash[_KEY] = Turns(Path(os.environ[_TURNS]))


class Turns:
    """Turns on all workers of a run: a test runs beside the others, or alone."""

    def __init__(self, directory: Path) -> None:
        self._gate, self._runs = (directory / "gate").open("w"), (directory / "runs").open("w")

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Whoever comes while another is alone, or waits to be, waits at the gate."""
        self._take(fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(self._runs, fcntl.LOCK_UN)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait for all that run."""
        fcntl.flock(self._runs, fcntl.LOCK_UN)
        self._take(fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._runs, fcntl.LOCK_SH)

    def _take(self, how: int) -> None:
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        fcntl.flock(self._runs, how)
        fcntl.flock(self._gate, fcntl.LOCK_UN)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Tests run beside each other but for what they do in `with alone():`."""
    with item.config.stash[_KEY].beside():
        return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why tests failed that ran once more: the failure of one that passes then would be lost."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.write_sep("_", f"failed at first: {report.nodeid}")
        report.toterminal(terminalreporter._tw)


@pytest.fixture
def alone(pytestconfig: pytest.Config) -> Callable[[], AbstractContextManager[None]]:
    """For what compares times: no other test runs meanwhile, on whichever worker."""
    return pytestconfig.stash[_KEY].alone
