"""A new file is new, and private to its user."""

import errno
import os
import stat

import pytest

from latmon.support import output_files, streams
from latmon.support.errors import UnavailableError


def test_it_is_written_and_only_its_owner_reads_it(tmp_path):
    old = os.umask(0)
    try:
        with streams.create(tmp_path / "out") as out:
            out.write(b"x")
    finally:
        os.umask(old)
    assert (tmp_path / "out").read_bytes() == b"x"
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o600


def test_what_is_there_stays(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(UnavailableError, match="exists and is never overwritten"):
        streams.create(tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "out").symlink_to(tmp_path / "target")
    with pytest.raises(UnavailableError):
        streams.create(tmp_path / "out")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("name", ["no/such/directory", "with\0zero"])
def test_where_there_can_be_none_it_says_so(tmp_path, name):
    with pytest.raises(UnavailableError, match="can't write"):
        streams.create(tmp_path / name)


def fail(path, error, meanwhile=lambda _: None):
    with streams.whole(path) as out:
        out.write(b"x")
        meanwhile(path)
        raise error


def test_a_whole_one_stays_and_half_of_one_goes(tmp_path):
    with streams.whole(tmp_path / "out") as out:
        out.write(b"x")
    assert (tmp_path / "out").read_bytes() == b"x"
    with pytest.raises(KeyboardInterrupt):
        fail(tmp_path / "half", KeyboardInterrupt())
    with pytest.raises(UnavailableError, match="half: No space left on device"):
        fail(tmp_path / "half", OSError(errno.ENOSPC, "No space left on device"))
    assert not (tmp_path / "half").exists()


def replaced(path):
    path.rename(path.with_name("moved"))
    path.write_text("precious")


def gone_and_replaced(path):
    path.unlink()
    path.write_text("precious")  # most file systems give the inode number away again


def linked(path):
    path.rename(path.with_name("moved"))
    path.with_name("precious").write_text("precious")
    path.symlink_to(path.with_name("precious"))


@pytest.mark.parametrize("meanwhile", [replaced, gone_and_replaced, linked])
def test_half_of_one_takes_nothing_along_that_bears_its_name_by_now(tmp_path, meanwhile):
    with pytest.raises(RuntimeError):
        fail(tmp_path / "out", RuntimeError(), meanwhile)
    assert (tmp_path / "out").read_text() == "precious"


def test_an_open_file_loses_its_name_in_a_directory_that_is_not_readable(tmp_path):
    with streams.create(tmp_path / "out") as out:
        tmp_path.chmod(0o300)
        assert output_files.unlink(tmp_path / "out", out.fileno())
        tmp_path.chmod(0o700)
        with pytest.raises(FileNotFoundError):
            output_files.unlink(tmp_path / "out", out.fileno())
