"""`python -m latmon` and the `latmon` script: a command line in, an exit code out, never a traceback."""

from __future__ import annotations

import sys

from latmon import cli, last_resort


def main() -> int:
    """Ctrl-C outside of a capture or a screen ends as a shell expects it: 130."""
    last_resort.install()
    try:
        return cli.main(sys.argv[1:])
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
