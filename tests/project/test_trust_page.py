"""docs/TRUST.md has a row for each of the 40 tests, and the files and functions that it names exist."""

import ast
from functools import cache
from pathlib import Path

import pytest
import trust

TESTS = Path(__file__).resolve().parents[1]
PROMISES = trust.promises(trust.PAGE.read_text("utf-8"))


@cache
def functions(file):
    """Return the tests of a file as `function` or `Class::function`."""
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    found = {("", node.name) for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found |= {("", node.name), *((f"{node.name}::", one.name) for one in node.body if hasattr(one, "name"))}
    return {above + name for above, name in found}


def test_there_are_forty_and_each_has_a_test():
    assert list(PROMISES) == list(range(1, trust.COUNT + 1))
    assert all(one.tests for one in PROMISES.values())


@pytest.mark.parametrize("number", PROMISES)
def test_what_a_number_names_is_there(number):
    for test in PROMISES[number].tests:
        file, _, function = test.partition("::")
        assert (TESTS / file).is_file(), test
        assert not function or function in functions(file), test


class Report:
    """As much of pytest's report as is read."""

    def __init__(self, nodeid, outcome, when="call", why=""):
        self.nodeid, self.outcome, self.when = f"tests/{nodeid}", outcome, when
        self.failed, self.skipped = outcome == "failed", outcome == "skipped"
        self.longrepr = ("file", 1, f"Skipped: {why}") if why else None


def line_of(*reports):
    found = trust.Results({1: trust.Promise("", ("a/test_a.py::test_x", "a/test_b.py"), "the rest")})
    for report in reports:
        found.pytest_runtest_logreport(report)
    return found.line(1)


TEST, OTHER = "a/test_a.py::test_x", Report("a/test_b.py::test_y", "passed")
PASSED = Report(f"{TEST}[1]", "passed")
LINE = "  1  passed; not shown: the rest"


@pytest.mark.parametrize(
    ("reports", "line"),
    [
        ([PASSED, OTHER], LINE),
        ([PASSED, Report(f"{TEST}[2]", "skipped", "setup", "no fio"), OTHER], LINE),
        ([Report(f"{TEST}[1]", "rerun"), PASSED, OTHER], LINE),
        ([Report(TEST, "skipped", "setup", "no fio"), OTHER], f"  1  {TEST} not run: no fio"),
        ([PASSED, Report(f"{TEST}[2]", "failed"), OTHER], f"  1  {TEST} failed"),
        ([PASSED, Report("a/test_b.py::test_y", "failed", "setup")], "  1  a/test_b.py failed"),
        ([Report(f"{TEST}@kernel", "passed"), OTHER], LINE),
        ([OTHER], f"  1  {TEST} not run: not selected"),
    ],
)
def test_a_number_has_passed_when_all_its_tests_have(reports, line):
    assert line_of(*reports) == ("passed" in line, line)
