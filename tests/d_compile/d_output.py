"""Output of illumos' DTrace for latmon's scripts: tables of llquantize, lines of the protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from latmon.manifest import Manifest

_HEADER = "%16s  ------------- Distribution ------------- count    "
_CELLS = 40
Key = tuple[str | int, ...]


def label(us: int) -> int:
    """The lower end of the row of llquantize(us * 8, 2, 3, 34, 16) that counts it; 0 is what lies below 8."""
    value = us * 8
    return 0 if value < 8 else value - value % (1 << value.bit_length() - 4)


def table(counts: Mapping[int, int]) -> str:
    """By label; with the empty row before and behind, as it is printed."""
    labels = sorted(at for at, n in counts.items() if n) or [8]
    rows = [labels[0]]
    while rows[-1] <= labels[-1]:
        rows.append(_next(rows[-1]))
    if rows[0]:
        rows.insert(0, _before(rows[0]))
    total = sum(counts.values()) or 1
    lines = [_HEADER % "value"]
    for at in rows:
        n = counts.get(at, 0)
        bar = "@" * int(n * _CELLS / total + 0.5)
        lines.append(f"{f'{at}' if at else '< 8':>16} |{bar:<{_CELLS}} {n:<9}")
    return "\n" + "\n".join(lines) + "\n"


def _next(at: int) -> int:
    return 8 if at == 0 else at + (1 << at.bit_length() - 4)


def _before(at: int) -> int:
    if at == 8:
        return 0
    return at - (1 << (at - 1).bit_length() - 4)


@dataclass(slots=True)
class Output:
    """One script's run, written down as it goes."""

    manifest: Manifest
    begun_ns: int
    text: str = ""
    tables: dict[str, dict[Key, Counter[int]]] = field(default_factory=dict)
    scalars: dict[str, dict[Key, int]] = field(default_factory=dict)
    ticks: int = 0

    def __post_init__(self) -> None:
        self._line("ready", self.begun_ns)

    def timed(self, name: str, key: Key, us: int, weight: int = 1) -> None:
        """One more in a table, or `weight` more."""
        self.tables.setdefault(self._of(name), {}).setdefault(key, Counter())[label(us)] += weight

    def added(self, name: str, key: Key, n: int = 1) -> None:
        of = self.scalars.setdefault(self._of(name), {})
        of[key] = of.get(key, 0) + n

    def largest(self, name: str, key: Key, n: int) -> None:
        of = self.scalars.setdefault(self._of(name), {})
        of[key] = max(n, of.get(key, n))

    def record(self, kind: str, *words: str | int) -> None:
        self._line(kind, *words)

    def tick(self, at_ns: int, kind: str = "tick") -> None:
        self._line(kind, self.ticks, at_ns)
        for spec in self.manifest.maps:
            self._map(spec.name)
        self._line("done")
        self.ticks += 1

    def end(self, at_ns: int) -> str:
        self.tick(at_ns, "last")
        return self.text

    def _of(self, name: str) -> str:
        return f"{self.manifest.name}_{name}"

    def _line(self, kind: str, *words: str | int) -> None:
        self.text += " ".join(["@@", kind, self.manifest.name, *map(str, words)]) + "\n"

    def _map(self, name: str) -> None:
        """Rows in the order of their values, which for a table is that of its sum."""
        for key, counts in sorted(self.tables.get(name, {}).items(), key=lambda item: _order(item[1])):
            self.text += "\t".join([f"@@Q {name}", *map(str, key), ""]) + table(counts) + "@@E\n"
        for key, n in sorted(self.scalars.get(name, {}).items(), key=lambda item: item[1]):
            self.text += "\t".join([f"@@S {name}", *map(str, key), str(n)]) + "\n"


def _order(counts: Mapping[int, int]) -> int:
    return sum(at * n for at, n in counts.items())


def lines_of(text: str, sign: str) -> list[Sequence[str]]:
    """The words of the lines that begin with `@@` and a sign: S, Q, or the name of a record behind a blank."""
    begin = f"@@{sign}"
    lines: Iterable[str] = (line for line in text.splitlines() if line.startswith(begin))
    return [line[len(begin) :].strip().split("\t" if sign in "SQ" else None) for line in lines]
