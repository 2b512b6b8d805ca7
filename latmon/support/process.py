"""Processes and threads: descendants from /proc, own CPU time, calls that may hang.

Reads /proc (a parameter) and follows `task/*/children`, so that a host with 50,000 processes costs no more than an
empty one. Knows nothing of frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar

from latmon.support import host
from latmon.support.errors import UnavailableError
from latmon.support.paths import content, link_target, matching, text
from latmon.support.trust import environment
from latmon.support.units import show_duration

_STARTTIME = 22 - 3
"""Index of starttime in proc_pid_stat(5) after pid and comm; ticks of the reader's CLOCK_BOOTTIME."""
_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
_SLACK_US = 20_000
"""Tolerance for the start of a process, which has a resolution of 10 ms."""
_MOST_GONE = 256
"""Ended processes that are kept, because an outlier is reported some frames after its begin."""
_INITIAL_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of include/linux/proc_ns.h: there probes and /proc number processes alike."""
PIPE_BYTES = 1 << 20
_MOST_PRINTED = 1 << 20
_MANY = 100_000
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
P = ParamSpec("P")
T = TypeVar("T")
SILENT_S = 1.0
PATIENCE_S = 30.0


def signal_name(number: int) -> str:
    """Return `SIGKILL` of 9; real-time signals have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def module_path() -> str:
    """Return the PYTHONPATH with which a child finds the modules that this process finds; `python -P -s` is its start.

    It has no relative part: a file in the current directory must not pass for a module.
    """
    return os.pathsep.join(part for part in sys.path if Path(part).is_absolute())


def widen(pipe: int) -> None:
    """Give a pipe room for PIPE_BYTES: a child that prints goes on for longer while its reader is stopped.

    It keeps 64 KiB where the user's pipes are at their limit.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def bounded_output(
    words: Sequence[str],
    seconds: float,
    environ: Mapping[str, str],
    *,
    stderr: int = subprocess.STDOUT,
    most: int = _MOST_PRINTED,
) -> tuple[int, bytes]:
    """Run a command without input; return its exit code and the first `most` bytes that it prints.

    It gets the variables of `environment`, and is killed where it prints more, as a tool that never ends would.
    TimeoutExpired where it takes longer, OSError where it can't be started. Without a shell: the words are the
    command's own.
    """
    until = time.monotonic() + seconds
    with subprocess.Popen(  # noqa: S603
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, env=environment(environ)
    ) as popen:
        output = bytearray()
        try:
            assert popen.stdout is not None  # noqa: S101 - a pipe was asked for
            waiting = select.poll()  # select(2) takes no file above 1,023
            waiting.register(popen.stdout, select.POLLIN)
            while len(output) < most:
                if not waiting.poll(1000 * max(0.0, until - time.monotonic())):
                    raise subprocess.TimeoutExpired(words, seconds)
                portion = os.read(popen.stdout.fileno(), most - len(output))
                if not portion:
                    popen.wait(max(0.0, until - time.monotonic()))
                    break
                output += portion
        finally:
            popen.kill()
    return popen.returncode, bytes(output)


def notify(state: str) -> None:
    """Send a state, such as READY=1, to systemd (sd_notify(3)); do nothing where no service manager waits for it."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.sendto(state.encode(), path.replace("@", "\0", 1) if path.startswith("@") else path)


def descendants(pid: int, proc: Path = Path("/proc")) -> Iterator[int]:
    """Return children, their children and so on; a process that ends meanwhile is left out.

    The cost depends on the number of descendants, not of the host's processes.
    """
    todo = [pid]
    while todo:
        files = matching(proc, f"{todo.pop()}/task/*/children")
        children = [int(child) for path in files for child in text(path).split()]
        yield from children
        todo += children


def cpu_ns(pid: int, proc: Path = Path("/proc")) -> int:
    """Return the CPU time of a process and its descendants so far, of threads that still run.

    The threads' own counters have ns; `own_cost` has the time of threads and processes that have ended, too.
    """
    files = (
        path for process in (pid, *descendants(pid, proc)) for path in matching(proc, f"{process}/task/*/schedstat")
    )
    return sum(int(first) for path in files if (first := text(path).partition(" ")[0]).isdigit())


def prioritise(pid: int, nice: int, proc: Path = Path("/proc")) -> None:
    """Set the priority of a process and its descendants, of all their threads, where that is allowed.

    With autogroups (sched(7)) a priority counts only inside of a session: the session of a process that leads one gets
    the same.
    """
    for descendant in (pid, *descendants(pid, proc)):
        for thread in matching(proc, f"{descendant}/task/[0-9]*"):
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)
    with contextlib.suppress(OSError):
        if os.getsid(pid) == pid:
            (proc / str(pid) / "autogroup").write_text(str(nice))


def in_own_mounts(script: str, directory: str) -> list[str]:
    """Return the words that run a shell script in a mount namespace of its own, whose mounts reach no other one.

    The root of a chroot is mostly no mount point, and the propagation of any other directory can't be changed
    (mount(2), EINVAL). There only the mounts below `directory`, where the script mounts, are made private; where it is
    no mount point either, the script doesn't run.
    """
    private = f"mount --make-rprivate / 2>/dev/null || mount --make-rprivate {directory} || exit 1"
    return ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", f"{private}\n{script}"]


@contextlib.contextmanager
def seldom_collecting() -> Iterator[None]:
    """Let the garbage collector run seldom, for a command that reads whole recordings.

    Frames and their sums have no reference cycles, and there are so many that looking for some took a fifth of the time
    of a report.
    """
    before = gc.get_threshold()
    gc.set_threshold(_MANY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@dataclass(slots=True)
class _Life:
    """Lifetime of a process: its start, and when it was first missing; None while it exists."""

    begun_us: int
    gone_us: int | None = None

    def spans(self, mono_us: int) -> bool:
        return self.begun_us - _SLACK_US <= mono_us and (self.gone_us is None or mono_us <= self.gone_us)


class OwnProcesses:
    """The processes of one latmon: its own, the probe tool's, and all that these start.

    `refresh` samples them; a process that is gone before the next sample stays unknown. Times are CLOCK_MONOTONIC, us.
    """

    def __init__(
        self,
        pid: int,
        parent: int | None = None,
        *,
        proc: Path = Path("/proc"),
        now_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
        boottime_ahead_us: Callable[[], int] = host.boottime_ahead_us,
    ) -> None:
        """Start with process `pid`; `parent` is a collector's user interface, whose other children don't count."""
        self._roots = (pid,) if parent is None else (pid, parent)
        self._proc, self._now_us, self._boottime_ahead_us = proc, now_us, boottime_ahead_us
        self._lives: dict[tuple[int, int], _Life] = {}
        """Lifetimes by pid and start, because pids are reused."""
        self._names: set[str] = set()
        self._numbers_suffice = link_target(proc / "self/ns/pid") == _INITIAL_NAMESPACE

    def refresh(self) -> None:
        """Record new processes and the end of missing ones."""
        now_us, ahead_us = self._now_us(), self._boottime_ahead_us()
        living = {(pid, started) for pid in self._there() if (started := self._started(pid)) is not None}
        for key, life in self._lives.items():
            if life.gone_us is None and key not in living and self._started(key[0]) != key[1]:
                life.gone_us = now_us
        for pid, started in living:
            self._lives.setdefault((pid, started), _Life(started * _TICK_US - ahead_us))
            self._names.update(self._comms(pid))
        gone = [key for key, life in self._lives.items() if life.gone_us is not None]
        for key in gone[:-_MOST_GONE]:
            del self._lives[key]

    def has(self, pid: int | None, comm: str, mono_us: int) -> bool:
        """Return whether a probe saw a thread of the family: by its process' number and life, never by its name alone.

        In a container the number that a probe has may be another process's here, so the name must be the family's too.
        """
        known = self._numbers_suffice or comm in self._names
        return known and any(at == pid and life.spans(mono_us) for (at, _), life in self._lives.items())

    def _there(self) -> Iterator[int]:
        yield from self._roots
        yield from descendants(self._roots[0], self._proc)

    def _started(self, pid: int) -> int | None:
        """Return the ticks from boot to its start; None where it has ended."""
        fields = content(self._proc / str(pid) / "stat").rpartition(b")")[2].split()
        return int(fields[_STARTTIME]) if len(fields) > _STARTTIME and fields[_STARTTIME].isdigit() else None

    def _comms(self, pid: int) -> Iterator[str]:
        """Yield the names of its threads, which may differ from the process's."""
        return (name for path in matching(self._proc, f"{pid}/task/*/comm") if (name := text(path).rstrip("\n")))


_UTIME, _CUTIME, _RSS = 11, 13, 21
"""Indexes in /proc/PID/stat after the comm: utime, stime, cutime and cstime in a row; resident pages."""


class Cost(NamedTuple):
    """CPU time so far in s and resident memory in bytes of a process and its descendants."""

    cpu_s: float
    resident: int | None
    """Like the time, this process's alone on a system without Linux's /proc; None where it isn't known."""


def own_cost(proc: Path = Path("/proc"), pid: int | None = None) -> Cost:
    """Return the cost of this process and its descendants: exact for its own time, in clock ticks (10 ms) for theirs.

    A process that has ended is in the time of the one that waited for it; one that was never waited for takes its time
    with it. `proc` and `pid` are for tests: the time of `pid` itself is always this process's.
    """
    own = os.getpid() if pid is None else pid
    ticks, pages = 0, 0
    for descendant in (own, *descendants(own, proc)):
        fields = text(proc / str(descendant) / "stat").rpartition(")")[2].split()
        ticks += sum(map(int, fields[_CUTIME if descendant == own else _UTIME : _CUTIME + 2]))
        pages += sum(map(int, fields[_RSS : _RSS + 1]))
    return Cost(time.process_time() + ticks / _TICKS_PER_S, pages * _PAGE or _own_resident())


def _own_resident() -> int | None:
    """Return the resident memory of this process in bytes by psutil; None where that can't read it."""
    try:
        import psutil  # noqa: PLC0415 - 20 ms that only a system without Linux's /proc pays
    except ImportError:  # a fleet's hosts get an archive without it
        return None
    try:
        return int(psutil.Process().memory_info().rss)
    except (psutil.Error, OSError):
        return None


class OwnCpu:
    """Sampler of own CPU use, of this process and its descendants."""

    def __init__(
        self, proc: Path = Path("/proc"), pid: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._proc, self._pid, self._clock = proc, pid, clock
        self._before = self._now()

    def percent(self) -> float | None:
        """Return percent of one CPU since the previous call, never below 0; None when no time has passed."""
        (earlier, before), (now, spent) = self._before, self._now()
        self._before = (now, spent)
        return None if now <= earlier else round(100 * max(0.0, spent - before) / (now - earlier), 2)

    def _now(self) -> tuple[float, float]:
        return self._clock(), own_cost(self._proc, self._pid).cpu_s


class SideThread(Executor):
    """Executor with one daemon thread, for `run_in_executor`; `shutdown` ends it after the last call.

    ThreadPoolExecutor doesn't work here: the interpreter joins its threads at exit, however long they take. A call in
    the kernel that can't be killed (D state) blocks the end of the process even so.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self._calls.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - Executor's own words
        """Accept no further calls; never wait for those already made."""
        self._calls.put(None)

    def _work(self) -> None:
        while (entry := self._calls.get()) is not None:
            future, call = entry
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - it is raised at the future, as by any executor
                future.set_exception(error)
            else:
                future.set_result(result)


def run_aside(name: str, call: Callable[[], T]) -> Future[T]:
    """Run a call on a thread of this name, which ends with it."""
    thread = SideThread(name)
    running = thread.submit(call)
    thread.shutdown()
    return running


async def call_with_deadline(
    call: Callable[[], T],
    what: str,
    notify: Callable[[str], None],
    within: tuple[float, float] = (SILENT_S, PATIENCE_S),
) -> T:
    """Return the call's result.

    After the first time of `within` report that `what` is waited for, after the second raise UnavailableError.
    """
    side = SideThread("patience")
    answer = asyncio.get_running_loop().run_in_executor(side, call)
    side.shutdown()
    silent_s, most_s = within
    try:
        await asyncio.wait({answer}, timeout=silent_s)
        if not answer.done():
            notify(f"waiting for {what}")
            await asyncio.wait({answer}, timeout=most_s - silent_s)
        if not answer.done():
            raise UnavailableError(f"{what} did not answer within {show_duration(round(most_s * 1e6))}")
        return answer.result()
    finally:
        answer.cancel()  # the result is no longer needed
