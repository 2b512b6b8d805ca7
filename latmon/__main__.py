"""Entry point of `python -m latmon` and of the `latmon` script; latmon/cli/main.py has all else.

Its first lines give Ctrl-C the kernel's action, which ends the process. Python's own is an exception: a traceback where
nothing catches it yet, and lost where a module is compiled.
"""

import _signal  # type: ignore[import-not-found]  # `signal` imports enum: longer than all of this takes

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # not where it is ignored
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import sys


def main() -> None:
    """Run the command line and exit with its code. The module that does is imported where a failure is a sentence."""
    try:
        from latmon.cli import main as command_line
    except Exception as error:  # noqa: BLE001  no files or no memory to be had, or half an installation
        why = str(error) or type(error).__name__
        sys.exit(f"latmon: its own code can't be read: {why}; look at ulimit -n and -v, or install latmon again")
    command_line.main()


if __name__ == "__main__":
    main()
