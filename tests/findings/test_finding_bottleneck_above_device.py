"""bottleneck-above-device: I/Os wait where the driver has room, and loads that are simply too much or too short."""

import pytest
from finding_cases import depths, disk, done, found, frame, lasting, timed, traced

from latmon.findings.engine import RuleEngine
from latmon.model.frame import Origin

RULE = "bottleneck-above-device"
LOAD = ((4000, {"queue": 45_000, "hba": 5_000}),)
BFQ = {"queue_depth": 32, "scheduler": "bfq", "wbt_lat_usec": 75_000}


def waits(load=LOAD, queued=36, in_driver=4, name="sda"):
    varied = {depth: ms for depth, ms in ((in_driver // 2, 2600), (in_driver, 2400)) if depth}
    values = {"depths": {name: depths(varied, {queued: 5000})}, "kernel": done(name, 4000)}
    return values | ({"histograms": timed(name, load)} if load else {})


def test_the_driver_has_room_and_the_device_isn_t_what_is_slow():
    (finding,) = found(RULE, lasting(**waits()), [disk(limits=BFQ)])
    assert (finding.severity, finding.where.screen, finding.share) == ("warning", "stages", pytest.approx(0.9))
    assert finding.summary == (
        "sda: 90% of the I/Os' time passes above the driver, where 36 wait on average, "
        "and its driver has room: 4 of 32 (queue_depth) are in use"
    )
    text = " ".join(step.text for step in finding.steps)
    assert all(word in text for word in ("scheduler", "wbt_lat_usec", "cgroup", "suspended"))
    assert {fact.name: fact.value for fact in finding.facts}["wait_us"] >= 45_000


@pytest.mark.parametrize("in_driver", [4, 16])
def test_a_driver_that_sends_no_more_has_no_room(in_driver):
    walled = waits() | {"depths": {"sda": depths({in_driver: 5000}, {36: 5000})}}
    (finding,) = found(RULE, lasting(**walled), [disk(limits=BFQ)])
    why = f"its driver is limited to {in_driver} in flight, though queue_depth allows 32"
    assert finding.summary.endswith(f"36 wait on average, and {why}")
    before = lasting(8, **walled)
    after = [frame(140 + 5 * n, **waits(queued=0, in_driver=16)) for n in range(4)]
    (finding,) = found(RULE, [*before, *after], [disk(limits=BFQ)])
    assert finding.summary.endswith(why), "though in the window's sum it has more"


def test_no_two_findings_of_a_device_contradict_each_other_about_its_depth():
    """Limited to 4 of 128 for 20 s, then not: each rule reports it after a block of its own."""
    engine = RuleEngine(Origin("bpftrace", "h", "6.18", "0"), (disk(limits={"nr_tags": 128}),))
    held = waits() | {"depths": {"sda": depths({4: 5000}, {36: 5000})}}
    free = waits(((40, {"queue": 20, "hba": 5_000}),)) | {"depths": {"sda": depths({0: 4500, 30: 500}, {0: 5000})}}
    for at in range(24):
        engine.take(frame(100 + 5 * at, **(held if 4 <= at < 8 else free)))
    texts = [episode.worst.summary for episode in engine.episodes] + [
        episode.last.summary for episode in engine.episodes
    ]
    assert any("its driver is limited to 4 I/Os in flight" in text for text in texts)
    assert not any("has room" in text for text in texts)


def test_depths_alone_report_it_by_little_s_law():
    (finding,) = found(RULE, lasting(**waits(load=None)), [disk(limits=BFQ)])
    assert finding.share == pytest.approx(0.924, abs=0.001)
    assert next(fact.text for fact in finding.facts if fact.name == "wait_us").startswith("by Little's law")


@pytest.mark.parametrize(("queue_us", "fires"), [(480_000, False), (520_000, True)])
def test_where_the_kernel_does_not_count_waiting_ios_their_times_do(queue_us, fires):
    """4 IOPS: two wait on average where each waits for 500 ms."""
    measured = traced("sda", ((20, {"queue": queue_us, "hba": 50_000}),))
    frames = lasting(depths={"sda": depths({0: 4000, 4: 1000})}, kernel=done("sda", 20), traced=measured)
    findings = found(RULE, frames, [disk(limits=BFQ)])
    assert bool(findings) is fires
    for finding in findings:
        facts = {fact.name: fact for fact in finding.facts}
        assert facts["queued"].text == "2.1 wait above the driver on average by Little's law, from their times"
        assert facts["wait_us"].text.startswith("half of the waits are above ")
        assert finding.share == pytest.approx(0.91, abs=0.01)


def test_a_requeue_is_a_wait_above_the_driver_too():
    load = ((4000, {"queue": 5_000, "requeue": 40_000, "hba": 5_000}),)
    assert found(RULE, lasting(**waits(load)), [disk(limits=BFQ)])


@pytest.mark.parametrize(("queue_us", "fires"), [(39_000, False), (41_000, True)])
def test_the_share(queue_us, fires):
    load = ((4000, {"queue": queue_us, "hba": 50_000 - queue_us}),)
    assert bool(found(RULE, lasting(**waits(load)), [disk(limits=BFQ)])) is fires


@pytest.mark.parametrize(("queued", "fires"), [(1, False), (2, True)])
def test_how_many_wait(queued, fires):
    assert bool(found(RULE, lasting(**waits(queued=queued)), [disk(limits=BFQ)])) is fires


@pytest.mark.parametrize(("in_driver", "fires"), [(16, True), (17, False), (32, False)])
def test_a_driver_that_is_in_use_is_a_busy_device(in_driver, fires):
    assert bool(found(RULE, lasting(**waits(in_driver=in_driver)), [disk(limits=BFQ)])) is fires


@pytest.mark.parametrize(("us", "fires"), [(800, False), (1_100, True)])
def test_a_plug_takes_less(us, fires):
    load = ((4000, {"queue": us, "hba": us // 10}),)
    assert bool(found(RULE, lasting(**waits(load)), [disk(limits=BFQ)])) is fires


@pytest.mark.parametrize(("blocks", "fires"), [(1, False), (2, False), (3, True)])
def test_one_burst_is_none(blocks, fires):
    busy = [frame(100 + 5 * n, **waits()) for n in range(blocks)]
    idle = [frame(100 + 5 * n, depths={"sda": depths({0: 5000}, {0: 5000})}) for n in range(blocks, 12)]
    assert bool(found(RULE, [*busy, *idle], [disk(limits=BFQ)])) is fires


@pytest.mark.parametrize("limits", [{}, {"scheduler": "bfq"}])
def test_without_a_known_limit_there_is_no_finding(limits):
    assert not found(RULE, lasting(**waits()), [disk(limits=limits)])


def test_devices_that_fill_their_host_together_are_named():
    limits = BFQ | {"can_queue": (16, "host3/can_queue")}
    both = {
        "depths": {name: depths({8: 5000}, {72: 5000}) for name in ("sda", "sdb")},
        "histograms": timed("sda", LOAD) | timed("sdb", LOAD),
    }
    first, second = found(RULE, lasting(**both), [disk(name, limits) for name in ("sda", "sdb")])
    assert first.summary.endswith(
        "its own limit is not reached, but 2 devices fill the 16 of host3 together (can_queue)"
    )
    assert (second.device, "another adapter" in second.steps[0].text) == ("sdb", True)
    uneven = both | {"depths": both["depths"] | {"sda": depths({13: 5000}, {117: 5000}), "sdb": depths({3: 5000})}}
    assert [
        finding.device for finding in found(RULE, lasting(**uneven), [disk("sda", limits), disk("sdb", limits)])
    ] == ["sda"]
    (alone,) = found(RULE, lasting(**waits()), [disk("sda", limits), disk("sdb", limits)])
    assert "4 of 16 (can_queue)" in alone.summary


def test_solaris_has_no_cgroups():
    limits = {"un_throttle": (256, ""), "un_f_disksort_disabled": (0, "")}
    (finding,) = found(RULE, lasting(**waits()), [disk(limits=limits)], kernel="SunOS 5.11")
    assert "wsvc_t" in finding.steps[0].text
    assert len(finding.steps) == 1


def test_idle_and_unknown_devices_are_none():
    assert not found(RULE, lasting(), [disk(limits=BFQ)])
    assert not found(RULE, lasting(**waits()))


@pytest.mark.parametrize(("size", "fires"), [(131_071, True), (131_072, False)])
def test_a_few_large_ones_fill_a_ring_of_segments(size, fires):
    values = waits() | {"kernel": done("sda", 5000, size=size)}
    assert bool(found(RULE, lasting(**values), [disk(limits=BFQ)])) is fires
