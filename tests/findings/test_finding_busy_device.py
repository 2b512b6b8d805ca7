"""busy-device: who fills a device, against what was before, and loads that are no finding."""

import pytest
from finding_cases import depths, disk, done, found, frame, hist, timed

from latmon.findings.rule import NOTICE, WARNING
from latmon.model import measurements
from latmon.model.frame import BACKING_DEVICE, DeviceReport
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer
from latmon.model.measurements.written import Writer

RULE = "busy-device"
MIB = 1 << 20
FULL, HALF, IDLE = {64: 5000}, {0: 2500, 1: 2500}, {0: 4500, 1: 500}


def load(device, program, ios, us, *, op="read", size=4096, busy=FULL):
    """Return the tables of 5 s in which a program has so many I/Os of so many us on a device."""
    return {
        "kernel": done(device, ios, op, size),
        "histograms": timed(device, [(ios, {"total": us})], op),
        "depths": {device: depths(busy)},
        "issuers": {Issuer(device, op, "/", pid=7, comm=program): IssuedIO(ios, ios * size, hist({us: ios}))},
    }


def second(at_s, *loads, written=None):
    parts = {name: {} for name in ("kernel", "histograms", "depths", "issuers")}
    for one_load in loads:
        for name, rows in one_load.items():
            parts[name] |= rows
    tables = {measurements.ISSUERS: parts.pop("issuers"), measurements.WRITTEN: written or {}}
    return frame(at_s, tables=tables, **parts)


def blocks(*loads, written=None):
    """Return a block of 5 s for each of these tuples of loads."""
    return [second(100 + 5 * at, *of_block, written=written) for at, of_block in enumerate(loads)]


def findings(*loads, devices=(), written=None):
    return found(RULE, blocks(*loads, written=written), devices or [disk()])


def values(finding):
    return {fact.name: fact.value for fact in finding.facts}


BEFORE = (load("sda", "searchd", 2420, 4_100),)
DEEP = (load("sda", "searchd", 1965, 163_000),)


def test_more_in_flight_at_the_same_rate_only_wait():
    (finding,) = findings(*[BEFORE] * 3, *[DEEP] * 4)
    assert finding.severity == NOTICE
    assert finding.summary.startswith(
        "sda is busy 100% of the time: searchd keeps 64 reads of 4 KiB in flight, 163 ms each; until "
    )
    assert finding.summary.endswith("it completed 484 IOPS with 2.0 in flight, now 393: more of them only wait")
    assert finding.short == "sda: 64 reads of searchd in flight, 163 ms each, IOPS as with 2"
    assert values(finding)["iops_before"] == pytest.approx(484)
    assert finding.share == pytest.approx(1 - 4.1 / 163, abs=0.01)
    assert "fewer in flight" in finding.steps[1].what


def test_as_many_that_take_longer_are_no_load():
    before = (load("sda", "mqueued", 200, 2_000, op="write", busy=IDLE),)
    now = (load("sda", "mqueued", 200, 47_000, op="write"),)
    (finding,) = findings(*[before] * 2, *[now] * 4)
    assert finding.summary.startswith("sda: writes take 47 ms, and took 2 ms until ")
    assert finding.summary.endswith("at 40.0 and 40.0 IOPS; mqueued keeps 2 writes of 4 KiB in flight, 47 ms each")
    assert finding.short == "sda: writes take 47 ms, 2 ms before; mqueued waits 47 ms"
    assert not any("limit" in step.what for step in finding.steps)


def test_a_program_with_as_many_in_flight_because_they_wait_is_harm():
    """A copy's large writes: two threads of a database have 1.8 reads in flight then, each of them 84 times as long."""
    before = (load("sda", "dbserver", 150, 1_600, busy=IDLE),)
    copied = load("sda", "backup", 100, 160_000, op="write", size=MIB)
    (finding,) = findings(*[before] * 4, *[(load("sda", "dbserver", 68, 135_000), copied)] * 4)
    assert finding.severity == WARNING
    assert "reads of dbserver take 135 ms" in finding.summary
    more = (load("sda", "dbserver", 300, 135_000), copied)
    assert [finding.severity for finding in findings(*[before] * 4, *[more] * 4) if "backup" in finding.short] != [
        WARNING
    ]


def test_a_few_more_that_take_far_longer_are_a_slower_device():
    before = (load("sda", "mail", 20, 2_000, busy={0: 4950, 1: 50}),)
    now = (load("sda", "mail", 40, 400_000),)
    (finding,) = findings(*[before] * 2, *[now] * 4)
    assert finding.short == "sda: reads take 400 ms, 2 ms before; mail waits 400 ms"
    assert "at 8.00 and 4.00 IOPS" in finding.summary


def test_a_load_that_grew_has_its_rates():
    before = (load("sda", "geosearch", 10, 2_000, busy=IDLE),)
    now = (load("sda", "geosearch", 1750, 10_800),)
    (finding,) = findings(*[before] * 2, *[now] * 4)
    assert finding.summary.endswith("it had 2.00 IOPS, now 350")
    assert finding.severity == NOTICE


def test_a_device_that_was_busy_all_the_time_has_no_before():
    (finding,) = findings(*[DEEP] * 5)
    assert finding.summary == "sda is busy 100% of the time: searchd keeps 64 reads of 4 KiB in flight, 163 ms each"
    assert finding.began is None
    assert finding.share == 0


def test_another_program_that_waits_makes_it_a_warning():
    quick = (load("sda", "mail", 200, 1_000, busy=IDLE),)
    waits = load("sda", "mail", 200, 40_000)
    fills = load("sda", "build", 450, 45_000, size=MIB // 2)
    both = {name: {**waits[name], **fills[name]} for name in waits}
    both["histograms"] = timed("sda", [(200, {"total": 40_000}), (450, {"total": 45_000})])
    both["kernel"] = done("sda", 650, "read", MIB // 3)
    (finding,) = findings(*[quick] * 2, *[(both,)] * 4)
    assert finding.severity == WARNING
    assert finding.short.startswith("sda: 4 reads of build in flight, 45 ms each; mail waits 40 ms")


def on_file(name, below):
    return disk(name, kind="loop", driver="loop", reports=(DeviceReport(BACKING_DEVICE, below, "sysfs"),))


def test_two_devices_on_files_of_a_busy_one_name_the_program_above():
    quick = (load("sda", "kworker/u8:1", 200, 1_000, busy=IDLE), load("loop1", "mail", 200, 1_500, busy=IDLE))
    below = load("sda", "kworker/u8:1", 650, 41_000, size=MIB // 3)
    full = (below, load("loop1", "mail", 200, 40_000), load("loop2", "build", 450, 45_000, size=MIB // 2))
    devices = [disk(), on_file("loop1", "sda"), on_file("loop2", "sda")]
    (finding,) = findings(*[quick] * 2, *[full] * 4, devices=devices)
    assert finding.device == "sda"
    assert "build through loop2 keeps 4 reads of 512 KiB in flight" in finding.summary
    assert "reads of mail on loop1 take 40 ms" in finding.summary
    assert finding.also == ("loop1",)
    assert finding.severity == WARNING


def test_writeback_names_the_program_that_wrote():
    flush = (load("sda", "kworker/u8:3", 100, 400_000, op="write", size=MIB),)
    (finding,) = findings(*[flush] * 5, written={Writer("dump/7"): 90 * MIB})
    assert finding.summary.startswith("sda is busy 100% of the time: dump keeps 8 writes of 1 MiB in flight")
    (finding,) = findings(*[flush] * 5)
    assert "writeback keeps" in finding.summary
    assert values(finding)["writer"] == ""


@pytest.mark.parametrize(
    "busy",
    [
        (load("sda", "searchd", 19_650, 1_630),),  # quick
        (load("sda", "searchd", 196, 20_000, busy=HALF),),  # not busy
        (load("sda", "searchd", 20, 20_000),),  # one stuck I/O keeps it busy
    ],
)
def test_other_loads_are_no_finding(busy):
    assert findings(*[busy] * 6) == []


def test_a_burst_in_a_minute_is_no_finding():
    assert findings(*[BEFORE] * 10, DEEP, DEEP) == []


def test_without_times_in_use_there_is_no_finding():
    rows = load("sda", "searchd", 1965, 163_000) | {"depths": {}}
    assert findings(*[(rows,)] * 6) == []


def test_writeback_is_not_that_of_a_program_that_reads_from_a_device_above():
    flush = load("sda", "kworker/u8:3", 100, 400_000, op="write", size=MIB)
    reads = load("loop1", "snapd", 20, 300)
    devices = [disk(), on_file("loop1", "sda")]
    (finding,) = findings(*[(flush, reads)] * 5, devices=devices, written={Writer("dump/7"): 90 * MIB})
    assert finding.summary.startswith("sda is busy 100% of the time: dump keeps 8 writes of 1 MiB in flight")


def test_another_op_or_size_before_is_not_compared():
    reads = (load("sda", "scan", 200, 2_000, size=MIB // 16, busy=IDLE),)
    writes = (load("sda", "scan", 200, 100_000, op="write", size=MIB // 16),)
    (finding,) = findings(*[reads] * 2, *[writes] * 4)
    assert finding.short == "sda: 4 writes of scan in flight, 100 ms each"
    large = (load("sda", "backup", 600, 10_000, size=MIB),)
    small = (load("sda", "search", 650, 490_000),)
    (finding,) = findings(*[large] * 2, *[small] * 4)
    assert "only wait" not in finding.summary


def test_a_program_that_waited_as_long_before_is_no_reason_for_a_warning():
    slow = (load("sda", "mail", 100, 40_000, busy=IDLE),)
    waits = load("sda", "mail", 100, 40_000)
    fills = load("sda", "build", 450, 45_000, size=MIB // 2)
    both = {name: {**waits[name], **fills[name]} for name in waits}
    both["histograms"] = timed("sda", [(100, {"total": 40_000}), (450, {"total": 45_000})])
    both["kernel"] = done("sda", 550, "read", MIB // 3)
    (finding,) = findings(*[slow] * 2, *[(both,)] * 4)
    assert finding.severity == NOTICE


def test_a_volume_is_left_to_its_disk():
    volume = disk("dm-0", kind="dm", driver="", members=("sda",))
    busy = (load("sda", "searchd", 1965, 163_000), load("dm-0", "searchd", 1965, 163_000))
    assert [finding.device for finding in findings(*[busy] * 6, devices=[disk(), volume])] == ["sda"]


def test_reads_of_the_kernel_for_nobody_known_say_so():
    (finding,) = findings(*[(load("sda", "kworker/u8:3", 1965, 163_000),)] * 6)
    assert finding.summary.startswith("sda is busy 100% of the time: the kernel keeps 64 reads of 4 KiB in flight")
