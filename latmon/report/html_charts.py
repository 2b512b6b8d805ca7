"""Charts of the HTML report beside its maps: a histogram, bars of stages, depths against their limit. SVG, pure.

Every picture has a role, a label, and words or numbers beside its colours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from latmon.histogram import Histogram, bucket_bounds, bucket_index
from latmon.model import STAGES, UNACCOUNTED
from latmon.report.figures import QUANTILES
from latmon.report.html_parts import number, share, text, time_of
from latmon.report.html_style import LEVELS, heat, light
from latmon.stage_names import COLUMNS, LETTERS, STAGE_OF
from latmon.views.units import spelled

WIDTH = 960
LEFT, RIGHT = 58, 902
_HIGH = 120
_BAR = 18
_NAMES = 150
_MAX_BARS = 96
_DECADES = tuple(10**n for n in range(10))
_CHAR = 7.4
"""Pixels of a bold character, or less."""
_LETTER = 9
"""Pixels below which a part has no letter."""


def histogram(device: str, one: Histogram) -> str:
    """I/Os per bucket, both axes logarithmic: the one slow I/O of millions is a bar as well; with its quantiles."""
    if not one:
        return ""
    first, last = one.buckets[0][0], one.buckets[-1][0] + 1
    spread = max(last - first, 1)
    most = max(n for _, n in one.buckets)
    top, bottom = 40, 40 + _HIGH
    scale = _HIGH / max(math.log10(most) + 0.5, 0.5)

    def x(index: float) -> float:
        return round(LEFT + (RIGHT - LEFT) * (index - first) / spread, 1)

    said = f"Histogram of {device}: {number(one.count)} I/Os from {spelled(bucket_bounds(first, one.bits)[0])} on"
    parts = [_open(bottom + 22, said)]
    for power in range(int(math.log10(most)) + 1):
        y = round(bottom - scale * (power + 0.5), 1)
        parts.append(f'<path class="grid" stroke="#b0b0b0" d="M{LEFT} {y}H{RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{y + 4}" text-anchor="end">{_short(10**power)}</text>')
    parts.append('<g class="bar" fill="#6a6e7a">')
    for index, n in one.buckets:
        low, high = bucket_bounds(index, one.bits)
        height = round(scale * (math.log10(n) + 0.5), 1)
        parts.append(
            f'<path d="M{x(index)} {bottom}V{round(bottom - height, 1)}H{x(index + 0.9)}V{bottom}z">'
            f"<title>{spelled(low)} to {spelled(high)}: {n:,} I/Os</title></path>"
        )
    parts.append(f'</g><path class="axis" stroke="#b0b0b0" d="M{LEFT} {bottom}H{RIGHT}"/>')
    for us in _DECADES:
        at = bucket_index(us, one.bits)
        if first < at < last:
            parts.append(f'<path class="axis" stroke="#b0b0b0" d="M{x(at)} {bottom}v5"/>')
            parts.append(f'<text x="{x(at)}" y="{bottom + 17}" text-anchor="middle">{spelled(us)}</text>')
    return "\n".join([*parts, *_quantiles(one, x, top, bottom), "</svg>"])


def _quantiles(one: Histogram, x: object, top: int, bottom: int) -> Iterator[str]:
    told = [(name, one.quantile(q)) for name, q in QUANTILES.items()] + [("max", one.max)]
    ends = [0.0, 0.0, 0.0]
    for name, us in told:
        if us is None:
            continue
        # a quantile is its bucket's upper bound: the bar to its left is the last that it holds
        at = x(bucket_index(max(us - 1, 0), one.bits) + 1)  # type: ignore[operator]
        said = f"{name} {spelled(us)}"
        lane = next((n for n, end in enumerate(ends) if end <= at), None)
        yield f'<path class="mark" stroke="#000" fill="none" d="M{at} {top - 4}V{bottom}"><title>{said}</title></path>'
        if lane is not None:
            anchor, begin = ("end", at - len(said) * _CHAR) if at > RIGHT - 90 else ("start", at)
            if anchor == "end" and ends[lane] > begin:
                lane = next((n for n, end in enumerate(ends) if end <= begin), None)
            if lane is not None:
                ends[lane] = begin + (len(said) + 1) * _CHAR
                shift = -3 if anchor == "end" else 3
                yield f'<text class="lab" x="{at + shift}" y="{10 + 12 * lane}" text-anchor="{anchor}">{said}</text>'


def stage_bars(device: str, rows: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """Return a stacked bar per row: what part of its I/Os' time each stage (by its column's name) has, 0..1."""
    rows = [(name, parts) for name, parts in rows if parts]
    if not rows:
        return ""
    said = "; ".join(f"{name}: " + ", ".join(f"{share(v)} {k}" for k, v in _ordered(parts)) for name, parts in rows)
    parts = [_open(len(rows) * (_BAR + 8) + 2, f"Stages of {device}. {said.replace('&lt;', 'less than')}")]
    for at, (name, shares) in enumerate(rows):
        y = at * (_BAR + 8) + 2
        parts.append(f'<text x="{_NAMES - 8}" y="{y + 13}" text-anchor="end">{text(name)}</text>')
        parts += _stack(shares, _NAMES, y, RIGHT + 50 - _NAMES, {k: share(v) for k, v in shares.items()})
    return "\n".join([*parts, "</svg>"])


def ribbon(stages_us: Mapping[str, int], unaccounted_us: int, total_us: int) -> str:
    """Return one I/O's way, its stages (by their columns' names) in proportion."""
    parts = {**stages_us, UNACCOUNTED: max(unaccounted_us, 0)}
    whole = sum(parts.values())
    if not whole or not stages_us:
        return ""
    said = ", ".join(f"{stage} {time_of(us)}" for stage, us in _ordered(parts) if us)
    drawn = _stack({k: v / whole for k, v in parts.items()}, 0, 1, WIDTH, {k: time_of(v) for k, v in parts.items()})
    return "\n".join([_open(_BAR + 2, f"{time_of(total_us)}: {said}"), *drawn, "</svg>"])


def swatches(stages: Sequence[str]) -> list[str]:
    """Each stage's colour and letter, as HTML."""
    return [
        f'<svg viewBox="0 0 10 10" aria-hidden="true"><rect width="10" height="10" {_ink(one)}/></svg> '
        f"<b>{LETTERS.get(one, '')}</b> {text(one)}"
        for one in stages
    ]


def depth_bars(device: str, shares: Mapping[int, float], limit: int | None, what: str) -> str:
    """A bar per depth, or per few neighbours, by share of time; the limit as a line where it is near."""
    if not shares:
        return ""
    most = max(shares)
    near = limit if limit is not None and limit <= 2 * most + 8 else None
    last = max(most, near or 0)
    step = -(-(last + 1) // _MAX_BARS)
    bars: dict[int, float] = {}
    for depth, part in shares.items():
        bars[depth // step] = bars.get(depth // step, 0.0) + part
    count = last // step + 1
    width = min((RIGHT - LEFT) / count, 40.0)
    top, bottom = 8, 8 + 80
    high = max(bars.values())
    parts = [_open(bottom + 20, f"{device}, {what}: share of time by number of I/Os, at most {number(most)}")]
    parts.append(f'<text x="{LEFT - 5}" y="{top + 9}" text-anchor="end">{share(high)}</text>')
    parts.append('<g class="bar" fill="#6a6e7a">')
    for at, part in sorted(bars.items()):
        height = max(80 * part / high, 1 if part else 0)
        depths = f"{at * step:,}" if step == 1 else f"{at * step:,} to {at * step + step - 1:,}"
        begin = LEFT + at * width
        parts.append(
            f'<path d="M{begin:.1f} {bottom}v-{height:.1f}h{width * 0.85:.1f}v{height:.1f}z">'
            f"<title>{depths} {text(what)}: {share(part)} of the time</title></path>"
        )
    parts.append(f'</g><path class="axis" stroke="#b0b0b0" d="M{LEFT} {bottom}H{RIGHT}"/>')
    every = max(1, math.ceil(count / 24))
    for at in range(0, count, every):
        middle = LEFT + (at + 0.43) * width
        parts.append(f'<text x="{middle:.1f}" y="{bottom + 14}" text-anchor="middle">{_short(at * step)}</text>')
    if near is None and limit is not None:
        far = f"limit {number(limit)} →"
        parts.append(f'<text class="dim" x="{RIGHT}" y="{top + 10}" text-anchor="end">{far}</text>')
    if near is not None:
        end = LEFT + (near / step + 0.93) * width
        parts.append(f'<path class="limit" stroke="#005faf" fill="none" d="M{end:.1f} {top}V{bottom}"/>')
        anchor, shift = ("end", -4) if end > RIGHT - 90 else ("start", 4)
        parts.append(
            f'<text class="lab" x="{end + shift:.1f}" y="{top + 10}" text-anchor="{anchor}">limit {number(near)}</text>'
        )
    return "\n".join([*parts, "</svg>"])


def _stack(shares: Mapping[str, float], x: float, y: int, width: float, said: Mapping[str, str]) -> Iterator[str]:
    """Parts side by side; one that has room has its letter."""
    for stage, part in _ordered(shares):
        wide = part * width
        if wide <= 0:
            continue
        yield (
            f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_BAR}" {_ink(stage)}>'
            f"<title>{text(stage)} {said[stage]}</title></rect>"
        )
        if wide >= _LETTER:
            middle, letter = f"{x + wide / 2:.1f}", LETTERS.get(stage, "")
            yield f'<text class="lab" x="{middle}" y="{y + 13}" text-anchor="middle">{letter}</text>'
        x += wide


def _ink(stage: str) -> str:
    """A stage's colour is a step of the map's, in the order of time; what is unaccounted has none."""
    known, stage = STAGES[:-1], STAGE_OF.get(stage, stage)
    if stage not in known:
        return 'class="left" fill="none" stroke="#6c6c6c"'
    step = 2 + round(known.index(stage) * (LEVELS - 2) / (len(known) - 1))
    return f'class="part h{step}" fill="{heat(light())[step - 1]}"'


def _ordered(parts: Mapping[str, float]) -> list[tuple[str, float]]:
    known = {name: at for at, name in enumerate(COLUMNS)}
    return sorted(parts.items(), key=lambda one: known.get(one[0], len(known)))


def _open(height: float, label: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{text(label)}">'
    )


def _short(value: int) -> str:
    for unit, factor in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if value >= factor:
            return f"{value / factor:g}{unit}"
    return str(value)
