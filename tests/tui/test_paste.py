"""Pasted and typed text: Esc in a paste, whole and cut at each place, and a value that is replaced."""

import pytest
from textual.events import Key, Paste

from latmon.tui.commands import InputLine
from latmon.tui.paste import PASTE_BEGIN, PASTE_END, PasteGuard
from latmon.tui.terminal import InputParser

LOG = "\x1b[31merror\x1b[0m\nq\n"
TYPED = f"j{PASTE_BEGIN}{LOG}{PASTE_END}k"


@pytest.mark.parametrize("cut", range(len(TYPED) + 1))
def test_wherever_the_input_is_cut_esc_is_taken_out_of_the_paste_alone(cut):
    guard = PasteGuard()
    cleaned = guard.clean(TYPED[:cut]) + guard.clean(TYPED[cut:])
    assert cleaned == f"j{PASTE_BEGIN}[31merror[0m\nq\n{PASTE_END}k"


def test_typed_keys_keep_their_esc():
    assert PasteGuard().clean("\x1b[A\x1bq\x1b") == "\x1b[A\x1bq\x1b"


def test_a_log_with_colours_is_one_paste_and_no_keys():
    messages = list(InputParser().feed(TYPED))
    assert [message.text for message in messages if isinstance(message, Paste)] == ["[31merror[0m\nq\n"]
    assert [message.key for message in messages if isinstance(message, Key)] == ["j", "k"]


@pytest.mark.parametrize("cut", range(len(TYPED) + 1))
def test_wherever_the_input_is_cut_it_is_one_paste_for_the_parser(cut):
    parser = InputParser()
    messages = [message for piece in (TYPED[:cut], TYPED[cut:]) for message in parser.feed(piece)]
    assert [message.text for message in messages if isinstance(message, Paste)] == ["[31merror[0m\nq\n"]
    assert [message.key for message in messages if isinstance(message, Key)] == ["j", "k"]


def test_an_answer_of_a_terminal_in_a_paste_stays_in_it():
    messages = list(InputParser().feed(f"{PASTE_BEGIN}a\x1b[?62;22cb{PASTE_END}"))
    assert [message.text for message in messages if isinstance(message, Paste)] == ["a[?62;22cb"]


def test_a_typed_value_takes_the_place_of_the_one_to_change():
    line = InputLine("500ms", is_replaced=True)
    assert line.after("1", "1").after("0", "0").after("m", "m").text == "10m"
    assert line.after("backspace", None).after("x", "x").text == "500mx"
    assert line.after("left", None) == line
    assert InputLine("sda").after("1", "1").text == "sda1"
