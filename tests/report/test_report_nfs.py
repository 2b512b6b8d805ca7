"""Calls of the NFS client in a recording, its report, its redaction and its export."""

import io
from dataclasses import replace

import pytest
from recorded import ORIGIN, frame
from report_json import summarised

from latmon.exporters.registry import ExportOptions, Source, writer
from latmon.model.measurements import NFS_OPERATIONS, NFS_REQUESTS
from latmon.model.measurements.nfs import NfsCalls, NfsMount, NfsOperation, NfsRequests
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.report.text import render_text

WRITE, LOOKUP = NfsOperation("/mnt/nfs", "WRITE"), NfsOperation("/mnt/nfs", "LOOKUP")
TABLES = {
    NFS_OPERATIONS: {
        LOOKUP: NfsCalls(calls=5, queue_us=1_000, round_trip_us=2_000, execute_us=4_000, errors=5),
        WRITE: NfsCalls(10, 2, 1, queue_us=30_000, round_trip_us=1_900_000, execute_us=1_930_000),
    },
    NFS_REQUESTS: {NfsMount("/mnt/nfs"): NfsRequests(17, 15, 1_000_000)},
}


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "nfs.latmon.jsonl.gz"
    given_writer = Writer.create(path, ORIGIN)
    for seq in range(2):
        given_writer.append(replace(frame(seq), seq=seq, mono_us=6_000_000 + seq * 1_000_000, tables=TABLES))
    given_writer.close()
    return path


def test_it_is_recorded_as_measured(recording):
    frames = [item for item in open_recording(recording) if hasattr(item, "tables")]
    assert [frame[NFS_OPERATIONS] for frame in frames] == [TABLES[NFS_OPERATIONS]] * 2
    assert [frame[NFS_REQUESTS] for frame in frames] == [TABLES[NFS_REQUESTS]] * 2


def test_a_report_has_the_means_and_the_operation_with_most_of_the_time_first(recording):
    summary = summarised(open_recording(recording))
    assert [row["op"] for row in summary["nfs"]] == ["WRITE", "LOOKUP"]
    assert summary["nfs"][0] == {
        "mount": "/mnt/nfs",
        "op": "WRITE",
        "calls": 20,
        "retransmissions": 4,
        "timeouts": 2,
        "errors": 0,
        "mean_queue_us": 3_000.0,
        "mean_round_trip_us": 190_000.0,
        "mean_us": 193_000.0,
    }
    text = render_text(summary.report)
    (line,) = [line for line in text.splitlines() if line.startswith("WRITE")]
    assert line.split() == ["WRITE", "/mnt/nfs", "20", "193ms", "190ms", "3.00ms", "4"]


def test_openmetrics_has_a_family_for_each_number(recording):
    out, options = io.BytesIO(), ExportOptions()
    writer("openmetrics", options)(Source(open_recording(recording), ()), out, options)
    lines = out.getvalue().decode().splitlines()
    assert 'latmon_nfs_operation_calls_total{mount="/mnt/nfs",op="WRITE"} 20' in lines
    assert 'latmon_nfs_operation_round_trip_seconds_total{mount="/mnt/nfs",op="WRITE"} 3.8' in lines
    assert 'latmon_nfs_requests_sent_total{mount="/mnt/nfs"} 34' in lines
