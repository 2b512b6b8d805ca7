"""Probe scripts attached on their own, without latmon's process around them, and their output."""

import dataclasses
import json
import os
import selectors
import subprocess
import time
from pathlib import Path

from bpftraces import TIMEOUT_S, tool

from latmon.decode.framer import TracerFramer
from latmon.decode.tables import record
from latmon.manifest import STACKS, load
from latmon.model.frame import Thread
from latmon.support.paths import data_dir
from latmon_backends.bpftrace.program import BpftraceProgram
from latmon_backends.probe.launcher import Script, trace_devices

EVENTS = Path("/sys/kernel/tracing/events")
_SETTLED_S = 0.3
"""A script's buffers are read a few times a step; what is in them at its end is lost."""


def manifest(name):
    return load(data_dir("probes") / f"linux/{name}.yaml")


def has_event(name):
    """True where that can't be asked."""
    return not EVENTS.exists() or (EVENTS / name).exists()


def values(of, **given):
    """Every request of no device, and the hooks that this kernel has."""
    timer = has_event("irq_vectors/local_timer_entry")
    known = {"step_ms": 50, "gate_ns": 60_000_000_000, "one_in": 1, "timer_context": int(timer), **given}
    at = {"timer_entry": int(not timer), "timer_exit": int(not timer)}
    words = {p.name: p.words[at.get(p.name, 0)] for p in of.parameters if p.words}
    words["begin"] = "block_io_start" if has_event("block/block_io_start") else "block_getrq"
    return {p.name: known.get(p.name, words.get(p.name, p.low)) for p in of.parameters if p.default is None}


def every_stack(text):
    """Return a program that counts the stack of each completion."""
    changed = text.replace("& 63) == 0", "& 63) < 64")
    assert changed != text
    return changed


def counts(framer, spec, printed):
    """Return a map as its framer takes it."""
    return framer.by_stack(spec, printed) if spec.role in STACKS else {int(key): n for key, n in printed.items()}


def trace_only(process, number):
    """Have the program that runs trace one device, as latmon does."""
    assert trace_devices(process.pid, {number: True}), "the map of traced devices can't be written"


class Attached:
    """Some scripts as one program; `maps` are the last that they printed, `records` those of the whole run.

    No tick comes after the second: the maps come when it ends. `changed` makes of the program's text what is run;
    `device`: the number of the one that is traced.
    """

    def __init__(self, suite, directory, *manifests, changed=str, device=None, **given):
        self.manifests, self._device = manifests, device
        text = BpftraceProgram(tuple(Script(m, values(m, **given)) for m in manifests), 8192).text()
        command = dataclasses.replace(tool(suite, directory), map_keys=8192).command(changed(text))
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._said = b""
        self.maps, self.records = {}, []

    def __enter__(self):
        deadline = time.monotonic() + TIMEOUT_S
        sign = f"done {self.manifests[-1].name}".encode()
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            # Its second tick: every probe is attached by then.
            while self._said.count(sign) < 2:
                assert ready.select(deadline - time.monotonic()), f"it didn't start: {self._said[-500:]!r}"
                self._said += os.read(self._process.stdout.fileno(), 65536)
                assert self._process.poll() is None, "it ended"
        if self._device is not None:
            trace_only(self._process, self._device)
        return self

    def __exit__(self, *_exc):
        time.sleep(_SETTLED_S)
        # A line asks it to end and gives it its time; the end of the pipe gives it 1.4 s, not enough at times.
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        with self._process.stdin, self._process.stdout as remaining_stdout:
            self._said += remaining_stdout.read()
        assert self._process.wait(TIMEOUT_S) == 0, self._said[-300:]
        for line in self._said.decode().splitlines():
            self._hear(line)

    def _hear(self, line):
        reported = json.loads(line) if line.startswith("{") else {}
        match reported.get("type"), reported.get("data"):
            case "map", data:
                self.maps.update({name.removeprefix("@"): of for name, of in data.items()})
            case "printf", str(text):
                kind, probe, *_ = text.split(maxsplit=2)
                spec = next(m for m in self.manifests if m.name == probe).records.get(kind)
                if spec is not None:
                    self.records.append(record(text.removesuffix("\n"), spec))

    def reported(self, kind):
        return [record for record in self.records if record.kind == kind]

    def interval(self, name=lambda _: "disk"):
        (manifest,) = self.manifests
        framer = TracerFramer(manifest, name)
        for handler in self.reported("handler"):
            framer.handler(handler)
        for spec in manifest.maps:
            framer.printed(spec.name, counts(framer, spec, self.maps.get(spec.name, {})))
        return framer.interval(None, lambda pid: Thread(pid, "", "", -1))
