"""The limit of memory, in this process."""

from __future__ import annotations

import resource
import sys

import pytest

from latmon.support import memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts all private memory on Linux alone")
MIB = 1 << 20


@pytest.fixture
def limits():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    yield before
    resource.setrlimit(resource.RLIMIT_DATA, before)


def test_more_memory_than_allowed_is_an_error_and_less_is_not(limits):
    with memory.limited(256 * MIB):
        assert len(bytes(64 * MIB)) == 64 * MIB
        with pytest.raises(MemoryError):
            bytes(512 * MIB)
    assert resource.getrlimit(resource.RLIMIT_DATA) == limits
    assert len(bytes(512 * MIB)) == 512 * MIB


def test_a_process_that_has_more_already_gets_some(tmp_path, limits):
    statm = tmp_path / "statm"
    pages = 1024 * MIB // resource.getpagesize()
    statm.write_text(f"{2 * pages} {pages} 0 0 0 {pages} 0\n")
    with memory.limited(256 * MIB, statm):
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] == 1024 * MIB + 120 * MIB
    with memory.limited(256 * MIB, tmp_path / "a system without it"):
        assert resource.getrlimit(resource.RLIMIT_DATA) == limits
    assert resource.getrlimit(resource.RLIMIT_DATA) == limits


def test_a_lower_limit_of_the_user_stays(limits):
    resource.setrlimit(resource.RLIMIT_DATA, (1024 * MIB, limits[1]))
    with memory.limited(1 << 40) as is_ours:
        assert not is_ours
        memory.require_room()
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] == 1024 * MIB
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] == 1024 * MIB


def test_more_than_the_kernel_can_limit_is_no_limit(limits):
    with memory.limited(10**25):
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] in (sys.maxsize, resource.RLIM_INFINITY, limits[0])
