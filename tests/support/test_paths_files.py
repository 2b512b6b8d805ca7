"""Small files that may be gone."""

from latmon.support import paths


def test_what_is_there(tmp_path):
    (tmp_path / "x").write_bytes(b"a\xff\n")
    assert paths.content(tmp_path / "x") == b"a\xff\n"
    assert paths.text(tmp_path / "x") == "a\ufffd\n"


def test_what_is_not(tmp_path):
    for path in (tmp_path / "none", tmp_path, tmp_path / "none/deeper"):
        assert paths.content(path) == b""
        assert paths.text(path) == ""
