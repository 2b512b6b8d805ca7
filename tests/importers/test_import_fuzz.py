"""Mutated texts of all formats: no exception but a sentence, and every total is the sum of the rows that were taken."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_import_damage import EVENTS, TEXTS
from test_imports import read

from latmon.importers.registry import FORMATS, Read
from latmon.importers.values import Counts, ImportedTable, ImportOptions, Remark, Times, Whole
from latmon.support.errors import LatmonError

ASKED = ImportOptions(unit="us", events=next(iter(EVENTS.values())))
ROWS = {
    "log2": re.compile(r"^[^\S\n]*\d+ -> \d+[^\S\n]*: (\d+)[^\S\n]*\||'count': (\d+)", re.MULTILINE),
    "hist": re.compile(r"^\s*[\[(].*?[\])]\s+(\d+)[^\S\n]*(?:\||$)", re.MULTILINE),
    "lhist": re.compile(r"^\s*[\[(].*?[\])]\s+(\d+)[^\S\n]*(?:\||$)", re.MULTILINE),
}
"""Kind of a table -> its rows' counts, by other patterns than those of the importers."""
BARS = re.compile(r"^\s*(?:[<>]=? ?)?-?\d+[^\S\n]*\|[@ \t]*?(-?\d+)[^\S\n]*$", re.MULTILINE)
ROWS |= dict.fromkeys(("quantize", "lquantize", "llquantize"), BARS)
MUTATIONS = 100_000
"""Of all samples together, in the slow test."""
CHARS = "0123456789 .,:|[]{}()\"'-@=%xKMs\t\N{REPLACEMENT CHARACTER}\n"

edits = st.lists(
    st.tuples(
        st.sampled_from(["delete", "double", "swap", "char", "cut", "insert"]),
        st.floats(0, 1, exclude_max=True),
        st.sampled_from(CHARS),
    ),
    max_size=6,
)


def mutated(text, steps):
    """Return the text after edits of lines and characters, each at a place from 0 to 1."""
    for kind, place, char in steps:
        lines = text.split("\n")
        at, here = int(place * len(lines)), int(place * len(text))
        if kind == "delete":
            text = "\n".join(lines[:at] + lines[at + 1 :])
        elif kind == "double":
            text = "\n".join([*lines[:at], lines[at], *lines[at:]])
        elif kind == "swap":
            text = "\n".join([*lines[:at], *lines[at + 1 : at + 2], lines[at], *lines[at + 2 :]])
        elif kind == "char":
            text = text[:here] + char + text[here + 1 :]
        elif kind == "insert":
            text = text[:here] + char + text[here:]
        else:
            text = text[: max(here, 1)]
    return text


def taken(found: Read) -> tuple[int, int]:
    """Return I/Os in distributions and in counters, by what the importers found."""
    aside = sum(one.table.count for window in found.built.windows for one in window.aside)
    frames = [one.frame for one in found.found if isinstance(one, Whole)]
    timed = (
        sum(
            imported_table.count
            for imported_table in found.found
            if isinstance(imported_table, ImportedTable) and not imported_table.at_issue
        )
        - aside
    )
    timed += sum(h.count for times in found.found if isinstance(times, Times) for h in times.histograms.values())
    timed += sum(h.count for frame in frames for h in frame.histograms.values())
    counted = sum(done.count for counts in found.found if isinstance(counts, Counts) for done in counts.kernel.values())
    return timed, counted + sum(done.count for frame in frames for done in frame.kernel.values())


def imported(found: Read) -> tuple[int, int]:
    frames = list(found.frames())
    return (
        sum(h.count for frame in frames for h in frame.histograms.values()),
        sum(done.count for frame in frames for done in frame.kernel.values()),
    )


def printed(found: Read, table: ImportedTable) -> int:
    """Return the sum of a table's rows in the text."""
    text = "\n".join(found.lines[table.where.first - 1 : table.where.last])
    counts = (int(next(filter(None, groups))) for groups in (m.groups() for m in ROWS[table.kind].finditer(text)))
    return sum(count for count in counts if count > 0)


def check(text: str, asked: ImportOptions = ASKED) -> None:
    try:
        found = read(text, asked)
    except LatmonError:
        return
    assert imported(found) == taken(found)
    remarks = " ".join(remark.text for remark in found.found if isinstance(remark, Remark))
    for one in found.found:
        if isinstance(one, ImportedTable) and one.kind in ROWS and one.where.last > one.where.first:
            is_sum = f"added to the table in line {one.where.first}," in remarks or "since the begin" in remarks
            assert is_sum or printed(found, one) == one.count, (one.where, one.title)
    assert all(1 <= at <= len(found.lines) for at in found.left)


@given(st.sampled_from(sorted(TEXTS)), edits, st.none() | st.sampled_from(sorted(TEXTS)))
def test_mutated_texts_are_read_or_refused_with_a_sentence(name, steps, other):
    text = TEXTS[name] if other is None else f"{TEXTS[name]}\nprose\n{TEXTS[other]}"
    check(mutated(text, steps))


def drawn(rng: random.Random) -> list[tuple[str, float, str]]:
    kinds = ("delete", "double", "swap", "char", "cut", "insert")
    return [(rng.choice(kinds), rng.random(), rng.choice(CHARS)) for _ in range(rng.randrange(1, 7))]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TEXTS))
def test_very_many_mutated_texts_are_read_or_refused_with_a_sentence(name):
    rng = random.Random(name)
    for _ in range(MUTATIONS // len(TEXTS) + 1):
        other = f"\nprose\n{TEXTS[rng.choice(sorted(TEXTS))]}" if rng.random() < 0.1 else ""
        text = mutated(TEXTS[name] + other, steps := drawn(rng))
        try:
            check(text)
        except Exception as error:
            raise AssertionError(f"{name}, edits {steps}, with another text: {bool(other)}") from error


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_no_total_of_a_sample_differs_from_its_rows(name):
    check(TEXTS[name])


@given(st.text(alphabet=CHARS + "abcdeiorstuAPT_/\\<>#$", max_size=400), st.sampled_from(FORMATS))
def test_any_text_is_read_or_refused_by_each_format(text, one):
    try:
        found = list(one.read(text.split("\n"), ASKED))
    except LatmonError:
        return
    assert all(1 <= thing.where.first <= thing.where.last <= text.count("\n") + 1 for thing in found)
