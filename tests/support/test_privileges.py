"""The user that latmon becomes under sudo. Real ids in a child process; needs root, so it is skipped without."""

import os
import subprocess
import sys

import pytest

from latmon.support import privileges
from latmon.support.privileges import Invoker

NOBODY = {"SUDO_UID": "65534", "SUDO_GID": "65534"}
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")


def run(code, **environ):
    """Ids change for good, so in an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environ}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_without_sudo_there_is_no_invoking_user():
    assert privileges.invoker({}, 0) is None


@pytest.mark.parametrize("uid", ["0", "", "-1", "1 0", "١٢", "4294967295", "99999999999999999999"])
def test_no_user_in_sudo_uid(uid):
    assert privileges.invoker({"SUDO_UID": uid, "SUDO_GID": "1"}, 0) is None


def test_without_root_nothing_is_to_be_given_up():
    assert privileges.invoker(NOBODY, 1000) is None


@pytest.mark.parametrize("platform", ["sunos5", "freebsd14"])
def test_outside_linux_root_stays_root_under_sudo(platform, monkeypatch):
    assert privileges.invoker(NOBODY, 0, platform) is None
    monkeypatch.setattr(privileges.sys, "platform", platform)
    assert privileges.invoker(NOBODY, 0) is None


def test_a_system_without_linux_calls_loses_nothing_and_does_not_fail(monkeypatch):
    """Solaris has no setresuid, and not every libc an access by effective ids."""
    for name in ("setresuid", "setresgid", "getresuid", "getresgid"):
        monkeypatch.delattr(privileges.os, name)
    monkeypatch.setattr(privileges.os, "access", None)
    monkeypatch.setattr(privileges.os, "umask", lambda _mask: 0)
    monkeypatch.setattr(privileges.os, "geteuid", lambda: 0)
    monkeypatch.setattr(privileges.ctypes, "CDLL", lambda _name, **_how: object())
    user = privileges.invoker(NOBODY, 0, "sunos5")
    privileges.need_readable(user, (privileges.Path("/nowhere"),))
    privileges.drop_root(user)


def test_the_user_behind_sudo_comes_with_groups_and_home():
    user = privileges.invoker(NOBODY, 0)
    assert (user.uid, user.gid) == (65534, 65534)
    assert 65534 in user.groups
    assert user.home.startswith("/")


def test_a_uid_that_the_host_does_not_list_has_no_home():
    user = privileges.invoker({"SUDO_UID": "3999999999", "SUDO_GID": "3999999999"}, 0)
    assert (user.home, user.groups) == ("/", (3999999999,))


def test_home_and_xdg_become_the_users():
    environ = {"HOME": "/root", "XDG_STATE_HOME": "/root/.state", "XDG_CONFIG_HOME": "/home/ada/cfg", "TERM": "linux"}
    privileges.adopt_home(Invoker(1000, 1000, (1000,), "/home/ada", "ada"), environ)
    assert environ["HOME"] == "/home/ada"
    assert environ["USER"] == environ["LOGNAME"] == "ada"
    assert environ["XDG_CONFIG_HOME"] == "/home/ada/cfg"
    assert "XDG_STATE_HOME" not in environ


def test_without_sudo_the_environment_stays():
    environ = {"HOME": "/root"}
    privileges.adopt_home(None, environ)
    assert environ == {"HOME": "/root"}


@as_root
def test_settling_gives_root_up_for_good():
    code = """
import os
from latmon.support import privileges as p
p.drop_root(p.invoker(os.environ, os.geteuid()))
try:
    os.seteuid(0)
except PermissionError:
    print("gone", os.getresuid(), os.getresgid(), os.umask(0) == 0o077)
"""
    assert run(code, **NOBODY) == "gone (65534, 65534, 65534) (65534, 65534, 65534) True"


@as_root
def test_root_that_stays_root_gains_nothing_more():
    code = """
import os
from latmon.support import privileges as p
p.drop_root(p.invoker(os.environ, os.geteuid()))
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("NoNewPrivs")])
"""
    assert run(code, SUDO_UID="") == "['1']"


@as_root
@pytest.mark.parametrize("behind", [NOBODY, {"SUDO_UID": ""}])
def test_a_process_that_starts_no_probe_has_no_capability_and_gains_none(behind):
    code = """
import os, subprocess
from latmon.support import privileges as p
p.drop_all(p.invoker(os.environ, os.geteuid()))
sets = "NoNewPrivs", "CapEff", "CapPrm", "CapInh", "CapAmb"
print([int(line.split()[1], 16) for line in open("/proc/self/status") if line.startswith(sets)])
print(subprocess.run(["sh", "-c", "grep CapEff /proc/self/status"], capture_output=True, text=True).stdout.split()[1])
"""
    assert run(code, **behind).split("\n") == ["[0, 0, 0, 0, 1]", "0" * 16]


def test_a_plain_user_has_no_new_privileges_either():
    """Without a probe to start, nothing needs sudo."""
    code = "from latmon.support import privileges as p; p.drop_all(None); print(open('/proc/self/status').read())"
    assert "NoNewPrivs:\t1" in run(code)


@as_root
def test_acting_as_the_user_is_only_for_a_moment(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    code = f"""
import os
from latmon.support import privileges as p
groups = os.getgroups()
with p.acting_as(p.invoker(os.environ, os.geteuid())):
    try:
        open({str(secret)!r})
    except PermissionError:
        print("refused", end=" ")
print(open({str(secret)!r}).read(), os.getgroups() == groups)
"""
    assert run(code, **NOBODY) == "refused x True"


def test_acting_as_no_user_changes_nothing():
    before = os.getresuid()
    with privileges.acting_as(None):
        assert os.getresuid() == before
