"""How often the kernel skipped a tool's BPF programs: recursion_misses, which each program's fdinfo carries since 6.7.

A `tracepoint:` or `kprobe:` program doesn't run while it interrupts another on its CPU (bpf_prog_active). Readable by
root alone; None where it can't be read or the kernel doesn't count, never 0. Reads /proc, a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from latmon.files import text
from latmon.processes import descendants


class Skipped:
    """Follows the process that was started and what became of it: shims and wrappers exec or fork the tool."""

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._pid, self._proc = pid, proc
        self._before: int | None = None

    def since_last(self) -> int | None:
        """Runs that were skipped since the call before; None at the first call and where nothing can be told."""
        now, before = self._total(), self._before
        self._before = now
        return None if now is None or before is None else max(0, now - before)

    def _total(self) -> int | None:
        """Over all programs that the processes hold, each once."""
        found: dict[str, int] = {}
        for pid in (self._pid, *descendants(self._pid, self._proc)):
            for info in self._fdinfo(pid):
                fields = dict(line.split(":\t", 1) for line in info.splitlines() if ":\t" in line)
                if "prog_id" in fields and fields.get("recursion_misses", "").isdigit():
                    found[fields["prog_id"]] = int(fields["recursion_misses"])
        return sum(found.values()) if found else None

    def _fdinfo(self, pid: int) -> Iterator[str]:
        try:
            files = list((self._proc / str(pid) / "fdinfo").iterdir())
        except OSError:  # not ours to read, or gone
            return
        yield from (text(file) for file in files)
