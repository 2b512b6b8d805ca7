"""`latmon check`: prints the contents and damages of a recording; --repair writes a clean copy.

Owns the command's files and its exit code.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from latmon.capture import target
from latmon.recording.check import CheckProgress, Survey, reported, verdict
from latmon.recording.members import is_written
from latmon.recording.reader import Recording, open_recording, opened
from latmon.recording.repair import CleanCopy, Repacked, RepackedRecording, opened_anyway
from latmon.recording.scan import Passages
from latmon.support import streams
from latmon.support.errors import EXIT_DONE, EXIT_UNREADABLE, RecordingError
from latmon.support.streams import STANDARD, copy_out, named


def check_command(path: Path, copy_to: Path | None = None) -> int:
    """Print what FILE is and its damages; return the exit code. Raises RecordingError when there is nothing to read."""
    recording = opened_anyway(path)
    if copy_to == STANDARD:
        return _repair_to_stdout(recording)
    found, passages = survey(recording) if copy_to is None else repair(recording, copy_to)
    lines = reported(path, found, passages)
    if copy_to is None:
        lines.append(verdict(path, found, passages))
    else:
        lines.append(f"copied   {found.windows} windows to {named(copy_to)}: the copy is clean")
    _print(lines)
    return EXIT_DONE if found.clean or copy_to is not None else EXIT_UNREADABLE


def survey(recording: Recording, write: Callable[[bytes], object] | None = None) -> tuple[Survey, Passages | Repacked]:
    """Read a whole recording; pass a clean copy of it to `write`."""
    found = Survey(recording.origin)
    with opened(recording.path) as file:
        passages: Passages | Repacked = (
            Repacked(file, recording.origin)
            if isinstance(recording, RepackedRecording)
            else Passages(file, recording.origin, live=is_written(file), headless=recording.headless)
        )
        clean = None if write is None else CleanCopy(write, recording.origin, headless=recording.headless)
        with CheckProgress(sys.stderr, passages.size) as progress:
            for passage in passages:
                progress.at(passages.place)
                found.add(passage)
                if clean is not None:
                    clean.add(passage)
        if clean is not None:
            clean.finish()
    return found, passages


def repair(recording: Recording, copy_to: Path) -> tuple[Survey, Passages | Repacked]:
    """Write a clean copy to a new file and check it. Raises UnavailableError without leaving a file behind."""
    with streams.whole(copy_to) as file:
        found, passages = survey(recording, file.write)
        file.flush()
        copied, _ = survey(open_recording(copy_to))
        if not copied.clean or copied.windows != found.windows:
            why = copied.damages[0].what if copied.damages else f"{copied.windows} of {found.windows} windows"
            raise RecordingError(f"the copy of {named(recording.path)} was not clean and was removed: {why}")
    return found, passages


def _repair_to_stdout(recording: Recording) -> int:
    """Write a clean copy to stdout after checking it, and the survey to stderr; return the exit code."""
    target.refuse(STANDARD)
    with tempfile.TemporaryDirectory(prefix="latmon-") as directory:
        copy = Path(directory) / "copy"
        found, passages = repair(recording, copy)
        print("\n".join(reported(recording.path, found, passages)), file=sys.stderr)
        copy_out(copy)
    return EXIT_DONE


def _print(lines: list[str]) -> None:
    """Print lines, with escapes for characters that the terminal can't encode."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write("".join(f"{line}\n" for line in lines).encode(encoding, "backslashreplace").decode(encoding))
