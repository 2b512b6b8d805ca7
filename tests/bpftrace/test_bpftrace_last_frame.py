"""Outliers wait for their records from the tracer, but not beyond the last frame."""

from types import SimpleNamespace

import pytest

from latmon.decode.framer import ProbeInterval
from latmon.model.frame import Frame, Health, Outlier
from latmon_backends.probe.outliers import HOLD, ReadyOutliers
from latmon_backends.probe.tick_protocol import Losses, TracerWindow
from latmon_backends.probe_backend import FrameJoiner

FRAME = Frame(seq=1, wall=0.0, mono_us=2_000_000, dt_us=1_000_000)
SLOW = Outlier(0.0, 0, "sda", "read", 30_000)


class Waiting:
    """One outlier that is reported when nothing more can come of it."""

    def take(self, _records):
        pass

    def take_ready(self, _wall, _mono_us, hold, *, flood):  # noqa: ARG002
        return ReadyOutliers((SLOW,) if not hold else (), lost=hold)


@pytest.fixture
def frame():
    frames = SimpleNamespace(make=lambda *_, **__: FRAME, selected_name=lambda _: None)
    on_demand = SimpleNamespace(runs=True, taken=lambda _: TracerWindow(), add_to=lambda frame, _: frame)
    interrupts = SimpleNamespace(reported=lambda handlers, _: handlers)
    joining = FrameJoiner(frames, on_demand, Waiting(), interrupts, dict, stages=(), sample_us=4000)
    end = SimpleNamespace(sample=SimpleNamespace(undecoded=0))
    window = SimpleNamespace(records=(), interval=ProbeInterval(), losses=Losses(), end=end)
    manifest = SimpleNamespace(maps=(), clock="monotonic")
    return lambda **how: joining.frame(window, manifest, Health(), **how)


def test_while_the_on_demand_probes_run_an_outlier_waits_for_them(frame):
    waits = frame()
    assert waits.outliers == ()
    assert (waits.health.lost_events, waits.health.dropped_records) == (0, HOLD)


def test_the_last_frame_has_all_that_still_waited(frame):
    assert frame(ending=True).outliers == (SLOW,)
