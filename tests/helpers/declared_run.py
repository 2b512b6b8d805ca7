"""A table that is declared for a test alone, from the lines of bpftrace to all that reads a frame; prints what it met.

A process of its own: everything generic is made of the declarations when it is imported.
"""

from __future__ import annotations

import io
import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

sys.path[:0] = [str(Path(__file__).parents[2] / name) for name in ("", "backends")]

from latmon.model import measurements  # noqa: E402 - its path was just added
from latmon.model.redaction import Redaction  # noqa: E402
from latmon.model.table import DEVICE, OP, Meaning, Part, Table, always, latencies  # noqa: E402


class IoPriority(NamedTuple):
    """Key of the I/Os of one class of I/O priority that one process issued."""

    device: str
    op: str
    level: str
    pid: int


PRIORITIES = Table(
    "priorities",
    IoPriority,
    (
        DEVICE,
        OP,
        Part(names=("none", "real-time", "best-effort", "idle"), probe_part="level"),
        Part(Meaning.PRIVATE, highest=1 << 16, probe_part="owner"),
    ),
    latencies(),
    group="priorities",
    export_name="priority",
    is_sampled=always,
)
measurements.TABLES = (*measurements.TABLES, PRIORITIES)

import derived  # noqa: E402 - all of these are made of TABLES
import on_demand_frames  # noqa: E402

from latmon.aggregate.accumulator import Accumulator, Minute  # noqa: E402
from latmon.aggregate.history import Store  # noqa: E402
from latmon.decode.framer import Framer  # noqa: E402
from latmon.exporters import latmon as latmon_exports  # noqa: E402
from latmon.exporters import openmetrics  # noqa: E402
from latmon.exporters.registry import ExportOptions, Source  # noqa: E402
from latmon.manifest import Manifest, load  # noqa: E402
from latmon.model.devices import of_devices  # noqa: E402
from latmon.model.frame import Device, Frame, Health, Origin, Traced  # noqa: E402
from latmon.model.histogram import Histogram  # noqa: E402
from latmon.recording.reader import open_recording  # noqa: E402
from latmon.recording.writer import Writer  # noqa: E402
from latmon.views.history import OnDemandWindow  # noqa: E402
from latmon_backends.bpftrace import tracer  # noqa: E402
from latmon_backends.bpftrace.probe import BpftraceDecoder  # noqa: E402
from latmon_backends.demo.probed_host import HostTracer  # noqa: E402
from latmon_backends.fleet.merge import HostFrame, merged_frame  # noqa: E402
from latmon_backends.kernel.counters import Sample  # noqa: E402
from latmon_backends.kernel.interrupts import Interrupts  # noqa: E402
from latmon_backends.probe.always_on import FrameBuilder  # noqa: E402
from latmon_backends.probe.outliers import Outliers, Threads  # noqa: E402
from latmon_backends.probe.tick_protocol import (  # noqa: E402
    OnDemandSurroundings,
    OnDemandTicks,
    ProbeWindow,
    Surroundings,
    Ticks,
)
from latmon_backends.probe_backend import FrameJoiner  # noqa: E402

PROBES = Path(__file__).parents[2] / "probes/linux"
MANIFEST = """
name: NAME
purpose: I/Os by priority
platform: linux
tool: bpftrace
tier: C
cost: cheap
group: GROUP
latency_from: issue
clock: monotonic
hooks: ["rawtracepoint:block_rq_complete"]
requirements: [root]
keys:
  level:
    owner: {shift: 56, bits: 7, decoder: integer}
    level: {shift: 48, bits: 8, decoder: integer}
    dev: {shift: 16, bits: 32, decoder: dev_t}
    op: {shift: 8, bits: 8, decoder: op}
    bucket: {shift: 0, bits: 8, decoder: bucket}
maps:
  NAME_latency: {role: priority_latency, key: level}
  NAME_sum: {role: priority_sum, key: level}
"""
SECOND_US = 1_000_000
START_US = SECOND_US
WINDOWS = 180
SDA, SDB = 8 << 20, 8 << 20 | 16
BUCKET, LATENCY_US = 18, 20
"""The bucket of the latency of each I/O."""
PID = 77
ROW = IoPriority("sda", "write", "best-effort", PID)
KEY = PID << 56 | 2 << 48 | SDA << 16 | 1 << 8
UNSELECTED_KEY = PID << 56 | 2 << 48 | SDB << 16 | 1 << 8
NAMELESS_KEY = PID << 56 | 9 << 48 | SDA << 16 | 1 << 8
"""Its class of priority has no name."""
ORIGIN = Origin("test", "box", "6.12", "0", start_mono_us=START_US, start_wall=1e9)
DEVICES = {number: Device(name, 8, minor) for number, name, minor in ((SDA, "sda", 0), (SDB, "sdb", 16))}


class Counters:
    """The devices of a host whose kernel counts nothing."""

    def __init__(self) -> None:
        self.now_us = START_US
        self.known = {device.name: device for device in DEVICES.values()}
        self.devices = (DEVICES[SDA],)

    def sample(self) -> Sample:
        return Sample(self.now_us, 1e9 + (self.now_us - START_US) / 1e6)

    def selects(self, device: Device) -> bool:
        return device in self.devices

    def numbered(self, number: int) -> Device | None:
        return DEVICES.get(number)


def printed(script: str, tick: int, mono_us: int) -> bytes:
    """Return a tick of a script as bpftrace prints it: since the one before, one I/O of each key."""
    latency = {str(key | BUCKET): 1 + tick for key in (KEY, UNSELECTED_KEY, NAMELESS_KEY)}
    us = {str(key): LATENCY_US * (1 + tick) for key in (KEY, UNSELECTED_KEY)}
    lines: list[dict[str, Any]] = [
        {"type": "printf", "data": f"tick {script} {tick} {mono_us * 1000}\n"},
        {"type": "map", "data": {f"@{script}_latency": latency}},
        {"type": "map", "data": {f"@{script}_sum": us}},
        {"type": "printf", "data": f"done {script}\n"},
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def manifest_of(directory: Path, name: str, group: str) -> Manifest:
    path = directory / f"{name}.yaml"
    path.write_text(MANIFEST.replace("NAME", name).replace("GROUP", group))
    path.with_suffix(".bt").write_text("")
    return load(path)


class Capture:
    """The way of a capture from the lines of both of its probes to frames."""

    def __init__(self, always: Manifest, traced: Manifest) -> None:
        self._counters = Counters()
        self._frames = FrameBuilder(self._counters, Path("/nonexistent"), lambda: 0)
        self._always = always
        around = Surroundings(
            lambda: self._counters.now_us, lambda _: 0, self._counters.sample, map_keys=99, interval_us=SECOND_US
        )
        self._ticks = Ticks(always, Framer(always, self._frames.device_name), around)
        name, threads = self._frames.selected_name, Threads(Path("/nonexistent"))
        tracer_ticks = OnDemandTicks([traced], name, threads, OnDemandSurroundings(99, timed=lambda _: True))
        self._tracer = HostTracer(tracer_ticks, {"sda": True}, has_scripts=True)
        waiting, interrupts = Outliers((always, traced), name, threads), Interrupts(Path("/nonexistent"))
        self._joining = FrameJoiner(
            self._frames, self._tracer, waiting, interrupts, lambda: self._counters.known, sample_us=4000
        )
        self._decoders = BpftraceDecoder(), BpftraceDecoder()

    def frames(self, lines: Callable[[int, int], tuple[bytes, bytes]]) -> Iterator[Frame]:
        """Yield the windows; `lines` returns what the always-on probe and the tracer print at a tick."""
        for tick in range(WINDOWS + 1):
            always, traced = lines(tick, self._counters.now_us)
            for event in self._decoders[1].feed(traced):
                self._tracer.ticks.take(event)
            windows = [self._ticks.take(event) for event in self._decoders[0].feed(always)]
            for window in filter(None, windows):
                yield self._frame(window)
            self._counters.now_us += SECOND_US

    def _frame(self, window: ProbeWindow) -> Frame:
        undecoded = window.interval.undecoded + window.losses.undecoded
        return self._joining.frame(window, self._always, Health(undecoded_lines=undecoded))


def nothing(script: str, tick: int, mono_us: int) -> bytes:
    """Return a tick without maps."""
    lines = (f"tick {script} {tick} {mono_us * 1000}\n", f"done {script}\n")
    return b"".join(json.dumps({"type": "printf", "data": line}).encode() + b"\n" for line in lines)


def exported(write: Callable[[Source, BinaryIO, ExportOptions], None], recording: Path) -> list[str]:
    out = io.BytesIO()
    write(Source(open_recording(recording)), out, ExportOptions())
    return out.getvalue().decode().splitlines()


def generated() -> bool:
    """Return whether the generators of property tests make rows of the table."""
    rows = derived.declared_rows(random.Random(1), PRIORITIES, ["sda"], lambda _: Histogram.record([1]))
    return PRIORITIES in on_demand_frames.TABLES and bool(rows)


def main(directory: Path) -> None:
    """Print what each reader of frames has of the table."""
    always, traced = manifest_of(directory, "prio_c", "always"), manifest_of(directory, "prioq_c", "priorities")
    windows = list(
        Capture(always, traced).frames(lambda tick, now: (nothing("prio_c", tick, now), printed("prioq_c", tick, now)))
    )
    from_always = list(
        Capture(always, traced).frames(lambda tick, now: (printed("prio_c", tick, now), nothing("prioq_c", tick, now)))
    )
    path, private = directory / "r", directory / "p"
    for file, redaction in ((path, None), (private, Redaction())):
        writer = Writer.create(file, ORIGIN, redaction=redaction)
        for frame in windows:
            writer.append(frame)
        writer.close()
    store, sums, weighed = Store(), Accumulator(), Accumulator()
    for frame in windows:
        store.append(frame)
        sums.add(frame)
    for one_in in (1, 16):
        weighed.add(replace(windows[0], traced=Traced(one_in=one_in)))
    minutes = [item for item in open_recording(path).summed() if isinstance(item, Minute)]
    back = [item for item in open_recording(path) if isinstance(item, Frame)]
    hidden = next(item for item in open_recording(private) if isinstance(item, Frame))
    fleet, refused = merged_frame(
        [HostFrame(host, windows[5], 0, ("sda",)) for host in ("a", "b")], seq=1, wall=1e9, mono_us=9, dt_us=1
    )
    who = [line.split(",")[3:9] for line in exported(latmon_exports.write_who, path) if ",priority," in line]
    lines = [json.loads(line) for line in exported(latmon_exports.write_jsonl, path)]
    families = [
        line for line in exported(openmetrics.write, path) if line.startswith("latmon_priority_latency_seconds_count")
    ]
    met = {
        "group": traced.group in tracer.GROUPS,
        "generated": generated(),
        "probe": [[*key, value.count, value.sum] for key, value in windows[4][PRIORITIES].items()],
        "undecoded": windows[4].health.undecoded_lines,
        "always-on": [frame[PRIORITIES] for frame in from_always] == [frame[PRIORITIES] for frame in windows],
        "screen": OnDemandWindow(60 * SECOND_US, store.on_demand)[PRIORITIES][ROW].count,
        "sums": sums.frame[PRIORITIES][ROW].count,
        "weighed": weighed.frame[PRIORITIES][ROW].count,
        "roll-ups": [minute.frame[PRIORITIES][ROW].count for minute in minutes],
        "recording": [frame[PRIORITIES] for frame in back] == [frame[PRIORITIES] for frame in windows],
        "redacted": [[*key] for key in hidden[PRIORITIES]],
        "fleet": sorted([*key, value.count] for key, value in fleet[PRIORITIES].items()),
        "refused": refused,
        "selected": [len(of_devices(windows[0], name.__eq__)[PRIORITIES]) for name in ("sda", "x")],
        "csv": who[0],
        "jsonl": sum("priorities" in line for line in lines),
        "openmetrics": families,
    }
    print(json.dumps(met))


main(Path(sys.argv[1]))
