"""The benchmark's page: results against limits, and a section measured again leaves the others unchanged."""

import pytest
from figures import Figure, Section, page


@pytest.mark.parametrize(
    ("values", "limit", "verdict"),
    [
        ((1.0, 2.0, 9.0), None, ""),
        ((1.0, 2.0, 9.0), 2.0, "<= 2.0: met"),
        ((3.0,), 2.0, "<= 2.0: **missed**, 1.50 times"),
    ],
)
def test_the_median_is_held_against_the_limit(values, limit, verdict):
    assert Figure("x", values, "s", limit, 1).verdict() == verdict


def test_a_row_has_median_spread_and_number_of_runs():
    assert Figure("x", (1.0, 2000.0, 4.0), "kB").row() == "| x | 4 kB | 1 to 2,000 | 3 |  |  |"


@pytest.mark.parametrize(
    ("values", "interval", "verdict"),
    [
        (range(1, 13), (3, 10), ""),
        ((0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 1.5, 9), (0.92, 0.99), ""),
        ((0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.96, 0.97, 0.98, 1.01, 1.1, 1.2), (0.7, 1.01), "no difference seen"),
        ((0.9, 1.1), (0.9, 1.1), "no difference seen"),
    ],
)
def test_pairs_have_the_medians_interval(values, interval, verdict):
    """Of twelve the third from either end: outside of it is the median in 3.9 % of all cases (binomial)."""
    figure = Figure("x", tuple(values), "x", digits=2, none=1.0)
    assert (figure.interval, figure.verdict()) == (interval, verdict)
    assert f"| {interval[0]:.2f} to {interval[1]:.2f} |" in figure.row()


def test_what_could_not_be_measured_says_so():
    assert Figure("x", (), "s", 1.0).row() == "| x | - | | 0 | | not measured |"


def test_a_section_names_its_command_and_date():
    text = Section("Size", "How.", [Figure("x", (1.0,), "kB")], ["so"]).markdown("make bench", "2026-01-05")
    assert text.startswith("## Size\n\nHow.\n\n`make bench`, 2026-01-05\n")
    assert text.endswith("| x | 1 kB |  | 1 |  |  |\n\n- so\n")


def test_a_part_measured_alone_leaves_the_others():
    first = page("# B\n", ["a", "b"], "", {"b": "old b\n"})
    both = page("# B\n", ["a", "b"], first, {"a": "new a\n"})
    assert both == "# B\n\n<!-- a -->\nnew a\n<!-- end -->\n\n<!-- b -->\nold b\n<!-- end -->\n"
    assert page("# B\n", ["a", "b"], both, {"a": "newer"}) == both.replace("new a", "newer")
