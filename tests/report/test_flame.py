"""Kernel stacks as folded text, as the 20 most frequent, and as a flame graph whose boxes are as wide as their I/Os."""

import xml.etree.ElementTree as ET

import pytest

from latmon.decode.tables import folded, folded_with_user
from latmon.report.trace import flame_svg, folded_text, top_stacks

STACKS = {"entry;read;submit": 30, "entry;write;submit": 10, "entry;read": 5}
SVG = "{http://www.w3.org/2000/svg}"


def test_a_map_of_stacks_is_folded_from_its_outermost_function_on():
    values = {
        "\n        bpf_trace_run1+5\n        submit_bio+10\n        read.isra.0+3\n        entry+1\n": 3,
        "\n        submit_bio+99\n        read+8\n        entry+1\n": 4,
        "": 2,
    }
    assert folded(values) == {"entry;read;submit_bio": 7, "unknown": 2}


def test_a_user_stack_is_below_the_kernels():
    values = {
        "77,\n        bpf_trace_run1+5\n        submit_bio+10\n        entry+1\n,\n        pread+5\n        0x7f20\n"
        "        0x7f21\n        std::map<int, a>::at(int&)+3\n": 4,
        "78,\n        submit_bio+10\n,\n": 2,
        "79,,\n        1f20\n": 1,
        "x,\n        submit_bio+10\n,\n": 9,
    }
    assert folded_with_user(values) == {
        (77, "std::map<int, a>::at(int&);[unknown];pread;entry;submit_bio"): 4,
        (78, "submit_bio"): 2,
        (79, "[unknown];unknown"): 1,
    }


def test_a_hostile_function_is_one_clean_frame():
    ((_, stack),) = folded_with_user({"7,\n        f+1\n,\n        \x1b[31ma;b <c> {d} 9+7\n": 1})
    assert stack.isprintable()
    assert stack.count(";") == 1
    assert "a:b <c> {d} 9" in stack
    ET.fromstring(flame_svg({stack: 1}, "x"))


def test_the_folded_text_has_the_most_frequent_first():
    assert folded_text(STACKS) == "entry;read;submit 30\nentry;write;submit 10\nentry;read 5\n"


def test_twenty_stacks_are_listed_from_the_innermost_function_on():
    many = {f"entry;f{n}": n for n in range(1, 31)}
    head, *rows = top_stacks(many, "kernel stacks", "slow I/Os")
    assert head == "kernel stacks that submitted slow I/Os: 465 I/Os, 30 different stacks"
    assert len(rows) == 20
    assert rows[0] == "  30 (6%)  f30 < entry"


def test_a_box_is_as_wide_as_its_ios_and_lies_on_its_caller():
    root = ET.fromstring(flame_svg(STACKS, "a <title> & more"))
    boxes = {
        group.find(f"{SVG}title").text: {
            name: float(value) for name, value in group.find(f"{SVG}rect").items() if name in ("x", "y", "width")
        }
        for group in root.iter(f"{SVG}g")
    }
    assert root.find(f"{SVG}text").text == "a <title> & more"
    every, read, write = (boxes[name] for name in ("all: 45 I/Os, 100%", "read: 35 I/Os, 78%", "write: 10 I/Os, 22%"))
    assert read["width"] == pytest.approx(every["width"] * 35 / 45, abs=0.1)
    assert write["x"] == pytest.approx(read["x"] + read["width"], abs=0.2)
    assert boxes["submit: 30 I/Os, 67%"]["y"] < read["y"] < boxes["entry: 45 I/Os, 100%"]["y"] < every["y"]
