"""`make bench`: measures latmon beside its peers, prints each section and writes .cache/benchmarks.md.

A section that isn't measured this time keeps its text in that file. docs/BENCHMARKS.md has the current medians.
Root only: it attaches probes.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import os
import signal
import sys
import tempfile
from pathlib import Path

import figures
import machine

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / ".cache" / "benchmarks.md"
PARTS = (
    "cost",
    "stages",
    "throughput",
    "usage",
    "large",
    "startup",
    "traffic",
    "keys",
    "recording_size",
    "recording",
    "findings",
)
"""Modules with `measure(scratch, rounds) -> Iterator[Section]`."""
INTRODUCTION = """# Benchmarks

Each figure is beside a peer that was measured in the same run. A figure is the median of several runs, with the
lowest and the highest. The machine was not ours alone: trust ratios more than absolute numbers.
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__, allow_abbrev=False)
    parser.add_argument("parts", metavar="PART", nargs="*", help=f"only these: {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=5, help="runs per figure (5)")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    if os.geteuid() != 0:
        print("bench: needs root, to attach probes", file=sys.stderr)
        return 3
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="latmon-bench-") as scratch:
        for part in args.parts or PARTS:
            _measure(part, Path(scratch), args.rounds)
    return 0


def _measure(part: str, scratch: Path, rounds: int) -> None:
    date = dt.datetime.now(dt.UTC).date().isoformat()
    command = f'make bench ARGS="{part} --rounds {rounds}"'
    before = machine.load()
    sections = []
    for section in importlib.import_module(part).measure(scratch, rounds):
        sections.append(section.markdown(command, date))
        print(sections[-1], flush=True)
    facts = [*machine.facts(), f"load average {before:.1f} at the start, {machine.load():.1f} at the end"]
    _write(part, "\n".join([*sections, "Measured on:\n", *(f"- {fact}" for fact in facts)]))


def _write(part: str, text: str) -> None:
    """Put the part in its place in the file."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(figures.page(INTRODUCTION, PARTS, PAGE.read_text() if PAGE.exists() else "", {part: text}))


if __name__ == "__main__":
    sys.exit(main())
