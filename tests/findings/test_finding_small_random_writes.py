"""small-random-writes: a slow device with such a load, and loads and devices that only look like one."""

from dataclasses import replace

import pytest
from finding_cases import disk, done, facts_of, found, frame, hist, timed, traced

from latmon.findings.engine import not_evaluated
from latmon.model import measurements
from latmon.model.frame import Flow
from latmon.model.host_context import interval_value
from latmon.model.measurements.files import FileSeries
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.patterns import Pattern
from latmon.model.measurements.sizes import SizeClass

RULE = "small-random-writes"
SDA = disk(limits={"rotational": 1})


def load(*rows, sequential=0.05, pattern=True, blocks=12, name="sda"):
    """Return frames of 5 s; a row is (op, largest size in bytes, I/Os, us of each)."""
    writes = sum(n for op, _, n, _ in rows if op == "write")
    sizes = {SizeClass(name, op, upto): IssuedIO(n, n * (upto or 1 << 20), hist({us: n})) for op, upto, n, us in rows}
    patterns = {Flow(name, "write"): Pattern(writes, round(sequential * writes))} if pattern else {}
    values = {
        "tables": {measurements.SIZES: sizes, measurements.PATTERNS: patterns},
        "kernel": {},
        "histograms": {},
    }
    for op in dict.fromkeys(op for op, *_ in rows):
        its = [(n, {"total": us}) for kind, _, n, us in rows if kind == op]
        values["histograms"] |= timed(name, its, op)
        values["kernel"] |= done(name, sum(n for n, _ in its), op)
    return [frame(100 + 5 * at, **values) for at in range(blocks)]


PAGES = ("write", 8192, 600, 8_000)
LARGE = ("write", 262_144, 50, 9_000)
READS = ("read", 4096, 100, 6_000)


def test_a_disk_that_does_little_else():
    (finding,) = found(RULE, load(PAGES, LARGE, READS), [SDA])
    assert finding.summary == (
        "sda: 82% of the time of its I/Os is in writes of 16 KiB or less that are not sequential; "
        "they take 8 ms on average"
    )
    facts = {fact.name: fact for fact in finding.facts}
    assert facts["share"].value == pytest.approx(4.8 / (4.8 + 0.45 + 0.6), abs=0.01)
    assert facts["share"].of == 7200
    assert facts["sequential"].value == pytest.approx(0.05, abs=0.01)
    assert facts["bytes"].value == 8192
    assert facts["mean_us"].value == 8000
    assert facts["waiting"].value == pytest.approx(600 * 8_000 / 5e6, abs=0.01)
    assert (facts["iops"].value, facts["iops"].text) == (
        150,
        "the device completes 150 I/Os per second; it rotates",
    )
    assert (finding.where.screen, finding.where.device, finding.severity) == ("stages", "sda", "notice")


def steps_of(frames, device=SDA):
    (finding,) = found(RULE, frames, [device])
    return " | ".join(step.what for step in finding.steps)


def staged(hba, device="sda"):
    """The pages with their stages: a share `hba` of the time in driver and device."""
    stages = {"queue": round((1 - hba) * 8_000), "hba": round(hba * 8_000)}
    return [replace(each, traced=traced(device, ((600, stages),), op="write")) for each in load(PAGES)]


def test_an_ssd_is_advised_only_where_the_device_takes_most_of_the_time():
    assert "| move these files to an SSD" in steps_of(staged(0.9))
    waiting = steps_of(staged(0.3))
    assert "SSD" not in waiting
    assert "write cache" not in waiting
    assert "if most of the time is in driver and device (hba on screen 2): move these files" in steps_of(load(PAGES))
    by_thread = steps_of(staged(0.9), disk(driver="usb-storage"))
    assert "SSD" not in by_thread
    assert "see whether usb-storage's thread waits for a CPU" in by_thread


def test_sixteen_threads_on_one_inode_wait_for_its_lock():
    """An I/O of 8 ms, and writes of 128 ms: each thread waits for the I/Os of 15 others."""
    files = {FileSeries("sda", "write", "/data", "ext4", "device"): hist({128_000: 600})}
    steps = steps_of([replace(each, tables={**each.tables, measurements.FILES: files}) for each in staged(0.9)])
    assert "SSD" not in steps
    assert "a lock of a file that many threads write" in steps
    (finding,) = found(
        RULE, [replace(each, tables={**each.tables, measurements.FILES: files}) for each in staged(0.9)], [SDA]
    )
    (share,) = [fact.value for fact in finding.facts if fact.name == "io_share"]
    assert share == pytest.approx(1 / 16, abs=0.001)


def test_what_is_not_known_of_rotation_decides_nothing():
    (finding,) = found(RULE, load(PAGES), [disk()])
    assert "whether it rotates is not known" in {fact.name: fact.text for fact in finding.facts}["iops"]


@pytest.mark.parametrize(
    ("rows", "more"),
    [
        pytest.param((PAGES,), {"sequential": 0.6}, id="sequential"),
        pytest.param((PAGES,), {"pattern": False}, id="the order is not known"),
        pytest.param((("write", 8192, 600, 300),), {}, id="a cache takes them"),
        pytest.param((("write", 8192, 200, 8_000),), {}, id="seldom one in flight"),
        pytest.param((("write", 8192, 100_000, 2_000),), {}, id="a fast device with a long queue"),
        pytest.param((("write", 262_144, 600, 8_000),), {}, id="large"),
        pytest.param((PAGES, ("write", 262_144, 400, 2_000)), {}, id="the pattern may be that of the large ones"),
        pytest.param((PAGES, ("read", 4096, 900, 8_000)), {}, id="reads take more"),
        pytest.param((PAGES,), {"blocks": 1, "sequential": 0.5}, id="short and sequential"),
        pytest.param((("write", 8192, 5, 600_000),), {"blocks": 2}, id="few"),
        pytest.param((("read", 8192, 600, 8_000),), {}, id="reads"),
    ],
)
def test_no_such_load(rows, more):
    assert found(RULE, load(*rows, **more), [SDA]) == []


@pytest.mark.parametrize(
    ("driver", "pressure_us", "fires"), [("loop", 4_000_000, False), ("loop", 1_000_000, True), ("", 4_000_000, True)]
)
def test_a_loop_device_whose_worker_may_wait_for_a_cpu_is_none(driver, pressure_us, fires):
    cpu = {"psi_cpu_some": interval_value(pressure_us, 5_000_000)}
    name = "loop0" if driver else "sda"
    frames = [replace(frame, host_context=cpu) for frame in load(PAGES, LARGE, READS, name=name)]
    assert bool(found(RULE, frames, [replace(SDA, name=name, driver=driver)])) is fires


@pytest.mark.parametrize(("short_of_cpus", "fires"), [("db1", False), ("db2", True)])
def test_of_a_fleet_only_the_devices_own_host_may_be_short_of_cpus(short_of_cpus, fires):
    """It read the value of a capture of one host, which no fleet has."""
    name = "db1:loop0"
    context = {f"{host}:psi_cpu_some": interval_value(0, 5_000_000) for host in ("db1", "db2")}
    context |= {f"{short_of_cpus}:psi_cpu_some": interval_value(4_000_000, 5_000_000)}
    frames = [replace(frame, host_context=context) for frame in load(PAGES, LARGE, READS, name=name)]
    device = replace(SDA, name=name, driver="loop")
    assert bool(found(RULE, frames, [device], backend="fleet")) is fires


def test_latencies_without_sums_are_estimated_from_their_buckets():
    frames = [
        replace(frame, histograms={series: replace(latency, sum=None) for series, latency in frame.histograms.items()})
        for frame in load(PAGES, LARGE, READS)
    ]
    (finding,) = found(RULE, frames, [SDA])
    waiting = {fact.name: fact for fact in finding.facts}["waiting"].value
    assert waiting == pytest.approx(600 * 8_000 / 5e6, rel=0.07)


def test_without_the_order_of_writes_it_is_not_evaluated():
    assert RULE in not_evaluated(facts_of(load(PAGES, pattern=False)))["patterns"]
    assert "patterns" not in not_evaluated(facts_of(load(PAGES)))
