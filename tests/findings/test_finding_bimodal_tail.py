"""bimodal-tail: a second mode far out, beside tails, pauses, mixes and slow media that are none."""

from dataclasses import replace
from random import Random

import pytest
from finding_cases import BEGIN_S, done, found, frame, hist, lasting, shifted
from like_drives import Pareto

from latmon.model.frame import Outlier, Series
from latmon_backends.demo.scenario import histogram

RULE = "bimodal-tail"
USUAL = {100: 9_000, 200: 900, 400: 100}


def reads(counts, op="read", device="sda"):
    return {Series(device, op, "total"): hist(counts)}


def evaluated(counts, blocks=12, op="read", **more):
    return found(RULE, lasting(blocks, histograms=reads(counts, op)), **more)


def test_a_far_mode_is_a_notice():
    (finding,) = evaluated({**{us: 100 * n for us, n in USUAL.items()}, 500_000: 5})
    assert (finding.severity, finding.device) == ("notice", "sda")
    assert finding.summary.startswith("sda: 60 of 12.0M reads take 492 ms or longer where half take less than 104 us")
    assert (finding.where.screen, finding.where.op, finding.where.low_us) == ("outliers", "read", 491_520)


def test_most_of_the_time_is_a_notice_still():
    """A write-back of large ones beside commits."""
    (finding,) = evaluated({**USUAL, 500_000: 5})
    assert finding.severity == "notice"
    assert finding.share > 0.6


@pytest.mark.parametrize(("us", "severity"), [(9_000_000, "notice"), (12_000_000, "warning")])
def test_ten_seconds_make_it_a_warning(us, severity):
    usual = {us: 3_000 * n for us, n in USUAL.items()}
    assert evaluated({**usual, us: 1})[0].severity == severity


def test_what_begins_later_is_counted_from_there():
    """The 3 I/Os at 200 ms are a twentieth of 60: the mode begins behind them."""
    frames = [frame(BEGIN_S + 5 * k, histograms=reads({**USUAL, 5_000_000: 5, 200_000: k < 2})) for k in range(12)]
    (finding,) = found(RULE, frames)
    assert finding.summary.startswith("sda: 60 of")
    assert evaluated({**USUAL, 500_000: 5}, limits={"between": 1.0})


def test_what_the_slow_ones_have_in_common_is_reported():
    slow = Outlier(0.0, 0, "sda", "read", 500_000, comm="kworker", bytes=1 << 20)
    frames = lasting(12, histograms=reads({**USUAL, 500_000: 5}), kernel=done("sda", 10_000), outliers=(slow,))
    facts = {fact.name: fact.text for fact in found(RULE, frames)[0].facts}
    assert facts["program"] == "kworker sent 12 of the 12 that were recorded"
    assert facts["larger"] == "12 of 12 recorded ones are far larger than the mean of 4.10k bytes"
    other = replace(slow, comm="", bytes=4096)
    plain = lasting(12, histograms=reads({**USUAL, 500_000: 5}), kernel=done("sda", 10_000), outliers=(other,))
    assert not {"program", "larger"} & {fact.name for fact in found(RULE, plain)[0].facts}


@pytest.mark.parametrize(("us", "n"), [(90_000, 0), (130_000, 1)])
def test_nearer_than_100_ms_is_none(us, n):
    assert len(evaluated({**USUAL, us: 5})) == n


@pytest.mark.parametrize(("us", "n"), [(250_000, 0), (400_000, 1)])
def test_five_doublings_lie_between(us, n):
    """A slow disk, whose median is 10 ms."""
    assert len(evaluated({10_000: 1_000, us: 5})) == n


@pytest.mark.parametrize(("ios", "n"), [(9, 0), (10, 1)])
def test_ten_ios_are_needed(ios, n):
    frames = [frame(BEGIN_S + 5 * k, histograms=reads({**USUAL, 500_000: k < ios})) for k in range(12)]
    assert len(found(RULE, frames)) == n


@pytest.mark.parametrize(("ios", "n"), [(100, 1), (102, 0)])
def test_more_than_a_hundredth_is_a_second_load(ios, n):
    assert len(evaluated({100: 10_000 - ios, 500_000: ios})) == n


def test_a_pause_of_the_device_is_over_after_a_block():
    frames = lasting(12, histograms=reads(USUAL))
    pause = shifted(lasting(2, histograms=reads({**USUAL, 1_000_000: 32})), 20)
    assert found(RULE, [*frames[:4], *pause, *frames[6:]]) == []
    assert len(found(RULE, [*frames[:4], *pause, *shifted(pause, 10), *frames[8:]])) == 1


@pytest.mark.parametrize(("between", "n"), [(0, 1), (3, 1), (4, 0)])
def test_what_lies_between_makes_it_a_tail(between, n):
    """A twentieth of 60 may."""
    frames = [frame(BEGIN_S + 5 * k, histograms=reads({**USUAL, 500_000: 5, 95_000: k < between})) for k in range(12)]
    assert len(found(RULE, frames)) == n


@pytest.mark.parametrize("alpha", [0.8, 1.2, 2.0])
def test_a_tail_that_thins_out_evenly_is_no_second_mode(alpha):
    rng = Random(5)
    frames = [
        frame(
            BEGIN_S + 5 * k,
            histograms={Series("sda", "read", "total"): histogram(Pareto(alpha=alpha).draw(rng, 20_000))},
        )
        for k in range(12)
    ]
    assert found(RULE, frames) == []


@pytest.mark.parametrize("op", ["flush", "discard", "other"])
def test_flushes_and_discards_take_what_they_take(op):
    assert evaluated({**USUAL, 500_000: 5}, op=op) == []


def test_the_op_with_more_of_the_time_is_reported():
    reported = {**reads({**USUAL, 500_000: 5}), **reads({**USUAL, 3_000_000: 5}, "write")}
    (finding,) = found(RULE, lasting(12, histograms=reported))
    assert finding.where.op == "write"


def test_an_empty_capture_has_no_finding():
    assert found(RULE, lasting(3)) == found(RULE, lasting(3, kernel=done("sda", 100))) == []


@pytest.mark.parametrize(
    ("hba_us", "device", "expected"),
    [
        pytest.param(490_000, "sda", {"smartctl -x": True, "if most of": False}, id="in driver and device"),
        pytest.param(10_000, "sda", {"smartctl -x": False, "if most of": False}, id="above the driver"),
        pytest.param(None, "sda", {"smartctl -x": True, "if most of": True}, id="stages are not known"),
        pytest.param(490_000, "loop0", {"smartctl -x": False, "the loop device's worker waits": True}, id="a worker"),
    ],
)
def test_the_drive_s_logs_are_advised_only_where_it_takes_the_time(hba_us, device, expected):
    stages = {} if hba_us is None else {"queue": 500_000 - hba_us, "hba": hba_us}
    slow = Outlier(0.0, 0, device, "read", 500_000, stages)
    (finding,) = found(RULE, lasting(12, histograms=reads({**USUAL, 500_000: 5}, device=device), outliers=(slow,)))
    text = " | ".join(step.text for step in finding.steps)
    assert {words: words in text for words in expected} == expected
