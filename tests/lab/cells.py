"""The lab's table: kept recordings of guests, a result per cell, and the table of all results.

    ./bootstrap python tests/lab/cells.py        prints the table

.cache/lab has a directory per recording (recording, log of the guest, console, `run.json`) and results.jsonl, a line
per evaluation of a cell. A cell is a load in a guest of a Debian release with the probes of a tier. A recording is
valid until the probes, the test driver or the loads change; cells are evaluated from it again when rules change.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = CHECKOUT / ".cache/lab"
RESULTS = CACHE / "results.jsonl"
RECORDED = ("probes/linux", "tests/lab/sick_disk", "tests/lab/slow_handler", "tests/lab/guest_findings.py")
"""Files that a recording depends on."""
KEPT = ("all.latmon.jsonl.gz", "result", "log", "console")
COLUMNS = {"trixie": ("A", "B"), "bookworm": ("B",), "sid": ("A", "B")}
"""Release -> tiers. bookworm's bpftrace has no raw tracepoints, which tier A needs; tier C runs where B does not."""
NAMES = {"bookworm": "Debian 12", "trixie": "Debian 13", "sid": "sid"}


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


def inputs() -> str:
    """Return a hash of all that a recording depends on."""
    found = hashlib.sha256()
    for path in (CHECKOUT / one for one in RECORDED):
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                found.update(file.name.encode() + file.read_bytes())
    return found.hexdigest()[:12]


def begun(guest: str, place: Place) -> dict[str, Any]:
    """Return what identifies the recording of a guest that is started now."""
    return {"guest": guest, "place": str(place), "commit": commit(), "inputs": inputs(), "begin": time.time()}


def keep(directory: Path, run: dict[str, Any]) -> Path:
    """Keep the recording and log of a guest that was begun as `run`."""
    begin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(run["begin"]))
    kept = CACHE / f"{run['guest']}-{run['place']}-{begin.replace(':', '')}"
    kept.mkdir(parents=True)
    for name in KEPT:
        shutil.copy(directory / name, kept)
    (kept / "run.json").write_text(json.dumps(run | {"begin": begin, "seconds": round(time.time() - run["begin"])}))
    return kept


def newest(guest: str, place: Place) -> Path | None:
    """Return the last recording of a guest that is valid now."""
    runs = sorted(CACHE.glob(f"{guest}-{place}-*/run.json"), reverse=True)
    now = inputs()
    return next((run.parent for run in runs if json.loads(run.read_text())["inputs"] == now), None)


@contextlib.contextmanager
def noted(cell: str, recorded: Path) -> Iterator[dict[str, Any]]:
    """Append the result of a cell, which is evaluated inside; what is found goes into the yielded facts."""
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
        with RESULTS.open("a") as lines:
            lines.write(json.dumps(facts) + "\n")


def results() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the results by cell and place, one for each recording: its last one."""
    last: dict[tuple[str, str, str], dict[str, Any]] = {}
    for line in RESULTS.read_text().splitlines() if RESULTS.exists() else ():
        one = json.loads(line)
        last[one["cell"], one["place"], one["recorded"]] = one
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for (cell, place, _), one in sorted(last.items()):
        found.setdefault((cell, place), []).append(one)
    return found


def table(cells: Mapping[str, str]) -> str:
    """Return the table in Markdown; `cells`: the name of each row -> what is expected there."""
    found = results()
    head = ["mechanism", "expected", *(f"{NAMES[one.release]}, {one.tier}" for one in PLACES)]
    lines = [head, ["---"] * len(head)]
    for cell, expected in cells.items():
        lines.append([cell, expected, *(_cell(found.get((cell, str(place)), [])) for place in PLACES)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(some: list[dict[str, Any]]) -> str:
    if not some:
        return "not run"
    last = some[-1]
    passes = sum(one["outcome"] == "passed" and one["inputs"] == last["inputs"] for one in some)
    text = f"passed {passes}x" if last["outcome"] == "passed" else last["outcome"]
    if last.get("added_ms"):
        stage, ms = max(last["added_ms"].items(), key=lambda one: one[1])
        known = f" of {last['injected_ms']:g}" if last.get("injected_ms") else ""
        text += f": {stage} {ms:.4g}{known} ms"
    text += f", after {last['found_s']:.0f} s" if last.get("found_s") is not None else ""
    beside = [f"{one['device']} {one['id']}" for one in last.get("others", ())]
    return text + (f"; also {', '.join(beside)}" if beside else "")


if __name__ == "__main__":
    sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "backends"), str(CHECKOUT / "tests/helpers")]
    from test_findings import ROWS

    print(table(ROWS))
