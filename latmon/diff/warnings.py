"""Sentences on why captures are hard to compare. Pure."""

from __future__ import annotations

from latmon.diff.blocks import CaptureSpan
from latmon.diff.comparison import Comparison, Sweep
from latmon.model.stages import called
from latmon.support.units import counted

_MOST_CORRELATED = 0.3
"""Correlation of neighbouring blocks, above which the captures are too short."""


def of_pair(comparison: Comparison) -> list[str]:
    """Return the reasons why the two are hard to compare."""
    a, b = comparison.a, comparison.b
    sentences = []
    if a.origin.latency_from != b.origin.latency_from:
        sentences.append(
            f"totals begin at another point: A's at {a.origin.latency_from or 'unknown'} (tier {a.origin.tier or '-'}),"
            f" B's at {b.origin.latency_from or 'unknown'} (tier {b.origin.tier or '-'}); compare their stages instead."
        )
    for name, span in (("A", a), ("B", b)):
        sentences += _assumed(name, span)
        if span.lost or span.gaps:
            sentences.append(f"{name} is incomplete: {counted(span.gaps, 'gap')}, {counted(span.lost, 'event')} lost.")
        if span.is_live:
            sentences.append(f"{name} is still being written: what comes later is not in it.")
        if span.damage:
            sentences.append(f"{name} is damaged: {span.damage[0]}")
        if span.left_out:
            sentences.append(f"of {name} some series are left out: there are too many.")
    sentences += _unlike_stages(comparison)
    if comparison.tested and comparison.correlation > _MOST_CORRELATED:
        sentences.append(
            "successive blocks correlate, however long they are: a slow drift can't be distinguished from a change;"
            " longer captures are needed."
        )
    return sentences


def of_sweep(sweep: Sweep) -> list[str]:
    """Return the warnings of a sweep: totals should begin at one point, and windows have a length of their own."""
    begins = sorted({span.origin.latency_from or "unknown" for span in sweep.captures})
    sentences = [f"totals begin at different points: {', '.join(begins)}."] if len(begins) > 1 else []
    for span in sweep.captures:
        sentences += _assumed(span.name, span)
    return sentences


def _assumed(name: str, span: CaptureSpan) -> list[str]:
    """Return the warnings that the length of a span was assumed."""
    why = "rates are left out, and loads are not compared; `latmon import --interval` sets the length."
    return [f"of {name} {text}: {why}" for text in span.assumed_lengths]


def _unlike_stages(comparison: Comparison) -> list[str]:
    """Return a sentence for stages that include different stages in A and in B."""
    series_by_difference: dict[str, list[str]] = {}
    for series, a, b in comparison.unlike:
        names = [called(series.stage, inside).both for inside in (a, b)]
        if names[0] != names[1]:
            difference = f"{names[0]} in A, {names[1]} in B"
            series_by_difference.setdefault(difference, []).append(f"{series.device} {series.op}")
    return [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: the driver's time is {difference}; "
        "the two are not compared."
        for difference, names in series_by_difference.items()
    ]
