"""Errors that asyncio logs: exceptions of callbacks and of tasks that nothing awaits, each as one sentence on stderr.

It is apart from `failures`, because `logging` takes a quarter of the time of `latmon --version`.
"""

from __future__ import annotations

import logging
import sys

from latmon.support import failures, streams
from latmon.support.errors import EXIT_FAILED


def install() -> None:
    """Handle what is logged, instead of a handler that prints tracebacks. latmon itself logs nothing by `logging`."""
    logging.basicConfig(handlers=[_Sentences(logging.ERROR)])


class _Sentences(logging.Handler):
    """A handler of log records. Where memory ends it ends the process: the callback would be called again for ever."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, MemoryError) and failures.end_reports():
            streams.message(failures.exhausted(error))
            sys.exit(EXIT_FAILED)
        failures.report(error, record.getMessage().partition("\n")[0])
