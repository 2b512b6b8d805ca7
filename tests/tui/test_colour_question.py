"""Answers of terminals to the questions on their colours: whole, in parts, late, odd, and none."""

import pytest

from latmon.tui.colour_question import ColourAnswers, DeviceControl, Truecolor

VT220, VT100 = "\x1b[?62;22c", "\x1b[?1;2c"
XTERM, WINDOWS = "\x1bP1$r0;38:2::1:2:3m\x1b\\", "\x1bP1$r0;38;2;1;2;3m\x1b\\"


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def asked(clock=None):
    answers = ColourAnswers(clock or Clock())
    answers.expect()
    return answers


def taken(answers, *portions):
    """The messages, and the input that is left for keys; as the driver does, it asks for the colours in between."""
    said, remainder = [], ""
    for portion in portions:
        messages, text = answers.take(portion)
        said += map(type, messages)
        remainder += text
        if DeviceControl in map(type, messages):
            answers.expect()
    return said, remainder


@pytest.mark.parametrize("setting", [XTERM, WINDOWS])
def test_a_vt220_is_asked_and_has_truecolor(setting):
    assert taken(asked(), f"a{VT220}b", f"c{setting}d") == ([DeviceControl, Truecolor], "abcd")
    assert taken(asked(), VT220, setting.replace("\x1b\\", "\x07")) == ([DeviceControl, Truecolor], "")


@pytest.mark.parametrize("answer", [VT100, "\x1b[?6c", "\x1b[?c", "\x1b[?7;1c"])
def test_a_terminal_that_may_print_the_question_is_not_asked(answer):
    said, remainder = taken(asked(), answer)
    assert said == []
    assert remainder in ("", answer)


@pytest.mark.parametrize("setting", ["\x1bP1$r0;38:5:16m\x1b\\", "\x1bP1$r0m\x1b\\", "\x1bP0$r\x1b\\"])
def test_one_that_has_fewer_colours_keeps_them(setting):
    assert taken(asked(), VT220, setting) == ([DeviceControl], "")


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_an_answer_in_parts_is_no_key(size):
    texts = (f"a{VT220}", f"{XTERM}b")
    portions = [text[at : at + size] for text in texts for at in range(0, len(text), size)]
    assert taken(asked(), *portions) == ([DeviceControl, Truecolor], "ab")


def test_a_late_answer_is_no_key_though_a_key_waits_no_longer():
    clock = Clock()
    answers = asked(clock)
    assert taken(answers, "\x1bP1$r0;38") == ([], "")
    clock.now += 1
    assert answers.release() == ""
    assert taken(answers, ":2::1:2:3m\x1b\\q") == ([Truecolor], "q")


def test_an_esc_is_a_key_soon_while_an_answer_is_expected_and_at_once_before():
    clock = Clock()
    answers = asked(clock)
    assert taken(answers, "\x1b") == ([], "")
    assert answers.release() == ""
    clock.now += 0.2
    assert answers.release() == "\x1b"
    assert taken(ColourAnswers(clock), "\x1b") == ([], "\x1b")


def test_a_terminal_that_never_answers_delays_no_esc_for_ever():
    clock = Clock()
    answers = asked(clock)
    clock.now += 60
    assert taken(answers, "\x1b") == ([], "\x1b")


def test_answers_that_were_not_asked_for_change_nothing():
    assert taken(ColourAnswers(), VT220, XTERM, "x") == ([], "x")


@pytest.mark.parametrize("begin", ["\x1bP1$r0;38", "\x1b[?64;1"])
def test_an_answer_without_an_end_is_dropped_and_holds_no_key_for_long(begin):
    clock = Clock()
    answers = asked(clock)
    assert taken(answers, begin) == ([], "")
    clock.now += 3
    assert answers.release() == ""
    assert taken(answers, "q") == ([], "q")


def test_ctrl_c_ends_an_answer():
    assert taken(asked(), "\x1bP1$r0;38", "\x03q") == ([], "\x03q")


def test_what_is_too_long_for_an_answer_is_none():
    text = "\x1b[?" + "1" * 5000 + "c"
    assert taken(asked(), text) == ([], text)


@pytest.mark.parametrize("keys", ["\x1bP1", "\x1b[?", "\x1bP"])
def test_keys_are_not_held_where_nothing_was_asked(keys):
    assert taken(ColourAnswers(), keys) == ([], keys)
