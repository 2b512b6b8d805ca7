"""A table that is declared for a test alone, from a probe's printed map to all that reads a frame; prints what it met.

A process of its own: everything generic is made of the declarations when it is imported.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).parents[2] / name) for name in ("", "backends")]

from latmon.model import measurements  # noqa: E402 - its path was just added
from latmon.model.redaction import Redaction  # noqa: E402
from latmon.model.table import CGROUP, DEVICE, OP, Part, Table, latencies  # noqa: E402


class Level(NamedTuple):
    """Key of the I/Os of one priority."""

    device: str
    op: str
    level: int


class Owner(NamedTuple):
    """A key with a name that redaction hides."""

    device: str
    cgroup: str


LEVELS = Table(
    "levels",
    Level,
    (DEVICE, OP, Part(highest=7, probe_part="level")),
    latencies(),
    group="levels",
    export_name="level",
    is_sampled=lambda _: True,
)
OWNERS = Table("owners", Owner, (DEVICE, CGROUP), latencies(), group="levels", export_name="owner")
measurements.TABLES = (*measurements.TABLES, LEVELS, OWNERS)

from latmon.aggregate.accumulator import Accumulator, Minute  # noqa: E402 - made of TABLES
from latmon.aggregate.history import Store  # noqa: E402
from latmon.decode.framer import TracerFramer, joined  # noqa: E402
from latmon.exporters.latmon import write_who  # noqa: E402
from latmon.exporters.registry import ExportOptions, Source  # noqa: E402
from latmon.manifest import load  # noqa: E402
from latmon.model.devices import of_devices  # noqa: E402
from latmon.model.frame import Completed, Device, Flow, Frame, Origin, Traced  # noqa: E402
from latmon.recording.reader import open_recording  # noqa: E402
from latmon.recording.writer import Writer  # noqa: E402
from latmon.views.history import OnDemandWindow  # noqa: E402
from latmon_backends.fleet.merge import HostFrame, merged_frame  # noqa: E402

MANIFEST = """
name: prio_a
purpose: I/Os by priority
platform: linux
tool: bpftrace
tier: A
cost: cheap
group: sizes
clock: monotonic
hooks: ["rawtracepoint:block_rq_complete"]
requirements: [root]
keys:
  level:
    level: {shift: 48, bits: 8, decoder: integer}
    dev: {shift: 16, bits: 32, decoder: dev_t}
    op: {shift: 8, bits: 8, decoder: op}
    bucket: {shift: 0, bits: 8, decoder: bucket}
maps:
  prio_a_latency: {role: level_latency, key: level}
  prio_a_sum: {role: level_sum, key: level}
"""
SDA = 8 << 20
ROW = Level("sda", "write", 3)
ORIGIN = Origin("test", "box", "6.12", "0", start_mono_us=1_000_000, start_wall=1e9)


def frames(directory: Path) -> list[Frame]:
    """Return three minutes of windows with what a probe's maps print: one I/O of 20 us more in each."""
    (directory / "prio_a.yaml").write_text(MANIFEST)
    (directory / "prio_a.bt").write_text("")
    manifest = load(directory / "prio_a.yaml")
    framer = TracerFramer(manifest, {SDA: "sda"}.get)
    key = 3 << 48 | SDA << 16 | 1 << 8
    made = []
    for seq in range(180):
        framer.printed("prio_a_latency", {key | 18: 1 + seq})
        framer.printed("prio_a_sum", {key: 20 * (1 + seq)})
        interval = joined([framer.interval(seq, lambda _: None)], [manifest])
        frame = Frame(
            seq,
            1e9 + 1 + seq,
            2_000_000 + seq * 1_000_000,
            1_000_000,
            kernel={Flow("sda", "write"): Completed(1, 512, 20)},
            traced=Traced(one_in=1),
            devices=(Device("sda", 8, 0),) if not seq else (),
        )
        made.append(
            frame.with_tables({**interval.tables, OWNERS: {Owner("sda", "/web"): interval.tables[LEVELS][ROW]}})
        )
    return made


def main(directory: Path) -> None:
    """Print what each reader of frames has of the table."""
    windows = frames(directory)
    path, private, rows = directory / "r", directory / "p", directory / "who.csv"
    for file, redaction in ((path, None), (private, Redaction())):
        writer = Writer.create(file, ORIGIN, redaction=redaction)
        for frame in windows:
            writer.append(frame)
        writer.close()
    store = Store()
    sums = Accumulator()
    for frame in windows:
        store.append(frame)
        sums.add(frame)
    recording = open_recording(path)
    minutes = [item for item in recording.summed() if isinstance(item, Minute)]
    back = [item for item in open_recording(path) if isinstance(item, Frame)]
    hidden = next(item for item in open_recording(private) if isinstance(item, Frame))
    fleet, refused = merged_frame(
        [HostFrame(host, windows[5], 0, ("sda",)) for host in ("a", "b")], seq=1, wall=1e9, mono_us=9, dt_us=1
    )
    with rows.open("wb") as out:
        write_who(Source(open_recording(path)), out, ExportOptions())
    weighed = Accumulator()
    for one_in in (1, 16):
        weighed.add(replace(windows[0], traced=Traced(one_in=one_in)))
    selected = [len(of_devices(windows[0], name.__eq__)[LEVELS]) for name in ("sda", "x")]
    print(
        json.dumps(
            {
                "probe": windows[4][LEVELS][ROW].sum,
                "screen": OnDemandWindow(60_000_000, store.on_demand)[LEVELS][ROW].count,
                "sums": sums.frame[LEVELS][ROW].count,
                "roll-ups": [minute.frame[LEVELS][ROW].count for minute in minutes],
                "recording": [frame.tables for frame in back] == [frame.tables for frame in windows],
                "redacted": [[*key] for key in hidden[OWNERS]],
                "fleet": sorted([[*key], value.count] for key, value in fleet[LEVELS].items()),
                "fleet's owners": sorted([*key] for key in fleet[OWNERS]),
                "refused": refused,
                "weighed": weighed.frame[LEVELS][ROW].count,
                "selected": selected,
                "csv": [line.split(",")[3:9] for line in rows.read_text().splitlines() if ",level," in line][:1],
            }
        )
    )


main(Path(sys.argv[1]))
