"""Targets of a recording, and every refusal before a probe starts."""

import os
import socket
from types import SimpleNamespace

import pytest

from latmon.capture import target
from latmon.support.errors import UnavailableError

as_user = pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("db-07.example", "db-07.example-20260105T030000Z.latmon.jsonl.gz"),
        ("../../etc/x", "etc_x-20260105T030000Z.latmon.jsonl.gz"),
        ("a b\x1b[31m/c", "a_b_31m_c-20260105T030000Z.latmon.jsonl.gz"),
        ("-rf", "rf-20260105T030000Z.latmon.jsonl.gz"),
        ("<-rf>", "rf_-20260105T030000Z.latmon.jsonl.gz"),
        ("", "host-20260105T030000Z.latmon.jsonl.gz"),
        ("ü", "host-20260105T030000Z.latmon.jsonl.gz"),
    ],
)
def test_names(host, name):
    assert target.recording_name(host, 1_767_582_000.9) == name


def test_a_long_host_name_still_makes_a_file_name():
    assert len(target.recording_name("x" * 500, 0)) < 120


def test_the_current_directory_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert target.default_directory({}) == tmp_path


def test_state_directory_where_nothing_can_be_written_here(tmp_path, monkeypatch):
    monkeypatch.setattr(target.os, "access", lambda *_args, **_kw: False)
    default_directory = target.default_directory({"XDG_STATE_HOME": str(tmp_path / "state")})
    assert default_directory == tmp_path / "state/latmon/recordings"
    assert default_directory.stat().st_mode & 0o777 == 0o700
    assert target.default_directory({"HOME": str(tmp_path)}) == tmp_path / ".local/state/latmon/recordings"


def test_state_directory_where_the_current_one_was_removed(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert target.default_directory({"HOME": str(tmp_path)}) == tmp_path / ".local/state/latmon/recordings"


def test_nowhere_to_write_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(target.os, "access", lambda *_args, **_kw: False)
    (tmp_path / "state").write_text("a file")
    with pytest.raises(UnavailableError, match=r"neither is .*/state/latmon/recordings"):
        target.default_directory({"XDG_STATE_HOME": str(tmp_path / "state")})


def test_a_new_file_is_fine(tmp_path):
    target.refuse(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def make_file(path):
    path.write_text("precious")


def make_dangling(path):
    path.symlink_to(path.parent / "nowhere")


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as given_socket:
        given_socket.bind(str(path))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (make_file, "it exists and is never overwritten"),
        (make_dangling, "it is a symbolic link"),
        (os.mkfifo, "it is a FIFO"),
        (os.mkdir, "it is a directory"),
        (make_socket, "it is no plain file"),
    ],
)
def test_what_is_there_already_is_refused(tmp_path, make, why):
    path = tmp_path / "x"
    make(path)
    with pytest.raises(UnavailableError, match=why):
        target.refuse(path)


def test_no_directory(tmp_path):
    with pytest.raises(UnavailableError, match="there is no directory"):
        target.refuse(tmp_path / "a" / "b")


def test_a_file_as_directory(tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(UnavailableError, match=r"can't record to .*: Not a directory"):
        target.refuse(tmp_path / "a" / "b")


@as_user
def test_a_directory_of_others(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(UnavailableError, match="is not writable"):
        target.refuse(tmp_path / "x")


def test_a_directory_where_even_root_can_not_write():
    with pytest.raises(UnavailableError, match="can't record"):
        target.refuse(target.Path("/proc/latmon-recording"))


def test_a_name_that_is_too_long(tmp_path):
    with pytest.raises(UnavailableError, match="File name too long"):
        target.refuse(tmp_path / ("x" * 300))


def disk(free, blocks, monkeypatch):
    room = SimpleNamespace(f_bavail=free >> 12, f_frsize=4096, f_blocks=blocks >> 12)
    monkeypatch.setattr(target.os, "statvfs", lambda _path: room)


@pytest.mark.parametrize(
    ("free", "blocks", "short"),
    [
        (300 << 20, 1 << 30, False),
        (200 << 20, 1 << 30, True),
        (4 << 30, 100 << 30, True),
        (6 << 30, 100 << 30, False),
        (0, 0, True),
    ],
)
def test_the_disk_is_not_filled(tmp_path, monkeypatch, free, blocks, short):
    disk(free, blocks, monkeypatch)
    assert bool(target.short_of_space(tmp_path / "x")) is short


def test_a_full_disk_is_refused_at_the_start(tmp_path, monkeypatch):
    disk(1 << 20, 1 << 30, monkeypatch)
    with pytest.raises(UnavailableError, match=r"only 1 MiB \(0%\) are free"):
        target.refuse(tmp_path / "x")


def test_a_file_system_that_does_not_answer(tmp_path):
    assert "is not known" in target.short_of_space(tmp_path / "gone" / "x")


def test_a_second_name_for_one_moment(tmp_path):
    path = tmp_path / f"box{target.SUFFIX}"
    assert target.unused(path) == path
    path.touch()
    assert target.unused(path).name == f"box-2{target.SUFFIX}"
    (tmp_path / f"box-2{target.SUFFIX}").symlink_to("nowhere")
    assert target.unused(path).name == f"box-3{target.SUFFIX}"
