"""Output of the scripts of a synthetic host: tick lines, cumulative maps and records, as their manifests describe them.

What a case defines is printed as far as a script has a map or a field for it, and not otherwise. A map is the event
that a tool's decoder makes of its text: to write and parse JSON or tables of llquantize() would take longer than all
the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from latmon.decode.tables import AS_IS, RETURNED, Counts
from latmon.manifest import UNFOLLOWED_FROM, Manifest, MapSpec
from latmon.model.frame import (
    FILE_OPS,
    FILE_WAITS,
    OPS,
    PROCESSES,
    SIZES,
    UNACCOUNTED,
    FileOperation,
    FileSystem,
    Outlier,
    Thread,
    Wait,
)
from latmon.model.histogram import Histogram
from latmon.model.inflight import AGES_S, EXACT, Depths, InFlight, InFlightList, Issue
from latmon.model.measurements.files import FileSeries
from latmon.model.measurements.handlers import UNKNOWN_IRQ, Handler, HandlerRuns
from latmon.model.measurements.patterns import PATTERN
from latmon.model.measurements.softirqs import VECTORS, SoftirqCpu, SoftirqRuns
from latmon.model.measurements.wakeups import Wakeups
from latmon_backends.demo.scenario import FlowIos, HostFacts, bucket
from latmon_backends.probe.events import CountedMap, Event, HandlerNamed, Printed
from latmon_backends.probe.outliers import KTHREAD, POLICIES, USUAL

_OCTAVE = 8
_LETTERS = dict(zip(OPS, "RWFDN", strict=True))
_LARGEST = 20
"""Exponent of the largest size with a class of its own, as in sizes_a.bt; the smallest is 12."""


class Numbers:
    """Numbers of the names of a host: of its devices, cgroups, file systems, threads and handlers."""

    def __init__(self, host: HostFacts) -> None:
        self.devices = {device.name: at for at, device in enumerate(host.devices, 1)}
        self.cgroups = dict(enumerate(dict.fromkeys(host.cgroups.values()), 1))
        numbers = {cgroup: at for at, cgroup in self.cgroups.items()}
        self.slots = {device: numbers[cgroup] for device, cgroup in host.cgroups.items()}
        self.file_systems: dict[int, FileSystem] = dict(enumerate(host.file_systems, 1))
        self.threads = {label(thread): thread for thread in host.threads}
        by_pid = {thread.pid: thread for thread in host.threads}
        self.programs = {device: by_pid[pid] for device, (_, pid) in host.programs.items() if pid in by_pid}
        self.sequential = host.sequential
        self.sync = {op for op, flags in host.flags.items() if "sync" in flags}
        self._handlers: dict[Handler, int] = {}

    def handler(self, handler: Handler) -> int:
        return self._handlers.setdefault(handler, len(self._handlers) + 1)


def label(thread: Thread) -> str:
    """Return a thread's name as tables of other threads have it."""
    return f"{thread.comm} (prio {thread.priority})"


class ScriptOutput:
    """Output of one script: maps, which are cumulative, and the records of an interval."""

    def __init__(self, manifest: Manifest, numbers: Numbers) -> None:
        self.manifest, self._numbers = manifest, numbers
        self._specs: defaultdict[str, list[MapSpec]] = defaultdict(list)
        for spec in manifest.maps:
            self._specs[spec.role].append(spec)
        self._maps: dict[str, Counts] = {spec.name: {} for spec in manifest.maps}
        self._lines: list[Event] = []
        self._named: set[tuple[object, ...]] = set()
        self._counts_ios = any({part.name for part in spec.key} & {"op", "path"} for spec in manifest.maps)
        self._tick = 0

    def tick(self, mono_us: int) -> Iterator[Event]:
        """Yield the output of one tick, and begin the next interval."""
        name = self.manifest.name
        yield Printed(f"tick {name} {self._tick} {mono_us * 1000}")
        yield from self._lines
        for spec in self.manifest.maps:
            if counts := self._maps[spec.name]:
                yield CountedMap(spec.name, counts.copy())
            if spec.role in AS_IS:
                self._maps[spec.name] = {}
        yield Printed(f"done {name}")
        self._lines = []
        self._tick += 1

    def add(self, role: str, value: int, **parts: int) -> None:
        """Add to the first map of a role: others are of other kinds of threads or handlers. `parts`: of its key."""
        for spec in self._specs.get(role, ())[:1]:
            key = _packed(spec, parts)
            counts = self._maps[spec.name]
            counts[key] = counts.get(key, 0) + value

    def _add_all(self, role: str, histogram: Histogram, **parts: int) -> None:
        for index, n in histogram.buckets:
            self.add(role, n, bucket=index, **parts)
        self.add(f"{role}_sum", histogram.sum or 0, **parts)

    def record(self, kind: str, fields: Mapping[str, int | str | None], text: str = "") -> None:
        """Print a record line with those fields that the script has."""
        spec = self.manifest.records.get(kind)
        if spec is not None:
            values = (-1 if (value := fields.get(name)) is None else value for name in spec.fields)
            words = [kind, self.manifest.name, *map(str, values), *([text] if spec.text else [])]
            self._lines.append(Printed(" ".join(words)))

    # I/Os

    def ios(self, ios: FlowIos, threshold_us: int, reported: int) -> None:
        """Count I/Os of a device; `reported` of those above the threshold have a record."""
        its = self.manifest.group == PROCESSES
        if not self._counts_ios or (its and ios.flow.op == "flush"):  # the kernel issues a flush, no process
            return
        dev = self._numbers.devices[ios.flow.device]
        slot = 0 if ios.flow.op == "flush" else self._numbers.slots.get(ios.flow.device, 0)
        program = self._numbers.programs.get(ios.flow.device)
        for role, number in (("cgroup", slot), ("process", program.pid if program else 0)) if slot else ():
            for spec in self._specs.get(role, ()):
                self._maps[spec.name][_packed(spec, {"dev": dev, "slot": slot})] = number
        if its and program:
            self._thread(program)
        self._pattern(ios, dev)
        tables = tables_of(self.manifest, ios)
        for spec, counts in tables.counts:
            base, into = _packed(spec, {"dev": dev, "slot": slot}), self._maps[spec.name]
            if spec.role == "max":
                for key, us in counts.items():
                    into[base | key] = max(self._tick << 32 | us, into.get(base | key, 0))
                continue
            for key, n in counts.items():
                into[base | key] = into.get(base | key, 0) + n
        if above := tables.above(threshold_us):
            self.add("above", above, dev=dev, op=OPS.index(ios.flow.op))
            self.add("suppressed", above - reported, dev=dev)

    def _pattern(self, ios: FlowIos, dev: int) -> None:
        """Count the I/Os as sequential and flagged; a flush lies nowhere."""
        op = ios.flow.op
        flagged = 1 << PATTERN.index("sync") - 1 if op in self._numbers.sync else 0
        sequential = round(ios.count * self._numbers.sequential.get(ios.flow, 0.0))
        for code, n in ((flagged | 1, sequential), (flagged, ios.count - sequential)) if op != "flush" else ():
            if n:
                self.add("pattern", n, dev=dev, op=OPS.index(op), pattern=code)

    def thresholds(self, thresholds_us: Mapping[str, int]) -> None:
        for spec in self._specs.get("level", ()):
            levels = {_packed(spec, {"dev": self._numbers.devices[name]}): us for name, us in thresholds_us.items()}
            self._maps[spec.name] = levels

    def slow(self, outlier: Outlier, request: int) -> None:
        """Print the records of a slow I/O: its own, those of threads that it waited for, and its waiter's."""
        resume = outlier.stages_us.get("resume", 0)
        times = stage_times(self.manifest, outlier.stages_us, outlier.unaccounted_us)
        total = sum(times.values())
        done_us = outlier.mono_us + outlier.total_us - resume
        completer = next((wait.pid for wait in outlier.waits if wait.stage == "completion"), None)
        place = {"request": request, "dev": self._numbers.devices[outlier.device], "sector": outlier.sector}
        self.record(
            "slow",
            {
                **place,
                **{f"{stage}_us": us for stage, us in times.items()},
                "op": OPS.index(outlier.op),
                "flags": sum(1 << USUAL[flag] for flag in outlier.flags),
                "rwbs": _rwbs(outlier),
                "bytes": outlier.bytes,
                "begun_ns": (done_us - total) * 1000,
                "done_ns": done_us * 1000,
                "total_us": total,
                "cpu_issue": outlier.cpu_issue,
                "cpu_complete": outlier.cpu_complete,
                "pid": outlier.pid,
                "path": _path(self.manifest, outlier.path),
                "outstanding": outlier.outstanding_at_issue,
                "overtaken": outlier.overtaken_by,
                "thread": completer,
            },
            outlier.comm,
        )
        for wait in outlier.waits:
            self._late(wait)
        if waiter := next((wait for wait in outlier.waits if wait.stage == "resume"), None):
            ran = {"resume_us": resume, "thread": waiter.pid, "priority": waiter.priority}
            self.record("resumed", {**place, "done_ns": done_us * 1000, **ran}, waiter.thread)

    def _late(self, wait: Wait) -> None:
        """Print a late wake-up once, however many I/Os waited for it."""
        woken = "late", wait.pid, wait.woken_us
        if woken in self._named or not self._times(wait.thread):
            return
        self._named.add(woken)
        instead = self._numbers.threads.get(wait.instead)
        fields = {
            "thread": wait.pid,
            "priority": wait.priority,
            "woken_ns": wait.woken_us * 1000,
            "delay_us": wait.delay_us,
            "instead": instead.pid if instead else None,
            "instead_priority": instead.priority if instead else None,
            "ran_us": wait.ran_us,
        }
        self.record("late", fields, wait.thread)

    def issued(self, device: str, issues: Iterable[Issue]) -> None:
        for issue in issues:
            fields = {
                "window_ns": 1,
                "dev": self._numbers.devices[device],
                "op": OPS.index(issue.op),
                "sector": issue.sector,
                "bytes": issue.bytes,
                "issued_ns": issue.mono_us * 1000,
                "queued_us": issue.queued_us,
            }
            self.record("issue", fields)

    def waiting(self, listed: InFlightList) -> None:
        """Print the I/Os in flight; the script follows those of all devices from its start on."""
        for at, in_flight in enumerate(listed.oldest, 1):
            self._waiting(in_flight, at)
        self.add("depth_since", 1, dev=0)
        for at, age_s in enumerate(AGES_S):
            if n := listed.older.get(age_s, 0):
                self.add("depth_older", n, dev=1, age=at)

    def _waiting(self, in_flight: InFlight, request: int) -> None:
        fields = {
            "request": request,
            "dev": self._numbers.devices[in_flight.device],
            "op": OPS.index(in_flight.op),
            "flags": sum(1 << USUAL[flag] for flag in in_flight.flags),
            "sector": in_flight.sector,
            "bytes": in_flight.bytes,
            "begun_ns": in_flight.began_us * 1000,
            "pid": in_flight.pid,
            "issued": None if in_flight.issued is None else int(in_flight.issued),
            "overtaken": in_flight.overtaken_by,
        }
        self.record("waiting", fields, in_flight.comm)

    def depths(self, device: str, depths: Depths, unit: int) -> None:
        """Count depths; `unit` is a millisecond in what the script counts: samples, or microseconds."""
        if "depth_driver" not in self._specs:
            return
        dev = self._numbers.devices[device]
        for role, counts in (("depth_driver", depths.in_driver), ("depth_queued", depths.queued)):
            for depth, n in counts.items():
                self.add(role, n * unit, dev=dev, depth=_depth_index(depth))
        for depth, n in depths.at_issue.items():
            self.add("depth_issue", n, dev=dev, depth=_depth_index(depth))
        for depth, took in depths.latency.items():
            self.add("depth_ios", took.ios, dev=dev, depth=_depth_index(depth))
            self.add("depth_time", took.time_us, dev=dev, depth=_depth_index(depth))

    # Operations on files

    def files(self, files: Mapping[FileSeries, Histogram]) -> None:
        for series, took in files.items() if "file" in self._specs else ():
            at = {
                "dev": self._file_system(FileSystem(series.mount, series.kind, series.device)),
                "call": FILE_OPS.index(series.op),
                "wait": FILE_WAITS.index(series.wait),
            }
            self._add_all("file", took, **at)
            self.add("file_max", self._tick << 32 | (took.max or 0), bucket=self._tick & 1, **at)

    def file_operation(self, operation: FileOperation) -> None:
        """Print the names of a slow operation's file, from it upwards, then its record."""
        for name in reversed(operation.path.split("/")):
            self.record("path", {"thread": operation.pid, "bytes": len(name)}, name)
        first, end = operation.sectors or (None, None)
        fields = {
            "thread": operation.pid,
            "dev": self._file_system(operation.file_system),
            "call": FILE_OPS.index(operation.op),
            "wait": FILE_WAITS.index(operation.wait),
            "begun_ns": operation.mono_us * 1000,
            "total_us": operation.total_us,
            "bytes": operation.bytes,
            "offset": operation.offset,
            "disk": self._numbers.devices.get(operation.disk, 0),
            "sector": first,
            "sector_end": end,
            "pid": operation.pid,
        }
        self.record("file", fields, operation.comm)

    def _file_system(self, its: FileSystem) -> int:
        return next(number for number, file_system in self._numbers.file_systems.items() if file_system == its)

    # Handlers, softirqs and threads

    def handlers(self, handlers: Mapping[Handler, HandlerRuns]) -> None:
        for handler, runs in handlers.items() if "handler_run" in self._specs else ():
            number = self._numbers.handler(handler)
            self._handler(number, handler, runs.caller)
            left = iter(_each(runs.returned))
            code, room = next(left, ("handled", 0))
            for index, n in runs.run.buckets:
                while n > 0:  # which run returned what is not defined by a case: one code after the other
                    part = min(n, room)
                    self.add("handler_run", part, handler=number, returned=RETURNED.index(code), bucket=index)
                    n, room = n - part, room - part  # noqa: PLW2901
                    if not room:
                        code, room = next(left, (code, n))
            self.add("handler_sum", runs.run.sum or 0, handler=number, returned=1, bucket=0)
            self.add("handler_before", runs.before_us, handler=number, returned=1, bucket=0)

    def _handler(self, number: int, handler: Handler, caller: int) -> None:
        """Print a handler's name once: where a map of DTrace has it, there is no record."""
        if ("handler", number) in self._named:
            return
        self._named.add(("handler", number))
        if self.manifest.tool == "dtrace":
            self._lines.append(HandlerNamed(self.manifest.name, number, handler.name))
        else:
            fields = {"handler": number, "irq": handler.irq, "caller": handler.irq if caller == UNKNOWN_IRQ else caller}
            self.record("handler", fields, handler.name)

    def softirqs(self, softirqs: Mapping[SoftirqCpu, SoftirqRuns]) -> None:
        for where, runs in softirqs.items() if "softirq_delay" in self._specs else ():
            at = {"vec": VECTORS.index(where.vector), "cpu": where.cpu}
            self._add_all("softirq_delay", runs.delay, **at)
            self._add_all("softirq_run", runs.run, **at)
            for role, places in (("softirq_ran_in", runs.ran_in), ("softirq_raised_in", runs.raised_in)):
                for spec in self._specs.get(role, ()):
                    for place, n in places.items():
                        key = _packed(spec, {**at, "context": spec.contexts.index(place)})
                        self._maps[spec.name][key] = self._maps[spec.name].get(key, 0) + n

    def wakeups(self, wakeups: Iterable[Wakeups]) -> None:
        for thread_wakeups in (
            wakeup for wakeup in wakeups if "wakeup" in self._specs and self._times(wakeup.thread.comm)
        ):
            number = thread_wakeups.thread.pid
            self._thread(thread_wakeups.thread)
            self._add_all("wakeup", thread_wakeups.delay, thread=number)
            for role, table in (("wakeup_instead", thread_wakeups.instead), ("wakeup_ran", thread_wakeups.ran_us)):
                for name, n in table.items():
                    other = self._numbers.threads[name]
                    self._thread(other)
                    self.add(role, n, thread=number, other=other.pid)

    def _times(self, comm: str) -> bool:
        """Return whether the script times a thread's wake-ups: the threads of `taskqs` are queues."""
        return comm.startswith("taskq:") == (self.manifest.name == "taskqs")

    def _thread(self, thread: Thread) -> None:
        if ("thread", thread.pid) not in self._named:
            self._named.add(("thread", thread.pid))
            flags = KTHREAD if thread.kernel else 0
            policy = POLICIES.index(thread.policy) if thread.policy else None
            fields = {"thread": thread.pid, "priority": thread.priority, "policy": policy, "flags": flags}
            self.record("thread", fields, thread.comm)


class IoTables(NamedTuple):
    """Counts of the I/Os of one op by the maps of a script; keys lack the device."""

    counts: tuple[tuple[MapSpec, Counts], ...]
    totals: tuple[tuple[int, int], ...]
    """(I/Os, the total that the script measures)."""
    most: int

    def above(self, threshold_us: int) -> int:
        return sum(n for n, us in self.totals if us > threshold_us) if self.most > threshold_us else 0


def tables_of(manifest: Manifest, ios: FlowIos) -> IoTables:
    """Return the counts of I/Os, computed once for those that several devices share."""
    io_tables: IoTables | None = ios.tables.get(manifest.name)
    if io_tables is None:
        io_tables = ios.tables[manifest.name] = _tables(manifest, ios)
    return io_tables


def _tables(manifest: Manifest, ios: FlowIos) -> IoTables:
    sizes, parts = ios.column("size"), parts_of(manifest)
    times = {stage: ios.sum_of(part) for stage, part in parts.items()}
    totals = ios.below if parts and "queue" not in parts else ios.totals
    times["total"] = totals
    tables: list[tuple[MapSpec, Counts]] = []
    by_size = _by_size(ios) if manifest.group == SIZES else {}
    whole = any(spec.role == "histogram" and spec.stages == ("total",) for spec in manifest.maps)
    ends = [bucket(us) for us in totals]
    op = OPS.index(ios.flow.op)
    for spec in manifest.maps:
        stage = next(iter(spec.stages), "")
        if spec.role == "histogram" and whole and len(spec.stages) > 1:
            continue
        if spec.role in by_size:
            counts = {_packed(spec, {"size": size, "bucket": at}): n for (size, at), n in by_size[spec.role].items()}
        elif spec.role in ("histogram", "by_total"):
            counts = _buckets(spec, ios, times.get(stage), ends)
        elif spec.role == "path":
            counts = {_path(manifest, path): n for path, n in ios.paths.items()}
        else:
            untimed = spec.role == "started" and manifest.group == PROCESSES and whole  # other maps time all I/Os
            counts = {0: value} if not untimed and (value := _value(spec, ios, times, stage)) else {}
        if counts:
            shifted = _packed(spec, {"op": op})
            tables.append((spec, {shifted | key: n for key, n in counts.items()}))
    return IoTables(tuple(tables), tuple(zip(sizes, totals, strict=False)), max(totals, default=0))


def _by_size(ios: FlowIos) -> dict[str, dict[tuple[int, int], int]]:
    """Return role -> (exponent of the size, bucket) -> sum; of equally slow I/Os as many are large as of all I/Os."""
    by_sizes: dict[str, dict[tuple[int, int], int]] = {"size_latency": {}, "size_sum": {}, "size_bytes": {}}
    seen = large = 0
    for n, us in zip(ios.column("size"), ios.totals, strict=True):
        seen, before = seen + n, large
        large = seen * ios.large // ios.count
        for n_of_size, size in ((n - large + before, ios.bytes_each), (large - before, ios.bytes_large)):
            if n_of_size and size:
                exponent = min(max((size - 1).bit_length(), 12), _LARGEST + 1)
                at = {"size_latency": bucket(us) & ~1, "size_sum": 0, "size_bytes": 0}
                for role, value in (
                    ("size_latency", n_of_size),
                    ("size_sum", n_of_size * us),
                    ("size_bytes", n_of_size * size),
                ):
                    key = exponent, at[role]
                    by_sizes[role][key] = by_sizes[role].get(key, 0) + value
    return by_sizes


def _buckets(spec: MapSpec, ios: FlowIos, times: Sequence[int | None] | None, ends: Sequence[int]) -> Counts:
    """Return I/Os by the bucket of their time in a stage, or that time by the bucket of their total."""
    if spec.stages == ("resume",):
        return dict(ios.resume.buckets)
    if times is None:
        return {}
    counts: Counts = {}
    if spec.role == "by_total":
        for n, us, end in zip(ios.column("size"), times, ends, strict=True):
            if us is not None:
                counts[end] = counts.get(end, 0) + n * us
        return counts
    for n, us in zip(ios.column("size"), times, strict=True):
        if us is not None:
            index = bucket(us)
            counts[index] = counts.get(index, 0) + n
    return counts


def _value(spec: MapSpec, ios: FlowIos, times: Mapping[str, Iterable[int | None]], stage: str) -> int:
    """Return the number that a map without buckets has."""
    match spec.role:
        case "sum" if stage == "resume":
            return ios.resume.sum or 0
        case "sum":
            return sum(n * us for n, us in zip(ios.column("size"), times.get(stage, ()), strict=False) if us)
        case "max":
            return max((us or 0 for us in times.get(stage, ())), default=0)
        case "bytes":
            return ios.seen.bytes
        case "started":
            return ios.count
        case _:
            return 0


def parts_of(manifest: Manifest) -> dict[str, tuple[str, ...]]:
    """Return the stages of an I/O that a script measures -> what each has in it; they add up to its total."""
    fed = {stage for spec in manifest.maps if spec.role == "histogram" for stage in spec.stages}
    parts = {stage: (stage, *manifest.includes.get(stage, ())) for stage in fed - {"total", "resume", UNACCOUNTED}}
    if UNACCOUNTED in fed:
        parts[UNACCOUNTED] = (UNACCOUNTED,)
    elif "hba" in parts:
        parts["hba"] += (UNACCOUNTED,)
    return parts


def stage_times(manifest: Manifest, stages_us: Mapping[str, int], unaccounted_us: int) -> dict[str, int]:
    """Return one I/O's times by the stages that a script measures, without those that it didn't pass."""
    times = {**stages_us, UNACCOUNTED: unaccounted_us}
    parts = {
        stage: [times[part_name] for part_name in of if part_name in times] for stage, of in parts_of(manifest).items()
    }
    return {stage: sum(part) for stage, part in parts.items() if part}


def _path(manifest: Manifest, path: str) -> int:
    """Return the code of how an I/O completed. ValueError for a path that the script can't report."""
    if not manifest.paths:
        return -1
    return manifest.paths.index(path) if path in manifest.paths else UNFOLLOWED_FROM + manifest.unfollowed.index(path)


def _rwbs(outlier: Outlier) -> str:
    letters = (("fua", "F"), ("readahead", "A"), ("sync", "S"), ("meta", "M"))
    before = "F" if "preflush" in outlier.flags else ""
    return before + _LETTERS[outlier.op] + "".join(letter for flag, letter in letters if flag in outlier.flags)


def _packed(spec: MapSpec, parts: Mapping[str, int]) -> int:
    return sum(parts.get(part.name, 0) << part.shift for part in spec.key)


def _depth_index(depth: int) -> int:
    """Return the index of a depth: exact to EXACT, then 8 to an octave."""
    if depth <= EXACT:
        return depth
    octave = (depth - 1).bit_length() - 1 - _OCTAVE
    return EXACT + 1 + _OCTAVE * octave + (((depth - 1) >> (octave + 5)) & 7)


def _each(table: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    return ((name, n) for name, n in table.items() if n)
