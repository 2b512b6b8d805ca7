"""Latencies of operations on files, and the parts of their time."""

from __future__ import annotations

from typing import NamedTuple

from latmon.model.frame import FILE_OPS, FILE_PARTS, FILE_WAITS
from latmon.model.table import DEVICE, MOUNT, TEXT, Part, Table, Unit, count, latencies


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


class FilePart(NamedTuple):
    """Key of a part of the time of operations on the files of one file system."""

    device: str
    op: str
    mount: str
    kind: str
    part: str
    """One of FILE_PARTS."""


FILE_TIMES = Table(
    "file_times",
    FilePart,
    (DEVICE, Part(names=FILE_OPS), MOUNT, TEXT, Part(names=FILE_PARTS)),
    count("us", Unit.MICROSECONDS),
    group="files",
    export_name="file_time",
    row_title="a part of the time of operations on files",
    has_own_decoder=True,
    counts_ios=False,
)
"""What the threads of these operations did while they were off their CPU. A sleep counts when it ends, an operation
when it does: in one window the parts may be more than FILES has."""
