"""A file written by any release is read by that and every later release: the goldens are never written again.

golden/recordings has a recording of each kind that the code wrote before it was restructured: of each backend, tier,
demo and importer, with roll-ups, in parts, redacted. `reports.json.gz` has the numbers of `report --json` of then. They
were written in format 1.0, which was never released: its last reader wrote them again in 1.1, with the same reports.

`python tests/recording/test_recording_golden.py FILE` writes one, for a new minor version.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from report_json import summarised

from latmon.model.frame import Completed, Device, Flow, Frame, Health, Mark, Missing, Origin, Outstanding, Series
from latmon.model.histogram import Histogram
from latmon.recording.codec import End, Gap
from latmon.recording.parts import open_parts
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer

GOLDEN = Path(__file__).parents[1] / "golden" / "recording-1.1.latmon.jsonl.gz"
KINDS = GOLDEN.parent / "recordings"
REPORTS: dict[str, Any] = json.loads(gzip.decompress((KINDS / "reports.json.gz").read_bytes()))
ORIGIN = Origin(
    backend="bpftrace",
    host="db-07",
    kernel="6.12.0",
    latmon="0.1.0",
    tool="bpftrace 0.23.2",
    tier="A",
    start_wall=1_767_582_000.0,
    start_mono_us=86_400_000_000,
    boot_id="6f9c1d1e-0000-4000-8000-000000000001",
    hz=250,
    measured=MappingProxyType({"queue": ("requeue",), "hba": ("irq", "softirq", "completion"), "total": ()}),
    absent=(Missing("resume", "the waiting thread is not followed"),),
    probes_missing=(Missing("block_rq_requeue", "no such tracepoint"),),
    latency_from="queued",
    extra=MappingProxyType({"probes": {"block": "sha256:0"}}),
)
DISK = Device("sda", 8, 0, driver="mpt3sas", controller="0000:3b:00.0", model="HDD 8T", serial="Z1")
VOLUME = Device("dm-0", 253, 0, "dm", members=("sda",), timed=False, label="vg0-größe")
GAP = Gap("enospc", 2.0, 86_401_000_000, 1_767_582_001.0)
MARK = Mark("controller reset", 86_404_000_000, 1_767_582_004.0)


def window(seq: int, at: int) -> Frame:
    latency = Histogram.record([40 + seq, 85, 90, 1_200_000 + seq, 3_600_000_000])
    return Frame(
        seq=seq,
        wall=ORIGIN.start_wall + at,
        mono_us=ORIGIN.start_mono_us + at * 1_000_000,
        dt_us=1_000_000,
        histograms={
            Series("sda", "read", "queue"): Histogram.record([0, 1, 2, 3, 15]),
            Series("sda", "read", "hba"): replace(latency, max=None),
            Series("sda", "read", "total"): latency,
            Series("sda", "flush", "total"): Histogram.of({12: 2}, bits=0),
        },
        seen={Flow("sda", "read"): Completed(6, 24_576), Flow("sda", "flush"): Completed(2, 0)},
        kernel={Flow("sda", "read"): Completed(6, 24_576, 9000), Flow("dm-0", "read"): Completed(6, 24_576, 9000)},
        outstanding={"sda": Outstanding(3, 1), "dm-0": Outstanding(4, None)},
        devices=(DISK, VOLUME) if seq == 0 else (),
        removed=("sdb",) if seq == 2 else (),
        health=Health(4, 5, lost_events=seq, self_cpu_percent=0.7, probe_ns_per_io=566.0, notice="" if seq else "new"),
        gap="probe-restart" if seq == 2 else "",
    )


WINDOWS = (window(0, 1), window(1, 4), window(2, 5))


def write(path: Path) -> None:
    writer = Writer.create(path, ORIGIN, devices=(DISK,))
    writer.append(WINDOWS[0])
    writer.gap(GAP.reason, GAP.seconds)
    writer.append(WINDOWS[1])
    writer.mark(MARK)
    writer.append(WINDOWS[2])
    writer.close()


def test_version_1_1_is_read():
    recording = open_recording(GOLDEN)
    assert recording.origin == ORIGIN
    assert recording.devices == (DISK,)
    assert list(recording) == [WINDOWS[0], GAP, WINDOWS[1], MARK, WINDOWS[2], End("closed", 3)]
    assert recording.damage == []


def test_the_writer_still_writes_version_1_1(tmp_path):
    write(tmp_path / "r")
    assert gzip.decompress((tmp_path / "r").read_bytes()) == gzip.decompress(GOLDEN.read_bytes())


def test_version_1_1_is_summarised_with_the_numbers_that_are_in_it():
    summary = summarised(open_recording(GOLDEN))
    read = summary["devices"]["sda"]["ops"]["read"]
    assert (read["count"], read["bytes"], read["latency_us"]["count"]) == (18, 73_728, 15)
    assert read["latency_us"]["max"] == 3_600_000_000
    assert read["stages"]["hba"]["max"] is None
    assert summary["health"]["lost_events"] == 3
    assert [gap["reason"] for gap in summary["gaps"]] == ["enospc", "probe-restart"]


@pytest.mark.parametrize("path", sorted(GOLDEN.parent.glob("recording-*.latmon.jsonl.gz")), ids=lambda path: path.name)
def test_every_release_s_recording_is_read_whole(path):
    recording = open_recording(path)
    assert [type(item) for item in recording][-1] is End
    assert recording.damage == []


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield the places where a number, true, false or null of the old report is another one; a new key is none."""
    if isinstance(old, dict):
        found = new if isinstance(new, dict) else {}
        for key, value in old.items():
            yield from differences(value, found.get(key, "nothing"), f"{path}/{key}")
    elif isinstance(old, list):
        found = [one for one in new if not isinstance(one, str)] if isinstance(new, list) else []
        if len(found) != len(old):
            yield f"{path}: {len(old)} entries were in it, now {len(found)}"
        for number, (one, other) in enumerate(zip(old, found, strict=False)):
            yield from differences(one, other, f"{path}/{number}")
    elif type(old) is not type(new) or old != new:
        yield f"{path}: {old} was in it, now {new}"


@pytest.mark.parametrize("kind", REPORTS)
def test_a_report_of_each_kind_has_the_numbers_that_it_had(kind):
    paths = [*KINDS.glob(f"{kind}.*latmon.jsonl.gz"), *GOLDEN.parent.glob(f"{kind}.latmon.jsonl.gz")]
    report = json.loads(json.dumps(summarised(open_parts(paths))))
    assert list(differences(REPORTS[kind], report)) == []


def test_a_changed_number_is_a_difference():
    old = REPORTS["demo-host"]
    changed = json.loads(json.dumps(old))
    changed["devices"]["sda"]["ops"]["read"]["count"] += 1
    assert len(list(differences(old, changed))) == 1
    assert list(differences(old, old | {"added": 1})) == []


if __name__ == "__main__":
    write(Path(sys.argv[1]))
