"""The probe process behind a shim that ends it with latmon; the start of a probe; bounded queries of a tool.

The only module that touches a probe process. The shim ends the tool when its standard input closes, so a collector that
dies by SIGKILL leaves no orphan. This works through plain start, setsid, sudo and ssh (measured), where
PR_SET_PDEATHSIG and process groups don't. It knows neither the tool nor what it prints after the ready line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from latmon.support.errors import UnavailableError
from latmon.support.process import in_own_mounts, prioritise, widen
from latmon.support.text import clean
from latmon.support.trust import environment
from latmon_backends.probe.events import Event, Printed, UndecodedLine

# The tool gets SIGTERM when file 3, our end of its standard input, closes. If detaching takes it too long, it gets
# SIGALRM, whose status shows that the shim ended it, and SIGKILL. SIGCONT, because a stopped process takes no SIGALRM;
# a moment before SIGKILL, which would overtake a SIGALRM that the tool blocks just then (dash does while it forks).
# A line there asks it to end and gives it the time that it takes. An abort must not leave a core behind. What waits
# must not keep the tool's output open, or its end is seen late; `read`, not `cat`, because no process is left over when
# the tool ends first. A process beside it is looked for each 5 s.
_SHIM = (
    "ulimit -c 0; exec 3<&0; "
    '"$@" </dev/null 3<&- & p=$!; c=; '
    "for w in {ends}; do "
    "(case $w in input) while read -r _; do kill -TERM $p; done <&3 ;; *) while kill -0 $w; do sleep 5; done ;; esac; "
    "kill -TERM $p; sleep {grace_s}; "
    "kill -CONT $p; kill -ALRM $p; sleep 0.1; kill -KILL $p) >/dev/null 2>&1 & "
    'c="$c $!"; done; '
    "wait $p; r=$?; kill $c 2>/dev/null; {after}exit $r"
)
GRACE_S = 1.4
"""bpftrace takes 0.7 to 1.3 s to detach."""
_MOUNT_TRACEFS = 'mount -t tracefs tracefs /sys/kernel/tracing && exec "$@"'
_MOUNT_DEBUGFS = 'mount -t debugfs debugfs /sys/kernel/debug && exec "$@"'
_STDERR_LINES = 60
_MOST_NEW_COMPLAINTS = 4096
"""A line of drops for each CPU, many times over."""
_PORTION = 1 << 16
_NICE = -10
HURRY = -5
"""Nice value of a probe while it compiles: three times the share of others, for half a second of CPU."""
_KILL_AFTER_S, _KILLED_S = 1.7, 10.0
"""From the hang-up to SIGKILL; from that to the end where a descendant keeps the output open."""
_MAX_NOISE, _MAX_NOISE_BYTES = 200, 1 << 24
"""Lines and bytes before the ready line that a tool, or a login shell on the way to it, may print and that can't be
decoded; a line without an end is bytes alone."""
LOOK_S = 1.0
"""A reader waits at most so long at once; one look counts at most this silence."""


def shimmed(
    command: Sequence[str],
    variables: Mapping[str, str],
    *,
    sudo: bool,
    mount_tracefs: bool = False,
    mount_debugfs: bool = False,
    grace_s: float = GRACE_S,
    beside: str = "",
    after: str = "",
) -> list[str]:
    """Return the words that run `command` behind the shim. `after`: shell commands for when the tool, `$p`, is gone.

    `beside`: number of a process on the tool's host whose end also ends the tool.

    `sudo` asks for root without ever prompting. `mount_tracefs` and `mount_debugfs` give the tool that file system in a
    mount namespace of its own, so that nothing stays mounted on the host.
    """
    words = list(command)
    for wanted, mount in ((mount_tracefs, _MOUNT_TRACEFS), (mount_debugfs, _MOUNT_DEBUGFS)):
        if wanted:
            words = [*in_own_mounts(mount, "/sys"), "sh", *words]
    words = ["env", *(f"{name}={value}" for name, value in variables.items()), *words]
    shim = _SHIM.format(ends=f"input {beside}".rstrip(), grace_s=grace_s, after=after)
    return [*(["sudo", "-n"] if sudo else []), "sh", "-c", shim, "latmon-probe", *words]


def is_mounted(kind: str, proc: Path) -> bool:
    """Return whether a file system of this kind is mounted; True where that is not known: the tool will report it."""
    try:
        mounts = (proc / "self/mounts").read_text("utf-8", "replace")
    except OSError:
        return True
    return any(line.split()[2:3] == [kind] for line in mounts.splitlines())


class ProcessHandle(Protocol):
    """A started process: its pipes, its end. This process or the root helper started it."""

    @property
    def pid(self) -> int: ...

    @property
    def stdout(self) -> asyncio.StreamReader | None: ...

    @property
    def stderr(self) -> asyncio.StreamReader | None: ...

    async def wait(self) -> int:
        """Return the status as a shell reports it."""
        ...

    def ask(self) -> None:
        """Write a line on its standard input."""
        ...

    def hang_up(self) -> None:
        """Close its standard input."""
        ...

    def close(self) -> None:
        """Close our ends of the pipes, even where a descendant has the others open."""
        ...


class _Own:
    """A process that this one started."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid, self.stdout, self.stderr = process.pid, process.stdout, process.stderr
        pipe = process._transport.get_pipe_transport(1).get_extra_info("pipe")  # type: ignore[attr-defined]  # noqa: SLF001 - as in `close`
        if not pipe.closed:  # a tool that ended at once
            widen(pipe.fileno())

    async def wait(self) -> int:
        return await self._process.wait()

    def ask(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(b"\n")

    def hang_up(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    def close(self) -> None:
        with contextlib.suppress(PermissionError):  # it kills a running process, which isn't allowed behind sudo
            self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - Process has no close of its own


class Child:
    """A running tool. `read` gives its output in portions, b"" at the end; `complaints` are stderr's last lines."""

    def __init__(self, process: ProcessHandle) -> None:
        self._process = process
        self._reading = asyncio.Lock()
        self._ahead: asyncio.Future[bytes] | None = None
        """A portion that was asked for and that no `read` has returned yet."""
        self._complaints: deque[str] = deque(maxlen=_STDERR_LINES)
        self._new_complaints: deque[str] = deque(maxlen=_MOST_NEW_COMPLAINTS)
        self._listening = asyncio.create_task(self._listen())
        self._kill_at: float | None = None
        self._killed = False

    @classmethod
    async def start(
        cls, words: Sequence[str], *, script: bytes = b"", environ: Mapping[str, str] | None = None
    ) -> Child:
        """Start the tool, out of reach of the terminal's Ctrl-C. OSError when not even the shell can be started.

        It gets a session of its own; sudo a process group only, because its ticket belongs to the terminal and
        can't be found from another session. `script`: the begin of its standard input. `environ`: its variables, other
        than those of a program that may run as root.
        """
        apart: dict[str, Any] = {"process_group": 0} if words[0] == "sudo" else {"start_new_session": True}
        pipe = asyncio.subprocess.PIPE
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *words,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=environment(os.environ) if environ is None else environ,
                cwd="/",  # a tool that takes a file's name for an argument must find none of the user's
                **apart,
            )
        )
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Cancelled itself it would never end: it waits for pipes that were never connected (CPython 3.11).
            await cls(_Own(await starting)).stop()
            raise
        if process.stdin is not None and script:
            process.stdin.write(script)
        return cls(_Own(process))

    @property
    def pid(self) -> int:
        """The shim's; the tool is below it."""
        return self._process.pid

    def prefer(self, nice: int = _NICE) -> None:
        """Raise its priority, where that is allowed: its output comes in time on a busy host.

        It isn't allowed behind `sudo -n`: there frames may be late, and are marked so.
        """
        prioritise(self.pid, nice)

    async def read(self) -> bytes:
        ahead, self._ahead = self._ahead, None
        try:
            return await (self._portion() if ahead is None else asyncio.shield(ahead))
        except asyncio.CancelledError:
            self._ahead = ahead
            raise

    async def ends_output_within(self, seconds: float) -> bool:
        """Return whether its output ends within this time; what it prints meanwhile can be read."""
        self._ahead = asyncio.ensure_future(self._portion())
        done, _ = await asyncio.wait({self._ahead}, timeout=seconds)
        return bool(done) and not self._ahead.result()

    async def _portion(self) -> bytes:
        stdout = self._process.stdout
        async with self._reading:  # stop() may begin while a read is still waiting
            return b"" if stdout is None else await stdout.read(_PORTION)

    async def complaints(self) -> list[str]:
        """Return the last lines of stderr, clean, once the output has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.shield(self._listening)
        return list(self._complaints)

    def take_complaints(self) -> list[str]:
        """Return the lines on stderr since the last call, at most the latest 4,096; clean."""
        lines = list(self._new_complaints)
        self._new_complaints.clear()
        return lines

    async def returncode(self) -> int:
        """Return the tool's status as a shell reports it: 128 + n after signal n."""
        return await self._process.wait()

    async def was_killed(self) -> bool:
        """Return, once it has ended, whether the shim or `stop` killed it because it took too long."""
        return await self.returncode() == 128 + signal.SIGALRM or self._killed

    def end(self, *, patient: bool = False) -> None:
        """Ask the tool to finish: its last output can still be read. `patient`: it is not killed before `stop`."""
        if patient:
            self._process.ask()
        else:
            if self._kill_at is None:
                self._kill_at = asyncio.get_running_loop().time() + _KILL_AFTER_S
            self._process.hang_up()

    async def stop(self) -> None:
        """End it within 2 s of the hang-up: by SIGTERM, then by SIGKILL of the shim's process group.

        The tool would not notice the shim's death alone. A cancelled caller kills at once: it may not come back.
        """
        self.end()
        try:
            async with asyncio.timeout_at(self._kill_at):
                while await self.read():
                    pass
                await self._process.wait()
        except TimeoutError:
            self._kill()
            await self._drained()
        except asyncio.CancelledError:
            self._kill()
            raise
        finally:
            if self._ahead is not None:
                self._ahead.cancel()
            self._listening.cancel()
            # A descendant that outlived the tool may have the pipes open: closed here, while there is a loop.
            self._process.close()
            await asyncio.wait({self._listening})

    async def _drained(self) -> None:
        """Wait for the end of a killed process, and read on.

        CPython before 3.12.4 waits for the end of the output as well, which a reader with a full buffer never sees.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KILLED_S):
                while await self.read():
                    pass
                await self._process.wait()

    def _kill(self) -> None:
        # Behind sudo neither is allowed: there the shim's own SIGKILL has gone out by now, or goes out by itself.
        self._killed = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _listen(self) -> None:
        stderr = self._process.stderr
        if stderr is None:
            return
        remainder = b""
        while portion := await stderr.read(_PORTION):
            *lines, remainder = (remainder + portion).split(b"\n")
            reported = [clean(line, 300) for line in lines if line.strip()]
            self._complaints.extend(reported)
            self._new_complaints.extend(reported)
            remainder = remainder[-_PORTION:]
        if remainder.strip():
            self._complaints.append(clean(remainder, 300))


async def answer(words: Sequence[str], *, within_s: float, most: int) -> str:
    """Return a command's output, at most so many bytes, and then its stderr; empty where it fails or takes longer.

    `words` are shimmed: it ends with our end of its standard input.
    """
    output = bytearray()
    try:
        child = await Child.start(words)
    except OSError:
        return ""
    try:
        async with asyncio.timeout(within_s):
            while len(output) < most and (portion := await child.read()):
                output += portion
            complaints = child.take_complaints() if len(output) >= most else await child.complaints()
    except TimeoutError:
        return ""
    finally:
        await child.stop()
    return "\n".join((output[:most].decode("utf-8", "replace"), *complaints))


class RefusedError(Exception):
    """A program that doesn't run here, with the reason and the line of its text (0: not known)."""

    def __init__(self, why: str, line: int = 0) -> None:
        super().__init__(why)
        self.line = line


class Silence:
    """Time in which a running reader read nothing.

    From one look to the next at most LOOK_S counts: while the reader was stopped, the probe's output stays in its pipe.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` in seconds."""
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        self._looked, self._s = self._clock(), 0.0

    def look(self) -> float:
        """Return the seconds of silence. To be called once in LOOK_S."""
        now = self._clock()
        self._s += min(now - self._looked, LOOK_S)
        self._looked = now
        return self._s


class RunningProbe(ABC):
    """A tool's process with one program: started until its ready line, read event by event, ended.

    It knows the ready line and nothing else of what the events mean.
    """

    tool_name: ClassVar[str]
    ready_s: ClassVar[float] = 300.0
    """How long a busy or emulated host may take to compile and attach. dtrace took 18 to 60 s in an emulated one; there
    all probes of the tracer take bpftrace 60 to 100 s, and 0.17 more than 180 s. Another variant would take no less."""

    def __init__(self, child: Child, wanted: int) -> None:
        """`wanted`: hooks that the program has."""
        self._child, self.wanted = child, wanted
        self._events: deque[Event] = deque()
        self._noise_left: int | None = _MAX_NOISE_BYTES
        """Bytes that may come before the ready line; None: it has come."""
        self.decode_ns = 0
        """CPU time for decoding its output."""

    @property
    def pid(self) -> int:
        """The process that was started; the tool is it or below it."""
        return self._child.pid

    @property
    def attached(self) -> int:
        """Hooks that the tool reports as attached."""
        return self.wanted

    def decoded(self) -> Event | None:
        """Return the next event where one is decoded already."""
        return self._events.popleft() if self._events else None

    async def next(self) -> Event | None:
        """Return the next event; None at the end of the output. RefusedError where that has no ready line."""
        while not self._events:
            portion = await self._child.read()
            if self._noise_left is not None:
                self._noise_left -= len(portion)
                if self._noise_left < 0:
                    raise self._no_output()
            begun = time.thread_time_ns()
            self._events.extend(self._decoded(portion))
            self.decode_ns += time.thread_time_ns() - begun
            if not portion:
                break
        return self._events.popleft() if self._events else None

    async def undecoded(self) -> bytes:
        """Return the next portion of its output, b"" at the end, for `decode_later`."""
        return await self._child.read()

    def decode_later(self, portion: bytes) -> Iterator[Event]:
        """Yield the events of a portion that `undecoded` returned, the portions in their order and b"" last."""
        yield from self._events
        self._events.clear()
        yield from self._decoded(portion)

    @abstractmethod
    def _decoded(self, portion: bytes) -> Iterable[Event]:
        """Return the events that a portion of the output completes; b"" is its end."""

    async def complaint(self) -> str:
        """Return why it ended, once it has."""
        return self._reason(await self._child.complaints(), await self._child.returncode())

    @staticmethod
    @abstractmethod
    def _reason(complaints: Sequence[str], status: int) -> str: ...

    async def was_killed(self) -> bool:
        """Return, once it has ended, whether it was killed because its end took too long."""
        return await self._child.was_killed()

    async def ends_within(self, seconds: float) -> bool:
        """Return whether it ends by itself within this time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._child.returncode()
                return True
        return False

    def end(self, *, patient: bool = False) -> None:
        """Ask it to finish: its last events can still be read. `patient`: it is not killed before `stop`."""
        self._child.end(patient=patient)

    async def stop(self) -> None:
        """End it within 2 s; it has ended when this returns."""
        await self._child.stop()

    async def until_ready(self) -> None:
        """Wait for the ready line. RefusedError when its program doesn't run here, UnavailableError when none would."""
        undecoded = 0
        try:
            async with asyncio.timeout(self.ready_s):
                while (event := await self.next()) is not None and undecoded < _MAX_NOISE:
                    undecoded += isinstance(event, UndecodedLine)
                    if isinstance(event, Printed) and event.text.startswith("ready "):
                        self._noise_left = None
                        await self._check_attached()
                        return self._child.prefer()
        except TimeoutError:
            raise UnavailableError(
                f"{self.tool_name} was not ready within {self.ready_s:.0f} s on this host."
            ) from None
        if undecoded >= _MAX_NOISE:
            raise self._no_output()
        raise await self._refused()

    def _no_output(self) -> RefusedError:
        return RefusedError(f"it prints no output of {self.tool_name}")

    async def _check_attached(self) -> None:  # noqa: B027 - most tools print the line after attaching
        """Raise RefusedError where the tool fails to attach after its ready line."""

    async def _refused(self) -> RefusedError:
        return RefusedError(await self.complaint())


AnyProbe = TypeVar("AnyProbe", bound=RunningProbe)


async def started(
    launching: Awaitable[Child], make: Callable[[Child], AnyProbe], *, in_a_hurry: bool = False
) -> AnyProbe:
    """Return the probe that `make` makes of the child, once it is ready; it is stopped if anything fails before.

    `in_a_hurry`: it has a raised priority while it compiles.
    """
    try:
        child = await launching
        if in_a_hurry:
            child.prefer(HURRY)
        probe = make(child)
    except OSError as error:
        raise UnavailableError(f"the probe's process can't be started: {error.strerror}.") from error
    try:
        await probe.until_ready()
    except BaseException:
        await probe.stop()
        raise
    return probe
