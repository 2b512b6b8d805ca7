"""The workload of the self-test: a loop device in memory, slow writes on it, and the capture of them.

A shell in a mount namespace of its own makes all of it, holds what is written, and takes all of it away when its
standard input closes: so it does when we are killed. If that shell itself is killed, a second one thaws, for nothing
that was written would ever end; the loop devices stay then, and we name ours. No file is made on any disk: the images
are in a tmpfs that ends with the namespace. Knows nothing of what is written or measured.
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
from latmon.capture.capture import Capture, Tally
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
"""Name, size of its image (what is not written takes no memory), how it is made: those that can be frozen."""
_MOUNT_POINTS = ("/tmp", "/run", "/mnt")  # noqa: S108  covered in a namespace of our own, nothing is written below it
_ANSWER_S = 30.0
_ENDED_S = 15.0
_SYS_ADMIN = 21
"""The capability that mounting takes."""
_CONTAINERS = (Path("/run/.containerenv"), Path("/.dockerenv"))

# $1: where the tmpfs is mounted; $2: the device's size; $3: a file system or nothing; $4: its image's size; then its
# mkfs. A line on stdin is for how long writes are to be held, in seconds. SIGPIPE would end the shell without its trap,
# Ctrl-C and a hang-up are the business of who started it. A loop device that is still in use is detached when it no
# longer is: the mounts end with the namespace. On a busy host each program that is started takes its time. The second
# shell reads a pipe that only the first one has open for writing: it ends with that one, however that one ends.
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
class Own:
    """The device, while it is there."""

    path: Path
    holds: bool
    """Whether what is written can be held."""
    how: str
    shell: subprocess.Popen[bytes]

    @property
    def name(self) -> str:
        return self.path.name

    def hold(self, us: int) -> None:
        """From when this returns on nothing that is written completes, for that long from a moment ago."""
        assert self.shell.stdin is not None  # noqa: S101  it was started with pipes
        with contextlib.suppress(BrokenPipeError):  # then it answers nothing
            self.shell.stdin.write(b"%.3f\n" % (us / 1e6))
            self.shell.stdin.flush()
        _expect(self.shell, "frozen")

    def held(self) -> None:
        """Waits until it is over."""
        _expect(self.shell, "thawed")

    def written(self) -> int:
        """Writes that the kernel's own counters say have completed."""
        return int((SYS_BLOCK / self.name / "stat").read_text().split()[4])


def refuse(platform: str, uid: int, environ: Mapping[str, str], dev: Path = Path("/dev")) -> None:
    """UnavailableError where no device can be made, with what to do."""
    if platform != "linux":
        raise UnavailableError(f"the self-test makes a loop device of Linux, and this is {platform}.")
    if uid != 0:
        raise UnavailableError(f"the self-test makes a loop device of its own, which takes root: {COMMAND}")
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
def made(environ: Mapping[str, str], say: Callable[[str], None]) -> Iterator[Own]:
    """The device; gone when this is left, or it is said that it isn't. UnavailableError says why there is none."""
    system = file_system(environ)
    shell = _start(system, environ)
    name = "its device"
    try:
        own = _own(shell, "" if system is None else system[0])
        name = str(own.path)
        yield own
    finally:
        gone = _end(shell)
        if name != "its device" or not gone:
            say(f"{name} is gone again" if gone else left(name, shell.pid))


def left(name: str, pid: int) -> str:
    """What is said of a device that is still there."""
    return (
        f"{name} may still be there: process {pid} takes it away when it can; if there is no such process, "
        "`losetup -d` what `losetup -a` lists of latmon-self-test, then of /lower"
    )


def file_system(environ: Mapping[str, str]) -> tuple[str, str, Sequence[str]] | None:
    """The first that can be made and frozen here; None: writes can't be held."""
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
    # A session of its own: neither Ctrl-C nor a hang-up of the terminal may end it before its work is undone.
    return subprocess.Popen(  # noqa: S603  our own words, no shell but the one above
        [*words, at, str(SIZE), name, room, *make],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env={**environment(environ), "LC_ALL": "C"},
        start_new_session=True,
    )


def _own(shell: subprocess.Popen[bytes], system: str) -> Own:
    path = Path(_expect(shell, "ready"))
    on = f" on {system}" if system else ""
    what = "frozen to hold writes" if system else "whose writes can't be held"
    return Own(path, bool(system), f"a loop device{on} in memory, {what}", shell)


def _expect(shell: subprocess.Popen[bytes], word: str) -> str:
    """What the shell says after that word; UnavailableError where it says anything else."""
    assert shell.stdout is not None  # noqa: S101  it was started with pipes
    ready, _, _ = select.select([shell.stdout], [], [], _ANSWER_S)
    line = clean(_line(shell.stdout.fileno())) if ready else ""
    said, _, rest = line.partition(" ")
    if said == word:
        return rest
    raise UnavailableError(_why(shell, word))


def _line(file: int) -> bytes:
    """Unbuffered, so that a second line is still seen by select."""
    line = b""
    while (byte := os.read(file, 1)) not in (b"", b"\n"):
        line += byte
    return line


def _why(shell: subprocess.Popen[bytes], word: str) -> str:
    _end(shell)
    complaints = shell.stderr.read() if shell.stderr and shell.poll() is not None else b""
    lines = [line for line in complaints.decode("utf-8", "replace").splitlines() if line.strip()]
    why = clean(lines[-1].strip().rstrip("."), 300) if lines else f"nothing was heard for {_ANSWER_S:.0f} s"
    what = "can't make its device" if word == "ready" else "can't hold what is written to its device"
    return f"the self-test {what}: {why}{'; in a container, run it on the host instead' if _contained() else ''}."


def _contained(status: Path = Path("/proc/self/status"), marks: Sequence[Path] = _CONTAINERS) -> bool:
    """Whether this looks like a container: it says so, or root may not mount."""
    try:
        found = next(line for line in status.read_text().splitlines() if line.startswith("CapEff:"))
        may = bool(int(found.split()[1], 16) >> _SYS_ADMIN & 1)
    except (OSError, StopIteration, ValueError, IndexError):
        may = True
    return not may or any(mark.exists() for mark in marks)


def _end(shell: subprocess.Popen[bytes]) -> bool:
    """Its input closes, so it undoes what it did; never killed, for then nobody would. Whether it has."""
    if shell.stdin is not None:
        with contextlib.suppress(OSError):
            shell.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        shell.wait(_ENDED_S)
    return shell.returncode is not None and shell.returncode >= 0


BYTES = 4096
SECTOR = 512
COMM = "latmon-delay"
"""What the thread that writes is called."""
CALM = 20
_PAUSE_S = 0.05
_BETWEEN_S = 0.3
DELAYS = ((2048, 300_000), (8192, 1_200_000))
"""Sector, for how long its write is held: the longer one is in flight at the end of an interval for certain, and by
then old enough for the list of what waits."""


@dataclass(frozen=True, slots=True)
class Held:
    """One write that was held for `asked_us`, and took as long as its thread waited for it."""

    sector: int
    asked_us: int
    took_us: int

    @property
    def was_held(self) -> bool:
        """Not so where the kernel doesn't let a loop device wait for its file system."""
        return self.took_us >= self.asked_us // 2


@dataclass(frozen=True, slots=True)
class Done:
    """What was written. `writes` by our own count, `counted` by the kernel's."""

    writes: int
    counted: int
    held: tuple[Held, ...] = ()


def play(own: Own, file: int, stopped: threading.Event, say: Callable[[str], None]) -> Done:
    """About 4 s; in a thread, for a write that is held can't be interrupted. `stopped`: no further one is begun."""
    _call_thread(COMM)
    before = own.written()
    writes, held = 0, []
    with mmap.mmap(-1, BYTES) as block:  # of a page's alignment, as O_DIRECT wants it
        for at in range(CALM):
            if not stopped.wait(_PAUSE_S):
                writes += bool(os.pwrite(file, block, at * BYTES))
        for sector, us in DELAYS if own.holds else ():
            if not stopped.wait(_BETWEEN_S):
                say(f"holding a write for {us // 1000:,} ms")
                held.append(_held(own, file, block, sector, us))
                writes += 1
    return Done(writes, own.written() - before, tuple(held))


def _held(own: Own, file: int, block: mmap.mmap, sector: int, us: int) -> Held:
    own.hold(us)
    began = time.monotonic_ns()
    os.pwrite(file, block, sector * SECTOR)
    took = time.monotonic_ns() - began
    own.held()
    return Held(sector, us, took // 1000)


def _call_thread(name: str) -> None:
    """As probes will see it."""
    with contextlib.suppress(OSError):
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)


INTERVAL_US = 500_000
THRESHOLD_US = 100_000
_OPENING_S = 300.0
"""A backend gives up by itself long before."""
_STARTING_S = 60.0
"""bpftrace 0.17 compiles the deep probes for so long on a busy host."""
_AGES_S = 3.0
_SETTLING_S = 6.0
_AFTER = 3
"""Frames after the last write: a record of a slow I/O may wait for one more."""
_STEP_S = 0.1
_SIGNALS = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    signal.SIGHUP: "the terminal's hang-up",
}


@dataclass(frozen=True, slots=True)
class Captured:
    """What was done to the device, and all that was told of it."""

    device: str
    origin: Origin
    frames: tuple[Frame, ...]
    done: Done
    deep: str
    """Why the deep probes didn't run, as far as that was told; empty where they did."""


def capture(own: Own, backend: str, say: Callable[[str], None]) -> Captured:
    """UnavailableError where nothing can be captured; privileges are given up as by any capture."""
    try:
        file = os.open(own.path, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        raise UnavailableError(_refused(own, "open", error)) from error
    try:
        return asyncio.run(_Watch(own, file, backend, say).run())
    finally:
        os.close(file)


def _refused(own: Own, what: str, error: OSError) -> str:
    why = clean(error.strerror or str(error), 200)
    return f"the self-test can't {what} its device {own.path}: {why}; it takes 20 MB of memory and no disk, try again."


class _Watch:
    """A sink, and what goes on beside it."""

    def __init__(self, own: Own, file: int, backend: str, say: Callable[[str], None]) -> None:
        self._own, self._file, self._say = own, file, say
        options = Options(INTERVAL_US, (own.name,), threshold_us=THRESHOLD_US, stages="all")
        self._capture = Capture(Request(backend, options), self)
        self._origin: Origin | None = None
        self._frames: list[Frame] = []
        self._stopped = threading.Event()
        self._done: Done | None = None
        self._interrupted = self._deep = ""

    def opened(self, origin: Origin) -> None:
        self._origin = origin
        self._say(f"measuring with {origin.tool or origin.backend}")

    def offer(self, frame: Frame, _: Tally) -> None:
        self._frames.append(frame)

    async def run(self) -> Captured:
        loop = asyncio.get_running_loop()
        for number, name in _SIGNALS.items():
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._interrupt, name)
        self._say("starting the probes; an old bpftrace takes up to a minute, on a loaded host several")
        beside = asyncio.create_task(self._beside())
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
            raise UnavailableError(_refused(self._own, "write to", failed)) from failed
        if failed is not None:
            raise failed
        if self._done is None or self._origin is None:
            raise UnavailableError(f"the capture ended before the self-test was over: {outcome.reason}")
        return Captured(self._own.name, self._origin, tuple(self._frames), self._done, self._deep)

    def _interrupt(self, name: str) -> None:
        self._interrupted = name
        self._stopped.set()
        self._capture.stop(f"ended by {name}", at_once=True)

    async def _beside(self) -> None:
        """Waits for the probes, plays the load, waits for what is told of it, ends the capture."""
        try:
            await self._until(lambda: self._origin is not None, _OPENING_S)
            await self._until(lambda: bool(self._frames), _STARTING_S)
            if not self._frames:
                after = _STARTING_S if self._origin else _OPENING_S
                raise UnavailableError(f"the self-test waited for {after:.0f} s, and the probes printed nothing.")
            await self._until(self._traces, _STARTING_S)
            await self._until(self._ages, _AGES_S)
            self._deep = self._why_not_deep()
            self._say("writing")
            self._done = await asyncio.to_thread(play, self._own, self._file, self._stopped, self._say)
            after = len(self._frames) + _AFTER
            await self._until(lambda: len(self._frames) >= after and self._all_told(), _SETTLING_S)
        finally:
            self._capture.stop("the self-test is over", at_once=True)

    async def _until(self, ready: Callable[[], bool], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not ready() and loop.time() < end:  # noqa: ASYNC110  time counts as well
            await asyncio.sleep(_STEP_S)

    def _traces(self) -> bool:
        """Whether the deep probes run, or never will."""
        assert self._origin is not None  # noqa: S101  told before the first frame
        last = self._frames[-1]
        starting = any(one.reason.startswith(STARTING) for one in last.traced.absent)
        if last.traced.one_in or not self._probes():
            return True
        return bool(last.traced.absent) and not starting

    def _ages(self) -> bool:
        """Whether what waits is told too, which may begin a little later, or never is."""
        last = self._frames[-1]
        return last.in_flight is not None or not last.traced.one_in

    def _probes(self) -> bool:
        """Whether there may be deep probes at all."""
        origin = self._origin
        return origin is not None and "total" in origin.measured and origin.traces_stages

    def _why_not_deep(self) -> str:
        last = self._frames[-1]
        if last.traced.one_in:
            return ""
        if told := next((one.reason for one in last.traced.absent), ""):
            return told
        if self._probes():
            return f"the tracer did not start within {_STARTING_S:.0f} s"
        untraced = self._origin.why_untraced("hba") if self._origin else ""
        return untraced or "it has no tracer"

    def _all_told(self) -> bool:
        """Each held write has its line, where lines are told."""
        if self._origin is None or "total" not in self._origin.measured:
            return True
        told = {one.sector for frame in self._frames for one in frame.outliers if one.device == self._own.name}
        return self._done is None or told >= {one.sector for one in self._done.held}
