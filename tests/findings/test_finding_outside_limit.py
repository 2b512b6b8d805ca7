"""outside-limit: a device that is kept at a rate, and loads and devices that only look like it."""

import re
from dataclasses import replace

import pytest
from finding_cases import S, depths, disk, facts_of, frame, hist

from latmon.aggregate import rates
from latmon.aggregate.rates import BlockRate, HighestRates, RateKind
from latmon.findings.engine import RuleEngine, unexplained
from latmon.findings.rule import CRITICAL, DEFAULT, Finding, Where
from latmon.findings.rules import outside_limit
from latmon.model.frame import CgroupLimit, Completed, DeviceReport, Flow, Origin, Series

LOOP = disk("loop0", major=7, minor=0, driver="")
VOLUME = disk("nvme1n1", driver="nvme", model="Amazon Elastic Block Store")
LOCAL = disk("nvme0n1", driver="nvme", model="SSD 990")
ORIGIN = Origin("test", "here", "6.1.0", "0", measured={"total": ()}, latency_from="queued")


def second(at_s, name, ios, depth, *, latency_us=None, size=4096, op="read"):
    """Return a frame of a second: so many I/Os with so many in flight, which by Little's law took depth / IOPS."""
    took = round(depth * S / ios) if latency_us is None else latency_us
    return frame(
        100 + at_s,
        dt_us=S,
        histograms={Series(name, op, "total"): hist({took: ios})},
        seen={Flow(name, op): Completed(ios, ios * size)},
        kernel={Flow(name, op): Completed(ios, ios * size, ios * took)},
        depths={name: depths({depth: 250})},
        cgroup_limits=(),
    )


def evaluated(device, loads, **more):
    """Return the findings after seconds with these (IOPS, depth)."""
    return after([second(at_s, device.name, ios, depth, **more) for at_s, (ios, depth) in enumerate(loads)], device)


def after(frames, device, *also):
    engine = RuleEngine(replace(ORIGIN, start_mono_us=99 * S), (device, *also))
    for each in frames:
        engine.take(each)
    engine.finish()
    assert not engine.failed
    return [finding for finding in engine.current if finding.id == outside_limit.ID]


BURST = [(5000, 10)] * 5
WAVES = ([(1000, 20)] * 7 + [(995, 4)] * 7) * 2
"""A load whose depth changes, under a limit of 1,000."""


def test_a_credit_that_is_used_up_is_a_limit_outside_of_the_host():
    (finding,) = evaluated(LOOP, BURST + WAVES)
    assert (finding.severity, finding.device, finding.where.screen) == ("warning", "loop0", "outstanding")
    assert finding.summary == (
        "loop0: a limit outside of this host holds it at 1,000 IOPS for 28 s: an I/O takes 4.02 ms with 4.0 in "
        "flight and 20 ms with 20"
    )
    assert finding.short == "loop0: held at 1,000 IOPS by a limit outside of here; more only wait"
    texts = [fact.text for fact in finding.facts]
    assert texts[:7] == [
        "1,000 IOPS; in 14 of 14 intervals with many in flight the rate was the same within 2%",
        "1,000 IOPS, a usual limit, is within 1% of it: a hint, since 16% of all rates are as near to such a number",
        "4.1 MB/s were constant, too: either may be limited",
        "with 4.0 in flight an I/O takes 4.02 ms on average",
        "with 20 in flight an I/O takes 20 ms on average",
        "Little's law: rate x latency = 20 in flight, and 20 were counted",
        "31 s ago it did 5,000 IOPS of such I/Os, at 2 ms",
    ]
    assert "no cgroup has a limit on it" in texts
    assert any("raise the limit" in step.what for step in finding.steps)
    assert any("4.0 had the same rate as 20" in step.what for step in finding.steps)


@pytest.mark.parametrize(("iops", "usual"), [(998, 1_000), (3_010, 3_000), (1_040, None)])
def test_the_measured_rate_is_named_and_a_usual_limit_near_it_is_a_hint(iops, usual):
    (finding,) = evaluated(LOOP, BURST + [(iops, 60)] * 7 + [(iops, 16)] * 7)
    assert f"holds it at {iops:,} IOPS for" in finding.summary
    assert [fact.value for fact in finding.facts if fact.name == "round"] == ([] if usual is None else [usual])


def test_a_busy_host_that_leaves_a_part_of_the_limit_unused_hides_nothing():
    crowded = [(1000, 20), (930, 20), (1000, 20), (990, 19), (870, 11), (880, 4), (760, 4), (910, 4), (995, 4)]
    (finding,) = evaluated(LOOP, BURST + crowded * 3)
    assert "holds it at 995 IOPS for 27 s" in finding.summary


def test_without_a_faster_time_the_device_itself_is_named_too():
    (finding,) = evaluated(LOOP, WAVES)
    assert finding.severity == "notice"
    assert finding.summary.startswith("loop0: the device, or a limit outside of this host, holds it at 1,000 IOPS")
    assert finding.steps[0].what.startswith("see whether it is the device")
    expected = "it did not do more of such I/Os in the last hour, as far as that was measured"
    assert expected in [fact.text for fact in finding.facts]


def test_a_limit_in_force_from_the_beginning_on_is_a_notice_within_half_a_minute():
    notices = [evaluated(LOOP, WAVES[:seconds]) for seconds in (14, 28)]
    assert [[finding.severity for finding in notice] for notice in notices] == [[], ["notice"]]


def test_another_load_that_was_faster_before_is_named_as_such():
    before = [second(at_s, "loop0", 10_000, 10, size=4096) for at_s in range(5)]
    now = [second(5 + at_s, "loop0", ios, depth, size=16_384) for at_s, (ios, depth) in enumerate(WAVES)]
    (finding,) = after([*before, *now], LOOP)
    assert finding.severity == "notice"
    expected = "it did not do more of such I/Os in the last hour, as far as that was measured; "
    expected += "31 s ago it did 10,000 IOPS of 4 KiB, 100% of them reads: another load"
    assert expected in [fact.text for fact in finding.facts]


def test_the_same_load_that_was_faster_is_found_behind_another_one():
    highest = HighestRates()
    highest.add([("loop0", BlockRate(60 * S, 10_000, 10_000 * 4096, 100.0, 1.0))])
    highest.add([("loop0", BlockRate(900 * S, 5_000, 5_000 * 16_384, 100.0, 1.0))])
    assert [rate.ios_per_s for rate in highest.of("loop0", RateKind.IOS, 1_000 * S)] == [10_000, 5_000]
    assert [rate.bytes_per_s for rate in highest.of("loop0", RateKind.BYTES, 1_000 * S)] == [
        5_000 * 16_384,
        10_000 * 4096,
    ]


def test_the_highest_rate_of_the_last_hour_outlives_an_older_higher_one():
    highest = HighestRates()
    for minute, ios in ((0, 10_000), (50, 9_900), (61, 3_000)):
        highest.add([("loop0", BlockRate(60 * minute * S, ios, ios * 4096, 100.0, 1.0))])
    assert [rate.ios_per_s for rate in highest.of("loop0", RateKind.IOS, 61 * 60 * S)] == [9_900, 3_000]
    highest.forget("loop0")
    assert highest.of("loop0", RateKind.IOS, 61 * 60 * S) == []


def test_devices_without_io_leave_room_for_others(monkeypatch):
    monkeypatch.setattr(rates, "MAX_DEVICES", 2)
    highest = HighestRates()
    for at_s, name in enumerate(("sda", "sdb", "sdc", "sdd")):
        highest.add([(name, BlockRate(at_s * S + (at_s == 3) * 3_600 * S, 1_000, 4_096_000, 100.0, 1.0))])
    now_us = 3_603 * S
    assert [bool(highest.of(name, RateKind.IOS, now_us)) for name in ("sda", "sdc", "sdd")] == [False, False, True]


def test_a_volume_from_outside_needs_no_faster_time_and_a_local_disk_stays_a_notice():
    (volume,) = evaluated(VOLUME, WAVES)
    assert volume.severity == "warning"
    assert "its hardware is not this host's: Amazon Elastic Block Store" in [fact.text for fact in volume.facts]
    assert ("nvme amzn stats /dev/nvme1n1",) in [step.commands for step in volume.steps]
    (local,) = evaluated(LOCAL, BURST + WAVES)
    assert local.severity == "notice"


def test_bytes_are_named_where_the_iops_vary():
    frames = []
    for at_s in range(20):
        size = 65_536 if at_s % 2 else 131_072
        ios = 50_000_000 // size
        frames.append(second(at_s, "loop0", ios, 24 if at_s // 5 % 2 else 8, size=size))
    (finding,) = after(frames, LOOP)
    assert "holds it at 49.9 MB/s" in finding.summary
    assert any(fact.name == "ios_variation" for fact in finding.facts)
    assert any(step.what.startswith("issue fewer bytes") for step in finding.steps)


def test_bytes_are_the_limit_of_two_loads_of_other_sizes():
    """30 MiB/s: one program reads 128 KiB with 4 in flight, another one comes with 32 KiB and 5 in flight."""
    frames = []
    for at_s in range(28):
        ios, depth, size = (413, 9, 76_170) if at_s // 7 % 2 else (240, 4, 131_072)
        frames.append(second(at_s, "loop0", ios, depth, size=size))
    (finding,) = after(frames, LOOP)
    assert finding.severity == "notice"
    assert finding.short == "loop0: held at 31.5 MB/s by it, or a limit outside; more only wait"
    assert finding.summary.endswith(
        "an I/O of 128 KiB takes 16.7 ms with 4.0 in flight, one of 74.4 KiB 21.8 ms with 9.0"
    )


def test_bytes_that_a_program_paces_are_a_notice_that_names_it_whatever_the_device():
    frames = [
        second(
            at_s, VOLUME.name, *((1750, 35) if at_s // 7 % 2 else (3500, 7)), size=65_536 if at_s // 7 % 2 else 32_768
        )
        for at_s in range(28)
    ]
    (finding,) = after(frames, VOLUME)
    assert finding.severity == "notice"
    assert "the device, a limit outside of this host, or a program's own pace holds it at 115 MB/s" in finding.summary


def test_iops_that_do_not_depend_on_the_size_are_said():
    sizes = [4096] * 5 + [16_384] * 5
    frames = [second(at_s, "loop0", 1000, 4 if at_s // 5 % 2 else 20, size=size) for at_s, size in enumerate(sizes * 2)]
    (finding,) = after(frames, LOOP)
    assert "the size of an I/O changed from 4 KiB to 16 KiB, and the IOPS did not" in [
        fact.text for fact in finding.facts
    ]


@pytest.mark.parametrize(
    "loads",
    [
        pytest.param([(500, 1)] * 30, id="paced, with few in flight"),
        pytest.param([(500, 0)] * 15 + [(500, 8)] * 15, id="paced, on a device that became slow"),
        pytest.param([(500, 4)] * 15 + [(500, 8)] * 15, id="paced, on a slow device that became slower"),
        pytest.param([(2000, 8)] * 30, id="one depth all the time"),
        pytest.param([(1500, 8)] * 10 + [(1000, 8)] * 20, id="one depth, on a device that became a little slower"),
        pytest.param([(200, 4)] * 10 + [(320, 20)] * 10 + [(200, 4)] * 10, id="a disk that sorts a longer queue"),
        pytest.param([(1000 + 150 * (n % 3), 20 if n // 5 % 2 else 4) for n in range(30)], id="a rate that varies"),
        pytest.param([(1000, 20)] * 4 + [(1000, 4)] * 3, id="a moment"),
        pytest.param([(200_000, 40)] * 15 + [(200_000, 80)] * 15, id="a fast device"),
    ],
)
def test_loads_and_devices_that_look_alike_are_no_finding(loads):
    assert evaluated(LOOP, loads) == []


def test_one_depth_at_a_far_lower_rate_than_before_is_a_notice_that_names_both():
    (finding,) = evaluated(LOOP, [(5000, 8)] * 10 + [(1000, 8)] * 20)
    assert finding.severity == "notice"
    assert finding.summary == (
        "loop0: the device, or a limit outside of this host, holds it at 1,000 IOPS for 20 s: an I/O takes 8 ms, and "
        "it did 5,000 IOPS at 1.6 ms before"
    )
    assert finding.short == "loop0: held at 1,000 IOPS by it, or a limit outside; before 5,000 IOPS"
    assert not any("keep fewer in flight" in step.what for step in finding.steps)
    assert evaluated(LOCAL, [(5000, 8)] * 10 + [(1000, 8)] * 20) == []


def test_latency_that_does_not_follow_the_depth_is_no_finding():
    loads = [(1000, 20)] * 10 + [(1000, 4)] * 10
    assert evaluated(LOOP, loads, latency_us=9_000) == []


def test_a_volume_is_left_to_the_disks_below_it():
    above = replace(disk("dm-0", kind="dm", driver=""), members=("loop0",))
    frames = [second(at_s, "dm-0", ios, depth) for at_s, (ios, depth) in enumerate(BURST + WAVES)]
    assert after(frames, above, LOOP) == []


def test_a_limit_of_a_cgroup_on_the_disk_below_a_loop_device_is_no_limit_outside():
    below = CgroupLimit("/slow", "sda", "read", 1000, None, 1000, 4_096_000)
    frames = [second(at_s, "loop0", ios, depth) for at_s, (ios, depth) in enumerate(BURST + WAVES)]
    assert after([replace(each, cgroup_limits=(below,)) for each in frames], LOOP) == []


def test_a_reason_inside_the_host_explains_it():
    (finding,) = evaluated(LOOP, BURST + WAVES)
    cause = Finding("io-throttled", CRITICAL, "loop0", "x", (), Where("overview", "loop0"), (), "y")
    assert unexplained((finding, cause)) == (cause,)


def with_counters(grown_us, counter="ebs_volume_performance_exceeded_iops"):
    """Return frames of a volume whose counter of its own limit grows by so many us."""
    busy = [second(at_s, "nvme1n1", 900, 3) for at_s in range(20)]
    for at_s, value in ((0, 7 * S), (10, 7 * S + grown_us)):
        report = DeviceReport(counter, value, "nvme")
        busy[at_s] = replace(busy[at_s], devices=(replace(VOLUME, reports=(report,)),))
    return busy


def test_the_volume_s_own_counters_decide():
    (finding,) = after(with_counters(31 * S), VOLUME)
    assert finding.severity == "warning"
    assert finding.summary == (
        "nvme1n1: the volume was at its limit of IOPS (900 IOPS now) for 31 s of 10 min, which it reports itself"
    )
    assert finding.facts[0].text == "ebs_volume_performance_exceeded_iops grew by 31 s in the readings of 10 min"
    (other,) = after(with_counters(2 * S, "ec2_instance_ebs_performance_exceeded_tp"), VOLUME)
    assert "the instance was at its limit of bytes per second for 2 s" in other.summary
    assert after(with_counters(S // 2), VOLUME) == []


def test_minutes_of_a_recording_have_no_frames_and_are_compared_as_a_whole():
    def minute(at_s, depth):
        each = second(at_s, "loop0", 1000, depth)
        ios = 60_000
        return replace(
            each,
            dt_us=60 * S,
            histograms={Series("loop0", "read", "total"): hist({depth * 1000: ios})},
            seen={Flow("loop0", "read"): Completed(ios, ios * 4096)},
        )

    facts = facts_of([minute(60 * (n + 1), 20 if n % 2 else 4) for n in range(4)], [LOOP])
    assert all(not block.rates for block in facts.blocks)
    list(outside_limit.RULE.evaluate(facts, DEFAULT.of(outside_limit.RULE)))


def mixed(at_s, reads, writes, device="loop0"):
    """Return a frame of a second with these (I/Os, us of each, bytes of each) of both ops."""
    ops = {"read": reads, "write": writes}
    in_flight = sum(ios * us for ios, us, _ in ops.values()) / S
    return frame(
        100 + at_s,
        dt_us=S,
        histograms={Series(device, op, "total"): hist({us: ios}) for op, (ios, us, _) in ops.items()},
        seen={Flow(device, op): Completed(ios, ios * size) for op, (ios, _, size) in ops.items()},
        kernel={Flow(device, op): Completed(ios, ios * size, ios * us) for op, (ios, us, size) in ops.items()},
        depths={device: depths({round(in_flight): 250} if in_flight >= 1 else {0: 150, 1: 100})},
        cgroup_limits=(),
    )


def read_rates(at_s):
    """Return the reads of a second of a load that varies, quick ones."""
    return 40 + (7 * at_s) % 13 - 6, 1_200, 4096


def limited_writes(seconds, begin=18, device="loop0"):
    """Writes of 16 KiB, 150 a second, of which a volume allows 50 from a second on: 8 threads wait 160 ms each."""
    for at_s in range(seconds):
        now = (49 + at_s % 3, 158_000) if at_s >= begin else (148 + at_s % 5, 1_150)
        yield mixed(at_s, read_rates(at_s), (*now, 16_384), device)


def test_a_limit_of_writes_is_named_while_reads_pass_within_30_s_of_it():
    (finding,) = after(limited_writes(43), LOOP)
    assert (finding.severity, finding.device) == ("warning", "loop0")
    assert finding.summary == (
        "loop0: a limit on writes, outside of this host or the device's own, holds it at 50 writes/s for 25 s: a write "
        "takes 158 ms, and it did 151 writes/s at 1.15 ms before; reads take 1.2 ms meanwhile"
    )
    assert finding.short == "loop0: held at 50 writes/s by a limit, outside or its own; 151/s before"
    texts = [fact.text for fact in finding.facts]
    assert "Little's law: rate x latency = 7.9 writes in flight, of 8.0 I/Os that were counted" in texts
    assert texts[0] == "50 writes/s; in 25 of 25 intervals with many in flight the rate was the same within 2%"
    assert "reads are not held: 39.9 a second take 1.2 ms, 1.2 ms before" in texts
    assert finding.share == pytest.approx(1 - 1.15 / 158, abs=0.01)


@pytest.mark.parametrize(("begin", "seconds"), [(25, 400), (9, 100)])
def test_a_limit_of_writes_stays_known_after_the_time_before_it_has_left_the_window(begin, seconds):
    """By the change of their latency, or by the blocks of five minutes where too little is known before it."""
    (finding,) = after(limited_writes(seconds, begin), LOOP)
    assert "holds it at 50 writes/s for 60 s" in finding.summary
    assert re.search(r"and it did 15[01] writes/s at 1.[01]\d ms before", finding.summary)


@pytest.mark.parametrize("writes", [[(20, 158_000), (80, 158_000)], [(8, 158_000), (50, 158_000)]])
def test_a_frame_that_ends_late_on_a_busy_host_ends_no_finding(writes):
    frames = [*limited_writes(43)]
    frames[-4:-2] = [mixed(39 + at, read_rates(at), (*row, 16_384)) for at, row in enumerate(writes)]
    (finding,) = after(frames, LOOP)
    assert "holds it at 50 writes/s" in finding.summary


def test_latency_that_follows_the_writes_in_flight_is_a_limit_outside():
    waited = [158_000 if at_s // 7 % 2 else 60_000 for at_s in range(43)]
    waves = [mixed(at_s, read_rates(at_s), (50, waited[at_s], 16_384)) for at_s in range(15, 43)]
    (finding,) = after([*limited_writes(15), *waves], LOOP)
    assert finding.severity == "warning"
    assert finding.summary == (
        "loop0: a limit on writes outside of this host holds it at 50 writes/s for 28 s: a write takes 60 ms with 3.0 "
        "in flight and 158 ms with 7.9; reads take 1.2 ms meanwhile"
    )


@pytest.mark.parametrize(
    ("reads", "writes", "before"),
    [
        pytest.param((40, 158_000, 4096), (50, 158_000, 16_384), (150, 1_150, 16_384), id="reads wait, too"),
        pytest.param(None, (50, 158_000, 16_384), (50, 158_000, 16_384), id="no faster time"),
        pytest.param(None, (50, 158_000, 16_384), (50, 1_150, 16_384), id="paced writes that became slow"),
        pytest.param(None, (50, 158_000, 16_384), (150, 1_150, 4096), id="smaller ones before"),
        pytest.param(None, (50, 20_000, 16_384), (150, 1_150, 16_384), id="one in flight"),
        pytest.param(None, None, (150, 1_150, 16_384), id="a rate that varies"),
    ],
)
def test_writes_that_are_slow_for_other_reasons_are_no_limit(reads, writes, before):
    frames = []
    for at_s in range(43):
        varied = (40 + (11 * at_s) % 23, 158_000, 16_384)
        slow = (writes or varied) if at_s >= 15 else before
        frames.append(mixed(at_s, reads if reads and at_s >= 15 else read_rates(at_s), slow))
    assert after(frames, LOOP) == []


def test_a_limit_of_a_low_rate_is_seen_in_spite_of_whole_ios():
    frames = [
        mixed(at_s, read_rates(at_s), (19 + at_s % 3, 158_000, 16_384) if at_s >= 15 else (60, 1_150, 16_384))
        for at_s in range(43)
    ]
    (finding,) = after(frames, LOOP)
    assert "holds it at 20 writes/s" in finding.summary


def test_reads_that_no_cache_has_any_more_are_a_notice_that_names_the_device():
    """Four threads that read cold data do as many per second, and writes end in a cache: it was a warning."""
    frames = []
    for at_s in range(60):
        us = (200 if at_s < 20 else 1500) + at_s % 3
        frames.append(mixed(at_s, (4 * S // us, us, 8192), (300 + 11 * at_s % 60, 90, 8192)))
    (finding,) = after(frames, LOOP)
    assert finding.severity == "notice"
    assert finding.summary.startswith("loop0: the device, or a limit outside of this host, holds it at 2,66")


def test_a_local_disk_has_no_limit_of_an_op_outside():
    assert after(limited_writes(43, device=LOCAL.name), LOCAL) == []
