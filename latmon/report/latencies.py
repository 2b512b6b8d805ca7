"""Quantiles of a report from histograms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from latmon.model.histogram import BITS, Histogram
from latmon.report.model.latency import QUANTILES, RAREST_Q, Quantiles, StageQuantiles, SummedQuantiles


def quantiles(histogram: Histogram) -> Quantiles:
    """Return the quantiles in us. A maximum that isn't exact is None, and `max_bound` is its upper bound."""
    return Quantiles(**_fields(histogram))


def summed(histogram: Histogram) -> SummedQuantiles:
    """Return the quantiles and the sum in us."""
    return SummedQuantiles(**_fields(histogram), sum=histogram.sum)


def of_stage(histogram: Histogram, includes: Iterable[str]) -> StageQuantiles:
    """Return the quantiles and the sum in us of a stage, with the stages that it includes."""
    return StageQuantiles(**_fields(histogram), sum=histogram.sum, includes=tuple(includes))


def _fields(histogram: Histogram) -> dict[str, Any]:
    has_bound = bool(histogram) and histogram.max is None
    is_coarse = bool(histogram) and histogram.bits < BITS
    return {
        "count": histogram.count,
        **{name.replace(".", "_"): histogram.quantile(q) for name, q in QUANTILES.items()},
        "p99_999": histogram.quantile(RAREST_Q),
        "max": histogram.max,
        "mean": None if histogram.mean is None else round(histogram.mean, 1),
        "max_bound": histogram.max_bound if has_bound else None,
        "octave_parts": 2**histogram.bits if is_coarse else None,
    }
