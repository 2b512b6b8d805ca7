"""The lab's table: kept recordings of guests, a result per cell, and the table of all results.

    ./bootstrap python tests/lab/cells.py             prints the table
    ./bootstrap python tests/lab/cells.py --write     writes it to tests/lab/RESULTS.md, the results to results.jsonl
    ./bootstrap python tests/lab/cells.py --bundle    puts what was found in the first place into docs/incidents

.cache/lab has a directory per recording (recording, log of the guest, console, `run.json`) and results.jsonl, a line
per evaluation of a cell. A cell is a load in a guest of a Debian release with the probes of a tier. A recording is
valid until its probes, the test driver or the loads change; cells are evaluated from it again when rules change. Each
guest is recorded PASSES times. One that died has a directory with its log, and is booted again by the next run.
.cache/lab stays on its machine: tests/lab/results.jsonl has the last result of every recording, of all machines.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from latmon.model.devices import Inventory
from latmon.model.frame import Frame
from latmon.recording.parts import RecordingLimits, Rotation
from latmon.recording.reader import open_recording

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = CHECKOUT / ".cache/lab"
RESULTS = CACHE / "results.jsonl"
HISTORY = CHECKOUT / "tests/lab/results.jsonl"
TABLE = CHECKOUT / "tests/lab/RESULTS.md"
BUNDLED = CHECKOUT / "docs/incidents/recordings/live"
PASSES = (1, 2)
UNMEASURED = "not measured here"
"""The begin of an expectation for tier B where no finding is due."""
KEPT = ("all.latmon.jsonl.gz", "result", "log", "console")
COLUMNS = {"trixie": ("A", "B"), "bookworm": ("B",), "sid": ("A", "B")}
"""Release -> tiers. bookworm's bpftrace has no raw tracepoints, which tier A needs; tier C runs where B does not."""
NAMES = {"bookworm": "Debian 12", "trixie": "Debian 13", "sid": "sid"}
NOT_RUN, NEVER = "not run", "-"
"""Cells of a guest that has no result, and of one that is not in this place."""
_HEAD = """# The lab: mechanisms in guests

Written by `./bootstrap python tests/lab/cells.py --write` on {date}, from recordings of emulated guests
(`make test-lab`). A cell is a guest of a Debian release with the probes of a tier: how many of its recordings passed,
and how many of them have earlier probes; then, of the last one, the stage with the injected time and that time, and how
long the finding took. Each result is a line of results.jsonl; recordings and logs stay in .cache/lab. Lines with a
`source` were taken from an earlier table, which had only what they have.

Commits: {commits}.
"""


class Place(NamedTuple):
    """A guest's release and tier: a column of the table."""

    release: str
    tier: str

    def __str__(self) -> str:
        return f"{self.release}-{self.tier}"


PLACES = tuple(Place(release, tier) for release, tiers in COLUMNS.items() for tier in tiers)


def commit() -> str:
    """Return the checkout's commit, with `-dirty` where a file differs from it."""
    words = ["git", "-C", CHECKOUT, "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


LEAST_US, AFTER_US = 30_000_000, 10_000_000
"""Least length of a bundled recording, and its length after the finding."""


class Row(NamedTuple):
    """A row of the table: what is expected of a mechanism."""

    expected: str
    inputs: Mapping[str, str]
    """Tier -> the inputs of the recordings that are valid now."""
    at_b: str = ""
    """The expectation with the probes of tier B where it differs."""
    places: tuple[Place, ...] = PLACES
    """The guests in which it is to run."""


def digest(files: Iterable[Path], *words: str) -> str:
    """Return a hash of all that a recording depends on: these files and options."""
    found = hashlib.sha256(repr(words).encode())
    for file in sorted(files):
        found.update(file.name.encode() + file.read_bytes())
    return found.hexdigest()[:12]


def begun(guest: str, place: Place, inputs: str) -> dict[str, Any]:
    """Return what identifies the recording of a guest that is started now."""
    return {"guest": guest, "place": str(place), "commit": commit(), "inputs": inputs, "begin": time.time()}


def keep(directory: Path, run: dict[str, Any]) -> Path:
    """Keep the recording and log of a guest that was begun as `run`; the log alone where it died."""
    begin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(run["begin"]))
    kept = CACHE / f"{run['guest']}-{run['place']}-{begin.replace(':', '')}"
    kept.mkdir(parents=True)
    for name in KEPT:
        if (directory / name).exists():
            shutil.copy(directory / name, kept)
    (kept / "run.json").write_text(json.dumps(run | {"begin": begin, "seconds": round(time.time() - run["begin"])}))
    return kept


def is_complete(recorded: Path) -> bool:
    """Return whether a guest ended with its recording."""
    return all((recorded / name).exists() for name in KEPT)


def valid(guest: str, place: Place, inputs: str) -> list[Path]:
    """Return the complete recordings of a guest that have these inputs, the oldest first."""
    runs = sorted(CACHE.glob(f"{guest}-{place}-*/run.json"))
    return [
        path.parent for path in runs if json.loads(path.read_text())["inputs"] == inputs and is_complete(path.parent)
    ]


@contextlib.contextmanager
def noted(cell: str, recorded: Path) -> Iterator[dict[str, Any]]:
    """Append the result of a cell, which is evaluated inside; what is found goes into the yielded facts.

    A guest that died says nothing about its cells: it gives no result, and is booted again by the next run.
    """
    run = json.loads((recorded / "run.json").read_text())
    facts = {"cell": cell, "recorded": recorded.name, "log": str((recorded / "log").relative_to(CHECKOUT))}
    facts |= {name: run[name] for name in ("place", "commit", "inputs", "begin", "seconds")} | {"outcome": "failed"}
    try:
        yield facts
        facts["outcome"] = "passed"
    except BaseException as error:
        facts["error"] = str(error)[:500]
        raise
    finally:
        if is_complete(recorded):
            with RESULTS.open("a") as lines:
                lines.write(json.dumps(facts) + "\n")


def results() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the results by cell and place, one for each recording: its last one. The oldest recording is the first."""
    last: dict[tuple[str, str, str], dict[str, Any]] = {}
    for file in (HISTORY, RESULTS):
        for line in file.read_text().splitlines() if file.exists() else ():
            one = json.loads(line)
            last[one["cell"], one["place"], one["recorded"]] = one
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in sorted(last.values(), key=lambda one: one["begin"]):
        found.setdefault((one["cell"], one["place"]), []).append(one)
    return found


def cut(recording: Path, begin_us: int, end_us: int, into: Path) -> Path:
    """Write the windows that lie in that span as a recording of their own; return its path."""
    source = open_recording(recording)
    inventory, target = Inventory(), Rotation.create(into, source.origin, RecordingLimits())
    first = True
    for one in source:
        if isinstance(one, Frame):
            inventory.note(one)
            if begin_us <= one.mono_us - one.dt_us and one.mono_us <= end_us:
                target.append(inventory.complete(one) if first else one)
                first = False
    target.close("closed")
    return into


def bundle() -> Iterator[Path]:
    """Bundle the last recording of each effect that was found in the first place, from its begin to the finding.

    Yield the paths: RULE-EFFECT of the first finding.
    """
    BUNDLED.mkdir(exist_ok=True)
    for (cell, place), some in results().items():
        last, (effect, _, rule) = some[-1], cell.partition(": ")
        path = CACHE / last["recorded"]
        if place != str(PLACES[0]) or not _has_passed(last) or last.get("found_s") is None or not path.exists():
            continue
        begin_us, most_us = json.loads((path / "result").read_text())["effects"][effect]["sick_us"]
        end_us = begin_us + max(LEAST_US, round(last["found_s"] * 1_000_000) + AFTER_US)
        into = BUNDLED / f"{rule}-{effect}.latmon.jsonl.gz"
        into.unlink(missing_ok=True)
        cut(path / KEPT[0], begin_us, min(end_us, most_us), into).chmod(0o644)
        yield into


def table(rows: Mapping[str, Row]) -> str:
    """Return the table in Markdown; `rows`: the mechanism and its rule -> what is expected."""
    found = results()
    head = ["mechanism", "expected", *(f"{NAMES[one.release]}, {one.tier}" for one in PLACES)]
    lines = [head, ["---"] * len(head)]
    for name, row in rows.items():
        expected = f"{row.expected}; B: {row.at_b}" if row.at_b else row.expected
        lines.append([name, expected, *(_cell(found.get((name, str(place)), []), row, place) for place in PLACES)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(rows: Mapping[str, Row]) -> None:
    """Write results.jsonl and RESULTS.md: the table, its date and commits. The text below the table stays."""
    notes = TABLE.read_text().rpartition("|\n")[2] if TABLE.exists() else ""
    known = [one for some in results().values() for one in some]
    known.sort(key=lambda one: (one["begin"], one["cell"], one["place"]))
    _replace(HISTORY, "".join(f"{json.dumps(one)}\n" for one in known))
    commits = ", ".join(dict.fromkeys(f"`{one['commit']}`" for one in known if "commit" in one))
    text = _HEAD.format(date=time.strftime("%Y-%m-%d", time.gmtime()), commits=commits)
    _replace(TABLE, f"{text}\n{table(rows)}\n{notes}")


def _replace(path: Path, text: str) -> None:
    """Write a file as a whole or not at all."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def _times(some: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of recordings; a line that was taken from an earlier table may be of several."""
    return sum(int(one.get("times", 1)) for one in some)


def _has_passed(one: Mapping[str, Any]) -> bool:
    return bool(one["outcome"] == "passed")


def _cell(some: list[dict[str, Any]], row: Row, place: Place) -> str:
    if not some:
        return NOT_RUN if place in row.places else NEVER
    last, now = some[-1], row.inputs[place.tier]
    times, passed = _times(some), _times(one for one in some if _has_passed(one))
    earlier = _times(one for one in some if one["inputs"] != now)
    text = f"passed {passed} of {times}"
    if earlier:
        text += " (earlier probes)" if earlier == times else f" ({earlier} with earlier probes)"
    if last.get("added_ms"):
        stage, ms = max(last["added_ms"].items(), key=lambda one: one[1])
        known = f" of {last['injected_ms']:g}" if last.get("injected_ms") else ""
        text += f": {stage} {ms:.4g}{known} ms"
    if last.get("due") is not None:
        text += ", no finding" if last.get("found_s") is None else f", after {last['found_s']:.0f} s"
    if place.tier == "B" and row.at_b.startswith(UNMEASURED):
        text = f"{UNMEASURED}: {text}"
    beside = [f"{one['device']} {one['id']}" for one in last.get("others", ())]
    return text + (f"; also {', '.join(beside)}" if beside else "")


if __name__ == "__main__":
    sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "backends"), str(CHECKOUT / "tests/helpers")]
    if "--bundle" in sys.argv:
        for path in bundle():
            print(path.relative_to(CHECKOUT), path.stat().st_size)
    else:
        from test_findings import ROWS

        if "--write" in sys.argv:
            write(ROWS)
        print(table(ROWS))
