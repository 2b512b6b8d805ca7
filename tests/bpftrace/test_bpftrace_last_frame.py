"""A frame of both probes: their tables together, and outliers that wait for records, but not beyond the last frame."""

from dataclasses import replace
from types import SimpleNamespace

from latmon.decode.framer import ProbeInterval, TracerInterval
from latmon.model.frame import Flow, Frame, Health, Outlier, Outstanding, Traced
from latmon.model.measurements import ABOVE
from latmon_backends.probe.outliers import HOLD, ReadyOutliers
from latmon_backends.probe.tick_protocol import Losses, TracerWindow
from latmon_backends.probe_backend import FrameJoiner
from latmon_backends.tracer.controller import TracerPart

FRAME = Frame(seq=1, wall=0.0, mono_us=2_000_000, dt_us=1_000_000)
READ, DM_READ = Flow("sda", "read"), Flow("dm-0", "read")
NOTHING_TRACED = TracerWindow()
SLOW = Outlier(0.0, 0, "sda", "read", 30_000)


class Waiting:
    """One outlier that is reported when nothing more can come of it."""

    def take(self, _records):
        pass

    def take_ready(self, _wall, _mono_us, hold, *, flood):  # noqa: ARG002
        return ReadyOutliers((SLOW,) if not hold else (), lost=hold)


def joining(counted=FRAME, tracer=NOTHING_TRACED, **tool):
    """Return a function that joins what the always-on probe counted and the tracer's window."""
    frames = SimpleNamespace(make=lambda *_: counted, selected_name=lambda _: None)
    on_demand = SimpleNamespace(
        runs=True, part=lambda frame: TracerPart(tracer, Traced(), in_flight=None, health=frame.health)
    )
    interrupts = SimpleNamespace(reported=lambda handlers, _: handlers)
    joiner = FrameJoiner(frames, on_demand, Waiting(), interrupts, dict, sample_us=4000, **tool)
    end = SimpleNamespace(sample=SimpleNamespace(undecoded=0))
    window = SimpleNamespace(records=(), interval=ProbeInterval(), losses=Losses(), end=end)
    manifest = SimpleNamespace(maps=(), clock="monotonic")
    return lambda **how: joiner.frame(window, manifest, Health(), **how)


def test_a_frame_has_the_tables_of_both_probes():
    counted = replace(FRAME, tables={ABOVE: {READ: 2}}, thresholds_us={"sda": 9_000, "dm-0": 1})
    interval = TracerInterval(tables={ABOVE: {READ: 1, DM_READ: 5}}, thresholds_us={"sda": 3, "dm-1": 20_000})
    gauge = {"sda": Outstanding(2, None)}
    frame = joining(counted, TracerWindow(interval), gauges=lambda sampled: {**sampled, **gauge})(taskqs=())
    assert frame[ABOVE] == {READ: 3, DM_READ: 5}
    assert frame.thresholds_us == {"sda": 9_000, "dm-0": 1, "dm-1": 20_000}
    assert (frame.outstanding, frame.taskqs) == (gauge, ())


def test_while_the_on_demand_probes_run_an_outlier_waits_for_them():
    waits = joining()()
    assert waits.outliers == ()
    assert (waits.health.lost_events, waits.health.dropped_records) == (0, HOLD)


def test_the_last_frame_has_all_that_still_waited():
    assert joining()(ending=True).outliers == (SLOW,)
