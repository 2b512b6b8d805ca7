"""Each finding that a rule makes in these tests has a short text that is whole on a line of 80 columns."""

from collections.abc import Iterator

import pytest

from latmon.findings import rule
from latmon.findings.rule import SHORT_CELLS, short_name
from latmon.findings.rules import RULES

LONG = "a-host-with-a-long-name:nvme12n1"


@pytest.fixture(autouse=True)
def _short_texts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check the verdict of each short text as it is made: it must leave a long device its name."""
    made: list[tuple[str, str, str]] = []
    original = rule.short_text

    def checked(device: str, verdict: str, *clauses: str) -> str:
        text = original(device, verdict, *clauses)
        made.append((device, verdict, text))
        return text

    modules = {__import__(rule.evaluate.__module__, fromlist=["RULE"]) for rule in RULES}
    for module in modules:
        if hasattr(module, "short_text"):
            monkeypatch.setattr(module, "short_text", checked)
    yield
    for device, verdict, text in made:
        longest = len(f"{short_name(LONG)}: {verdict}") if device else len(verdict)
        assert longest <= SHORT_CELLS, f"{verdict!r} is cut beside a long name"
        assert len(text) <= SHORT_CELLS
        assert "\n" not in text
