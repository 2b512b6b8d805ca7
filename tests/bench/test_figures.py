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
