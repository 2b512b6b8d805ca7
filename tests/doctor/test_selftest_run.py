"""Results of the self-test for frames with and without the delay that it made. Needs no root."""

from dataclasses import replace

import pytest

from latmon.doctor.command import Verdict
from latmon.doctor.selftest import BYTES, COMM, INTERVAL_US, Captured, DelayedWrite, Written, evaluate
from latmon.model.frame import Completed, Device, Flow, Frame, Missing, Origin, Outlier, Outstanding, Series, Traced
from latmon.model.histogram import Histogram
from latmon.model.inflight import Depths, InFlight, InFlightList
from latmon.model.measurements import SOFTIRQS
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns

NAME = "loop9"
HELD = (DelayedWrite(2048, 300_000, 302_000), DelayedWrite(8192, 1_200_000, 1_204_000))
DONE = Written(22, 22, HELD)
ORIGIN = Origin(
    "bpftrace", "host", "Linux", "0", "bpftrace 0.23.2", "A", INTERVAL_US, measured={"total": ()}, latency_from="queued"
)
WRITES = Flow(NAME, "write")
TOTAL = Series(NAME, "write", "total")


def traced(*slow_us):
    """One request in one is traced; all of each one's time is the driver's."""
    histogram = Histogram.record(slow_us)
    by = {
        index: sum(us for us in slow_us if Histogram.record([us]).buckets[0][0] == index)
        for index, _ in histogram.buckets
    }
    hba = Series(NAME, "write", "hba")
    paths = {NAME: {"BLOCK softirq": len(slow_us)}} if slow_us else {}
    irq = Histogram.record([1] * len(slow_us))
    return Traced(
        {TOTAL: histogram, hba: histogram, Series(NAME, "write", "softirq"): irq} if slow_us else {},
        {hba: by} if slow_us else {},
        paths=paths,
        one_in=1,
    )


def outlier(held, total_us=None, **others):
    row = Outlier(0.0, 1, NAME, "write", total_us or held.took_us, sector=held.sector, bytes=BYTES, pid=7, comm=COMM)
    return replace(row, **others)


def frame(at, latencies=(), moments=None, oldest_us=None, rows=()):
    us = (at + 1) * INTERVAL_US
    done = {WRITES: Completed(len(latencies), BYTES * len(latencies))}
    waits = () if oldest_us is None else (InFlight(NAME, "write", us - oldest_us, sector=8192, issued=True),)
    return Frame(
        at,
        us / 1e6,
        us,
        INTERVAL_US,
        histograms={TOTAL: Histogram.record(latencies)} if latencies else {},
        seen=done,
        kernel=done,
        outliers=rows,
        traced=traced(*(us for us in latencies if us > 100_000)),
        tables={SOFTIRQS: {SoftirqCpu("BLOCK", 0): SoftirqRuns(Histogram.record([3]), Histogram.record([9]))}},
        outstanding={NAME: Outstanding(len(waits), 0)},
        depths={NAME: Depths(moments or {0: 100})},
        in_flight=InFlightList(waits, at_us=us, devices=(NAME,)),
        devices=(Device(NAME, 7, 9, "loop"),) if not at else (),
    )


def shown(*changed, origin=ORIGIN, done=DONE, on_demand=""):
    """The verdicts on a good capture, with the frames in `changed` in place of its own."""
    frames = [
        frame(0, (200,) * 20),
        frame(1, moments={0: 40, 1: 60}),
        frame(2, (HELD[0].took_us,)),
        frame(3, moments={0: 20, 1: 80}, rows=(outlier(HELD[0]),)),
        frame(4, moments={1: 100}, oldest_us=900_000),
        frame(5, (HELD[1].took_us,), {0: 40, 1: 60}),
        frame(6, rows=(outlier(HELD[1]),)),
    ]
    for one in changed:
        frames[one.seq] = one
    return evaluate(Captured(NAME, origin, tuple(frames), done, on_demand))


def failed(found):
    return [one.name for one in found if one.verdict is Verdict.FAILED]


def test_a_good_capture_passes_in_every_panel():
    panel_checks = shown()
    assert (panel_checks[-1].name, panel_checks[-1].verdict) == ("findings", Verdict.UNMEASURED)
    assert {panel_check.verdict for panel_check in panel_checks[:-1]} == {Verdict.OK}, panel_checks
    names = [panel_check.name for panel_check in panel_checks[:-1]]
    assert names[:4] == ["device", "counts", "diskstats", "latency map"]
    assert names[-4:] == ["in flight", "outliers", "outliers", "interrupts"]
    sentences = [panel_check.what for panel_check in panel_checks if panel_check.name == "outliers"]
    assert sentences[0] == "write of 4 KiB at sector 2,048 by latmon-delay took 302 ms, 300 ms was made"


@pytest.mark.parametrize("us", [330_000, 285_000])
def test_a_bucket_and_a_late_wake_up_are_no_failure(us):
    panel_checks = shown(frame(2, (us,)), frame(3, moments={0: 20, 1: 80}, rows=(outlier(HELD[0], us),)))
    assert not failed(panel_checks)


@pytest.mark.parametrize(
    ("change", "panels"),
    [
        (frame(2, (HELD[0].took_us * 2,)), ["latency map", "stages"]),
        (frame(2, ()), ["counts", "diskstats", "latency map", "stages"]),
        (frame(3, moments={0: 20, 1: 80}), ["outliers"]),
        (frame(3, moments={0: 20, 1: 80}, rows=(outlier(HELD[0], 600_000),)), ["outliers"]),
        (frame(3, moments={0: 20, 1: 80}, rows=(outlier(HELD[0], comm="fio"),)), ["outliers"]),
        (frame(3, moments={0: 20, 1: 80}, rows=(outlier(HELD[0], bytes=8192),)), ["outliers"]),
        (frame(4, moments={1: 100}), ["in flight"]),
        (frame(4, moments={1: 100}, oldest_us=2_000_000), ["in flight"]),
        (frame(4, moments={0: 100}, oldest_us=900_000), ["depths"]),
    ],
)
def test_what_a_panel_shows_wrong_fails_there(change, panels):
    assert failed(shown(change)) == panels


def test_softirqs_of_other_devices_are_none_of_this_one_s():
    bare = frame(5, (HELD[1].took_us,), {0: 40, 1: 60})
    own = {series: histogram for series, histogram in bare.traced.histograms.items() if series.stage != "softirq"}
    panel_checks = shown(replace(bare, traced=replace(bare.traced, histograms=own)))
    assert failed(panel_checks) == ["interrupts"]


def test_a_wrong_row_says_what_is_wrong():
    panel_checks = shown(frame(3, rows=(outlier(HELD[0], 600_000, comm="fio"),)))
    assert any(panel_check.what.endswith("wrong: latency, issuer") for panel_check in panel_checks)


def test_a_device_that_is_not_listed_fails():
    assert "device" in failed(shown(replace(frame(0, (200,) * 20), devices=())))


def test_counters_that_miss_a_write_fail():
    assert failed(shown(done=replace(DONE, counted=23))) == ["counts", "diskstats"]


def test_the_kernels_counters_alone_can_report_no_latency():
    origin = replace(ORIGIN, backend="procfs", tier="D", measured={}, absent=(Missing("total", "mean only"),))
    panel_checks = shown(origin=origin, on_demand="it has no tracer")
    verdicts = {panel_check.name: panel_check.verdict for panel_check in panel_checks}
    assert not failed(panel_checks)
    assert [name for name, verdict in verdicts.items() if verdict is Verdict.OK] == [
        "device",
        "diskstats",
        "depths",
        "in flight",
    ]
    assert (
        next(panel_check.what for panel_check in panel_checks if panel_check.name == "outliers")
        == "not measured with procfs, tier D"
    )


def test_stages_that_are_not_traced_are_reported_as_such():
    found = {panel_check.name: panel_check for panel_check in shown(on_demand="the tracer did not start within 60 s")}
    assert found["stages"].verdict is Verdict.UNMEASURED
    assert found["stages"].what.endswith("the tracer did not start within 60 s")


def test_a_host_that_can_not_hold_a_write_has_its_counts_checked():
    done = Written(22, 22)
    panel_checks = shown(done=done)
    assert [panel_check.name for panel_check in panel_checks] == ["device", "counts", "diskstats", "delay"]
    assert panel_checks[-1].verdict is Verdict.UNMEASURED
    assert "mkfs.ext4" in panel_checks[-1].what


def test_a_write_that_was_not_held_is_no_panels_fault():
    panel_checks = shown(done=replace(DONE, delayed=(DelayedWrite(2048, 300_000, 400),)))
    assert not failed(panel_checks)
    assert panel_checks[-1].name == "delay"
    assert "doesn't let a loop device wait" in panel_checks[-1].what
