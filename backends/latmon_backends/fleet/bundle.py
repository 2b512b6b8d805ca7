"""latmon as one archive for hosts that have Python and no latmon: its modules, its probes and PyYAML without C code.

It is unpacked into a private directory in memory, which two processes remove: the one that measures, and its shell.
psutil is left out: no system with /proc/diskstats needs it.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import yaml

import latmon
import latmon_backends
from latmon.support.paths import data_dir

_LEFT_OUT = frozenset(
    ("tui", "diff", "report", "exporters", "importers", "metrics", "doctor", "demo", "probes", "themes", "tours")
)
"""Directories of latmon and of its backends that no capture without a screen needs, or that have roots of their own."""
_FILES = frozenset({".py", ".yaml", ".bt", ".d"})
_EPOCH = (1980, 1, 1, 0, 0, 0)

RUN = """
import os, shutil, sys
where, size = sys.argv[1], int(sys.argv[2])
try:
    data = bytearray()
    while len(data) < size:
        part = os.read(0, min(size - len(data), 1 << 16))
        if not part:
            sys.exit(1)
        data += part
    import io, zipfile
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(where)
    sys.path.insert(0, where)
    sys.dont_write_bytecode = True
    from latmon.cli.main import main
    code = main(sys.argv[3:])
finally:
    shutil.rmtree(where, ignore_errors=True)
sys.exit(code)
"""
"""The program that the host's Python runs: directory, size of the archive, command line of latmon."""


@cache
def archive() -> bytes:
    """Return the archive, the same bytes each time."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name, file in sorted(_files()):
            packed.writestr(zipfile.ZipInfo(name, _EPOCH), file.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _files() -> Iterator[tuple[str, Path]]:
    """Yield the files by their names in the archive."""
    roots = {
        "latmon": Path(latmon.__file__).parent,
        "latmon_backends": Path(latmon_backends.__file__).parent,
        "latmon/probes": data_dir("probes"),
        "yaml": Path(yaml.__file__).parent,
    }
    for name, root in roots.items():
        for file in root.rglob("*"):
            below = file.relative_to(root)
            if file.suffix in _FILES and file.is_file() and below.parts[0] not in _LEFT_OUT:
                yield f"{name}/{below.as_posix()}", file
