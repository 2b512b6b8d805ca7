"""A program for the terminal tests: the TUI on the small host, 60 s at once and then a frame each PACE seconds."""

import os
import sys
from pathlib import Path

here = Path(__file__).resolve().parent
sys.path[:0] = [str(here.parent / "helpers"), str(here.parent.parent)]

from frames import SECOND, Source, host  # noqa: E402  the path comes first

from latmon.tui.app import run  # noqa: E402

sys.exit(
    run(
        Source(host(8, 90, odd="nvme5n1", ios=60), pace=float(os.environ["PACE"]), refuse=os.environ.get("REFUSE", "")),
        theme=os.environ.get("THEME"),
        ramp=os.environ.get("RAMP"),
        threshold_us=SECOND // 10,
        takes_mouse=os.environ.get("MOUSE") != "0",
    ),
)
