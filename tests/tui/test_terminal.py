"""The colour depth by the environment, the pace of pictures by the link, and the sizes that a terminal reports."""

import signal
import time

import pytest
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key, MouseDown, Resize

from latmon.tui.terminal import ESC_S, WAKE_S, InputParser, Link, TerminalDriver, colour_depth, moves_cells

TERMINFO = {
    "screen": 8,
    "sun-color": 8,
    "vt100": -1,
    "vt220": -1,
    "xterm-direct2": 1 << 24,
    "iris-ansi": 16,
    "odd": 256,
}


@pytest.mark.parametrize(
    ("line", "depth"),
    [
        ("TERM=xterm-256color", "256"),
        ("TERM=xterm-256color COLORTERM=truecolor", "truecolor"),
        ("TERM=xterm-256color COLORTERM=truecolor NO_COLOR=1", "none"),
        ("TERM=xterm-direct", "truecolor"),
        ("TERM=xterm-direct2", "truecolor"),
        ("TERM=xterm-kitty", "truecolor"),
        ("TERM=foot", "truecolor"),
        ("TERM=xterm", "16"),
        ("TERM=xterm COLORTERM=24bit", "truecolor"),
        ("TERM=xterm-16color COLORTERM=truecolor", "16"),
        ("TERM=rxvt-88color", "16"),
        ("TERM=linux", "16"),
        ("TERM=linux COLORTERM=truecolor", "16"),
        ("TERM=screen", "8"),
        ("TERM=screen COLORTERM=truecolor", "8"),
        ("TERM=screen COLORTERM=truecolor TMUX=/tmp/tmux-0/default,1,0", "truecolor"),
        ("TERM=screen-256color COLORTERM=truecolor", "256"),
        ("TERM=screen.xterm-256color", "256"),
        ("TERM=tmux-256color", "256"),
        ("TERM=tmux-256color COLORTERM=truecolor", "truecolor"),
        ("TERM=vt100 COLORTERM=truecolor", "none"),
        ("TERM=vt220", "none"),
        ("TERM=sun-color", "8"),
        ("TERM=iris-ansi", "16"),
        ("TERM=odd", "256"),
        ("TERM=of-nobody", "16"),
    ],
)
def test_the_depth_is_that_of_the_terminal(line, depth):
    assert colour_depth(dict(word.split("=") for word in line.split()), TERMINFO.get) == depth


@pytest.mark.parametrize("term", ["xterm-kitty", "alacritty", "foot"])
def test_a_terminal_that_terminfo_may_lack_moves_cells(term):
    assert moves_cells(term)


class Wire:
    """A link with a clock of its own. `sent` pictures are those that it was free for."""

    def __init__(self):
        self.now, self.later, self.freed = 0.0, [], 0
        self.link = Link(self.free, lambda s, call: self.later.append((self.now + s, call)), lambda: self.now)

    def free(self):
        self.freed += 1

    def after(self, seconds):
        self.now += seconds
        for due, call in [one for one in self.later if one[0] <= self.now]:
            self.later.remove((due, call))
            call()


def test_a_terminal_that_never_answers_is_asked_once_and_free_when_the_kernel_has_a_picture():
    wire = Wire()
    assert wire.link.sent(500) == "\x1b[6n"
    assert wire.link.is_busy
    assert not wire.freed
    wire.after(0.01)
    wire.link.written()
    assert not wire.link.is_busy
    assert wire.freed == 1
    assert wire.link.most is None, "a fast link gets whole pictures"
    assert wire.link.sent(500) == ""


def answering():
    """A link whose terminal has answered the first request."""
    wire = Wire()
    wire.link.sent(2000)
    wire.link.written()
    wire.link.answered()
    return wire


def test_a_terminal_that_answers_is_busy_until_it_does():
    wire = answering()
    assert wire.link.sent(5000) == "\x1b[6n"
    wire.link.written()
    assert wire.link.is_busy, "the kernel and ssh store what a slow link has not taken"
    wire.after(5)
    assert wire.link.rest_s >= 5
    wire.link.answered()
    assert not wire.link.is_busy
    assert wire.link.rest_s == 5, "half of the time is for keys"
    assert wire.link.most == 500, "half a second of 1,000 bytes per second"
    wire.after(5)
    assert wire.link.rest_s == 0


def test_an_answer_that_gets_lost_does_not_end_the_pictures():
    wire = answering()
    wire.link.sent(5000)
    wire.after(2)
    assert wire.link.is_busy
    wire.after(2)
    assert not wire.link.is_busy
    assert wire.link.sent(100) == "\x1b[6n", "it is asked again, without waiting for it"
    wire.link.written()
    assert not wire.link.is_busy
    assert wire.link.sent(100) == ""
    wire.link.answered()
    assert wire.link.sent(100) == "\x1b[6n"


def test_a_picture_that_a_stopped_terminal_took_hours_to_show_delays_the_next_ones_by_seconds():
    wire = Wire()
    wire.link.sent(3000)
    wire.after(7200)
    assert wire.link.rest_s <= 10
    wire.link.written()
    assert 0 < wire.link.rest_s <= 10
    assert wire.link.most == 1, "a part has a row at least"
    wire.link.sent(100)
    wire.link.written()
    assert wire.link.most is None, "the link is fast again"


def test_the_first_answer_measures_the_link():
    wire = Wire()
    wire.link.sent(2000)
    wire.link.written()
    assert wire.link.most is None
    wire.after(2)
    wire.link.answered()
    assert wire.link.most == 500


def test_the_exit_waits_for_an_answer_that_is_on_its_way():
    wire = Wire()
    assert wire.link.answer_s == 0
    wire.link.sent(2000)
    wire.link.written()
    assert wire.link.answer_s == 0.5
    wire.link.heard.set()
    assert wire.link.answer_s == 0
    wire.link.sent(2000)
    wire.after(4)
    assert wire.link.answer_s == 0, "a terminal that never answers"


def test_a_slow_answer_has_more_time():
    wire = answering()
    wire.link.sent(5000)
    wire.after(2)
    wire.link.answered()
    wire.link.sent(5000)
    wire.after(7)
    assert wire.link.is_busy


def test_a_link_that_gets_faster_gets_whole_pictures_again():
    wire = answering()
    wire.link.sent(5000)
    wire.after(5)
    wire.link.answered()
    assert wire.link.most == 500
    wire.link.sent(510)
    wire.after(0.02)
    wire.link.answered()
    assert wire.link.most is None


CLICK = "\x1b[<0;41;13M"


@pytest.mark.parametrize(
    ("reports", "sizes", "x"),
    [
        ("48;24;80;480;800t", [(80, 24)], 4),  # the place is in pixels
        ("48;24;80;0;0t", [(80, 24)], 40),
        ("48;1000;1000;0;0t", [(1000, 1000)], 40),
        ("48;99999;99999;9;9t", [], 40),
        ("48;0;0;0;0t", [], 40),
        ("48;0;80;480;800t", [], 40),
        ("48;24;80;480;800t 48;24;1001;1;1t", [(80, 24)], 4),
    ],
)
def test_a_size_that_no_terminal_has_changes_nothing(reports, sizes, x):
    parser = InputParser()
    found = [one for report in reports.split() for one in parser.feed(f"\x1b[{report}")]
    assert [tuple(resize.size) for resize in found if isinstance(resize, Resize)] == sizes
    assert [mouse_down.x for mouse_down in parser.feed(CLICK) if isinstance(mouse_down, MouseDown)] == [x]


@pytest.mark.parametrize(
    "keys", ["\x1b[1114112u", "\x1b[99999999999u", "\x1b[97;5:1u", "\x1b[97:65;2u", "\x1b[97;;1114112u"]
)
def test_a_key_code_that_no_terminal_has_is_passed_over(keys):
    """An error would end the thread that reads keys, and the screen without a word."""
    parser = InputParser()
    assert [one.key for one in parser.feed(f"{keys}x")] == ["x"]


def keys_of(parser, *portions):
    """Keys of portions that arrive at once, and of what the time after them shows."""
    found = [one for portion in portions for one in parser.feed(portion)]
    time.sleep(parser.wait_s)
    return [(one.key, one.character) for one in (*found, *parser.tick())]


@pytest.mark.parametrize("key", ["5", "6", "q", "f", "b", "Q", "-", "[", "O", "é"])
def test_esc_and_a_character_at_once_are_two_keys(key):
    """Textual's table has a Mac's characters for some, Alt for others, and Esc would be lost: tmux and slow links join
    them."""
    first, second = keys_of(InputParser(), f"\x1b{key}")
    assert first == ("escape", "\x1b")
    assert second[1] == key
    assert second[0] in (key, "minus", "left_square_bracket")


@pytest.mark.parametrize(
    ("portions", "key"),
    [
        (("\x1b[A",), "up"),
        (("\x1b", "[A"), "up"),
        (("\x1b", "[", "A"), "up"),
        (("\x1b[1", ";5C"), "ctrl+right"),
        (("\x1b", "O", "P"), "f1"),
        (("\x1b\x7f",), "ctrl+w"),
    ],
)
def test_a_sequence_in_portions_is_one_key(portions, key):
    assert [one for one, _ in keys_of(InputParser(), *portions)] == [key]


def test_esc_alone_waits_for_no_longer_than_its_time():
    parser = InputParser()
    assert parser.wait_s == WAKE_S
    assert list(parser.feed("\x1b")) == []
    assert 0 < parser.wait_s <= ESC_S
    time.sleep(parser.wait_s)
    assert [one.key for one in parser.tick()] == ["escape"]
    assert parser.wait_s == WAKE_S


def test_a_paste_whose_end_got_lost_ends_with_the_input(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("latmon.tui.terminal.time.monotonic", lambda: now[0])
    parser = InputParser()

    def after(seconds, data=""):
        now[0] += seconds
        return [*(parser.feed(data) if data else ()), *parser.tick()]

    assert after(0, "\x1b[200~some") == after(1.9, "text") == after(1.9, "\x03") == []
    (paste,) = after(2.1)
    assert paste.text == "sometext\x03"
    assert [one.key for one in after(0, "\x03")] == ["ctrl+c"]
    assert after(2.1) == after(2.1) == []


def test_a_second_ctrl_c_does_not_wait_for_the_keys_before_it(monkeypatch):
    """A file pasted into a terminal without a paste mode is 100,000 keys, a minute of pictures; SIGINT ends them."""
    passed, killed = [], []
    monkeypatch.setattr(LinuxDriver, "process_message", lambda _, message: passed.append(message.key))
    monkeypatch.setattr("latmon.tui.terminal.os.kill", lambda _, number: killed.append(number))
    driver = object.__new__(TerminalDriver)
    driver._is_leaving = False
    for key in ("a", "ctrl+c", "a"):
        driver.process_message(Key(key, None))
    assert killed == []
    driver.process_message(Key("ctrl+c", None))
    assert killed == [signal.SIGINT]
    assert passed == ["a", "ctrl+c", "a", "ctrl+c"]
