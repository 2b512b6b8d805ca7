"""Every incident: a seed decides it, its tables agree, and its recording is clean."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import islice
from random import Random

import pytest

from latmon.cli import check, headless
from latmon.model.frame import STAGES, UNACCOUNTED, Flow, Frame
from latmon.model.measurements import ABOVE, ISSUERS
from latmon.support.text import is_clean
from latmon_backends.demo.backend import INCIDENTS, SCENARIOS, DemoBackend

FEW = 2
LATER = (
    pytest.param("emulex", 1, marks=pytest.mark.slow),
    pytest.param("qumulo", 60, marks=pytest.mark.slow),
    pytest.param("bubbles", INCIDENTS["bubbles"].windows - 1, marks=pytest.mark.slow),
    pytest.param("bubbles-healthy", INCIDENTS["bubbles-healthy"].windows - 1, marks=pytest.mark.slow),
)
"""A drain, the first window of a phase, and how a test ends."""
each = pytest.mark.parametrize("name", INCIDENTS)


def drawn(name: str, seed: int = 1) -> list[Frame]:
    return list(islice(INCIDENTS[name].frames(Random(seed)), FEW))


first = cache(drawn)


@each
def test_a_seed_decides_every_frame(name):
    assert first(name) == drawn(name)
    assert first(name) != drawn(name, seed=2)


@each
def test_it_is_named_in_a_sentence_and_says_that_it_is_synthetic(name):
    incident = INCIDENTS[name]
    assert SCENARIOS[name] == incident.purpose
    assert incident.purpose.endswith(".")
    assert len(incident.purpose) < 180
    assert incident.origin.reason.startswith("synthetic")
    assert DemoBackend(name, seed=4).origin.tool == f"{name}, seed 4"
    if incident.healthy:
        assert not INCIDENTS[incident.healthy].healthy


@each
def test_windows_follow_each_other(name):
    frames, origin = first(name), INCIDENTS[name].origin
    assert frames[0].mono_us == origin.start_mono_us + origin.interval_us
    for seq, frame in enumerate(frames):
        assert frame.seq == seq
        assert frame.mono_us == origin.start_mono_us + (seq + 1) * origin.interval_us
        assert frame.wall == pytest.approx(origin.start_wall + (frame.mono_us - origin.start_mono_us) / 1e6)
        assert bool(frame.devices) == (seq == 0)


def agree(name: str, frames: Iterable[Frame]) -> None:
    known = {device.name for device in first(name)[0].devices}
    for frame in frames:
        for series, total in frame.histograms.items():
            assert series.device in known
            assert is_clean(series.device)
            if series.stage != "total":
                continue
            stages = [s for s in INCIDENTS[name].origin.measured if s not in ("total", "requeue")]
            parts = [frame.histograms[series._replace(stage=stage)] for stage in stages]
            assert {part.count for part in parts} == {total.count}
            assert total.sum is None or sum(part.sum for part in parts) == total.sum
            assert total.count == frame.seen[Flow(*series[:2])].count <= frame.kernel[Flow(*series[:2])].count
        for series, total in frame.traced.histograms.items():
            if series.stage != "total":
                continue
            stages = [s for s in (*STAGES, UNACCOUNTED) if s not in ("total", "resume")]
            parts = [series._replace(stage=stage) for stage in stages]
            assert sum(frame.traced.histograms[s].sum for s in parts if s in frame.traced.histograms) == total.sum
            assert sum(sum(frame.traced.by_total.get(s, {}).values()) for s in parts) == total.sum
        for outlier in frame.outliers:
            assert sum(outlier.stages_us.values()) + outlier.unaccounted_us == outlier.total_us
            assert outlier.total_us > frame.thresholds_us[outlier.device]
        assert sum(frame[ABOVE].values()) == len(frame.outliers) + frame.health.suppressed
        for device, depths in frame.depths.items():
            begun = sum(frame.seen[flow].count for flow in frame.seen if flow.device == device)
            assert not depths.at_issue or sum(depths.at_issue.values()) == begun


@each
def test_its_tables_agree(name):
    agree(name, first(name))


@pytest.mark.parametrize(("name", "seq"), LATER)
def test_they_do_where_something_happens_too(name, seq):
    frame = next(islice(INCIDENTS[name].frames(Random(1)), seq, None))
    agree(name, [frame])


@each
def test_its_recording_is_clean(name, tmp_path, capsys):
    path = tmp_path / "f.latmon.jsonl.gz"
    assert headless.record_demo(name, 1, path, 1_000_000) == 0
    assert check.check_command([path], None) == 0
    assert "clean    everything" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("emulex", {"requeue", "softirq", "resume", "worker"}),
        ("e810", {"worker"}),
        ("qumulo", {"resume"}),
        ("bubbles", set()),
    ],
)
def test_a_stage_that_its_scripts_do_not_measure_is_absent_with_its_reason(name, absent):
    for frame in first(name):
        assert {one.name for one in frame.traced.absent} == absent
        assert all(one.reason for one in frame.traced.absent)


@pytest.mark.parametrize(("name", "comm"), [("e810", "fio"), ("qumulo", "fsd")])
def test_incidents_of_linux_have_the_processes_that_their_scripts_count(name, comm):
    """With I/Os and bytes; only the scripts of tier A time them."""
    last = list(islice(INCIDENTS[name].frames(Random(1)), 3))[-1]
    issued_ios_by_issuer = {issuer: done for issuer, done in last[ISSUERS].items() if issuer.is_process and issuer.pid}
    assert {issued_io.comm for issued_io in issued_ios_by_issuer} == {comm}
    assert all(
        done.count and done.bytes and bool(done.latency) == (name == "qumulo") for done in issued_ios_by_issuer.values()
    )
