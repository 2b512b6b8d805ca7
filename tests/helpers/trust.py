"""The 40 reliability and security tests as one suite: docs/TRUST.md names the tests that prove each of them.

`python tests/helpers/trust.py [NUMBERS...] [pytest's options]` runs those tests, and no others, whatever their markers
are, and ends with a line per number. Exit status 0: each number has passed.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/TRUST.md"
COUNT = 40
TIMEOUT_S = 4 * 3600
"""A guest of the lab is built and booted within one test."""
_ROW = re.compile(r"^\| (\d+) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", re.MULTILINE)
_TEST = re.compile(r"`(\w+/test_\w+\.py(?:::\w+)*)`")
_BAD = ("failed", "error")


@dataclass(frozen=True, slots=True)
class Promise:
    """A row of the page: a promise, the files and functions below tests/ that prove it, and what they leave out."""

    text: str
    tests: tuple[str, ...]
    not_shown: str = ""


def promises(page: str) -> dict[int, Promise]:
    """Return the rows of the page's table by their numbers."""
    rows = _ROW.findall(page)
    return {int(number): Promise(text, tuple(_TEST.findall(tests)), left) for number, text, tests, _, left in rows}


class Results:
    """Plugin that collects the outcome of each test and reports by number."""

    def __init__(self, chosen: dict[int, Promise]) -> None:
        self._chosen = chosen
        self._outcomes: dict[str, set[str]] = defaultdict(set)
        self._reasons: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.partition("[")[0].partition("@")[0].removeprefix("tests/")  # @: xdist's group
        if report.when == "call" or report.outcome != "passed":
            outcome = "error" if report.failed and report.when != "call" else report.outcome
            parts = name.split("::")
            for prefix in ("::".join(parts[:length]) for length in range(1, len(parts) + 1)):
                self._outcomes[prefix].add(outcome)
                if report.skipped and isinstance(report.longrepr, tuple):
                    self._reasons[prefix] = report.longrepr[2].removeprefix("Skipped: ")

    def line(self, number: int) -> tuple[bool, str]:
        """Return whether the number has passed, and its line. Of a test with parameters one must have run."""
        wrong, promise = [], self._chosen[number]
        for test in promise.tests:
            outcomes = self._outcomes.get(test, set())
            if "passed" not in outcomes or outcomes.intersection(_BAD):
                why = "failed" if outcomes.intersection(_BAD) else f"not run: {self._reasons.get(test, 'not selected')}"
                wrong.append(f"{test} {why}")
        passed = f"passed; not shown: {promise.not_shown}" if promise.not_shown else "passed"
        return not wrong, f"{number:3}  {'; '.join(wrong) or passed}"

    def passed(self) -> int:
        return sum(self.line(number)[0] for number in self._chosen)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("docs/TRUST.md")
        for number in self._chosen:
            terminalreporter.write_line(self.line(number)[1])
        terminalreporter.write_line(f"{self.passed()} of {len(self._chosen)}")


def main(words: Sequence[str]) -> int:
    """Run the tests of the numbers that come first, by default of all; the words after them are pytest's."""
    known = promises(PAGE.read_text("utf-8"))
    numbers = list(itertools.takewhile(str.isdigit, words))
    wanted = [int(word) for word in numbers] or list(known)
    if unknown := set(wanted) - set(known):
        print(f"{PAGE.name} has no number {min(unknown)}", file=sys.stderr)
        return 2
    results = Results({number: known[number] for number in wanted})
    tests = sorted({str(ROOT / "tests" / test) for number in wanted for test in known[number].tests})
    options = ["-m", "", f"--timeout={TIMEOUT_S}", f"--rootdir={ROOT}", "-n", "logical", "--dist", "loadgroup"]
    options += words[len(numbers) :]
    status = pytest.main([*options, *tests], plugins=[results])
    return int(status) or int(results.passed() < len(wanted))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
