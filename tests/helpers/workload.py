"""I/O whose numbers are known: fio's own counts, the kernel's counters beside them, and latmon's capture of both.

For live tests and for the script inside a lab guest: nothing here needs pytest. The counters are read in ten lines of
their own, so that latmon's reader is not its own reference.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from terminal import environment, holds_frames, latmon, wait_for

from latmon.model import measurements
from latmon.model.frame import PATH_OPS, Frame
from latmon.model.histogram import bucket_index, merge
from latmon.recording.reader import open_recording
from latmon.support.errors import RecordingError

OPS = ("read", "write", "flush", "discard")
STARTING_S = 300.0
"""bpftrace 0.17 takes 70 s to start in an emulated guest on a quiet host."""
_COLUMNS = {"read": (3, 5), "write": (7, 9), "discard": (14, 16), "flush": (18, None)}
_SECTOR = 512
CROWDED = 0.15
"""What a probe on tracepoints may lose more while CPUs are crowded.

0.5 to 8.5 % were seen beside four busy loops on two CPUs: the kernel skips such programs on a CPU whose task was
preempted while it read a map. `skipped` counts them.
"""


def crowded():
    """Whether twice as many tasks want to run as there are CPUs in the last minute, or some waited half of 10 s."""
    try:
        waiting = float(Path("/proc/pressure/cpu").read_text().partition("avg10=")[2].split()[0])
    except (OSError, IndexError):
        waiting = 0  # a kernel without pressure stall information
    return waiting > 50 or os.getloadavg()[0] > 2 * os.cpu_count()


def has_counters(frame, *devices):
    """Whether the frame has the kernel's counters of all of these I/Os: some of the first and the last ones don't."""
    seen = [flow for flow, done in frame.seen.items() if done.count and flow.device in devices and flow.op in OPS]
    return all(flow in frame.kernel for flow in seen)


class Done(NamedTuple):
    """Completed I/Os."""

    count: int = 0
    bytes: int = 0


class Issued(NamedTuple):
    """fio's numbers of one job's op: its I/Os, and their times in microseconds."""

    count: int
    bytes: int
    p50: float | None
    p99: float | None
    slat: float


Counters = Mapping[str, Mapping[str, Done]]
"""Device -> op -> what was completed since boot."""


def diskstats() -> Counters:
    diskstats = {}
    for line in Path("/proc/diskstats").read_text().splitlines():
        words = line.split()
        diskstats[words[2]] = {
            op: Done(int(words[count]), 0 if sectors is None else int(words[sectors]) * _SECTOR)
            for op, (count, sectors) in _COLUMNS.items()
        }
    return diskstats


def gained(before: Counters, after: Counters, device: str) -> dict[str, Done]:
    was = before.get(device, {})
    return {
        op: Done(now.count - was.get(op, Done()).count, now.bytes - was.get(op, Done()).bytes)
        for op, now in after[device].items()
    }


def fio(
    directory: Path, seconds: float, *jobs: Mapping[str, object], urgent: bool = False, cgroup: Path | None = None
) -> dict[str, dict[str, Issued]]:
    """Runs all jobs at once; name of the job -> op -> what fio issued.

    `urgent` for its latencies: what fio waits for a CPU of a busy host is not the disk's. `cgroup`: where it runs.
    """
    limit = f"{round(seconds * 1000)}ms"  # of 0.8 it would take the 0
    options = {"direct": 1, "ioengine": "libaio", "bs": "4k", "time_based": 1, "runtime": limit, "randrepeat": 0}
    words = [*_words(options), *(word for job in jobs for word in _words({"name": job["name"], **job}))]
    command = [*(["chrt", "--fifo", "50"] if urgent else []), "fio", "--output-format=json", *words]
    inside = [] if cgroup is None else ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(cgroup)]
    done = subprocess.run([*inside, *command], cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    reported = json.loads(done.stdout[done.stdout.index("{") :])  # warnings come before it
    return {job["jobname"]: _issued(job) for job in reported["jobs"]}


def _words(options: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items()]


def _issued(job):
    found = {
        op: Issued(one["total_ios"], one["io_bytes"], *_percentiles(one["clat_ns"]), one["slat_ns"]["mean"] / 1e3)
        for op, one in (("read", job["read"]), ("write", job["write"]), ("discard", job["trim"]))
        if one["total_ios"]
    }
    if job["sync"]["total_ios"]:
        found["flush"] = Issued(job["sync"]["total_ios"], 0, *_percentiles(job["sync"]["lat_ns"]), 0)
    return found


def _percentiles(times):
    percentile = times.get("percentile", {})
    return tuple(percentile[p] / 1e3 if p in percentile else None for p in ("50.000000", "99.000000"))


def buckets_apart(one_us: float, other_us: float) -> int:
    """How many of our buckets (8 per octave) lie between two latencies."""
    return abs(bucket_index(round(one_us)) - bucket_index(round(other_us)))


CALLS = """
import contextlib, os, sys
for name in "abc":
    file = os.open(f"{sys.argv[1]}/{name}", os.O_CREAT | os.O_RDWR)
    for n in range(50):
        os.pwrite(file, bytes(4096), n * 4096)
        os.write(file, bytes(100))
        os.writev(file, [bytes(10), bytes(20)])
        os.pread(file, 4096, n * 4096)
        os.preadv(file, [bytearray(64)], 0)
    for n in range(40):
        os.pwrite(file, bytes(65536), n * 65536)
        (os.fsync if n % 2 else os.fdatasync)(file)
    os.lseek(file, 0, os.SEEK_SET)
    while os.read(file, 65536):
        pass
    os.close(file)
    directory = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
    os.stat(f"{sys.argv[1]}/{name}")
    os.lstat(name, dir_fd=directory)
    os.rename(f"{sys.argv[1]}/{name}", f"{sys.argv[1]}/{name}1")
    os.rename(f"{name}1", f"{name}2", src_dir_fd=directory, dst_dir_fd=directory)
    os.unlink(f"{name}2", dir_fd=directory)
    os.mkdir(f"{sys.argv[1]}/{name}")
    os.rmdir(name, dir_fd=directory)
    left_out = (
        lambda: os.read(file, 10),
        lambda: os.open(f"{sys.argv[1]}/none", os.O_RDONLY),
        lambda: os.unlink(f"{sys.argv[1]}/none"),
        lambda: os.stat(f"{sys.argv[1]}/none"),
    )
    for one in left_out:
        with contextlib.suppress(OSError):
            one()
"""
"""Known calls on three files, and some that fail."""
CALLS_OF = {
    "read": ("read", "readv", "pread64", "preadv", "preadv2"),
    "write": ("write", "writev", "pwrite64", "pwritev", "pwritev2"),
    "open": ("open", "openat", "openat2"),
    "fsync": ("fsync", "fdatasync"),
    "close": ("close",),
    "rename": ("rename", "renameat", "renameat2"),
    "unlink": ("unlink", "unlinkat"),
    "stat": ("stat", "lstat", "fstat", "newfstatat", "statx"),
}
OP_OF = {call: op for op, calls in CALLS_OF.items() for call in calls}
TRACED = re.compile(r"^\d+ +(\w+)\((.*)\) += \d+(<[^ ]*>)? <([\d.]+)>$", re.MULTILINE)


def strace(directory: Path, *command: object) -> str:
    """Run a command; return its operations on files, with the time of each."""
    words = ["strace", "-f", "-y", "-T", "-e", f"trace={','.join(OP_OF)}", "-o", directory / "calls"]
    subprocess.run([str(word) for word in (*words, *command)], check=True)
    return (directory / "calls").read_text()


def by_strace(text, point):
    """Op -> seconds of each call on a file of the mount that succeeded."""
    found = {}
    for name, arguments, opened, seconds in TRACED.findall(text):
        op = OP_OF[name]
        its = opened if op == "open" else arguments.partition(",")[0]
        if op in PATH_OPS and "AT_REMOVEDIR" not in arguments:
            # The descriptor of a directory, or the path.
            its = arguments.replace(f'"{point}', f"<{point}").replace(f"<{point}>", f"<{point}/>")
        if f"<{point}/" in its:
            found.setdefault(OP_OF[name], []).append(float(seconds))
    return found


def of_mount(frames, point):
    """Op -> what was done on files of the mount."""
    found = {}
    for frame in frames:
        for one, latency in frame[measurements.FILES].items():
            if one.mount == str(point):
                found.setdefault(one.op, []).append(latency)
    return {op: merge(parts) for op, parts in found.items()}


class LoopDevice:
    """A disk on a file of the test, without other I/O: one hardware queue, write cache, discards."""

    def __init__(self, image: Path, size: int = 256 << 20) -> None:
        image.touch()
        os.truncate(image, size)
        attach = ["losetup", "--find", "--show", str(image)]
        direct = [*attach, "--direct-io=on"]
        # Another process may have taken the device: try again. Some file systems have no direct I/O.
        for words in (direct, direct, attach, attach):
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode == 0 and done.stdout.strip():
                break
        self.path = done.stdout.strip()
        assert self.path, done.stderr
        self.name = Path(self.path).name
        self._take_all_tags()

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.detach()

    def _take_all_tags(self):
        """A loop device keeps what another user left: driver tags that nr_requests took away stay away, though sysfs
        reports all of them, until nr_requests changes again without a scheduler."""
        queue = Path("/sys/block") / self.name / "queue"
        (queue / "scheduler").write_text("none")
        for requests in ("100", "128"):
            (queue / "nr_requests").write_text(requests)

    def detach(self):
        if self.path:
            subprocess.run(["losetup", "--detach", self.path], check=True)
            self.path = ""


class Watch:
    """The kernel's counters, read every 50 ms on the side."""

    def __init__(self) -> None:
        self._samples = [(now_us(), diskstats())]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self):
        while not self._over.wait(0.05):
            self._samples.append((now_us(), diskstats()))

    def stop(self):
        self._over.set()
        self._thread.join()

    def between(self, begin_us: int, end_us: int, device: str) -> dict[str, Done]:
        """Return the completions of a device, to 25 ms."""
        return gained(self._at(begin_us), self._at(end_us), device)

    def _at(self, mono_us: int) -> Counters:
        return min(self._samples, key=lambda sample: abs(sample[0] - mono_us))[1]


def now_us() -> int:
    return time.monotonic_ns() // 1000


class Capture:
    """`latmon --record` as a user runs it, entered when its first frame is in the file."""

    def __init__(self, directory: Path, *words: str, before: Sequence[str] = (), **environ: str) -> None:
        """`before`: words that start latmon's command."""
        self.file = directory / f"capture-{time.monotonic_ns()}.latmon.jsonl.gz"
        self._err = self.file.with_suffix(".stderr")
        self.watch = Watch()
        with self._err.open("w") as err:
            self._process = subprocess.Popen(
                # On-demand probes only where a test asks for them: on tier C they make the always-on probe miss more.
                [*before, *latmon("--record", str(self.file), "--stages", "basic", *words)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
                env=environment(**environ),
                start_new_session=True,
            )

    def __enter__(self):
        wait_for(lambda: holds_frames(self.file) or not self.runs, STARTING_S, 0.1)
        assert self.runs, self.stderr
        assert holds_frames(self.file), "no frame came"
        return self

    def __exit__(self, *_exc):
        self._process.kill()
        self._process.wait()
        self.watch.stop()

    @property
    def stderr(self) -> str:
        return self._err.read_text()

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def frames(self) -> list[Frame]:
        try:
            return [item for item in open_recording(self.file) if isinstance(item, Frame)]
        except RecordingError:
            return []

    def stop(self, number: int = signal.SIGINT) -> int:
        """Its exit code when a user ends it."""
        self._process.send_signal(number)
        return self.ended()

    def ended(self, seconds: float = 120.0) -> int:
        """Its exit code at the end of its duration."""
        return self._process.wait(seconds)

    def report(self) -> dict[str, Any]:
        """The output of `latmon report --json`."""
        done = subprocess.run(
            latmon("report", str(self.file), "--json"), env=environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
