"""Source -> scene: opens a source of frames, keeps each, and posts what happened. Touches no widget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from textual.message import Message

from latmon.backend import Backend, Lined, Seekable
from latmon.errors import LatmonError
from latmon.text import clean
from latmon.tui.messages import FrameArrived, SourceEnded, SourceOpened, SourceRefused
from latmon.views.scene import Scene


async def _all(source: Backend, scene: Scene, post: Callable[[Message], object]) -> None:
    async for frame in source.frames():
        scene.append(frame, source.line if isinstance(source, Lined) else None)
        post(FrameArrived())
        await asyncio.sleep(0)  # a backlog that never waits would keep keys waiting


async def follow(source: Backend, scene: Scene, post: Callable[[Message], object]) -> None:
    """Until the source ends. A failure is data: one on the way is said, one at the opening is a refusal."""
    try:
        async with source as opened:
            scene.opened(opened.origin, opened.past() if isinstance(opened, Seekable) else None)
            post(SourceOpened())
            await _all(opened, scene, post)
            while isinstance(opened, Seekable):
                post(SourceEnded(""))
                await opened.gone_on()
                scene.ended = None
                await _all(opened, scene, post)
    except LatmonError as error:
        refused = scene.edge.store.origin is None
        post(SourceRefused(error) if refused else SourceEnded(clean(str(error), 200)))
    else:
        post(SourceEnded(""))
