"""Mounts in the mount namespaces of processes, such as those of containers.

A host has few namespaces and thousands of processes, and a namespace may have thousands of mounts: each is read once
per look. Any user may make namespaces and mounts in them, so that there is a bound of both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from latmon.capture.mounts import Mount, Mounts

_MOST_NAMESPACES, _MOST_BYTES = 16, 1 << 20
"""Namespaces of which a look reads the mounts, and bytes of each: 1 MiB has about 7,000 mounts."""


class MountNamespaces:
    """The mounts of other namespaces than latmon's own, as of one look."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._mounts: dict[str, Mapping[int, Mount]] = {}
        """Namespace -> its mounts by mnt_id."""

    def mounts_of(self, pid: str) -> Mapping[int, Mount]:
        """Return the mounts in the namespace of a process, by mnt_id; none of too many namespaces."""
        namespace = self._namespace(pid)
        if namespace not in self._mounts:
            if not namespace or len(self._mounts) >= _MOST_NAMESPACES:
                return {}
            self._mounts[namespace] = Mounts(_beginning(self._proc / pid / "mountinfo")).by_number_of_mount
        return self._mounts[namespace]

    def is_own(self, pid: str) -> bool:
        """Return whether a process has the namespace of latmon."""
        namespace = self._namespace(pid)
        return bool(namespace) and namespace == self._namespace("self")

    def _namespace(self, pid: str) -> str:
        """Return the namespace of a process; empty where it can't be read."""
        try:
            return os.readlink(f"{self._proc}/{pid}/ns/mnt")  # noqa: PTH115 - no paths of hundreds
        except OSError:
            return ""


def _beginning(mountinfo: Path) -> bytes:
    """Return the first bytes of a file of mounts; none where it can't be read."""
    try:
        with mountinfo.open("rb") as file:
            return file.read(_MOST_BYTES)
    except OSError:
        return b""
