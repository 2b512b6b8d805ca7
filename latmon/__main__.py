"""`python -m latmon` and the `latmon` script: a command line in, an exit code out, never a traceback."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from latmon import cli, last_resort, standard_output

_STANDARD_FILES = 3


def main() -> NoReturn:
    """Run the command line and exit with its code: the launcher of a zip archive passes no returned code on."""
    sys.exit(_run())


def _run() -> int:
    """Ctrl-C outside of a capture or a screen ends as a shell expects it: 130."""
    _open_standard_files()
    standard_output.install()
    last_resort.install()
    try:
        return cli.main(sys.argv[1:])
    except KeyboardInterrupt:
        return 130


def _open_standard_files() -> None:
    """Started with 0, 1 or 2 closed, as some daemons do: the null device stands in, lest a recording becomes one."""
    number = os.open(os.devnull, os.O_RDWR)
    while number < _STANDARD_FILES:
        number = os.open(os.devnull, os.O_RDWR)
    os.close(number)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+", encoding="utf-8"))  # noqa: PTH123, SIM115 - for the whole process


if __name__ == "__main__":
    main()
