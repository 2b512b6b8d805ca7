"""Directories of a user's files."""

import os
import pwd
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
def test_state(environ, path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert paths.state(environ) == Path(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
@pytest.mark.parametrize("variable", ["HOME", "XDG_STATE_HOME"])
def test_root_keeps_its_state_with_what_is_roots(tmp_path, variable):
    """pfexec and su leave the user's HOME; a service may have one that doesn't exist."""
    environ = {"HOME": "/root", variable: str(tmp_path)}
    roots = Path(pwd.getpwuid(0).pw_dir) / ".local/state/latmon"
    assert paths.state(environ).is_relative_to(tmp_path)
    os.chown(tmp_path, 65534, 65534)
    assert paths.state(environ) == roots
    assert paths.state({}) == roots
    assert paths.state({"HOME": "/nonexistent"}) == roots


def test_config():
    assert paths.config({"HOME": "/home/x"}) == Path("/home/x/.config/latmon")
    assert paths.config({"HOME": "/home/x", "XDG_CONFIG_HOME": "/etc/xdg"}) == Path("/etc/xdg/latmon")
