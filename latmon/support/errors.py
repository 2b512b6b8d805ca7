"""Every error that latmon reports, each with its exit code. A message is one sentence that names the remedy.

Exit codes: docs/CLI.md. The errors know neither where they are raised nor how they are printed.
"""

from __future__ import annotations

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNAVAILABLE = 3
EXIT_INCOMPLETE = 4
EXIT_UNREADABLE = 5


class LatmonError(Exception):
    """A failure with a sentence for the user; `exit_code` is the process's."""

    exit_code = EXIT_FAILED


class UsageError(LatmonError):
    """An option or its value is wrong."""

    exit_code = EXIT_USAGE


class UnavailableError(LatmonError):
    """No usable backend, privilege or target here."""

    exit_code = EXIT_UNAVAILABLE


class ProbeGoneError(LatmonError):
    """The probe ended by itself, and what it counted since the last frame is lost."""


class UntrustedError(LatmonError):
    """Root would run or obey a file that another user can change. No backend is tried instead."""

    exit_code = EXIT_UNAVAILABLE


class RecordingError(LatmonError):
    """A recording can't be read: damaged, not latmon's, or from a newer latmon."""

    exit_code = EXIT_UNREADABLE


class ManifestError(LatmonError):
    """A probe's manifest is wrong: the message names file and key."""


class ThemeError(UsageError):
    """A theme file is wrong: the message names file and key."""
