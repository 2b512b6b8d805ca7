"""A probe's script attached on its own, without latmon's process around it: its maps and records when it ended."""

import dataclasses
import json
import os
import selectors
import subprocess
import time
from pathlib import Path

from bpftraces import TIMEOUT_S, tool

from latmon.manifest import load
from latmon.records import record
from latmon.resources import data_dir

EVENTS = Path("/sys/kernel/tracing/events/block")


def manifest(name):
    return load(data_dir("probes") / f"linux/{name}.yaml")


class Attached:
    """`maps` are the last that it printed, `slow` its records; no tick after the second, the maps come when it ends.

    `changed` makes of the script's text what is run.
    """

    def __init__(self, suite, directory, manifest, changed=str, **values):
        self._manifest = manifest
        begin = "block_io_start" if (EVENTS / "block_io_start").exists() or not EVENTS.exists() else "block_getrq"
        fixed = {"step_ms": 50, "gate_ns": 60_000_000_000, "begin": begin, "one_in": 1, "threshold_us": 0, "any_dev": 0}
        text = manifest.program({**fixed, **dict.fromkeys(("dev0", "dev1", "dev2", "dev3"), 0), **values})
        command = dataclasses.replace(tool(suite, directory), map_keys=8192).command(changed(text))
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._said = b""
        self.maps, self.slow = {}, []

    def __enter__(self):
        deadline = time.monotonic() + TIMEOUT_S
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            # Its second tick: every probe is attached by then.
            while self._said.count(b"done ") < 2:
                assert ready.select(deadline - time.monotonic()), f"it didn't start: {self._said[-500:]!r}"
                self._said += os.read(self._process.stdout.fileno(), 65536)
                assert self._process.poll() is None, "it ended"
        return self

    def __exit__(self, *_exc):
        self._process.stdin.close()
        with self._process.stdout as rest:
            self._said += rest.read()
        assert self._process.wait(TIMEOUT_S) == 0
        for line in self._said.decode().splitlines():
            self._hear(line)

    def _hear(self, line):
        told = json.loads(line) if line.startswith("{") else {}
        match told.get("type"), told.get("data"):
            case "map", data:
                self.maps.update({name.removeprefix("@"): values for name, values in data.items()})
            case "printf", str(text) if text.startswith("slow "):
                self.slow.append(record(text.removesuffix("\n"), self._manifest.records["slow"]))
