"""starved-io: overtaken I/Os, the layer that delays them, devices that complete nothing, and slow ones."""

import re
from dataclasses import replace

import pytest
from finding_cases import BEGIN_S, WALL, S, depths, disk, done, found, frame, timed

from latmon.model.frame import Completed, Flow, Outlier, Outstanding
from latmon.model.inflight import PROBE, InFlight, InFlightList, Issue

RULE = "starved-io"
LOAD = ((1000, {"queue": 1_000, "hba": 9_000}),)
"""Of a frame: 10 ms each."""
BUSY = {"histograms": timed("sda", LOAD), "kernel": done("sda", 1000)}
DEADLINE = disk(limits={"scheduler": "mq-deadline", "queue_depth": 32})


def still(at_s, age_s, op="read", overtaken=5000, **changed):
    values = {"sector": 7, "comm": "oracle", "issued": True, "overtaken_by": overtaken} | changed
    in_flight = InFlight("sda", op, int((at_s - age_s) * S), **values)
    return InFlightList((in_flight,), {1: 1, 10: 1, 60: 0}, since_us=S, at_us=int(at_s * S))


def waiting(age_s, blocks=12, base=BUSY, **changed):
    """Frames of which the last one has an I/O in flight that is so old."""
    last = BEGIN_S + 5 * (blocks - 1)
    at = [BEGIN_S + 5 * n for n in range(blocks)]
    return [frame(s, **base, **({"in_flight": still(s, age_s, **changed)} if s == last else {})) for s in at]


def late(total_s, overtaken=5000, op="write", **stages):
    reported = stages or {"queue": int(total_s * S) - 1_000, "hba": 1_000}
    return Outlier(WALL, BEGIN_S * S, "sda", op, int(total_s * S), reported, overtaken_by=overtaken)


def completed(*outliers):
    return [frame(BEGIN_S + 5 * n, **BUSY, outliers=outliers if n == 5 else ()) for n in range(6)]


def test_one_that_still_waits_is_reported_with_who_holds_it():
    (finding,) = found(RULE, waiting(116), [DEADLINE])
    assert (finding.severity, finding.where.screen, finding.where.op) == ("critical", "outstanding", "read")
    assert finding.summary == (
        "sda: a read of oracle has waited for 116 s while 5,000 that came later were completed; "
        "it waits in the driver, its adapter or the device"
    )
    assert {fact.name: fact.value for fact in finding.facts}["age_us"] == 116 * S
    assert "scheduler" not in " ".join(step.text for step in finding.steps)


@pytest.mark.parametrize("own", [True, False])
def test_latmons_own_io_is_no_evidence(own):
    assert bool(found(RULE, waiting(116, own=own), [DEADLINE])) is not own
    assert bool(found(RULE, completed(replace(late(530), own=own)), [DEADLINE])) is not own
    silent = [replace(frame, kernel={}, histograms={}) for frame in waiting(116, own=own)]
    assert bool(found(RULE, silent, [DEADLINE])) is not own


def test_latmons_own_io_is_not_counted_with_the_others():
    *frames, last = waiting(116)
    mine = still(last.mono_us / S, 90, own=True).oldest
    both = replace(last.in_flight, oldest=(*last.in_flight.oldest, *mine), older={1: 2, 10: 2, 60: 2})
    (finding,) = found(RULE, [*frames, replace(last, in_flight=both)], [DEADLINE])
    assert {fact.name: fact.value for fact in finding.facts}["ios"] == 1


def test_held_in_the_block_layer_by_a_scheduler_that_sorts():
    sorted_by_lba = tuple(Issue(100 + n, 1000 * n, 4096, "read", 5_000 + (n * 31 % 64) * 100) for n in range(64))
    frames = [frame(BEGIN_S, **BUSY, issues={"sda": sorted_by_lba}), *waiting(20, issued=False)[1:]]
    (finding,) = found(RULE, frames, [DEADLINE])
    assert finding.severity == "warning"
    assert finding.summary.endswith("it waits above the driver, where mq-deadline sorts by LBA")
    assert "fifo_batch" in finding.steps[1].text
    assert all("seek" in step.risk for step in finding.steps[:2])
    (finding,) = found(RULE, waiting(20, issued=False), [DEADLINE])
    assert finding.summary.endswith("where mq-deadline decides which I/O is next")
    (finding,) = found(RULE, waiting(20, issued=False), [disk()])
    assert finding.summary.endswith("it waits above the driver")
    assert re.fullmatch(r"sda: a \w+( of \S+)? stuck for 20 s above the driver(; \d+ .*overtook)?", finding.short)
    (finding,) = found(RULE, waiting(20, issued=True), [disk()])
    assert " stuck for 20 s in the driver or below" in finding.short


def test_where_they_wait_in_two_places_the_place_is_that_of_the_oldest():
    frames = waiting(20, issued=True)
    (oldest,) = frames[-1].in_flight.oldest
    two = (oldest, oldest._replace(began_us=oldest.began_us + S, issued=False))
    frames[-1] = replace(frames[-1], in_flight=replace(frames[-1].in_flight, oldest=two))
    (finding,) = found(RULE, frames, [disk()])
    assert finding.short == "sda: 2 I/Os stuck for up to 20 s, the oldest in the driver or below"
    frames = waiting(20, issued=True)
    frames[-1] = replace(frames[-1], in_flight=replace(frames[-1].in_flight, older={1: 250, 10: 250, 60: 0}))
    (finding,) = found(RULE, frames, [disk()])
    assert "250 I/Os stuck for up to 20 s, the oldest in the driver or below" in finding.short


def test_the_cause_has_precedence_over_the_number_of_those_that_overtook():
    limits = {"un_f_disksort_disabled": (0, ""), "un_throttle": (32, "")}
    slow = [late(530 + n, overtaken=34_000 + n, op="write") for n in range(302)]
    (finding,) = found(RULE, completed(*slow), [disk("sda", limits)], kernel="SunOS 5.11")
    assert "disksort decides" in finding.short
    assert re.search(r"302 I/Os were stuck for up to [\d.]+ (s|min)", finding.short)


def test_the_short_text_takes_a_later_age():
    (finding,) = found(RULE, waiting(20, issued=True), [disk()])
    assert (finding.age_us, finding.short_at(20 * S)) == (20 * S, finding.short)
    assert " stuck for 24 s in the driver or below" in finding.short_at(24 * S)
    (finding,) = found(RULE, completed(late(530)), [disk()])
    assert (finding.age_us, finding.short_at(600 * S)) == (0, finding.short), "it has completed"


def test_disksort_of_solaris():
    limits = {"un_f_disksort_disabled": (0, ""), "un_throttle": (32, "")}
    (finding,) = found(RULE, completed(late(530)), [disk("sda", limits)], kernel="SunOS 5.11")
    assert finding.summary == (
        "sda: a write waited for 530 s while 5,000 that came later were completed; "
        "it waited above the driver, where disksort decides which I/O is next"
    )
    assert finding.short.startswith("sda: a write was stuck for 530 s")
    assert "disksort:false" in finding.steps[0].text
    assert finding.where.screen == "outliers"


@pytest.mark.parametrize(("age_s", "fires"), [(4.9, False), (5.1, True)])
def test_the_age(age_s, fires):
    assert bool(found(RULE, waiting(age_s), [DEADLINE])) is fires
    assert bool(found(RULE, completed(late(age_s)), [DEADLINE])) is fires


@pytest.mark.parametrize(("overtaken", "fires"), [(99, False), (100, True)])
def test_how_many_passed(overtaken, fires):
    assert bool(found(RULE, waiting(30, overtaken=overtaken), [DEADLINE])) is fires
    assert bool(found(RULE, completed(late(30, overtaken)), [DEADLINE])) is fires


def test_completions_since_then_where_the_probe_doesn_t_report():
    assert found(RULE, waiting(30, overtaken=None), [DEADLINE])
    few = {"histograms": timed("sda", ((30, {"hba": 9_000}),)), "kernel": done("sda", 10)}
    assert not found(RULE, waiting(30, base=few, overtaken=None), [DEADLINE])


@pytest.mark.parametrize(("usual_us", "fires"), [(450_000, True), (600_000, False)])
def test_a_device_on_which_all_are_slow_starves_none(usual_us, fires):
    slow = BUSY | {"histograms": timed("sda", ((1000, {"hba": usual_us}),))}
    assert bool(found(RULE, waiting(10, base=slow), [DEADLINE])) is fires


@pytest.mark.parametrize(("age_s", "severity"), [(29, "warning"), (31, "critical")])
def test_half_a_minute_is_critical(age_s, severity):
    assert [finding.severity for finding in found(RULE, waiting(age_s), [DEADLINE])] == [severity]


@pytest.mark.parametrize(
    ("op", "age_s", "fires"),
    [("flush", 29, False), ("flush", 31, True), ("discard", 300, False), ("write", 6, True), ("other", 300, False)],
)
def test_flushes_and_discards_take_longer(op, age_s, fires):
    assert bool(found(RULE, waiting(age_s, op=op), [DEADLINE])) is fires


def test_a_wait_for_its_completion_is_another_rule_s():
    assert not found(RULE, completed(late(30, completion=29 * S, hba=S)), [DEADLINE])
    assert found(RULE, completed(late(30, hba=29 * S, completion=S)), [DEADLINE])


def test_several_are_one_finding():
    (finding,) = found(RULE, completed(late(30, 400), late(20, 300), late(3)), [DEADLINE])
    assert finding.summary.startswith("sda: 2 I/Os waited for up to 30 s while 400 that came later than the oldest")


def test_summary_and_facts_have_one_number_of_those_that_overtook():
    """Seen: 25,020 or more that came later in the summary, and 31,500 below it."""
    (finding,) = found(RULE, completed(late(30, 31_500), late(20, 25_020)), [DEADLINE])
    text = {fact.name: fact for fact in finding.facts}["overtaken"]
    assert (text.value, text.text) == (31_500, "31,500 I/Os of the device came later than it and were completed")
    assert "31,500 that came later than the oldest" in finding.summary
    assert "25,020" not in " ".join((finding.summary, *(fact.text for fact in finding.facts)))


def silent(seconds, begin=3, in_flight=4, **changed):
    """A device with completions, then none for so long, by gauges alone."""
    frames = []
    for n in range(begin + seconds):
        count = 100 if n < begin else 0
        kernel = {Flow("sda", "read"): Completed(count, 0)}
        now = {"sda": Outstanding(in_flight, 0)}
        frames.append(frame(BEGIN_S + n, dt_us=S, kernel=kernel, outstanding=now, **changed))
    return frames


@pytest.mark.parametrize(("seconds", "severity"), [(9, ""), (12, "warning"), (31, "critical"), (70, "critical")])
def test_a_device_that_completes_nothing_becomes_critical_by_gauges_alone(seconds, severity):
    """A first discard, a format or a drive that spins up takes as long, and gauges know no ops."""
    findings = found(RULE, silent(seconds), [DEADLINE])
    assert [finding.severity for finding in findings] == [severity] * bool(severity)
    if findings:
        assert findings[0].summary == f"sda: nothing has completed for {seconds} s though 4 I/Os wait"
        assert "which operations wait is not known" in findings[0].facts[3].text


@pytest.mark.parametrize("seconds", [12, 50])
def test_a_device_that_may_be_discarding_is_a_warning(seconds):
    frames = silent(seconds)
    frames[1] = replace(frames[1], kernel={**frames[1].kernel, **done("sda", 3, "discard")})
    (finding,) = found(RULE, frames, [DEADLINE])
    assert finding.severity == "warning"
    assert finding.summary.endswith("though 4 I/Os wait; they may be discards")
    assert {fact.name: fact.value for fact in finding.facts}["discards"] == 3


@pytest.mark.parametrize("seconds", [12, 70])
def test_a_read_that_waits_is_critical_whatever_was_discarded_before(seconds):
    first = frame(BEGIN_S, **BUSY | {"kernel": BUSY["kernel"] | done("sda", 3, "discard")})
    frames = [first, *(frame(BEGIN_S + 5 * n) for n in range(1, seconds // 5 + 1))]
    at = BEGIN_S + seconds // 5 * 5 + 5
    frames.append(frame(at, in_flight=still(at, seconds, overtaken=0)))
    assert [finding.severity for finding in found(RULE, frames, [DEADLINE])] == ["critical"]


@pytest.mark.parametrize("op", ["other", "discard"])
def test_a_format_completes_nothing_for_hours(op):
    frames = [frame(BEGIN_S, **BUSY), *(frame(BEGIN_S + 5 * n) for n in range(1, 20))]
    frames.append(frame(BEGIN_S + 100, in_flight=still(BEGIN_S + 100, 99, op=op, overtaken=0)))
    assert not found(RULE, frames, [DEADLINE])


def test_those_that_came_later_are_not_in_flight_all_along():
    at_s = BEGIN_S + 30
    frames = [frame(BEGIN_S, **BUSY), *(frame(BEGIN_S + 5 * n) for n in range(1, 6))]
    frames.append(frame(at_s, in_flight=many_still(at_s, (31, 2, 1.5))))
    (finding,) = found(RULE, frames, [DEADLINE])
    assert [(fact.name, fact.value) for fact in finding.facts[1:]] == [("ios", 3), ("all_along", 1)]


def many_still(at_s, ages_s, older=None, **changed):
    rows = [row for age_s in ages_s for row in still(at_s, age_s, **changed).oldest]
    return InFlightList(tuple(rows), older or {}, since_us=S, at_us=int(at_s * S))


@pytest.mark.parametrize(
    ("older", "text"),
    [
        pytest.param({1: 3, 10: 3, 60: 0}, "sda: 3 I/Os have", id="all have a line"),
        pytest.param({1: 302, 10: 302, 60: 302}, "sda: 302 I/Os have", id="more than lines"),
        pytest.param({1: 302, 10: 250, 60: 0}, "sda: at least 250 I/Os have", id="of some only a younger age is known"),
    ],
)
def test_lines_are_few_and_ages_count_all(older, text):
    frames = waiting(20)
    at_s = frames[-1].mono_us / S
    frames[-1] = replace(frames[-1], in_flight=many_still(at_s, (30, 20, 12), older))
    (finding,) = found(RULE, frames, [DEADLINE])
    assert finding.summary.startswith(text)


def test_of_what_completed_the_histogram_counts_all():
    starved = {"histograms": timed("sda", (*LOAD, (5, {"queue": 30 * S})), op="write")}
    late_ones = (late(30, 400), late(20, 300))
    frames = [frame(BEGIN_S + 5 * n, **(BUSY | (starved if n == 5 else {}))) for n in range(6)]
    frames[5] = replace(frames[5], outliers=late_ones)
    (finding,) = found(RULE, frames, [DEADLINE])
    assert finding.summary.startswith("sda: 5 I/Os waited for up to 30 s while 400 that came later")
    frames[5] = replace(frames[5], outliers=(*late_ones, late(25, completion=24 * S, hba=S)))
    (finding,) = found(RULE, frames, [DEADLINE])
    assert finding.summary.startswith("sda: at least 2 I/Os waited")


def test_who_waits_in_the_idle_class_is_meant_to():
    (finding,) = found(RULE, waiting(20, issued=False, pid=4711), [DEADLINE])
    assert (
        finding.steps[0].text == "look at the I/O class of oracle: the idle class waits for all others: ionice -p 4711"
    )
    assert "ionice" in finding.refuted_by
    (finding,) = found(RULE, waiting(20, issued=False, pid=4711), [disk(limits={"scheduler": "none"})])
    assert "ionice" not in f"{finding.steps}{finding.refuted_by}"


def test_a_name_that_a_shell_would_read_is_in_no_command():
    frames = [frame(BEGIN_S + 5 * n, histograms=timed("a;b", LOAD), kernel=done("a;b", 1000)) for n in range(6)]
    frames[5] = replace(frames[5], outliers=(replace(late(30), device="a;b"),))
    (finding,) = found(RULE, frames, [disk("a;b", {"scheduler": "bfq"})])
    assert "a;b" not in "".join(step.text for step in finding.steps)
    assert "/sys/block/DEVICE/queue/scheduler" in finding.steps[0].text


def test_a_probe_reports_where_they_are():
    frames = [frame(BEGIN_S, **BUSY), *(frame(BEGIN_S + 5 * n) for n in range(1, 6))]
    frames.append(frame(BEGIN_S + 30, in_flight=still(BEGIN_S + 30, 31, overtaken=0)))
    (finding,) = found(RULE, frames, [DEADLINE])
    assert finding.summary == "sda: nothing has completed for 30 s though 1 I/O waits in its driver or below"


def test_idle_and_a_device_that_is_slow_to_begin_are_none():
    assert not found(RULE, silent(30, in_flight=0), [DEADLINE])
    assert not found(RULE, completed(), [DEADLINE])
    assert not found(RULE, waiting(1.5), [DEADLINE])


SUN = {"kernel": "SunOS 5.11"}
SORTED = disk("sd1", limits={"un_f_disksort_disabled": 0, "un_throttle": 32})


def unexplained(queued, *, blocks=12, source=PROBE, count=3_000, us=190_000):
    """Frames of a disk whose completed I/Os explain 114 in flight; `queued` wait besides 32 in the driver."""
    load = ((count, {"queue": us - 50_000, "hba": 50_000}),)
    counts = depths({32: 5_000}, {queued: 5_000}, source=source)
    values = {
        "histograms": timed("sd1", load, "write"),
        "kernel": done("sd1", count, "write"),
        "depths": {"sd1": counts},
        "outstanding": {"sd1": Outstanding(32, queued)},
    }
    return [frame(BEGIN_S + 5 * n, **values) for n in range(blocks)]


def test_what_littles_law_leaves_over_has_waited():
    """32 + 400 in flight, 600 a second of 190 ms are 114: 318 more are of no I/O that completed."""
    (finding,) = found(RULE, unexplained(384, blocks=8), [SORTED], **SUN)
    assert (finding.severity, finding.where.screen) == ("warning", "outstanding")
    assert re.fullmatch(
        r"sd1: at least 2[0-9]{2} I/Os have waited for 5 s or longer while 3,000 others were completed; "
        r"they wait above the driver, where disksort decides which I/O is next",
        finding.summary,
    )
    assert finding.steps[0].text.startswith("turn disksort off for this product")


def test_a_minute_of_it_proves_waits_of_half_a_minute_which_are_critical():
    """Of 416 in flight each spent 60 s in it at most: (60 x 416 - 60 x 114 - 30 x 416) / 30 have waited for 30 s."""
    (finding,) = found(RULE, unexplained(384), [SORTED], **SUN)
    assert finding.severity == "critical"
    assert re.match(r"sd1: at least 1[0-9]{2} I/Os have waited for 30 s or longer while 18,000 others", finding.summary)
    assert re.match(r"sd1: at least 1[0-9]{2} I/Os stuck for 30 s or longer", finding.short)


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(unexplained(82), id="as many as Little's law says"),
        pytest.param(unexplained(100), id="fewer than young I/Os may explain"),
        pytest.param(unexplained(384, source="sysfs"), id="depths that were sampled"),
        pytest.param(unexplained(384, blocks=1), id="for less than twice the age"),
        pytest.param(unexplained(384, count=20, us=400_000), id="too few others complete"),
        pytest.param(unexplained(384, us=640_000), id="a slow load with a deep queue"),
    ],
)
def test_what_it_does_not_prove(frames):
    assert not found(RULE, frames, [SORTED], **SUN)


def test_where_a_script_follows_requests_the_law_is_not_asked():
    assert not found(RULE, unexplained(384), [SORTED])


def test_one_that_completed_is_starved_though_no_script_counts_what_passed_it():
    slow = replace(late(9, overtaken=None), mono_us=(BEGIN_S + 10) * S)
    (finding,) = found(RULE, completed(slow), [DEADLINE], **SUN)
    assert "1,000 were completed meanwhile" in finding.summary
    assert not found(RULE, completed(slow), [DEADLINE])  # tier C: its start may be that of another I/O


@pytest.mark.parametrize(("driver", "is_thread"), [("mpt3sas", False), ("usb-storage", True)])
def test_a_drive_s_log_is_no_advice_where_a_thread_does_its_io(driver, is_thread):
    (finding,) = found(RULE, waiting(116), [replace(DEADLINE, driver=driver)])
    assert ("usb-storage's thread or what is below it" in finding.summary) is is_thread
    text = " | ".join(step.text for step in finding.steps)
    assert ("smartctl" in text, "usb-storage's thread waits for a CPU" in text) == (not is_thread, is_thread)
