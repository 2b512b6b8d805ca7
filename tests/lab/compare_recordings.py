"""Compare the reports of an old commit's recordings with those of the time when the measurements became tables.

    ./bootstrap python tests/lab/compare_recordings.py DIRECTORY --make    # as root for the live ones; some minutes
    ./bootstrap python tests/lab/compare_recordings.py DIRECTORY

With `--make` the commit OLD writes recordings of every kind into DIRECTORY, and the commit BEGINNING reports and checks
them. Without it the present tree does, and each value that differs is printed with its place; the exit code is 1 where
one does. A kind that can't be recorded here is skipped with its reason. DIRECTORY is root's own: probes are refused
where others can change the programs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OLD_RECORDINGS = Path(__file__).with_name("old_recordings.py")
OLD = "578c684b"
"""The commit whose recordings must give the same numbers for ever."""
BEGINNING = "331480dc"
"""The commit before the first declared table."""
SUFFIX = ".latmon.jsonl.gz"
CONTENTS = "set.json"

DEMOS = {
    "host": "70s",
    "emulex": "150s",
    "emulex-healthy": "20s",
    "e810": "150s",
    "e810-healthy": "20s",
    "serialised": "130s",
    "serialised-healthy": "20s",
    "qumulo": "130s",
    "qumulo-healthy": "20s",
    "bubbles": "600s",
    "bubbles-healthy": "130s",
}
"""Scenario -> recorded time: `host` traces sizes, `bubbles` has most roll-ups."""
COUNTERS_S = 150
"""Seconds by the kernel's counters: a minute in which nothing was late and no device came or went has a roll-up."""
LIVE_S = 12
STARTING_S = 60
FROM_TIER_A = (0, 19)
"""Oldest bpftrace with tier A."""


@dataclass(frozen=True)
class Wanted:
    """A difference that is right; `place` is a pattern of the places that are printed."""

    place: str
    reason: str
    added: bool = False
    """Whether it holds only for a key or an entry that was not there before."""


WANTED: tuple[Wanted, ...] = (
    Wanted("*/report/findings_by/rules", "there are more rules"),
    Wanted("*/report/findings_by/not_judged/errors", "failed I/Os were not counted then", added=True),
)
"""Differences that were made on purpose."""

MISSING = object()


@dataclass(frozen=True)
class Difference:
    """A value that is not what it was; MISSING where there is none."""

    place: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.place}: {_shown(self.old)} before, {_shown(self.new)} now"

    def reason(self) -> str:
        """Return why it is wanted; empty if it is not."""
        for wanted in WANTED:
            if fnmatchcase(self.place, wanted.place) and (self.old is MISSING or not wanted.added):
                return wanted.reason
        return ""


def _shown(value: Any) -> str:
    return "nothing" if value is MISSING else json.dumps(value)[:200]


def differences(old: Any, new: Any, place: str) -> Iterator[Difference]:
    """Yield each value that differs, with the keys that lead to it."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from differences(old.get(key, MISSING), new.get(key, MISSING), f"{place}/{key}")
    elif isinstance(old, list) and isinstance(new, list):
        for number in range(max(len(old), len(new))):
            before, now = (values[number] if number < len(values) else MISSING for values in (old, new))
            yield from differences(before, now, f"{place}/{number}")
    elif type(old) is not type(new) or old != new:
        yield Difference(place, old, new)


@dataclass
class Kind:
    """Recordings of one kind: the names of their files, and what the commit BEGINNING printed about them."""

    files: list[str]
    printed: dict[str, Any] = field(default_factory=dict)


class Skipped(Exception):  # noqa: N818 - it is no error
    """Reason why a kind can't be recorded here."""


class Tree:
    """Checkout of a commit, or the present one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def of_commit(cls, commit: str, directory: Path) -> Tree:
        """Write the files of a commit to a new directory."""
        path = directory / commit
        path.mkdir()
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x"], cwd=path, input=archive.stdout, check=True)
        tree = cls(path)
        imported = tree.run("-c", "import latmon, latmon_backends as b; print(latmon.__file__, b.__file__)").stdout
        if imported.count(str(path)) != len(("latmon", "latmon_backends")):
            raise RuntimeError(f"another checkout than {path} would run: {imported}")
        return tree

    def start(self, *words: object, tool: str = "", **options: Any) -> subprocess.Popen[str]:
        """Start Python with these words; `tool`: the bpftrace to use."""
        folders = (self._path, self._path / "backends", self._path / "tests/helpers", self._path / "tests/importers")
        environ = {**os.environ, "PYTHONPATH": ":".join(map(str, folders)), "NO_COLOR": "1", "COLUMNS": "200"}
        if tool:
            environ["LATMON_BPFTRACE"] = tool
        return subprocess.Popen(
            [sys.executable, "-P", *map(str, words)],  # without -P the working directory comes before PYTHONPATH
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **options,
        )

    def run(self, *words: object, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run Python with these words."""
        process = self.start(*words, **options)
        out, err = process.communicate()
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def latmon(self, *words: object, codes: Sequence[int] = (0,)) -> None:
        """Run latmon; RuntimeError with what it printed where its exit code is none of `codes`."""
        done = self.run("-m", "latmon", *words)
        if done.returncode not in codes:
            raise RuntimeError(f"latmon {' '.join(map(str, words))}: {done.returncode}: {done.stderr}")

    def printed(self, files: Sequence[str], directory: Path) -> dict[str, Any]:
        """Return what `report --json` and `check` print about files, and their exit codes."""
        report = self.run("-m", "latmon", "report", "--json", *files, cwd=directory)
        check = self.run("-m", "latmon", "check", *files, cwd=directory)
        return {
            "report": json.loads(report.stdout) if report.stdout else None,
            "report stderr": report.stderr.splitlines(),
            "report exit code": report.returncode,
            "check": check.stdout.splitlines(),
            "check exit code": check.returncode,
        }


class Recorder:
    """Writes the recordings of each kind by the old commit."""

    def __init__(self, old: Tree, directory: Path) -> None:
        self._old, self._directory = old, directory
        self.kinds: dict[str, Kind] = {}
        self.skipped: dict[str, str] = {}

    def path(self, name: str) -> Path:
        """Return the first file of a kind."""
        return self._directory / f"{name}{SUFFIX}"

    def add(self, name: str, make: Callable[[Path], object]) -> None:
        """Make a kind's recording, or note why that isn't possible here."""
        print(f"{time.strftime('%T')} {name}", flush=True)
        try:
            make(self.path(name))
        except Skipped as reason:
            self.skipped[name] = str(reason)
            print(f"  skipped: {reason}")
            return
        names = sorted(path.name for path in self._directory.glob(f"{name}.*") if path.name.endswith(SUFFIX))
        self.kinds[name] = Kind([f"{name}{SUFFIX}", *(file for file in names if file != f"{name}{SUFFIX}")])

    def demo(self, scenario: str, duration: str) -> None:
        words = ("demo", scenario, "--seed", 1, "--duration", duration, "--record")
        self.add(f"demo-{scenario}", lambda path: self._old.latmon(*words, path))

    def old_recording(self, name: str) -> None:
        """Make what no command makes."""

        def make(path: Path) -> None:
            done = self._old.run(OLD_RECORDINGS, name, path)
            if done.returncode:
                raise RuntimeError(f"{name}: {done.stderr}")

        self.add(name, make)

    def imports(self, goldens: Path) -> None:
        """Import the golden text of each tool, and the sample of each importer that has none."""
        samples = self._directory / "samples"
        done = self._old.run(OLD_RECORDINGS, "samples", samples)
        if done.returncode:
            raise RuntimeError(f"samples: {done.stderr}")
        for text in (*sorted(goldens.iterdir()), *sorted(samples.iterdir())):
            words = ["import", text, "--host", "box", "--start", "2026-01-05T03:00:00Z"]
            if text.name.startswith("bpftrace") or text.parent == samples:
                words += ["--unit", "us"]
            if text.parent == samples:
                words += ["--from", text.name]
            if text.name == "ftrace":
                words += ["--events", "ib_cq_completion_softirq,nvme_rdma_send_done"]
            # 4: something of the text is left out, which it reports.
            name = f"{'sample' if text.parent == samples else 'import'}-{text.name.replace('.', '-')}"
            self.add(name, lambda path, words=words: self._old.latmon(*words, "-o", path, codes=(0, 4)))

    def counters(self, path: Path) -> subprocess.Popen[str]:
        """Start a recording by the kernel's counters, beside which others are made."""
        words = ("-m", "latmon", "--backend", "procfs", "--duration", f"{COUNTERS_S}s", "--record", path)
        return self._old.start(*words)

    def kill(self, path: Path) -> None:
        """End a recording by SIGKILL."""
        process = self._old.start("-m", "latmon", "--backend", "procfs", "--interval", "100ms", "--record", path)
        wait_until(lambda: path.exists() and path.stat().st_size > 15_000, process)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def damage(self, source: str, path: Path) -> None:
        """Copy a recording and flip bytes at five places of it."""
        data = bytearray(self.path(source).read_bytes())
        for part in range(1, 6):
            place = len(data) * part // 6
            data[place : place + 16] = bytes(byte ^ 0xFF for byte in data[place : place + 16])
        path.write_bytes(data)

    def trace(self, path: Path, tool: str, tier: str, *options: str) -> None:
        """Record a loop device under load with all stages traced."""
        if os.geteuid() != 0:
            raise Skipped("bpftrace runs for root only")
        missing = [name for name in ("fio", "losetup") if shutil.which(name) is None]
        if missing:
            raise Skipped(f"{' and '.join(missing)} are not installed")
        if not tool:
            raise Skipped(f"no bpftrace here has tier {tier}: name one with --bpftrace")
        with loop_device() as device:
            words = ("--backend", "bpftrace", "--stages", "all", "--threshold", "1ms", "--device", "loop*")
            process = self._old.start("-m", "latmon", *words, *options, "--record", path, tool=tool)
            wait_until(lambda: path.exists() and path.stat().st_size > 2_000, process)
            job = ("--direct=1", "--ioengine=libaio", "--bs=16k", "--iodepth=4", "--rate_iops=300", "--fsync=32")
            about = (f"--filename={device}", "--size=64M", "--rw=randrw", "--time_based", f"--runtime={LIVE_S}")
            subprocess.run(["fio", "--name=load", *job, *about], stdout=subprocess.DEVNULL, check=True)
            process.terminate()
            _, err = process.communicate(timeout=STARTING_S)
        recorded = tier_of(path)
        if recorded != tier:
            path.unlink()
            raise Skipped(f"it was recorded in tier {recorded or 'none'}: {err.strip()}")


def tier_of(path: Path) -> str:
    """Return the tier in the header of a recording."""
    unpacked = subprocess.run(["zcat", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return str(json.loads(unpacked.stdout.splitlines()[0])["tier"])


def wait_until(is_true: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait while a process runs; RuntimeError where it ends, or where it takes too long."""
    until = time.monotonic() + STARTING_S
    while not is_true():
        if process.poll() is not None:
            raise RuntimeError(f"it ended: {process.communicate()[1]}")
        if time.monotonic() > until:
            os.killpg(process.pid, signal.SIGKILL)
            raise RuntimeError("it recorded nothing in time")
        time.sleep(0.1)


@contextlib.contextmanager
def loop_device() -> Iterator[str]:
    """Give a disk on a file of 128 MiB."""
    with tempfile.TemporaryDirectory(prefix="latmon-compare-") as directory:
        image = Path(directory) / "image"
        image.touch()
        os.truncate(image, 128 << 20)
        words = ["losetup", "--find", "--show", str(image)]
        device = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        try:
            yield device
        finally:
            subprocess.run(["losetup", "--detach", device], check=True)


def tools_by_tier(named: Sequence[str]) -> Mapping[str, str]:
    """Return the first bpftrace of each tier, of those named and the host's; the recording proves the tier."""
    found: dict[str, str] = {}
    for tool in (*named, shutil.which("bpftrace") or ""):
        if not tool:
            continue
        printed = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
        version = printed.split("v")[-1].split(".")
        found.setdefault("A" if (int(version[0]), int(version[1])) >= FROM_TIER_A else "C", tool)
    return found


def make(directory: Path, bpftraces: Sequence[str]) -> int:
    """Write the set of recordings and what BEGINNING prints about them; return the exit code."""
    directory.mkdir(mode=0o700)
    (directory / "trees").mkdir()
    old = Tree.of_commit(OLD, directory / "trees")
    recorder = Recorder(old, directory)
    with recorder.counters(recorder.path("counters")) as by_counters:
        try:
            make_all(recorder, by_counters, directory, bpftraces)
        finally:
            by_counters.terminate()
    beginning = Tree.of_commit(BEGINNING, directory / "trees")
    for kind in recorder.kinds.values():
        kind.printed = beginning.printed(kind.files, directory)
    kinds = {name: asdict(kind) for name, kind in recorder.kinds.items()}
    made = {"old": OLD, "beginning": BEGINNING, "kinds": kinds, "skipped": recorder.skipped}
    (directory / CONTENTS).write_text(json.dumps(made, indent=1))
    print(f"{len(kinds)} kinds are in {directory}, {len(recorder.skipped)} are skipped")
    return 0


def make_all(recorder: Recorder, by_counters: subprocess.Popen[str], directory: Path, bpftraces: Sequence[str]) -> None:
    """Record each kind, while `by_counters` records the host."""
    for scenario, duration in DEMOS.items():
        recorder.demo(scenario, duration)
    for name in ("dtrace-illumos", "dtrace-freebsd", "dtrace-linux", "demo-in-parts", "demo-redacted", "demo-summed"):
        recorder.old_recording(name)
    recorder.imports(directory / "trees" / OLD / "tests/golden/imports")
    recorder.add("damaged", lambda path: recorder.damage("demo-emulex", path))
    recorder.add("damaged-summed", lambda path: recorder.damage("demo-summed", path))
    by_counters.communicate()
    recorder.add("counters", lambda _: by_counters.returncode)
    recorder.add("killed", recorder.kill)
    tools = tools_by_tier(bpftraces)
    for tier in ("A", "C"):
        tool = tools.get(tier, "")
        recorder.add(f"tier-{tier.lower()}", lambda path, tool=tool, tier=tier: recorder.trace(path, tool, tier))
        recorder.add(
            f"tier-{tier.lower()}-redacted",
            lambda path, tool=tool, tier=tier: recorder.trace(path, tool, tier, "--redact"),
        )


def compare(directory: Path) -> int:
    """Print each value that differs from what BEGINNING printed; return the exit code."""
    document = json.loads((directory / CONTENTS).read_text())
    present = Tree(ROOT)
    unwanted = 0
    values = 0
    reasons: dict[str, int] = {}
    for name, kind in document["kinds"].items():
        # Through JSON as the stored values are.
        printed = json.loads(json.dumps(present.printed(kind["files"], directory)))
        values += count_values(kind["printed"])
        for difference in differences(kind["printed"], printed, name):
            if reason := difference.reason():
                reasons[reason] = reasons.get(reason, 0) + 1
                continue
            unwanted += 1
            print(difference)
    for reason, number in reasons.items():
        print(f"wanted: {number} differences: {reason}")
    for name, reason in document["skipped"].items():
        print(f"skipped: {name}: {reason}")
    print(f"{len(document['kinds'])} kinds, {values} values of {document['beginning']}: {unwanted} differ")
    return 1 if unwanted else 0


def count_values(value: Any) -> int:
    """Return the number of texts, numbers, flags and nulls."""
    if isinstance(value, dict):
        return sum(map(count_values, value.values()))
    if isinstance(value, list):
        return sum(map(count_values, value))
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="of the recordings and of what was printed about them")
    parser.add_argument("--make", action="store_true", help="write the directory, which is new")
    parser.add_argument("--bpftrace", action="append", default=[], help="another bpftrace than the host's; repeatable")
    args = parser.parse_args()
    directory = args.directory.resolve()
    return make(directory, args.bpftrace) if args.make else compare(directory)


if __name__ == "__main__":
    sys.exit(main())
