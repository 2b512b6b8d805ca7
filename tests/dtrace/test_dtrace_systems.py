"""D scripts on systems that this host isn't: which are for them, in whose words, and names with blanks in them."""

from pathlib import Path

import pytest

from latmon.manifest import load
from latmon.model.frame import NAMED_FROM
from latmon_backends.dtrace import program
from latmon_backends.dtrace.probe import Maps, NumberedNames, OutputLine
from latmon_backends.dtrace.program import PORTABLE, fillings
from latmon_backends.probe.events import Printed

PROBES = Path(__file__).parents[2] / "probes"
ALWAYS = {"linux": ["requests_d", "io_d"], "illumos": ["sd", "io_d"], "freebsd": ["devstat"]}
NUMBERS = {"step_ms": 100, "gate_ns": 400_000_000, "threshold_us": 0}
OF_ONE_KERNEL = {
    "illumos": ("kthread_t", "t_startpc"),
    "linux": ("task_struct", "struct bio", "execname"),
    "freebsd": ("td_name", "p_flag", "td_priority"),
}


@pytest.mark.parametrize("system", PORTABLE)
def test_a_script_that_another_makes_needless_is_not_tried(system):
    manifests = program.always_on(program.manifests(system))
    assert [manifest.name for manifest in manifests] == ALWAYS[system]


@pytest.mark.parametrize("system", PORTABLE)
def test_all_words_are_those_of_one_kernel(system):
    """The first word of one parameter goes with the first of the others."""
    script = next(fillings(load(PROBES / "dtrace/wakeups_d.yaml"), NUMBERS, system))
    words = " ".join(map(str, script.values.values()))
    for kernel, signs in OF_ONE_KERNEL.items():
        if kernel == system:
            assert [sign for sign in signs if sign in words] == [sign for sign in signs if sign != "struct bio"]
        else:
            assert not [sign for sign in signs if sign in words]


def test_a_thread_s_name_has_blanks():
    names = NumberedNames()
    maps = Maps([load(PROBES / "dtrace/wakeups_d.yaml")], names)
    [reported] = maps.take(OutputLine("thread wakeups_d irq16: ahci0\t8\tirq16: ahci0"))
    assert reported == Printed(f"thread wakeups_d {NAMED_FROM + names.number('irq16: ahci0')} 8 irq16: ahci0")
    [reported] = maps.take(OutputLine("late wakeups_d swi4: clock (0)\t40\t5000000000\t1200\t255\tswi4: clock (0)"))
    assert reported == Printed(
        f"late wakeups_d {NAMED_FROM + names.number('swi4: clock (0)')} 40 5000000000 1200 255 swi4: clock (0)"
    )


def test_a_name_without_blanks_may_stand_between_blanks():
    names = NumberedNames()
    [reported] = Maps([load(PROBES / "dtrace/wakeups_d.yaml")], names).take(
        OutputLine("thread wakeups_d rcu_sched 120 rcu_sched")
    )
    assert reported == Printed(f"thread wakeups_d {NAMED_FROM + names.number('rcu_sched')} 120 rcu_sched")
