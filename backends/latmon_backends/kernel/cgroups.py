"""Cgroups by number, with their containers' names; their limits on I/O (blk-throttle), and the I/Os that count there.

Reads io.max and io.stat of cgroup version 2 and blkio.throttle.* of version 1, in the hierarchies that are mounted;
any user may read these files. A thread walks all cgroups, on most hosts every 2 s and as seldom as every 30 s where
that takes long; those with I/O are looked at every 2 s in any case, and those with a limit are read with each sample. A
cgroup that vanishes while it is read has no limit.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from latmon.capture.mounts import Mounts, mounts_of
from latmon.model.frame import MAX_LIMITS, CgroupLimit, Flow
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer, container_id
from latmon.support.paths import content, matching, regular, text
from latmon.support.process import run_aside
from latmon.support.text import clean, clean_path
from latmon_backends.kernel.diskstats import MOST_GAINED, has_restarted
from latmon_backends.kernel.processes import pids

LEAST_WALK_US, WALK_US = 2_000_000, 30_000_000
"""Least and longest time between two walks: a new limit that lasts for 20 s must be seen when it begins."""
WALK_SHARE = 200
"""A walk takes at most so small a part of a CPU, 0.5 %, until it is as seldom as it may be."""
MAX_ACTIVE = 50
"""Cgroups with I/O that are looked at between two walks; each takes 0.1 ms."""
MAX_CGROUPS = 20_000
"""Cgroups that a walk visits; 1,000 of version 1 take 80 ms of CPU."""
COUNT_WALK_US = 5_000_000
"""Time between two walks for cgroups whose I/Os are counted."""
MAX_COUNTED = 500
"""Cgroups whose counters a sample reads; each takes 20 us."""
MAX_LIMITED = 500
"""Cgroups with a limit that a sample reads."""
_MAX_NAME = 256
_PATIENCE_S = 0.02
"""Longest time for which a frame waits for the name of a new cgroup."""
_LOOK_US = 5_000_000
"""Time between two looks at the processes of a cgroup with I/O."""
_MAX_PROCESSES = 200
_MAX_BELOW = 100
"""Cgroups below a limited one whose processes are looked at."""
_NAMES = 3
_OPS = ("read", "write")
_COUNTED = {"Read": "read", "Write": "write", "Discard": "discard"}
"""Row of version 1's counters -> op."""
_DIGITS = 20
"""Digits of 2^64."""
_Values = dict[str, dict[str, int]]
"""MAJOR:MINOR -> name -> number."""
T = TypeVar("T")
_DOCKER = "var/lib/docker/containers"
_PODMAN = ("overlay-containers", "vfs-containers", "btrfs-containers")
_POD = re.compile(r"pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
_USER = re.compile(r"/user-(\d{1,10})\.slice/")
_MAX_FILE = 4 << 20
CgroupCounters = Mapping[str, "CountedCgroup"]
"""Path -> counters of a cgroup."""
_IO = re.compile(rb"^(?:read|write)_bytes: (\d{1,20})$", re.MULTILINE)
_COUNTERS = {1: "blkio.throttle.io_serviced", 2: "io.stat"}
_V1_LIMITS = {
    f"{op} {counter}": f"blkio.throttle.{op}_{short}_device"
    for op in _OPS
    for counter, short in (("ios", "iops"), ("bytes", "bps"))
}
_V2_LIMITS = {"riops": "read ios", "wiops": "write ios", "rbps": "read bytes", "wbps": "write bytes"}
_V2_COUNTS = {
    "rios": "read ios",
    "wios": "write ios",
    "dios": "discard ios",
    "rbytes": "read bytes",
    "wbytes": "write bytes",
    "dbytes": "discard bytes",
}


def cgroup_name(path: str) -> str:
    """Return a cgroup's path in its hierarchy, clean, and only the end of one that is too long.

    The end names the container. All readers name a cgroup by this, because findings join their rows by the name.
    """
    return clean_path(path, _MAX_NAME)


class LimitedCgroup(NamedTuple):
    """A directory of a cgroup with a limit, below the mount point of its hierarchy."""

    root: Path
    path: Path
    version: int

    @property
    def name(self) -> str:
        """Return the cgroup's path below the mount point, as `cgroup_name` shows it."""
        return cgroup_name(f"/{self.path.relative_to(self.root)}" if self.path != self.root else "/")


@dataclass
class _Processes:
    """Processes of a cgroup and of those below it, as of the last look."""

    ios: int = 0
    looked_us: int = 0
    count: int = 0
    names: tuple[str, ...] = ()


Walked = tuple[LimitedCgroup, ...] | None
"""Cgroups with a limit; None where they are not known."""


class Walk(NamedTuple):
    """Result of a walk."""

    limited: Walked
    active: tuple[LimitedCgroup, ...] = ()
    """Cgroups without a limit whose counters differ from those of the walk before."""
    counters: Mapping[Path, bytes] = MappingProxyType({})
    """Cgroup -> its counters of I/O as text, where walks are so seldom that the active ones matter."""
    spent_us: int = 0
    """CPU time of the walk."""


def _aside(call: Callable[[], T]) -> Future[T]:
    return run_aside("cgroups", call)


class ContainerNames:
    """Containers' names of cgroups with I/O.

    The files that have them may be large, on a slow file system, or a user's: a thread reads them, once for a cgroup.
    A caller waits for that no longer than `_PATIENCE_S`.
    """

    def __init__(self, root: Path, run: Callable[[Callable[[], Any]], Future[Any]]) -> None:
        """`root`: where the files of container runtimes are; `run` starts a call."""
        self._root, self._run = root, run
        self._known: dict[str, str] = {}
        self._reading: tuple[str, Future[str]] | None = None

    def name(self, cgroup: str) -> str:
        """Return the container's name; empty where the cgroup is no container's, and until the name is known."""
        if not container_id(cgroup) and not _POD.search(cgroup):
            return ""
        if cgroup not in self._known:
            self._read(cgroup)
        return self._known.get(cgroup, "")

    def _read(self, cgroup: str) -> None:
        self._take(0)
        if self._reading is None and cgroup not in self._known:
            self._reading = cgroup, self._run(lambda: container_name(cgroup, self._root))
            self._take(_PATIENCE_S)

    def _take(self, patience_s: float) -> None:
        """Take the name that is being read."""
        if self._reading is None:
            return
        cgroup, reading = self._reading
        with contextlib.suppress(TimeoutError):
            name = reading.result(timeout=patience_s)
            if len(self._known) > MAX_CGROUPS:
                self._known.clear()
            self._known[cgroup], self._reading = name, None


class CgroupNames:
    """Paths and containers' names of the cgroups in the hierarchy of the I/O controller, by number in the kernel.

    A number is that of the cgroup's directory. A walk takes 10 us for a cgroup, 10 ms for a host with 500 containers;
    a caller waits for it no longer than `_PATIENCE_S`.
    """

    def __init__(
        self,
        proc: Path,
        root: Path = Path("/"),
        run: Callable[[Callable[[], Any]], Future[Any]] = _aside,
    ) -> None:
        """`root`: where the files of container runtimes are; `run` starts a walk."""
        self._proc, self._run = proc, run
        self._containers = ContainerNames(root, run)
        self._known: dict[int, str] = {}
        self._lost: set[int] = set()
        """Numbers that no walk found: the cgroup was removed."""
        self._walking: Future[Mapping[int, str]] | None = None

    def named(self, number: int) -> tuple[str, str]:
        """Return the cgroup's path and its container's name; `#NUMBER` where the path isn't known."""
        if number not in self._known and number not in self._lost:
            self._look(number)
        path = self._known.get(number, f"#{number}")
        return path, self._containers.name(path)

    def _look(self, number: int) -> None:
        begun, self._walking = self._walking, self._walking or self._run(lambda: numbers(self._proc))
        try:
            paths = self._walking.result(timeout=_PATIENCE_S if begun is None else 0)
        except TimeoutError:
            return
        self._walking = None
        if len(self._known) > MAX_CGROUPS:
            self._known.clear()
            self._lost.clear()
        self._known |= paths
        low = number & 0xFFFF_FFFF  # before 5.5 the upper half is a generation
        if number not in self._known and low in self._known:
            self._known[number] = self._known[low]
        if number not in self._known and begun is None:  # else the cgroup may be younger than the walk
            self._lost.add(number)


def numbers(proc: Path) -> Mapping[int, str]:
    """Return number -> path of all cgroups in the hierarchy that bios are charged to, as many as a walk visits."""
    roots = sorted(hierarchies(mounts_of(proc)), key=lambda hierarchy: hierarchy[1])
    if not roots:
        return {}
    root = roots[0][0]  # blkio of version 1, where it is mounted: then version 2 has no controller of I/O
    numbers = {}
    for path, number in _numbered(root):
        numbers[number] = LimitedCgroup(root, path, 1).name
        if len(numbers) >= MAX_CGROUPS:
            break
    return numbers


def _numbered(root: Path) -> Iterator[tuple[Path, int]]:
    """Yield each cgroup with the number of its directory, the upper ones first."""
    try:
        waiting = deque([(root, root.stat().st_ino)])
    except OSError:
        return
    while waiting:
        path, number = waiting.popleft()
        yield path, number
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            waiting += ((Path(entry.path), entry.inode()) for entry in entries if entry.is_dir(follow_symlinks=False))


_KUBELET_LOGS, _KUBELET_PODS = "var/log/containers", "var/log/pods"


def container_name(cgroup: str, root: Path = Path("/")) -> str:
    """Return the name that the host's files give to the container of a cgroup; empty where none does.

    The kubelet's log files (`namespace/pod/container`) may be read by every user, those of docker and podman by root.
    """
    identity, pod = container_id(cgroup), _POD.search(cgroup)
    name = ""
    if pod:
        name = _by_kubelet(identity, pod["uid"].replace("_", "-"), root)
    elif identity:
        name = _by_docker(identity, root) or _by_podman(identity, cgroup, root)
    return clean(name, _MAX_NAME)


def _by_kubelet(identity: str, uid: str, root: Path) -> str:
    """Return the name by the log files POD_NAMESPACE_CONTAINER-ID.log; of a cgroup without one that of its pod."""
    for path in matching(root / _KUBELET_LOGS, f"*-{identity}.log") if identity else ():
        pod, _, remainder = path.name.removesuffix(f"-{identity}.log").partition("_")
        namespace, _, container = remainder.partition("_")
        if container:
            return f"{namespace}/{pod}/{container}"
    for path in matching(root / _KUBELET_PODS, f"*_{uid}"):
        namespace, _, pod = path.name.removesuffix(f"_{uid}").partition("_")
        if pod:
            return f"{namespace}/{pod}"
    return ""


def _by_docker(identity: str, root: Path) -> str:
    tree = _json(root / _DOCKER / identity / "config.v2.json")
    name = tree.get("Name") if isinstance(tree, dict) else None
    return name.removeprefix("/") if isinstance(name, str) else ""


def _by_podman(identity: str, cgroup: str, root: Path) -> str:
    """Return the name in the list of containers, of root or of the user whose cgroup it is."""
    storage = root / "var/lib/containers/storage"
    if user := _USER.search(cgroup):
        try:
            storage = root / pwd.getpwuid(int(user[1])).pw_dir.lstrip("/") / ".local/share/containers/storage"
        except (KeyError, OverflowError):
            return ""
    owner = int(user[1]) if user else None  # a link in a user's directory may point at what that user can't read
    for directory in _PODMAN:
        tree = _json(storage / directory / "containers.json", owner)
        for container in tree if isinstance(tree, list) else ():
            names = container.get("names") if isinstance(container, dict) and container.get("id") == identity else None
            if isinstance(names, list) and names and isinstance(names[0], str):
                return names[0]
    return ""


def _json(path: Path, owner: int | None = None) -> Any:
    """Return a file's JSON; None where it can't be read, has none, or is another owner's."""
    try:
        return json.loads(regular(path, _MAX_FILE, owner))
    except (OSError, ValueError, RecursionError):
        return None


class CountedCgroup(NamedTuple):
    """Absolute counters of a cgroup's I/Os; those of version 2 include all cgroups below it."""

    container: str
    counters: Mapping[Flow, tuple[int, int]]
    """I/Os and bytes."""
    parent: str
    """The cgroup above it, whose counters include these; empty: none does."""


class CgroupIos:
    """Reader of the I/Os of all cgroups by io.stat (blkio.throttle.io_serviced), for probes that can't count them.

    A thread walks all cgroups every 5 s; the files of at most `MAX_COUNTED` cgroups are read with each sample.
    """

    def __init__(
        self, proc: Path, root: Path = Path("/"), run: Callable[[Callable[[], Any]], Future[Any]] = _aside
    ) -> None:
        """`root`: where the files of container runtimes are; `run` starts a walk."""
        self._proc, self._run = proc, run
        self._containers = ContainerNames(root, run)
        self._walking: Future[tuple[LimitedCgroup, ...] | None] | None = None
        self._due_us = 0
        self._found: tuple[LimitedCgroup, ...] | None = None

    def sample(self, mono_us: int, devices: Mapping[str, str]) -> CgroupCounters | None:
        """Return the counters on these devices (MAJOR:MINOR -> name).

        None before the first walk has ended, where no hierarchy is mounted, or where there are too many cgroups.
        """
        if self._walking is None and mono_us >= self._due_us:
            self._due_us = mono_us + COUNT_WALK_US
            self._walking = self._run(lambda: counted(self._proc))
        if self._walking is not None and self._walking.done():
            self._found, self._walking = self._walking.result(), None
        if self._found is None:
            return None
        return {cgroup.name: self._read(cgroup, devices) for cgroup in self._found}

    def _read(self, cgroup: LimitedCgroup, devices: Mapping[str, str]) -> CountedCgroup:
        counts_of_flow: dict[Flow, tuple[int, int]] = {}
        counters = _version_2(cgroup.path)[1] if cgroup.version == 2 else _version_1_counts(cgroup.path)  # noqa: PLR2004
        for number, values in counters.items():
            for op in _COUNTED.values() if number in devices else ():
                ios, size = values.get(f"{op} ios", 0), values.get(f"{op} bytes", 0)
                if ios or size:
                    counts_of_flow[Flow(devices[number], op)] = ios, size
        container = self._containers.name(cgroup.name) if counts_of_flow else ""
        above = (
            LimitedCgroup(cgroup.root, cgroup.path.parent, cgroup.version).name if cgroup.path != cgroup.root else ""
        )
        return CountedCgroup(container, counts_of_flow, above if cgroup.version == 2 else "")  # noqa: PLR2004


def counted(proc: Path) -> tuple[LimitedCgroup, ...] | None:
    """Return the cgroups with counters of I/O; None without a hierarchy, or where there are too many."""
    roots = sorted(hierarchies(mounts_of(proc)), key=lambda hierarchy: hierarchy[1])
    limited_cgroups: list[LimitedCgroup] = []
    for root, version in roots[:1]:
        for path in cgroups_below(root, "io.stat" if version == 2 else ""):  # noqa: PLR2004
            limited_cgroups.append(LimitedCgroup(root, path, version))
            if len(limited_cgroups) > MAX_COUNTED:
                return None
    return tuple(limited_cgroups) or None


def ios_between(before: CgroupCounters | None, after: CgroupCounters | None) -> dict[Issuer, IssuedIO]:
    """Return the I/Os of each cgroup alone. Those of one that was not there at both ends are in the one above it."""
    if before is None or after is None:
        return {}
    gains: dict[tuple[str, Flow], list[int]] = {}
    both = [path for path in after if path in before]
    for path in both:
        was, parent = before[path].counters, after[path].parent
        for flow, now in after[path].counters.items():
            ios, size = (count - earlier for count, earlier in zip(now, was.get(flow, (0, 0)), strict=True))
            if ios < 0 or size < 0 or max(ios, size) > MOST_GAINED:
                continue  # of a cgroup that was made anew with this path, or of broken counters
            if ios or size:
                _add(gains, (path, flow), ios, size)
                if parent in before and parent in after:
                    _add(gains, (parent, flow), -ios, -size)
    return {
        Issuer(*flow, path, after[path].container): IssuedIO(max(ios, 0), max(size, 0))
        for (path, flow), (ios, size) in gains.items()
        if ios > 0 or size > 0
    }


def _add(gains: dict[tuple[str, Flow], list[int]], key: tuple[str, Flow], ios: int, size: int) -> None:
    gain = gains.setdefault(key, [0, 0])
    gain[0] += ios
    gain[1] += size


class CountedProcess(NamedTuple):
    """Absolute counters of a process: bytes that were read from devices for its threads, and that they made dirty."""

    comm: str
    cgroup: str
    total: tuple[int, int]
    """Read and written, with those of its children that have ended."""
    threads: Mapping[str, tuple[int, int]]
    """By tid, of the threads that it has: read and written."""


ProcessCounters = Mapping[int, CountedProcess]
"""By pid."""


class ProcessIos:
    """Reader of the bytes of all processes by /proc/PID/io, where no probe counts their I/Os; 20 us for a process.

    Root may read all of these files, others those of their own processes. The kernel adds a process's counters to those
    of its parent when it has ended, so the growth is that of the threads' own; what a thread does between the last
    sample and its end is missing.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._known: ProcessCounters = {}

    def last(self) -> ProcessCounters:
        """Return the processes that had I/O, as of the last sample."""
        return self._known

    def sample(self) -> ProcessCounters | None:
        """Return the processes that had I/O; None where there are too many processes, or no file is readable."""
        numbers = pids(self._proc)
        processes = (
            {pid: process for pid in numbers if (process := self._read(str(pid)))}
            if len(numbers) <= MAX_CGROUPS
            else None
        )
        self._known = {pid: process for pid, process in (processes or {}).items() if any(process.total)}
        return self._known if processes else None

    def _read(self, pid: str) -> CountedProcess | None:
        total, known = _bytes(self._proc / pid / "io"), self._known.get(int(pid))
        if total is None or (known is not None and known.total == total):
            return known if total is not None else None
        if not any(total):
            return CountedProcess("", "", total, {})
        tasks = self._proc / pid / "task"
        threads = {thread.name: done for thread in _children(tasks) if (done := _bytes(thread / "io")) is not None}
        return CountedProcess(_comm(self._proc, pid), _own_cgroup(self._proc / pid / "cgroup"), total, threads)


def _bytes(file: Path) -> tuple[int, int] | None:
    """Return the bytes read and written; None where its process ended or is another user's."""
    values = _IO.findall(content(file))
    return (int(values[0]), int(values[1])) if len(values) == 2 else None  # noqa: PLR2004


def _own_cgroup(file: Path) -> str:
    """Return the path in the hierarchy that I/O is charged to: that of blkio of version 1, else of version 2."""
    lines = [line.split(":", 2) for line in os.fsdecode(content(file)).splitlines() if line.count(":") > 1]
    paths = {name: path for _, names, path in lines for name in names.split(",")}
    return cgroup_name(paths.get("blkio", paths.get("", "/")))


def bytes_between(before: ProcessCounters | None, after: ProcessCounters | None) -> dict[Issuer, IssuedIO]:
    """Return the bytes of each process without a device, and without a number of I/Os, which nothing counts."""
    issued_ios_by_issuer: dict[Issuer, IssuedIO] = {}
    for pid, now in (after or {}).items() if before is not None else ():
        was = before[pid].threads if before and pid in before else {}
        grown = [_growth(was.get(tid, (0, 0)), done) for tid, done in now.threads.items()]
        for op, size in zip(_OPS, map(sum, zip(*grown, strict=True)), strict=False):
            if 0 < size <= MOST_GAINED:
                issued_ios_by_issuer[Issuer("", op, now.cgroup, "", pid, now.comm)] = IssuedIO(0, size)
    return issued_ios_by_issuer


def _growth(was: tuple[int, int], now: tuple[int, int]) -> tuple[int, int]:
    """Return the difference; of counters that began again, which are another thread's with the same number, all.

    Of counters that only fell nothing is known, and nothing is counted.
    """
    done = now[0] - was[0], now[1] - was[1]
    if min(done) >= 0:
        return done
    return now if has_restarted(sum(was), sum(now)) else (0, 0)


class CgroupReader:
    """Reader of all limits on the I/O of cgroups."""

    def __init__(self, proc: Path, run: Callable[[Callable[[], Walk]], Future[Walk]] = _aside) -> None:
        """`run` starts a walk."""
        self._proc, self._run = proc, run
        self._walking: Future[Walk] | None = None
        self._last = Walk(None)
        self._walked_us: int | None = None
        """Begin of the last walk of all cgroups; None before the first."""
        self._due_us = 0
        self._limited: Walked = None
        self._processes: dict[Path, _Processes] = {}

    def sample(self, mono_us: int, devices: Mapping[str, str]) -> tuple[CgroupLimit, ...] | None:
        """Return the limits on these devices (MAJOR:MINOR -> name) with absolute counters.

        None before the first walk has ended, where no hierarchy is mounted, or where there are too many cgroups.
        """
        if self._walking is None and mono_us >= self._due_us:
            self._begin_walk(mono_us)
        if self._walking is not None and self._walking.done():
            self._take_walk(self._walking.result())
            self._walking = None
        if self._limited is None:
            return None
        rows = tuple(row for cgroup in self._limited for row in self._read(cgroup, mono_us, devices))
        return rows if len(rows) <= MAX_LIMITS else None

    def _begin_walk(self, mono_us: int) -> None:
        """Walk all cgroups where that is due, else look at those with I/O."""
        last, limited = self._last, self._limited
        self._due_us = mono_us + LEAST_WALK_US
        if self._walked_us is None or mono_us >= self._walked_us + _pause_us(last.spent_us):
            self._walked_us = mono_us
            is_seldom = _pause_us(last.spent_us) > LEAST_WALK_US
            self._walking = self._run(lambda: full_walk(self._proc, last.counters if is_seldom else None))
        elif limited is not None and last.active:
            self._walking = self._run(lambda: _look_at_active(last, limited))

    def _take_walk(self, walk: Walk) -> None:
        self._last, self._limited = walk, walk.limited
        limited_paths = {cgroup.path for cgroup in walk.limited or ()}
        self._processes = {path: seen for path, seen in self._processes.items() if path in limited_paths}

    def _read(self, cgroup: LimitedCgroup, mono_us: int, devices: Mapping[str, str]) -> Iterator[CgroupLimit]:
        limits, counted = _version_2(cgroup.path) if cgroup.version == 2 else _version_1(cgroup.path)  # noqa: PLR2004
        limits = {number: _limiting(values) for number, values in limits.items()}
        limit_keys = [(number, op) for number in limits if number in devices for op in _OPS]
        limit_keys = [(number, op) for number, op in limit_keys if {f"{op} ios", f"{op} bytes"} & limits[number].keys()]
        stalled_us = _stalled_us(cgroup.path)
        ios = sum(_limited(counted.get(number, {}), op) for number, op in limit_keys)
        processes = self._look(cgroup.path, ios, mono_us)
        for number, op in limit_keys:
            done = counted.get(number, {})
            yield CgroupLimit(
                cgroup=cgroup.name,
                device=devices[number],
                op=op,
                ios_per_s=limits[number].get(f"{op} ios"),
                bytes_per_s=limits[number].get(f"{op} bytes"),
                ios=_limited(done, op),
                bytes=done.get(f"{op} bytes", 0),
                processes=processes.count,
                names=processes.names,
                stalled_us=stalled_us,
                root=clean(os.fsencode(cgroup.root), _MAX_NAME),
                version=cgroup.version,
            )

    def _look(self, path: Path, ios: int, mono_us: int) -> _Processes:
        """Return the cgroup's processes. They are looked for again after 5 s, where there was I/O meanwhile."""
        previous_processes = self._processes.get(path)
        if previous_processes is None or (
            previous_processes.ios != ios and mono_us >= previous_processes.looked_us + _LOOK_US
        ):
            pids = pids_of(path)
            comms = Counter(name for pid in pids if (name := _comm(self._proc, pid)))
            previous_processes = _Processes(
                ios, mono_us, len(pids), tuple(name for name, _ in comms.most_common(_NAMES))
            )
            self._processes[path] = previous_processes
        return previous_processes


def _limiting(values: Mapping[str, int]) -> dict[str, int]:
    """Return the limits without those that are higher than any device's I/O: these limit nothing, as `max`."""
    return {name: limit for name, limit in values.items() if 0 < limit <= MOST_GAINED}


def _limited(done: Mapping[str, int], op: str) -> int:
    """Return the I/Os under a limit: that of writes is of discards too, which count as 512 bytes each."""
    return done.get(f"{op} ios", 0) + (done.get("discard ios", 0) if op == "write" else 0)


def difference(
    before: tuple[CgroupLimit, ...] | None, after: tuple[CgroupLimit, ...] | None
) -> tuple[CgroupLimit, ...] | None:
    """Return the limits under which there was I/O, with the counts of the interval; None where one end wasn't read."""
    if before is None or after is None:
        return None
    known = {limit.key: limit for limit in before}
    cgroup_limits = (known[limit.key].until(limit) for limit in after if limit.key in known)
    return tuple(limit for limit in cgroup_limits if _is_possible(limit) and (limit.ios or limit.bytes))


def _is_possible(row: CgroupLimit) -> bool:
    return min(row.ios, row.bytes) >= 0 and max(row.ios, row.bytes, row.stalled_us or 0) <= MOST_GAINED


def _pause_us(spent_us: int) -> int:
    """Return the time from the begin of a walk to the next, by the CPU time of the last one."""
    return min(max(spent_us * WALK_SHARE, LEAST_WALK_US), WALK_US)


def walk(proc: Path) -> Walked:
    """Return the cgroups with a limit; None where no hierarchy has a controller of I/O, or where there are too many."""
    return full_walk(proc, None).limited


def full_walk(proc: Path, before: Mapping[Path, bytes] | None) -> Walk:
    """Walk all cgroups. `before`: the counters of the last walk; None: which cgroups have I/O is not needed."""
    begin_ns = time.thread_time_ns()
    limited: list[LimitedCgroup] = []
    active: list[LimitedCgroup] = []
    counters: dict[Path, bytes] = {}
    roots = tuple(hierarchies(mounts_of(proc)))
    visited = 0
    for root, version in roots:
        for path in cgroups_below(root, "io.max" if version == 2 else ""):  # noqa: PLR2004
            visited += 1
            cgroup = LimitedCgroup(root, path, version)
            if _is_limited(path, version):
                limited.append(cgroup)
            elif before is not None:
                counters[path] = content(path / _COUNTERS[version])
                if counters[path] != before.get(path, counters[path]) and len(active) < MAX_ACTIVE:
                    active.append(cgroup)
            if visited > MAX_CGROUPS or len(limited) > MAX_LIMITED:
                return Walk(None, spent_us=(time.thread_time_ns() - begin_ns) // 1000)
    spent_us = (time.thread_time_ns() - begin_ns) // 1000
    return Walk(tuple(limited) if roots else None, tuple(active), counters, spent_us)


def _look_at_active(last: Walk, limited: tuple[LimitedCgroup, ...]) -> Walk:
    """Look for limits of the cgroups with I/O, between two walks."""
    newly_limited = tuple(cgroup for cgroup in last.active if _is_limited(cgroup.path, cgroup.version))
    if not newly_limited:
        return last
    still_active = tuple(cgroup for cgroup in last.active if cgroup not in newly_limited)
    return last._replace(limited=(*limited, *newly_limited), active=still_active)


def hierarchies(mounts: Mounts, controller: str = "blkio") -> Iterator[tuple[Path, int]]:
    """Yield the mount point and the version of the hierarchies with a controller of version 1, each version once."""
    known = set[int]()
    for mount in mounts.all:
        version = 2 if mount.kind == "cgroup2" else 0
        if mount.kind == "cgroup" and controller in mount.options.split(","):
            version = 1
        if version and version not in known:
            known.add(version)
            yield Path(mount.point), version


def cgroups_below(root: Path, file: str = "") -> Iterator[Path]:
    """Yield a cgroup and those below it, the upper ones first. `file`: leave out those without it, and their own.

    A cgroup without a controller has no descendant with it.
    """
    waiting = deque([root])
    while waiting:
        path = waiting.popleft()
        yield path
        waiting += (child for child in _children(path) if not file or (child / file).exists())


def _children(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _is_limited(path: Path, version: int) -> bool:
    if version == 1:
        return any(text(path / name).strip() for name in _V1_LIMITS.values())
    return bool(text(path / "io.max").strip())


def _version_2(path: Path) -> tuple[_Values, _Values]:
    """Return limits and counters of a cgroup of version 2."""
    return _pairs(text(path / "io.max"), _V2_LIMITS), _pairs(text(path / "io.stat"), _V2_COUNTS)


def _pairs(lines: str, names: Mapping[str, str]) -> _Values:
    """Return the numbers of lines such as `8:0 riops=100 wiops=max`, those with the same name added up."""
    counts_by_cgroup: _Values = {}
    for line in lines.splitlines():
        number, *pairs = line.split()
        for pair in pairs:
            name, _, value = pair.partition("=")
            if name in names and value.isdecimal():
                values = counts_by_cgroup.setdefault(number, {})
                values[names[name]] = values.get(names[name], 0) + _whole(value)
    return counts_by_cgroup


def _version_1(path: Path) -> tuple[_Values, _Values]:
    """Return limits and counters of a cgroup of version 1, whose limits ignore what is above and below it."""
    limits: _Values = {}
    for name, file in _V1_LIMITS.items():
        for number, value in _columns(text(path / file), 2):
            limits.setdefault(number, {})[name] = _whole(value)
    return limits, _version_1_counts(path)


def _version_1_counts(path: Path) -> _Values:
    counters: _Values = {}
    for counter, file in (("ios", "blkio.throttle.io_serviced"), ("bytes", "blkio.throttle.io_service_bytes")):
        for number, row, value in _columns(text(path / file), 3):
            if row in _COUNTED:
                counters.setdefault(number, {})[f"{_COUNTED[row]} {counter}"] = _whole(value)
    return counters


def _whole(digits: str) -> int:
    """Return a number; one with more digits than 64 bits have is as high as none of the kernel's."""
    return int(digits) if len(digits) <= _DIGITS else 1 << 64


def _columns(lines: str, cells: int) -> Iterator[list[str]]:
    rows = (line.split() for line in lines.splitlines())
    return (row for row in rows if len(row) == cells and row[-1].isdecimal())


def _stalled_us(path: Path) -> int | None:
    """Return the time in which at least one task of the cgroup waited for I/O, since it was created."""
    words = next((line.split() for line in text(path / "io.pressure").splitlines() if line.startswith("some ")), [])
    total = next((word.removeprefix("total=") for word in words if word.startswith("total=")), "")
    return _whole(total) if total.isdecimal() else None


def pids_of(path: Path) -> list[str]:
    """Return the first processes of the cgroup and of those below it."""
    pid_texts: list[str] = []
    for below, _ in zip(cgroups_below(path), range(_MAX_BELOW), strict=False):
        pid_texts += _first_pids(below, _MAX_PROCESSES - len(pid_texts))
        if len(pid_texts) >= _MAX_PROCESSES:
            break
    return pid_texts


def _first_pids(path: Path, most: int) -> Iterable[str]:
    try:
        with (path / "cgroup.procs").open(encoding="ascii", errors="replace") as file:
            return [line.strip() for line, _ in zip(file, range(most), strict=False)]
    except OSError:
        return ()


def _comm(proc: Path, pid: str) -> str:
    """Return a process's name; empty where it has ended, or is of another pid namespace (0)."""
    return clean(content(proc / pid / "comm").rstrip(b"\n")) if pid.isdecimal() and pid != "0" else ""
