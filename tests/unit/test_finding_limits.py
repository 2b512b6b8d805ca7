"""Every rule with each of its numbers at the least and at the most that a config may say: none fails on any demo."""

from itertools import islice
from random import Random

import pytest
from finding_cases import facts_of

from latmon.findings.engine import RULES
from latmon.findings.facts import Facts
from latmon.findings.rule import DEFAULT, TABLE, settings_of
from latmon_backends.demo.backend import INCIDENTS

CASES = [(rule, name, most) for rule, named in TABLE.items() for name in named for most in (False, True)]
SICK = [name for name in INCIDENTS if not name.endswith("-healthy")]


def drawn(frames):
    """What rules read of each sick demo after so many frames."""
    for name in SICK:
        facts = facts_of(islice(INCIDENTS[name].frames(Random(1)), frames))
        yield Facts(facts.blocks, INCIDENTS[name].origin, facts.devices)


@pytest.mark.slow
def test_at_the_least_and_at_the_most_of_each_number_no_rule_fails():
    demos = list(drawn(25))
    rules = {rule.id: rule for rule in RULES}
    for rule, name, most in CASES:
        one = TABLE[rule][name]
        value = one.most if most else one.least
        limits = settings_of({rule: {name: value}}).of(rule)
        for facts in demos:
            assert all(found.summary for found in rules[rule].judge(facts, limits)), (rule, name, value)


def test_at_the_least_and_at_the_most_of_all_numbers_no_rule_fails():
    demos = list(drawn(6))
    for rule in RULES:
        for limits in ({n: t.least for n, t in TABLE[rule.id].items()}, {n: t.most for n, t in TABLE[rule.id].items()}):
            for facts in demos:
                assert all(found.summary for found in rule.judge(facts, settings_of({rule.id: limits}).of(rule.id)))


@pytest.mark.parametrize(("rule", "name"), [(rule, name) for rule, named in TABLE.items() for name in named][:1])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 0, True, "4", None])
def test_what_is_no_number_of_it_is_refused(rule, name, value):
    with pytest.raises(ValueError, match="is not a number from 1 to 1e\\+12 \\(ios\\)"):
        settings_of({rule: {name: value}})


def test_on_takes_a_rule_out_of_off_and_numbers_of_two_files_add_up():
    system = settings_of({"bimodal-tail": "off", "tick-quantum": False, "starved-io": {"times": 9, "age_us": 7}})
    both = settings_of({"bimodal-tail": "on", "starved-io": {"times": 8}}, system)
    assert both.off == {"tick-quantum"}
    assert both.of("starved-io") == DEFAULT.of("starved-io") | {"times": 8.0, "age_us": 7.0}
