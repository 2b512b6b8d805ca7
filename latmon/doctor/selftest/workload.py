"""The workload of the self-test: a loop device in memory, slow writes on it, and the capture of them.

A shell in its own mount namespace makes the device, freezes its file system to delay writes, and removes everything
when its standard input closes, also if latmon is killed. If that shell is killed, a second one thaws the file system,
because the writes would never end; then the loop devices stay, and latmon names its own. No file is made on any disk:
the images are in a tmpfs that ends with the namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from latmon.capture.backend import Options
from latmon.capture.capture import Capture, CaptureCounts
from latmon.capture.registry import Request
from latmon.model.frame import STARTING, Frame, Origin
from latmon.support.errors import LatmonError, UnavailableError
from latmon.support.text import clean
from latmon.support.trust import environment, search_path

SYS_BLOCK = Path("/sys/class/block")
COMMAND = "sudo latmon doctor --self-test"
SIZE = 16 << 20
"""Bytes of the device."""
_TOOLS = ("unshare", "mount", "umount", "losetup", "truncate", "mkfifo")
_FILE_SYSTEMS = (
    ("ext4", "64M", ("mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=0")),
    ("xfs", "320M", ("mkfs.xfs", "-q", "-f")),
    ("btrfs", "256M", ("mkfs.btrfs", "-q", "-f")),
)
"""File systems that can be frozen: name, size of the image (sparse in memory), command that makes it."""
_MOUNT_POINTS = ("/tmp", "/run", "/mnt")  # noqa: S108  covered in its own namespace, nothing is written below it
_ANSWER_S = 30.0
_ENDED_S = 15.0
_SYS_ADMIN = 21
"""Number of CAP_SYS_ADMIN, which mounting takes."""
_CONTAINERS = (Path("/run/.containerenv"), Path("/.dockerenv"))

# $1: where the tmpfs is mounted; $2: the device's size; $3: a file system or nothing; $4: its image's size; then its
# mkfs. A line on stdin is the time to freeze in seconds. SIGPIPE would end the shell without its trap; Ctrl-C and a
# hang-up are handled by the parent. A loop device in use is detached when its use ends: the mounts end with the
# namespace. The second shell reads a pipe that only the first one has open for writing, so that it notices any end of
# the first one.
_SHELL = """
set -eu
trap '' PIPE INT HUP
at=$1 size=$2 fs=$3 room=$4 upper= lower= frozen=
shift 4
undo() {
    set +e
    exec 2>/dev/null
    [ -z "$frozen" ] || fsfreeze -u "$at/fs"
    losetup -d $upper $lower
}
trap undo EXIT
trap 'exit 1' TERM
mount -t tmpfs -o size=512m,mode=0700 latmon-self-test "$at"
mkdir "$at/fs"
if [ -n "$fs" ]; then
    truncate -s "$room" "$at/lower"
    "$@" "$at/lower" >/dev/null
    lower=$(losetup --find --show "$at/lower")
    mount -t "$fs" "$lower" "$at/fs"
fi
truncate -s "$size" "$at/fs/latmon-self-test"
mkfifo "$at/alive"
(
    trap - EXIT TERM
    read -r _ <"$at/alive" || :
    [ -z "$fs" ] || fsfreeze -u "$at/fs"
) </dev/null >/dev/null 2>&1 &
exec 9>"$at/alive"
upper=$(losetup --find --show "$at/fs/latmon-self-test")
echo "ready $upper"
while read -r seconds; do
    frozen=1
    fsfreeze -f "$at/fs"
    echo frozen
    sleep "$seconds" 9>&-
    fsfreeze -u "$at/fs"
    frozen=
    echo thawed
done
"""


@dataclass(frozen=True, slots=True)
class LoopDevice:
    """The self-test's loop device, and the shell that removes it."""

    path: Path
    holds: bool
    """Whether writes can be delayed."""
    how: str
    shell: subprocess.Popen[bytes]

    @property
    def name(self) -> str:
        return self.path.name

    def hold(self, us: int) -> None:
        """Freeze the file system for `us`; returns when it is frozen."""
        assert self.shell.stdin is not None  # noqa: S101  it was started with pipes
        with contextlib.suppress(BrokenPipeError):  # then it answers nothing
            self.shell.stdin.write(b"%.3f\n" % (us / 1e6))
            self.shell.stdin.flush()
        _expect(self.shell, "frozen")

    def wait_thawed(self) -> None:
        """Wait for the end of `hold`."""
        _expect(self.shell, "thawed")

    def written(self) -> int:
        """Return the completed writes by the kernel's counters."""
        return int((SYS_BLOCK / self.name / "stat").read_text().split()[4])


def refuse(platform: str, uid: int, environ: Mapping[str, str], dev: Path = Path("/dev")) -> None:
    """Raise UnavailableError with a remedy where the device can't be made."""
    if platform != "linux":
        raise UnavailableError(f"the self-test makes a loop device of Linux, and this is {platform}.")
    if uid != 0:
        raise UnavailableError(f"the self-test makes a loop device of its own, which needs root: {COMMAND}")
    missing = [tool for tool in _TOOLS if _find(tool, environ) is None]
    if missing:
        raise UnavailableError(
            f"the self-test makes its device with {', '.join(missing)}, which can't be found: install util-linux."
        )
    if not (dev / "loop-control").exists():
        raise UnavailableError(
            "the self-test needs a loop device, and there is no /dev/loop-control: modprobe loop; "
            "in a container, run it on the host instead."
        )


@contextlib.contextmanager
def made(environ: Mapping[str, str], progress: Callable[[str], None]) -> Iterator[LoopDevice]:
    """Make the device, and remove it at the end or report that it could not be removed.

    Raises UnavailableError with the reason if it can't be made.
    """
    system = file_system(environ)
    shell = _start(system, environ)
    name = "its device"
    try:
        device = _loop_device(shell, "" if system is None else system[0])
        name = str(device.path)
        yield device
    finally:
        gone = _end(shell)
        if name != "its device" or not gone:
            progress(f"{name} was removed" if gone else left(name, shell.pid))


def left(name: str, pid: int) -> str:
    """Return the message on a device that could not be removed."""
    return (
        f"{name} may still be there: process {pid} removes it when it can; if there is no such process, "
        "`losetup -d` what `losetup -a` lists of latmon-self-test, then of /lower"
    )


def file_system(environ: Mapping[str, str]) -> tuple[str, str, Sequence[str]] | None:
    """Return the first file system that can be made and frozen here; None where writes can't be delayed."""
    if _find("fsfreeze", environ) is None:
        return None
    return next((one for one in _FILE_SYSTEMS if _find(one[2][0], environ)), None)


def _find(tool: str, environ: Mapping[str, str]) -> str | None:
    return shutil.which(tool, path=search_path(environ))


def _start(system: tuple[str, str, Sequence[str]] | None, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    name, room, make = system or ("", "0", ())
    at = next((one for one in _MOUNT_POINTS if Path(one).is_dir()), "/")
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _SHELL, "latmon-self-test"]
    pipe = subprocess.PIPE
    # in its own session, so that Ctrl-C or a hang-up of the terminal doesn't end it before it has removed the device
    return subprocess.Popen(  # noqa: S603  fixed words, no shell but the one above
        [*words, at, str(SIZE), name, room, *make],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env={**environment(environ), "LC_ALL": "C"},
        start_new_session=True,
    )


def _loop_device(shell: subprocess.Popen[bytes], system: str) -> LoopDevice:
    path = Path(_expect(shell, "ready"))
    on = f" on {system}" if system else ""
    what = "frozen to delay writes" if system else "whose writes can't be delayed"
    return LoopDevice(path, bool(system), f"a loop device{on} in memory, {what}", shell)


def _expect(shell: subprocess.Popen[bytes], word: str) -> str:
    """Return the rest of the shell's next line, which begins with that word. Raises UnavailableError for another."""
    assert shell.stdout is not None  # noqa: S101  it was started with pipes
    ready, _, _ = select.select([shell.stdout], [], [], _ANSWER_S)
    line = clean(_line(shell.stdout.fileno())) if ready else ""
    answer, _, rest = line.partition(" ")
    if answer == word:
        return rest
    raise UnavailableError(_why(shell, word))


def _line(file: int) -> bytes:
    """Read one line without a buffer, so that `select` still sees the next one."""
    line = b""
    while (byte := os.read(file, 1)) not in (b"", b"\n"):
        line += byte
    return line


def _why(shell: subprocess.Popen[bytes], word: str) -> str:
    _end(shell)
    complaints = shell.stderr.read() if shell.stderr and shell.poll() is not None else b""
    lines = [line for line in complaints.decode("utf-8", "replace").splitlines() if line.strip()]
    why = clean(lines[-1].strip().rstrip("."), 300) if lines else f"no answer within {_ANSWER_S:.0f} s"
    what = "can't make its device" if word == "ready" else "can't delay writes to its device"
    return f"the self-test {what}: {why}{'; in a container, run it on the host instead' if _contained() else ''}."


def _contained(status: Path = Path("/proc/self/status"), marks: Sequence[Path] = _CONTAINERS) -> bool:
    """Return whether this looks like a container: by its marks, or because root may not mount."""
    try:
        found = next(line for line in status.read_text().splitlines() if line.startswith("CapEff:"))
        may = bool(int(found.split()[1], 16) >> _SYS_ADMIN & 1)
    except (OSError, StopIteration, ValueError, IndexError):
        may = True
    return not may or any(mark.exists() for mark in marks)


def _end(shell: subprocess.Popen[bytes]) -> bool:
    """Close the shell's input, so that it removes the device, and return whether it has ended. It is never killed."""
    if shell.stdin is not None:
        with contextlib.suppress(OSError):
            shell.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        shell.wait(_ENDED_S)
    return shell.returncode is not None and shell.returncode >= 0


BYTES = 4096
SECTOR = 512
COMM = "latmon-delay"
"""Name of the writing thread."""
CALM = 20
_PAUSE_S = 0.05
_BETWEEN_S = 0.3
DELAYS = ((2048, 300_000), (8192, 1_200_000))
"""Sector and delay in us: the longer one is always in flight at the end of an interval, and then old enough for the
list of I/Os in flight."""


@dataclass(frozen=True, slots=True)
class DelayedWrite:
    """One write that was delayed by `asked_us`, and that its thread waited for `took_us`."""

    sector: int
    asked_us: int
    took_us: int

    @property
    def was_delayed(self) -> bool:
        """Return whether the delay worked: not every kernel lets a loop device wait for its file system."""
        return self.took_us >= self.asked_us // 2


@dataclass(frozen=True, slots=True)
class Written:
    """The writes that were made: `writes` by latmon's count, `counted` by the kernel's."""

    writes: int
    counted: int
    delayed: tuple[DelayedWrite, ...] = ()


def play(device: LoopDevice, file: int, stopped: threading.Event, progress: Callable[[str], None]) -> Written:
    """Write to the device for about 4 s; `stopped` prevents further writes.

    Call it in a thread: a delayed write can't be interrupted.
    """
    _call_thread(COMM)
    before = device.written()
    writes, delayed = 0, []
    with mmap.mmap(-1, BYTES) as block:  # of a page's alignment, as O_DIRECT requires it
        for at in range(CALM):
            if not stopped.wait(_PAUSE_S):
                writes += bool(os.pwrite(file, block, at * BYTES))
        for sector, us in DELAYS if device.holds else ():
            if not stopped.wait(_BETWEEN_S):
                progress(f"delaying a write for {us // 1000:,} ms")
                delayed.append(_delayed_write(device, file, block, sector, us))
                writes += 1
    return Written(writes, device.written() - before, tuple(delayed))


def _delayed_write(device: LoopDevice, file: int, block: mmap.mmap, sector: int, us: int) -> DelayedWrite:
    device.hold(us)
    began = time.monotonic_ns()
    os.pwrite(file, block, sector * SECTOR)
    took = time.monotonic_ns() - began
    device.wait_thawed()
    return DelayedWrite(sector, us, took // 1000)


def _call_thread(name: str) -> None:
    """Set the thread's name, which probes report."""
    with contextlib.suppress(OSError):
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)


INTERVAL_US = 500_000
THRESHOLD_US = 100_000
_OPENING_S = 300.0
"""Limit for opening the backend, which gives up long before."""
_STARTING_S = 60.0
"""Limit for the tracer's start: bpftrace 0.17 compiles it for up to a minute on a busy host."""
_AGES_S = 3.0
_SETTLING_S = 6.0
_AFTER = 3
"""Frames after the last write, because an outlier may be reported one frame later."""
_STEP_S = 0.1
_SIGNALS = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    signal.SIGHUP: "the terminal's hang-up",
}


@dataclass(frozen=True, slots=True)
class Captured:
    """The writes to the device, and the capture of them."""

    device: str
    origin: Origin
    frames: tuple[Frame, ...]
    done: Written
    on_demand: str
    """The reason why the tracer didn't run; empty where it did."""


def capture(device: LoopDevice, backend: str, progress: Callable[[str], None]) -> Captured:
    """Write to the device and capture it. Raises UnavailableError where nothing can be captured.

    Privileges are dropped as in any capture.
    """
    try:
        file = os.open(device.path, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        raise UnavailableError(_refused(device, "open", error)) from error
    try:
        return asyncio.run(_WorkloadCapture(device, file, backend, progress).run())
    finally:
        os.close(file)


def _refused(device: LoopDevice, what: str, error: OSError) -> str:
    why = clean(error.strerror or str(error), 200)
    return (
        f"the self-test can't {what} its device {device.path}: {why}; it takes 20 MB of memory and no disk, try again."
    )


class _WorkloadCapture:
    """Sink of the capture that also runs the workload."""

    def __init__(self, device: LoopDevice, file: int, backend: str, progress: Callable[[str], None]) -> None:
        self._device, self._file, self._progress = device, file, progress
        options = Options(INTERVAL_US, (device.name,), threshold_us=THRESHOLD_US, stages="all")
        self._capture = Capture(Request(backend, options), self)
        self._origin: Origin | None = None
        self._frames: list[Frame] = []
        self._stopped = threading.Event()
        self._done: Written | None = None
        self._interrupted = self._on_demand = ""

    def opened(self, origin: Origin) -> None:
        self._origin = origin
        self._progress(f"measuring with {origin.tool or origin.backend}")

    def offer(self, frame: Frame, _: CaptureCounts) -> None:
        self._frames.append(frame)

    async def run(self) -> Captured:
        loop = asyncio.get_running_loop()
        for number, name in _SIGNALS.items():
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._interrupt, name)
        self._progress("starting the probes; an old bpftrace takes up to a minute, on a loaded host several")
        beside = asyncio.create_task(self._run_workload())
        try:
            outcome = await self._capture.run()
        finally:
            self._stopped.set()
            beside.cancel()
            results = await asyncio.gather(beside, return_exceptions=True)
        if self._interrupted:
            raise LatmonError(f"the self-test was ended by {self._interrupted}")
        failed = next((one for one in results if isinstance(one, Exception)), None)
        if isinstance(failed, OSError):
            raise UnavailableError(_refused(self._device, "write to", failed)) from failed
        if failed is not None:
            raise failed
        if self._done is None or self._origin is None:
            raise UnavailableError(f"the capture ended before the self-test was over: {outcome.reason}")
        return Captured(self._device.name, self._origin, tuple(self._frames), self._done, self._on_demand)

    def _interrupt(self, name: str) -> None:
        self._interrupted = name
        self._stopped.set()
        self._capture.stop(f"ended by {name}", at_once=True)

    async def _run_workload(self) -> None:
        """Wait for the probes, run the workload, wait for its outliers, end the capture."""
        try:
            await self._until(lambda: self._origin is not None, _OPENING_S)
            await self._until(lambda: bool(self._frames), _STARTING_S)
            if not self._frames:
                after = _STARTING_S if self._origin else _OPENING_S
                raise UnavailableError(f"the self-test waited for {after:.0f} s, and the probes printed nothing.")
            await self._until(self._traces, _STARTING_S)
            await self._until(self._ages, _AGES_S)
            self._on_demand = self._why_not_on_demand()
            self._progress("writing")
            self._done = await asyncio.to_thread(play, self._device, self._file, self._stopped, self._progress)
            after = len(self._frames) + _AFTER
            await self._until(lambda: len(self._frames) >= after and self._all_reported(), _SETTLING_S)
        finally:
            self._capture.stop("the self-test is over", at_once=True)

    async def _until(self, ready: Callable[[], bool], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not ready() and loop.time() < end:  # noqa: ASYNC110  time counts as well
            await asyncio.sleep(_STEP_S)

    def _traces(self) -> bool:
        """Return whether the tracer runs, or never will."""
        assert self._origin is not None  # noqa: S101  opened before the first frame
        last = self._frames[-1]
        starting = any(one.reason.startswith(STARTING) for one in last.traced.absent)
        if last.traced.one_in or not self._probes():
            return True
        return bool(last.traced.absent) and not starting

    def _ages(self) -> bool:
        """Return whether I/Os in flight are reported, which may begin later than stages, or never will be."""
        last = self._frames[-1]
        return last.in_flight is not None or not last.traced.one_in

    def _probes(self) -> bool:
        """Return whether the host can have a tracer."""
        origin = self._origin
        return origin is not None and "total" in origin.measured and origin.traces_stages

    def _why_not_on_demand(self) -> str:
        last = self._frames[-1]
        if last.traced.one_in:
            return ""
        if reported := next((one.reason for one in last.traced.absent), ""):
            return reported
        if self._probes():
            return f"the tracer did not start within {_STARTING_S:.0f} s"
        untraced = self._origin.why_untraced("hba") if self._origin else ""
        return untraced or "it has no tracer"

    def _all_reported(self) -> bool:
        """Return whether each delayed write has its outlier, where outliers are reported."""
        if self._origin is None or "total" not in self._origin.measured:
            return True
        reported = {one.sector for frame in self._frames for one in frame.outliers if one.device == self._device.name}
        return self._done is None or reported >= {one.sector for one in self._done.delayed}
