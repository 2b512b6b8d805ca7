"""Files that latmon writes: as root below no link or directory of another user, as a plain user as any program does."""

import contextlib
import os
import pwd
import shutil
import signal
import stat
import threading
import time
from pathlib import Path

import pytest

from latmon.support import output_files, trust
from latmon.support.errors import UnavailableError

EVE = 64_123
"""A uid that no user of this host has."""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture(autouse=True)
def root_shell(monkeypatch):
    monkeypatch.delenv("SUDO_UID", raising=False)


@pytest.fixture
def sticky(tmp_path):
    """A directory like /tmp."""
    directory = tmp_path / "sticky"
    directory.mkdir()
    directory.chmod(0o1777)
    return directory


@pytest.fixture
def target(tmp_path):
    """A directory of root's in which eve can't write."""
    directory = tmp_path / "target"
    directory.mkdir(mode=0o700)
    return directory


def give(path):
    os.chown(path, EVE, EVE, follow_symlinks=False)
    return path


def link(at, to):
    at.symlink_to(to)
    return at


def eves_link(sticky, target):
    at = give(link(sticky / "link", target))
    return at, at


def eves_link_above(sticky, target):
    (target / "below").mkdir()
    at = give(link(sticky / "link", target))
    return at / "below", at


def eves_directory(sticky, _target):
    at = sticky / "theirs"
    at.mkdir()
    return give(at), at


def link_to_eves_directory(sticky, target):
    theirs, _ = eves_directory(sticky, target)
    return link(sticky.parent / "link", theirs), theirs


def directory_below_eves(sticky, target):
    theirs, _ = eves_directory(sticky, target)
    (theirs / "roots").mkdir()
    return theirs / "roots", theirs


def directory_for_all(sticky, _target):
    at = sticky / "for-all"
    at.mkdir()
    at.chmod(0o777)
    return at, at


def directory_of_a_group(sticky, _target):
    at = sticky / "group"
    at.mkdir()
    os.chown(at, 0, EVE)
    at.chmod(0o770)
    return at, at


def eves_directory_with_the_sticky_bit(sticky, target):
    theirs, _ = eves_directory(sticky, target)
    theirs.chmod(0o1777)
    return theirs, theirs


PLACES = [
    eves_link,
    eves_link_above,
    eves_directory,
    link_to_eves_directory,
    directory_below_eves,
    directory_for_all,
    directory_of_a_group,
    eves_directory_with_the_sticky_bit,
]


def create(path):
    os.close(output_files.create(path))


def append(path):
    os.close(output_files.open_to_append(path))


def replace(path):
    output_files.replace(path, b"data")


def make_directories(path):
    output_files.make_directories(path / "more")


def remove(path):
    output_files.unlink_if(path, lambda _: True)


OPERATIONS = [create, append, replace, make_directories, remove, output_files.require]


@as_root
@pytest.mark.parametrize("operate", OPERATIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("place", PLACES, ids=lambda function: function.__name__)
def test_root_writes_nowhere_that_another_user_decides(sticky, target, place, operate):
    directory, at = place(sticky, target)
    if operate is remove:
        (directory / "file").touch()
    before = sorted(path.name for path in directory.iterdir())
    with pytest.raises(UnavailableError) as refusal:
        operate(directory / "file")
    assert str(refusal.value).startswith(f"{directory / 'file'}")
    assert f" is not written as root, because {at} " in str(refusal.value)
    assert str(refusal.value).endswith("name a file in a directory that only root can change")
    assert refusal.value.exit_code == 3
    assert sorted(path.name for path in directory.iterdir()) == before


@as_root
@pytest.mark.parametrize("operate", OPERATIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("linked", ["in a private directory", "in a sticky directory", "relative", "nowhere"])
def test_root_follows_links_of_its_own(sticky, target, operate, linked):
    """As /var/run -> /run, and /tmp -> private/tmp."""
    directory = {
        "in a private directory": lambda: link(sticky.parent / "link", target),
        "in a sticky directory": lambda: link(sticky / "link", target),
        "relative": lambda: link(sticky / "link", "../target"),
        "nowhere": lambda: target,
    }[linked]()
    if operate is remove:
        (target / "file").touch()
    operate(directory / "file")
    names = [path.name for path in target.iterdir()]
    assert names == ([] if operate in (remove, output_files.require) else ["file"])


@as_root
@pytest.mark.parametrize("operate", [create, append, replace, make_directories])
def test_in_a_directory_like_tmp_root_makes_what_is_new(sticky, operate):
    operate(sticky / "file")
    status = (sticky / "file").lstat()
    assert status.st_uid == 0
    assert stat.S_IMODE(status.st_mode) in (0o600, 0o700)


@as_root
@pytest.mark.parametrize("kind", ["file", "link", "hard link", "pipe", "directory", "for all"])
@pytest.mark.parametrize("where", ["sticky", "target"])
def test_root_appends_to_no_file_that_another_user_has_made_or_can_change(sticky, target, kind, where):
    directory = {"sticky": sticky, "target": target}[where]
    precious = target.parent / "precious"
    precious.write_text("before")
    path = directory / "log"
    reader = None
    if kind == "file":
        path.write_text("before")
    elif kind == "link":
        path.symlink_to(precious)
    elif kind == "hard link":
        path.hardlink_to(precious)
    elif kind == "pipe":
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # with a reader it can be opened to write
    elif kind == "directory":
        path.mkdir()
    else:
        path.write_text("before")
        path.chmod(0o666)
    if kind not in ("hard link", "for all"):
        give(path)
    with pytest.raises((UnavailableError, OSError)):
        append(path)
    with pytest.raises(FileExistsError):
        create(path)
    if reader is not None:
        assert os.read(reader, 1) == b""
        os.close(reader)
    assert precious.read_text() == "before"


@as_root
def test_a_pipe_without_a_reader_is_not_waited_for(sticky):
    os.mkfifo(sticky / "log")
    give(sticky / "log")
    with pytest.raises(OSError, match="No such device or address"):
        append(sticky / "log")


@as_root
def test_under_sudo_where_root_stays_the_users_directories_pass(sticky, target, monkeypatch):
    """On systems where latmon doesn't become the invoking user."""
    theirs, _ = eves_directory(sticky, target)
    monkeypatch.setenv("SUDO_UID", str(EVE))
    create(theirs / "file")
    monkeypatch.setenv("SUDO_UID", str(EVE + 1))
    with pytest.raises(UnavailableError, match="belongs to"):
        create(theirs / "another")


@as_root
@pytest.mark.parametrize("operate", [create, append, replace, remove])
def test_what_is_replaced_after_the_check_is_not_followed(sticky, target, monkeypatch, operate):
    """The file is opened relative to the directory that was checked, not by the path."""
    directory = sticky / "roots"
    directory.mkdir()
    for place in (directory, target):
        if operate is remove:
            (place / "file").write_text("precious")
    real = trust._Walk.shared

    def replaced(walk):
        flaw = real(walk)
        if walk.at == directory and not directory.is_symlink():
            directory.rename(sticky / "moved")
            give(link(directory, target))
        return flaw

    monkeypatch.setattr(trust._Walk, "shared", replaced)
    operate(directory / "file")
    assert directory.is_symlink()
    assert (target / "file").exists() is (operate is remove)
    assert (sticky / "moved/file").exists() is (operate is not remove)


@contextlib.contextmanager
def swapping(swapped, target, ready):
    """A child as eve that swaps a directory of its own for a link to root's, again and again."""
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setresgid(EVE, EVE, EVE)
            os.setresuid(EVE, EVE, EVE)
            while True:
                swapped.mkdir()
                with contextlib.suppress(FileExistsError):
                    ready.symlink_to(target)
                shutil.rmtree(swapped)
                swapped.symlink_to(target)
                swapped.unlink()
        finally:
            os._exit(1)
    try:
        until = time.monotonic() + 60
        while not ready.is_symlink():
            assert time.monotonic() < until
            time.sleep(0.01)
        yield
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "it has swapped nothing any more"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@as_root
def test_a_user_who_replaces_a_directory_all_the_time_wins_no_race(sticky, target):
    swapped = sticky / "swapped"
    for above in (sticky.parent, *sticky.parent.parents):  # the child has to get there
        if not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o001)
    with swapping(swapped, target, sticky / "ready"):
        for number in range(500):
            with pytest.raises((UnavailableError, OSError)):
                create(swapped / f"file{number}")
    assert not list(target.iterdir())


@as_root
def test_directories_are_made_by_several_at_the_same_moment(target):
    failures = []

    def make():
        try:
            output_files.make_directories(target / "a/b/c/d")
        except (UnavailableError, OSError) as error:
            failures.append(error)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert stat.S_IMODE((target / "a/b").stat().st_mode) == 0o700


@as_root
def test_root_may_write_in_the_current_directory_unless_others_can_change_it(sticky, target):
    assert output_files.may_write_in(sticky)
    assert output_files.may_write_in(target)
    assert not output_files.may_write_in(target / "missing")
    assert not output_files.may_write_in(give(target))


@as_root
def test_root_reads_no_variable_that_names_a_temporary_directory_of_another_user(sticky, target):
    environ = {"TMPDIR": str(give(link(sticky / "link", target))), "TMP": str(sticky), "TEMP": "relative"}
    output_files.drop_temporary_directory(environ)
    assert environ == {"TMP": str(sticky)}


@pytest.mark.parametrize("search", [getattr(os, "O_PATH", None), None], ids=["descriptor", "path"])
@pytest.mark.parametrize("operate", OPERATIONS, ids=lambda function: function.__name__)
def test_a_plain_user_follows_links(tmp_path, target, monkeypatch, operate, search):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(output_files, "_SEARCH", search)
    directory = link(tmp_path / "link", target)
    if os.getuid() == 0:
        give(directory)
        target.chmod(0o777)
    if operate is remove:
        (target / "file").touch()
    operate(directory / "file")
    names = [path.name for path in target.iterdir()]
    assert names == ([] if operate in (remove, output_files.require) else ["file"])


def test_a_file_is_replaced_whole_or_not_at_all(target, monkeypatch):
    output_files.replace(target / "file", b"first")
    output_files.replace(target / "file", b"second")
    assert (target / "file").read_bytes() == b"second"

    def refuse(*_args, **_kwargs):
        raise OSError("no")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no"):
        output_files.replace(target / "file", b"third")
    assert [path.name for path in target.iterdir()] == ["file"]
    assert (target / "file").read_bytes() == b"second"


@pytest.mark.parametrize("name", ["missing/file", "plain/file", "plain/below/file"])
def test_a_directory_that_is_none_is_an_error_of_the_system(target, name):
    (target / "plain").touch()
    with pytest.raises((FileNotFoundError, NotADirectoryError)):
        output_files.create(target / name)
    output_files.require(target / name)


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
    assert output_files.state(environ) == Path(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
@pytest.mark.parametrize("variable", ["HOME", "XDG_STATE_HOME"])
def test_root_keeps_its_state_with_what_is_roots(tmp_path, variable):
    """pfexec and su leave the user's HOME; a service may have one that doesn't exist."""
    environ = {"HOME": "/root", variable: str(tmp_path)}
    roots = Path(pwd.getpwuid(0).pw_dir) / ".local/state/latmon"
    assert output_files.state(environ).is_relative_to(tmp_path)
    os.chown(tmp_path, 65534, 65534)
    assert output_files.state(environ) == roots
    assert output_files.state({}) == roots
    assert output_files.state({"HOME": "/nonexistent"}) == roots


@as_root
def test_root_keeps_its_state_where_no_other_user_has_put_a_link(sticky, target):
    """A HOME such as /tmp, as some services have it."""
    roots = Path(pwd.getpwuid(0).pw_dir) / ".local/state/latmon"
    assert output_files.state({"HOME": str(sticky)}) == roots, "others decide what will be there"
    (sticky / ".local").mkdir()
    assert output_files.state({"HOME": str(sticky)}) == sticky / ".local/state/latmon"
    (sticky / ".local").rmdir()
    give(link(sticky / ".local", target))
    assert output_files.state({"HOME": str(sticky)}) == roots
