"""Names of stages: no stage that holds the time up to the completion is called hba where a person reads it."""

import re

from fake_dtrace import manifests

from latmon.model.frame import STAGES, UNACCOUNTED
from latmon.model.stages import COLUMNS, LETTERS, by_column, called, explained

D2C = ("irq", "softirq", "completion")
MANIFESTS = manifests()


def test_a_stage_is_called_by_what_it_includes():
    assert called("hba").column == called("hba").sentence == "hba"
    assert called("hba", D2C)[:2] == ("service", "issue to completion")
    assert called("hba", ("queue", "requeue", *D2C))[:2] == ("Q2C", "queue to completion")
    assert called("hba", ("irq",))[:2] == ("hba+", "hba with its interrupt")
    assert called("queue", ("requeue",))[:2] == ("queue", "queue")
    assert called("a stage of later", D2C).column == "a stage of later"


def test_columns_fit_and_letters_differ():
    assert set(COLUMNS) == {*STAGES[:-1], UNACCOUNTED, "hba+", "service", "Q2C"}
    assert all(len(called("hba", held).column) <= 7 for held in ((), D2C, ("queue", *D2C), ("irq",)))
    assert LETTERS["service"] not in {LETTERS[name] for name in COLUMNS if name != "service"}
    assert by_column({"queue": 3, "hba": 5}, {"hba": D2C}) == {"queue": 3, "service": 5}


def test_the_meaning_of_an_interval_is_below_its_table():
    assert explained("hba", D2C) == "service (issue to completion) includes irq, softirq, completion"
    assert explained("queue", ("requeue",)) == "queue includes requeue"
    assert explained("hba", ()) == ""


def test_a_manifest_s_reasons_name_the_interval_that_its_includes_make():
    for probe in MANIFESTS:
        held = probe.includes.get("hba", ())
        if "completion" in held:
            reasons = " ".join((*probe.absent.values(), *probe.notes))
            assert not re.search(r"\bin hba\b", reasons)
            assert called("hba", held).both in reasons, probe.name
