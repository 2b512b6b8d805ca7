"""stages_a and the scripts beside it on a disk of our own: requests are followed, stages add up, issuers are known.

The host's bpftrace by default, 0.23 and 0.27 under the marker `versions`; raw tracepoints came with 0.18.
"""

import dataclasses
import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from attached import counts, every_stack, trace_only
from bpftraces import TIMEOUT_S, each_bpftrace, tool
from test_stages_c import FLUSHES, WRITES, loop, number, write  # noqa: F401 - a fixture is found by its name

from latmon.decode.framer import TracerFramer
from latmon.decode.tables import record
from latmon.manifest import load
from latmon.model.frame import UNACCOUNTED, Series
from latmon.support.paths import data_dir
from latmon_backends.bpftrace.program import BpftraceProgram
from latmon_backends.probe.launcher import SAMPLE, Script, trace_devices

DIRECTORY = data_dir("probes") / "linux"
MANIFEST = load(DIRECTORY / "stages_a.yaml")
SCRIPTS = ("stages_a", "who_a", "csd_a", "workers_a")
"""Without those for drivers' modules, which may not be loaded."""
VALUES = {
    "step_ms": 50,
    "gate_ns": 60_000_000_000,
    "disk": "q->disk",
    "request": "arg0",
    "prev": "arg1",
    "next": "arg2",
    "one_in": 1,
    "any_dev": 0,
    "sample_us": 1000,
    "read_one_in": 1,
}
STAGES = ("queue", "requeue", "worker", "hba", "irq", "softirq", "completion")
IO_START = Path("/sys/kernel/tracing/events/block/block_io_start")


def program(names, **values):
    manifests = [load(DIRECTORY / f"{name}.yaml") for name in names]
    given = {**VALUES, "threshold_us": 0, **values}
    return BpftraceProgram(
        tuple(
            Script(manifest, {p.name: given[p.name] for p in manifest.parameters if p.default is None})
            for manifest in manifests
        ),
        8192,
    )


def refused(errors):
    """It ended before its first ticks: skips where this bpftrace doesn't find what the kernel has.

    `errors` is a file: a pipe that is not read stops its writer.
    """
    why = errors.read_text(errors="replace")
    assert "no valid attach points" in why or "does not exist" in why, why
    pytest.skip(f"refused: {why.splitlines()[0]}")


class Run:
    """The scripts attached to one device; `traced` and `slow` are from their last output."""

    def __init__(self, suite, directory, device, **values):
        self._device = number(device)
        bpftrace_tool = tool(suite, directory)
        if bpftrace_tool.version < "0.19":
            pytest.skip(f"bpftrace {bpftrace_tool.version} has no raw tracepoints with a clock")
        text = every_stack(program(SCRIPTS, **values).text())
        self._output, self._errors = directory / "said", directory / "errors"
        with self._output.open("w") as output, self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                dataclasses.replace(bpftrace_tool, map_keys=8192).command(text),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        self.slow = []

    def __enter__(self):
        deadline = time.monotonic() + TIMEOUT_S
        # Its second tick: every probe is attached by then.
        while self._output.read_text(errors="replace").count("done stages_a") < 2:
            if self._process.poll() is not None:
                refused(self._errors)
            assert time.monotonic() < deadline, "it didn't start"
            time.sleep(0.05)
        trace_only(self._process, self._device)
        return self

    def __exit__(self, *_exc):
        self._process.stdin.close()
        assert self._process.wait(TIMEOUT_S) == 0
        framer = TracerFramer(MANIFEST, {self._device: "disk"}.get)
        maps = {}
        for line in self._output.read_text(errors="replace").splitlines():
            reported = json.loads(line) if line.startswith("{") else {}
            if reported.get("type") == "map":
                maps.update({name.removeprefix("@"): values for name, values in reported["data"].items()})
            elif str(reported.get("data")).startswith("slow "):
                self.slow.append(record(reported["data"].removesuffix("\n"), MANIFEST.records["slow"]))
        for spec in MANIFEST.maps:
            framer.printed(spec.name, counts(framer, spec, maps.get(spec.name, {})))
        self.traced = framer.interval(None, lambda _: pytest.fail("no thread is in its maps")).traced


def writes(traced, stage):
    histogram = traced.histograms.get(Series("disk", "write", stage))
    return histogram.count if histogram else 0


def spent(traced, stage, op):
    return sum(traced.by_total.get(Series("disk", op, stage), {}).values())


@each_bpftrace
def test_every_request_is_followed_and_its_stages_add_up(suite, loop, tmp_path):  # noqa: F811
    # From 1 us on every I/O is slow: as many records as there are tokens.
    with Run(suite, tmp_path, loop, threshold_us=1) as run:
        write(loop.path)
    assert run.traced.off == 0
    done = writes(run.traced, "total")
    # The kernel skips a few programs, seldom more than one in a hundred.
    assert WRITES * 0.95 <= done <= WRITES + FLUSHES
    assert writes(run.traced, "hba") + writes(run.traced, UNACCOUNTED) == done
    assert writes(run.traced, "hba") >= done * 0.95
    # The total's sum comes from the two ends alone; each stage is cut to whole microseconds.
    for op in ("write", "flush"):
        total = run.traced.histograms[Series("disk", op, "total")]
        missing = total.sum - sum(spent(run.traced, stage, op) for stage in (*STAGES, UNACCOUNTED))
        assert total.sum > 0
        assert abs(missing) <= 2 * total.count
    # A loop device's worker ends them through BLOCK softirq, and no interrupt has a part in it.
    assert set(run.traced.paths) == {"disk"}
    assert max(run.traced.paths["disk"], key=run.traced.paths["disk"].get) == "BLOCK softirq"
    assert run.traced.histograms[Series("disk", "flush", "total")].count >= FLUSHES * 0.8
    assert sum(run.traced.completers["disk"].values()) == sum(run.traced.paths["disk"].values())
    assert all("blk_done_softirq" in chain for chain in run.traced.completers["disk"])
    assert run.slow
    for one in run.slow:
        reported = one.fields
        parts = [reported.get(f"{stage}_us", 0) for stage in (*STAGES, UNACCOUNTED)]
        assert sum(parts) == reported["total_us"]
        assert reported["done_ns"] - reported["begun_ns"] == pytest.approx(reported["total_us"] * 1000, abs=1000)
    ours = [one for one in run.slow if one.fields["op"] == 1]
    assert {one.fields["pid"] for one in ours} == {os.getpid()}


@each_bpftrace
def test_one_request_in_so_many_is_traced(suite, loop, tmp_path):  # noqa: F811
    with Run(suite, tmp_path, loop, one_in=8) as run:
        write(loop.path)
    # 400 writes: 50 on average, and 7 is their standard deviation.
    assert 15 <= writes(run.traced, "total") <= 100
    assert spent(run.traced, "hba", "write") > 0


@each_bpftrace
def test_the_sample_changes_while_it_runs_and_slow_ones_are_reported_always(suite, loop, tmp_path):  # noqa: F811
    """Of 400 writes one in 1024 is counted; which are slow is decided before."""
    with Run(suite, tmp_path, loop, threshold_us=1) as run:
        assert trace_devices(run._process.pid, {SAMPLE: 1023})
        write(loop.path)
        time.sleep(0.2)
    counted = writes(run.traced, "total")
    assert counted <= 10
    assert len([one for one in run.slow if one.get("hba_us") is not None]) > max(20, counted)
    assert sum(run.traced.paths.get("disk", {}).values()) <= counted


@each_bpftrace
def test_the_traced_devices_change_while_it_runs(suite, loop, tmp_path):  # noqa: F811
    with Run(suite, tmp_path, loop) as run:
        write(loop.path)
        assert trace_devices(run._process.pid, {number(loop): False, 1: True})
        write(loop.path)
        assert trace_devices(run._process.pid, {number(loop): True})
        write(loop.path)
    assert writes(run.traced, "total") == 2 * WRITES
    assert not trace_devices(os.getpid(), {1: True}), "no map of traced devices"


@each_bpftrace
def test_a_device_that_is_not_asked_for_is_not_traced(suite, loop, tmp_path):  # noqa: F811
    with Run(suite, tmp_path, loop) as run:
        os.sync()
    assert set(run.traced.paths) <= {"disk"}


def test_the_scripts_for_drivers_make_one_program():
    text = program((*SCRIPTS, "scsi_a", "nvme_a")).text()
    assert text.count("BEGIN") == 1
    assert text.count("rawtracepoint:") == len([line for line in text.splitlines() if line.startswith("rawtrace")])
    assert "{{" not in text
