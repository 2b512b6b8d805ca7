"""The command `kstat -p` of illumos and Solaris, and the parser of its output.

A line is `module:instance:name:statistic<TAB>value`. Values stay text: which are numbers, and of which unit, their
readers know. What isn't understood is counted.

Checked in illumos-gate, usr/src/cmd/stat/kstat/kstat.h (KS_PFMT). A name may hold colons, a statistic and a value
blanks.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from latmon.support.errors import UnavailableError
from latmon.support.text import clean
from latmon.support.trust import environment, find_tool, require

MAX_BYTES = 16 * 1024 * 1024
"""Of one output: all kstats of a machine with 64 CPUs are 3 MB."""
MAX_LINE = 4096
MAX_KSTATS = 65_536
MAX_STATISTICS = 1024
"""Of one kstat."""
_MAX_NAME = 64
"""KSTAT_STRLEN is 31."""
_MAX_VALUE = 256
_WHOLE = re.compile(r"-?[0-9]{1,20}\Z")
_REAL = re.compile(r"-?[0-9]{1,20}(\.[0-9]{0,20})?([eE][-+]?[0-9]{1,2})?\Z")
_MAX_INSTANCE = 2**31


class Id(NamedTuple):
    """What a kstat is known by."""

    module: str
    instance: int
    name: str


@dataclass(frozen=True, slots=True)
class Kstats:
    """One reading. `undecoded` counts lines that were not understood."""

    values: Mapping[Id, Mapping[str, str]] = field(default_factory=dict)
    undecoded: int = 0


def parse_pairs(raw: bytes) -> Kstats:
    """Output of `kstat -p`. What lies behind MAX_BYTES counts as one line that was not understood."""
    found = _Found()
    for line in _lines(raw, found):
        where, tab, value = line.partition(b"\t")
        module, _, rest = where.partition(b":")
        instance, _, rest = rest.partition(b":")
        name, colon, statistic = rest.rpartition(b":")
        id_ = _id(module, instance, name)
        if not (tab and colon and statistic) or id_ is None or not found.add(id_, statistic, value):
            found.undecoded += 1
    return found.told


def whole(text: str | None) -> int | None:
    """A statistic as a whole number; None where it is none."""
    return int(text) if text is not None and _WHOLE.match(text) else None


def real(text: str | None) -> float | None:
    """A statistic as a number; None where it is none."""
    return float(text) if text is not None and _REAL.match(text) else None


class _Found:
    """What is known so far, within bounds."""

    def __init__(self) -> None:
        self.values: dict[Id, dict[str, str]] = {}
        self.undecoded = 0

    @property
    def told(self) -> Kstats:
        return Kstats(self.values, self.undecoded)

    def add(self, id_: Id, statistic: bytes, value: bytes) -> bool:
        """False where the name is none, or there is no room."""
        if not statistic or len(statistic) > _MAX_NAME or (id_ not in self.values and len(self.values) >= MAX_KSTATS):
            return False
        had, name = self.values.setdefault(id_, {}), clean(statistic, _MAX_NAME)
        if name not in had and len(had) >= MAX_STATISTICS:
            return False
        had[name] = clean(value.strip(b" \t\r"), _MAX_VALUE)
        return True


def _lines(raw: bytes, found: _Found) -> Iterator[bytes]:
    """Lines that say something; one that is too long is not understood."""
    found.undecoded += len(raw) > MAX_BYTES
    for line in raw[:MAX_BYTES].split(b"\n"):
        stripped = line.rstrip(b"\r")
        if len(stripped) > MAX_LINE:
            found.undecoded += 1
        elif stripped.strip():
            yield stripped


def _id(module: bytes, instance: bytes, name: bytes) -> Id | None:
    number = whole(instance.decode("latin-1"))
    if not module or not name or max(len(module), len(name)) > _MAX_NAME:
        return None
    if number is None or not -1 <= number < _MAX_INSTANCE:
        return None
    return Id(clean(module, _MAX_NAME), number, clean(name, _MAX_NAME))


VARIABLE = "LATMON_KSTAT"
_USUAL = Path("/usr/bin/kstat")
_TIMEOUT_S = 10
Run = Callable[[tuple[str, ...]], bytes]
"""Arguments -> standard output; UnavailableError where there is none."""


def runner(environ: Mapping[str, str] = os.environ) -> Run:
    """Runs the tool that LATMON_KSTAT names, else /usr/bin/kstat, else the one on the search path."""
    usual = _USUAL if VARIABLE not in environ and os.access(_USUAL, os.X_OK) else None
    path = str(usual or find_tool("kstat", VARIABLE, environ))
    require(Path(path), path)

    def run(words: tuple[str, ...]) -> bytes:
        try:
            # no kstat needs an input; C for numbers that have a point
            done = subprocess.run(  # noqa: S603 - an absolute path that is the user's or the system's
                [path, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
                env={**environment(environ), "LC_ALL": "C"},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnavailableError(f"kstat can't be run: {error}.") from error
        if done.returncode not in (0, 1):  # 1: nothing matched
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise UnavailableError(f"kstat failed: {said[-1] if said else f'exit code {done.returncode}'}.")
        return done.stdout

    return run
