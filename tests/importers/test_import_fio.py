"""fio's documents of one run, which are its states since it began, and the units of fio 2.x.

The files in tests/golden/fio are of real runs of fio 3.33 and 2.16, without what is not read, a document on each line.
"""

import json
from itertools import pairwise

import pytest
from report_json import summarised
from test_imports import GOLDEN, frames, only, read

from latmon.importers.registry import import_command
from latmon.importers.values import ImportOptions, Remark
from latmon.model.frame import Completed, Flow, Frame, Series
from latmon.recording.reader import open_recording
from latmon.support.errors import EXIT_DONE

FIO = GOLDEN.parent / "fio"
OPS = {"read": "read", "write": "write", "trim": "discard", "sync": "flush"}
INTERVALS = {
    "interval_means": 6,
    "interval_bins": 5,
    "interval_jobs": 5,
    "interval_group": 4,
    "interval_stone": 5,
    "interval_fsync": 4,
    "interval_both": 3,
    "fio2_16_interval": 4,
}
"""File -> its documents."""
OLD = ("fio2_16_means", "fio2_16_bins", "fio2_16_jobs", "fio2_16_one", "fio2_16_interval")


def text_of(name):
    return (FIO / f"{name}.json").read_text()


def documents(name):
    return [json.loads(line) for line in text_of(name).splitlines()]


def reported(document, kib=1):
    """Return flow -> I/Os and bytes, as fio reports them."""
    totals = {}
    for job in document["jobs"]:
        for direction, op in OPS.items():
            side = job.get(direction, {})
            if side.get("total_ios"):
                key = Flow(job["jobname"], op)
                ios, size = totals.get(key, (0, 0))
                totals[key] = ios + side["total_ios"], size + side.get("io_bytes", 0) * kib
    return totals


def imported(every):
    totals = {}
    for frame in every:
        for flow, done in {**frame.seen, **frame.kernel}.items():
            ios, size = totals.get(flow, (0, 0))
            totals[flow] = ios + done.count, size + done.bytes
    return totals


@pytest.mark.parametrize("name", INTERVALS)
def test_the_windows_of_a_run_are_the_differences_of_its_documents(name):
    found = read(text_of(name))
    all_frames = list(found.frames())
    each = documents(name)
    kib = 1024 if name in OLD else 1
    assert len(all_frames) == len(each) == INTERVALS[name]
    assert imported(all_frames) == reported(each[-1], kib)
    for number, frame in enumerate(all_frames, 1):
        assert imported(all_frames[:number]) == reported(each[number - 1], kib)
        assert frame.wall == each[number - 1]["timestamp_ms"] / 1000
    passed = [(later["timestamp_ms"] - before["timestamp_ms"]) * 1000 for before, later in pairwise(each)]
    assert [frame.dt_us for frame in all_frames[1:]] == passed
    assert found.exit_code == EXIT_DONE
    assert not any(frame.marks for frame in all_frames)


@pytest.mark.parametrize("name", INTERVALS)
def test_a_run_can_be_recorded_and_read(name, tmp_path):
    out = tmp_path / "out.latmon.jsonl.gz"
    assert import_command(FIO / f"{name}.json", out, ImportOptions()) == EXIT_DONE
    all_frames = [frame for frame in open_recording(out) if isinstance(frame, Frame)]
    assert imported(all_frames) == imported(frames(text_of(name)))


@pytest.mark.parametrize("name", ["interval_bins", "interval_group", "interval_stone", "fio2_16_interval"])
def test_the_bins_and_times_of_the_windows_add_up_to_those_of_the_run(name):
    all_frames, last = frames(text_of(name)), documents(name)[-1]
    for job in last["jobs"]:
        for direction in ("read", "write"):
            side = job.get(direction, {})
            if not side.get("total_ios"):
                continue
            key, us = ("clat_ns", 1e-3) if "clat_ns" in side else ("clat", 1)
            parts = [frame.histograms.get(Series(job["jobname"], OPS[direction], "total")) for frame in all_frames]
            parts = [part for part in parts if part is not None]
            bins = {name: n for name, n in side[key]["bins"].items() if not name.startswith("FIO")}
            assert sum(part.count for part in parts) == sum(bins.values()) == side["total_ios"]
            assert sum(part.sum for part in parts) == pytest.approx(
                side[key]["mean"] * us * side["total_ios"], abs=len(parts)
            )
            assert max(part.max or 0 for part in parts) == int(side[key]["max"] * us)


@pytest.mark.parametrize("name", ["interval_means", "interval_bins", "fio2_16_interval"])
@pytest.mark.parametrize("at", [0, 1, -1])
def test_an_interval_without_an_io_is_a_window_with_0_ios(name, at, tmp_path):
    """A document of a second in which a device was stuck has the counters of the one before; the first one has none."""
    each = documents(name)
    stuck = json.loads(json.dumps(each[at]))
    for document in each[len(each) - 1 if at == -1 else at :]:
        document["timestamp_ms"] += 1000
        document["timestamp"] += 1
        for job in document["jobs"]:
            job["elapsed"] += 1
    if at:
        stuck = json.loads(json.dumps(each[at - 1]))
        stuck["timestamp_ms"] += 1000
        stuck["timestamp"] += 1
        for job in stuck["jobs"]:
            job["elapsed"] += 1
    else:
        for job in stuck["jobs"]:
            for direction in ("read", "write", "trim", "sync"):
                job.pop(direction, None)
    place = len(each) - 1 if at == -1 else at
    path, out = tmp_path / "fio.json", tmp_path / "out.latmon.jsonl.gz"
    path.write_text("".join(f"{json.dumps(document)}\n" for document in (*each[:place], stuck, *each[place:])))
    assert import_command(path, out, ImportOptions()) == EXIT_DONE
    all_frames = [frame for frame in open_recording(out) if isinstance(frame, Frame)]
    assert len(all_frames) == len(each) + 1
    assert {done.count for done in (*all_frames[place].seen.values(), *all_frames[place].kernel.values())} == {0}
    assert not any(histogram.count for histogram in all_frames[place].histograms.values())
    assert imported(all_frames) == reported(each[-1], 1024 if name in OLD else 1)
    assert all(frame.dt_us == 1_000_000 for frame in all_frames[place : place + 1] if at)
    assert not any(frame.marks for frame in all_frames)
    shown = [device for device, _ in imported(all_frames)]
    assert shown == [*summarised(open_recording(out))["devices"]] * len(shown)


def test_ios_of_the_ramp_time_are_in_no_window():
    """fio counts them until the ramp is over, and begins again at 0: its last document has the others."""
    found = read(text_of("interval_ramp"))
    all_frames = list(found.frames())
    assert imported(all_frames) == reported(documents("interval_ramp")[-1]) == {Flow("a", "read"): (600, 2_457_600)}
    assert [only(frame.kernel.values()).count for frame in all_frames] == [201, 200, 199, 0]
    assert "2 documents of the ramp time" in all_frames[0].health.notice
    assert found.exit_code == EXIT_DONE


def test_what_has_no_bins_is_said_once_for_a_run():
    remarks = [remark.text for remark in read(text_of("interval_means")).found if isinstance(remark, Remark)]
    assert remarks == ["a read: 1,499 I/Os without bins; run fio with json+; the longest took 25,388 us"]


def moved(name, seconds):
    """Return a run with all its times later."""
    each = documents(name)
    for document in each:
        document["timestamp_ms"] += 1000 * seconds
    return "".join(f"{json.dumps(document)}\n" for document in each)


@pytest.mark.parametrize("name", ["interval_means", "interval_bins", "fio2_16_interval"])
@pytest.mark.parametrize("seconds", [0, 2, 6, 3600])
def test_a_later_run_of_the_same_jobs_is_another_one(name, seconds):
    once = frames(text_of(name))
    all_frames = frames(text_of(name) + moved(name, seconds))
    assert imported(all_frames) == {flow: (2 * ios, 2 * size) for flow, (ios, size) in imported(once).items()}
    assert [bool(frame.marks) for frame in all_frames] == [number == len(once) for number in range(2 * len(once))]


def test_a_run_whose_counters_fall_is_another_one_also_if_it_began_at_the_same_time():
    first, *_, last = text_of("interval_means").splitlines(keepends=True)
    all_frames = frames(last + first.replace('"timestamp_ms": 1795910496868', '"timestamp_ms": 1795910501084'))
    assert [only(frame.kernel.values()).count for frame in all_frames] == [1499, 240]


def test_documents_without_a_time_are_of_different_runs():
    first, second, *_ = documents("interval_means")
    for document in (first, second):
        del document["timestamp"], document["timestamp_ms"]
    assert [only(frame.kernel.values()).count for frame in frames(json.dumps(first) + json.dumps(second))] == [240, 540]


@pytest.mark.parametrize("name", OLD)
def test_fio_2_counts_bytes_in_kib_and_times_in_us(name):
    all_frames, last = frames(text_of(name)), documents(name)[-1]
    assert imported(all_frames) == reported(last, 1024)
    for (flow, (ios, size)), block in zip(imported(all_frames).items(), SIZES[name], strict=True):
        assert size / ios == pytest.approx(block, rel=0.01), flow


SIZES = {
    "fio2_16_means": (4096, 4096),
    "fio2_16_bins": (8192, 8192),
    "fio2_16_jobs": (4096, 16384),
    "fio2_16_one": (4096,),
    "fio2_16_interval": (4096,),
}


def test_fio_2_has_its_exact_mean_of_all_the_time():
    frame = only(frames(text_of("fio2_16_means")))
    side = documents("fio2_16_means")[0]["jobs"][0]["read"]
    assert frame.kernel[Flow("a", "read")].time_us == round(side["lat"]["mean"] * side["total_ios"])
    assert frame.dt_us == 1000 * max(side["runtime"], 2001)
    assert "the longest took 1,716 us" in frame.health.notice


def test_fio_2_has_the_bins_of_their_index():
    """plat_idx_to_val of its stat.c: 128 bins of 1 us, then 64 for each octave."""
    frame = only(frames(text_of("fio2_16_bins")))
    side = documents("fio2_16_bins")[0]["jobs"][0]["read"]["clat"]
    histogram = frame.histograms[Series("a", "read", "total")]
    assert (histogram.count, histogram.max) == (400, side["max"])
    middles = 0.0
    for name, n in side["bins"].items():
        if not name.startswith("FIO"):
            index = int(name)
            width = 1 << max(0, (index >> 6) - 1)
            first = index if width == 1 else (64 + index % 64) * width
            middles += (first + (width - 1) / 2) * n
    assert middles / 400 == pytest.approx(side["mean"], rel=0.01)
    assert histogram.quantile(0.5) == pytest.approx(side["mean"], rel=0.5)


OF_A_REPORT = """{"fio version":"fio-2.10","timestamp":1480611510,"jobs":[{"jobname":"a",
"read":{"io_bytes":89304,"total_ios":22326,"runtime":30003,
"lat":{"min":60,"max":9025,"mean":635.2},"clat":{"mean":610.5}},"write":{"io_bytes":0,"total_ios":0}}]}
"""


def test_a_report_of_fio_2_10():
    frame = only(frames(OF_A_REPORT))
    assert frame.kernel == {Flow("a", "read"): Completed(22326, 91_447_296, round(635.2 * 22326))}
    assert (frame.wall, frame.dt_us) == (1_480_611_510, 30_003_000)
    assert "the longest took 9,025 us" in frame.health.notice


@pytest.mark.parametrize(
    ("version", "kbytes", "size"),
    [
        ("fio-2.1.11", "", 89304 * 1024),
        ("fio-2.20", "", 89304 * 1024),
        ("fio-2.20-9-g1234", '"io_kbytes":87,', 89304),
        ("fio-2.21", "", 89304),
        ("fio-2.99", "", 89304),
        ("fio-3.33", "", 89304),
    ],
)
def test_bytes_are_in_kib_before_fio_2_21(version, kbytes, size):
    """Commit c12d597a of fio, which added io_kbytes, is in 2.21."""
    text = OF_A_REPORT.replace("fio-2.10", version).replace('"io_bytes":89304', f'{kbytes}"io_bytes":89304')
    assert only(only(frames(text)).kernel.values()).bytes == size


def test_times_that_were_switched_off_are_unknown():
    """gtod_reduce of fio 2.x prints 0 for each of them."""
    text = OF_A_REPORT.replace('"min":60,"max":9025,"mean":635.2', '"min":0,"max":0,"mean":0.0')
    assert only(only(frames(text.replace("610.5", "0.0"))).kernel.values()).time_us is None


def test_a_mean_of_zero_that_was_measured_is_zero():
    text = json.dumps(
        {
            "fio version": "fio-3.33",
            "jobs": [
                {"jobname": "a", "read": {"total_ios": 5, "io_bytes": 5, "lat_ns": {"N": 5, "mean": 0.0, "max": 0}}}
            ],
        }
    )
    assert only(only(frames(text)).kernel.values()).time_us == 0


def test_windows_longer_than_the_time_since_the_one_before_can_be_recorded(tmp_path):
    """Runs side by side: the second one ends a second after the first, and began before it."""
    first, second = (
        OF_A_REPORT.replace("1480611510", wall).replace('"jobname":"a"', f'"jobname":"{name}"')
        for wall, name in (("1480611510", "a"), ("1480611511", "b"))
    )
    source, out = tmp_path / "text", tmp_path / "out.latmon.jsonl.gz"
    source.write_text(first.replace("30003", "1000") + second)
    assert import_command(source, out, ImportOptions()) == EXIT_DONE
    all_frames = [frame for frame in open_recording(out) if isinstance(frame, Frame)]
    assert [frame.dt_us for frame in all_frames] == [1_000_000, 30_003_000]
