"""How many requests were in flight when a slow one was issued, and how many overtook it, on a disk of our own.

bpftrace 0.21 and newer can read a sum that is kept per CPU; the host's own may be older.
"""

import json
import os
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import test_stages_a
from attached import trace_only
from bpftraces import TIMEOUT_S, each_bpftrace, tool
from test_stages_a import DIRECTORY, Run, program, refused
from test_stages_c import loop, number  # noqa: F401 - a fixture is found by its name
from workload import LoopDevice, fio

from latmon.decode.tables import depth_of, record
from latmon.manifest import load
from latmon_backends.bpftrace.program import request_argument

SCRIPTS = ("inflight_a", "stages_a", "csd_a", "workers_a")
INFLIGHT = load(DIRECTORY / "inflight_a.yaml")
DEPTH = 16
SIZE = 32 << 20
SECOND_NS = 10**9
SLACK_NS = 100_000_000
"""What a reading of the kernel's count may be away from the probe's."""
MISSED = 0.02
"""The kernel skips so many programs at most."""
FOLLOWS_S = 1.0
"""It follows requests half a second after its start."""
MOST = 2**32


@pytest.fixture(autouse=True)
def with_depth(monkeypatch):
    monkeypatch.setattr(test_stages_a, "SCRIPTS", SCRIPTS)


def able(suite, directory):
    bpftrace_tool = tool(suite, directory)
    if tuple(int(part) for part in bpftrace_tool.version.split(".")[:2]) < (0, 21):
        pytest.skip(f"bpftrace {bpftrace_tool.version} can't read a sum that is kept per CPU")
    if request_argument(Path("/sys/kernel/btf/vmlinux"), "block_io_start") is None:
        pytest.skip("this kernel has no block_io_start")
    return bpftrace_tool


def records(suite, directory, device, depth):
    """The reported reads, `depth` of them at once."""
    able(suite, directory)
    with Run(suite, directory, device, threshold_us=1) as run:
        time.sleep(FOLLOWS_S)
        job = {"name": "reads", "filename": device.path, "rw": "randread", "size": "4M", "iodepth": depth}
        fio(directory, 1, job)
    reported = [one.fields for one in run.slow if one.fields["op"] == 0]
    known = [one for one in reported if "outstanding" in one]
    # The kernel skips a program now and then.
    assert len(known) >= 0.9 * len(reported) > 0
    return known


@each_bpftrace
def test_one_at_a_time_has_nothing_beside_it(suite, loop, tmp_path):  # noqa: F811
    reported = records(suite, tmp_path, loop, 1)
    assert {(one["outstanding"], one["overtaken"]) for one in reported} == {(0, 0)}
    assert all(one["pid"] > 0 for one in reported)


@each_bpftrace
def test_as_many_as_are_given_at_once(suite, loop, tmp_path):  # noqa: F811
    reported = [record["outstanding"] for record in records(suite, tmp_path, loop, DEPTH)]
    assert DEPTH - 1 in reported
    # A completion whose program the kernel skipped counts until its request comes again or is seen to be free.
    assert sum(one > DEPTH - 1 for one in reported) <= 0.05 * len(reported)


def expressions():
    """The lines of the script that compute both numbers from the counts."""
    text = (DIRECTORY / "inflight_a.bt").read_text()
    (then,) = re.findall(r"\$then = \((\(\$out << 32\).*)\);$", text, re.MULTILINE)
    (later,) = re.findall(r"^(\s*\$done = .*?)^\s*@stages_a_depth", text, re.MULTILINE | re.DOTALL)
    return then, later


@each_bpftrace
def test_the_arithmetic(suite, tmp_path):
    """(issued with itself, completed, merged) at its issue, completed when it completes: (in flight, overtaken by)."""
    bpftrace_tool = able(suite, tmp_path)
    then, later = expressions()
    cases = {
        (1, 0, 0, 0): (0, 0),
        (16, 0, 0, 15): (15, 0),
        (16, 0, 0, 20): (15, 5),
        (16, 0, 0, 3): (15, 0),
        (100, 90, 4, 96): (5, 1),
        # 2^32 completions: the counters go on, what is kept of them wraps.
        (MOST + 3, MOST - 1, 0, MOST + 9): (3, 7),
        (3 * MOST, 3 * MOST - 2, 1, 3 * MOST - 1): (0, 1),
    }
    lines = [
        f"$in = (uint64){issued}; $out = (uint64){completed}; $merged = (uint64){merged}; $then = {then};"
        f' $out = (uint64){now}; {later} printf("%llu %llu\\n", $before, $overtaken);'
        for issued, completed, merged, now in cases
    ]
    command = bpftrace_tool.command("BEGIN { " + " ".join(lines) + " exit(); }")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        sentences = [json.loads(line) for line in process.stdout if line.startswith(b"{")]
    reported = [tuple(map(int, sentence["data"].split())) for sentence in sentences if sentence["type"] == "printf"]
    assert reported == list(cases.values())


@each_bpftrace
def test_after_the_load_nothing_is_in_flight(suite, loop, tmp_path):  # noqa: F811
    """The kernel may have skipped any program: the looks set right what was counted then."""
    able(suite, tmp_path)
    shown = re.sub(r"clear\(@inflight_a_\w+\);", "", program(SCRIPTS, threshold_us=0, any_dev=1).text())
    with (tmp_path / "said").open("w") as output, (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen(
            tool(suite, tmp_path).command(shown), stdin=subprocess.PIPE, stdout=output, stderr=errors,
            start_new_session=True,
        )  # fmt: skip
        deadline = time.monotonic() + TIMEOUT_S
        while (tmp_path / "said").read_text().count("done stages_a") < 2:
            if process.poll() is not None:
                refused(tmp_path / "errors")
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(FOLLOWS_S)
        job = {"filename": loop.path, "rw": "randrw", "size": "4M", "iodepth": DEPTH, "fsync": 32}
        fio(tmp_path, 1, job | {"name": "one"}, job | {"name": "other"})
        time.sleep(2)  # a look each 100 ms; what each of eight finds too much or too little is set right
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 0
    sentences = [json.loads(line) for line in (tmp_path / "said").read_text().splitlines() if line.startswith("{")]
    maps = {
        name: values for sentence in sentences if sentence["type"] == "map" for name, values in sentence["data"].items()
    }
    issued, completed = maps["@inflight_a_in"], maps["@inflight_a_out"]
    busiest = max(issued, key=issued.get)
    assert issued[busiest] > 500
    set_right = maps["@inflight_a_lack"].get(busiest, 0)
    assert issued[busiest] + set_right == completed[busiest] + maps["@inflight_a_merged"].get(busiest, 0)
    # 2 of 42,608 completions were skipped in one of eight runs. Each is set right for the device and for its driver.
    assert maps.get("@inflight_a_corrected", {}).get(busiest, 0) <= issued[busiest] / 1000 + 2


def maps_of(text):
    """Each map as it was printed last, by device's part and the rest of the key."""
    return {name: values for one in text if one["type"] == "map" for name, values in one["data"].items()}


def by_depth(maps, name):
    return {depth_of(int(key) & 0xFFFF): n for key, n in maps[f"@inflight_a_{name}"].items()}


class Tick(list):
    """Records of waiting requests, and the times of their ticks."""

    def __init__(self, at_ns):
        super().__init__()
        self.at_ns = at_ns


class Followed:
    """inflight_a alone on one device: its output so far."""

    def __init__(self, suite, directory, device):
        bpftrace_tool = able(suite, directory)
        self._device = number(device)
        text = program(("inflight_a", "stages_a"), threshold_us=0, gate_ns=200_000_000).text()
        self._output, self._errors = directory / "said", directory / "errors"
        with self._output.open("w") as output, self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                bpftrace_tool.command(text), stdin=subprocess.PIPE, stdout=output, stderr=errors, start_new_session=True
            )

    def __enter__(self):
        self.until(lambda: "@inflight_a_since" in self.maps())
        trace_only(self._process, self._device)
        return self

    def __exit__(self, *_exc):
        self._process.stdin.close()
        assert self._process.wait(TIMEOUT_S) == 0

    def said(self):
        lines = self._output.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def maps(self):
        return maps_of(self.said())

    def over(self):
        """Wait until a tick that began later is printed completely."""
        ticks = len(self.ticks())
        self.until(lambda: len(self.ticks()) > ticks + 1)

    def until(self, there):
        deadline = time.monotonic() + TIMEOUT_S
        while not there():
            if self._process.poll() is not None:
                refused(self._errors)
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def ticks(self):
        """The waiting requests, tick by tick; the last tick may be incomplete."""
        reported = []
        for one in self.said():
            text = str(one.get("data"))
            if text.startswith("tick inflight_a "):
                reported.append(Tick(int(text.split()[3])))
            elif text.startswith("waiting ") and reported:
                reported[-1].append(record(text.removesuffix("\n"), INFLIGHT.records["waiting"]))
        return reported


@pytest.fixture
def disk(tmp_path):
    """One whose requests are long beside what a CPU needs for them, so that fio can keep its depth."""
    image = tmp_path / "disk"
    image.write_bytes(os.urandom(1 << 20) * (SIZE >> 20))
    with LoopDevice(image, SIZE) as disk:
        yield disk


def stat(disk):
    """The kernel's own counts: I/Os completed, ms spent on them."""
    words = [int(word) for word in (Path("/sys/block") / disk.name / "stat").read_text().split()]
    return words[0] + words[4], words[3] + words[7]


def above(counts, depth):
    return sum(n for at, n in counts.items() if at > depth) / sum(counts.values())


@each_bpftrace
@pytest.mark.parametrize("depth", [1, 3, DEPTH, 64])
def test_depths_under_a_load_of_so_many(suite, disk, tmp_path, depth):
    job = {"name": "reads", "filename": disk.path, "rw": "randread", "bs": "256k", "size": SIZE, "iodepth": depth}
    with Followed(suite, tmp_path, disk) as run:
        run.over()
        before, idle = stat(disk), run.maps()
        done = fio(tmp_path, 1.5, job, urgent=True)["reads"]["read"].count
        ended = stat(disk)
        run.over()
        maps = run.maps()
    driver, issue, ios = (gained(idle, maps, name) for name in ("driver", "issue", "ios"))
    busy = {at: n for at, n in driver.items() if at}
    # udev may read the disk beside it, and a completion whose program the kernel skipped counts until it is found.
    for counts in (busy, issue, ios):
        assert above(counts, depth + depth // 8) <= 0.05, counts
    least = depth - max(1, depth // 8)
    assert max(1, least) <= max(busy, key=busy.get) <= depth + depth // 8
    assert above(busy, least - 1) > 0.5
    # They complete and are given in batches: a request is seldom issued as the last of so many.
    assert max(issue) >= least
    assert sum(ios.values()) == pytest.approx(done, rel=0.02, abs=64)
    assert sum(issue.values()) == pytest.approx(done, rel=0.02, abs=64)
    spent_ms = ended[1] - before[1]
    assert sum(gained(idle, maps, "time").values()) / 1000 == pytest.approx(spent_ms, rel=0.1, abs=50)
    assert driver[0] > 0, "the load has ended"


@pytest.fixture
def held(tmp_path):
    """A disk on a file of a file system that can be frozen: (the disk, freeze, thaw)."""
    if not shutil.which("mkfs.ext4"):
        pytest.skip("mkfs.ext4 is not installed")
    place = tmp_path / "place"
    place.mkdir()
    with LoopDevice(tmp_path / "outer", 64 << 20) as outer:
        subprocess.run(["mkfs.ext4", "-q", outer.path], check=True)
        subprocess.run(["mount", outer.path, place], check=True)
        try:
            with LoopDevice(place / "inner", 16 << 20) as inner:
                frozen = ["fsfreeze", "-f", place], ["fsfreeze", "-u", place]
                yield inner, *(lambda command=command: subprocess.run(command, check=True) for command in frozen)
        finally:
            subprocess.run(["fsfreeze", "-u", place], check=False, stderr=subprocess.DEVNULL)
            subprocess.run(["umount", place], check=True)


@contextmanager
def held_writes(inner, freeze, thaw, count):
    """So many writes that don't complete; 4 KB are left out behind each, for neighbours would be merged."""
    freeze()
    job = ["fio", "--name=writes", f"--filename={inner.path}", "--rw=write:4k", "--bs=4k", f"--iodepth={count}"]
    with subprocess.Popen(
        [*job, "--direct=1", "--ioengine=libaio", "--size=4M", f"--number_ios={count}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ):
        try:
            yield
        finally:
            thaw()


def older(run, disk):
    """How many are older than 1 s."""
    return run.maps().get("@inflight_a_older", {}).get(str(number(disk) << 16))


def inflight(disk):
    return sum(map(int, (Path("/sys/block") / disk.name / "inflight").read_text().split()))


def gained(before, after, name):
    was = by_depth(before, name) if f"@inflight_a_{name}" in before else {}
    return {at: n - was.get(at, 0) for at, n in by_depth(after, name).items() if n > was.get(at, 0)}


@each_bpftrace
@pytest.mark.parametrize("depth", [DEPTH, 64])
def test_requests_that_are_held_are_counted_exactly(suite, held, tmp_path, depth):
    inner, freeze, thaw = held
    with Followed(suite, tmp_path, inner) as run:
        run.over()
        idle = run.maps()
        with held_writes(inner, freeze, thaw, depth):
            run.until(lambda: inflight(inner) == depth)
            run.over()
            before = run.maps()
            issued = gained(idle, before, "issue")
            run.until(lambda: older(run, inner) == depth)
            after = run.maps()
            reported = run.ticks()[-2]
        run.over()
        ended = run.maps()
    # One of them came to each depth, and each went to the driver.
    assert {at: issued.get(at) for at in range(1, depth + 1)} == dict.fromkeys(range(1, depth + 1), 1)
    assert set(gained(before, after, "driver")) == {depth}
    assert set(gained(before, after, "queued")) == {0}
    came = gained(after, ended, "ios")
    assert sum(came.get(at, 0) > 0 for at in range(1, depth + 1)) >= 0.9 * depth
    # At most 64 are reported, and one for each was.
    assert len({one.get("sector") for one in reported}) == len(reported) == depth
    assert {(one.get("issued"), one.get("overtaken"), one.text) for one in reported} == {(1, 0, "fio")}


@each_bpftrace
def test_a_request_that_is_held_is_reported_while_it_waits(suite, held, tmp_path):
    inner, freeze, thaw = held
    with Followed(suite, tmp_path, inner) as run:
        freeze()
        begun = time.monotonic_ns()
        write = ["dd", "if=/dev/zero", f"of={inner.path}", "bs=4096", "seek=8", "count=1", "oflag=direct"]
        with subprocess.Popen(write, stderr=subprocess.DEVNULL) as writer:
            try:
                run.until(lambda: older(run, inner) == 1)
                reported = [one for tick in run.ticks() for one in tick]
                after = time.monotonic_ns()
            finally:
                thaw()
        run.over()
        run.over()
        assert run.ticks()[-2] == []
        assert older(run, inner) == 0
    assert {(one.get("dev"), one.get("op"), one.get("sector"), one.get("bytes")) for one in reported} == {
        (number(inner), 1, 64, 4096)
    }
    assert {(one.get("pid"), one.text, one.get("issued")) for one in reported} == {(writer.pid, "dd", 1)}
    (since,) = {one.get("begun_ns") for one in reported}
    assert since >= begun
    assert after - since > SECOND_NS
    assert {one.get("overtaken") for one in reported} == {0}


@each_bpftrace
def test_one_that_the_scheduler_lets_wait_reports_how_many_overtook_it(suite, disk, tmp_path):
    """mq-deadline holds a read of the idle class back for as long as there are others, up to 10 s."""
    scheduler = Path("/sys/block") / disk.name / "queue/scheduler"
    if "mq-deadline" not in scheduler.read_text():
        pytest.skip("this kernel has no mq-deadline")
    scheduler.write_text("mq-deadline")
    job = {"name": "reads", "filename": disk.path, "rw": "randread", "bs": "512k", "size": SIZE, "iodepth": DEPTH}
    counts, before = [], stat(disk)[0]
    with Followed(suite, tmp_path, disk) as run, ThreadPoolExecutor(1) as beside:
        load = beside.submit(fio, tmp_path, 3, job, {**job, "name": "more"}, urgent=True)
        run.until(lambda: stat(disk)[0] > before + 500)
        read = ["ionice", "-c", "3", "dd", f"if={disk.path}", "of=/dev/null", "bs=4096", "count=1", "iflag=direct"]
        with subprocess.Popen(read, stderr=subprocess.DEVNULL) as victim:
            while not load.done():
                counts.append((time.monotonic_ns(), stat(disk)[0]))
                time.sleep(0.02)
        load.result()
        run.over()
        reported = [(tick.at_ns, one) for tick in run.ticks() for one in tick if one.get("pid") == victim.pid]
    if not reported:
        pytest.skip("no request had to wait: this scheduler has no classes, or the load left gaps")
    for at_ns, one in reported:
        begun = one.get("begun_ns")
        least = completed(counts, at_ns - SLACK_NS) - completed(counts, begun + SLACK_NS)
        most = completed(counts, at_ns + SLACK_NS) - completed(counts, begun - SLACK_NS)
        # Before it at most those that fio has at a time, each of them in two parts.
        assert least - 4 * DEPTH - MISSED * most <= one.get("overtaken") <= most
        assert one.get("issued") == 0
    assert max(one.get("overtaken") for _, one in reported) > 10 * DEPTH


def completed(counts, at_ns):
    return min(counts, key=lambda count: abs(count[0] - at_ns))[1]
