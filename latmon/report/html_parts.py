"""Pieces of HTML: escaped text, tables with scoped heads, numbers to the digit. Knows no report.

Every foreign string passes `text` on its way into the page, as content or as an attribute.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

from latmon.histogram import BITS
from latmon.views.units import UNKNOWN, bound, duration, exact
from latmon.words import in_words

_BIDI = dict.fromkeys(map(ord, "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"))
_MAX = 2000
_FINE = 2**BITS
_ROUGH = 2
"""Parts of an octave: a bucket as wide has no second digit."""


def text(value: object) -> str:
    """A value as HTML text or within a double-quoted attribute: escaped, one line, nothing that turns directions."""
    said = str(value).translate(_BIDI)[:_MAX]
    shown = said if said.isprintable() else "".join(c if c.isprintable() else " " for c in said)
    return html.escape(shown, quote=True)


def name(value: object) -> str:
    """A foreign name as an element of its own, so that its direction of writing turns nothing beside it."""
    return f"<bdi>{text(value)}</bdi>"


def time_of(us: float | None) -> str:
    """Microseconds to the digit: 85 us, 18.250 ms, 1.238999 s; a mean with the tenth that it has."""
    if us is None:
        return UNKNOWN
    if isinstance(us, int) or us >= 1000:  # noqa: PLR2004  below a millisecond a tenth is said
        return exact(us) if isinstance(us, int) else f"{us / 1000:,.4f} ms"
    return f"{us:.1f} us"


def number(value: float | None) -> str:
    """A count with its thousands apart."""
    return UNKNOWN if value is None else f"{value:,}"


def share(value: float | None) -> str:
    """Per cent with two decimals, never 100 for less."""
    if value is None:
        return UNKNOWN
    return f"{min(value * 100, 99.99 if value < 1 else 100):.2f} %" if value >= 0.0001 or not value else "&lt; 0.01 %"  # noqa: PLR2004  what rounds away


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, words: Iterable[int] = (0,), kind: str = ""
) -> str:
    """A table whose first cells are the rows' heads. All of it is HTML; `words`: columns that hold no numbers."""
    left = frozenset(words)

    def cell(at: int, inner: str) -> str:
        if not at:
            return f'<th scope="row">{inner}</th>'
        return f"<td>{inner}</td>" if at in left else f'<td class="n">{inner}</td>'

    head = "".join(
        f'<th scope="col"{"" if at in left else " class=" + chr(34) + "n" + chr(34)}>{one}</th>'
        for at, one in enumerate(heads)
    )
    body = "\n".join(f"<tr>{''.join(cell(at, one) for at, one in enumerate(row))}</tr>" for row in rows)
    named = f' class="{kind}"' if kind else ""
    return (
        f'<div class="wide"><table{named}><caption>{caption}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>\n"
    )


def listed(items: Iterable[str], kind: str = "") -> str:
    """A list of HTML items; nothing without any."""
    inner = "".join(f"<li>{one}</li>\n" for one in items)
    named = f' class="{kind}"' if kind else ""
    return f"<ul{named}>\n{inner}</ul>\n" if inner else ""


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Words and what they are, both HTML; pairs without a value are left out."""
    return "<dl>\n" + "".join(f"<dt>{word}</dt><dd>{said}</dd>\n" for word, said in pairs if said) + "</dl>\n"


def figure(svg: str, caption: str, kind: str = "") -> str:
    """A picture with what there is to say of it."""
    named = f' class="{kind}"' if kind else ""
    return f"<figure{named}>\n{svg}\n<figcaption>{caption}</figcaption></figure>\n" if svg else ""


def maximum(q: Any) -> str:
    """The exact maximum of the report's Q, or what it can't be above, or is at least."""
    if "max" in q.get("or_more", ()):
        return f"≥ {time_of(q['open_from'])}"
    return f"≤ {time_of(q['max_bound'])}" if q.get("max_bound") is not None else time_of(q["max"])


def quantile(q: Any, name: str) -> str:
    """One of the report's Q; `≥` where nobody knows how much more it was, `~` where a bucket is wider than latmon's."""
    if name in q.get("or_more", ()):
        return f"≥ {time_of(q[name])}"
    value, parts = q[name], q.get("octave_parts", _FINE)
    if value is None or value == q["max"]:
        return time_of(value)
    if parts >= _FINE:
        return in_words(bound(value, q["max"]))  # in the digits that it has: as the text's
    return f"~ {in_words(duration(value, 1 if parts <= _ROUGH else 2, up=True))}"
