"""maintenance: an array that is checked, discards, a self-test; and the same without harm."""

from dataclasses import replace

import pytest
from finding_cases import S, disk, facts_of, found, frame, hist

from latmon.findings.engine import RuleEngine
from latmon.findings.quiet_times import QuietTimes
from latmon.model.frame import Completed, DeviceReport, Flow, Origin, Series
from latmon.model.histogram import Histogram
from latmon.model.measurements import ERRORS, ISSUERS, MAINTENANCE, Maintenance
from latmon.model.measurements.errors import FailedIO
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer

RULE = "maintenance"
ARRAY = replace(disk("md0", driver="", kind="md", model="raid1"), members=("sda", "sdb"))
SDA, SDB = disk("sda"), disk("sdb")
SSD = disk("nvme0n1", driver="nvme")


def array(at_s, read_us, *, work="md check", ios=500):
    """Return a block of 5 s of an array, which the kernel times."""
    rows = {Maintenance("md0", work): 5 * S} if work else {}
    return frame(
        at_s,
        kernel={Flow("md0", "read"): Completed(ios, ios * 4096, ios * read_us)},
        tables={MAINTENANCE: rows},
    )


def checked(read_us, otherwise_us=500, **more):
    quiet = [array(100 + 5 * n, otherwise_us, work="") for n in range(5)]
    return found(RULE, [*quiet, *(array(125 + 5 * n, read_us, **more) for n in range(5))], [ARRAY, SDA, SDB])


def test_a_check_that_makes_reads_slower_is_a_warning():
    (one,) = checked(4_000)
    assert (one.severity, one.device, one.also, one.where.screen) == ("warning", "md0", ("sda", "sdb"), "overview")
    assert one.summary == (
        "md0: md check runs for 25 s of the last minute; reads take 4 ms on average meanwhile, else 500 us"
    )
    assert ("echo idle > /sys/block/md0/md/sync_action",) in [step.commands for step in one.steps]
    assert one.facts[1].text == "reads of md0 take 4 ms on average while it runs"


def long_check(read_us, *, size=1, ios=500, blocks=60, quiet=5):
    """Return the findings of a check that runs for minutes after as many blocks without it."""
    frames = [array(100 + 5 * n, 500, work="") for n in range(quiet)]
    frames += [array(100 + 5 * (quiet + n), read_us, ios=ios) for n in range(blocks)]
    flow = Flow("md0", "read")
    for at in range(quiet, len(frames)):
        done = frames[at].kernel[flow]
        frames[at] = replace(frames[at], kernel={flow: replace(done, bytes=done.bytes * size)})
    engine = RuleEngine(Origin("test", "here", "6.1.0", "0", start_mono_us=95 * S), (ARRAY, SDA, SDB))
    for each in frames:
        engine.take(each)
    engine.finish()
    assert not engine.failed
    return [finding for finding in engine.current if finding.id == RULE]


def test_a_check_of_hours_is_compared_with_the_time_before_it():
    (finding,) = long_check(4_000)
    assert finding.severity == "warning"
    assert finding.summary == (
        "md0: md check runs for 60 s of the last minute; reads take 4 ms on average meanwhile, before it 500 us"
    )
    expected = "reads of md0 take 500 us on average in the minute before it began, 300 s ago"
    assert finding.facts[2].text == expected


@pytest.mark.parametrize(
    "load",
    [
        pytest.param({"read_us": 600}, id="as fast"),
        pytest.param({"read_us": 4_000, "size": 16}, id="larger I/Os by now"),
        pytest.param({"read_us": 4_000, "ios": 5_000}, id="more I/Os by now"),
        pytest.param({"read_us": 4_000, "quiet": 0}, id="nothing known before"),
    ],
)
def test_a_check_of_hours_that_does_no_harm_as_far_as_known_is_a_notice(load):
    (finding,) = long_check(**load)
    assert finding.severity == "notice"


def test_what_was_before_work_that_is_over_is_dropped():
    times, devices = QuietTimes(), {"md0": ARRAY}
    work = Maintenance("md0", "md check")
    blocks = facts_of([array(100 + 5 * n, 500, work="md check" if n == 3 else "") for n in range(20)], [ARRAY]).blocks
    times.add_blocks(blocks[:4], devices)
    before = times.before(work)
    assert before is not None
    assert before.loads["md0", "read"].ios == 1_500
    times.add_blocks(blocks[:10], devices)
    assert times.before(work) == before
    times.add_blocks(blocks, devices)
    assert times.before(work) is None


def test_a_check_without_harm_is_a_notice():
    (one,) = checked(600)
    assert one.severity == "notice"
    assert one.summary == "md0: md check runs for 25 s of the last minute"


def test_reads_that_became_more_are_no_harm_of_the_check():
    assert checked(4_000, ios=5_000)[0].severity == "notice"


def test_a_check_that_is_over_is_no_finding():
    frames = [array(100, 4_000), array(105, 4_000), array(110, 500, work="")]
    assert found(RULE, frames, [ARRAY]) == []


def test_how_far_it_is_and_how_fast_are_facts():
    reports = (DeviceReport("sync_percent", 34, "md"), DeviceReport("sync_speed", 120_000, "md"))
    (finding,) = found(RULE, [array(100 + 5 * n, 500) for n in range(3)], [replace(ARRAY, reports=reports)])
    assert finding.summary == "md0: md check runs (34 % done) for 15 s of the last minute"
    assert "speed: 120,000 KiB/s, as of at most a minute ago" in [fact.text for fact in finding.facts]


def test_a_rebuild_is_slowed_and_never_stopped():
    steps = checked(4_000, work="md recover")[0].steps
    assert not any("idle" in command for step in steps for command in step.commands)


def test_a_balance_is_paused():
    frames = [frame(100 + 5 * n, tables={MAINTENANCE: {Maintenance("sda", "btrfs balance"): 5 * S}}) for n in range(3)]
    (finding,) = found(RULE, frames, [SDA])
    assert finding.summary == "sda: btrfs balance runs for 15 s of the last minute"
    assert ("btrfs balance pause /MOUNT",) in [step.commands for step in finding.steps]


def trimmed(at_s, read_us, discards, discard_us):
    """Return a block with reads and discards, of fstrim's cgroup."""
    histograms = {Series("nvme0n1", "read", "total"): hist({read_us: 500})}
    seen = {Flow("nvme0n1", "read"): Completed(500, 500 * 4096)}
    rows = {}
    if discards:
        seen[Flow("nvme0n1", "discard")] = Completed(discards, discards << 20)
        histograms[Series("nvme0n1", "discard", "total")] = hist({discard_us: discards})
        issuer = Issuer("nvme0n1", "discard", "/system.slice/fstrim.service")
        rows = {issuer: IssuedIO(discards, discards << 20, hist({discard_us: discards}))}
    return frame(at_s, histograms=histograms, seen=seen, tables={ISSUERS: rows})


def test_a_storm_of_discards_names_who_and_what_it_costs():
    frames = [trimmed(100 + 5 * n, 300, 0, 0) for n in range(4)]
    frames += [trimmed(120 + 5 * n, 9_000, 100, 45_000) for n in range(3)]
    (finding,) = found(RULE, frames, [SSD])
    assert finding.severity == "warning"
    assert finding.summary == (
        "nvme0n1: a storm of discards runs for 15 s of the last minute; reads take 9 ms on average meanwhile, "
        "else 300 us"
    )
    assert "300 discards by fstrim.service" in [fact.text for fact in finding.facts]


def test_a_probe_without_sums_leaves_the_times_to_the_kernel():
    def counted(at_s, read_us, discards, discard_us):
        each = trimmed(at_s, read_us, discards, discard_us)
        without = {series: Histogram(latency.buckets) for series, latency in each.histograms.items()}
        times = {"read": read_us, "discard": discard_us}
        kernel = {flow: replace(done, time_us=done.count * times[flow.op]) for flow, done in each.seen.items()}
        return replace(each, histograms=without, kernel=kernel)

    frames = [counted(100 + 5 * n, 300, 0, 0) for n in range(4)]
    (finding,) = found(RULE, [*frames, *(counted(120 + 5 * n, 9_000, 100, 45_000) for n in range(3))], [SSD])
    assert "reads take 9 ms on average meanwhile, else 300 us" in finding.summary


def test_discards_beside_a_backup_that_takes_far_more_of_the_time_are_not_its_cause():
    """The deleted files of a backup are discarded while it writes: 3 % of the time of all I/Os."""
    frames = [trimmed(100 + 5 * n, 1500, 0, 0) for n in range(6)]
    for n in range(6, 12):
        each = trimmed(100 + 5 * n, 5000, 2_000, 600)
        writes = hist({20_000: 5_000})
        histograms = {**each.histograms, Series("nvme0n1", "write", "total"): writes}
        frames.append(replace(each, histograms=histograms))
    assert found(RULE, frames, [SSD]) == []


def test_discards_that_take_most_of_the_time_and_harm_none_are_a_notice():
    (finding,) = found(RULE, [trimmed(100 + 5 * n, 300, 100, 45_000) for n in range(5)], [SSD])
    assert finding.severity == "notice"


@pytest.mark.parametrize(
    ("discards", "discard_us"),
    [
        pytest.param(100, 50, id="fast ones"),
        pytest.param(1, 2_000_000, id="a single one"),
        pytest.param(0, 0, id="none"),
    ],
)
def test_harmless_discards_are_no_finding(discards, discard_us):
    assert found(RULE, [trimmed(100 + 5 * n, 300, discards, discard_us) for n in range(6)], [SSD]) == []


def test_a_storm_that_is_over_is_no_finding():
    frames = [trimmed(100 + 5 * n, 9_000, 100, 45_000) for n in range(3)]
    assert found(RULE, [*frames, *(trimmed(115 + 5 * n, 300, 0, 0) for n in range(3))], [SSD]) == []


def test_a_self_test_is_named_while_the_drive_has_io():
    testing = replace(
        SSD, reports=(DeviceReport("self_test", 2, "nvme"), DeviceReport("self_test_percent", 37, "nvme"))
    )
    (finding,) = found(RULE, [trimmed(100, 300, 0, 0)], [testing])
    assert (finding.severity, finding.summary) == ("notice", "nvme0n1: its extended self-test runs (37 % done)")
    texts = [fact.text for fact in finding.facts]
    assert texts[0] == "extended self-test, as a tool reports it every five minutes"
    assert "done: 37 %, as a tool reports it every five minutes" in texts
    assert found(RULE, [trimmed(100, 300, 0, 0)], [replace(SSD, reports=(DeviceReport("self_test", 0, "nvme"),))]) == []


def test_the_limit_of_a_btrfs_scrub_has_an_undo():
    """Later scrubs have the limit as well."""
    frames = [frame(100 + 5 * n, tables={MAINTENANCE: {Maintenance("sda", "btrfs scrub"): 5 * S}}) for n in range(3)]
    (finding,) = found(RULE, frames, [SDA])
    (limit,) = [step for step in finding.steps if "btrfs scrub limit -a -l 20m /MOUNT" in step.commands]
    assert "undone by btrfs scrub limit -a -l 0 /MOUNT" in limit.risk


def test_a_scrub_of_a_pool_is_named_and_can_be_paused():
    reports = (DeviceReport("zfs_scan", "zfs scrub of tank", "zpool"), DeviceReport("zfs_scan_percent", 16, "zpool"))
    (finding,) = found(RULE, [trimmed(100, 300, 0, 0)], [replace(SSD, reports=reports)])
    assert (finding.severity, finding.summary) == ("notice", "nvme0n1: zfs scrub of tank runs (16 % done)")
    assert ("zpool scrub -p POOL",) in [step.commands for step in finding.steps]


def test_an_array_without_one_of_its_disks_is_a_notice():
    lacking = replace(ARRAY, reports=(DeviceReport("degraded", 1, "md"), DeviceReport("raid_disks", 4, "md")))
    (finding,) = found(RULE, [array(100, 500, work="")], [lacking])
    assert finding.summary == (
        "md0: 1 disk of 4 of the array is missing: reads of their data take I/Os of the others, and no other disk may "
        "fail"
    )
    whole = replace(ARRAY, reports=(DeviceReport("degraded", 0, "md"),))
    assert found(RULE, [array(100, 500, work="")], [whole]) == []


def test_other_findings_name_what_ran_at_the_same_time():
    engine = RuleEngine(Origin("test", "here", "6.1.0", "0", counted=("errors",)), (ARRAY, SDA, SDB))
    failed = {FailedIO("sda", "read", "I/O error"): 3}
    engine.take(frame(5, tables={MAINTENANCE: {Maintenance("md0", "md check"): 5 * S}, ERRORS: failed}))
    engine.finish()
    by_id = {finding.id: finding for finding in engine.current}
    assert "md check of md0 ran for 5 s of that time" in [fact.text for fact in by_id["io-errors"].facts]


LOOP = disk("loop0", driver="", kind="loop")


def lazy(at_s, read_us=1_600, *, reads=150, zeroed=0, zero_us=177_000, thread="ext4lazyinit", traced=True):
    """Return a block of 5 s of a database's reads, beside writes of 440 KiB by a thread of the kernel."""
    kernel = {Flow("loop0", "read"): Completed(reads, reads * 4096, reads * read_us)}
    issuers = {Issuer("loop0", "read", "/", pid=7, comm="dbserver"): _issued(reads, 4096, read_us)}
    if zeroed:
        kernel[Flow("loop0", "write")] = Completed(zeroed, zeroed * 440_000, zeroed * zero_us)
        issuers[Issuer("loop0", "write", "/", pid=90, comm=thread)] = _issued(zeroed, 440_000, zero_us)
    return frame(at_s, kernel=kernel, tables={ISSUERS: issuers if traced else {}})


def _issued(ios, size, us):
    return IssuedIO(ios, ios * size, hist({us: ios}))


def initialised(quiet=4, blocks=3, **during):
    frames = [lazy(100 + 5 * n) for n in range(quiet)]
    frames += [
        lazy(100 + 5 * (quiet + n), zeroed=100, **{"read_us": 135_000, "reads": 68} | during) for n in range(blocks)
    ]
    return found(RULE, frames, [LOOP])


def test_a_thread_that_zeroes_inode_tables_while_a_database_reads():
    """The disk does 8.6 MB/s, all of it for ext4lazyinit: reads take 135 ms instead of 1.6, 13.5/s instead of 30."""
    (finding,) = initialised()
    assert (finding.severity, finding.device) == ("warning", "loop0")
    assert finding.short == "loop0: reads of dbserver take 135 ms, else 1.6 ms: ext4lazyinit runs"
    assert finding.summary == (
        "loop0: ext4lazyinit zeroes inode tables of a new ext4 for 15 s of the last minute; reads of dbserver take "
        "135 ms on average meanwhile, else 1.6 ms"
    )
    assert ("mount -o remount,init_itable=100 /MOUNT",) in [step.commands for step in finding.steps]


def test_it_is_known_after_two_blocks():
    assert initialised(blocks=2)
    assert initialised(blocks=1) == []


@pytest.mark.parametrize(
    "during",
    [
        pytest.param({"read_us": 1_700, "reads": 150}, id="reads are as fast"),
        pytest.param({"zero_us": 900}, id="it waits between its writes"),
        pytest.param({"thread": "dd"}, id="a program's writes"),
        pytest.param({"quiet": 0}, id="nothing known before"),
    ],
)
def test_a_thread_without_harm_is_no_finding(during):
    assert initialised(**during) == []


def test_work_of_a_thread_that_lasts_is_compared_with_the_time_before_it():
    """Blocks in which I/Os were not counted by process don't end it."""
    frames = [lazy(100 + 5 * n) for n in range(5)]
    frames += [lazy(125 + 5 * n, 135_000, reads=68, zeroed=100, traced=n % 2 == 0) for n in range(41)]
    engine = RuleEngine(Origin("test", "here", "6.1.0", "0", start_mono_us=95 * S), (LOOP,))
    for each in frames:
        engine.take(each)
    engine.finish()
    assert not engine.failed
    (finding,) = [finding for finding in engine.current if finding.device == "loop0"]
    assert (finding.id, finding.severity) == (RULE, "warning")
    assert "reads of dbserver take 135 ms on average meanwhile, before it 1.6 ms" in finding.summary


@pytest.mark.parametrize(
    ("comm", "work"),
    [("f2fs_gc-259:3", "f2fs_gc"), ("bcache_writebac", "bcache_writeback"), ("btrfs-cleaner", "btrfs-cleaner")],
)
def test_threads_of_other_file_systems(comm, work):
    (finding,) = initialised(thread=comm)
    assert finding.short.endswith(f": {work} runs")
    assert finding.steps
