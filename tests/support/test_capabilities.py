"""Capabilities of a probe tool in place of root: by this process, and by its children."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from latmon.support import privileges

BITS = {"CAP_BPF": 39, "CAP_PERFMON": 38, "CAP_DAC_READ_SEARCH": 2, "CAP_DAC_OVERRIDE": 1}
SYS_ADMIN = 1 << 21
ALL = sum(1 << bit for bit in BITS.values())


@pytest.fixture
def held(tmp_path):
    def made(effective=0, ambient=0):
        (tmp_path / "self").mkdir()
        (tmp_path / "self/status").write_text(f"CapEff:\t{effective:016x}\nCapAmb:\t{ambient:016x}\n")
        return tmp_path

    return made


@pytest.mark.parametrize("name", BITS)
def test_each_of_them_is_needed(held, name):
    assert privileges.missing(held(ALL & ~(1 << BITS[name]))) == {name}


def test_an_administrators_holds_two_of_them(held):
    assert privileges.missing(held(SYS_ADMIN)) == {"CAP_DAC_READ_SEARCH", "CAP_DAC_OVERRIDE"}


def test_a_child_inherits_the_ambient_ones_alone(held):
    proc = held(effective=ALL | SYS_ADMIN)
    assert privileges.missing(proc) == frozenset()
    assert privileges.missing_in_children(proc) == set(BITS)
    assert not privileges.can_mount_in_children(proc)


def test_where_nothing_is_known_all_are_missing(tmp_path):
    assert privileges.missing(tmp_path) == privileges.missing_in_children(tmp_path) == set(BITS)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="gives capabilities away: root, setpriv")
@pytest.mark.parametrize("ambient", [True, False])
def test_the_kernel_hands_them_on_as_we_say(ambient):
    names = "+dac_read_search,+dac_override"
    words = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps", names]
    code = "from latmon.support import privileges as c; print(sorted(c.missing() - {'CAP_BPF', 'CAP_PERFMON'}))"
    done = subprocess.run(
        [*words, *(["--ambient-caps", names] if ambient else []), sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    if "Permission denied" in done.stderr or "No module named" in done.stderr:
        pytest.skip("another user can't run this Python")
    assert done.stdout == ("[]\n" if ambient else "['CAP_DAC_OVERRIDE', 'CAP_DAC_READ_SEARCH']\n"), done.stderr
