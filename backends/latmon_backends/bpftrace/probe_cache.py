"""The cache of the always-on probe that an earlier start chose, so that a start tries one script and not all of them.

A small file of names and sentences; nothing in it is run. As root it is below /var/cache, where only root can write,
and it is ignored where another user can change it. Its key depends on the tool's file, the kernel with its types, its
lockdown and kprobes, the capabilities of this process, and the scripts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from latmon import __version__
from latmon.support import paths, privileges, trust
from latmon.support.text import clean
from latmon_backends.bpftrace.kernel_hooks import has_kprobes

SYSTEM = Path("/var/cache/latmon")
"""The directory of root. No variable changes it: under `sudo -E` root would write where a user wants."""
_FILE = "bpftrace-probes.json"
_SCHEMA = "latmon.probes/1"
_MOST_BYTES = 64 * 1024
_MOST = 8
"""Entries: tools and kernels that take turns."""
_AGE_S = 30 * 86_400
_MOST_REFUSALS, _SENTENCE = 16, 300
_PASSING = re.compile(r"memory|temporarily|[Tt]oo many|busy|[Tt]imed out|Interrupted|ended with status", re.IGNORECASE)
"""Refusals that another start may not meet: what was chosen after one is not kept."""


@dataclass(frozen=True, slots=True)
class ProbeChoice:
    """The script that ran, by its name, and the refusals of those before it."""

    key: str
    probe: str
    tool: str
    wall: float
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProbeCache:
    """The choices of one user."""

    directory: Path

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> ProbeCache:
        """Return root's cache, or that of the user."""
        return cls(SYSTEM if os.geteuid() == 0 else paths.cache(environ))

    @property
    def path(self) -> Path:
        return self.directory / _FILE

    def read(self, key: str) -> ProbeChoice | None:
        """Return the choice with this key; None without one, for an old one, and where the file can't be trusted."""
        now = time.time()
        found = next((one for one in self._entries() if one.key == key), None) if key else None
        return found if found is not None and 0 <= now - found.wall < _AGE_S else None

    def shown(self, key: str) -> str:
        """Return a sentence about the choice with this key; empty without one."""
        found = self.read(key)
        remedy = "the doctor tries all again; to forget it remove the file"
        return "" if found is None else f"a start tries {found.probe} first, by {self.path}: {remedy}"

    def write(self, key: str, probe: str, tool: str, refused: Mapping[str, str]) -> None:
        """Keep a choice, unless a refusal before it may be a passing one. A file that can't be written is no error."""
        if not key or any(_PASSING.search(sentence) for sentence in refused.values()):
            return
        kept = [one for one in self._entries() if one.key != key][: _MOST - 1]
        entries = [asdict(one) for one in (ProbeChoice(key, probe, tool, time.time(), dict(refused)), *kept)]
        with contextlib.suppress(OSError):
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._is_ours():
                self._replace(json.dumps({"schema": _SCHEMA, "entries": entries}, indent=1).encode())

    def _replace(self, data: bytes) -> None:
        new = self.path.with_name(f".{_FILE}.{os.getpid()}")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            new.replace(self.path)
        except OSError:
            new.unlink(missing_ok=True)
            raise

    def _is_ours(self) -> bool:
        """Return whether only this user and root can change the file or a directory above it."""
        try:
            return trust.flaw(self.path, frozenset({0, os.geteuid()})) is None
        except OSError:
            return False

    def _entries(self) -> list[ProbeChoice]:
        if not self._is_ours():
            return []
        try:
            tree = json.loads(paths.regular(self.path, _MOST_BYTES))
            return [_decoded(one) for one in tree["entries"][:_MOST]] if tree["schema"] == _SCHEMA else []
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return []


def _decoded(value: Mapping[str, Any]) -> ProbeChoice:
    """Return an entry; raises KeyError, TypeError, ValueError or AttributeError for anything else."""
    refused = [(clean(str(name), _SENTENCE), clean(str(why), _SENTENCE)) for name, why in value["refused"].items()]
    key, probe, tool = (clean(str(value[name]), _SENTENCE) for name in ("key", "probe", "tool"))
    return ProbeChoice(key, probe, tool, float(value["wall"]), dict(refused[:_MOST_REFUSALS]))


def key_of(tool: str, sys: Path = Path("/sys"), probes: Path | None = None, proc: Path = Path("/proc")) -> str:
    """Return a hash of all that decides which script runs; empty where the tool's file can't be examined.

    A start inside of a service with few capabilities must not decide for those that have all.
    """
    try:
        program = Path(tool).stat()
        scripts = [(one.name, one.read_bytes()) for one in sorted(_scripts(probes))]
    except OSError:
        return ""
    kernel = platform.uname()
    types = sys / "kernel/btf/vmlinux"
    facts = (
        *(str(Path(tool).resolve()), program.st_mtime_ns, program.st_size, program.st_ino),
        *(kernel.release, kernel.version, kernel.machine, types.stat().st_size if types.exists() else 0),
        *(paths.content(sys / "kernel/security/lockdown"), has_kprobes(sys), privileges.capability_bits(proc)),
        *(__version__, *scripts),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _scripts(probes: Path | None) -> list[Path]:
    return paths.matching((paths.data_dir("probes") if probes is None else probes) / "linux", "block_*")
