"""Sends only the changed cells of a partial repaint.

Textual 8.2 writes a changed line from its widget's left edge to the last changed cell; one column at the right of a
heat map would cost every row whole, 8 KB/s instead of 1. Touches the compositor's update and nothing else.
"""

from __future__ import annotations

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate, CompositorUpdate


class NarrowUpdate(CompositorUpdate):
    """The same update, each span cut at both ends."""

    def __init__(self, update: ChopsUpdate) -> None:
        self._update = update

    def render_segments(self, console: Console) -> str:
        update = self._update
        out: list[str] = []
        for y, x1, x2 in update.spans:
            for end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
                if strip is None or x >= x2 or end <= x1:
                    continue
                begin = max(x, x1)
                out.append(Control.move_to(begin, y).segment.text)
                out.append(strip.crop(begin - x, min(end, x2) - x).render(console))
        return "".join(out)


def narrow(update: object) -> object:
    """A partial update made narrow; anything else as it is."""
    return NarrowUpdate(update) if isinstance(update, ChopsUpdate) else update
