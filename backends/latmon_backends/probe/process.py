"""The probe process behind a shim that ends it with latmon; bounded queries of a tool.

The only module that touches a probe process. The shim ends the tool when its standard input closes, so a collector that
dies by SIGKILL leaves no orphan; measured to hold through plain start, setsid, sudo and ssh, where PR_SET_PDEATHSIG and
process groups don't. Knows nothing of what the tool prints.

Knows no tool.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from latmon.support.errors import UnavailableError
from latmon.support.process import descendants, widen
from latmon.support.text import clean
from latmon.support.trust import environment
from latmon_backends.probe.events import Event

# The tool gets SIGTERM when file 3, our end of its standard input, closes, and SIGKILL if detaching takes it too long.
# A line there asks it to end and gives it the time that it takes. An abort must not leave a core behind. What waits
# must not hold the tool's output open, or its end is seen late; `read`, not `cat`, because it leaves nobody behind when
# the tool ends first.
_SHIM = (
    "ulimit -c 0; exec 3<&0; "
    '"$@" </dev/null 3<&- & p=$!; '
    "(while read -r _; do kill -TERM $p; done <&3; kill -TERM $p; sleep {grace_s}; kill -KILL $p) >/dev/null 2>&1 & "
    "c=$!; "
    "wait $p; r=$?; kill $c 2>/dev/null; {after}exit $r"
)
GRACE_S = 1.4
"""bpftrace takes 0.7 to 1.3 s to detach."""
_MOUNT_TRACEFS = 'mount -t tracefs tracefs /sys/kernel/tracing && exec "$@"'
_MOUNT_DEBUGFS = 'mount -t debugfs debugfs /sys/kernel/debug && exec "$@"'
_STDERR_LINES = 60
_MOST_UNHEARD = 4096
"""A line of drops for each CPU, many times over."""
_PORTION = 1 << 16
_NICE = -10
_KILL_AFTER_S = 1.7


def shimmed(
    command: Sequence[str],
    variables: Mapping[str, str],
    *,
    sudo: bool,
    mount_tracefs: bool = False,
    mount_debugfs: bool = False,
    grace_s: float = GRACE_S,
    after: str = "",
) -> list[str]:
    """The argument list that runs `command` behind the shim. `after`: what the shell does when the tool, `$p`, is gone.

    `sudo` asks for root without ever prompting. `mount_tracefs` and `mount_debugfs` give the tool that file system in a
    mount namespace of its own, so that nothing stays mounted on the host.
    """
    words = list(command)
    for wanted, mount in ((mount_tracefs, _MOUNT_TRACEFS), (mount_debugfs, _MOUNT_DEBUGFS)):
        if wanted:
            words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh", *words]
    words = ["env", *(f"{name}={value}" for name, value in variables.items()), *words]
    shim = _SHIM.format(grace_s=grace_s, after=after)
    return [*(["sudo", "-n"] if sudo else []), "sh", "-c", shim, "latmon-probe", *words]


class Running(Protocol):
    """A started process: its pipes, its end. One that we started ourselves, or that a starter with root did for us."""

    @property
    def pid(self) -> int: ...

    @property
    def stdout(self) -> asyncio.StreamReader | None: ...

    @property
    def stderr(self) -> asyncio.StreamReader | None: ...

    async def wait(self) -> int:
        """The status as a shell tells it."""
        ...

    def ask(self) -> None:
        """A line on its standard input."""
        ...

    def hang_up(self) -> None:
        """Close its standard input."""
        ...

    def close(self) -> None:
        """Close our ends, whoever else may hold the others."""
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
        with contextlib.suppress(PermissionError):  # it kills who still runs, which isn't allowed behind sudo
            self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - Process has no close of its own


class Child:
    """A running tool. `read` gives its output in portions, b"" at the end; `complaints` are stderr's last lines."""

    def __init__(self, process: Running) -> None:
        self._process = process
        self._reading = asyncio.Lock()
        self._complaints: deque[str] = deque(maxlen=_STDERR_LINES)
        self._unheard: deque[str] = deque(maxlen=_MOST_UNHEARD)
        self._listening = asyncio.create_task(self._listen())
        self._kill_at: float | None = None

    @classmethod
    async def start(cls, words: Sequence[str]) -> Child:
        """OSError when not even the shell can be started. The terminal's Ctrl-C is not for it.

        So it gets a session of its own; sudo a process group only, because its ticket belongs to the terminal and
        can't be found from another session.
        """
        apart: dict[str, Any] = {"process_group": 0} if words[0] == "sudo" else {"start_new_session": True}
        pipe = asyncio.subprocess.PIPE
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *words, stdin=pipe, stdout=pipe, stderr=pipe, env=environment(os.environ), **apart
            )
        )
        try:
            return cls(_Own(await asyncio.shield(starting)))
        except asyncio.CancelledError:
            # Cancelled itself it would wait for ever for pipes that were never connected (CPython 3.11).
            await cls(_Own(await starting)).stop()
            raise

    @property
    def pid(self) -> int:
        """Of the shim; the tool is below it."""
        return self._process.pid

    def prefer(self) -> None:
        """Before others, where that is allowed: a reader that is late loses nothing but time.

        Once it has compiled, not before: that takes a second of CPU which is the screen's. Behind `sudo -n` it isn't
        allowed, and the probe stays at its usual place: the price is a late frame, and the frame says so.
        """
        for pid in descendants(self.pid):
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, pid, _NICE)

    async def read(self) -> bytes:
        stdout = self._process.stdout
        async with self._reading:  # stop() may begin while a read is still waiting
            return b"" if stdout is None else await stdout.read(_PORTION)

    async def complaints(self) -> list[str]:
        """Everything said on stderr, once the output has ended; clean."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._listening), 1)
        return list(self._complaints)

    def heard(self) -> list[str]:
        """What was said on stderr since the last call, the latest of it; clean."""
        lines = list(self._unheard)
        self._unheard.clear()
        return lines

    async def returncode(self) -> int:
        """The tool's status as a shell tells it: 128 + n after signal n."""
        return await self._process.wait()

    def end(self, *, patient: bool = False) -> None:
        """Ask the tool to finish: its last output can still be read. `patient`: it is not killed before `stop`."""
        if patient:
            self._process.ask()
        else:
            if self._kill_at is None:
                self._kill_at = asyncio.get_running_loop().time() + _KILL_AFTER_S
            self._process.hang_up()

    async def stop(self) -> None:
        """Ended for certain when this returns, within 2 s of the hang-up: politely, then by SIGKILL of the shim.

        The shim's own death closes nothing that the tool would notice, so what is killed is its whole process group.
        Who is cancelled while it waits kills at once: nobody may come back for it.
        """
        self.end()
        try:
            async with asyncio.timeout_at(self._kill_at):
                while await self.read():
                    pass
                await self._process.wait()
        except TimeoutError:
            self._kill()
            await self._process.wait()
        except asyncio.CancelledError:
            self._kill()
            raise
        finally:
            self._listening.cancel()
            # A descendant that outlived the tool may hold the pipes: closed here, while there is a loop.
            self._process.close()
            await asyncio.wait({self._listening})

    def _kill(self) -> None:
        # Behind sudo neither is allowed: there the shim's own SIGKILL has gone out by now, or goes out by itself.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _listen(self) -> None:
        stderr = self._process.stderr
        if stderr is None:
            return
        rest = b""
        while portion := await stderr.read(_PORTION):
            *lines, rest = (rest + portion).split(b"\n")
            told = [clean(line, 300) for line in lines if line.strip()]
            self._complaints.extend(told)
            self._unheard.extend(told)
            rest = rest[-_PORTION:]
        if rest.strip():
            self._complaints.append(clean(rest, 300))


async def answer(words: Sequence[str], *, within_s: float, most: int) -> str:
    """Its output, at most so many bytes, and then what it complained of; empty where it can't be run or takes longer.

    `words` are shimmed: it ends with our end of its standard input.
    """
    said = bytearray()
    try:
        child = await Child.start(words)
    except OSError:
        return ""
    try:
        async with asyncio.timeout(within_s):
            while len(said) < most and (portion := await child.read()):
                said += portion
            complaints = child.heard() if len(said) >= most else await child.complaints()
    except TimeoutError:
        return ""
    finally:
        await child.stop()
    return "\n".join((said[:most].decode("utf-8", "replace"), *complaints))


LOOK_S = 1.0
"""How long a reader that listens waits at once, and the most silence that one look may find."""


class RefusedError(Exception):
    """A program that doesn't run here, why, and where in its text that was found (0: not said)."""

    def __init__(self, why: str, line: int = 0) -> None:
        super().__init__(why)
        self.line = line


class Silence:
    """How long a reader that listened has heard nothing.

    From one look to the next at most LOOK_S counts. A reader that was stopped for 12 s did not listen; what the probe
    printed meanwhile is still in its pipe.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` in seconds."""
        self._clock = clock
        self.heard()

    def heard(self) -> None:
        self._looked, self._s = self._clock(), 0.0

    def look(self) -> float:
        """Seconds of silence. To be called once in LOOK_S."""
        now = self._clock()
        self._s += min(now - self._looked, LOOK_S)
        self._looked = now
        return self._s


class RunningProbe(Protocol):
    """A process with one program, past its ready line."""

    @property
    def pid(self) -> int:
        """Of the process that was started; the tool is it or below it."""
        ...

    @property
    def wanted(self) -> int:
        """Hooks that the program has."""
        ...

    @property
    def attached(self) -> int:
        """Hooks that the tool says it attached."""
        ...

    async def next(self) -> Event | None:
        """The next event; None at the end of the output."""
        ...

    async def complaint(self) -> str:
        """Why it ended, once it has."""
        ...

    def end(self, *, patient: bool = False) -> None:
        """Ask it to finish: its last events can still be read. `patient`: however long it takes, until `stop`."""
        ...

    async def stop(self) -> None:
        """Ended for certain when this returns, within 2 s."""
        ...


class Starting(RunningProbe, Protocol):
    """A process of which it isn't known yet whether it gets as far as its ready line."""

    async def until_ready(self) -> None:
        """RefusedError when its program doesn't run here, UnavailableError when none would."""
        ...


Begun = TypeVar("Begun", bound=Starting)


async def started(launched: Awaitable[Child], made: Callable[[Child], Begun]) -> Begun:
    """The probe that is `made` of the child, once it is ready; whatever comes in between, nothing is left of it."""
    try:
        probe = made(await launched)
    except OSError as error:
        raise UnavailableError(f"the probe's process can't be started: {error.strerror}.") from error
    try:
        await probe.until_ready()
    except BaseException:
        await probe.stop()
        raise
    return probe
