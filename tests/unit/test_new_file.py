"""A new file is new, private, and nobody else's."""

import os
import stat

import pytest

from latmon import new_file
from latmon.errors import UnavailableError


def test_it_is_written_and_only_its_owner_reads_it(tmp_path):
    old = os.umask(0)
    try:
        with new_file.create(tmp_path / "out") as out:
            out.write(b"x")
    finally:
        os.umask(old)
    assert (tmp_path / "out").read_bytes() == b"x"
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o600


def test_what_is_there_stays(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(UnavailableError, match="exists and is never overwritten"):
        new_file.create(tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "out").symlink_to(tmp_path / "target")
    with pytest.raises(UnavailableError):
        new_file.create(tmp_path / "out")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("name", ["no/such/directory", "with\0zero"])
def test_where_there_can_be_none_it_says_so(tmp_path, name):
    with pytest.raises(UnavailableError, match="can't write"):
        new_file.create(tmp_path / name)
