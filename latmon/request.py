"""What is to be captured, as one value: made by the command line, sent to the collector as its first line.

Knows neither argparse nor backends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from latmon.backend import Options


@dataclass(frozen=True, slots=True)
class Request:
    """`backend` is a registry name or `auto`; `record` is absolute; `scenario` and `seed` are the demo's."""

    backend: str = "auto"
    options: Options = field(default_factory=Options)
    record: Path | None = None
    duration_us: int | None = None
    max_size: int | None = None
    """Bytes of all parts of a capture."""
    keep_us: int | None = None
    """How long ago a part may have ended."""
    redact: bool = False
    scenario: str = "host"
    seed: int = 1

    def encode(self) -> bytes:
        """One JSON line."""
        return json.dumps(asdict(self), default=str, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Request:
        """From our own parent's line: nothing foreign, so a mistake in it is a bug and may raise."""
        values: Mapping[str, Any] = json.loads(line)
        options = dict(values["options"])
        tuples = {name: tuple(options[name]) for name in ("devices", "invasive")}
        options.update(tuples, proc=Path(options["proc"]), sys=Path(options["sys"]))
        record = values["record"]
        return cls(**{**values, "options": Options(**options), "record": None if record is None else Path(record)})
