"""slower-than-before: lasting changes of a simulated device's latency, and loads that only look like one.

The device serves requests in the order of their arrival, so that its latencies follow the load.
"""

import math
import tracemalloc
from dataclasses import replace
from random import Random

import pytest
from finding_cases import found, hist, lasting, timed
from queued_device import BEGIN_S, WALL, Closed, Open, S, frames_of, lognormal

from latmon.aggregate.request_age import Waiting
from latmon.findings.engine import NEEDS, RuleEngine
from latmon.findings.latency_history import LatencyHistory
from latmon.findings.rule import Settings
from latmon.findings.rules.slower_than_before import ID, since_text
from latmon.model import measurements
from latmon.model.frame import Completed, Device, DeviceReport, Flow, Frame, Limit, Origin, Series
from latmon.model.histogram import Histogram, merge
from latmon.model.host_context import interval_value
from latmon.model.inflight import Issue
from latmon.model.measurements.patterns import Pattern
from latmon.recording.rollup import MinuteSums, minute_of
from latmon.views.findings_state import EvaluatedBlocks, findings_of

ORIGIN = Origin("test", "here", "6.1", "0", interval_us=S, start_mono_us=BEGIN_S * S)
ALONE = Settings(off=frozenset(NEEDS) - {ID})
PACED = (Open(lambda _: 60, is_paced=True),)


def changing(*steps):
    """Return the median service time in us of each second: `(from second, us)`."""
    return lambda second: [us for begin, us in steps if second >= begin][-1]


def watched(frames, settings=ALONE):
    """Return the engine after all frames, and (second, summary) of each change of the current finding."""
    engine, seen, last = RuleEngine(ORIGIN, settings=settings), [], None
    for number, frame in enumerate(frames, 1):
        engine.take(frame)
        now = engine.current[0].summary if engine.current else ""
        if now != last and (last is not None or now):
            seen.append((number, now))
        last = now
    assert not engine.failed
    return engine, seen


def simulated(seconds, loads, service, *, seed=1, servers=4, **changed):
    return watched(frames_of(Random(seed), seconds, loads, service, servers=servers, **changed))


def facts_by_name(finding):
    return {fact.name: fact for fact in finding.facts}


def test_a_device_that_takes_forty_times_as_long_is_named_within_30_s_with_the_second():
    engine, seen = simulated(95, PACED, lognormal(changing((0, 1_000), (63, 40_000))))
    assert seen[0][0] - 63 <= 30
    (finding,) = engine.current
    assert (finding.severity, finding.device) == ("warning", "sda")
    assert finding.summary.startswith("sda: reads take 40x as long since ")
    assert finding.began.wall == WALL + BEGIN_S + 63
    facts = facts_by_name(finding)
    assert facts["read_factor"].value == pytest.approx(40, rel=0.1)
    assert facts["changed_at"].value == WALL + BEGIN_S + 63
    assert "60.0 -> 60.1 IOPS" in facts["iops"].text
    assert "4 KiB -> 4 KiB" in facts["iops"].text
    assert "sizes were not traced" in facts["sizes"].text
    assert "no setting, link or report" in facts["changed_too"].text
    assert finding.share == pytest.approx(39 / 40, abs=0.01)


def test_the_map_has_the_mark_at_the_second_of_the_change():
    engine, blocks = RuleEngine(ORIGIN, settings=ALONE), EvaluatedBlocks()
    for frame in frames_of(Random(1), 95, PACED, lognormal(changing((0, 1_000), (63, 40_000))), servers=4):
        engine.take(frame)
        blocks.update(engine)
    (event,) = findings_of(engine, ALONE, blocks.firsts).begins
    assert (event.mono_us, event.text) == ((BEGIN_S + 63) * S, "began: slower than before on sda")


def test_a_change_with_few_seconds_before_it_is_found_as_a_capture_may_begin_late():
    _, seen = simulated(60, PACED, lognormal(changing((0, 1_000), (24, 40_000))))
    assert seen[0][0] - 24 <= 30


def test_twice_the_latency_is_found_within_minutes_as_a_notice_below_the_floor():
    engine, seen = simulated(160, (Open(lambda _: 60),), lognormal(changing((0, 400), (100, 800))))
    assert seen[0][0] - 100 <= 60
    assert engine.current[0].severity == "notice"


@pytest.mark.slow
def test_the_change_stays_known_after_the_old_level_has_left_the_history():
    engine, seen = simulated(4_000, (Open(lambda _: 15, is_paced=True),), lognormal(changing((0, 1_000), (100, 9_000))))
    assert engine.current[0].began.wall == WALL + BEGIN_S + 100
    assert len({episode.begin_us for episode in engine.episodes}) == 1
    assert 100 < seen[0][0] <= 130


def test_the_finding_ends_when_the_old_level_is_back():
    engine, seen = simulated(
        250, (Open(lambda _: 20, is_paced=True),), lognormal(changing((0, 1_000), (60, 40_000), (150, 1_000)))
    )
    assert [bool(summary) for _, summary in seen][-2:] == [True, False]
    assert 150 < seen[-1][0] <= 165
    assert engine.current == ()


def test_an_engine_of_an_earlier_minute_knows_the_changes_of_its_time():
    frames = list(
        frames_of(
            Random(1),
            300,
            (Open(lambda _: 20, is_paced=True),),
            lognormal(changing((0, 1_000), (60, 40_000), (250, 1_000))),
            servers=4,
        )
    )
    rule_engine, _ = watched(frames)
    for second, is_slow in ((70, False), (200, True), (290, False)):
        history = rule_engine.history.at((BEGIN_S + second) * S)
        engine = RuleEngine(ORIGIN, settings=ALONE, history=history)
        for frame in frames[second - 65 : second]:
            engine.take(frame)
        assert [finding.began.wall for finding in engine.current] == [WALL + BEGIN_S + 60] * is_slow


def test_two_changes_have_the_first_ones_second_and_the_factor_of_both():
    steps = (0, 1_000), (60, 6_000), (130, 30_000)
    engine, _ = simulated(200, (Open(lambda _: 20, is_paced=True),), lognormal(changing(*steps)))
    (finding,) = engine.current
    assert finding.began.wall == WALL + BEGIN_S + 60
    facts = facts_by_name(finding)
    assert facts["read_factor"].value == pytest.approx(30, rel=0.15)
    assert facts["further_steps"].text.startswith("in further steps: reads 5.")


def with_patterns(frames, sequential):
    """Yield the frames with the share of sequential I/Os that the tracer counted in each second."""
    for frame in frames:
        patterns = {
            flow: Pattern(done.count, round(sequential(frame.seq) * done.count)) for flow, done in frame.seen.items()
        }
        yield replace(frame, tables={measurements.PATTERNS: patterns})


def scanned(us):
    """Return the frames of a scan of 128 KiB per read, which takes longer from second 60 on."""
    loads = (Closed(lambda _: 1, size=131_072, think_us=2_000),)
    return frames_of(Random(1), 120, loads, lognormal(changing((0, 300), (60, us))), servers=4)


def test_a_closed_loop_that_may_read_elsewhere_is_a_notice_that_names_both_causes():
    """Random reads of the same size may take 30 times as long as sequential ones."""
    engine, _ = watched(scanned(8_000))
    (finding,) = engine.current
    assert finding.severity == "notice"
    assert finding.summary.endswith(": the device, or random I/Os instead of sequential ones")
    assert "not measured" in facts_by_name(finding)["order"].text


@pytest.mark.parametrize(("now", "findings"), [(0.02, 0), (0.95, 1)])
def test_a_closed_loop_is_compared_by_its_pattern_where_that_was_traced(now, findings):
    engine, _ = watched(with_patterns(scanned(8_000), lambda second: 0.98 if second < 60 else now))
    assert [finding.severity for finding in engine.current] == ["warning"] * findings
    for finding in engine.current:
        assert "sequential reads: 98% -> 95%" in facts_by_name(finding)["order"].text
        assert finding.summary.endswith("the load did not rise")


def test_a_closed_loop_is_compared_by_its_order_of_issue_where_that_was_recorded():
    def issued(frame):
        sectors = range(64) if frame.seq < 60 else [(at * 37) % 64 for at in range(64)]
        return tuple(Issue(1000 * at, sector * 256, 131_072, "read", 0) for at, sector in enumerate(sectors))

    frames = (replace(frame, issues={"sda": issued(frame)}) for frame in scanned(8_000))
    assert watched(frames)[1] == []


def test_a_closed_loop_slower_than_random_ios_of_any_disk_is_a_warning():
    engine, _ = watched(scanned(200_000))
    assert engine.current[0].severity == "warning"
    assert "fewer than 50 per second" in facts_by_name(engine.current[0])["order"].text


def test_flushes_come_first_where_other_ios_wait_for_them():
    """A volume whose cache flush became slow: reads behind it took 160 times as long, flushes 127 times."""
    engine, _ = watched(
        Frame(
            second,
            WALL + second,
            (BEGIN_S + second + 1) * S,
            S,
            devices=(Device("sda", 8, 0),) if second == 0 else (),
            histograms={Series("sda", op, "total"): hist({us: 18, us * 5 // 4: 2}) for op, us in latencies.items()},
            seen={Flow("sda", op): Completed(20, 20 * 4096) for op in latencies},
        )
        for second in range(110)
        for latencies in [{"read": 500, "flush": 1_100} if second < 60 else {"read": 80_000, "flush": 140_000}]
    )
    (finding,) = engine.current
    assert finding.short.startswith("sda: flushes take 1")
    assert ", reads 1" in finding.summary


def test_the_factor_is_that_of_the_change_while_another_load_is_on_the_device():
    loads = (Closed(lambda second: 1 if second < 180 else 16, think_us=20_000),)
    engine, seen = simulated(240, loads, lognormal(changing((0, 1_000), (60, 2_000)), 0.2), servers=1)
    (finding,) = engine.current
    facts = facts_by_name(finding)
    assert facts["read_factor"].value == pytest.approx(2, rel=0.15)
    assert (finding.severity, "after it" in facts["read_factor"].text) == ("notice", True)
    assert "another load now" in facts["iops_now"].text
    assert all("take 2." in summary or "take 1." in summary for _, summary in seen if summary)


def test_far_fewer_ios_than_the_latency_explains_are_another_load():
    loads = (Open(lambda second: 1_000 if second < 60 else 10, is_paced=True),)
    assert simulated(160, loads, lognormal(changing((0, 400), (60, 1_600))))[1] == []


def test_without_depths_idle_time_by_littles_law_and_no_quick_ios_decide():
    engine, _ = simulated(120, PACED, lognormal(changing((0, 1_000), (60, 40_000))), has_depths=False)
    assert engine.current[0].severity == "warning"
    bursts = (Open(lambda second: 100 if second < 60 or second % 10 < 1 else 0),)
    assert simulated(300, bursts, lognormal(1_000), servers=1, has_depths=False)[1] == []


def headed(share, slow_us, begin=63, end=math.inf, before=0.0):
    """Return service times of a disk of which a share of the reads takes longer from a second on, as with a bad head.

    `before`: the share before it.
    """
    quick = lognormal(800, 0.3)

    def service(rng, second, op):
        now = share if begin <= second < end else before
        return quick(rng, second, op) + (slow_us if op == "read" and rng.random() < now else 0)

    return service


EIGHT = {"servers": 8}


def test_a_quarter_of_the_reads_that_became_slow_is_named_within_30_s_with_its_share_and_second():
    """One of four heads: 120 ms more for a quarter of the addresses; p50 1.04 -> 1.09 ms was no finding."""
    engine, seen = simulated(95, PACED, headed(0.25, 120_000), **EIGHT)
    assert seen[0][0] - 63 <= 30
    (finding,) = engine.current
    assert (finding.severity, finding.device, finding.where.op) == ("warning", "sda", "read")
    assert finding.began.wall == pytest.approx(WALL + BEGIN_S + 63, abs=1)
    fact = facts_by_name(finding)["read_slow_share"]
    assert fact.value == pytest.approx(0.25, abs=0.04)
    assert "% of the reads take 119 ms since " in finding.summary
    assert "or less before; the others are as quick (p50 832 us -> " in finding.summary
    assert finding.summary.endswith(", and the load did not rise")
    assert ", the others as before" in finding.short
    assert "load before -> after: 60.0 -> 60.0 IOPS" in facts_by_name(finding)["iops"].text
    assert finding.share == pytest.approx(0.25 * 119 / (0.25 * 121 + 0.75 * 0.83), abs=0.05)


def test_a_slow_part_soon_after_the_start_is_a_notice_and_a_warning_once_it_has_lasted():
    engine, seen = simulated(45, PACED, headed(0.25, 120_000, 18), **EIGHT)
    assert [finding.severity for finding in engine.current] == ["notice"]
    assert seen[0][0] - 18 <= 30
    engine, _ = simulated(90, PACED, headed(0.25, 120_000, 18), **EIGHT)
    assert [finding.severity for finding in engine.current] == ["warning"]


@pytest.mark.parametrize(("share", "per_s"), [(0.12, 60), (0.08, 150), (0.4, 30)])
def test_other_shares_and_rates(share, per_s):
    loads = (Open(lambda _: per_s, is_paced=True), Open(lambda _: 10, "write"))
    engine, seen = simulated(93, loads, headed(share, 120_000), **EIGHT)
    assert seen[0][0] - 63 <= 30
    (finding,) = engine.current
    assert facts_by_name(finding)["read_slow_share"].value == pytest.approx(share, abs=0.04)


def test_the_finding_of_a_slow_part_ends_when_all_are_quick_again():
    engine, seen = simulated(200, PACED, headed(0.25, 120_000, end=120), **EIGHT)
    assert [bool(summary) for _, summary in seen][-2:] == [True, False]
    assert 120 < seen[-1][0] <= 145
    assert engine.current == ()


def test_all_ios_that_become_slower_after_a_part_of_them_are_named_as_such():
    part, whole = headed(0.25, 120_000, 60), lognormal(40_000, 0.3)
    engine, _ = simulated(
        170, PACED, lambda rng, second, op: (whole if second >= 120 else part)(rng, second, op), **EIGHT
    )
    (finding,) = engine.current
    assert finding.summary.startswith("sda: reads take 4")
    assert finding.began.wall == pytest.approx(WALL + BEGIN_S + 60, abs=1)


HARMLESS_PARTS = {
    "a tail of before": (PACED, headed(0.25, 120_000, before=0.03)),
    "a tail as large as before": (PACED, headed(0.25, 120_000, before=0.25)),
    "a few slow ones": (PACED, headed(0.02, 120_000)),
    "hardly slower": (PACED, headed(0.25, 1_500)),
    "a bad moment": (PACED, headed(0.25, 120_000, end=76)),
    "bursts": ((Open(lambda second: 60 if second < 63 or second % 5 else 600),), lognormal(2_000, 0.3)),
}


@pytest.mark.parametrize("name", HARMLESS_PARTS)
def test_a_tail_of_the_load_or_of_before_is_no_finding(name):
    loads, service = HARMLESS_PARTS[name]
    assert simulated(160, loads, service, servers=2 if name == "bursts" else 8)[1] == []


MORE = {
    "more slow reads": (Open(lambda second: 10 * (second >= 63), "write", is_paced=True), {"write": 120_000}),
    "slow writes": (Open(lambda second: 5 * (second >= 63), "write"), {"write": 60_000}),
    "larger reads": (Open(lambda second: 10 * (second >= 63), "write", 16_384, is_paced=True), {"write": 60_000}),
    "a program that flushes": (Open(lambda second: 2 * (second >= 63), "flush"), {"flush": 100_000}),
}


@pytest.mark.parametrize("name", MORE)
def test_slow_ios_that_came_beside_the_quick_ones_are_another_load(name):
    """Counted as reads, as of two programs that read from different places, or waiting behind the others."""
    load, slow_us = MORE[name]
    paced = Open(lambda second: 50 if name == "larger reads" and second >= 63 else 60, is_paced=True)
    servers = 4 if name.endswith("reads") else 1
    service = lambda rng, _, op: {"read": 900, **slow_us}[op] * rng.uniform(0.8, 1.2)  # noqa: E731
    frames = frames_of(Random(1), 160, (paced, load), service, servers=servers)
    assert watched(map(_as_reads, frames) if name.endswith("reads") else frames)[1] == []


@pytest.mark.parametrize(
    ("slow_us", "pressure", "is_found"), [(20_000, 0.6, False), (20_000, 0.15, True), (120_000, 0.6, True)]
)
def test_a_slow_part_may_wait_for_cpus_that_became_busy_with_it(slow_us, pressure, is_found):
    def busy(frame):
        stalled = pressure if frame.seq >= 63 else 0.1
        return replace(frame, host_context={"psi_cpu_some": interval_value(round(stalled * S), S)})

    frames = frames_of(Random(1), 120, PACED, headed(0.25, slow_us), **EIGHT)
    assert bool(watched(map(busy, frames))[1]) == is_found


def _as_reads(frame):
    """Return a frame whose writes count as reads."""
    rows = {}
    for name in ("histograms", "kernel", "seen"):
        table = getattr(frame, name)
        read, write = (next((key for key in table if key.op == op), None) for op in ("read", "write"))
        merged = {key: value for key, value in table.items() if key.op == "read"}
        if write is not None:
            own, other = table[read], table[write]
            merged[read] = merge((own, other)) if name == "histograms" else own + other
        rows[name] = merged
    return replace(frame, **rows)


def _threads(count, begin=100):
    return lambda second: count if second >= begin else 1


HARMLESS = {
    "more threads": ((Closed(_threads(16)),), 1, 1_000),
    "a higher rate": ((Open(lambda second: 300 if second < 100 else 900),), 1, 1_000),
    "bursts": ((Open(lambda second: 900 if second % 10 < 3 else 20),), 1, 1_000),
    "the same rate in bursts": ((Open(lambda second: 100 if second < 150 else 1_000 * (second % 10 < 1)),), 1, 1_000),
    "a backup of large reads": (
        (Open(lambda _: 100), Closed(lambda second: 8 * (100 < second < 250), size=65_536, think_us=5_000)),
        1,
        1_000,
    ),
    "a copy that writes": (
        (Open(lambda _: 100), Closed(lambda second: 8 * (100 < second < 250), op="write", think_us=5_000)),
        1,
        1_000,
    ),
    "a cache that warms up": ((Open(lambda _: 60),), 4, {0: 8_000, 60: 3_000, 120: 1_000, 180: 200}),
    "minutes that alternate": ((Open(lambda second: 60 if second // 60 % 2 else 500),), 1, 1_500),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_latency_that_follows_the_load_is_no_finding(name):
    loads, servers, service_us = HARMLESS[name]
    steps = service_us.items() if isinstance(service_us, dict) else [(0, service_us)]
    _, seen = simulated(300, loads, lognormal(changing(*steps), 0.3), servers=servers)
    assert seen == []


def test_a_device_that_has_been_as_slow_in_the_hour_before_only_varies():
    """Slow for 40 s in each of some minutes: the first is shown while it lasts, and later ones are usual."""
    slow = lambda second: 20_000 if second % 120 >= 80 else 1_000  # noqa: E731
    _, seen = simulated(900, (Open(lambda _: 30),), lognormal(slow))
    shown = [second for second, summary in seen if summary]
    assert all(second < 400 for second in shown)


def test_another_device_of_the_same_name_has_no_past_of_the_first():
    frames = list(frames_of(Random(1), 120, PACED, lognormal(changing((0, 1_000), (60, 40_000))), servers=4))
    first = Device("sda", 8, 0, driver="sd", label="a")
    frames[0] = replace(frames[0], devices=(first,))
    removed = [replace(frame, removed=("sda",)) if frame.seq == 60 else frame for frame in frames]
    renamed = [replace(frame, devices=(replace(first, label="b"),)) if frame.seq == 60 else frame for frame in frames]
    assert watched(frames)[1] != []
    assert watched(removed)[1] == []
    assert watched(renamed)[1] == []


def test_a_change_within_a_gap_is_known_to_the_length_of_the_gap():
    """Frames of 50 s are missing, in whose middle the device became slower."""
    frames = frames_of(Random(1), 160, PACED, lognormal(changing((0, 1_000), (65, 40_000))), servers=4)
    engine, _ = watched(frame for frame in frames if not 40 <= frame.seq < 90)
    (finding,) = engine.current
    assert "known to 51 s" in facts_by_name(finding)["changed_at"].text
    assert " since about " in finding.summary


@pytest.mark.slow
def test_the_third_phase_of_a_load_in_cycles_is_usual():
    slow = lambda second: 20_000 if second % 800 >= 400 else 1_000  # noqa: E731
    _, seen = simulated(2_800, (Open(lambda _: 15, is_paced=True),), lognormal(slow))
    begins = [second for second, summary in seen if (summary and "20x" in summary) or "19x" in summary]
    assert all(second < 1_700 for second, summary in seen if summary)
    assert {second // 800 for second in begins} == {0, 1}


def test_seconds_of_thousands_of_devices_are_bounded():
    """5,000 devices took 1.2 MB per second, for three minutes."""
    stages = ("total", "driver", "queue")
    rows = {Series(f"d{at}", "read", stage): Histogram.of({40: 30, 41: 2}) for at in range(5_000) for stage in stages}
    history, frame = LatencyHistory(), next(frames_of(Random(1), 1, PACED, lognormal(1_000)))
    tracemalloc.start()
    try:
        for second in range(1, 21):
            history.add_frame(replace(frame, mono_us=second * S, histograms=rows))
            if second == 1:
                first, _ = tracemalloc.get_traced_memory()
        last, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (last - first) / 19 * 180 < 30e6


def test_a_job_that_begins_after_a_pause_is_no_change_of_the_device():
    loads = (Open(lambda second: 0 if 60 <= second < 75 else 60, is_paced=True),)
    service = lognormal(changing((0, 1_000), (70, 40_000)))
    assert simulated(200, loads, service)[1] == []


def test_one_bad_moment_is_no_change():
    assert simulated(200, PACED, lognormal(lambda second: 60_000 if 100 <= second < 112 else 1_000))[1] == []


def test_settings_reports_and_like_devices_that_changed_at_the_same_time_are_named():
    frames = []
    disks = [(name, changing((0, 1_000), (60, 20_000)) if name != "sdc" else 1_000) for name in ("sda", "sdb", "sdc")]
    runs = [
        list(frames_of(Random(number), 95, PACED, lognormal(us), servers=4, name=name))
        for number, (name, us) in enumerate(disks)
    ]
    for second, parts in enumerate(zip(*runs, strict=True)):
        frames.append(_joined(second, parts))
    engine, _ = watched(frames)
    assert [finding.device for finding in engine.current] == ["sda", "sdb"]
    facts = facts_by_name(engine.current[0])
    assert "nr_requests 128 -> 4, link_speed 8.0 GT/s -> 2.5 GT/s, state a -> b, ana_state" in facts["changed_too"].text
    assert facts["reports"].text == "counters of its own that grew: ioerr_cnt +4"
    assert facts["with_its_controller"].text == (
        "of 2 other busy devices with its controller 0000:01:00.0, 1 changed with it (sdb)"
    )


def _joined(second, parts):
    first = parts[0]
    devices = ()
    if second in (0, 61):
        devices = tuple(_disk(name, is_changed=second > 0 and name == "sda") for name in ("sda", "sdb", "sdc"))
    merged = {
        name: {key: value for part in parts for key, value in getattr(part, name).items()}
        for name in ("histograms", "kernel", "seen", "depths")
    }
    return replace(first, **merged, devices=devices)


def _disk(name, *, is_changed):
    return Device(
        name,
        8,
        0,
        driver="sd",
        controller="0000:01:00.0",
        limits=(Limit("nr_requests", 4 if is_changed else 128, "at/nr_requests"),),
        reports=(
            *(DeviceReport(name, 7 if is_changed else 3, "md") for name in ("sync_percent", "sync_speed", "ioerr_cnt")),
            *(DeviceReport(name, "b" if is_changed else "a", name) for name in ("state", "ana_state", "sync_action")),
            DeviceReport("link_speed", "2.5 GT/s" if is_changed else "8.0 GT/s", "at/link_speed"),
        ),
    )


def test_minutes_of_a_roll_up_give_the_minute():
    engine = RuleEngine(ORIGIN, settings=ALONE)
    by_minute = {}
    for frame in frames_of(Random(1), 1_220, PACED, lognormal(changing((0, 1_000), (620, 40_000))), servers=4):
        by_minute.setdefault(minute_of(frame.mono_us), []).append(frame)
    for frames in list(by_minute.values())[1:]:
        sums = MinuteSums(Waiting(), frames[0].mono_us - S)
        for frame in frames:
            sums.add(frame)
        engine.take(sums.minute())
    (finding,) = engine.current
    assert finding.began.wall == WALL + BEGIN_S + 620
    assert "known to 60 s" in facts_by_name(finding)["changed_at"].text
    assert " since about " in finding.summary
    assert "busy 7% -> >99%" in facts_by_name(finding)["depth"].text


def test_windows_without_a_history_have_no_finding():
    assert found(ID, lasting(12, histograms=timed("sda", ((50, {"hba": 900}),)))) == []


def test_the_time_of_a_change_of_another_day_has_its_age():
    assert since_text(WALL, WALL + 60, S).count(":") == 2
    assert since_text(WALL, WALL + 2 * 86_400 + 5, S).endswith("(2 days ago)")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_an_hour_of_an_ordinary_heavy_tailed_load_has_no_finding(seed):
    rng = Random(seed)
    slow_seconds = {second for second in range(3_600) if rng.random() < 0.05}
    wandering = [1.0]
    for _ in range(3_600):
        wandering.append(min(max(wandering[-1] * math.exp(rng.gauss(0, 0.02)), 0.5), 2.0))

    def service(rng, second, _op):
        at = int(second)
        return 700 * wandering[at] * rng.paretovariate(1.3) * (8 if at in slow_seconds else 1)

    assert simulated(3_600, (Open(lambda _: 30), Open(lambda _: 10, "write")), service, seed=seed)[1] == []


@pytest.mark.parametrize("seed", range(6))
def test_a_change_to_forty_times_is_found_within_30_s_under_heavy_tails(seed):
    at = 45 + seed

    def service(rng, second, _op):
        return (40_000 if second >= at else 1_000) * 0.7 * rng.paretovariate(1.5)

    _, seen = simulated(at + 31, (Open(lambda _: 40),), service, seed=seed, servers=32)
    assert seen, seed
