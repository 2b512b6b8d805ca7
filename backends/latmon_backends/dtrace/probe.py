"""One running dtrace process with one program: lines and tables on its output, drops and faults on its stderr."""

from __future__ import annotations

from collections.abc import Iterator

from latmon_backends.dtrace import tool
from latmon_backends.dtrace.decoder import DtraceDecoder, Maps, NumberedNames
from latmon_backends.dtrace.program import DtraceProgram
from latmon_backends.probe.events import Event, Lost, NoRoom, UndecodedLine
from latmon_backends.probe.launcher import Launcher
from latmon_backends.probe.process import Child, RunningProbe, started


class DtraceProbe(RunningProbe):
    """A started D program."""

    tool_name = "dtrace"
    _reason = staticmethod(tool.reason)

    def __init__(self, child: Child, program: DtraceProgram, names: NumberedNames) -> None:
        super().__init__(child, len(program.hooks))
        self._decoder, self._maps = DtraceDecoder(), Maps(program.manifests, names)

    @classmethod
    async def start(cls, launcher: Launcher, program: DtraceProgram, names: NumberedNames) -> DtraceProbe:
        """Start a program. RefusedError when it doesn't run here, UnavailableError when none would."""
        return await started(launcher.launch(program), lambda child: cls(child, program, names))

    def _decoded(self, portion: bytes) -> Iterator[Event]:
        for text in self._decoder.feed(portion) if portion else self._decoder.close():
            yield from self._maps.take(text)
        if not portion:
            yield from self._maps.close()
        for line in self._child.heard():
            yield from _from_stderr(line)


def _from_stderr(line: str) -> Iterator[Event]:
    """Yield drops and faults; what else dtrace prints on stderr means nothing while it runs."""
    match tool.message(line):
        case tool.Drops(kind="dynamic", count=count):
            yield NoRoom(count)
        case tool.Drops(count=count):
            yield Lost(count)
        case tool.Fault():
            yield UndecodedLine(line)
        case _:
            pass
