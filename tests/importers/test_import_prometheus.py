"""Scrapes of node_exporter: its own time, its names of 0.15 and before, and why others are refused.

The right totals are those of a separate awk program over the samples.
"""

import subprocess

import pytest
from test_imports import frames, only, read

from latmon.importers.values import ImportOptions, Remark
from latmon.model.frame import Flow
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE, RecordingError

NEW = {
    "reads": "node_disk_reads_completed_total",
    "writes": "node_disk_writes_completed_total",
    "read": "node_disk_read_bytes_total",
    "written": "node_disk_written_bytes_total",
    "read_s": "node_disk_read_time_seconds_total",
    "write_s": "node_disk_write_time_seconds_total",
}
OLD = {
    "reads": "node_disk_reads_completed",
    "writes": "node_disk_writes_completed",
    "read": "node_disk_bytes_read",
    "written": "node_disk_bytes_written",
    "read_ms": "node_disk_read_time_ms",
    "write_ms": "node_disk_write_time_ms",
}
SECTORS = OLD | {"read": "node_disk_sectors_read", "written": "node_disk_sectors_written"}
DISKS = ("sda", "nvme0n1")
TIME = {"new": "node_time_seconds", "old": "node_time"}
AWK = r"""
/^node_disk_/ {
    name = $1
    sub(/\{.*/, "", name)
    if ($1 in first) last[$1] = $NF
    else first[$1] = $NF
    of[$1] = name
}
END {
    for (key in last) total[of[key]] += last[key] - first[key]
    for (name in total) printf "%s %d\n", name, total[name]
}
"""


def scrape(names, seconds, wall, place="behind", labels=""):
    """Return a scrape whose counters have grown for some seconds; `place`: of its time."""
    time = f"{TIME['new' if names is NEW else 'old']}{{{labels}}} {wall:.12e}".replace("{}", "")
    lines = ["# HELP node_cpu_seconds_total Seconds.", 'node_cpu_seconds_total{cpu="0",mode="idle"} 5']
    lines += [time] if place == "before" else []
    for number, (kind, name) in enumerate(names.items(), 1):
        lines.append(f"# TYPE {name} counter")
        for disk in DISKS:
            value = (number * 512 * (1 + seconds)) * (1 if disk == "sda" else 3)
            value = value / 1024 if kind.endswith("_s") else value
            label = ",".join(filter(None, (f'device="{disk}"', labels)))
            lines.append(f"{name}{{{label}}} {value}")
    lines += ["node_load1 0.5", *([time] if place == "behind" else []), "node_vmstat_pgfault 7"]
    return "".join(f"{line}\n" for line in lines)


def by_awk(text):
    done = subprocess.run(["awk", AWK], input=text, capture_output=True, text=True, check=True)
    return {name: int(total) for name, total in (line.split() for line in done.stdout.splitlines())}


WALL = 1_709_287_200


@pytest.mark.parametrize("place", ["behind", "before"])
@pytest.mark.parametrize("names", [NEW, OLD, SECTORS], ids=["new", "old", "sectors"])
@pytest.mark.parametrize("step", [1, 10, 15])
def test_a_scrape_has_its_own_time_and_its_names_of_any_version(names, place, step):
    text = "".join(scrape(names, step * n, WALL + step * n, place) for n in range(4))
    all_frames = frames(text)
    right = by_awk(text)
    assert [frame.wall for frame in all_frames] == [WALL + step * n for n in range(1, 4)]
    assert {frame.dt_us for frame in all_frames} == {step * 1_000_000}
    sector = 512 if names is SECTORS else 1
    for op, count, size in (("read", "reads", "read"), ("write", "writes", "written")):
        done = [frame.kernel[Flow(disk, op)] for frame in all_frames for disk in DISKS]
        assert sum(one.count for one in done) == right[names[count]]
        assert sum(one.bytes for one in done) == right[names[size]] * sector
        time, unit = (f"{op}_s", 1_000_000) if names is NEW else (f"{op}_ms", 1000)
        assert sum(one.time_us for one in done) == pytest.approx(right[names[time]] * unit, abs=unit * 2)
    left = [text.splitlines()[at - 1] for at in read(text).left]
    assert not [line for line in left if line.startswith(("node_disk", "node_time"))]
    assert read(text).exit_code == EXIT_DONE


def test_the_exporters_time_is_nearer_than_a_line_of_date():
    parts = [scrape(NEW, 10 * n, WALL + 10 * n + 0.25) for n in range(2)]
    text = f"2024-03-01 10:00:00\n{parts[0]}2024-03-01 10:00:11\n{parts[1]}"
    frame = only(frames(text))
    assert (frame.wall, frame.dt_us) == (WALL + 10.25, 10_000_000)


def test_times_of_two_hosts_in_one_answer_begin_no_scrape_of_their_own():
    """A Prometheus answers by metric: the times of all hosts stand together."""
    answers = []
    for n in range(3):
        text = [line for line in scrape(NEW, 10 * n, 0, "none").splitlines() if line.startswith("node_disk")]
        lines = [line.replace("}", f',instance="{host}"}}') for line in text for host in ("a", "b")]
        lines += [f'node_time_seconds{{instance="{host}"}} {WALL + 10 * n}' for host in ("a", "b")]
        answers.append("\n".join(lines))
    all_frames = frames("\n".join(answers))
    assert [(frame.wall, frame.dt_us) for frame in all_frames] == [(WALL + 10 * n, 10_000_000) for n in (1, 2)]
    assert all(len(frame.kernel) == 8 for frame in all_frames)


def test_a_time_of_no_clock_is_not_taken():
    text = "".join(scrape(NEW, n, wall) for n, wall in enumerate((0.0, 5e15)))
    assert only(frames(text, ImportOptions(start=1e9))).dt_us == 1_000_000


def test_sizes_that_are_not_in_the_text_are_said_to_be_unknown():
    names = {kind: name for kind, name in OLD.items() if kind not in ("read", "written")}
    text = "".join(scrape(names, n, WALL + n) for n in range(2))
    assert (
        "sda read, sda write, nvme0n1 read and 1 more: no counter of bytes, 0 is unknown"
        in only(frames(text)).health.notice
    )


def test_times_without_a_count_are_named():
    names = {kind: name for kind, name in NEW.items() if kind != "reads"}
    found = read("".join(scrape(names, n, WALL + n) for n in range(2)))
    assert any("no counter of I/Os" in remark.text for remark in found.found if isinstance(remark, Remark))
    assert found.exit_code == EXIT_INCOMPLETE
    assert {flow.op for flow in only(found.frames()).kernel} == {"write"}


BUCKET = 'grpc_server_handling_duration_seconds_bucket{le="0.001"} 7\n'


@pytest.mark.parametrize(
    "text",
    [
        BUCKET,
        'x 1\nhttp_seconds_bucket{path="/",le="+Inf"} 7\n',
        'node_disk_info{device="sda",major="8"} 1\n',
        'node_disk_io_time_seconds_total{device="sda"} 1\n',
        'node_disk_reads_merged{device="sda"} 1\n' * 2,
    ],
)
def test_a_text_without_a_disks_counters_is_refused_with_the_reason(text):
    why = "no sample is a counter of node_exporter's disks .* or a bucket .* with a label device, disk or dev"
    with pytest.raises(RecordingError, match=why):
        read(text)
