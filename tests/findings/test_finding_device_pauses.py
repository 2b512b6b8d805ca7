"""device-pauses: devices that complete no I/O now and then, what they have in common, and slow I/Os that are none."""

from dataclasses import replace

import pytest
from finding_cases import BEGIN_S, WALL, S, disk, facts_of, found, frame, hist

from latmon.findings.engine import RuleEngine, unexplained
from latmon.findings.rule import DEFAULT, SHORT_CELLS
from latmon.findings.rules import bimodal_tail, device_pauses
from latmon.model.frame import Completed, Flow, Origin, Outlier, Series, Thread
from latmon.model.histogram import Histogram
from latmon.model.host_context import interval_value
from latmon.model.measurements import WAKEUPS
from latmon.model.measurements.wakeups import Wakeups

RULE = device_pauses.ID
MS = 1000
FAST_US = 400
IOS = 700
"""Reads, and half as many writes, of each frame of 5 s."""
THRESHOLD_US = 8 * FAST_US
"""I/Os that take as long are recorded."""
BLOCKS = 12
FIRST_S = BEGIN_S - 5
LENGTH_US = 900 * MS
AGES = (1.0, 0.9, 0.5, 0.1)
"""Of the I/Os that wait in a pause, at its end, in parts of its length."""
SSD = disk(driver="nvme", name="sda")


def slow(device, end_us, waited_us, op="read", *, overtaken=0, spread_us=0, **changed):
    """Return an I/O that ended at `end_us`, all of whose time was in driver and device."""
    begin_us = int(end_us + spread_us - waited_us)
    values = {"stages_us": {"hba": int(waited_us)}, "overtaken_by": overtaken} | changed
    return Outlier(WALL + begin_us / S, begin_us, device, op, int(waited_us), **values)


def pause(device, end_us, length_us=LENGTH_US, ages=AGES, **changed):
    """Return the I/Os that wait in a pause, reads and writes in turn, which end within some ms."""
    return [
        slow(device, end_us, length_us * age, ("read", "write")[at % 2], **{"spread_us": at * MS} | changed)
        for at, age in enumerate(ages)
    ]


def every(period_s, count, length_us=LENGTH_US, device="sda", **changed):
    """Return the I/Os of so many pauses."""
    ends_us = [int((FIRST_S + 3 + at * period_s) * S) for at in range(count)]
    return [outlier for end_us in ends_us for outlier in pause(device, end_us, length_us, **changed)]


def drained_in_order(begin_s, least_us, step_us, ios, **changed):
    """Return writes that begin together and end one after another, which takes the first of them `least_us`."""
    return [
        slow("sda", begin_s * S + least_us + at * step_us, least_us + at * step_us, "write", **changed)
        for at in range(ios)
    ]


def recorded(ios, threshold_us):
    """Return the outliers that a probe records of these I/Os, all of them where its threshold is not known (None)."""
    return tuple(io for io in ios if threshold_us is None or io.total_us >= threshold_us)


def thresholds(devices, threshold_us):
    return {} if threshold_us is None else dict.fromkeys(devices, threshold_us)


def frames(
    ios,
    *,
    median_us=FAST_US,
    devices=("sda",),
    blocks=BLOCKS,
    writes=IOS // 2,
    threshold_us=THRESHOLD_US,
    **values,
):
    """Return frames of these I/Os, those from the threshold on recorded, and of I/Os that take `median_us`."""
    frames = []
    for at in range(blocks):
        end_us = (BEGIN_S + 5 * at) * S
        ended = [io for io in ios if end_us - 5 * S < io.mono_us + io.total_us <= end_us]
        histograms = {}
        for device in devices:
            for op, count in (("read", IOS), ("write", writes)):
                waits = [io.total_us for io in ended if (io.device, io.op) == (device, op)]
                counts = {median_us: count} | {us: waits.count(us) for us in waits}
                histograms[Series(device, op, "total")] = hist(counts)
        kernel = {Flow(device, "read"): Completed(IOS, IOS * 4096) for device in devices}
        frames.append(
            frame(
                BEGIN_S + 5 * at,
                histograms=histograms,
                kernel=kernel,
                outliers=recorded(ended, threshold_us),
                thresholds_us=thresholds(devices, threshold_us),
                **values,
            )
        )
    return frames


def facts_by_name(finding):
    return {fact.name: fact.value for fact in finding.facts}


def test_a_device_that_pauses_at_regular_times_is_named():
    (finding,) = found(RULE, frames(every(8, 6)), [SSD])
    assert (finding.device, finding.severity) == ("sda", "warning")
    assert finding.summary == (
        "sda: completes no I/O for 900 ms, 6 times in 60 s, about every 8 s; 4 I/Os wait each time; "
        "half of all take less than 416 us: the device or what is below it"
    )
    assert finding.short == "sda: completes no I/O for 900 ms, 6 times in 60 s, every 8 s; 4 I/Os wait"
    facts = facts_by_name(finding)
    assert facts["pauses"] == 6
    assert facts["longest_us"] == facts["shortest_us"] == LENGTH_US
    assert facts["period_us"] == 8 * S
    assert (facts["ios"], facts["overtaken"]) == (4, 0)
    assert (finding.where.screen, finding.where.device) == ("outliers", "sda")
    waited_us = 6 * sum(AGES) * LENGTH_US
    assert finding.share == pytest.approx(waited_us / (waited_us + BLOCKS * 1.5 * IOS * FAST_US), rel=0.02)
    text = " ".join(step.text for step in finding.steps)
    for word in ("smartctl", "firmware", "fstrim", "multipath", "SAN", "hypervisor", "dmesg"):
        assert word in text


def test_it_is_named_after_the_third_pause():
    blocks = 5
    outliers = every(8, 3)
    assert max(outlier.mono_us + outlier.total_us for outlier in outliers) < (BEGIN_S + 5 * (blocks - 1)) * S
    assert found(RULE, frames(outliers, blocks=blocks), [SSD])
    assert not found(RULE, frames(every(8, 2), blocks=blocks), [SSD])


def test_pauses_at_no_regular_times_have_no_period():
    ends_s = (3, 9, 30, 34, 50)
    outliers = [each for at in ends_s for each in pause("sda", (FIRST_S + at) * S, LENGTH_US * (1 + at / 50))]
    (finding,) = found(RULE, frames(outliers), [SSD])
    assert "every" not in finding.summary
    assert "period_us" not in facts_by_name(finding)
    assert "completes no I/O for 954 ms to 1.8 s, 5 times in 60 s; 4 I/Os wait each time" in finding.summary
    assert finding.short == "sda: completes no I/O for up to 1.8 s, 5 times in 60 s; 4 I/Os wait"


def test_how_many_wait_may_differ_and_be_more_than_were_recorded():
    few, many = every(16, 3, ages=(1.0, 0.4)), every(16, 2, ages=(1.0, *[0.5] * 9))
    later = [replace(outlier, mono_us=outlier.mono_us + 8 * S) for outlier in many]
    (finding,) = found(RULE, frames([*few, *later]), [SSD])
    assert "; 2 to 10 I/Os wait each time" in finding.summary
    crowded = frames(every(8, 6))
    more = {Series("sda", "read", "hba"): hist({FAST_US: 1})}
    totals = {Series("sda", "read", "total"): hist({FAST_US: IOS, LENGTH_US: 20})}
    crowded = [replace(each, histograms={**each.histograms, **more, **totals}) for each in crowded]
    (finding,) = found(RULE, crowded, [SSD])
    assert "; at least 4 I/Os wait each time" in finding.summary


@pytest.mark.parametrize(("length_s", "severity"), [(4.9, "warning"), (5.1, "critical")])
def test_long_pauses_are_critical(length_s, severity):
    (finding,) = found(RULE, frames(every(16, 4, int(length_s * S))), [SSD])
    assert finding.severity == severity


def test_one_long_pause_is_not():
    outliers = [*every(8, 3), *pause("sda", (FIRST_S + 45) * S, 6 * S)]
    (finding,) = found(RULE, frames(outliers), [SSD])
    assert finding.severity == "warning"


def test_one_io_that_waits_alone_is_proof_where_overtaking_is_counted():
    """A device that takes long for each 200th I/O of a steady load serves the others meanwhile."""
    (finding,) = found(RULE, frames(every(8, 3, ages=(1.0,))), [SSD])
    assert "; 1 read waits each time" in finding.summary
    assert not found(RULE, frames(every(8, 7, ages=(1.0,), overtaken=None), writes=0), [SSD])


def test_where_nothing_counts_what_overtakes():
    (finding,) = found(RULE, frames(every(8, 6, overtaken=None)), [SSD])
    assert "4 I/Os wait each time" in finding.summary


def test_what_waits_together_is_one_trial():
    """Programs issue reads together: six pauses of four reads each don't prove that a third of them are writes."""
    reads = [replace(outlier, op="read") for outlier in every(8, 6, overtaken=None)]
    (finding,) = found(RULE, frames(reads), [SSD])
    assert "; 4 reads wait each time" in finding.summary


def test_overtaking_has_to_be_counted_in_three_pauses():
    """The first I/Os of a capture are not followed by a probe that has begun to run in the middle of them."""
    outliers = [*every(8, 1, ages=(1.0,), overtaken=None), *every(8, 4, ages=(1.0,))[1:]]
    (finding,) = found(RULE, frames(outliers), [SSD])
    assert facts_by_name(finding)["overtaken"] == 0


@pytest.mark.parametrize(
    "outliers",
    [
        pytest.param(every(8, 2), id="two pauses"),
        pytest.param(every(8, 6, 200 * MS), id="short ones"),
        pytest.param(every(8, 6, overtaken=50), id="later ones overtake"),
        pytest.param(every(8, 6, stages_us={"queue": 500 * MS, "hba": 400 * MS}), id="in the scheduler's queue"),
        pytest.param(every(8, 6, stages_us={"hba": MS, "completion": 899 * MS}), id="a late completion thread"),
        pytest.param(every(8, 6, own=True), id="latmon's own"),
        pytest.param([replace(outlier, op="flush") for outlier in every(8, 6)], id="flushes"),
        pytest.param(
            [*every(8, 6), *(slow("sda", (FIRST_S + 3 + 8 * at) * S, LENGTH_US, "flush") for at in range(6))],
            id="a flush that all others wait for",
        ),
        pytest.param(
            [*every(8, 6), *(slow("sda", (FIRST_S + 2.7 + 8 * at) * S, 50 * MS) for at in range(6))],
            id="I/Os that end in the pauses",
        ),
        pytest.param(
            [slow("sda", (FIRST_S + 1 + at * 0.31) * S, 500 * MS, overtaken=None) for at in range(180)], id="slow"
        ),
        pytest.param(
            [*every(8, 6), *(slow("sda", (FIRST_S + 4 + at / 3) * S, LENGTH_US) for at in range(9))],
            id="others as slow",
        ),
        pytest.param(
            [
                slow("sda", (FIRST_S + 8 * at) * S + waited_ms * MS, waited_ms * MS)
                for at in range(1, 7)
                for waited_ms in range(20, 900, 20)
            ],
            id="bursts that the device works off in their order",
        ),
        pytest.param(every(1.2, 45), id="most of the time"),
        pytest.param(
            [replace(outlier, op="write") for outlier in every(8, 6, overtaken=None)], id="only writes wait, of few"
        ),
    ],
)
def test_no_finding(outliers):
    assert found(RULE, frames(outliers), [SSD]) == []


def test_a_device_that_is_slow_between_the_pauses_has_none():
    assert found(RULE, frames(every(8, 6), median_us=60 * MS), [SSD]) == []


@pytest.mark.parametrize("overtaken", [0, None])
@pytest.mark.parametrize("threshold_us", [THRESHOLD_US, 100 * MS, 180 * MS, 300 * MS])
@pytest.mark.parametrize(("ios", "longest_ms", "recorded_ios"), [(200, 378, 43), (170, 322, 13)])
def test_bursts_that_are_drained_in_order_are_no_pauses(ios, longest_ms, recorded_ios, threshold_us, overtaken):
    """8 bursts of writes, one of which ends every 1.85 ms, the first after 10 ms: some end at any time of a burst."""
    bursts = [
        io for at in range(8) for io in drained_in_order(FIRST_S + 2 + 7 * at, 10 * MS, 1_850, ios, overtaken=overtaken)
    ]
    assert max(io.total_us for io in bursts) // MS == longest_ms
    assert len(recorded(bursts, 300 * MS)) == 8 * recorded_ios
    assert found(RULE, frames(bursts, threshold_us=threshold_us), [SSD]) == []


READS, WRITES = Series("sda", "read", "total"), Series("sda", "write", "total")
ALL_FAST = BLOCKS * (IOS + IOS // 2)
SLOW_MS = range(10, 300, 10)
"""Times of I/Os that are too short for a pause, and that a threshold of 300 ms leaves unrecorded."""


def slow_ios(after_pause_s, **changed):
    """Return I/Os of SLOW_MS that end one after another, so long after the begin of each of six pauses."""
    begins_us = [(FIRST_S + 3 + 8 * at + after_pause_s) * S - LENGTH_US for at in range(6)]
    return [
        slow("sda", begin_us + 2 * took_ms * MS, took_ms * MS, **changed)
        for begin_us in begins_us
        for took_ms in SLOW_MS
    ]


@pytest.mark.parametrize("overtaken", [0, None])
def test_slow_ios_between_the_pauses_refute_none_and_those_in_them_all(overtaken):
    pauses = every(8, 6, overtaken=overtaken)
    between, inside = slow_ios(2, overtaken=overtaken), slow_ios(0.1, overtaken=overtaken)
    (finding,) = found(RULE, frames([*pauses, *between]), [SSD])
    assert facts_by_name(finding)["pauses"] == 6
    assert not found(RULE, frames([*pauses, *inside]), [SSD])


@pytest.mark.parametrize("overtaken", [0, None])
@pytest.mark.parametrize("slow_after_s", [2, 0.1])
def test_what_is_not_recorded_in_a_pause_is_no_proof_of_it(slow_after_s, overtaken):
    """No I/O of less than the threshold is recorded: one of more than half of a pause can't tell whether some ended."""
    ios = [*every(8, 6, ages=(1.0, 0.9, 0.6), overtaken=overtaken), *slow_ios(slow_after_s, overtaken=overtaken)]
    for threshold_us in (451 * MS, 540 * MS):
        given_frames = frames(ios, threshold_us=threshold_us)
        assert sum(len(each.outliers) for each in given_frames) == 6 * 3
        assert (
            sum(each.histograms[READS].count + each.histograms[WRITES].count for each in given_frames)
            == len(ios) + ALL_FAST
        )
        assert not found(RULE, given_frames, [SSD])
    unknown = [replace(each, thresholds_us={}) for each in frames(ios, threshold_us=300 * MS)]
    assert not found(RULE, unknown, [SSD])


@pytest.mark.parametrize("overtaken", [0, None])
def test_a_threshold_of_half_of_a_pause_is_low_enough(overtaken):
    given_frames = frames(every(8, 6, overtaken=overtaken), threshold_us=LENGTH_US // 2)
    (finding,) = found(RULE, given_frames, [SSD])
    assert facts_by_name(finding)["pauses"] == 6
    assert not found(RULE, given_frames, [SSD], {"recorded": 0.4})


def test_the_highest_threshold_of_the_window_counts():
    """An automatic threshold follows the latencies: it may be low again when the last block ends."""
    given_frames = frames(every(8, 6))
    raised = [replace(each, thresholds_us={"sda": 500 * MS}) for each in given_frames[3:5]]
    assert found(RULE, given_frames, [SSD])
    assert not found(RULE, [*given_frames[:3], *raised, *given_frames[5:]], [SSD])


def test_a_pause_that_begins_in_the_one_before_is_dropped():
    """The I/Os of the one before ended in it, so that the device completed some."""
    later = pause("sda", (FIRST_S + 3) * S + LENGTH_US - 50 * MS)
    (finding,) = found(RULE, frames([*every(8, 6), *later]), [SSD])
    assert facts_by_name(finding)["pauses"] == 6
    assert "completes no I/O for 900 ms, 6 times in 60 s" in finding.summary


def test_the_short_text_fits_with_a_long_name():
    name = "mapper-of-a-volume-group"
    outliers = [io for at in range(13) for io in pause(name, (FIRST_S + 3 + 4 * at) * S, (454 + 40 * at) * MS)]
    (finding,) = found(RULE, frames(outliers, devices=(name,)), [disk(name)])
    assert finding.short == f"{name}: completes no I/O for up to 934 ms, every 4 s"
    assert len(finding.short) <= SHORT_CELLS


def windows_of_1_s(outliers, *, served, threshold_us=THRESHOLD_US):
    """Return frames of 1 s; in a frame that lies in a pause nothing completes, or as many as always where `served`."""
    windows = []
    for at in range(60):
        end_us = (FIRST_S + 1 + at) * S
        ended = tuple(outlier for outlier in outliers if end_us - S < outlier.mono_us + outlier.total_us <= end_us)
        is_in_pause = any(
            outlier.mono_us <= end_us - S and end_us < outlier.mono_us + outlier.total_us for outlier in outliers
        )
        ios = 140 if served or not is_in_pause else 0
        windows.append(
            frame(
                FIRST_S + 1 + at,
                dt_us=S,
                outliers=ended,
                histograms={Series("sda", "read", "total"): hist({FAST_US: ios})},
                seen={Flow("sda", "read"): Completed(ios, ios * 4096)},
                thresholds_us=thresholds(("sda",), threshold_us),
            )
        )
    return windows


def after(made):
    """Return the findings of the rule after these frames."""
    start_us = made[0].mono_us - made[0].dt_us
    origin = Origin("test", "here", "6.1.0", "0", interval_us=S, start_mono_us=start_us)
    engine = RuleEngine(origin, (SSD,))
    for each in made:
        engine.take(each)
    engine.finish()
    return [finding for finding in engine.current if finding.id == RULE]


def test_a_window_with_completions_in_a_pause_refutes_it():
    outliers = every(16, 4, 3_500 * MS)
    (finding,) = after(windows_of_1_s(outliers, served=False))
    assert facts_by_name(finding)["silent_windows"] >= 4
    assert not after(windows_of_1_s(outliers, served=True))


def test_silent_windows_prove_pauses_of_one_io():
    outliers = every(16, 4, 3_500 * MS, ages=(1.0,), overtaken=None)
    (finding,) = after(windows_of_1_s(outliers, served=False))
    assert "; 1 read waits each time" in finding.summary
    assert not after(windows_of_1_s(outliers, served=True))


@pytest.mark.parametrize("threshold_us", [3 * S, None])
def test_silent_windows_prove_pauses_where_the_record_does_not(threshold_us):
    outliers = every(16, 4, 3_500 * MS, ages=(1.0, 0.9))
    (finding,) = after(windows_of_1_s(outliers, served=False, threshold_us=threshold_us))
    assert facts_by_name(finding)["pauses"] == 4
    assert not after(windows_of_1_s(outliers, served=True, threshold_us=threshold_us))
    no_window_fits = every(8, 6, 1_150 * MS)
    assert not after(windows_of_1_s(no_window_fits, served=False, threshold_us=threshold_us and S))


def test_late_completions_are_no_pauses_where_the_drivers_time_includes_them():
    """Tier C logs a slow I/O without the stages behind the driver: a thread that ran as late may be the cause."""
    included = every(8, 6, includes={"hba": ("irq", "softirq", "completion")})
    for delay_us, fires in ((50 * MS, True), (800 * MS, False)):
        thread = Wakeups(Thread(7, "kworker/1:1H", "other", 120), Histogram.record([delay_us]))
        given_frames = frames(included, tables={WAKEUPS: {7: thread}})
        assert bool(found(RULE, given_frames, [SSD])) is fires
        assert found(RULE, frames(every(8, 6), tables={WAKEUPS: {7: thread}}), [SSD])


def test_devices_that_pause_together_share_a_cause():
    both = [*every(8, 6), *every(8, 6, device="sdb")]
    disks = [disk(name, controller="mpt3sas 0000:07:00.0") for name in ("sda", "sdb", "sdc")]
    (finding,) = found(RULE, frames(both, devices=("sda", "sdb", "sdc")), disks)
    assert (finding.device, finding.also) == ("sda", ("sdb",))
    assert finding.summary.startswith("sda: it and sdb complete no I/O at the same time, for 900 ms, 6 times in 60 s")
    assert finding.summary.endswith("their controller (mpt3sas 0000:07:00.0), or what they share behind it")
    assert facts_by_name(finding)["served"] == "sdc"
    (finding,) = found(RULE, frames(both, devices=("sda", "sdb")), [disk("sda"), disk("sdb")])
    assert (finding.device, finding.also) == ("", ("sda", "sdb"))
    assert finding.summary.startswith("all 2 devices with I/O (sda, sdb) complete no I/O at the same time, for 900 ms")
    assert finding.summary.endswith(": what they share, or the host")
    assert finding.short == "2 devices complete no I/O for 900 ms, 6 times in 60 s, every 8 s"
    assert "smartctl" not in " ".join(step.text for step in finding.steps)


def test_devices_that_pause_at_other_times_have_findings_of_their_own():
    later = [replace(outlier, mono_us=outlier.mono_us + 3 * S) for outlier in every(8, 6, device="sdb")]
    findings = found(RULE, frames([*every(8, 6), *later], devices=("sda", "sdb")), [disk("sda"), disk("sdb")])
    assert [finding.device for finding in findings] == ["sda", "sdb"]


def test_a_volume_waits_for_its_member():
    both = [*every(8, 6), *every(8, 6, device="dm-0")]
    devices = [disk("sda"), disk("dm-0", members=("sda",))]
    (finding,) = found(RULE, frames(both, devices=("sda", "dm-0")), devices)
    assert (finding.device, finding.also) == ("sda", ("dm-0",))
    assert finding.summary.startswith("sda: completes no I/O for 900 ms")


def test_stolen_cpu_time_is_named():
    for share, is_named in ((0.09, True), (0.01, False)):
        steal = {"steal": interval_value(round(share * 10_000), 10_000)}
        (finding,) = found(RULE, frames(every(8, 6), host_context=steal), [SSD])
        assert finding.summary.endswith("the hypervisor ran others for as long (CPU steal)") is is_named
        assert facts_by_name(finding)["steal"] == share


def test_hosts_of_a_fleet_have_nothing_in_common():
    both = [*every(8, 6, device="db1:sda"), *every(8, 6, device="db2:sda")]
    given_frames = frames(both, devices=("db1:sda", "db2:sda"))
    findings = found(RULE, given_frames, [disk("db1:sda"), disk("db2:sda")], backend="fleet")
    assert [finding.device for finding in findings] == ["db1:sda", "db2:sda"]
    both = [*every(8, 6, device="db1:sda"), *every(8, 6, device="db1:sdb")]
    given_frames = frames(both, devices=("db1:sda", "db1:sdb"))
    (finding,) = found(RULE, given_frames, [disk("db1:sda"), disk("db1:sdb")], backend="fleet")
    assert finding.summary.startswith("db1: all 2 devices with I/O (db1:sda, db1:sdb) complete no I/O")
    assert finding.short.startswith("db1: 2 devices complete no I/O for 900 ms, 6 times in 60 s")


def test_a_device_whose_ios_a_thread_of_the_host_does():
    outliers = every(8, 6, device="loop0")
    (finding,) = found(RULE, frames(outliers, devices=("loop0",)), [disk("loop0", driver="loop", major=7)])
    assert finding.summary.endswith(": the loop device's worker or what is below it")
    text = " ".join(step.text for step in finding.steps)
    assert "screen 5" in text
    assert "smartctl" not in text


def test_solaris_has_tools_of_its_own():
    (finding,) = found(RULE, frames(every(8, 6)), [SSD], kernel="SunOS 5.11")
    text = " ".join(step.text for step in finding.steps)
    assert "fmdump" in text
    assert "smartctl" not in text


def test_it_explains_two_groups_of_latencies():
    facts = facts_of(frames(every(4, 13)), [SSD])
    rules = (bimodal_tail.RULE, device_pauses.RULE)
    findings = [finding for rule in rules for finding in rule.evaluate(facts, DEFAULT.of(rule))]
    assert {finding.id for finding in findings} == {"bimodal-tail", RULE}
    assert [finding.id for finding in unexplained(findings)] == [RULE]
