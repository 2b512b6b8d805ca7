"""The D scripts that can run on Linux, with a real DTrace: they compile, they speak the protocol, and they count.

Nothing here needs latmon's own reader of DTrace: lines are checked by the few patterns below. DTrace is the one of
LATMON_DTRACE, else of tests/lab/dtrace-in.
"""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_dtrace import manifests
from workload import LoopDevice, diskstats, gained

from latmon_backends.dtrace.program import fillings

pytestmark = [
    pytest.mark.dtrace,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: DTrace runs for no other user"),
    pytest.mark.skipif(shutil.which("fio") is None, reason="needs fio"),
]
ROOT = Path(__file__).resolve().parents[2]
DTRACE = os.environ.get("LATMON_DTRACE") or str(ROOT / "tests/lab/dtrace-in")
SCRIPTS = {found.name: found for found in manifests() if found.path.parent.name == "dtrace"}
NUMBERS = {
    "step_ms": 100,
    "gate_ns": 400_000_000,
    "threshold_us": 0,
}
"""What its numbers are; words are those of Linux."""
STARTING_S, ENDING_S = 60.0, 60.0
IOS = 60_000
LEAST = 0.995
ATTEMPTS = 3
"""A CPU that is taken away from this host for a while loses events of every tool."""
ROW = re.compile(r"\s*(?:<=? |>= |abs\(\) < )?-?\d+ +[@ ]*\|[@ ]* +(-?\d+) *")
VALUES = re.compile(r"@@S (\w+)\t(?:[^\t]+\t)+-?\d+")
TABLE = re.compile(r"@@Q (\w+)\t(?:[^\t]+\t)+")
SIGN = re.compile(r"@@ (ready|tick|done|last) (\w+)(?: \d+)*")
RECORD = re.compile(r"@@ (\w+) (\w+) (.+)")
TITLE = "------------- Distribution -------------"


def values(found):
    numbers = {p.name: NUMBERS[p.name] for p in found.parameters if not p.words}
    return next(fillings(found, numbers, "linux")).values


@dataclass(frozen=True)
class Tick:
    sign: str
    number: int
    at_ns: int
    maps: dict[tuple[str, ...], int]
    """A map's name and key -> its value, or how many a table counts."""


def parsed(text, found):
    """(its ticks, the last one last; how many records of each kind); fails on a line that isn't the protocol's."""
    ticks, records, table = [], Counter(), None
    roles = {spec.name for spec in found.maps}
    for line in text.splitlines():
        if table is not None and (row := ROW.fullmatch(line)):
            ticks[-1].maps[table] += int(row[1])
        elif line == "@@E":
            table = None
        elif begun := TABLE.fullmatch(line):
            assert begun[1] in roles
            table = (begun[1], *line.split("\t")[1:-1])
            ticks[-1].maps[table] = 0
        elif value := VALUES.fullmatch(line):
            assert value[1] in roles
            _name, *key, number = line.split("\t")
            ticks[-1].maps[value[1], *key] = int(number)
        elif sign := SIGN.fullmatch(line):
            assert sign[2] == found.name
            if sign[1] in ("tick", "last"):
                ticks.append(Tick(sign[1], *map(int, line.split()[3:5]), {}))
        elif record := RECORD.fullmatch(line):
            spec = found.records[record[1]]
            assert record[2] == found.name
            fields = record[3].split("\t" if "\t" in record[3] else " ", len(spec.fields))
            assert len(fields) == len(spec.fields) + bool(spec.text)
            records[record[1]] += 1
        else:
            assert not line.strip() or TITLE in line, line
    return ticks, records


class Running:
    def __init__(self, found, directory):
        self.found, self.out = found, directory / f"{found.name}.out"
        self.complaints = directory / f"{found.name}.err"
        program = found.program(values(found))
        with self.out.open("wb") as out, self.complaints.open("wb") as err:
            command = [DTRACE, "-q", "-x", "dynvarsize=16m", "-n", program]
            self.process = subprocess.Popen(command, stdout=out, stderr=err)

    def ready(self):
        until = time.monotonic() + STARTING_S
        while b"@@ done" not in self.out.read_bytes():  # its first tick: counting has begun
            assert self.process.poll() is None, self.complaints.read_text()
            assert time.monotonic() < until, "not ready in time"
            time.sleep(0.05)

    def end(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(ENDING_S) == 0
        assert not self.complaints.read_text().strip()
        return parsed(self.out.read_text(errors="replace"), self.found)


@contextmanager
def running(found, directory):
    one = Running(found, directory)
    try:
        one.ready()
        yield one
    finally:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def read_at_random(path, *more):
    command = ["fio", "--name=x", "--output-format=json", "--rw=randread", "--bs=4k", "--direct=1", "--norandommap"]
    command += [f"--filename={path}", *more]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]["read"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_compiles(name):
    found = SCRIPTS[name]
    command = [DTRACE, "-e", "-q", "-n", found.program(values(found))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=STARTING_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_speaks_the_protocol(name, tmp_path):
    """Also of resume_d, whose probes are there but have no events on a Linux without kprobes."""
    found = SCRIPTS[name]
    with LoopDevice(tmp_path / "image", 32 << 20) as device, running(found, tmp_path) as one:
        read_at_random(device.path, "--runtime=2500ms", "--time_based=1", "--rate_iops=2000")
        ticks, records = one.end()
    assert [tick.sign for tick in ticks[-2:]] == ["tick", "last"]
    assert [tick.number for tick in ticks] == list(range(len(ticks)))
    assert len(ticks) >= 4
    times = [tick.at_ns for tick in ticks]
    assert times == sorted(times)
    for before, after in itertools.pairwise(ticks):
        assert all(after.maps.get(key, 0) >= count for key, count in before.maps.items()), "a map went back"
    if found.group == "always":
        assert any(ticks[-1].maps.values())
    assert set(records) <= set(found.records)


@pytest.mark.parametrize("name", [name for name, found in SCRIPTS.items() if found.group == "always"])
def test_every_read_is_counted(name, tmp_path, alone):
    """Timed I/Os and bytes of at least 50,000 reads that nothing merges, against the kernel's counters."""
    found = SCRIPTS[name]
    timed = {spec.name for spec in found.maps if spec.role == "histogram" and "total" in spec.stages}
    for attempt in range(ATTEMPTS):
        with alone(), LoopDevice(tmp_path / "image") as device, running(found, tmp_path) as one:
            number = Path(device.path).stat().st_rdev
            key = (str(os.major(number) << 20 | os.minor(number)), "0")
            before = diskstats()
            at_first = parsed(one.out.read_text(), found)[0][-1].maps
            issued = read_at_random(device.path, f"--number_ios={IOS}", "--iodepth=8", "--ioengine=libaio")
            kernel = gained(before, diskstats(), device.name)["read"]
            ticks, _ = one.end()
        last = ticks[-1].maps
        counted = sum(last.get((spec, *key), 0) - at_first.get((spec, *key), 0) for spec in timed)
        sums = last[name + ("_sum" if name == "io_d" else "_hba_sum"), *key]
        reported = f"attempt {attempt}: {counted} of {kernel.count}, fio {issued['total_ios']}"
        assert kernel.count >= 50_000, reported
        assert counted <= kernel.count, reported
        if counted >= LEAST * kernel.count:
            break
    assert counted >= LEAST * kernel.count, reported
    assert last[f"{name}_bytes", *key] == pytest.approx(kernel.bytes, rel=0.01)
    mean = issued["clat_ns"]["mean"] / 1000
    assert 0 < sums / counted < mean, f"{sums / counted} us, fio {mean} us"
