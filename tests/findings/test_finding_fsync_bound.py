"""fsync-bound: programs that wait for syncs, and loads that only look like them."""

from dataclasses import replace

import pytest
from finding_cases import disk, facts_of, found, frame, hist, traced
from finding_cases import done as done_ios

from latmon.findings.engine import not_evaluated
from latmon.findings.rules import RULES
from latmon.model import measurements
from latmon.model.frame import LOG_DEVICE, MOUNTED_DIRSYNC, MOUNTED_SYNC, DeviceReport, FileSystem
from latmon.model.measurements.file_system_space import SpaceLooks, SpaceOf
from latmon.model.measurements.files import FilePart, FileSeries
from latmon.model.measurements.journals import LogWrites, Syncing, Syncs

RULE = "fsync-bound"
SDA = disk()
DATA = FileSystem("/data", "ext4", "sda")


SYNC_KEY = (DATA.device, "fsync", DATA.mount, DATA.kind)


def done(*rows, its=DATA):
    """(op, wait, operations, us of each) -> a frame's operations on files."""
    return {FileSeries(its.device, op, its.mount, its.kind, wait): hist({us: n}) for op, wait, n, us in rows}


def load(*rows, its=DATA, blocks=12):
    return [
        replace(frame(100 + 5 * at), tables={**frame(100 + 5 * at).tables, measurements.FILES: done(*rows, its=its)})
        for at in range(blocks)
    ]


SYNCS = (("fsync", "device", 100, 8_000), ("fsync", "unknown", 100, 12_000), ("write", "cached", 200, 20))


def test_what_syncs_take_and_what_they_wait_for():
    (finding,) = found(RULE, load(*SYNCS), [SDA])
    assert finding.summary == (
        "sda: >99% of the time of operations on files of /data is in 2,400 syncs, which take 10 ms on average"
    )
    facts = {fact.name: fact for fact in finding.facts}
    assert facts["mount"].text == "file system: /data, ext4"
    assert facts["device_share"].value == pytest.approx(0.4, abs=0.01)
    assert facts["unknown_share"].value == pytest.approx(0.6, abs=0.01)
    assert facts["waiting"].value == pytest.approx(0.4, abs=0.01)
    assert "cached_share" not in facts
    assert (finding.where.screen, finding.where.device, finding.severity) == ("files", "sda", "notice")


def test_the_file_system_that_waits_most_is_named_and_a_server_s_has_no_device():
    log = FileSystem("/log", "xfs", "sda")
    both = [
        replace(
            one,
            tables={
                **one.tables,
                measurements.FILES: {**one[measurements.FILES], **done(("fsync", "device", 300, 9_000), its=log)},
            },
        )
        for one in load(*SYNCS)
    ]
    (finding,) = found(RULE, both, [SDA])
    assert "/log" in finding.summary
    (finding,) = found(RULE, load(*SYNCS, its=FileSystem("/net", "nfs4")), [SDA])
    assert finding.summary.startswith(">99% of the time of operations on files of /net")
    assert finding.device == ""


def with_io(frames, us, *, resume_us=300, hba=0.9, ios=200, name="sda"):
    """Add writes that take `us` each, a share `hba` of that in driver and device."""
    stages = {"resume": resume_us, "queue": round((1 - hba) * us), "hba": round(hba * us)}
    return [replace(each, traced=traced(name, ((ios, stages),), op="write")) for each in frames]


@pytest.mark.parametrize(("resume_us", "is_late"), [(30_000, True), (300, False)])
def test_where_threads_run_late_the_device_is_not_blamed(resume_us, is_late):
    (finding,) = found(RULE, with_io(load(*SYNCS), 8_000, resume_us=resume_us), [SDA])
    facts = {fact.name: fact for fact in finding.facts}
    assert ("resume_us" in facts) is is_late
    steps = " ".join(step.what for step in finding.steps)
    assert ("higher priority" in steps, "cache survives" in steps) == (is_late, not is_late)


@pytest.mark.parametrize(
    ("us", "hba", "device", "advice"),
    [
        pytest.param(9_000, 0.9, SDA, "cache survives", id="the device's own time is most of it"),
        pytest.param(9_000, 0.3, SDA, "", id="its I/Os wait above the driver"),
        pytest.param(500, 0.9, SDA, "a lock", id="I/O is 5 % of it: the threads wait for a lock"),
        pytest.param(9_000, 0.9, replace(SDA, driver="usb-storage"), "usb-storage's thread waits", id="by a thread"),
    ],
)
def test_hardware_is_advised_only_where_it_takes_most_of_the_time(us, hba, device, advice):
    (finding,) = found(RULE, with_io(load(*SYNCS), us, hba=hba), [device])
    last = finding.steps[-1].what
    assert advice in last if advice else last.startswith("let the program sync once"), last
    assert ("cache survives" in "".join(step.what for step in finding.steps)) is (advice == "cache survives")
    shares = [fact.value for fact in finding.facts if fact.name == "io_share"]
    assert shares == [pytest.approx(us / 10_000, rel=0.01)]


@pytest.mark.parametrize(
    ("part", "advice"),
    [("lock", "a lock"), ("CPU", "a lock"), ("journal", "cache survives"), ("own I/O", "cache survives")],
)
def test_where_the_time_is_split_its_parts_decide_about_hardware(part, advice):
    syncs = [
        replace(each, tables={**each.tables, measurements.FILE_TIMES: {FilePart(*SYNC_KEY, part): 1_900_000}})
        for each in with_io(load(*SYNCS), 9_000)
    ]
    (finding,) = found(RULE, syncs, [SDA])
    assert advice in finding.steps[-1].what
    assert ("cache survives" in "".join(step.what for step in finding.steps)) is (advice == "cache survives")
    (share,) = [fact.value for fact in finding.facts if fact.name == f"{part.replace('/', '').replace(' ', '_')}_share"]
    assert share == pytest.approx(0.95, abs=0.01)


def test_the_device_of_a_log_elsewhere_is_a_step():
    (finding,) = found(
        RULE, load(*SYNCS), [replace(SDA, reports=(DeviceReport(LOG_DEVICE, "sdb", "/proc"),)), disk("sdb")]
    )
    assert {fact.name: fact.value for fact in finding.facts}["log_device"] == "sdb"
    assert finding.steps[-1].what.endswith("screen 2 on sdb")


def test_where_no_i_o_is_timed_the_advice_has_its_condition():
    (finding,) = found(RULE, load(*SYNCS), [SDA])
    assert finding.steps[-1].what.startswith(
        "if most of the time is in driver and device (hba on screen 2): use a device"
    )
    assert "io_share" not in {fact.name for fact in finding.facts}


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param((("fsync", "device", 100, 200), ("write", "cached", 100, 5)), id="fast"),
        pytest.param((("fsync", "device", 3, 9_000),), id="rare"),
        pytest.param((("fsync", "device", 20, 9_000),), id="of little of the time"),
        pytest.param((*SYNCS, ("read", "device", 900, 4_000)), id="reads take more"),
        pytest.param((("write", "device", 900, 9_000),), id="no sync"),
    ],
)
def test_no_finding(rows):
    assert found(RULE, load(*rows), [SDA]) == []


def test_a_burst_is_none():
    assert found(RULE, [*load(blocks=11), *load(("fsync", "device", 60, 9_000), blocks=1)], [SDA]) == []


def test_without_operations_it_is_not_evaluated():
    assert RULE in not_evaluated(facts_of([frame(100)], [SDA]))["files"]
    assert "files" not in not_evaluated(facts_of(load(*SYNCS), [SDA]))


def test_on_xfs_it_has_what_writes_of_the_log_take_or_that_they_were_not_traced():
    its = FileSystem("/log", "xfs", "sda")
    blocks = load(*SYNCS, its=its)
    (untraced,) = found(RULE, blocks, [SDA])
    texts = [fact.text for fact in untraced.facts]
    assert "writes of the xfs log: not measured, because no probe traced its tracepoints (xfs_logs)" in texts
    log = LogWrites(200, 1_600_000, 819_200, 10, 50_000)
    blocks = [replace(block, tables={**block.tables, measurements.XFS_LOGS: {"sda": log}}) for block in blocks]
    (traced_log,) = found(RULE, blocks, [SDA])
    facts = {fact.name: fact for fact in traced_log.facts}
    assert (facts["log_us"].value, facts["log_room_us"].value) == (8_000, 5_000)
    assert "log" not in facts
    whole = " ".join((traced_log.summary, *(fact.text for fact in traced_log.facts), *map(str, traced_log.steps)))
    assert "jbd2" not in whole


def test_slow_renames_unlinks_and_stats_are_no_reason_to_buy_a_disk():
    slow = [(op, "unknown", 100, 50_000) for op in ("rename", "unlink", "stat")]
    blocks = load(*slow, ("fsync", "device", 100, 8_000))
    assert not found(RULE, blocks, [SDA])
    advised = [step.what for rule in RULES for finding in found(rule.id, blocks, [SDA]) for step in finding.steps]
    assert not any("use a device" in text or "another device" in text for text in advised), advised


LOGGER = {Syncing("sda", "auditlogd/7"): Syncs(200, 4_400_000), Syncing("sda", "postgres/9"): Syncs(5, 50_000)}


def synced(frames, rows=LOGGER, *, write_bytes=410 * 2_300):
    """Add what processes waited for syncs, and what the device wrote."""
    kernel = {**done_ios("sda", 400, "write", write_bytes // 400)}
    return [replace(each, kernel=kernel, tables={**each.tables, measurements.SYNCS: rows}) for each in frames]


def test_a_program_that_syncs_each_small_record_is_told_to_batch_them():
    (finding,) = found(RULE, synced(load(*SYNCS)), [SDA])
    assert finding.short == "sda: auditlogd syncs 40/s, 10 ms each, for 4.5 KiB: batch them"
    assert finding.summary.endswith("; auditlogd (pid 7) syncs 40 times a second, for 4.5 KiB each: too often")
    facts = {fact.name: fact.text for fact in finding.facts}
    assert facts["per_s"] == "auditlogd (pid 7) waits for 40 of them a second"
    assert facts["bytes_per_sync"] == "sda writes 4.5 KiB for each, with the journal"
    assert any(step.what.startswith("let auditlogd sync once for several changes") for step in finding.steps)


@pytest.mark.parametrize(
    ("rows", "write_bytes"),
    [
        pytest.param(LOGGER, 400 * 1_000_000, id="large ones"),
        pytest.param({Syncing("sda", "auditlogd/7"): Syncs(12, 4_400_000)}, 400 * 2_300, id="few"),
        pytest.param({Syncing("sda", f"job{n}/{n}"): Syncs(40, 880_000) for n in range(5)}, 400 * 2_300, id="of many"),
    ],
)
def test_other_syncs_need_no_batch(rows, write_bytes):
    (finding,) = found(RULE, synced(load(*SYNCS), rows, write_bytes=write_bytes), [SDA])
    assert finding.short == "sda: >99% of file operations' time is in syncs, 10 ms each on average"


def test_without_operations_on_files_the_tracepoints_of_syncs_are_enough():
    (finding,) = found(RULE, synced(load()), [SDA])
    assert finding.summary == (
        "sda: programs wait for 2,460 syncs, which take 21.7 ms on average; auditlogd (pid 7) syncs 40 times a second, "
        "for 4.5 KiB each: too often"
    )
    assert RULE not in not_evaluated(facts_of(synced(load()))).get("files", ())


def mounted(option, mount="/data"):
    return replace(SDA, reports=(DeviceReport(option, mount, "/proc/self/mountinfo"),))


def test_writes_to_a_file_system_that_is_mounted_with_sync_wait_for_the_option():
    writes = (("write", "device", 200, 22_000), ("read", "device", 200, 3_000))
    (finding,) = found(RULE, synced(load(*writes)), [mounted(MOUNTED_SYNC)])
    assert (finding.severity, finding.id) == ("warning", RULE)
    assert finding.summary == (
        "sda: /data is mounted with sync: writes there wait for the disk and the journal, 22 ms on average: "
        "auditlogd (pid 7) waits"
    )
    assert finding.short == "sda: mounted with sync: writes take 22 ms; auditlogd waits, without fsync"
    assert "mount -o remount,async /data" in [line for step in finding.steps for line in step.commands]
    (of_tracepoints,) = found(RULE, with_mounts("/data"), [mounted(MOUNTED_SYNC)])
    assert of_tracepoints.summary.startswith("sda: /data is mounted with sync: changes there wait")


def with_mounts(*mounts):
    space = {SpaceOf("sda", mount, "ext4"): SpaceLooks(1, 9_000, 5, 5, 0, 0, 0, 1) for mount in mounts}
    return [replace(each, tables={**each.tables, measurements.FILE_SYSTEM_SPACE: space}) for each in synced(load())]


@pytest.mark.parametrize(
    "mounts", [("/data", "/var"), ()], ids=["another file system", "file systems that are not known"]
)
def test_syncs_of_the_disk_may_be_those_of_other_file_systems_than_the_mount(mounts):
    (finding,) = found(RULE, with_mounts(*mounts), [mounted(MOUNTED_SYNC)])
    assert "mounted with" not in finding.summary


def test_the_syncs_of_a_program_that_mostly_reads_are_none_though_their_tracepoints_count_them():
    assert found(RULE, synced(load(*SYNCS, ("read", "device", 900, 9_000))), [SDA]) == []


@pytest.mark.parametrize(
    "device",
    [
        pytest.param(SDA, id="no option"),
        pytest.param(mounted(MOUNTED_SYNC, "/other"), id="of another file system"),
        pytest.param(mounted(MOUNTED_DIRSYNC), id="of directories alone"),
    ],
)
def test_slow_writes_without_the_option_are_no_syncs(device):
    assert found(RULE, load(("write", "device", 200, 22_000)), [device]) == []


def test_renames_on_a_mount_with_dirsync_are_synchronous():
    (finding,) = found(RULE, load(("rename", "device", 200, 22_000)), [mounted(MOUNTED_DIRSYNC)])
    assert "mounted with dirsync: renames there wait" in finding.summary


def test_the_rate_is_that_of_the_newest_block_since_others_may_be_traced_in_part():
    frames = synced(load(*SYNCS))
    few = {Syncing("sda", "auditlogd/7"): Syncs(60, 1_300_000)}
    first = [replace(each, tables={**each.tables, measurements.SYNCS: few}) for each in frames[:6]]
    (finding,) = found(RULE, [*first, *frames[6:]], [SDA])
    assert "auditlogd syncs 40/s" in finding.short
