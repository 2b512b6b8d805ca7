"""`latmon check FILE [--repair -o OUT]`: what a recording is, every damage in it, and a clean copy of the rest.

Owns the command: which file is read and written, and its exit code.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from latmon import new_file, target
from latmon.checking.clean_copy import CleanCopy
from latmon.checking.passages import Passages
from latmon.checking.progress import Progress
from latmon.checking.repacked import Repacked, RepackedRecording, opened_anyway
from latmon.checking.survey import Survey
from latmon.checking.words import told, verdict
from latmon.errors import EXIT_DONE, EXIT_UNREADABLE, RecordingError
from latmon.new_file import STANDARD, named
from latmon.recording import Recording, open_recording
from latmon.recording.reader import opened
from latmon.recording.written import is_written
from latmon.standard_input import copy_out

__all__ = ["check_command", "repair", "survey"]


def check_command(path: Path, copy_to: Path | None = None) -> int:
    """Print what FILE is and what is damaged in it. RecordingError when there is nothing to read."""
    recording = opened_anyway(path)
    if copy_to == STANDARD:
        return _repair_to_stdout(recording)
    found, passages = survey(recording) if copy_to is None else repair(recording, copy_to)
    lines = told(path, found, passages)
    if copy_to is None:
        lines.append(verdict(path, found, passages))
    else:
        lines.append(f"copied   {found.windows} windows to {named(copy_to)}: the copy is clean")
    _print(lines)
    return EXIT_DONE if found.clean or copy_to is not None else EXIT_UNREADABLE


def survey(recording: Recording, write: Callable[[bytes], object] | None = None) -> tuple[Survey, Passages | Repacked]:
    """All of a file; `write` gets a clean copy of it."""
    found = Survey(recording.origin)
    with opened(recording.path) as file:
        passages: Passages | Repacked = (
            Repacked(file, recording.origin)
            if isinstance(recording, RepackedRecording)
            else Passages(file, recording.origin, live=is_written(file), headless=recording.headless)
        )
        clean = None if write is None else CleanCopy(write, recording.origin, headless=recording.headless)
        with Progress(sys.stderr, passages.size) as progress:
            for passage in passages:
                progress.at(passages.place)
                found.add(passage)
                if clean is not None:
                    clean.add(passage)
        if clean is not None:
            clean.finish()
    return found, passages


def repair(recording: Recording, copy_to: Path) -> tuple[Survey, Passages | Repacked]:
    """A clean copy in a new file, checked. UnavailableError when it can't be written: then nothing of it stays."""
    with new_file.whole(copy_to) as file:
        found, passages = survey(recording, file.write)
        file.flush()
        copied, _ = survey(open_recording(copy_to))
        if not copied.clean or copied.windows != found.windows:
            why = copied.damages[0].what if copied.damages else f"{copied.windows} of {found.windows} windows"
            raise RecordingError(f"the copy of {named(recording.path)} did not become clean and is removed: {why}")
    return found, passages


def _repair_to_stdout(recording: Recording) -> int:
    """The copy is checked before a byte of it is written; what was found goes to stderr."""
    target.refuse(STANDARD)
    with tempfile.TemporaryDirectory(prefix="latmon-") as directory:
        copy = Path(directory) / "copy"
        found, passages = repair(recording, copy)
        print("\n".join(told(recording.path, found, passages)), file=sys.stderr)
        copy_out(copy)
    return EXIT_DONE


def _print(lines: list[str]) -> None:
    """A terminal that can't show a character gets its escape, not a traceback."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write("".join(f"{line}\n" for line in lines).encode(encoding, "backslashreplace").decode(encoding))
