"""Text as DTrace prints it, for tests: record lines, one-line aggregations and llquantize tables, in its exact layout.

Owns the layout of both families: that of Oracle's DTrace 2, compared with its real output, and that of illumos, Solaris
and FreeBSD, from what their libdtrace does; they differ in what is below the first bucket only. Knows neither manifest
nor decoder nor latmon's buckets: it is the other side of what it is used to test.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

Key = str | int
SCALE = 8
"""Scripts count eight times the microseconds, with llquantize(, 2, 3, 34, 16)."""
EDGES = [(8 + step) << (octave - 3) for octave in range(3, 35) for step in range(8)]
"""Lower ends of its buckets, eight to an octave from 2^3 to 2^35."""
TOP = 1 << 35
BELOW = {"illumos": ["< 8"], "oracle": ["-8", "abs() < 8"]}
"""The rows below the first bucket by family; Oracle's counts what is negative, too."""
_BAR = 40
_HEADER = f"{'value':>16} {'------------- Distribution -------------':>41} {'count':<9}\n"


def record(kind: str, script: str, *fields: Key, text: str = "") -> str:
    """`@@ KIND SCRIPT F1 F2 ... TEXT`."""
    return " ".join(["@@", kind, script, *map(str, fields), *([text] if text else [])]) + "\n"


def scalar(name: str, keys: Sequence[Key], value: int) -> str:
    """One key of an aggregation that is a number: count(), sum(), max()."""
    return "\t".join(["@@S " + name, *map(str, keys), str(value)]) + "\n"


def scalars(name: str, values: Mapping[tuple[Key, ...], int]) -> str:
    """All keys in printa()'s order: by value."""
    return "".join(scalar(name, keys, value) for keys, value in sorted(values.items(), key=lambda item: item[1]))


def table(name: str, keys: Sequence[Key], counts: Mapping[int, int], family: str = "illumos") -> str:
    """One key of an llquantize(): `counts` are numbers of I/Os by their microseconds."""
    return "\t".join(["@@Q " + name, *map(str, keys), ""]) + "\n" + _HEADER + "".join(_rows(counts, family)) + "@@E\n"


def tables(name: str, values: Mapping[tuple[Key, ...], Mapping[int, int]], family: str = "illumos") -> str:
    """All keys in printa()'s order: by the time of all I/Os together."""
    ordered = sorted(values.items(), key=lambda item: sum(us * count for us, count in item[1].items()))
    return "".join(table(name, keys, counts, family) for keys, counts in ordered)


def quantized(text: str) -> str:
    """Return output of llquantize() as quantize() would print it: one row per octave, and one for 0."""
    lines: list[str] = []
    counts: Counter[int] = Counter()
    in_table = False
    for line in text.splitlines(keepends=True):
        label, bar, remainder = line.partition("|")
        if line.endswith(" count    \n"):
            in_table, counts = True, Counter()
            lines.append(line)
        elif in_table and bar:
            low = 0 if "<" in label else int(label.strip(" >="))
            counts[1 << low.bit_length() - 1 if low else 0] += int(remainder.split()[-1])
        elif in_table:
            in_table = False
            lines += [*_octaves(counts), line]
        else:
            lines.append(line)
    return "".join(lines)


def _octaves(counts: Mapping[int, int]) -> Iterator[str]:
    labels = [-1, 0, *(1 << at for at in range(40))]
    filled = [at for at, label in enumerate(labels) if counts[label]]
    for label in labels[max(filled[0] - 1, 0) : filled[-1] + 2]:
        bar = "@" * int(_BAR * counts[label] / sum(counts.values()) + 0.5)
        yield f"{label:>16} |{bar:<{_BAR}} {counts[label]:<9}\n"


def _rows(counts: Mapping[int, int], family: str) -> Iterator[str]:
    """From one row before the first that isn't empty to one after the last, no further than there are rows."""
    below = BELOW[family]
    labels = [*below, *map(str, EDGES), f">= {TOP}"]
    found = [0] * len(labels)
    for us, count in counts.items():
        found[len(below) - 1 + bisect_right([*EDGES, TOP], SCALE * us)] += count
    filled = [at for at, count in enumerate(found) if count]
    for at in range(max(filled[0] - 1, 0), min(filled[-1] + 2, len(labels))):
        bar = "@" * int(_BAR * found[at] / sum(found) + 0.5)
        yield f"{labels[at]:>16} |{bar:<{_BAR}} {found[at]:<9}\n"
