"""A look at an earlier time: a history made of what an archive kept, as if frames had come until then. Pure."""

from __future__ import annotations

from latmon.model import Origin
from latmon.past import Past, completed
from latmon.store import Store
from latmon.views.history import History
from latmon.views.told import Told


def look_back(
    past: Past, origin: Origin | None, at_us: int, window_us: int, ops: tuple[str, ...]
) -> tuple[History, Told]:
    """What is seen at `at_us`: only what the screen needs is decoded, a window and what peers are compared over."""
    store, told = Store(), Told()
    store.origin = origin
    begin = at_us - window_us * 7 // 6 - 2 * (origin.interval_us if origin else 1_000_000)
    waiting = past.waiting(begin)
    history = History(window_us, ops, store, waiting[1] if waiting else None)
    for frame in completed(past, waiting[0] if waiting else begin, at_us):
        told.add(frame)
        history.append(frame)
    return history, told
