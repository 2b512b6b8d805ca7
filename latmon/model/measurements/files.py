"""Latencies of operations on files."""

from __future__ import annotations

from typing import NamedTuple

from latmon.model.frame import FILE_OPS, FILE_WAITS
from latmon.model.table import DEVICE, MOUNT, TEXT, Part, Table, latencies


class FileSeries(NamedTuple):
    """Key of a latency histogram of operations on the files of one file system."""

    device: str
    """That of the file system."""
    op: str
    """One of FILE_OPS."""
    mount: str
    kind: str
    wait: str
    """One of FILE_WAITS."""


FILES = Table(
    "files",
    FileSeries,
    (DEVICE, Part(names=FILE_OPS), MOUNT, TEXT, Part(names=FILE_WAITS)),
    latencies(),
    group="files",
    export_name="file",
    row_title="an operation on files",
    named_once=("mount", "kind", "device"),
)
"""Operations on files, where the tracer traces them: the time in the system call."""
