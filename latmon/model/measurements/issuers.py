"""Who issues the I/Os: cgroups and processes."""

from __future__ import annotations

import re
from typing import NamedTuple

from latmon.model.measurements.issued_io import ISSUED_IO
from latmon.model.table import CGROUP, DEVICE, OP, PRIVATE_PID, PRIVATE_TEXT, Table

OTHERS = "others"
"""In place of a cgroup's path: cgroups for which the probe had no room."""
_CONTAINER = re.compile(r"[/-](?:(?P<by>[a-z]+)[-/])?(?P<id>[0-9a-f]{64})(?=[./]|$)")
_RUNTIMES = {"docker": "docker", "libpod": "podman", "containerd": "containerd", "crio": "cri-o"}
"""Word before the id in the name of a cgroup -> what runs the container."""
_SHORT_ID = 12
_UNITS = (".service", ".scope", ".mount", ".socket", ".swap")


class Issuer(NamedTuple):
    """Key of the I/Os that one cgroup issued to a device, or one process of a cgroup.

    The kernel decides which cgroup an I/O belongs to (the bio's blkcg, as in io.stat): writeback belongs to the cgroup
    that dirtied the pages where the kernel knows it, and a cgroup without the I/O controller counts as its parent.
    """

    device: str
    op: str
    cgroup: str
    """Path in the hierarchy of the I/O controller, such as `/system.slice/backup.service`; `#ID` where it isn't known,
    or OTHERS."""
    container: str = ""
    """The container's name on its host; empty: the cgroup is no container's, or the name isn't known."""
    pid: int = 0
    """0: all processes of the cgroup, or with a `comm` several of them."""
    comm: str = ""
    """The process's name; OTHERS for all processes for which the probe had no room. A cgroup's I/Os have none."""

    @property
    def is_process(self) -> bool:
        """Whether these are I/Os of processes, which those of their cgroups include."""
        return bool(self.pid or self.comm)

    @property
    def name(self) -> str:
        """Return the container's name, else its runtime and short id, else the unit of systemd, else the path.

        A fleet's has its host in front.
        """
        host, colon, path = self.cgroup.partition(":")
        if colon and not host.startswith("/"):
            return f"{host}:{self._replace(cgroup=path).name}"
        if self.container:
            return self.container
        if match := _CONTAINER.search(self.cgroup):
            return f"{_RUNTIMES.get(match['by'] or '', 'container')} {match['id'][:_SHORT_ID]}"
        parts = self.cgroup.split("/")
        unit = next((at for at in range(len(parts) - 1, 0, -1) if parts[at].endswith(_UNITS)), 0)
        return "/".join(parts[unit:]) if unit else self.cgroup


def is_root_cgroup(cgroup: str) -> bool:
    """Return whether this is the root, which names nothing; in a fleet it is HOST:/."""
    return cgroup.rpartition(":")[2] == "/"


def container_id(cgroup: str) -> str:
    """Return the id of the container whose cgroup this is, or is below it; empty for another cgroup."""
    match = _CONTAINER.search(cgroup)
    return match["id"] if match else ""


def _is_process(issuer: Issuer) -> bool:
    return issuer.is_process


def _about(issuer: Issuer) -> tuple[str, str, str | None]:
    if not issuer.is_process:
        return "cgroup", issuer.cgroup, issuer.name
    return "process", f"{issuer.comm}/{issuer.pid}" if issuer.pid else issuer.comm, issuer.cgroup


ISSUERS = Table(
    "issuers",
    Issuer,
    (DEVICE, OP, CGROUP, PRIVATE_TEXT, PRIVATE_PID, PRIVATE_TEXT),
    ISSUED_IO,
    group="issuers",
    export_name="issuer",
    row_title="an issuer",
    is_sampled=_is_process,  # the kernel counts the I/Os of a cgroup
    named_once=("cgroup", "container", "pid", "comm"),
    is_private_row=_is_process,
    about=_about,
)
"""Completed I/Os by issuer; I/Os whose cgroup is not known are missing."""
