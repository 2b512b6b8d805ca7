"""One command of latmon, or a replay without a screen, in its own process; the last line on stderr is its memory."""

import asyncio
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / name) for name in ("", "backends")]


async def replay(path: Path) -> None:
    """Prints the CPU's seconds until the first frame was there, and the last one's number."""
    from latmon.capture import registry  # noqa: PLC0415 - its path was just added

    first, last = 0.0, -1
    async with registry.load("replay")([path], speed=0) as backend:
        async for frame in backend.frames():
            first, last = first or time.process_time(), frame.seq
    print(first, last)


def main(words: list[str]) -> int:
    """The exit code."""
    if words[0] == "replay" and len(words) == len(("replay", "FILE")):
        from latmon.support.errors import LatmonError  # noqa: PLC0415 - its path was just added

        try:
            asyncio.run(replay(Path(words[1])))
        except LatmonError as refusal:
            return refusal.exit_code
        return 0
    from latmon.cli.main import run  # noqa: PLC0415 - the same

    return run(words)


code = main(sys.argv[1:])
# Not ru_maxrss: that is inherited from the process that forked it.
status = Path("/proc/self/status").read_text(encoding="ascii")
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")), file=sys.stderr)
sys.exit(code)
