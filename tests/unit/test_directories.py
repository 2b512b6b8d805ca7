"""Where a user's files belong."""

from pathlib import Path

import pytest

from latmon.support import paths


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"HOME": "/home/x"}, "/home/x/.local/state/latmon"),
        ({"HOME": "/home/x", "XDG_STATE_HOME": "/state"}, "/state/latmon"),
        ({"HOME": "/home/x", "XDG_STATE_HOME": "relative"}, "/home/x/.local/state/latmon"),
        ({"HOME": "/home/x", "XDG_STATE_HOME": ""}, "/home/x/.local/state/latmon"),
        ({}, "/.local/state/latmon"),
    ],
)
def test_state(environ, path):
    assert paths.state(environ) == Path(path)


def test_config():
    assert paths.config({"HOME": "/home/x"}) == Path("/home/x/.config/latmon")
    assert paths.config({"HOME": "/home/x", "XDG_CONFIG_HOME": "/etc/xdg"}) == Path("/etc/xdg/latmon")
