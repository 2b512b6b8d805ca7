"""Scenes of a test host's frames, and their screens as text without the frames of panels, which large screens have."""

from collections.abc import Sequence

from frames import ORIGIN, line_of

from latmon.views.lines import Line, plain
from latmon.views.screen import Scene
from latmon.views.selection import Selection

LEFT = "│├╭╰┌└"


def inside(lines: Sequence[Line]) -> list[str]:
    """Return the lines of a screen without the first and last cell of those that are in a frame."""
    return [line[1:-1] if line and line[0] in LEFT and line[-1] in "│┤╮╯┐┘" else line for line in map(plain, lines)]


def scene(frames, selection=Selection(), origin=ORIGIN, **options):  # noqa: B008  frozen
    """Return a scene with these frames."""
    scene = Scene(selection, **options)
    scene.store.origin = origin
    for frame in frames:
        scene.append(frame, line_of(frame))
    return scene
