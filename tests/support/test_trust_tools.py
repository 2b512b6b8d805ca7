import pytest

from latmon.support.errors import UnavailableError
from latmon.support.trust import find_tool, search_path


@pytest.fixture
def tool(tmp_path):
    path = tmp_path / "bin/bpftrace"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def find(**environ):
    return find_tool("bpftrace", "LATMON_BPFTRACE", environ)


def test_the_search_path(tool):
    assert find(PATH=f"/nowhere:{tool.parent}") == tool


def test_a_named_tool_comes_first(tool, tmp_path):
    other = tmp_path / "wrapper"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    assert find(PATH=str(tool.parent), LATMON_BPFTRACE=str(other)) == other


@pytest.mark.parametrize("path", ["", ".", "bin", ":", ".:bin"])
def test_never_from_the_current_directory(tool, monkeypatch, path):
    monkeypatch.chdir(tool.parent)
    monkeypatch.setattr("latmon.support.trust._ADMIN", ())
    with pytest.raises(UnavailableError, match="not installed"):
        find(PATH=path)


def test_a_relative_name_is_refused(tool, monkeypatch):
    monkeypatch.chdir(tool.parent)
    with pytest.raises(UnavailableError, match="absolute path"):
        find(LATMON_BPFTRACE="./bpftrace")


@pytest.mark.parametrize("spoil", [lambda path: path.chmod(0o644), lambda path: path.unlink()])
def test_a_named_tool_that_cannot_run_is_refused(tool, spoil):
    spoil(tool)
    tool.with_name("other").touch()
    with pytest.raises(UnavailableError, match="can't be run"):
        find(LATMON_BPFTRACE=str(tool), PATH="/usr/bin")


def test_administrators_directories_are_searched_too():
    assert search_path({"PATH": "/usr/bin:relative:/usr/sbin"}) == "/usr/bin:/usr/sbin:/usr/local/sbin:/sbin"
