"""What a tool says when it is asked one thing: bounded in time and size, and ended with whoever asked.

Knows no tool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from latmon_backends.child import Child


async def answer(words: Sequence[str], *, within_s: float, most: int) -> str:
    """Its output, at most so many bytes, and then what it complained of; empty where it can't be run or takes longer.

    `words` are shimmed: it ends with our end of its standard input.
    """
    said = bytearray()
    try:
        child = await Child.start(words)
    except OSError:
        return ""
    try:
        async with asyncio.timeout(within_s):
            while len(said) < most and (portion := await child.read()):
                said += portion
            complaints = child.heard() if len(said) >= most else await child.complaints()
    except TimeoutError:
        return ""
    finally:
        await child.stop()
    return "\n".join((said[:most].decode("utf-8", "replace"), *complaints))
