"""A look at an earlier time: a history made of what an archive kept, as if frames had come until then. Pure."""

from __future__ import annotations

from latmon.model import Frame, Origin
from latmon.past import Past, completed
from latmon.store import Store
from latmon.views.history import History
from latmon.views.told import Told


class Glass:
    """Looks back, and keeps what the latest look was made of: the next one is mostly made of the same frames."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._span = (0, 0)

    def look(
        self, past: Past, origin: Origin | None, at_us: int, window_us: int, ops: tuple[str, ...]
    ) -> tuple[History, Told]:
        """What is seen at `at_us`: only what the screen needs is decoded, a window and what peers are compared over."""
        store, told = Store(brief=True), Told()
        store.origin = origin
        begin = at_us - window_us * 7 // 6 - 2 * (origin.interval_us if origin else 1_000_000)
        waiting = past.waiting(begin)
        history = History(window_us, ops, store, waiting[1] if waiting else None)
        begin = waiting[0] if waiting else begin
        for frame in completed(self._between(past, begin, at_us), past.known(begin)):
            told.add(frame)
            history.append(frame)
        return history, told

    def forget(self) -> None:
        """Another past is looked at, or none."""
        self._frames, self._span = [], (0, 0)

    def _between(self, past: Past, after_us: int, until_us: int) -> list[Frame]:
        first, last = self._span
        if until_us <= first or after_us >= last:
            found = list(past.frames(after_us, until_us))
        else:
            found = [one for one in self._frames if after_us < one.mono_us <= until_us]
            if after_us < first:
                found[:0] = past.frames(after_us, first)
            if until_us > last:
                found += past.frames(last, until_us)
        self._frames, self._span = found, (after_us, until_us)
        return found
