"""Scripts put together to one bpftrace program: whole files, each with its values; BEGIN and END once for all.

Knows how a script is laid out (a block's braces stand at the beginning of a line) and nothing of what it measures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from latmon.manifest import Manifest

_BLOCK = re.compile(r"^(BEGIN|END)\s*\{\n(.*?)^\}\n", re.MULTILINE | re.DOTALL)
_HOOKS = re.compile(r"^((?:raw)?tracepoint:[^{/]+|k(?:ret)?probe:[^{/]+)", re.MULTILINE)
_COMMA = re.compile(r"\s*,\s*")
_OWN = re.compile(r"^(?:BEGIN|END|interval:)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A probe with its values."""

    manifest: Manifest
    values: Mapping[str, int | str]

    @property
    def hooks(self) -> tuple[str, ...]:
        """What its text attaches to, BEGIN, END and intervals apart; a manifest's list is for people."""
        return tuple(hook for found in _HOOKS.findall(self.text()) for hook in _COMMA.split(found.strip()))

    def text(self) -> str:
        return self.manifest.program(self.values)


@dataclass(frozen=True, slots=True)
class Program:
    """What one bpftrace runs, and how many keys each of its maps may have."""

    scripts: tuple[Script, ...]
    map_keys: int

    @property
    def hooks(self) -> tuple[str, ...]:
        """Of all scripts; two scripts on one hook are two attached probes."""
        return tuple(hook for script in self.scripts for hook in script.hooks)

    @property
    def attaches(self) -> int:
        """How many probes the tool attaches beside the hooks."""
        return len(_OWN.findall(self.text()))

    def text(self) -> str:
        """The bodies of BEGIN and END are put together: up to 0.23 a program has one of each."""
        texts = [script.text() for script in self.scripts]
        if len(texts) == 1:
            return texts[0]
        found = [(match[1], match[2]) for text in texts for match in _BLOCK.finditer(text)]
        bodies = {kind: "".join(body for name, body in found if name == kind) for kind in ("BEGIN", "END")}
        begin, end = (f"{kind}\n{{\n{body}}}\n" if body else "" for kind, body in bodies.items())
        return begin + "".join(_BLOCK.sub("", text) for text in texts) + end

    def script_at(self, line: int) -> Script | None:
        """Whose a line of the text (from 1) is, by the nearest map that is named; None for a line that isn't there."""
        lines = self.text().splitlines()
        if not 0 < line <= len(lines):
            return None
        near = sorted(range(len(lines)), key=lambda at: abs(at - line + 1))
        owners = (script for at in near for script in self.scripts if f"@{script.manifest.name}_" in lines[at])
        return next(owners, None)
