"""Small files that may be gone."""

import io
import os

import pytest

from latmon.importers import source
from latmon.support import paths


def test_what_is_there(tmp_path):
    (tmp_path / "x").write_bytes(b"a\xff\n")
    assert paths.content(tmp_path / "x") == b"a\xff\n"
    assert paths.text(tmp_path / "x") == "a\ufffd\n"


def test_what_is_not(tmp_path):
    for path in (tmp_path / "none", tmp_path, tmp_path / "none/deeper"):
        assert paths.content(path) == b""
        assert paths.text(path) == ""


@pytest.mark.parametrize(
    "read",
    [lambda path: paths.regular(path, 9), lambda path: source.read(path, {}, lambda *_: None)],
    ids=["config", "import"],
)
def test_a_file_that_has_nothing_to_read_yet_is_empty(tmp_path, monkeypatch, read):
    """Its read() returns None, as that of /proc/kmsg does where nobody has logged."""
    (tmp_path / "kmsg").write_bytes(b"x")

    class Silent(io.FileIO):
        def read(self, *_):
            return None

    monkeypatch.setattr(os, "fdopen", lambda descriptor, _, **how: Silent(descriptor, **how))
    assert read(tmp_path / "kmsg") == b""
