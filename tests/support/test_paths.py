"""Directories of a user's files."""

from pathlib import Path

from latmon.support import paths


def test_config():
    assert paths.config({"HOME": "/home/x"}) == Path("/home/x/.config/latmon")
    assert paths.config({"HOME": "/home/x", "XDG_CONFIG_HOME": "/etc/xdg"}) == Path("/etc/xdg/latmon")
