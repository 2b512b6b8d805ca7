"""softirq-delay: slow I/Os that wait for their softirq, and busy hosts on which some do."""

from dataclasses import replace

import pytest
from finding_cases import BEGIN_S, S, facts_of, found, frame, hist, lasting, traced

from latmon.findings import evidence
from latmon.findings.rules import RULES
from latmon.model.frame import Device, Outlier, Thread, Wait
from latmon.model.measurements import HANDLERS, SOFTIRQS, WAKEUPS
from latmon.model.measurements.handlers import Handler, HandlerRuns
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns
from latmon.model.measurements.wakeups import Wakeups, by_thread
from latmon_backends.fleet.merge import HostFrame, merged_frame

RULE = "softirq-delay"
FAST = (1000, {"hba": 90, "irq": 5, "softirq": 6})
SLOW = {"thresholds_us": {"sda": 2_000}}
HOG = "hog (prio 49)"


def delayed(us=20_000, n=2, hba=90, blocks=12, raisers=None, *, woken=(), **values):
    waits = SoftirqRuns(hist({4: 1000, us: n}), hist({5: 1000 + n}), {"irq_exit": 1000, "ksoftirqd": n}, {"irq": 1000})
    load = (FAST, (n, {"hba": hba, "irq": 5, "softirq": us}))
    traced_disk = replace(traced("sda", load, path="BLOCK softirq"), raisers=raisers or {})
    tables = {SOFTIRQS: {SoftirqCpu("BLOCK", 1): waits}, WAKEUPS: by_thread(woken)}
    bad = lasting(traced=traced_disk, tables=tables, **SLOW, **values)
    quiet = lasting(traced=traced("sda", (FAST,), path="BLOCK softirq"), **SLOW)
    return found(RULE, [*quiet[: 12 - blocks], *bad[12 - blocks :]])


def test_on_a_host_of_a_fleet_its_own_softirqs_and_threads_are_named():
    waits = SoftirqRuns(hist({4: 1000, 20_000: 2}), hist({5: 1002}), {"ksoftirqd": 2}, {"irq": 1000})
    load = (FAST, (2, {"hba": 90, "irq": 5, "softirq": 20_000}))
    disk = replace(traced("sda", load, path="BLOCK softirq"), raisers={"BLOCK": {"f < g": 4}})
    thread = Wakeups(Thread(17, "ksoftirqd/1", "other", 120), hist({20_000: 2}), {HOG: 2}, {HOG: 40_000})
    softirqs = {SoftirqCpu("BLOCK", 1): waits}
    frames = [
        merged_frame(
            [HostFrame(label, frame, 0, number=at) for at, label in enumerate(("a", "b"))],
            seq=frame.seq,
            wall=frame.wall,
            mono_us=frame.mono_us,
            dt_us=frame.dt_us,
        )[0]
        for frame in lasting(traced=disk, tables={SOFTIRQS: softirqs, WAKEUPS: by_thread((thread,))}, **SLOW)
    ]
    first, second = sorted(found(RULE, frames, backend="fleet"), key=lambda finding: finding.device)
    assert (first.device, second.device) == ("a:sda", "b:sda")
    assert "the softirq a:BLOCK" in first.summary
    assert first.summary.endswith("on CPU 1: hog (prio 49) ran there instead of ksoftirqd")
    (raiser,) = [fact for fact in second.facts if fact.name == "raiser"]
    assert raiser.text == "48 of 48 raises outside of interrupts are by f < g"


def test_vector_cpu_and_who_ran_instead():
    (one,) = delayed(
        woken=(Wakeups(Thread(17, "ksoftirqd/1", "other", 120), hist({20_000: 2}), {HOG: 2}, {HOG: 40_000}),)
    )
    assert (one.severity, one.device, one.where.low_us) == ("warning", "sda", 2048)
    assert one.summary == (
        "sda: >99% of the time of I/Os above 2.05 ms is a wait for the softirq BLOCK, 20 ms on average, the longest "
        "on CPU 1: hog (prio 49) ran there instead of ksoftirqd"
    )
    facts = {fact.name: fact for fact in one.facts}
    assert (facts["wait_mean"].of, facts["vector_p99"].of) == (24, 12_024)
    assert facts["ran_in"].text == "it is mostly run by the end of an interrupt: 12,000 of 12,024"
    assert all(step.risk for step in one.steps)
    assert one.share == pytest.approx(2 * 20_000 / (1000 * 101 + 2 * 20_095), rel=0.1), "of the device's I/O time"


def test_the_functions_that_raise_it_outside_of_interrupts_are_named():
    bad = delayed(raisers={"BLOCK": {"lo_rw_aio < loop_process_work": 3, "f < g": 1}, "TIMER": {"x": 99}})
    (fact,) = [fact for fact in bad[0].facts if fact.name == "raiser"]
    assert fact.text == "36 of 48 raises outside of interrupts are by lo_rw_aio < loop_process_work"
    assert not [fact for fact in delayed()[0].facts if fact.name == "raiser"]


def test_an_outlier_s_own_wait_names_the_hog():
    wait = Wait("softirq", "ksoftirqd/1", 17, 120, BEGIN_S * S, 19_000, "other (prio 10)")
    row = Outlier(1.0, BEGIN_S * S, "sda", "read", 20_100, {"softirq": 20_000}, waits=(wait,))
    (one,) = delayed(outliers=(row,))
    assert one.summary.endswith("on CPU 1: ksoftirqd ran after other (prio 10)")
    assert not [step for step in one.steps if "other (prio" in step.text]


def test_the_thread_that_ran_longest_is_named_not_the_last_one():
    wait = Wait("softirq", "ksoftirqd/1", 17, 120, BEGIN_S * S, 19_000, "other (prio 10)")
    row = Outlier(1.0, BEGIN_S * S, "sda", "read", 20_100, {"softirq": 20_000}, waits=(wait,))
    late = Wakeups(Thread(17, "ksoftirqd/1", "other", 120), hist({20_000: 2}), {"other (prio 10)": 2})
    (one,) = delayed(outliers=(row,), woken=(replace(late, ran_us={HOG: 24_000, "other (prio 10)": 16_000}),))
    assert one.summary.endswith("on CPU 1: mostly hog (prio 49) ran there instead of ksoftirqd")
    assert "hog (prio 49) ran on its CPU for 288 ms of 480 ms" in [fact.text for fact in one.facts]


def test_waits_on_that_cpu_are_added_up_by_thread():
    """Eight waits of 19 ms behind one thread, one of 40 ms behind another; and more of them on another CPU."""
    waits = [(1, 19_000, "busy (prio 39)")] * 7 + [(1, 19_000, "busy (prio 40)"), (1, 40_000, "chronyd (prio 120)")]
    waits += [(0, 90_000, "chronyd (prio 120)")] * 2
    rows = tuple(
        Outlier(1.0, BEGIN_S * S, "sda", "read", us + 100, {"softirq": us}, waits=(wait,))
        for cpu, us, instead in waits
        for wait in (Wait("softirq", f"ksoftirqd/{cpu}", 16 + cpu, 120, BEGIN_S * S, us, instead),)
    )
    (one,) = delayed(outliers=rows)
    assert one.summary.endswith("on CPU 1: ksoftirqd ran after busy (prio 39)")


def test_half_a_second_is_critical():
    assert [one.severity for one in delayed(us=500_000)] == ["critical"]


@pytest.mark.parametrize(
    ("changed", "fires"),
    [
        pytest.param({"us": 5_000}, True, id="5 ms"),
        pytest.param({"us": 4_900}, False, id="less than 5 ms: a busy host"),
        pytest.param({"hba": 19_000}, True, id="half of the time"),
        pytest.param({"hba": 21_000}, False, id="less than half"),
        pytest.param({"blocks": 5}, True, id="ten I/Os"),
        pytest.param({"blocks": 4}, False, id="eight"),
        pytest.param({"blocks": 3, "n": 20}, True, id="in three blocks"),
        pytest.param({"blocks": 2, "n": 20}, False, id="a burst that comes once"),
    ],
)
def test_thresholds(changed, fires):
    assert bool(delayed(**changed)) is fires


@pytest.mark.parametrize(("bad", "fires"), [(1, False), (2, False), (3, True)])
def test_a_start_and_minutes_need_as_many_blocks(bad, fires):
    """After a start, after a hole, and by minutes: one burst is one block, however long that is."""
    values = {"traced": traced("sda", (FAST, (20, {"hba": 90, "softirq": 20_000}))), **SLOW}
    assert bool(found(RULE, lasting(bad, **values))) is fires
    minutes = [frame(BEGIN_S + 60 * n, dt_us=60 * S, **values) for n in range(bad)]
    assert bool(found(RULE, minutes)) is fires


def test_without_the_table_the_stage_alone_reports_it():
    load = (FAST, (2, {"hba": 90, "softirq": 20_000}))
    (finding,) = found(RULE, lasting(traced=traced("sda", load), **SLOW))
    assert finding.summary.endswith("is a wait for the softirq that completes them, 20 ms on average")


def test_a_tick_explains_it():
    assert next(rule for rule in RULES if rule.id == RULE).explained_by == ("tick-quantum",)


def test_an_interrupts_thread_serves_devices_of_its_own_host():
    runs = HandlerRuns(hist({5: 10}), device="a:0000:00:1f.2")
    disks = [Device(f"{host}:sda", 8, 0, driver="ahci", controller=f"{host}:host0 0000:00:1f.2") for host in "ab"]
    facts = facts_of(lasting(tables={HANDLERS: {Handler(34, "a:ahci"): runs}}), disks, backend="fleet")
    assert evidence.devices_of(facts, runs.device) == ("a:sda",)
    assert evidence.serves(facts, "a:irq/34-ahci", "a:sda")
    assert not evidence.serves(facts, "a:irq/34-ahci", "b:sda")
