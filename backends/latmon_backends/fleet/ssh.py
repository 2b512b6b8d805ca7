"""The ssh client of one host: the words that start it, names of hosts, lines in and out, and why it ended.

The system's OpenSSH with the user's own configuration, keys and agent; it never asks for anything (BatchMode). Standard
input of the remote command is the lifeline: all that runs there ends when it closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
from collections import deque
from collections.abc import Sequence
from typing import Self

from latmon.support.errors import LatmonError, UsageError
from latmon.support.text import clean
from latmon_backends.probe.process import Child

MAX_HOSTS = 32
MAX_LABEL = 24
MAX_LINE = 16 * 1024 * 1024
"""Bytes of a line of a host; a window of 1,000 devices has 2 MB."""
_HOST = re.compile(r"(?:ssh://)?(?:[A-Za-z0-9_][A-Za-z0-9_.+-]*@)?[A-Za-z0-9_\[:][A-Za-z0-9_.:%\[\]-]*")
"""Letters, digits and signs of names and addresses: nothing that a shell or ssh's own expansions read as more."""
_ADDRESS = re.compile(r"[\d.]+|.*:.*")
_MAX_NAME = 255
_OPTIONS = (
    *("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"),
    *("RequestTTY=no", "RemoteCommand=none", "PermitLocalCommand=no", "ClearAllForwardings=yes"),
    *("ForwardAgent=no", "ForwardX11=no", "StdinNull=no", "ForkAfterAuthentication=no"),
)
_SHELL = "exec sh -s"
"""The user's login shell on the host may be any: each of them knows these words."""
_LEAVING_S = 1.5
_AGAIN_S = 0.5
_STDERR_LINES = 20
_PORTION = 1 << 16
_REMEDIES = {
    "Permission denied (": "ssh asks for no password here: set up a key or an agent, or connect first (ControlMaster)",
    "HOST IDENTIFICATION HAS CHANGED": "its key is not the known one: connect with ssh, and find out why first",
    "Host key verification failed": "connect once with ssh to check and keep its key",
}
"""A sign in a line of ssh -> what to do. The first that applies counts: a changed key also fails the verification."""


class HostError(LatmonError):
    """A host can't be measured, or no longer; the reason without the host's name."""


def checked_host(name: str) -> str:
    """Return a host's name as ssh takes it. Raises ValueError for what could be an option or more than a name."""
    if len(name) > _MAX_NAME or not _HOST.fullmatch(name):
        raise ValueError(
            f"{clean(name, 80)!r} is no host name of ssh, such as db-07, root@10.0.0.7 or ssh://db-07:2222"
        )
    return name


def labels(hosts: Sequence[str]) -> dict[str, str]:
    """Return host -> its name on the screen: without user, port and domain where that is unique.

    It has no colon, which separates it from a device's name: `fe80::1` is `fe80--1`.
    UsageError for a host that is named twice, or for too many.
    """
    if len(set(hosts)) < len(hosts):
        twice = next(one for one in hosts if hosts.count(one) > 1)
        raise UsageError(f"{twice} is named twice")
    if len(hosts) > MAX_HOSTS:
        raise UsageError(f"{len(hosts)} hosts are more than {MAX_HOSTS}: for those, run latmon exporter on them")
    for shorten in (_short, _without_user):
        short = {one: _without_colon(shorten(one))[-MAX_LABEL:].lstrip("-") for one in hosts}
        if len(set(short.values())) == len(hosts):
            return short
    return {one: f"{at}-{_without_colon(_short(one))}"[:MAX_LABEL] for at, one in enumerate(hosts, 1)}


def _without_colon(name: str) -> str:
    name = name.translate({ord("["): None, ord("]"): None})
    return ("0" + name if name.startswith(":") else name).replace(":", "-")


def _without_user(host: str) -> str:
    return host.removeprefix("ssh://").rpartition("@")[2]


def _short(host: str) -> str:
    name = _without_user(host)
    if host.startswith("ssh://"):
        name = re.sub(r":\d+$", "", name)
    return name if _ADDRESS.fullmatch(name) else name.partition(".")[0] or name


def _words(host: str, client: Sequence[str]) -> list[str]:
    """Return the command line of ssh; `client`: its first words."""
    return [*client, "-T", *(word for one in _OPTIONS for word in ("-o", one)), "--", host, _SHELL]


async def start_there(host: str, client: Sequence[str], words: Sequence[str]) -> Child:
    """Start a probe's words on the host, over a connection of its own. OSError where ssh can't be started."""
    script = f"exec {shlex.join(words)}\n".encode()
    return await Child.start(_words(host, client), script=script, environ=os.environ)


class Connection:
    """A running ssh client with `sh -s` on the host."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._complaints: deque[str] = deque(maxlen=_STDERR_LINES)
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def open(cls, host: str, client: Sequence[str]) -> Self:
        """Start the client. `client`: the words of ssh. HostError where there is none."""
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *_words(host, client), stdin=pipe, stdout=pipe, stderr=pipe, limit=MAX_LINE
            )
        except FileNotFoundError:
            raise HostError("there is no ssh here: install OpenSSH's client") from None
        except OSError as error:
            raise HostError(f"ssh can't be started: {error.strerror}") from error
        return cls(process)

    def send(self, data: bytes) -> None:
        """Send bytes to the remote shell, or to what it runs."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(data)

    async def line(self, within_s: float) -> bytes:
        """Return the next line without its end. HostError at the end, or where none comes in time."""
        try:
            try:
                line = await self._line(within_s)
            except TimeoutError:  # also where this process was stopped meanwhile, and has not read what came
                line = await self._line(_AGAIN_S)
        except TimeoutError:
            raise HostError(f"it does not answer: nothing came for {within_s:.0f} s") from None
        except ValueError:
            raise HostError("it sends lines without an end") from None
        if not line.endswith(b"\n"):
            raise HostError(await self._why())
        return line[:-1]

    async def _line(self, within_s: float) -> bytes:
        stdout = self._process.stdout
        async with asyncio.timeout(within_s):
            return b"" if stdout is None else await stdout.readline()

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until the client has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()

    async def close(self) -> None:
        """Close the remote side's standard input, which ends it; kill the client if that takes too long."""
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(_LEAVING_S):
                await process.wait()
        except TimeoutError:
            self._kill()
            await process.wait()
        except asyncio.CancelledError:
            self._kill()
            raise
        finally:
            self._listening.cancel()
            process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - Process has no close of its own
            await asyncio.wait({self._listening})

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def _why(self) -> str:
        """Return why the connection ended: the last line that ssh or the remote command printed, and a remedy."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _LEAVING_S)
            await asyncio.wait_for(asyncio.shield(self._listening), _LEAVING_S)
        why = self._complaints[-1] if self._complaints else "the connection was closed"
        remedy = next((text for sign, text in _REMEDIES.items() if any(sign in one for one in self._complaints)), "")
        return f"{why.rstrip('.')}: {remedy}" if remedy else why

    async def _listen(self) -> None:
        stderr = self._process.stderr
        rest = b""
        while stderr is not None and (portion := await stderr.read(_PORTION)):
            *lines, rest = (rest + portion).split(b"\n")
            self._complaints += [_complaint(line) for line in lines if line.strip()]
            rest = rest[-_PORTION:]
        if rest.strip():
            self._complaints.append(_complaint(rest))


def _complaint(line: bytes) -> str:
    return clean(line.strip().removeprefix(b"ssh: "), 200)
