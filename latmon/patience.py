"""A call that may hang, made beside the event loop: what it waits for is said, and it isn't waited for for ever.

Knows not what is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from latmon.errors import UnavailableError
from latmon.quantities import show_duration
from latmon.side_thread import SideThread

SILENT_S = 1.0
PATIENCE_S = 30.0
T = TypeVar("T")


async def patiently(
    call: Callable[[], T], what: str, say: Callable[[str], None], within: tuple[float, float] = (SILENT_S, PATIENCE_S)
) -> T:
    """What the call gives. `what` is waited for: said after the first time, UnavailableError after the second."""
    side = SideThread("patience")
    answer = asyncio.get_running_loop().run_in_executor(side, call)
    side.shutdown()
    silent_s, most_s = within
    try:
        await asyncio.wait({answer}, timeout=silent_s)
        if not answer.done():
            say(f"waiting for {what}")
            await asyncio.wait({answer}, timeout=most_s - silent_s)
        if not answer.done():
            raise UnavailableError(f"{what} did not answer within {show_duration(round(most_s * 1e6))}")
        return answer.result()
    finally:
        answer.cancel()  # nobody asks for it any more
