"""A window of issues as text: the picture, which were overtaken, the text where there is little room."""

import json
from itertools import pairwise, product
from pathlib import Path

import pytest

from latmon.model.inflight import Issue
from latmon.views.heatmap import RAMP, Ink
from latmon.views.lines import plain, width
from latmon.views.panels.outstanding import marks, order

RECORDED = {
    name: tuple(Issue(*row) for row in rows)
    for name, rows in json.loads(
        (Path(__file__).parents[1] / "golden/issue-windows.json").read_text(encoding="utf-8")
    ).items()
}
SORTED, IN_ORDER = RECORDED["mq-deadline"], RECORDED["none"]
MIXED = (
    Issue(1000, 0, 4096, "read", 10),
    Issue(1010, 800, 8192, "write", 5),
    Issue(1020, 1600, 4096, "discard", 1),
    Issue(1500, 400, 65536, "write", 900),
)


def text(issues, size=(80, 22), ink=RAMP, **how):
    return "\n".join(plain(line) for line in order(issues, *size, ink, **how))


@pytest.mark.parametrize("issues", [(), MIXED[:1], MIXED, IN_ORDER, SORTED], ids=len)
def test_it_fits_any_size(issues):
    for ink, size in product([Ink(), RAMP], [(20, 1), (40, 3), (40, 10), (80, 20), (160, 46), (400, 120)]):
        lines = order(issues, *size, ink)
        assert 0 < len(lines) <= size[1]
        assert {width(line) for line in lines} <= {size[0]}


def test_its_verdict_comes_first():
    assert text(SORTED).startswith(" sorted by LBA: 99% ascend, arrival order would be 49%; ")
    assert text(IN_ORDER).startswith(" in order of arrival")


def test_its_axis_and_its_caption_are_in_sectors():
    shown = text(MIXED)
    assert "  1.6k│" in shown
    assert "up: LBA in sectors, 0 to 1,600" in shown
    assert "…" not in text([one._replace(sector=one.sector + 10**10) for one in MIXED])


def test_what_is_sorted_climbs():
    issue_marks = marks(SORTED, [0] * len(SORTED), (80, 40), by_time=False)
    falls = sum(b.y > a.y for a, b in pairwise(issue_marks))
    assert falls <= 2
    assert {p.y for p in issue_marks} >= {0, 39}


def test_order_and_time_are_two_axes():
    assert [p.x for p in marks(MIXED, [0] * 4, (40, 10), by_time=False)] == [0, 10, 20, 30]
    assert [p.x for p in marks(MIXED, [0] * 4, (40, 10), by_time=True)] == [0, 0, 1, 39]
    assert "order of issue: 4 in 500 us" in text(MIXED)
    assert "time of issue: 4 in 500 us" in text(MIXED, by_time=True)


def test_ops_and_those_that_were_passed_can_be_separated_without_colours():
    shown = text(MIXED)
    picture = [line.partition("│")[2] for line in shown.splitlines() if "│" in line]
    assert picture[0].strip() == "d"
    assert picture[-1].strip() == "r"
    assert sorted("".join(picture).replace(" ", "")) == ["W", "d", "r", "w"]
    assert "r read  w write  d discard  RWD overtaken by later ones" in shown


def test_ops_and_those_that_were_passed_have_roles():
    roles = {span.role for line in order(MIXED, 80, 22, Ink())[1:] for span in line if set(span.text) & set("▀▄█")}
    assert roles == {"text", "accent", "strong", "bad"}


def test_an_order_without_overtaken_requests_names_none():
    assert "overtaken by" not in text(IN_ORDER)


def test_the_most_overtaken_are_listed():
    rows = [line.split() for line in text(MIXED).splitlines()]
    assert rows[-2][:4] == ["overtaken", "by", "waited", "op"]
    assert rows[-1] == ["3", "900us", "write", "64K", "400"]


def test_the_list_gives_way_to_the_picture():
    assert "waited" in text(SORTED, (80, 20))
    small = text(SORTED, (80, 9))
    assert "  waited" not in small.replace("waited longest", "").replace("that waited", "")
    assert sum("│" in line for line in small.splitlines()) >= 4


def test_no_issues():
    assert text(()).strip() == "no issues were recorded"


def test_a_panel_without_room_for_the_plot_says_so():
    small = " ".join(text(SORTED, (38, 6)).split())
    assert "a larger terminal shows the issues" in small
    assert "a larger terminal" not in text(SORTED, (80, 20))
