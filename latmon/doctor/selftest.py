"""The self-test: a workload with known delays, its capture, and the verdicts on the values of the panels.

A shell in its own mount namespace makes a loop device in memory, freezes its file system to delay writes, and removes
everything when its standard input closes, also if latmon is killed. If that shell is killed, a second one thaws the
file system, because the writes would never end; then the loop devices stay, and latmon names its own. No file is made
on any disk: the images are in a tmpfs that ends with the namespace.

The scene gets the captured frames one by one, as the screen does. Knows neither arguments nor how lines are printed.
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
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from latmon.analysis.attribution import by_vector
from latmon.capture import registry
from latmon.capture.collector import Capture, CaptureCounts
from latmon.capture.registry import Request
from latmon.doctor.command import PanelCheck, SelfTest, Verdict
from latmon.model.frame import OPS, TRACER_STARTING, Flow, Frame, Origin, Outlier
from latmon.model.histogram import bucket_bounds
from latmon.model.measurements import SOFTIRQS
from latmon.model.stages import called
from latmon.support import signals
from latmon.support.errors import LatmonError, UnavailableError, UsageError
from latmon.support.process import in_own_mounts
from latmon.support.text import clean
from latmon.support.trust import environment, search_path
from latmon.support.units import show_size
from latmon.views.anatomy import anatomy, largest
from latmon.views.axes import Timeline
from latmon.views.context import no_distribution, selected
from latmon.views.panels.inflight import ages
from latmon.views.panels.outliers import log
from latmon.views.panels.outstanding import depth_view
from latmon.views.screen import Scene
from latmon.views.selection import Selection

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
_MOUNT_POINTS = ("/tmp", "/run", "/mnt", "/dev/shm")  # noqa: S108  covered in its own namespace, nothing is written below
"""Directories, of which the first mount point is taken, else the first: a chroot can make only such one private."""
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
BUCKET = 0.125
"""Greatest relative width of a histogram's bucket."""
LATE_US = 20_000
"""Greatest delay of a waiting thread's wake-up on a busy host, by which its own measurement is too long."""
_SHARE = 0.25
"""Relative error of the time with an I/O in flight, because depths are sampled."""
_WINDOW_US = 600_000_000
_SOFTIRQ = "softirq"
"""Part of the name of each path that completes I/Os in a softirq."""
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
def made_device(environ: Mapping[str, str], progress: Callable[[str], None]) -> Iterator[LoopDevice]:
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
    return next((kind_of_fs for kind_of_fs in _FILE_SYSTEMS if _find(kind_of_fs[2][0], environ)), None)


def _find(tool: str, environ: Mapping[str, str]) -> str | None:
    return shutil.which(tool, path=search_path(environ))


def _start(system: tuple[str, str, Sequence[str]] | None, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    name, room, make = system or ("", "0", ())
    directories = [path for path in _MOUNT_POINTS if Path(path).is_dir()]
    at = next((path for path in directories if Path(path).is_mount()), directories[0] if directories else "/")
    words = [*in_own_mounts(_SHELL, at), "latmon-self-test"]
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
    answer, _, remaining_expect = line.partition(" ")
    if answer == word:
        return remaining_expect
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
        status_line = next(line for line in status.read_text().splitlines() if line.startswith("CapEff:"))
        may = bool(int(status_line.split()[1], 16) >> _SYS_ADMIN & 1)
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


@dataclass(frozen=True, slots=True)
class Captured:
    """The writes to the device, and the capture of them."""

    device: str
    origin: Origin
    frames: tuple[Frame, ...]
    done: Written
    on_demand: str
    """The reason why the tracer didn't run; empty where it did."""


def capture(device: LoopDevice, request: Request, progress: Callable[[str], None]) -> Captured:
    """Write to the device and capture it. Raises UnavailableError where nothing can be captured.

    Privileges are dropped as in any capture.
    """
    try:
        file = os.open(device.path, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        raise UnavailableError(_refused(device, "open", error)) from error
    try:
        return asyncio.run(_WorkloadCapture(device, file, request, progress).run())
    finally:
        os.close(file)


def _refused(device: LoopDevice, what: str, error: OSError) -> str:
    why = clean(error.strerror or str(error), 200)
    return (
        f"the self-test can't {what} its device {device.path}: {why}; it takes 20 MB of memory and no disk, try again."
    )


class _WorkloadCapture:
    """Sink of the capture that also runs the workload."""

    def __init__(self, device: LoopDevice, file: int, request: Request, progress: Callable[[str], None]) -> None:
        self._device, self._file, self._progress = device, file, progress
        options = replace(
            request.options,
            interval_us=INTERVAL_US,
            devices=(device.name,),
            threshold_us=THRESHOLD_US,
            stages="all",
        )
        self._capture = Capture(replace(request, options=options), self)
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
        signals.leave_if_received()
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
        failed = next((result for result in results if isinstance(result, Exception)), None)
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
        starting = any(missing.reason.startswith(TRACER_STARTING) for missing in last.traced.absent)
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
        if reported := next((missing.reason for missing in last.traced.absent), ""):
            return reported
        if self._probes():
            return f"the tracer did not start within {_STARTING_S:.0f} s"
        untraced = self._origin.why_untraced("hba") if self._origin else ""
        return untraced or "it has no tracer"

    def _all_reported(self) -> bool:
        """Return whether each delayed write has its outlier, where outliers are reported."""
        if self._origin is None or "total" not in self._origin.measured:
            return True
        reported = {
            outlier.sector
            for frame in self._frames
            for outlier in frame.outliers
            if outlier.device == self._device.name
        }
        return self._done is None or reported >= {delayed_write.sector for delayed_write in self._done.delayed}


def check_backend(name: str) -> None:
    """Raise UsageError for a backend that doesn't measure this host."""
    registry.check(name)
    if name in registry.FINITE:
        raise UsageError(f"--self-test measures this host, and {name} doesn't; leave --backend {name} out")


def self_test(request: Request, progress: Callable[[str], None]) -> SelfTest:
    """Run the self-test and return its result; `request` names backend and tools, `progress` gets progress texts.

    It takes about ten seconds on an idle host, plus the start of the probes.
    """
    try:
        refuse(sys.platform, os.geteuid(), os.environ)
        with made_device(os.environ, progress) as device:
            progress(f"made {device.path}: {device.how}")
            captured = capture(device, request, progress)
    except UnavailableError as refusal:
        return SelfTest(refused=str(refusal))
    origin = captured.origin
    tier = f", tier {origin.tier}" if origin.tier else ""
    return SelfTest("", device.name, f"{origin.tool or origin.backend}{tier}", evaluate(captured))


@dataclass(frozen=True, slots=True)
class _Replayed:
    """The capture, the scene with all of its frames, and the greatest age of an I/O at the end of any frame."""

    captured: Captured
    scene: Scene
    oldest_us: int

    @property
    def delayed(self) -> tuple[DelayedWrite, ...]:
        return self.captured.done.delayed

    @property
    def origin(self) -> Origin:
        return self.captured.origin

    @property
    def frames(self) -> tuple[Frame, ...]:
        return self.captured.frames

    @property
    def device(self) -> str:
        return self.captured.device


def evaluate(captured: Captured) -> tuple[PanelCheck, ...]:
    """Return all checks in the order of the panels."""
    seen = _replay(captured)
    first = (_listed(seen), *_counts(seen))
    if not captured.done.delayed:
        why = "no delay was made: the host has no mkfs.ext4, mkfs.xfs or mkfs.btrfs, or no fsfreeze; only counts were"
        return (*first, PanelCheck("delay", Verdict.UNMEASURED, f"{why} checked"))
    if not all(delayed_write.was_delayed for delayed_write in captured.done.delayed):
        why = "this kernel doesn't let a loop device wait for its frozen file system, so no delay was made"
        return (*first, PanelCheck("delay", Verdict.UNMEASURED, why))
    checks: Iterable[Callable[[_Replayed], Iterator[PanelCheck]]] = (
        *(_map, _stages, _depths, _in_flight, _outliers, _interrupts),
        _findings,
    )
    return (*first, *(shown for check in checks for shown in check(seen)))


def _replay(captured: Captured) -> _Replayed:
    """Feed a scene with the frames, as the screen is fed."""
    scene = Scene(Selection(selected=captured.device, window_us=_WINDOW_US, threshold_us=THRESHOLD_US))
    scene.opened(captured.origin)
    oldest_us = 0
    for frame in captured.frames:
        scene.append(frame)
        seen_ages = (aged.age_us for aged in ages(scene.view) if aged.device == captured.device)
        oldest_us = max(oldest_us, *seen_ages, 0)
    return _Replayed(captured, scene, oldest_us)


def _listed(seen: _Replayed) -> PanelCheck:
    found = any(subject.device.name == seen.device for subject in seen.scene.view.subjects())
    return _reported("device", f"{seen.device} is {'' if found else 'not '}listed", passed=found)


def _counts(seen: _Replayed) -> Iterator[PanelCheck]:
    """Check the probe's and the recorded kernel counts against the workload and the kernel's counters."""
    done = seen.captured.done
    writes = Flow(seen.device, "write")
    for name, flows in (("counts", [f.seen for f in seen.frames]), ("diskstats", [f.kernel for f in seen.frames])):
        completed = sum(completions[writes].count for completions in flows if writes in completions)
        if name == "counts" and no_distribution(seen.origin):
            yield _unmeasured(name, seen)
            continue
        text = f"{completed:,} writes completed, {done.writes:,} were made, /proc/diskstats has {done.counted:,}"
        yield _reported(name, text, passed=completed == done.writes == done.counted)


def _map(seen: _Replayed) -> Iterator[PanelCheck]:
    if no_distribution(seen.origin):
        yield _unmeasured("latency map", seen)
        return
    timeline = Timeline(INTERVAL_US, len(seen.frames) * 2, OPS, seen.frames)
    counts = timeline.counts(seen.device)
    for delayed_write in seen.delayed:
        inside = [i for i, n in counts.items() if n and _fits(delayed_write, *bucket_bounds(i))]
        made_write = (
            f"a write of {_ms(delayed_write.asked_us)} was made, {_ms(delayed_write.took_us)} as its thread saw it"
        )
        if inside:
            low, high = bucket_bounds(inside[0])
            yield _reported("latency map", f"an I/O from {_ms(low)} to {_ms(high)}; {made_write}", passed=True)
        else:
            yield _reported("latency map", f"no I/O of that latency; {made_write}", passed=False)


def _stages(seen: _Replayed) -> Iterator[PanelCheck]:
    on_demand = seen.scene.history.on_demand.traced
    if seen.captured.on_demand:
        yield PanelCheck("stages", Verdict.UNMEASURED, f"not measured with {_backend(seen)}: {seen.captured.on_demand}")
        return
    tail = anatomy(seen.device, OPS, on_demand, seen.origin, cut_us=THRESHOLD_US, detailed=False).tail
    if max(on_demand.sampled) > 1 and (tail is None or tail.count < len(seen.delayed)):
        yield PanelCheck(
            "stages", Verdict.UNMEASURED, f"1 I/O in {max(on_demand.sampled)} was traced, and not all delayed ones"
        )
        return
    if tail is None:
        yield _reported(
            "stages", f"no traced I/O of {_ms(THRESHOLD_US)} or more; {len(seen.delayed)} were made", passed=False
        )
        return
    top = largest(tail.parts)
    us, made_us = round(tail.parts.get(top, 0)), sum(delayed_write.took_us for delayed_write in seen.delayed)
    holds = on_demand.includes_of(seen.device).get(top, ())
    with_others = f" with {', '.join(holds)} in it" if holds else ""
    in_driver = top == "hba" or "hba" in holds
    what = f"{called(top, holds).sentence or 'no stage'}{with_others} takes {_ms(us)} of {tail.count:,} slow I/Os"
    text = f"{what}; {_ms(made_us)} were made in the driver"
    yield _reported("stages", text, passed=in_driver and _near(us, made_us, BUCKET, LATE_US * len(seen.delayed)))


def _depths(seen: _Replayed) -> Iterator[PanelCheck]:
    subject = selected(seen.scene.view.subjects())
    facts = depth_view(seen.scene.view, subject) if subject is not None else None
    depths = facts.depths if facts else None
    if facts is None or depths is None or not depths.in_driver:
        yield PanelCheck(
            "depths", Verdict.UNMEASURED, f"not measured with {_backend(seen)}: {facts.why if facts else ''}"
        )
        return
    busy = sum(n for depth, n in depths.in_driver.items() if depth) / sum(depths.in_driver.values())
    us, made_us = round(busy * facts.covered_us), sum(delayed_write.took_us for delayed_write in seen.delayed)
    text = f"an I/O in the driver for {_ms(us)}, {_ms(made_us)} were made"
    yield _reported("depths", text, passed=_near(us, made_us, _SHARE, INTERVAL_US // 5))


def _in_flight(seen: _Replayed) -> Iterator[PanelCheck]:
    longest = max(seen.delayed, key=lambda delayed_write: delayed_write.took_us)
    made_write = f"a write waited for {_ms(longest.took_us)}"
    if seen.oldest_us:
        least = longest.asked_us - 2 * INTERVAL_US
        passed = least <= seen.oldest_us <= longest.took_us + LATE_US
        yield _reported(
            "in flight", f"the oldest waited for {_ms(seen.oldest_us)} at a frame's end; {made_write}", passed=passed
        )
    elif any(frame.in_flight is not None and frame.in_flight.follows(seen.device) for frame in seen.frames):
        yield _reported("in flight", f"nothing was listed as waiting; {made_write}", passed=False)
    else:
        why = f"not measured with {_backend(seen)}"
        if not seen.captured.on_demand:
            why = "not recorded by the tracer in this time"
        text = f"ages are {why}, and a wait of {_ms(longest.took_us)} is too short to be listed without them"
        yield PanelCheck("in flight", Verdict.UNMEASURED, text)


def _outliers(seen: _Replayed) -> Iterator[PanelCheck]:
    if no_distribution(seen.origin):
        yield _unmeasured("outliers", seen)
        return
    rows = [row.outlier for row in log(seen.scene.view).rows if row.outlier.device == seen.device]
    for delayed_write in seen.delayed:
        outlier = next((row for row in rows if row.sector == delayed_write.sector), None)
        if outlier is None:
            reported = (
                f"{len(rows):,} are listed, none at sector {delayed_write.sector:,}; "
                f"{_ms(delayed_write.asked_us)} was made there"
            )
            yield _reported("outliers", reported, passed=False)
            continue
        wrong = _wrong_fields(outlier, delayed_write)
        who = f" by {outlier.comm}" if outlier.comm else ""
        text = (
            f"{outlier.op} of {show_size(outlier.bytes or 0)} at sector {delayed_write.sector:,}{who} "
            f"took {_ms(outlier.total_us)}, "
            f"{_ms(delayed_write.asked_us)} was made{'; wrong: ' + ', '.join(wrong) if wrong else ''}"
        )
        yield _reported("outliers", text, passed=not wrong)


def _wrong_fields(outlier: Outlier, delayed_write: DelayedWrite) -> Sequence[str]:
    wrong = {
        "latency": not _fits(delayed_write, outlier.total_us, outlier.total_us + 1),
        "op": outlier.op != "write",
        "size": outlier.bytes is not None and outlier.bytes != BYTES,
        "issuer": bool(outlier.comm) and outlier.comm != COMM,
    }
    return [name for name, is_wrong in wrong.items() if is_wrong]


def _interrupts(seen: _Replayed) -> Iterator[PanelCheck]:
    """Check that each I/O which a softirq completed has a time in that stage.

    The delay is not made by an interrupt. The runs in the panel are those of the whole host.
    """
    on_demand = seen.scene.history.on_demand
    paths = on_demand.traced.paths.get(seen.device, {})
    completed = sum(n for path, n in paths.items() if _SOFTIRQ in path)
    if seen.captured.on_demand or not completed or not on_demand[SOFTIRQS]:
        why = seen.captured.on_demand or f"no I/O of {seen.device} was completed in a softirq"
        yield PanelCheck("interrupts", Verdict.UNMEASURED, why)
        return
    block = by_vector(on_demand[SOFTIRQS]).get("BLOCK")
    runs = block.run.count if block else 0
    timed = sum(
        h.count for s, h in on_demand.traced.histograms.items() if s.device == seen.device and s.stage == _SOFTIRQ
    )
    text = f"{completed:,} I/Os of {seen.device} were completed in a softirq, {timed:,} have a time in it"
    yield _reported(
        "interrupts", f"{text}; BLOCK ran {runs:,} times on this host", passed=runs > 0 and timed == completed
    )


def _findings(seen: _Replayed) -> Iterator[PanelCheck]:
    """Report that the delay is too short for any rule."""
    longest = max(delayed_write.asked_us for delayed_write in seen.delayed)
    yield PanelCheck("findings", Verdict.UNMEASURED, f"no rule fires for a single wait of {_ms(longest)}")


def _fits(delayed_write: DelayedWrite, low_us: int, high_us: int) -> bool:
    """Return whether [low, high) overlaps the write's time within a bucket's width and a late wake-up."""
    least = min(delayed_write.asked_us, delayed_write.took_us) * (1 - BUCKET) - LATE_US
    return low_us <= delayed_write.took_us * (1 + BUCKET) + LATE_US and high_us > least


def _near(us: int, made_us: int, share: float, more_us: int) -> bool:
    return abs(us - made_us) <= made_us * share + more_us


def _reported(name: str, what: str, *, passed: bool) -> PanelCheck:
    return PanelCheck(name, Verdict.OK if passed else Verdict.FAILED, what)


def _unmeasured(name: str, seen: _Replayed) -> PanelCheck:
    return PanelCheck(name, Verdict.UNMEASURED, f"not measured with {_backend(seen)}")


def _backend(seen: _Replayed) -> str:
    tier = f", tier {seen.origin.tier}" if seen.origin.tier else ""
    return f"{seen.origin.backend}{tier}"


def _ms(us: int) -> str:
    return f"{us / 1000:,.0f} ms"
