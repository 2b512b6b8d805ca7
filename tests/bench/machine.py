"""Facts about the machine that a reader needs to judge the figures: no host name, no path."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from latmon import __version__


def facts() -> list[str]:
    """One sentence each."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return [
        f"{os.cpu_count()} x {_cpu()}, {memory:.0f} GB, {_virtual()}",
        f"{platform.system()} {platform.release().partition('-')[0]}, {platform.machine()}",
        f"latmon {__version__}, Python {platform.python_version()}, Textual {importlib.metadata.version('textual')}",
        f"{_first_line('fio', '--version')}, {_first_line('iostat', '-V')}, {_first_line('top', '-V')}",
        f"kernel.bpf_stats_enabled is {_stats()}",
    ]


def load() -> float:
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
