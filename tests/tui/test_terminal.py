"""The colour depth by the environment."""

import pytest

from latmon.tui.terminal import colour_depth

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
