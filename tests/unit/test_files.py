"""Small files that may be gone."""

from latmon import files


def test_what_is_there(tmp_path):
    (tmp_path / "x").write_bytes(b"a\xff\n")
    assert files.content(tmp_path / "x") == b"a\xff\n"
    assert files.text(tmp_path / "x") == "a\ufffd\n"


def test_what_is_not(tmp_path):
    for path in (tmp_path / "none", tmp_path, tmp_path / "none/deeper"):
        assert files.content(path) == b""
        assert files.text(path) == ""
