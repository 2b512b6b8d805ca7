"""tick-quantum: 3.966 ms at 250 Hz, and times that are as long for another reason."""

from dataclasses import replace

import pytest
from finding_cases import found, hist, lasting, timed, traced

from latmon.model.frame import Outlier
from latmon.model.measurements import SOFTIRQS
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns

RULE = "tick-quantum"
NEAR = (300, {"hba": 80, "irq": 5, "softirq": 3881})
"""3.966 ms: from 58225.458457 to 58225.462423."""


def polled(waits, raised="other", ran="timer", vector="IRQ_POLL"):
    n = sum(waits.values())
    return {SoftirqCpu(vector, 3): SoftirqRuns(hist(waits), hist({4: n}), {ran: n}, {raised: n})}


def tick(load=(NEAR,), hz=250, softirqs=None, path="IRQ_POLL softirq"):
    waits = {stages["softirq"]: n for n, stages in load if "softirq" in stages}
    reported = polled(waits) if softirqs is None and waits else softirqs or {}
    return found(RULE, lasting(traced=traced("nvme0n1", load, path=path), tables={SOFTIRQS: reported}), hz=hz)


def test_a_tick_less_what_came_before_it():
    (one,) = tick((NEAR, (6, {"hba": 80, "irq": 5, "softirq": 12})))
    assert (one.severity, one.device, one.where.screen) == ("critical", "nvme0n1", "stages")
    assert one.summary == (
        "nvme0n1: 98% of I/Os take 3.97 ms, just below one tick of 1/250 s, waiting for the softirq IRQ_POLL: it is "
        "raised outside of interrupts and runs only when the timer's interrupt ends"
    )
    facts = {fact.name: fact for fact in one.facts}
    assert facts["mode_us"].text == "they take 3.97 ms on average: 0.992 ticks"
    assert one.facts[0].name == "mode_us"
    assert facts["run_by_timer"].text == "IRQ_POLL was run by the timer's interrupt 3,672 times of 3,672"
    assert " /args->vec == 5/ " in one.steps[0].text
    assert (facts["run_by_timer"].value, facts["raised_outside"].of) == (3672, 3672)
    assert "may crash the kernel" in " ".join(step.risk for step in one.steps)


@pytest.mark.parametrize("hz", [1000, 300, 100, None])
def test_the_same_times_at_another_hz_are_no_tick(hz):
    assert not tick(hz=hz)


@pytest.mark.parametrize(
    ("us", "fires"),
    [
        pytest.param(3_700, False, id="below the band, in its first bucket"),
        pytest.param(3_830, True, id="in the band"),
        pytest.param(4_088, False, id="above the tick, in its bucket"),
        pytest.param(7_930, True, id="two ticks"),
        pytest.param(11_950, False, id="three"),
    ],
)
def test_a_bucket_is_wider_than_the_band(us, fires):
    load = ((300, {"hba": 80, "softirq": us - 80}),)
    assert bool(tick(load)) is fires


@pytest.mark.parametrize(
    "softirqs",
    [
        pytest.param(polled({3881: 300}, raised="irq"), id="raised in an interrupt"),
        pytest.param(polled({3881: 300}, ran="ksoftirqd"), id="ksoftirqd ran it"),
        pytest.param(polled({12: 300}), id="its own waits are short"),
        pytest.param(polled({3881: 300}, vector="NET_RX"), id="another vector"),
        pytest.param(polled({3881: 300, 12: 301, 1500: 34}), id="others wait for a part of the tick: a busy host"),
    ],
)
def test_the_softirq_must_report_the_same(softirqs):
    assert not tick(softirqs=softirqs)


@pytest.mark.parametrize(
    ("waiting", "fires"),
    [
        pytest.param(10, False, id="fewer than one in a hundred"),
        pytest.param(11, True, id="one in a hundred"),
    ],
)
def test_a_part_of_the_i_os_is_enough(waiting, fires):
    """The wait alone is the tick: its device's own times differ."""
    load = ((1000, {"hba": 300, "irq": 5, "softirq": 4}), (waiting, {"hba": 9000, "irq": 5, "softirq": 3950}))
    given_tick = tick(load, path="BLOCK softirq", softirqs=polled({3950: waiting}, vector="BLOCK"))
    assert bool(given_tick) is fires
    assert [one.severity for one in given_tick] == ["warning"] * fires
    assert not fires or given_tick[0].summary.startswith(
        "nvme0n1: 1% of I/Os wait just below one tick of 1/250 s (4 ms) for"
    )


def test_4_ms_in_the_device_are_no_wait_for_a_softirq_that_others_wait_for():
    load = ((300, {"hba": 3_950, "softirq": 6}), (30, {"hba": 80, "softirq": 12_000}))
    assert not tick(load, softirqs=polled({3881: 300}))


@pytest.mark.parametrize(
    ("hz", "device_us", "fires"),
    [
        pytest.param(250, 400, True, id="a slow device"),
        pytest.param(1000, 100, True, id="a plain NVMe at 1000 Hz"),
        pytest.param(1000, 480, True, id="nearly half of the tick"),
        pytest.param(1000, 510, False, id="more than half: the device's time"),
    ],
)
def test_the_wait_is_the_tick_less_the_device_s_time(hz, device_us, fires):
    total = 990_000 // hz
    load = tuple((100, {"hba": us, "softirq": total - us}) for us in (device_us - 20, device_us, device_us + 20))
    assert bool(tick(load, hz=hz)) is fires


@pytest.mark.parametrize(
    ("between", "fires"),
    [
        pytest.param(2, True, id="nine in ten of the long waits are a tick's"),
        pytest.param(3, False, id="fewer"),
    ],
)
def test_a_fifth_of_the_i_os_where_the_others_run_at_once(between, fires):
    fast = (80, {"hba": 80, "softirq": 6})
    load = (fast, (20, {"hba": 80, "softirq": 3881}))
    assert bool(tick(load, softirqs=polled({6: 80, 3881: 20, 1500: between}))) is fires


@pytest.mark.parametrize("hz", [0, 23, 10_001, 1_000_001, 10**9])
def test_a_recording_s_mistaken_hz(hz):
    assert not tick(hz=hz)


def test_whatever_the_config_says():
    for limits in ({"ios": 0, "share": 0}, {"below": 1}, {"below": 1.5, "narrow": 0, "ios": 0, "share": 0, "late": 0}):
        found(
            RULE, lasting(traced=traced("sda", (NEAR,)), tables={SOFTIRQS: polled({3881: 300})}), hz=250, limits=limits
        )
        found(RULE, lasting(histograms=timed("sda", (NEAR,))), hz=250, limits=limits)


def test_sums_that_disagree_are_all_of_the_time():
    frames = lasting(traced=traced("nvme0n1", ((300, {"softirq": 3_950, "total": 3_900}),), path="IRQ_POLL softirq"))
    (finding,) = found(RULE, [replace(frame, tables={SOFTIRQS: polled({3881: 300})}) for frame in frames], hz=250)
    assert finding.share == 1


def test_a_broad_distribution_has_no_mode():
    load = tuple((40, {"hba": 80, "softirq": us}) for us in range(2_000, 6_000, 100))
    assert not tick(load, softirqs=polled({3881: 300}))


@pytest.mark.parametrize(
    ("load", "severities"),
    [
        pytest.param(((300, {"hba": 3_966}),), ["notice"], id="all of it: may be the tick"),
        pytest.param(((300, {"hba": 4_010}),), [], id="not below the tick"),
        pytest.param(((300, {"hba": 3_966}), (400, {"hba": 80})), [], id="flushes of an SSD beside its reads"),
    ],
)
def test_without_on_demand_probes_it_is_a_notice_at_most(load, severities):
    frames = lasting(histograms=timed("nvme0n1", load))
    findings = found(RULE, frames, hz=250)
    assert [finding.severity for finding in findings] == severities
    assert all(finding.summary.endswith("is not known: softirqs are not traced") for finding in findings)


def test_a_likely_one_is_ranked_by_the_time_of_its_ios():
    load = ((300, {"hba": 3_966}), (40, {"hba": 30_000}))
    outlier = Outlier(1_700_000_100.0, 100_000_000, "nvme0n1", "read", 3_966, {"hba": 3_966})
    frames = lasting(histograms=timed("nvme0n1", load), outliers=(outlier,))
    (likely,) = found(RULE, frames, hz=250, limits={"most": 0.8})
    assert likely.share == pytest.approx(300 * 3_966 / (300 * 3_966 + 40 * 30_000), rel=0.05)


def test_a_device_that_completes_in_the_hard_interrupt_takes_4_ms_by_itself():
    assert not tick(((300, {"hba": 3_966}),), path="hard interrupt")


@pytest.mark.parametrize(
    ("ran", "named"),
    [
        (["IRQ_POLL"], "IRQ_POLL"),
        (["NET_RX"], "NET_RX"),
        (["NET_RX", "IRQ_POLL"], "IRQ_POLL"),
    ],
    ids=["the only one that ran", "no other one ran", "the network's runs on every host"],
)
def test_a_softirq_that_a_path_of_tier_c_does_not_name(ran, named):
    """Its script knows that the softirq was raised outside of a handler, not which one it was."""
    load = ((300, {"hba": 80, "softirq": 3_886}),)
    softirqs = {where: runs for one in ran for where, runs in polled({3_886: 300}, vector=one).items()}
    (one,) = tick(load, path="softirq raised outside of a handler", softirqs=softirqs)
    assert f"waiting for the softirq {named}" in one.summary
