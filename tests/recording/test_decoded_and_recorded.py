"""The recording's decoder accepts whatever the text functions of a frame return."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latmon.decode.framer import TracerFramer
from latmon.decode.tables import record
from latmon.manifest import load
from latmon.model.frame import Device, Frame, Health, Missing, Traced
from latmon.model.histogram import Histogram
from latmon.model.measurements import HANDLERS, WAKEUPS
from latmon.model.measurements.handlers import Handler, HandlerRuns
from latmon.recording.codec import decode_frame, encode_frame, to_bytes
from latmon.recording.json_line import parse
from latmon.support.text import clean
from latmon_backends.kernel.interrupts import Interrupts
from latmon_backends.probe.outliers import Outliers, Threads

PROBES = Path(__file__).resolve().parents[2] / "probes/linux"
SCRIPTS = {one.name: one for one in (load(PROBES / f"{name}.yaml") for name in ("irqs_a", "stages_a", "wakeups_a"))}
ADDRESS = "0000:03:00.0"
KEYS = st.dictionaries(st.integers(0, 2**62), st.integers(1, 1000), max_size=300)
"""So many I/Os of 71 minutes and more that take 40 years together."""
FEW = settings(max_examples=25, deadline=None)


def read(frame):
    return decode_frame(parse(to_bytes(encode_frame(frame))))


@FEW
@given(
    st.lists(st.text(min_size=1, max_size=300), unique=True, max_size=200),
    st.lists(st.binary(min_size=1, max_size=300), max_size=200),
    st.text(max_size=5000),
)
def test_handlers_and_devices(tmp_path_factory, disks, actions, name):
    sys = tmp_path_factory.mktemp("sys")
    (sys / "kernel/irq/42").mkdir(parents=True)
    (sys / "kernel/irq/42/actions").write_bytes(b",".join(actions))
    (sys / f"bus/pci/devices/{ADDRESS}/msi_irqs").mkdir(parents=True)
    (sys / f"bus/pci/devices/{ADDRESS}/msi_irqs/42").write_text("msix\n")
    devices = {clean(disk): Device(clean(disk), 8, 0, controller=f"mpt3sas {ADDRESS}", model=name) for disk in disks}
    runs = {Handler(42, clean(name)): HandlerRuns(Histogram.of({5: 1}, 5))}
    made = Interrupts(sys).reported(runs, devices)
    reported = Frame(1, 1.0, 1, 1, tables={HANDLERS: made}, devices=tuple(devices.values()), gap=name)
    reported = replace(
        reported, health=Health(notice=name, recording=name), traced=Traced(absent=(Missing("hba", name),))
    )
    frame = read(reported)
    assert frame[HANDLERS] == made
    assert [device.name for device in frame.devices] == list(devices)


@pytest.mark.slow
@FEW
@given(st.data(), st.binary(max_size=200))
def test_whatever_the_maps_hold(tmp_path_factory, data, comm):
    proc = tmp_path_factory.mktemp("proc")
    threads = Threads(proc)
    for script in SCRIPTS.values():
        framer = TracerFramer(script, lambda number: f"dev{number}")
        for spec in script.maps:
            framer.printed(spec.name, data.draw(KEYS))
        for one in data.draw(st.lists(st.integers(0, 2**22), max_size=5)):
            (proc / str(one)).mkdir(exist_ok=True)
            (proc / str(one) / "stat").write_bytes(b"%d (%s) " % (one, comm) + b"S" + b" 0" * 50)
        tracer_interval = framer.interval(None, threads.of)
        frame = Frame(
            1,
            1.0,
            1,
            1,
            traced=tracer_interval.traced,
            tables={HANDLERS: tracer_interval[HANDLERS], WAKEUPS: tracer_interval[WAKEUPS]},
        )
        again = read(frame)
        assert (again[HANDLERS], again[WAKEUPS]) == (tracer_interval[HANDLERS], tracer_interval[WAKEUPS])
        assert again.traced.paths == tracer_interval.traced.paths


@FEW
@given(st.data(), st.integers(0, 150))
def test_whatever_records_say(tmp_path_factory, data, repeated):
    outliers = Outliers(SCRIPTS.values(), lambda number: f"dev{number}", Threads(tmp_path_factory.mktemp("proc")))
    always = load(PROBES / "block_a.yaml")
    outliers.add([always])
    done = 40_000_000_000
    given_fields = {"done_ns": done, "total_us": 30_000_000, "dev": 2**32 - 1, "request": 2**64 - 2, "rwbs": "WFSM"}
    thread = data.draw(st.integers(1, 2**32 - 2))

    def line(kind, script, **known):
        spec = script.records[kind]
        words = [str(known.get(name, data.draw(st.integers(-1, 139)))) for name in spec.fields]
        return record(" ".join([kind, script.name, *words, data.draw(st.text(max_size=300))]), spec)

    late = {"thread": thread, "woken_ns": done - 20_000_000_000, "delay_us": 1000, "instead": 2**32 - 2}
    lines = [line("late", SCRIPTS["wakeups_a"], **late) for _ in range(3)]
    lines += [line("slow", manifest, **given_fields, thread=thread) for manifest in (always, SCRIPTS["stages_a"])]
    reported = [line for line in lines if line is not None]
    outliers.take([*reported, *[record for record in reported if record.kind == "late"] * repeated])
    actual_outliers = outliers.take_ready(1_700_000_000.0, 50_000_000, 0).outliers
    assert read(Frame(1, 1.0, 1, 1, outliers=actual_outliers)).outliers == actual_outliers
