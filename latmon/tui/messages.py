"""What the worker tells the app, in the past tense."""

from __future__ import annotations

from textual.message import Message

from latmon.errors import LatmonError


class FrameArrived(Message):
    """The scene holds a frame more; several of them are one repaint."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, FrameArrived)


class SourceOpened(Message):
    """The backend is open and its origin known."""


class SourceEnded(Message):
    """There will be no more frames; `why` in a few words."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why


class SourceRefused(Message):
    """The source could not even be opened."""

    def __init__(self, failure: LatmonError) -> None:
        super().__init__()
        self.failure = failure
