"""The screen of a large host: `python large_screen.py ROOT` as `latmon` would run there, `collector FD` its collector.

With LATMON_BENCH_PROFILE each of the two writes a profile there when it ends.
"""

from __future__ import annotations

import cProfile
import os
import sys
import time
from pathlib import Path


def screen(root: Path) -> int:
    """Run the screen and its collector on a directory of large_host.py."""
    from latmon.capture.backend import Options  # noqa: PLC0415 - the collector needs none of these
    from latmon.capture.registry import Request  # noqa: PLC0415
    from latmon.capture.session import Session  # noqa: PLC0415

    options = Options(proc=root / "proc", sys=root / "sys")
    request = Request("bpftrace", options)
    session = Session(request, (sys.executable, "-P", __file__, "collector"))
    from latmon.tui.app import run  # noqa: PLC0415 - the collector opens its probes meanwhile
    from latmon.views.selection import ScreenOptions  # noqa: PLC0415

    try:
        return run(session.feed, ScreenOptions(), session=session)
    finally:
        session.close()


def main() -> int:
    profile = cProfile.Profile(time.process_time) if "LATMON_BENCH_PROFILE" in os.environ else None
    name = "collector" if sys.argv[1] == "collector" else "screen"
    if profile is not None:
        profile.enable()
    try:
        if name == "collector":
            import asyncio  # noqa: PLC0415

            from latmon.capture.collector import serve  # noqa: PLC0415

            return asyncio.run(serve(int(sys.argv[2])))
        return screen(Path(sys.argv[1]))
    finally:
        if profile is not None:
            profile.disable()
            profile.dump_stats(Path(os.environ["LATMON_BENCH_PROFILE"]) / f"{name}.prof")


if __name__ == "__main__":
    sys.exit(main())
