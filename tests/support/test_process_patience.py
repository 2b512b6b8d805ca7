"""Calls that hang: the wait is reported, and Ctrl-C ends it."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import threading
import time

import pytest

from latmon.capture import collector as module
from latmon.capture.collector import Capture
from latmon.capture.registry import Request
from latmon.support.errors import UnavailableError
from latmon.support.process import bounded_output, call_with_deadline


@pytest.fixture
def hangs():
    """A call that takes until the test is over."""
    over = threading.Event()
    yield over.wait
    over.set()


async def test_what_answers_is_given_and_nothing_is_reported():
    sentences = []
    assert await call_with_deadline(lambda: 7, "a disk", sentences.append) == 7
    with pytest.raises(ZeroDivisionError):
        await call_with_deadline(lambda: 1 // 0, "a disk", sentences.append)
    assert sentences == []


async def test_what_hangs_is_named_and_given_up(hangs):
    sentences = []
    with pytest.raises(UnavailableError, match=r"^the disk did not answer within 200ms$"):
        await call_with_deadline(hangs, "the disk", sentences.append, (0.05, 0.2))
    assert sentences == ["waiting for the disk"]


class Sink:
    def opened(self, _origin):
        raise AssertionError

    offer = opened


async def test_a_file_system_that_hangs_keeps_no_stop_waiting(hangs, monkeypatch, tmp_path):
    monkeypatch.setattr(module.target, "refuse", lambda _path: hangs())
    monkeypatch.setattr(module.privileges, "invoker", lambda *_: None)
    sentences = []
    capture = Capture(Request(record=tmp_path / "x"), Sink(), ahead=sentences.append)
    asyncio.get_running_loop().call_later(1.2, capture.stop, "ended by Ctrl-C")
    async with asyncio.timeout(30):
        assert (await capture.run()).reason == "ended by Ctrl-C"
    assert sentences == [f"waiting for the file system of {tmp_path / 'x'}"]


async def test_what_is_odd_about_the_place_is_reported_ahead(monkeypatch, tmp_path):
    class Opener:
        async def __aenter__(self):
            assert sentences == ["it lies on vda"]
            raise UnavailableError("no probe")

        async def __aexit__(self, *_):
            pass

    sentences = []
    monkeypatch.setattr(module.target, "remarks", lambda *_: "it lies on vda")
    capture = Capture(Request(record=tmp_path / "x"), Sink(), lambda _: Opener(), ahead=sentences.append)
    with pytest.raises(UnavailableError, match="no probe"):
        await capture.run()


def test_a_command_without_an_end_is_read_to_a_limit_and_killed():
    code, printed = bounded_output(["yes"], 30, {}, most=100_000)
    assert (code, len(printed)) == (-9, 100_000)


def test_a_command_that_hangs_is_killed_in_time():
    began = time.monotonic()
    for words in (["sleep", "60"], ["sh", "-c", "exec >&-; exec sleep 60"]):
        with pytest.raises(subprocess.TimeoutExpired):
            bounded_output(words, 0.2, {}, stderr=subprocess.DEVNULL)
    assert time.monotonic() - began < 30


def test_a_command_s_output_and_code_come_through():
    script = "echo one; echo two >&2; exit 3"
    assert bounded_output(["sh", "-c", script], 30, {}) == (3, b"one\ntwo\n")
    assert bounded_output(["sh", "-c", script], 30, {}, stderr=subprocess.DEVNULL) == (3, b"one\n")
    with pytest.raises(FileNotFoundError):
        bounded_output(["/nonexistent/tool"], 30, {})


def test_a_command_is_read_where_many_files_are_open():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] < 2_048:
        pytest.skip("no more than 2,047 files can be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2_048, limits[1]))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        assert bounded_output(["echo", "one"], 30, {}) == (0, b"one\n")
    finally:
        for one in opened:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
