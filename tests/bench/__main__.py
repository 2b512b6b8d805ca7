"""`make bench`: measures latmon beside its peers, prints each section and writes .cache/benchmarks.md.

A section that isn't measured this time keeps its text in that file. docs/BENCHMARKS.md has the current medians.
Root only: it attaches probes.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import importlib.metadata
import os
import platform
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import figures

from latmon import __version__

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / ".cache" / "benchmarks.md"
PARTS = (
    "cost",
    "throughput",
    "hooks",
    "usage",
    "large",
    "growth",
    "startup",
    "traffic",
    "keys",
    "recording_size",
    "recording",
    "findings",
    "soak",
)
"""Modules with `measure(scratch, rounds) -> Iterator[Section]`."""
DEFAULT = ("cost", "throughput", "startup")
"""The cost of being watched, in less than 15 minutes."""
INTRODUCTION = """# Benchmarks

Each figure is beside a peer that was measured in the same run. A figure is the median of several runs, with the
lowest and the highest. The machine was not ours alone: trust ratios more than absolute numbers.
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__, allow_abbrev=False)
    parser.add_argument("parts", metavar="PART", nargs="*", help=f"these: {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=3, help="runs per figure (3; throughput has 12 pairs at least)")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    if os.geteuid() != 0:
        print("bench: needs root, to attach probes", file=sys.stderr)
        return 3
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="latmon-bench-") as scratch:
        for part in args.parts or DEFAULT:
            _measure(part, Path(scratch), args.rounds)
    return 0


def _measure(part: str, scratch: Path, rounds: int) -> None:
    date = dt.datetime.now(dt.UTC).date().isoformat()
    command = f'make bench ARGS="{part} --rounds {rounds}"'
    before = _load()
    sections = []
    for section in importlib.import_module(part).measure(scratch, rounds):
        sections.append(section.markdown(command, date))
        print(sections[-1], flush=True)
    facts = [*_facts(), f"load average {before:.1f} at the start, {_load():.1f} at the end"]
    _write(part, "\n".join([*sections, "Measured on:\n", *(f"- {fact}" for fact in facts)]))


def _write(part: str, text: str) -> None:
    """Put the part in its place in the file."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(figures.page(INTRODUCTION, PARTS, PAGE.read_text() if PAGE.exists() else "", {part: text}))


def _facts() -> list[str]:
    """Return facts about the machine that a reader needs to judge the figures: no host name, no path."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return [
        f"{os.cpu_count()} x {_cpu()}, {memory:.0f} GB, {_virtual()}",
        f"{platform.system()} {platform.release().partition('-')[0]}, {platform.machine()}",
        f"latmon {__version__}, Python {platform.python_version()}, Textual {importlib.metadata.version('textual')}",
        f"{_first_line('fio', '--version')}, {_first_line('iostat', '-V')}, {_first_line('top', '-V')}",
        f"kernel.bpf_stats_enabled is {_stats()}",
    ]


def _load() -> float:
    """Load average of the last minute."""
    return os.getloadavg()[0]


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return " ".join(line.partition(":")[2].split())
    return platform.machine()


def _virtual() -> str:
    flags = Path("/proc/cpuinfo").read_text()
    return "virtual machine" if " hypervisor" in flags else "no hypervisor seen"


def _first_line(*words: str) -> str:
    try:
        text = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    except OSError:
        return f"no {words[0]}"
    return text.partition("\n")[0].strip()


def _stats() -> str:
    try:
        return Path("/proc/sys/kernel/bpf_stats_enabled").read_text().strip()
    except OSError:
        return "unknown"


if __name__ == "__main__":
    sys.exit(main())
