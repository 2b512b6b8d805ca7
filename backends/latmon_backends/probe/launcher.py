"""Launchers of probe processes: directly, or through the root helper under `sudo latmon`; scripts with their values.

The root helper's children are root's: their ends come as messages, and their pipes are ours.

A launcher also reads the BPF statistics of a tool's programs from fdinfo. Run time is counted while a file of
`open_stats` is open, in any process; the sysctl kernel.bpf_stats_enabled is not changed. That needs CAP_SYS_ADMIN. A
`tracepoint:` or `kprobe:` program doesn't run while it interrupts another on its CPU (bpf_prog_active): counted as
recursion_misses since 6.7. Only root can read the counters; they are None, never 0, where they can't be read or the
kernel doesn't count.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import itertools
import json
import os
import platform
import socket
import struct
import subprocess
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from latmon.manifest import Manifest
from latmon.support import host, imports, privileges, trust
from latmon.support.errors import UnavailableError
from latmon.support.paths import text
from latmon.support.process import descendants, module_path, widen
from latmon_backends.probe.process import LOOK_S, Child, Silence

Values = Mapping[str, int | str]
Start = Callable[[Sequence[str]], Awaitable[Child]]
"""Starts words as a process; OSError where that is impossible."""
MAX_MESSAGE = 16 * 1024
"""Bytes of a request or an answer."""
MAX_CHANGES = 512
"""Devices in one request: their numbers fit into a message."""
_ANSWER_S = 5.0
"""Silence after which an answer is given up."""
_PIPES = 3
_GONE = 255
STARTER = (*imports.CHECKED, "latmon_backends.root_helper")
TRACED = "traced"
"""A bpftrace program's map of traced devices: dev_t -> since when (CLOCK_BOOTTIME, ns) or 0, written while it runs."""
ALL_DEVICES = 0
"""Key of that map for all devices."""
SAMPLE = (1 << 32) + 1
"""Key of that map for the sample (`sampled()` in latmon/manifest.py): no device has this number."""
MAX_MASK = 1023
_KIND = {"map_type": "1", "key_size": "8", "value_size": "8"}
"""A hash of integers, as fdinfo has it."""
_RUN_TIME = 0
_SYSCALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_ATTRIBUTES = 128


class AnyTool(Protocol):
    """bpftrace or DTrace: a frozen dataclass of the words that start it."""

    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def running(self, program: AnyProgram) -> list[str]:
        """Return the words that run a program behind the shim."""
        ...


@dataclass(frozen=True, slots=True)
class Script:
    """A manifest's script with the values of its parameters."""

    manifest: Manifest
    values: Values

    @classmethod
    def fitted(cls, manifest: Manifest, values: Values) -> Self:
        """Return the script with those of the values that it takes."""
        taken = {parameter.name for parameter in manifest.parameters}
        return cls(manifest, {name: value for name, value in values.items() if name in taken})

    @property
    def name(self) -> str:
        return self.manifest.name

    def text(self) -> str:
        return self.manifest.program(self.values)


class AnyProgram(Protocol):
    """Scripts put together for one of the tools."""

    @property
    def scripts(self) -> Sequence[Script]: ...

    @property
    def map_keys(self) -> int:
        """How many keys each map may have."""
        ...

    @property
    def joined(self) -> bool:
        """Whether several scripts on a hook are one program of the kernel, where the tool can."""
        ...

    def text(self) -> str: ...


def trusted(program: AnyProgram) -> AnyProgram:
    """Return the program. UntrustedError where this process is root and others can change one of its scripts."""
    if os.geteuid() == 0:
        for manifest in (script.manifest for script in program.scripts):
            for file in manifest.files:
                trust.require_script(file)
    return program


class Launcher(Protocol):
    """Starter of probes. A child is not ready yet when it is returned."""

    async def launch(self, program: AnyProgram) -> Child:
        """Start a program; OSError when not even a shell can be started."""
        ...

    async def totals(self, pid: int) -> ProgramTotals:
        """Return the counters of a child's BPF programs; unknown without the right to read them."""
        ...

    async def count_time(self, *, on: bool) -> bool:
        """Switch the kernel's counting of run times; return whether it counts."""
        ...

    @property
    def writes_maps(self) -> bool:
        """Whether `trace_devices` may write at all, as far as that is known before a program is compiled for it."""
        ...

    async def trace_devices(self, pid: int, traced: Mapping[int, int]) -> bool:
        """Have a child's program trace these devices (dev_t) or no longer; return whether it could be written.

        The value of SAMPLE is the sample: one I/O in value + 1, a power of two.
        """
        ...

    async def close(self) -> None: ...


class Direct:
    """Launcher with the rights of this process, or with `sudo -n` for the tool alone."""

    def __init__(self, tool: AnyTool, proc: Path = Path("/proc"), start: Start = Child.start) -> None:
        self.tool, self._proc, self._start = tool, proc, start
        self._stats = -1

    async def launch(self, program: AnyProgram) -> Child:
        return await self._start(self.tool.running(trusted(program)))

    async def totals(self, pid: int) -> ProgramTotals:
        return totals(pid, self._proc)

    async def count_time(self, *, on: bool) -> bool:
        if on and self._stats < 0:
            try:
                self._stats = open_stats()
            except OSError:  # no privilege, no such kernel: then it isn't measured
                return False
        if not on and self._stats >= 0:
            os.close(self._stats)
            self._stats = -1
        return on

    @property
    def writes_maps(self) -> bool:
        return may_open_maps()

    async def trace_devices(self, pid: int, traced: Mapping[int, int]) -> bool:
        return trace_devices(pid, traced, self._proc)

    async def close(self) -> None:
        await self.count_time(on=False)


def needed() -> bool:
    """Return whether latmon is root now and gives root up later."""
    return privileges.invoker(os.environ, os.geteuid()) is not None


class RootLauncher:
    """Launcher through the root helper, made while latmon is root.

    Once the helper is gone a launch fails with an OSError, and counters are unknown.
    """

    def __init__(self, tool: AnyTool, known: int, command: tuple[str, ...] = STARTER) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._writes_maps = may_open_maps()  # now, with the rights that the helper keeps
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [*command, str(theirs.fileno()), json.dumps([tool.name, asdict(tool)]), str(known)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**trust.environment(os.environ), "PYTHONPATH": module_path()},
            )
        ours.setblocking(False)
        self._socket = ours
        self._waiting: deque[asyncio.Future[tuple[dict[str, Any], list[int]]]] = deque()
        self._ends: dict[int, asyncio.Future[int]] = {}
        self._gone = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(ours, self._readable)

    async def launch(self, program: AnyProgram) -> Child:
        scripts = [[script.manifest.name, dict(script.values)] for script in program.scripts]
        wanted = {"keys": program.map_keys, "joined": program.joined, "scripts": scripts}
        reply, files = await self._ask({"start": wanted})
        if "pid" not in reply or len(files) != _PIPES:
            for file in files:
                os.close(file)
            raise OSError(errno.EPIPE, str(reply.get("error", "the root helper has ended")))
        return Child(await _Remote.connected(reply["pid"], files, self._end_of(reply["pid"])))

    async def totals(self, pid: int) -> ProgramTotals:
        reply, _ = await self._ask({"totals": pid})
        return ProgramTotals(*reply["totals"]) if "totals" in reply else ProgramTotals()

    async def count_time(self, *, on: bool) -> bool:
        reply, _ = await self._ask({"stats": on})
        return bool(reply.get("stats", False))

    @property
    def writes_maps(self) -> bool:
        return self._writes_maps

    async def trace_devices(self, pid: int, traced: Mapping[int, int]) -> bool:
        changes, done = [[number, on] for number, on in traced.items()], True
        for at in range(0, len(changes), MAX_CHANGES):
            reply, _ = await self._ask({"trace": [pid, changes[at : at + MAX_CHANGES]]})
            done = done and bool(reply.get("traced", False))
        return done

    async def close(self) -> None:
        """End the helper, which ends with its socket."""
        self._hang_up()
        await asyncio.to_thread(self._process.wait)

    async def _ask(self, request: object) -> tuple[dict[str, Any], list[int]]:
        """Send a request and return its reply and files; empty where the helper is gone."""
        if self._gone:
            return {}, []
        answer: asyncio.Future[tuple[dict[str, Any], list[int]]] = self._loop.create_future()
        self._waiting.append(answer)
        try:
            self._socket.send(json.dumps(request, separators=(",", ":")).encode())
        except OSError:
            self._hang_up()
        try:
            silence = Silence()
            while silence.look() < _ANSWER_S:
                await asyncio.wait({answer}, timeout=LOOK_S)
                if answer.done():
                    return answer.result()
        finally:
            answer.cancel()
        self._hang_up()
        return {}, []

    def _readable(self) -> None:
        try:
            data, files, _, _ = socket.recv_fds(self._socket, MAX_MESSAGE, _PIPES, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            data, files = b"", []
        if not data:
            self._hang_up()
            return
        reply = json.loads(data)
        if "pid" in reply:  # a number that an earlier child had is a new process now
            self._ends[reply["pid"]] = self._loop.create_future()
        if "ended" in reply:
            _settle(self._end_of(reply["ended"]), _shell_status(reply["status"]))
        elif self._waiting and not (answer := self._waiting.popleft()).done():
            answer.set_result((reply, files))
        else:
            for file in files:
                os.close(file)

    def _end_of(self, pid: int) -> asyncio.Future[int]:
        return self._ends.setdefault(pid, self._loop.create_future())

    def _hang_up(self) -> None:
        if self._gone:
            return
        self._gone = True
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for answer in self._waiting:
            if not answer.done():
                answer.set_result(({}, []))
        for end in self._ends.values():
            _settle(end, _GONE)


class _Remote:
    """A process that the root helper started; a ProcessHandle."""

    def __init__(self, pid: int, stdin: int, end: asyncio.Future[int]) -> None:
        self.pid, self._stdin, self._end = pid, stdin, end
        self.stdout = asyncio.StreamReader()
        self.stderr = asyncio.StreamReader()
        self._transports: list[asyncio.ReadTransport] = []

    @classmethod
    async def connected(cls, pid: int, files: list[int], end: asyncio.Future[int]) -> _Remote:
        stdin, *outputs = files
        remote = cls(pid, stdin, end)
        loop = asyncio.get_running_loop()
        widen(outputs[0])
        for file, reader in zip(outputs, (remote.stdout, remote.stderr), strict=True):
            pipe = os.fdopen(file, "rb", buffering=0)
            transport, _ = await loop.connect_read_pipe(lambda to=reader: asyncio.StreamReaderProtocol(to), pipe)  # type: ignore[misc]  # a lambda's default has no type
            remote._transports.append(transport)
        return remote

    async def wait(self) -> int:
        return await asyncio.shield(self._end)

    def ask(self) -> None:
        if self._stdin >= 0:
            with contextlib.suppress(OSError):  # it is gone
                os.write(self._stdin, b"\n")

    def hang_up(self) -> None:
        stdin, self._stdin = self._stdin, -1
        if stdin >= 0:
            os.close(stdin)

    def close(self) -> None:
        self.hang_up()
        for transport in self._transports:
            transport.close()


def _settle(future: asyncio.Future[int], status: int) -> None:
    if not future.done():
        future.set_result(status)


def _shell_status(status: int) -> int:
    return status if status >= 0 else 128 - status


@dataclass(frozen=True, slots=True)
class ProgramTotals:
    """Sums over all programs of a process and its descendants, since they were loaded."""

    run_ns: int | None = None
    runs: int | None = None
    skipped: int | None = None


def totals(pid: int, proc: Path = Path("/proc")) -> ProgramTotals:
    """Return the sums, each program once: several processes and files may have it open."""
    totals: dict[str, dict[str, str]] = {}
    for descendant in (pid, *descendants(pid, proc)):
        for info in _fdinfo(descendant, proc):
            fields = dict(line.split(":\t", 1) for line in info.splitlines() if ":\t" in line)
            if "prog_id" in fields and "prog_type" in fields:
                totals[fields["prog_id"]] = fields
    values = tuple(totals.values())
    return ProgramTotals(_sum(values, "run_time_ns"), _sum(values, "run_cnt"), _sum(values, "recursion_misses"))


@contextlib.contextmanager
def counted_time() -> Iterator[None]:
    """Have run times counted while this is open. UnavailableError without the privilege or kernel support."""
    try:
        file = open_stats()
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnavailableError(f"the kernel does not count the run time of probes here: {reason}") from error
    try:
        yield
    finally:
        os.close(file)


class Skipped:
    """Differences of the number of skipped runs."""

    def __init__(self) -> None:
        self._before: int | None = None

    def since_last(self, now: int | None) -> int | None:
        """Return the runs skipped since the last call; None at the first one, where not known, and after a fall."""
        before, self._before = self._before, now
        return None if now is None or before is None or now < before else now - before


def _sum(programs: tuple[dict[str, str], ...], name: str) -> int | None:
    numbers = [int(fields[name]) for fields in programs if fields.get(name, "").isdigit()]
    return sum(numbers) if numbers else None


def _fdinfo(pid: int, proc: Path) -> Iterator[str]:
    try:
        files = list((proc / str(pid) / "fdinfo").iterdir())
    except OSError:  # not ours to read, or gone
        return
    yield from (text(file) for file in files)


def may_open_maps() -> bool:
    """Return whether this process may open maps by their numbers, which takes CAP_SYS_ADMIN."""
    try:
        _bpf(_NEXT_MAP, struct.pack("=III", 0, 0, 0))
    except OSError as error:
        return error.errno == errno.ENOENT  # there is none yet
    return True


def trace_devices(pid: int, traced: Mapping[int, int], proc: Path = Path("/proc")) -> bool:
    """Write which devices the program of a process or a descendant traces, or which sample; return whether it could.

    An entry is never removed, because bpftrace up to 0.18 can't clear a map that loses keys meanwhile.
    """
    try:
        with contextlib.ExitStack() as opened:
            maps = [opened.enter_context(_opened(number)) for number in _integer_maps(pid, proc)]
            filters = [map_id for map_id in maps if _map_name(map_id) == f"AT_{TRACED}"]
            now_ns = host.boottime_ns() if any(traced.values()) else 0
            for map_id, (device, on) in itertools.product(filters, traced.items()):
                entry = on if device == SAMPLE else now_ns if on else 0
                key, value = (ctypes.c_uint64(number) for number in (device, entry))
                attributes = struct.pack("=IIQQQ", map_id, 0, ctypes.addressof(key), ctypes.addressof(value), 0)
                _bpf(_UPDATE, attributes)
    except OSError:  # no privilege, or the process has ended
        return False
    return bool(filters)


def _integer_maps(pid: int, proc: Path) -> set[int]:
    """Return the numbers of a process's maps that could be the one of traced devices."""
    integer_maps = set()
    for descendant in (pid, *descendants(pid, proc)):
        for info in _fdinfo(descendant, proc):
            fields = dict(line.split(":\t", 1) for line in info.splitlines() if ":\t" in line)
            if _KIND.items() <= fields.items() and fields.get("map_id", "").isdigit():
                integer_maps.add(int(fields["map_id"]))
    return integer_maps


@contextlib.contextmanager
def _opened(number: int) -> Iterator[int]:
    """Open a map by its number."""
    fd = _bpf(_MAP_BY_ID, struct.pack("=I", number))
    try:
        yield fd
    finally:
        os.close(fd)


def _map_name(fd: int) -> str:
    """Return a map's name: the kernel keeps 15 characters."""
    info = ctypes.create_string_buffer(_INFO_BYTES)
    _bpf(_INFO, struct.pack("=IIQ", fd, _INFO_BYTES, ctypes.addressof(info)))
    return info.raw[_NAME_AT].rstrip(b"\0").decode("ascii", "replace")


_UPDATE, _NEXT_MAP, _MAP_BY_ID, _INFO, _ENABLE_STATS = 2, 12, 14, 15, 32
_INFO_BYTES, _NAME_AT = 64, slice(24, 40)
"""struct bpf_map_info: six words, then the name."""


def open_stats() -> int:
    """Open a file that has run times counted until it is closed. OSError without the privilege or kernel support."""
    fd = _bpf(_ENABLE_STATS, _RUN_TIME.to_bytes(4, "little"))
    os.set_inheritable(fd, False)  # else every program that we start would count on
    return fd


def _bpf(command: int, attributes: bytes) -> int:
    """Call bpf(2); OSError where it fails."""
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(f"bpf(2) has no known number on {platform.machine()}")
    buffer = ctypes.create_string_buffer(attributes, _ATTRIBUTES)
    result = int(ctypes.CDLL(None, use_errno=True).syscall(number, command, buffer, _ATTRIBUTES))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
