"""outstanding-ceiling: a wall of a few I/Os with others above it, and all that looks like one and isn't."""

from dataclasses import replace

import pytest
from finding_cases import BEGIN_S, depths, disk, done, facts_of, found, frame, lasting, timed, traced

from latmon.findings.engine import RuleEngine
from latmon.findings.evidence import waiting
from latmon.model.frame import Origin
from latmon.model.inflight import SYSFS

RULE = "outstanding-ceiling"
SERIAL = ((5000, {"queue": 41_000, "hba": 3_000}),)
UNQUEUED = ((5000, {"queue": 20, "hba": 3_000}),)
SD = {"un_throttle": (3, ""), "un_min_throttle": (8, ""), "un_saved_throttle": (3, ""), "un_f_opt_queueing": (1, "")}
"""As the crash dump of the published case has them."""
FAR = {"queue_depth": 64, "can_queue": (128, "host0/can_queue")}


def held(n=3, queued=41, load=SERIAL, source="probe", of_ms=5000):
    moments = depths({0: of_ms // 50, n - 1: of_ms // 50, n: of_ms - of_ms // 25} if n > 1 else {0: 100, 1: 4900})
    waiting = {0: of_ms // 50, queued: of_ms - of_ms // 50} if queued else {0: of_ms}
    reported = depths(moments.in_driver, waiting, source)
    values = {"depths": {"sda": reported}, "kernel": done("sda", 5000)}
    return values | ({"histograms": timed("sda", load)} if load else {})


def test_a_throttle_below_the_driver_s_own_minimum_is_critical():
    (finding,) = found(RULE, lasting(**held()), [disk(limits=SD)])
    assert (finding.severity, finding.device, finding.where.screen) == ("critical", "sda", "outstanding")
    assert finding.summary == (
        "sda: its driver is limited to 3 I/Os in flight while 41 wait above it, where 93% of their time passes; "
        "un_throttle of 3 is below its own minimum of 8 (un_min_throttle)"
    )
    facts = {fact.name: fact for fact in finding.facts}
    assert (facts["ceiling"].value, facts["mode"].value, facts["limit"].value) == (3, 3, 3)
    assert (facts["ceiling"].text, facts["mode"].text) == (
        "in the driver: never above 3",
        "mostly 3, for 98% of the busy time",
    )
    assert [facts[name].of for name in ("ceiling", "mode", "queued")] == [None] * 3, "times of depths are no samples"
    assert facts["waiting"].of == 60_000
    assert facts["driver_us"].text == "on average an I/O takes 41 ms above the driver and 3 ms in driver and device"
    assert all(step.risk for step in finding.steps)
    assert "mdb" in finding.steps[0].text


@pytest.mark.parametrize(
    ("since_s", "expected"),
    [
        pytest.param(10, None, id="too short a time"),
        pytest.param(15, ("warning", 15_000_000), id="since it began"),
        pytest.param(60, ("warning", None), id="all the time"),
    ],
)
def test_a_limit_that_began_in_the_last_minute_is_found_before_that_is_over(since_s, expected):
    deep = held() | {"depths": {"sda": depths({0: 100, 16: 4900}, {0: 5000})}, "histograms": timed("sda", UNQUEUED)}
    frames = [frame(BEGIN_S + 5 * n, **(held() if n >= 12 - since_s // 5 else deep)) for n in range(12)]
    findings = found(RULE, frames, [disk()])
    assert [(finding.severity, since_us(finding)) for finding in findings] == ([expected] if expected else [])


def since_us(one):
    return next((fact.value for fact in one.facts if fact.name == "span_us"), None)


@pytest.mark.parametrize(
    ("limits", "severity", "why"),
    [
        pytest.param(FAR, "critical", "its configured limit is 64 (queue_depth)", id="a limit far above it"),
        pytest.param({}, "warning", "no limit of it is known", id="no limit is known"),
        pytest.param(
            {"queue_depth": 3, "cmd_per_lun": (7, "host0/cmd_per_lun")},
            "critical",
            "queue_depth of 3 is below the 7 that its host begins with (cmd_per_lun)",
            id="below what it began with",
        ),
        pytest.param(
            {"can_queue": (3, "host0/can_queue")}, "warning", "that is all that can_queue allows", id="a plain limit"
        ),
    ],
)
def test_the_limit_is_reported_beside_what_was_measured(limits, severity, why):
    (finding,) = found(RULE, lasting(**held()), [disk(limits=limits)])
    assert (finding.severity, finding.summary.partition("; ")[2]) == (severity, why)


def test_gauges_alone_are_enough():
    (finding,) = found(RULE, lasting(**held(load=None, source=SYSFS)), [disk(limits=FAR)])
    assert finding.severity == "critical"
    assert finding.share == pytest.approx(41 / 44, abs=0.01)
    assert "by Little's law" in next(fact.text for fact in finding.facts if fact.name == "waiting")


def uncounted(ios, stages, in_driver):
    """Five seconds of a kernel that doesn't count waiting I/Os, while the tracer times a tenth of them."""
    measured = traced("sda", ((ios // 10, stages),), one_in=10)
    return {"depths": {"sda": depths(in_driver, source=SYSFS)}, "kernel": done("sda", ios), "traced": measured}


@pytest.mark.parametrize(
    ("busy_s", "found_after"),
    [
        pytest.param((2, 3), None, id="a burst of 2 s, in both of the first two blocks"),
        pytest.param(range(1, 5), 5, id="4 s of the first 5"),
        pytest.param(range(1, 16), 5, id="all the time"),
    ],
)
def test_a_short_burst_when_a_capture_begins_is_no_ceiling(busy_s, found_after):
    origin = Origin("bpftrace", "h", "6.1", "0", interval_us=10**6, start_mono_us=100 * 10**6)
    engine = RuleEngine(origin, (disk(limits=FAR),))
    reported = []
    for at in range(1, 16):
        n = 1000 if at in busy_s else 0
        values = {"depths": {"sda": depths({3: n, 0: 1000 - n}, {20: n, 0: 1000 - n})}, "kernel": done("sda", n // 20)}
        engine.take(frame(100 + at, dt_us=10**6, **values))
        reported += [at] if any(finding.id == RULE for finding in engine.current) else []
    assert next(iter(reported), None) == found_after


def test_where_the_kernel_does_not_count_waiting_ios_their_times_do():
    frames = lasting(**uncounted(150, {"queue": 433_000, "hba": 100_000}, {3: 5000}))
    (finding,) = found(RULE, frames, [disk(limits=FAR)])
    assert finding.summary.startswith(
        "sda: its driver is limited to 3 I/Os in flight while 13 wait above it, where 81% of "
    )
    queued = next(fact for fact in finding.facts if fact.name == "queued")
    assert (queued.value, queued.of) == (pytest.approx(13, abs=0.2), None)
    assert queued.text == "13 wait above the driver on average by Little's law, from their times"


def test_how_many_wait_is_unknown_without_the_sum_of_their_times():
    values = uncounted(150, {"queue": 100_000, "hba": 100_000}, {3: 5000})
    assert waiting(facts_of(lasting(**values)), "sda") == pytest.approx(3)
    whole_traced = values["traced"]
    unsummed = {
        series: replace(histogram, sum=None)
        for series, histogram in whole_traced.histograms.items()
        if series.stage == "queue"
    }
    values["traced"] = replace(whole_traced, histograms={**whole_traced.histograms, **unsummed}, by_total={})
    assert waiting(facts_of(lasting(**values)), "sda") is None
    assert waiting(facts_of(lasting(kernel=done("sda", 150))), "sda") is None, "nothing was traced"


@pytest.mark.parametrize(("queue_us", "fires"), [(95_000, False), (105_000, True)])
def test_by_their_times_more_wait_than_the_driver_has(queue_us, fires):
    """30 IOPS: so few may wait for a queue that is stopped now and then, after which the driver has as many."""
    frames = lasting(**uncounted(150, {"queue": queue_us, "hba": 100_000}, {3: 5000}))
    assert bool(found(RULE, frames, [disk(limits=FAR)])) is fires


def test_a_queue_that_runs_now_and_then_is_no_ceiling():
    """Three reads are sent at once, and wait for 0.9 of each second: the driver has three whenever it has any."""
    frames = lasting(**uncounted(20, {"queue": 670_000, "hba": 100_000}, {0: 4000, 3: 1000}))
    assert not found(RULE, frames, [disk(limits=FAR)])


def test_the_gain_is_little_s_law_s():
    times = ((5000, {"queue": 41_000, "hba": 3_000}),)
    (finding,) = found(RULE, lasting(**held(load=times)), [disk(limits=FAR)])
    text = next(fact.text for fact in finding.facts if fact.name == "littles_law")
    assert "at 44 in flight up to" in text


def test_windows_without_the_kernel_s_counters_count_in_little_s_law():
    times = ((5000, {"queue": 41_000, "hba": 3_000}),)
    frames = lasting(**held(load=times), seen=done("sda", 5000))
    without = [replace(frame, kernel={}) if n < 3 else frame for n, frame in enumerate(frames)]
    laws = [
        next(fact.text for fact in finding.facts if fact.name == "littles_law")
        for finding in (*found(RULE, frames, [disk(limits=FAR)]), *found(RULE, without, [disk(limits=FAR)]))
    ]
    assert laws[0] == laws[1]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_every_ceiling_to_four(n):
    (finding,) = found(RULE, lasting(**held(n)), [disk(limits=FAR)])
    assert finding.facts[0].value == n


@pytest.mark.parametrize(
    ("n", "bound"),
    [
        pytest.param(5, 64, id="just above"),
        pytest.param(32, 32, id="a busy disk: iodepth 64 before 32"),
        pytest.param(256, 256, id="a busy array"),
    ],
)
def test_a_higher_ceiling_is_none(n, bound):
    assert not found(RULE, lasting(**held(n)), [disk(limits={"queue_depth": bound})])


def test_a_wall_with_nothing_queued_is_the_application_s():
    load = ((5000, {"queue": 10, "hba": 3_000}),)
    assert not found(RULE, lasting(**held(queued=0, load=load)), [disk(limits=FAR)])


@pytest.mark.parametrize(("queue_us", "fires"), [(1_900, False), (2_100, True)])
def test_the_share_above_the_driver(queue_us, fires):
    load = ((5000, {"queue": queue_us, "hba": 3_000}),)
    assert bool(found(RULE, lasting(**held(load=load)), [disk(limits=FAR)])) is fires


@pytest.mark.parametrize(("share", "severity"), [(0.88, "warning"), (0.92, "critical")])
def test_nearly_all_of_the_time_is_critical(share, severity):
    load = ((5000, {"queue": int(100_000 * share), "hba": int(100_000 * (1 - share))}),)
    (finding,) = found(RULE, lasting(**held(load=load)), [disk(limits=FAR)])
    assert finding.severity == severity


@pytest.mark.parametrize(("queued", "severity"), [(8, "warning"), (10, "critical")])
def test_critical_needs_many_that_wait(queued, severity):
    (finding,) = found(RULE, lasting(**held(queued=queued)), [disk(limits=FAR)])
    assert finding.severity == severity


@pytest.mark.parametrize(("blocks", "fires"), [(2, False), (3, True)])
def test_a_burst_is_no_ceiling(blocks, fires):
    busy = [frame(100 + 5 * n, **held()) for n in range(blocks)]
    idle = [frame(100 + 5 * n, depths={"sda": depths({0: 5000}, {0: 5000})}) for n in range(blocks, 10)]
    assert bool(found(RULE, [*busy, *idle], [disk(limits=FAR)])) is fires


def test_a_driver_that_takes_one_by_design_is_none():
    assert not found(RULE, lasting(**held(1)), [disk(driver="usb-storage", limits={"can_queue": 1})])


def test_who_waits_for_a_tag_has_no_request_and_that_is_reported():
    values = held(queued=0, load=((5000, {"queue": 5, "hba": 3_000}),))
    limits = {"nr_tags": (3, "mq/0/nr_tags"), "scheduler": "none"}
    (finding,) = found(RULE, lasting(**values), [disk(limits=limits)])
    assert finding.severity == "notice"
    assert finding.summary == (
        "sda: its driver is full at 3 I/Os for most of the busy time, which is all that nr_tags allows; "
        "the kernel doesn't count waiting I/Os"
    )
    assert not found(RULE, lasting(**values), [disk(limits=limits | {"nr_tags": 32})])


def test_a_scheduler_with_twice_the_driver_s_tags_shows_half():
    """scsi_debug with max_queue=3: six have a request, and three of them wait."""
    values = held(queued=3, load=((300, {"queue": 50_000, "hba": 50_000}),))
    limits = {"can_queue": 3, "nr_tags": 3, "queue_depth": 64, "nr_requests": 6, "scheduler": "mq-deadline"}
    (finding,) = found(RULE, lasting(**values), [disk(limits=limits)])
    assert finding.severity == "warning"
    assert "that is all that can_queue allows" in finding.summary


def test_idle_is_none():
    assert not found(RULE, lasting(depths={"sda": depths({0: 5000}, {0: 5000})}), [disk(limits=FAR)])
    assert not found(RULE, lasting(), [disk(limits=FAR)])


@pytest.mark.parametrize(("size", "fires"), [(131_071, True), (131_072, False)])
def test_a_few_large_ones_fill_a_ring_of_segments(size, fires):
    values = held() | {"kernel": done("sda", 5000, size=size)}
    assert bool(found(RULE, lasting(**values), [disk(limits=FAR)])) is fires


@pytest.mark.parametrize("scheduler", ["bfq", "mq-deadline"])
def test_a_scheduler_may_hold_them_by_design(scheduler):
    """bfq idles for the next one of a program: that is no driver's, and none is where a limit is reached."""
    (finding,) = found(RULE, lasting(**held(1)), [disk(limits=FAR | {"scheduler": scheduler})])
    assert finding.severity == "warning"
    assert finding.summary.endswith(f"its configured limit is 64 (queue_depth), and {scheduler} decides what it sends")
    assert finding.steps[0].text.endswith("echo none > /sys/block/sda/queue/scheduler")
    assert finding.steps[0].risk.endswith(f"undone by writing {scheduler}")
    (finding,) = found(RULE, lasting(**held(1)), [disk(limits=FAR | {"scheduler": scheduler, "nr_requests": 1023})])
    restored = f"undone by writing {scheduler}, and then 1023 to nr_requests, which each change of the scheduler resets"
    assert finding.steps[0].risk.endswith(restored)
    low = {"queue_depth": 3, "cmd_per_lun": (7, "host0/cmd_per_lun"), "scheduler": scheduler}
    assert found(RULE, lasting(**held()), [disk(limits=low)])[0].severity == "critical"


@pytest.mark.parametrize("name", ["mmcblk0", "sr0", "sda"])
def test_cards_and_zones_take_one_by_design(name):
    values = {**held(1), "depths": {name: held(1)["depths"]["sda"]}, "histograms": timed(name, SERIAL)}
    settings = {"device sda": {"zoned": "host-managed"}}
    assert not found(RULE, lasting(**values), [disk(name, FAR)], settings=settings)


@pytest.mark.parametrize(("queued", "fires"), [(1, False), (2, True)])
def test_one_that_waits_is_none(queued, fires):
    assert bool(found(RULE, lasting(**held(1, queued)), [disk(limits=FAR)])) is fires


@pytest.mark.parametrize(
    ("n", "requests", "fires"),
    [
        pytest.param(1, 2, True, id="limit 1"),
        pytest.param(2, 4, True, id="limit 2"),
        pytest.param(2, 8, False, id="two wait, and more could"),
        pytest.param(1, None, False, id="one waits, and it is unknown whether more could"),
    ],
)
def test_all_that_can_wait_with_a_request_do(n, requests, fires):
    """A scheduler has twice the driver's tags: on average 1.998 wait above a limit of 2, and 1 above a limit of 1."""
    reported = depths({n: 4990, n - 1: 10}, {n: 4990, n - 1: 10} if n > 1 else {n: 4990, 0: 10}, SYSFS)
    limits = {"can_queue": n, "nr_tags": n, "scheduler": "mq-deadline"}
    limits |= {"nr_requests": requests} if requests else {}
    values = {"depths": {"sda": reported}, "kernel": done("sda", 5000)}
    findings = found(RULE, lasting(**values), [disk(limits=limits)])
    assert [(finding.severity, finding.facts[0].value) for finding in findings] == ([("warning", n)] if fires else [])
    assert not fires or "requests" in {fact.name for fact in findings[0].facts}


def test_the_audit_knows_the_wall_that_the_rule_reports():
    """Without a gauge of waiting I/Os both have their traced times; at its queue_depth the driver was merely full."""
    frames = lasting(**uncounted(150, {"queue": 433_000, "hba": 100_000}, {3: 5000}))
    (audited,) = facts_of(frames, [disk(limits={"queue_depth": 3})]).audited
    assert (audited.limited_to, audited.at_limit) == (3, False)
    assert [advice.id for advice in audited.off if advice.id.startswith(("ceiling", "at-limit"))] == ["ceiling-reached"]
    quick = lasting(**uncounted(150, {"queue": 50_000, "hba": 100_000}, {3: 5000}))
    (audited,) = facts_of(quick, [disk(limits={"queue_depth": 3})]).audited
    assert (audited.limited_to, audited.at_limit) == (None, True)
