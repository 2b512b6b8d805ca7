"""Stacks: the most frequent as text, all as folded text or as a flame graph in SVG.

A folded stack is `outermost;...;innermost`; flamegraph.pl, speedscope and others read it with its count after a blank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from latmon.report.formatting import wrapped
from latmon.support.units import part

TOP = 20
_WIDE, _TALL, _EDGE = 1200, 17, 10
_LEAST = 0.3
"""Narrower boxes, in pixels, are left out."""
_CELL = 6.6
"""Width of a character."""
_COLOURS = ("#e69f00", "#f0e442", "#d55e00", "#cc79a7")


def folded_text(stacks: Mapping[str, int]) -> str:
    """Return a line per stack, the most frequent first."""
    return "".join(f"{stack} {n}\n" for stack, n in _sorted(stacks))


def top_stacks(stacks: Mapping[str, int], of: str, what: str) -> Iterator[str]:
    """Yield lines on the TOP stacks, innermost function first. `of`: whose stacks; `what`: I/Os that they submitted."""
    total = sum(stacks.values())
    yield from wrapped(f"{of} that submitted {what}: {total:,} I/Os, {len(stacks):,} different stacks")
    for stack, n in _sorted(stacks)[:TOP]:
        yield from wrapped(f"{n:,} ({part(n / total)})  {' < '.join(reversed(stack.split(';')))}", "  ")


def _sorted(stacks: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(stacks.items(), key=lambda row: (-row[1], row[0]))


@dataclass
class _Node:
    """A function below its callers."""

    count: int = 0
    below: dict[str, _Node] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        return 1 + max((one.depth for one in self.below.values()), default=0)


def flame_svg(stacks: Mapping[str, int], title: str) -> str:
    """Return a flame graph: callers below, the innermost function on top, as wide as its I/Os. It loads nothing."""
    root = _Node()
    for stack, n in stacks.items():
        node = root
        node.count += n
        for name in stack.split(";"):
            node = node.below.setdefault(name, _Node())
            node.count += n
    high = (root.depth + 1) * _TALL + 2 * _EDGE
    boxes = "\n".join(_boxes("all", root, 0.0, (_WIDE - 2 * _EDGE) / max(1, root.count), (0, high - _EDGE, root.count)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDE}" height="{high}" font-family="monospace" '
        f'font-size="11">\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f'<text x="{_EDGE}" y="{_EDGE + 8}">{escape(title)}</text>\n{boxes}\n</svg>\n'
    )


def _boxes(name: str, node: _Node, begin: float, scale: float, at: tuple[int, int, int]) -> Iterator[str]:
    """Yield a function's box and those above it. `begin`: I/Os left of it; `at`: its level, the bottom, all I/Os."""
    level, bottom, total = at
    wide = node.count * scale
    if wide < _LEAST:
        return
    x, y = _EDGE + begin * scale, bottom - (level + 1) * _TALL
    room = int((wide - 4) / _CELL)
    label = name if len(name) <= room else f"{name[: room - 1]}…" if room > 3 else ""  # noqa: PLR2004 - letters
    colour = _COLOURS[sum(name.encode()) % len(_COLOURS)]
    yield (
        f"<g><title>{escape(name)}: {node.count:,} I/Os, {part(node.count / total)}</title>"
        f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_TALL - 1}" fill="{colour}"/>'
        f'<text x="{x + 2:.1f}" y="{y + 12}">{escape(label)}</text></g>'
    )
    for below, one in sorted(node.below.items()):
        yield from _boxes(below, one, begin, scale, (level + 1, bottom, total))
        begin += one.count
