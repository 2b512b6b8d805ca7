"""Owners of files that decide what runs as root: which uids they may have, and when that is plain to see.

Imports next to nothing, because each start as root asks this before it imports anything else.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

ROOT = frozenset({0})
_MAX_ID = 2**32 - 2


def identity(text: str) -> int | None:
    """Return the uid or gid that a text such as SUDO_UID's is; None where it is none."""
    return int(text) if text.isascii() and text.isdigit() and int(text) <= _MAX_ID else None


def sudo_uid(environ: Mapping[str, str]) -> int | None:
    """Return the uid of the user who called sudo, on every system; None without sudo."""
    return identity(environ.get("SUDO_UID", ""))


def owners(environ: Mapping[str, str]) -> frozenset[int]:
    """Return the uids that latmon's own files may have: root's, and under sudo the invoking user's."""
    uid = sudo_uid(environ)
    return ROOT if uid is None else ROOT | {uid}


def is_plain(status: os.stat_result, allowed: frozenset[int]) -> bool:
    """Return whether only `allowed` can change a file, whatever its group is; a link has no mode."""
    is_link = stat.S_ISLNK(status.st_mode)
    return not is_link and status.st_uid in allowed and not is_shared(status)


def is_shared(status: os.stat_result) -> bool:
    """Return whether the mode lets others than the owner write."""
    return bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
