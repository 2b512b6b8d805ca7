"""Names of the statuses with which I/Os fail."""

import errno
import os

import pytest

from latmon.model.measurements.errors import ERRNO_CODE, in_words, status_name

STATUSES = {
    "EOPNOTSUPP": 1,
    "ETIMEDOUT": 2,
    "ENOSPC": 3,
    "ENOLINK": 4,
    "EREMOTEIO": 5,
    "EBADE": 6,
    "ENODATA": 7,
    "EILSEQ": 8,
    "ENOMEM": 9,
    "EIO": 10,
    "EREMCHG": 11,
    "EAGAIN": 12,
    "EBUSY": 13,
}
"""blk_errors of block/blk-core.c: errno -> blk_status_t."""


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="errnos are Linux's")
@pytest.mark.parametrize("name", [name for name in STATUSES if hasattr(errno, name)])
def test_a_status_and_its_errno_have_the_same_name(name):
    by_errno = status_name(ERRNO_CODE + getattr(errno, name))
    assert status_name(STATUSES[name]) == by_errno
    assert not by_errno.startswith("errno")


def test_a_number_without_a_name_is_said():
    assert [status_name(code) for code in (17, ERRNO_CODE + 71)] == ["status 17", "errno 71"]


def test_several_statuses_have_their_ios_the_most_frequent_one_first():
    assert in_words({"time-out": 2}) == "time-out"
    assert in_words({"time-out": 2, "I/O error": 1_200}) == "I/O error 1,200, time-out 2"
