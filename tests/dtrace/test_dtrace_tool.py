"""stderr of three DTrace families: losses, faults, and one sentence on why it can't trace."""

import random
from pathlib import Path

import pytest

from latmon.support.text import is_clean
from latmon_backends.dtrace import program as dtrace_program
from latmon_backends.dtrace.program import Drops, Fault, Other, Refused, Started, is_privilege, message, messages

GOLDEN = Path(__file__).resolve().parents[1] / "golden/dtrace"
CAPTURES = sorted(GOLDEN.glob("*.err"))
PROGRAM = "BEGIN { x = 1 ? 2 : 3;\n  exit(0); }\ndtrace:::END\n{ y = 2; }"


def golden(name):
    return list(messages((GOLDEN / f"{name}.err").read_text()))


def test_every_capture_is_understood():
    found = [message for path in CAPTURES for message in messages(path.read_text())]
    assert len(found) == sum(len(path.read_text().splitlines()) for path in CAPTURES) > 40
    assert not [one for one in found if isinstance(one, Other)]


def test_drops_are_reported_apart():
    started, *lost = golden("18_drops")
    assert started == Started(2)
    assert [(one.count, one.cpu) for one in lost] == [(4452, 0), (4854, 1), (4688, 0), (4861, 1), (4734, 0), (4893, 1)]
    assert {one.kind for one in lost} == {"principal"}
    assert golden("19_aggdrops")[1:] == [Drops("aggregation", 2974, 0), Drops("aggregation", 2209, 1)]
    assert sum(one.count for one in golden("20_dynvardrops")[1:] if one.kind == "dynamic") == 886_910


@pytest.mark.parametrize(
    ("text", "drops"),
    [
        ("1 drop on CPU 1", Drops("principal", 1, 1)),
        ("[DTRACEDROP_PRINCIPAL] 12 drop on CPU #", Drops("principal", 12, None)),
        ("[DTRACEDROP_AGGREGATION] 3 aggregation drops on CPU 17", Drops("aggregation", 3, 17)),
        ("1 dynamic variable drop", Drops("dynamic", 1, None)),
        ("5 dynamic variable drops with non-empty dirty list", Drops("dynamic", 5, None)),
        ("5 dynamic variable drops with non-empty rinsing list", Drops("dynamic", 5, None)),
        ("2 speculative drops", Drops("speculation", 2, None)),
        ("2 failed speculations", Drops("speculation", 2, None)),
        ("1 failed speculation (available buffer(s) still busy)", Drops("speculation", 1, None)),
        ("9 failed speculations (no speculative buffer available)", Drops("speculation", 9, None)),
        ("7 jstack()/ustack() string table overflows", Drops("stkstrtab", 7, None)),
        ("1 error in ERROR probe enabling", Drops("error", 1, None)),
    ],
)
def test_drops_of_the_other_families(text, drops):
    assert message(text) == message(f"dtrace: {text}\n") == drops


@pytest.mark.parametrize("text", ["drops", "x drops", "5 drops of rain", "5 apples", "-5 drops", "5 drops on CPU x"])
def test_what_looks_like_drops(text):
    assert message(text) == Other(text)


def test_faults():
    what = ("invalid address (0x0) at BPF pc 173", "divide-by-zero at BPF pc 766")
    assert golden("22_fault_noerr")[1:] == [Fault("dtrace:::BEGIN", one) for one in what]
    assert message(
        "dtrace: error on enabled probe ID 6 (ID 1: sd::entry): invalid address (0x40) in predicate at DIF offset 28"
    ) == Fault("sd::entry", "invalid address (0x40) in predicate at DIF offset 28")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"invalid probe specifier {PROGRAM}: probe description a:::b does not match any probes", "a:::b"),
        (
            f"invalid probe specifier {PROGRAM}: [D_PDESC_ZERO] probe description a:::b does not match any probes",
            "a:::b",
        ),
        ("invalid probe specifier a:::b: probe description a:::b does not match any probes", "a:::b"),
        ("failed to compile script /tmp/x: y.d: line 7: probe description a:::b does not match any probes", "line 7: "),
    ],
)
def test_the_program_is_left_out_of_a_refusal(text, reason):
    wanted = "probe description a:::b does not match any probes"
    line = "line 7: " if reason == "line 7: " else ""
    assert message(f"dtrace: {text}\n") == Refused(line + wanted)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f'invalid probe specifier {PROGRAM} }}: syntax error near "}}"', 'syntax error near "}"'),
        (
            f"invalid probe specifier {PROGRAM}: in action list: failed to resolve zz: Unknown variable name",
            "in action list: failed to resolve zz: Unknown variable name",
        ),
        (
            "failed to enable 'BEGIN { a = \": ' }': destructive functions not allowed",
            "destructive functions not allowed",
        ),
        ("failed to initialize dtrace: DTrace requires additional privileges", "DTrace requires additional privileges"),
        (
            "failed to initialize dtrace: /dev/dtrace: No such file or directory",
            "/dev/dtrace: No such file or directory",
        ),
        ("run as root for tracing and listing probes", "run as root for tracing and listing probes"),
        ("failed to set -x aggpack: Invalid option name", "failed to set -x aggpack: Invalid option name"),
        ("failed to grab pid 42: no such process", "failed to grab pid 42: no such process"),
        (
            "processing aborted: Abort due to systemic unresponsiveness",
            "processing aborted: Abort due to systemic unresponsiveness",
        ),
        ("could not enable tracing: Memory allocation failure", "could not enable tracing: Memory allocation failure"),
        ("invalid probe specifier BEGIN {", "the program is refused"),
    ],
)
def test_a_refusal_is_one_sentence(text, reason):
    assert message(f"dtrace: {text}") == Refused(reason)


def test_with_n_the_head_of_the_message_is_a_program():
    assert message(f"dtrace: description '{PROGRAM}' matched 4 probes") == Started(4)


@pytest.mark.parametrize(
    ("text", "privilege"),
    [
        ("DTrace requires additional privileges", True),
        ("dtrace: run as root for tracing and listing probes", True),
        ("failed to initialize dtrace: Operation not permitted", True),
        ("/dev/dtrace: Permission denied", True),
        ("/dev/dtrace: No such file or directory", False),
        ("probe description a:::b does not match any probes", False),
        ("destructive functions not allowed", False),
    ],
)
def test_which_refusals_more_rights_would_help(text, privilege):
    assert is_privilege(text) is privilege


def test_why_it_ended():
    wanted = "probe description a:::b does not match any probes"
    text = f"dtrace: invalid probe specifier {PROGRAM}: {wanted}".split("\n")
    assert dtrace_program.reason(text, 1) == wanted
    assert dtrace_program.reason(text[-1:], 1) == wanted  # the head is no longer kept
    assert dtrace_program.reason(["dtrace: 3 drops on CPU 0", "sudo: a password is required."], 1) == (
        "sudo: a password is required"
    )
    assert dtrace_program.reason([], 137) == "dtrace ended with status 137"
    assert dtrace_program.reason(["dtrace: 3 drops on CPU 0"], 1) == "dtrace ended with status 1"


@pytest.mark.parametrize(
    "program", ["BEGIN\n{\n\tx = 1;\n}\n", "x();\n" * 100 + "}\n"], ids=["short", "longer than stderr"]
)
def test_a_library_that_does_not_compile(program):
    """The error of each program on a Linux without CONFIG_KALLSYMS_ALL."""
    why = '"/usr/lib/dtrace/6.10/io.d", line 134: failed to resolve vmlinux`major_names: Unknown symbol name'
    text = f"dtrace: invalid probe specifier {program}: {why}".split("\n")
    assert dtrace_program.reason(text[-60:], 1) == why
    assert dtrace_program.is_library(why)
    assert not dtrace_program.is_library("line 3: failed to resolve x: Unknown variable name")


def test_foreign_text_is_clean_and_short():
    for text in (
        "dtrace: failed to \x1b[2J" + "x" * 9999,
        "\x07" * 999,
        f"dtrace: error in a for probe ID 1 (\x1b): {'y' * 999}",
    ):
        (actual_message,) = messages(text)
        words = {Refused: "reason", Other: "text", Fault: "what"}[type(actual_message)]
        assert is_clean(getattr(actual_message, words))
        assert len(getattr(actual_message, words)) <= dtrace_program.MAX_REASON


def test_mutated_messages_never_raise():
    draw = random.Random(3)
    lines = [line for path in CAPTURES for line in path.read_text().splitlines()]
    for _ in range(20_000):
        text = draw.choice(lines)
        at = draw.randrange(len(text))
        message(text[:at] + chr(draw.randrange(32, 0x2600)) + text[at + draw.randrange(3) :])


def test_a_long_line_costs_little():
    for text in ("(" * 50_000, "1 " + "a " * 50_000, "dtrace: error in x for probe ID 1 (" * 9000, "'" * 50_000):
        message(text)
        message(f"dtrace: script '{text}")
        message(f"dtrace: failed to enable '{text}")
        message(f"dtrace: failed to compile script {text}: {text}")
