"""Traced requests: their stages, how they completed, and what they waited for before."""

from __future__ import annotations

from collections.abc import Mapping

from latmon.model.frame import Series
from latmon.model.table import (
    DEVICE,
    OP,
    TEXT,
    Meaning,
    Part,
    Table,
    always,
    latencies,
    named_counts,
    times_by_bucket,
)

MAX_CODES = 256
"""Names of one device: a path without a name is written as its code."""

STAGE_TIMES = Table(
    "by_total",
    Series,
    (DEVICE, OP, TEXT),
    times_by_bucket(),
    group="traced",
    export_name="stage_time",
    attribute="traced.by_total",
    is_sampled=always,
    counts_ios=False,
)
"""Time of each stage by the bucket of the requests' totals: the share of each stage in the I/Os above any latency.

For `total` itself the sum of all is in bucket 0. The tracer may print this table before the histograms of the same
requests, so sums over intervals use these times."""
TRACED_LATENCIES = Table(
    "traced",
    Series,
    (DEVICE, OP, TEXT),
    latencies(),
    group="traced",
    export_name="traced_latency",
    attribute="traced.histograms",
    row_title="a traced stage",
    exact_times=STAGE_TIMES,
    is_sampled=always,
    counts_ios=False,
)
"""Per stage, and `unaccounted` and `total`; those of FROM_SUBMISSION have a count of their own."""


def _of_names(name: str, part: Part = DEVICE) -> Table[str, Mapping[str, int]]:
    """Return the table of a mapping of Traced: a device, or what `part` means, -> counts by name."""
    return Table(
        name,
        str,
        (part,),
        named_counts(most=MAX_CODES),
        group="traced",
        export_name=name,
        attribute=f"traced.{name}",
        is_sampled=always,
        counts_ios=False,
    )


UNFOLLOWED = _of_names("unfollowed")
PATHS = _of_names("paths")
ADMISSION_CAUSES = _of_names("admission_causes")
COMPLETERS = _of_names("completers")
RAISERS = _of_names("raisers", Part(Meaning.NAME))
