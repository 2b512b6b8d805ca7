"""The root helper under `sudo latmon`: starts only named probes, and reads what only root can read of them.

It is started before root is given up, with a socket to the collector as its only input; it ends with that socket, so
it never outlives latmon. It takes four requests, one datagram each: names of latmon's manifests with checked
values, the counters of a child that it started, the devices that such a child traces, the counting of run times.
Nothing in a request is run or opened; a malformed one ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from latmon.manifest import Manifest, load_all
from latmon.support.errors import ManifestError, UntrustedError
from latmon.support.paths import data_dir
from latmon.support.trust import environment
from latmon_backends.bpftrace import program as bpftrace_program
from latmon_backends.bpftrace.program import BpftraceProgram
from latmon_backends.dtrace import program as dtrace_program
from latmon_backends.dtrace.program import DtraceProgram
from latmon_backends.probe import launcher
from latmon_backends.probe.launcher import (
    MAX_CHANGES,
    MAX_MASK,
    MAX_MESSAGE,
    AnyProgram,
    ProgramTotals,
    Script,
    totals,
    trusted,
)

MAX_CHILDREN = 4
"""Always-on and on demand, and each once more while its predecessor is being ended."""
MAX_SCRIPTS = 16
KEYS = (1024, 65_536)


OurTool = bpftrace_program.BpftraceTool | dtrace_program.DtraceTool
TOOLS: Mapping[str, type[OurTool]] = {
    bpftrace_program.BpftraceTool.name: bpftrace_program.BpftraceTool,
    dtrace_program.DtraceTool.name: dtrace_program.DtraceTool,
}


_START_KEYS = len(("keys", "joined", "scripts"))


class MalformedError(Exception):
    """Refusal of a request that latmon does not send."""


class Starter:
    """Answers requests; `children` are the running processes that it started."""

    def __init__(
        self, tool: OurTool, known: int, manifests: Mapping[str, Manifest], proc: Path = Path("/proc")
    ) -> None:
        """`known`: pid of the probe that latmon started as root. Manifests of other tools are left out."""
        self._tool, self._proc = tool, proc
        self._manifests = {name: manifest for name, manifest in manifests.items() if manifest.tool == tool.name}
        self._stats = -1
        self._readable = {known}
        self.children: dict[int, subprocess.Popen[bytes]] = {}

    def answer(self, request: object) -> tuple[dict[str, Any], tuple[int, ...]]:
        """Return the reply and the files sent with it, which the caller closes. MalformedError ends the helper."""
        if not isinstance(request, dict) or len(request) != 1:
            raise MalformedError
        ((kind, value),) = request.items()
        answers: Mapping[str, Callable[[Any], tuple[dict[str, Any], tuple[int, ...]]]] = {
            "start": self._start,
            "totals": self._totals,
            "stats": self._count,
            "trace": self._trace,
        }
        if kind not in answers:
            raise MalformedError
        return answers[kind](value)

    def _start(self, value: Any) -> tuple[dict[str, Any], tuple[int, ...]]:
        program = self._program(value)
        if len(self.children) >= MAX_CHILDREN:
            return {"error": f"{MAX_CHILDREN} probes run already"}, ()
        pipe = subprocess.PIPE
        try:
            child = subprocess.Popen(  # noqa: S603 - the tool that root chose, our own program
                self._tool.running(trusted(program)),
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=environment(os.environ),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            return {"error": error.strerror or "the shell can't be started"}, ()
        except UntrustedError as error:
            return {"error": str(error)}, ()
        self.children[child.pid] = child
        self._readable.add(child.pid)
        files = tuple(os.dup(end.fileno()) for end in (child.stdin, child.stdout, child.stderr) if end is not None)
        for end in (child.stdin, child.stdout, child.stderr):
            if end is not None:
                end.close()
        return {"pid": child.pid}, files

    def _program(self, value: Any) -> AnyProgram:
        """Return a program of latmon's own scripts, with values that their manifests allow."""
        match value:
            case {"keys": int(keys), "joined": bool(joined), "scripts": [*scripts]} if len(value) == _START_KEYS:
                pass
            case _:
                raise MalformedError
        if not KEYS[0] <= keys <= KEYS[1] or not 0 < len(scripts) <= MAX_SCRIPTS:
            raise MalformedError
        chosen = tuple(Script(*self._script(script)) for script in scripts)
        is_dtrace = isinstance(self._tool, dtrace_program.DtraceTool)
        program: AnyProgram = DtraceProgram(chosen) if is_dtrace else BpftraceProgram(chosen, keys, joined)
        try:
            program.text()
        except (ManifestError, OSError) as error:
            raise MalformedError from error
        return program

    def _script(self, value: Any) -> tuple[Manifest, dict[str, Any]]:
        match value:
            case [str(name), dict() as values] if name in self._manifests:
                return self._manifests[name], values
        raise MalformedError

    def _totals(self, pid: Any) -> tuple[dict[str, Any], tuple[int, ...]]:
        if isinstance(pid, bool) or not isinstance(pid, int):
            raise MalformedError
        # The caller may not know yet that a child has ended.
        program_totals = totals(pid, self._proc) if pid in self._readable else ProgramTotals()
        return {"totals": [program_totals.run_ns, program_totals.runs, program_totals.skipped]}, ()

    def _count(self, on: Any) -> tuple[dict[str, Any], tuple[int, ...]]:
        if not isinstance(on, bool):
            raise MalformedError
        if on and self._stats < 0:
            with contextlib.suppress(OSError):  # the kernel has no such counters: run times stay unknown
                self._stats = launcher.open_stats()
        if not on and self._stats >= 0:
            os.close(self._stats)
            self._stats = -1
        return {"stats": self._stats >= 0}, ()

    def _trace(self, value: Any) -> tuple[dict[str, Any], tuple[int, ...]]:
        match value:
            case [int(pid), [*changes]] if not isinstance(pid, bool) and len(changes) <= MAX_CHANGES:
                pass
            case _:
                raise MalformedError
        traced: dict[int, int] = {}
        for change in changes:
            match change:
                case [int(number), bool(on)] if not isinstance(number, bool) and 0 <= number < 1 << 32:
                    traced[number] = on
                case [launcher.SAMPLE, int(mask)] if not isinstance(mask, bool) and 0 <= mask <= MAX_MASK:
                    traced[launcher.SAMPLE] = mask
                case _:
                    raise MalformedError
        # Not of the process that latmon started as root: that has no such map, and its number may be another's by now.
        return {"traced": pid in self.children and launcher.trace_devices(pid, traced, self._proc)}, ()

    def ended(self, pid: int) -> dict[str, Any]:
        """Return the message about a child that ended; its pid may be another process's from now on."""
        status = self.children.pop(pid).wait()
        self._readable.discard(pid)
        return {"ended": pid, "status": status}


def serve(sock: socket.socket, starter: Starter) -> None:
    """Answer requests until the socket ends, or a malformed one comes."""
    with selectors.DefaultSelector() as selector, sock:
        selector.register(sock, selectors.EVENT_READ, None)
        while True:
            for key, _ in selector.select():
                if key.data is not None:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    sock.send(_encoded(starter.ended(key.data)))
                elif (request := _request(sock)) is None:
                    return
                else:
                    _reply(sock, starter, request, selector)


def _request(sock: socket.socket) -> object | None:
    """Return the next request, None at the end; a datagram that is truncated or no JSON is malformed."""
    data, _, flags, _ = sock.recvmsg(MAX_MESSAGE)
    if not data:
        return None
    if flags & socket.MSG_TRUNC:
        raise MalformedError
    try:
        request: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedError from error
    return request


def _reply(sock: socket.socket, starter: Starter, request: object, selector: selectors.BaseSelector) -> None:
    reply, files = starter.answer(request)
    if "pid" in reply:
        selector.register(os.pidfd_open(reply["pid"]), selectors.EVENT_READ, reply["pid"])
    socket.send_fds(sock, [_encoded(reply)], list(files))
    for file in files:
        os.close(file)


def _encoded(reply: Mapping[str, Any]) -> bytes:
    return json.dumps(reply, separators=(",", ":")).encode()


def main(arguments: list[str]) -> int:
    """Run the helper. The arguments `FD TOOL PID` come from latmon while it was root."""
    os.umask(0o077)
    fd, tool, known = arguments
    manifests = {manifest.name: manifest for manifest in load_all(data_dir("probes"))}
    name, fields = json.loads(tool)
    starter = Starter(TOOLS[name](**fields), int(known), manifests)
    with contextlib.suppress(MalformedError, BrokenPipeError, ConnectionResetError):
        serve(socket.socket(fileno=int(fd)), starter)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
