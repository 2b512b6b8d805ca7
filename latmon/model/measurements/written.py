"""Bytes that processes make dirty in the page cache or write directly, whoever writes the pages to the disk later."""

from __future__ import annotations

from typing import NamedTuple

from latmon.model.table import Meaning, Part, Table, Unit, count


class Writer(NamedTuple):
    """Key of a process that writes."""

    process: str
    """NAME/PID."""


WRITTEN = Table(
    "written",
    Writer,
    (Part(Meaning.PROCESS),),
    count("bytes", Unit.BYTES),
    group="written",
    export_name="written",
    row_title="a process that writes",
    counts_ios=False,
    has_own_decoder=True,  # the kernel counts them, no probe
)
"""Bytes of the processes that wrote most, on all devices together, while the host dirtied pages.

I/Os of buffered writes are issued by the kernel's threads, so that issuers name those.
"""
