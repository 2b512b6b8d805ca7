"""24 drives: the rates of the max_vec table, and one slow drive whose mean is hardly higher."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from latmon.cli.main import run as main
from latmon.model.histogram import bucket_bounds, merge
from latmon.model.measurements import HANDLERS
from latmon.model.measurements.handlers import Handler
from latmon_backends.demo import qumulo
from latmon_backends.demo.qumulo import DRIVES, MB_S, PHASE, QUMULO, QUMULO_HEALTHY, SWITCH, VICTIM

EACH = 3
"""Windows of each phase."""
IRQ, SWITCH_IRQ = 109, 95


@pytest.fixture(scope="module")
def phases():
    rng = Random(1)
    hosts = [qumulo.probed_host() for _ in MB_S]
    return {
        max_vec: [qumulo.window(rng, at * PHASE + i, hosts[at]) for i in range(EACH)] for at, max_vec in enumerate(MB_S)
    }


@pytest.fixture(scope="module")
def healthy():
    return list(islice(QUMULO_HEALTHY.frames(Random(1)), EACH))


def totals(frames):
    drives = {s.device for s in frames[0].histograms}
    return {d: merge(h for f in frames for s, h in f.histograms.items() if s[::2] == (d, "total")) for d in drives}


def mb_s(frames):
    return sum(done.bytes for f in frames for done in f.seen.values()) / len(frames) / 1e6


def test_the_table(phases, healthy):
    assert [mb_s(frames) for frames in phases.values()] == pytest.approx([8_080, 5_540, 4_540], rel=0.01)
    assert mb_s(healthy) == pytest.approx(15_000, rel=0.01)


def test_one_of_24_is_slower_by_10_to_15_us_in_the_mean_and_far_slower_in_the_tail(phases, healthy):
    for frames in phases.values():
        actual_totals = totals(frames)
        others = [h for name, h in actual_totals.items() if name != VICTIM]
        assert len(actual_totals) == DRIVES
        mean = sum(h.mean for h in others) / len(others)
        assert 8 < actual_totals[VICTIM].mean - mean < 17  # few windows scatter more than a whole phase
        assert max(h.mean for h in others) - min(h.mean for h in others) < 2
        assert actual_totals[VICTIM].quantile(0.99) > 3 * max(h.quantile(0.99) for h in others)
        assert actual_totals[VICTIM].count == pytest.approx(sum(h.count for h in others) / len(others), rel=0.01)
    tails = {h.quantile(0.99) for h in totals(healthy).values()}
    assert max(tails) < 1.2 * min(tails)


def test_its_time_is_the_stranger_s_handler(phases, healthy):
    for frames in phases.values():
        for frame in frames:
            slow, ours = (
                frame[HANDLERS][Handler(SWITCH_IRQ, SWITCH)],
                frame[HANDLERS][Handler(IRQ, "nvme13q1")],
            )
            vmd = frame[HANDLERS][Handler(ours.caller, "vmd")]
            assert slow.caller == ours.caller
            assert (slow.run.count, slow.run.sum + slow.run.count) == (ours.run.count, ours.before_us)
            assert vmd.run.sum == ours.before_us + 2 * ours.run.count
            assert 5 < slow.run.mean < 20
            assert slow.returned["none"] > 0.9 * slow.run.count
            assert (slow.shared_with, ours.shared_with) == (("nvme13q1",), (SWITCH,))
            assert not any(
                runs.shared_with for one, runs in frame[HANDLERS].items() if one.irq not in (IRQ, SWITCH_IRQ)
            )
            irq = {s.device: h for s, h in frame.traced.histograms.items() if s.stage == "irq"}
            assert irq[VICTIM].sum == vmd.run.sum, "it begins where VMD's handler does"
            assert irq["nvme12n1"].max_bound == 4
    assert not any(one.name == SWITCH for frame in healthy for one in frame[HANDLERS])
    assert QUMULO.origin.settings == QUMULO_HEALTHY.origin.settings


def test_each_phase_begins_with_its_mark(phases):
    marks = [frames[0].marks[0] for frames in phases.values()]
    assert [mark.text for mark in marks] == ["max_vec=2", "max_vec=4", "max_vec=8"]
    assert [mark.changed for mark in marks[1:]] == [{"module vmd": {"max_vec": n}} for n in ("4", "8")]
    assert all(mark.mono_us == frames[0].mono_us - frames[0].dt_us for mark, frames in zip(marks, phases.values()))  # noqa: B905
    assert not any(frame.marks for frames in phases.values() for frame in frames[1:])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_averages_of_whole_phases_are_10_to_15_us_apart(seed):
    rng = Random(seed)
    for at in range(len(MB_S)):
        sums = {}
        probed = qumulo.probed_host()
        for actual_totals in (totals([qumulo.window(rng, at * PHASE + i, probed)]) for i in range(PHASE)):
            for name, total in actual_totals.items():
                ios, us = sums.get(name, (0, 0))
                sums[name] = ios + total.count, us + total.sum
        means = {name: us / ios for name, (ios, us) in sums.items()}
        slow = means.pop(VICTIM)
        assert 10 < slow - sum(means.values()) / len(means) < 15


def test_the_handler_s_mean_makes_10_to_15_us_of_each_phase():
    means = []
    for shape in qumulo._SWITCH_RUN.values():
        middle = ((p, sum(bucket_bounds(index)) / 2) for index, p in shape.odds)
        means.append(sum(p * us for p, us in middle))
    assert means == sorted(means)
    assert 10.5 < means[0] < means[-1] < 14.5, "with room for what 60 windows scatter"


@pytest.mark.slow
def test_the_sweep_of_its_marks(tmp_path, capsys):
    path = tmp_path / "q.latmon.jsonl.gz"
    assert main(["demo", "qumulo", "--record", str(path)]) == 0
    capsys.readouterr()
    main(["diff", *(f"{path}@max_vec={n}" for n in (2, 4, 8))])
    text = capsys.readouterr().out
    assert "module vmd max_vec" in text
    assert "falls" in text
