# ruff: noqa: INP001  a script beside what it makes, no package
"""Recordings, pictures, casts and quoted output of these pages, docs/img and docs/views: `make incidents` makes them.

It defines which recordings are bundled and which moments are drawn. A cast is the tour of an incident, faster. A quote
is the code block after a line `<!-- latmon COMMAND -->`. A name as an argument selects one incident, or `views`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from latmon.cli.headless import record_demo
from latmon.cli.main import run
from latmon.exporters.registry import ExportOptions, Source
from latmon.exporters.screen import palette, picture
from latmon.findings.rule import DEFAULT, Where
from latmon.model.frame import Frame
from latmon.recording.reader import Recording, open_recording
from latmon.support.theme import load_theme
from latmon.support.units import counted
from latmon.tui.commands import show_at
from latmon.tui.tour import EVERY, HISTORY, load_tour, tours
from latmon.tui.tour_cast import write_tour
from latmon.views.lines import Line, Span, fit
from latmon.views.screen import Scene, screen_lines
from latmon.views.selection import Selection, screen_options

HERE = Path(__file__).parent
VIEWS = HERE.parent / "views"
SIZE = (100, 28)
CAST_SIZE = (100, 30)
CAST_SPEED = 4
"""Windows per second of a cast: a stop of the tour lasts 4 s."""
MINUTE_US = 60_000_000
INCIDENTS = tuple(name for name in tours() if name != "host")
LENGTHS: dict[str, int | None] = {
    name: None for incident in INCIDENTS for name in (incident, f"{incident}-healthy")
} | {f"{name}-healthy": MINUTE_US for name in ("emulex", "e810", "serialised", "qumulo")}
"""Length of each bundled recording; None: all of the demo. A healthy host looks the same all the time, so its first
minute is enough, except where the fault is a wait of ten minutes."""
DRAWN = {"emulex": (1, 3, 4), "e810": (2, 3, 4), "serialised": (2, 3), "qumulo": (1, 3, 4), "bubbles": (2, 3)}
"""Numbers of the drawn stops, as they are when the first stop ends."""
ANIMATED = "qumulo"
ANIMATED_KEYS = {"": "overview", "Enter": "device", "2": "stages", "4": "outliers", "5": "interrupts", "6": "findings"}
"""Key -> the screen that it shows in the animated picture, for ANIMATED_S seconds each."""
ANIMATED_S = 4
_EVIDENCE = 1
"""Facts of a quoted finding."""
_HOST = {"overview": "overview", "device": "zoom", "stages": "stages", "outstanding": "outstanding"}
"""Pictures of the demo host in docs/img, with their screens."""
_HOST_SIZE, _HOST_US = (120, 40), 180_000_000
_QUOTE: re.Pattern[str] = runpy.run_path(str(HERE.parents[1] / "contrib/pages.py"))["QUOTE"]
"""The site has pictures of the same quotes."""


class Picture(NamedTuple):
    """A screen of a recording after some windows."""

    recording: str
    name: str
    where: Where
    windows: int
    window_us: int = MINUTE_US


def pictures(incident: str) -> Iterator[Picture]:
    """Yield the drawn stops of the tour, and pictures that are not in the tour."""
    stops = load_tour(incident).stops
    for number in DRAWN[incident]:
        yield Picture(incident, f"{incident}-{number}", stops[number - 1].where, HISTORY + EVERY - 1)
    if incident == "serialised":
        yield Picture("serialised-healthy", "serialised-healthy", stops[2].where, HISTORY)
    if incident == "bubbles":
        for name, drawn in (("bubbles", "bubbles-end"), ("bubbles-healthy", "bubbles-healthy")):
            yield Picture(name, drawn, Where("overview", "sd1"), 600, 10 * MINUTE_US)


def recording(name: str) -> Path:
    """Return the path of a bundled recording."""
    return HERE / "recordings" / f"{name}.latmon.jsonl.gz"


def bundle(name: str) -> None:
    """Write a bundled recording, of seed 1."""
    with tempfile.TemporaryDirectory(dir=HERE) as directory:
        made = Path(directory) / "made"
        record_demo(name, 1, made, LENGTHS[name])
        made.chmod(0o644)
        made.replace(recording(name))


def frames(source: Recording) -> Iterator[Frame]:
    """Yield the windows of a recording."""
    return (item for item in source if isinstance(item, Frame))


def draw(one: Picture) -> None:
    """Write the screen of that moment as SVG."""
    colours = palette(load_theme("dark"))
    source = open_recording(recording(one.recording))
    scene = Scene(Selection(window_us=one.window_us), mode="DEMO", ink=colours.ink, findings=DEFAULT)
    scene.opened(source.origin)
    for frame in islice(frames(source), one.windows):
        scene.append(frame)
    scene.choose(show_at(scene.view, one.where))
    lines = screen_now(scene, f"latmon demo {one.recording} --seed 1", SIZE)
    (HERE / "img" / f"{one.name}.svg").write_text("\n".join(picture(lines, SIZE, colours)))


def draw_outlier() -> None:
    """Write the screen of the slowest I/O of the demo host, which keys open, as docs/img/outlier.svg."""
    colours = palette(load_theme("dark"))
    with tempfile.TemporaryDirectory(dir=HERE) as directory:
        made = Path(directory) / "host"
        record_demo("host", 1, made, _HOST_US)
        source = open_recording(made)
        scene = Scene(Selection(window_us=MINUTE_US), mode="DEMO", ink=colours.ink, findings=DEFAULT)
        scene.opened(source.origin)
        for frame in frames(source):
            scene.append(frame)
    scene.choose(Selection(window_us=MINUTE_US, screen="outliers", opened=True))
    lines = screen_now(scene, "latmon demo host, keys 4 and Enter", _HOST_SIZE)
    (HERE.parent / "img/outlier.svg").write_text("\n".join(picture(lines, _HOST_SIZE, colours)))


def animate(incident: str) -> None:
    """Write an animated SVG, which needs no player: the screens of ANIMATED_KEYS one after the other."""
    colours = palette(load_theme("dark"))
    source = open_recording(recording(incident))
    scene = Scene(Selection(window_us=MINUTE_US), mode="DEMO", ink=colours.ink, findings=DEFAULT)
    scene.opened(source.origin)
    for frame in islice(frames(source), HISTORY + EVERY - 1):
        scene.append(frame)
    device = load_tour(incident).stops[-1].where.device
    shots = []
    for key, screen in ANIMATED_KEYS.items():
        scene.choose(show_at(scene.view, Where(screen, device)))
        pressed = f"latmon demo {incident}, key {key}" if key else f"latmon demo {incident}"
        shots.append(list(picture(screen_now(scene, pressed, SIZE), SIZE, colours)))
    first = shots[0]
    body = next(number for number, line in enumerate(first) if line.startswith("<g "))
    seconds = ANIMATED_S * len(shots)
    style = (
        f"<style>@keyframes shot {{ 0% {{ visibility: visible }} {100 / len(shots):.2f}% {{ visibility: hidden }} }} "
        f".shot {{ visibility: hidden; animation: shot {seconds}s step-end infinite }}</style>"
    )
    lines = [*first[:body], style]
    for number, shot in enumerate(shots):
        lines.append(f'<g class="shot" style="animation-delay: {number * ANIMATED_S}s">')
        lines += [*shot[body:-1], "</g>", "</g>"]
    (HERE / "img" / f"{incident}-animated.svg").write_text("\n".join([*lines, "</svg>\n"]))


def screen_now(scene: Scene, command: str, size: tuple[int, int]) -> list[Line]:
    """Return the screen with the command that shows it in the last line; the first drawing may change the order."""
    caption = (Span(f" {command}, after {scene.store.arrived} s", "dim"),)
    screen_lines(scene, caption, *size)
    return [fit(line, size[0]) for line in screen_lines(scene, caption, *size)]


def film(incident: str) -> None:
    """Write the asciicast of an incident's tour."""
    source = Source(open_recording(recording(incident)))
    shown = replace(screen_options(), selection=Selection(window_us=MINUTE_US), mode="DEMO", findings=DEFAULT)
    options = ExportOptions(size=CAST_SIZE, speed=CAST_SPEED)
    path = HERE / "casts" / f"{incident}.cast"
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as out:
        write_tour(source, out, options, load_tour(incident), shown, command=f"latmon demo {incident} --tour")


def quote(page: Path) -> None:
    """Replace the quotes of a page by what their commands print now."""

    def printed(match: re.Match[str]) -> str:
        return f"<!-- latmon {match[1]} -->\n\n```text\n$ latmon {match[1]}\n{output(match[1])}\n```"

    page.write_text(_QUOTE.sub(printed, page.read_text()))


def output(command: str) -> str:
    """Return what a page quotes of a command's output: a screen whole, a part of a report and of a diff."""
    words = command.split()
    with contextlib.chdir(HERE), contextlib.redirect_stdout(io.StringIO()) as out:
        run(words)
    return _PART.get(words[0], whole)(out.getvalue())


def whole(screen: str) -> str:
    """Return a screen without empty lines at its end."""
    return screen.rstrip()


def first_finding(report: str) -> str:
    """Return the first finding of a report with some of its evidence, and what is left out."""
    text = report[report.index("\nfindings (") + 1 :].split("\n\n", maxsplit=1)[0]
    _, first, *others = re.split(r"\n(?=  [A-Z]+  )", text)
    said, *evidence = re.split(r"\n(?=    - )", first.partition("\n    shown on:")[0])
    more = f", and {counted(len(others), 'more finding')}" if others else ""
    left = f"  … {counted(len(evidence) - _EVIDENCE, 'more fact')}, " if len(evidence) > _EVIDENCE else "  … "
    return "\n".join((said, *evidence[:_EVIDENCE], f"{left}next steps, what would refute it{more}"))


def causes(diff: str) -> str:
    """Return what changed for the users, and where: the longest I/Os of one side, else the stage that explains more.

    The settings, which are before it where some differ, are left out.
    """
    users, _captures, *others = diff.strip().split("\n\n")
    where = next(part for part in others if not part.startswith("settings that differ"))
    sentence, *_ = re.split(r"\n(?=\S)", where)
    return f"{users}\n{sentence}\n  …"


_PART = {"report": first_finding, "diff": causes}


def main(names: Sequence[str]) -> None:
    """Make everything, or what is named: incidents, and `views` for the pages of the screens."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    with tempfile.TemporaryDirectory() as nothing:
        os.environ["XDG_CONFIG_HOME"] = nothing
        for page in sorted(VIEWS.glob("*.md")) if not names or "views" in names else ():
            quote(page)
        for incident in [one for one in names or INCIDENTS if one != "views"]:
            for name in (incident, f"{incident}-healthy"):
                bundle(name)
            for one in pictures(incident):
                draw(one)
            film(incident)
            if incident == ANIMATED:
                animate(incident)
            quote(HERE / f"{incident}.md")
            os.umask(0o022)  # a command's own is stricter
        for name, screen in _HOST.items() if not names else ():
            path = HERE.parent / "img" / f"{name}.svg"
            path.unlink(missing_ok=True)
            run(["demo", "host", "--svg", str(path), "--size", "120x40", "--screen", screen])
            path.chmod(0o644)
        if not names:
            draw_outlier()


if __name__ == "__main__":
    main(sys.argv[1:])
