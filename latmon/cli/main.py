"""The entry of the commands: one command line in, an exit code out, every refusal as one sentence on stderr.

arguments.py owns the options, commands.py the commands; --version and --help end before the latter is imported.
"""

from __future__ import annotations

import contextlib
import os
import sys

from latmon.support import streams
from latmon.support.errors import EXIT_DONE, LatmonError
from latmon.support.priority import START
from latmon.support.text import clean

MAX_SENTENCE = 1000


def main(argv: list[str]) -> int:
    """Run the command line and return its exit code; every error is one sentence on stderr."""
    os.umask(0o077)
    if _is_live(argv):
        START.begin()
    try:
        try:
            from latmon.cli import arguments

            args = arguments.parse(argv)
            from latmon.cli import commands

            return commands.run(args)
        finally:
            START.end()
            sys.stdout.flush()
    except LatmonError as error:
        return _refused(error)
    except BrokenPipeError:  # `latmon report F | head`: a closed pipe is no failure
        streams.drop()
        return EXIT_DONE
    except streams.StdoutError as error:
        streams.drop()
        return _refused(streams.explain(error))


def _is_live(argv: list[str]) -> bool:
    """Return whether this is no other command than the live screen or a capture."""
    return not argv or (argv[0].startswith("-") and not {"-h", "--help", "--version"} & {*argv})


def _refused(error: LatmonError) -> int:
    with contextlib.suppress(OSError):  # the terminal was closed
        print(f"latmon: {clean(str(error), MAX_SENTENCE)}", file=sys.stderr)
    return error.exit_code
