"""What rules find, in the report as JSON, text and HTML; by windows in a short recording, by minutes in a long one."""

import json
import re
from types import SimpleNamespace

import pytest

from latmon.findings import watch
from latmon.findings.finding import WARNING, Fact, Finding, Step, Where
from latmon.findings.thresholds import Settings
from latmon.model import Frame, Origin
from latmon.report import findings as report_findings
from latmon.report.findings import Judged
from latmon.report.html_findings import findings as as_html
from latmon.report.text_findings import findings as as_text

ORIGIN = Origin("bpftrace", "box", "6.1", "0.1")
SICK = Finding(
    "completion-wakeup",
    WARNING,
    "sdc",
    "sdc: 97 % of the time of I/Os above 100 ms is waiting for <emlxs_thread>, which was woken and not run",
    (
        Fact("tail_share", 0.9712345678, "97 % of 1.2 s in 31 I/Os", "share", 31),
        Fact("thread", "emlxs_thread", "it runs at priority 97"),
    ),
    Where("stages", "sdc", low_us=100_000),
    (Step("raise its priority", "starves others of its class"), Step("look at the wake-ups")),
    "a tail that stays when nothing runs beside it",
    0.97,
)


def judged(monkeypatch, found, *, n=15, minutes=False):
    monkeypatch.setattr(watch, "asked", lambda _facts, _settings, _failed: iter([found]))
    span = report_findings.SHORT_US + 1 if minutes else n * 1_000_000
    one = Judged(SimpleNamespace(origin=ORIGIN, devices=(), span=lambda: (0, span)), Settings(off=frozenset({"x"})))
    for i in range(n):
        one.add(Frame(i, 1e9 + i, (i + 1) * 1_000_000, 1_000_000))
    return one.summary()


def test_json(monkeypatch):
    summary = judged(monkeypatch, (SICK,))
    (one,) = json.loads(json.dumps(summary))["findings"]
    assert (one["id"], one["severity"], one["device"], one["summary"]) == (
        "completion-wakeup",
        WARNING,
        "sdc",
        SICK.summary,
    )
    assert one["evidence"]["tail_share"] == {
        "value": 0.971235,
        "unit": "share",
        "samples": 31,
        "text": "97 % of 1.2 s in 31 I/Os",
    }
    assert one["evidence"]["thread"] == {"value": "emlxs_thread", "text": "it runs at priority 97"}
    assert one["next_steps"][0] == {"text": "raise its priority", "risk": "starves others of its class"}
    assert one["view"] == {"screen": "stages", "device": "sdc", "low_us": 100_000}
    assert (one["begin"], one["end"], one["episodes"]) == ("2001-09-09T01:46:44.000Z", "2001-09-09T01:46:54.000Z", 1)
    assert summary["findings_by"] == {"rules": 11, "judged_by": "windows", "rules_off": ["x"]}


def test_none_is_told_where_rules_were_asked(monkeypatch):
    assert judged(monkeypatch, ())["findings"] == []
    assert judged(monkeypatch, (), n=0) == {}
    assert as_text(judged(monkeypatch, (), minutes=True)) == [
        "findings: none (11 rules, minute by minute; off by the config: x)"
    ]
    assert as_text({}) == []
    assert as_html({}) == ""
    assert "None, by 11 rules" in as_html(judged(monkeypatch, ()))


def test_the_text_fits_a_ticket(monkeypatch):
    lines = as_text(judged(monkeypatch, (SICK,)))
    assert all(len(line) <= 79 for line in lines)
    said = " ".join(" ".join(lines).split())
    assert "WARNING completion-wakeup sdc 2001-09-09T01:46:44.000Z to 2001-09-09T01:46:54.000Z" in said
    for fact in SICK.facts:
        assert f"- {fact.said}" in said
    assert "next: raise its priority (risk: starves others of its class)" in said
    assert "refuted by: a tail that stays" in said


def test_the_page_says_the_same_and_escapes_it(monkeypatch):
    page = as_html(judged(monkeypatch, (SICK,)))
    assert "&lt;emlxs_thread&gt;" in page
    assert 'class="finding warning"' in page
    text = re.sub(r"<[^>]+>", " ", page)
    assert "Risk: starves others of its class." in " ".join(text.split())


@pytest.mark.parametrize("render", [as_text, as_html])
def test_many_are_bounded(monkeypatch, render):
    many = tuple(Finding("starved-io", WARNING, f"sd{i}", "s", (), Where("overview"), (), "r") for i in range(60))
    said = render(judged(monkeypatch, many))
    assert re.search(r"and \d+ more", said if isinstance(said, str) else said[-1])
