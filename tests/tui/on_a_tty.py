"""A program for the terminal tests: the TUI on the small host, 60 s at once and then a frame each PACE seconds."""

import os
import sys
from pathlib import Path

here = Path(__file__).resolve().parent
sys.path[:0] = [str(here.parent / "helpers"), str(here.parent.parent)]

from frames import SECOND, Source, host  # noqa: E402  the path comes first

from latmon.support.theme import load_theme  # noqa: E402
from latmon.tui.app import run  # noqa: E402
from latmon.views.selection import ScreenOptions, Selection  # noqa: E402

ramp = os.environ.get("RAMP", "auto")
sys.exit(
    run(
        Source(host(8, 90, odd="nvme5n1", ios=60), pace=float(os.environ["PACE"]), refuse=os.environ.get("REFUSE", "")),
        ScreenOptions(
            Selection(threshold_us=SECOND // 10),
            theme=load_theme(os.environ.get("THEME", "dark"), ramp=ramp),
            ramp=ramp,
            takes_mouse=os.environ.get("MOUSE") != "0",
        ),
    ),
)
