"""Every rule with each of its numbers at the least and at the most that a config may have: none fails on any demo."""

from itertools import islice
from random import Random

import pytest
from finding_cases import facts_of

from latmon.findings.facts import Facts
from latmon.findings.rule import DEFAULT, settings_of
from latmon.findings.rules import RULES, starved_io
from latmon_backends.demo.backend import INCIDENTS

CASES = [(rule, name, most) for rule in RULES for name in rule.thresholds for most in (False, True)]
SICK = [name for name in INCIDENTS if not name.endswith("-healthy")]


def drawn(frames):
    """Facts of each sick demo after so many frames."""
    for name in SICK:
        facts = facts_of(islice(INCIDENTS[name].frames(Random(1)), frames))
        yield Facts(facts.blocks, INCIDENTS[name].origin, facts.devices)


@pytest.mark.slow
def test_at_the_least_and_at_the_most_of_each_number_no_rule_fails():
    demos = list(drawn(25))
    for rule, name, most in CASES:
        threshold = rule.thresholds[name]
        value = threshold.most if most else threshold.least
        limits = settings_of({rule.id: {name: value}}, RULES).of(rule)
        for facts in demos:
            assert all(finding.summary for finding in rule.evaluate(facts, limits)), (rule.id, name, value)


def test_at_the_least_and_at_the_most_of_all_numbers_no_rule_fails():
    demos = list(drawn(3))
    for rule in RULES:
        named = rule.thresholds.items()
        for numbers in ({n: t.least for n, t in named}, {n: t.most for n, t in named}):
            limits = settings_of({rule.id: numbers}, RULES).of(rule)
            for facts in demos:
                assert all(finding.summary for finding in rule.evaluate(facts, limits))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 0, True, "4", None])
def test_what_is_no_number_of_it_is_refused(value):
    with pytest.raises(ValueError, match="is not a number from 1 to 1e\\+12 \\(ios\\)"):
        settings_of({"outstanding-ceiling": {"depth": value}}, RULES)


def test_on_takes_a_rule_out_of_off_and_numbers_of_two_files_add_up():
    system = settings_of({"bimodal-tail": "off", "tick-quantum": False, "starved-io": {"times": 9, "age_us": 7}}, RULES)
    both = settings_of({"bimodal-tail": "on", "starved-io": {"times": 8}}, RULES, system)
    assert both.off == {"tick-quantum"}
    assert both.of(starved_io.RULE) == DEFAULT.of(starved_io.RULE) | {"times": 8.0, "age_us": 7.0}
