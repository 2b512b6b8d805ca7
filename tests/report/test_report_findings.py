"""Findings in the report as JSON, text and HTML; by windows in a short recording, by minutes in a long one."""

import html
import re
from dataclasses import replace

import pytest
from report_json import summarised

from latmon.aggregate.accumulator import Minute
from latmon.findings import engine
from latmon.findings.rule import MISSING, WARNING, Fact, Finding, Settings, Step, Where, sized
from latmon.findings.rules import RULES
from latmon.model.frame import Frame, Origin
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.report import reading
from latmon.report.command import report_command
from latmon.report.findings import findings_of, not_evaluated, verdict
from latmon.report.findings import lines as as_text
from latmon.report.html import findings as as_html
from latmon.report.html_elements import look, style_sheet
from latmon.report.model.finding import Evaluation, Findings
from latmon.support.emphasis import emphasised
from latmon.support.typed_json import to_json

ORIGIN = Origin("bpftrace", "box", "6.1", "0.1")
OFF = frozenset({"bimodal-tail"})
SILENT: dict[str, list[str]] = {
    needs: [rule.id for rule in RULES if rule.needs == needs and rule.id not in OFF] for needs in MISSING
}
"""Input that is missing -> the rules that need it."""
SICK = Finding(
    "completion-wakeup",
    WARNING,
    "sdc",
    "sdc: 97 % of the time of I/Os above 100 ms is waiting for <emlxs_thread>, which was woken and not run",
    (
        Fact("tail_share", 0.9712345678, "97 % of 1.2 s in 31 I/Os", "share", 31),
        Fact("thread", "emlxs_thread", "it runs at priority 97"),
        Fact("wait", 3.0, "it took long", "us", 1234),
    ),
    Where("stages", "sdc", low_us=100_000),
    (Step("raise its priority", "starves others of its class"), Step("look at the wake-ups")),
    "a tail that stays when nothing runs beside it",
    0.97,
)


def evaluated(monkeypatch, found, *, n=15, minutes=False):
    monkeypatch.setattr(engine, "evaluate_rules", lambda _facts, _settings, _failed: iter([found]))
    rules = engine.RuleEngine(ORIGIN, (), Settings(off=OFF))
    for i in range(n):
        rules.take(Frame(i, 1e9 + i, (i + 1) * 1_000_000, 1_000_000))
    if minutes:
        frame = Frame(n, 1e9, (n + 60) * 1_000_000, 60_000_000)
        rules.take(Minute(frame=frame, windows=60, longest_us=1_000_000, first_dt_us=1_000_000))
    rules.finish()
    return findings_of(rules)


def test_json(monkeypatch):
    summary = to_json(evaluated(monkeypatch, (SICK,)))
    (finding,) = summary["findings"]
    assert (finding["id"], finding["severity"], finding["device"], finding["summary"]) == (
        "completion-wakeup",
        WARNING,
        "sdc",
        SICK.summary,
    )
    assert finding["evidence"]["tail_share"] == {
        "value": 0.971235,
        "unit": "share",
        "samples": 31,
        "text": "97 % of 1.2 s in 31 I/Os",
    }
    assert finding["evidence"]["thread"] == {"value": "emlxs_thread", "text": "it runs at priority 97"}
    assert finding["next_steps"][0] == {"text": "raise its priority", "risk": "starves others of its class"}
    assert finding["view"] == {"screen": "stages", "device": "sdc", "low_us": 100_000}
    assert (finding["begin"], finding["end"], finding["episodes"]) == (
        "2001-09-09T01:46:41.000Z",
        "2001-09-09T01:46:54.000Z",
        1,
    )
    assert summary["findings_by"] == {
        "rules": len(RULES) - len(OFF),
        "judged": 0,
        "judged_by": "windows",
        "not_judged": SILENT,
        "rules_off": ["bimodal-tail"],
    }


def test_a_command_keeps_its_blanks_and_has_a_line_of_its_own(monkeypatch):
    line = 'ssd-config-list = "VENDOR  PRODUCT", "throttle-max:2, disksort:false, physical-block-size:4096";'
    step = Step("set it in ssd.conf", "it needs a reboot", (line, "dmesg | tail -n 50"))
    findings = evaluated(monkeypatch, (replace(SICK, steps=(step,)),))
    assert to_json(findings.findings[0].next_steps) == [
        {
            "text": f"set it in ssd.conf: {line} (not run here), dmesg | tail -n 50",
            "risk": "it needs a reboot",
            "what": "set it in ssd.conf",
            "commands": [{"line": line, "ran": False}, {"line": "dmesg | tail -n 50", "ran": True}],
        }
    ]
    assert {f"        {line} (not run here)", "        dmesg | tail -n 50"} <= set(as_text(findings))
    page = as_html(findings)
    assert f'<code class="command">{html.escape(line)}</code><span class="risk"> (not run here)</span>' in page
    assert ".command{white-space:pre-wrap}" in style_sheet(look())


def test_none_is_reported_where_rules_were_asked(monkeypatch):
    assert evaluated(monkeypatch, ()).findings == ()
    assert evaluated(monkeypatch, (), n=0) is None
    findings = evaluated(monkeypatch, (), minutes=True)
    text = " ".join(" ".join(as_text(findings)).split())
    assert text == f"findings: none (0 of {len(RULES) - len(OFF)} rules evaluated, minute by minute)"
    assert verdict(findings) == [f"verdict: no finding by 0 of {len(RULES) - len(OFF)} rules"]
    text = " ".join(" ".join(not_evaluated(findings)).split()).replace("- ", "-")
    silent = [f"{', '.join(rules)} ({MISSING[needs]})" for needs, rules in SILENT.items()]
    assert text == f"findings: not evaluated: {', '.join(silent)}; off by the config: bimodal-tail"
    assert as_text(None) == []
    assert as_html(None) == ""
    assert f"None, by 0 of {len(RULES) - len(OFF)} rules evaluated, every 5 s" in as_html(evaluated(monkeypatch, ()))


@pytest.mark.parametrize(
    ("judged", "partly", "words", "is_green"),
    [
        (33, {}, "no finding by 33 rules", True),
        (2, {}, "no finding by 2 of 33 rules", False),
        (33, {"starved-io": 0.7}, "no finding by 33 rules, 1 of them only for some of the time", False),
    ],
)
def test_no_finding_is_good_news_only_by_all_rules(judged, partly, words, is_green):
    """It was green by however few rules."""
    by = Evaluation(
        rules=33,
        judged=judged,
        judged_by="windows",
        not_judged={},
        partly_evaluated=partly,
        rules_off=(),
        failed={},
        episodes_left_out=0,
    )
    lines = verdict(Findings((), by))
    assert lines == [f"verdict: {words}"]
    assert (f"\x1b[1;32m{words}\x1b[0m" in emphasised(lines[0])) is is_green


def test_what_failed_or_was_left_out_is_reported():
    by = Evaluation(
        rules=11,
        judged=10,
        judged_by="windows",
        not_judged={},
        partly_evaluated={},
        rules_off=(),
        failed={"starved-io": "KeyError: 'x'"},
        episodes_left_out=1200,
    )
    assert as_text(Findings((), by)) == ["findings: none (10 of 11 rules evaluated, every 5 s over the last minute)"]
    assert " ".join(not_evaluated(Findings((), by))) == (
        "findings: not evaluated: starved-io (it failed: KeyError: 'x'); 1,200 episodes   left out"
    )
    assert as_text(Findings((), replace(by, judged=11, failed={}, episodes_left_out=0))) == [
        "findings: none (11 rules, every 5 s over the last minute)"
    ]


def test_all_forms_judge_the_same_items(monkeypatch, tmp_path):
    monkeypatch.setattr(reading, "SHORT_US", 100_000_000)
    path = tmp_path / "a.latmon.jsonl.gz"
    writer = Writer.create(path, ORIGIN)
    for i in range(1, 25):
        writer.append(Frame(i, 1e9 + 10 * i, i * 10_000_000, 10_000_000))
    writer.close("asked")
    reported = summarised(open_recording(path))["findings_by"]
    assert reported["judged_by"] == "minutes"
    page = tmp_path / "a.html"
    report_command([path], html=page)
    assert "minute by minute" in page.read_text(encoding="utf-8")


def test_the_text_fits_a_ticket(monkeypatch):
    lines = as_text(evaluated(monkeypatch, (SICK,)))
    assert all(len(line) <= 79 for line in lines)
    text = " ".join(" ".join(lines).split())
    assert "WARNING sdc kernel thread ran late (completion-wakeup) 2001-09-09T01:46:41.000Z to" in text
    for fact in SICK.facts:
        assert f"- {fact.text}" in text
    assert "- it took long (of 1,234)" in text
    assert "shown on: screen stages, sdc, 100 ms and more" in text
    assert verdict(evaluated(monkeypatch, (SICK,)))[0].startswith("verdict: WARNING  ")
    assert "next: raise its priority (risk: starves others of its class)" in text
    assert "refuted by: a tail that stays" in text


def test_the_page_says_the_same_and_escapes_it(monkeypatch):
    page = as_html(evaluated(monkeypatch, (SICK,)))
    assert "&lt;emlxs_thread&gt;" in page
    assert 'class="finding warning"' in page
    text = re.sub(r"<[^>]+>", " ", page)
    assert "Risk: starves others of its class." in " ".join(text.split())
    assert "it took long (of 1,234)" in text
    assert "Shown on: screen stages, sdc, 100 ms and more" in text


def test_samples_are_reported_once():
    assert [sized("97 % of 31 I/Os", 31), sized("30 ms each", 3), sized("0.3 ms", 3), sized("all 1,234.", 1234)] == [
        "97 % of 31 I/Os",
        "30 ms each (of 3)",
        "0.3 ms (of 3)",
        "all 1,234.",
    ]


@pytest.mark.parametrize("render", [as_text, as_html])
def test_many_are_bounded(monkeypatch, render):
    many = tuple(Finding("starved-io", WARNING, f"sd{i}", "s", (), Where("overview"), (), "r") for i in range(60))
    text = render(evaluated(monkeypatch, many))
    assert re.search(r"and \d+ more", text if isinstance(text, str) else text[-1])
