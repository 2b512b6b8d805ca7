"""Whether this kernel has a hook: from tracefs where it is mounted and readable, else from the names in kernel BTF.

Roots are arguments; nothing is mounted, run or kept open. "Not known" is an answer: then one has to try.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from latmon.files import content

_EVENTS = ("kernel/tracing/events", "kernel/debug/tracing/events")


class Tracepoints:
    """What /sys says at this moment."""

    def __init__(self, sys: Path = Path("/sys")) -> None:
        self._sys = sys

    def has(self, hook: str) -> bool | None:
        """Of `tracepoint:CATEGORY:NAME` or `rawtracepoint:NAME`; None where it can't be told."""
        kind, _, name = hook.partition(":")
        if kind not in ("tracepoint", "rawtracepoint"):
            return None
        event = name.rpartition(":")[2]
        if self._named is not None:
            return (name if kind == "tracepoint" else event) in self._named
        return f"btf_trace_{event}" in self if self._types else None

    def __contains__(self, name: str) -> bool:
        """A type or member of that name is in the kernel's BTF or one of its modules'."""
        return any(b"\0" + name.encode() + b"\0" in blob for blob in self._types)

    @cached_property
    def _named(self) -> frozenset[str] | None:
        """Names with and without their category; None where tracefs can't be read."""
        for place in _EVENTS:
            try:
                categories = [path for path in (self._sys / place).iterdir() if path.is_dir()]
            except OSError:
                continue
            if categories:
                pairs = [(category.name, event.name) for category in categories for event in category.iterdir()]
                return frozenset((*(f"{category}:{event}" for category, event in pairs), *(e for _, e in pairs)))
        return None

    @cached_property
    def _types(self) -> tuple[bytes, ...]:
        try:
            files = sorted((self._sys / "kernel/btf").iterdir())
        except OSError:
            return ()
        return tuple(blob for file in files if (blob := content(file)))
