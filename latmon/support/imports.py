"""Check of each module before Python loads it as root: its source, and the byte code that runs instead.

`guard` checks what is imported already, and puts a finder in front of Python's own. That covers what
no list can name: Python's library, packages that a package imports where they are installed, and byte
code without a source or below PYTHONPYCACHEPREFIX. As a program, `python -m latmon.support.imports
MODULE ARGS...` runs a module of latmon behind this check: so latmon starts its processes in Python.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec
from pathlib import Path
from types import ModuleType

from latmon.support.errors import UntrustedError
from latmon.support.owners import is_plain, owners

CHECKED = (sys.executable, "-P", "-s", "-m", "latmon.support.imports")
"""Beginning of a command line, before the module. -P: a file in the current directory must not pass for
a module. -s: under sudo HOME is the user's, and Python would run what is below it as root."""
_WITHOUT_FILES: tuple[object, ...] = (BuiltinImporter, FrozenImporter)
"""Loaders of modules that are part of the interpreter."""


def guard(environ: Mapping[str, str] = os.environ) -> None:
    """As root, raise UntrustedError for a module that others can change: now or when it is imported.

    A module outside of the interpreter whose file can't be found is refused, too.
    """
    if os.geteuid() != 0:
        return
    finder = _CheckingFinder(owners(environ))
    # Python 3.11 asks finders without find_spec as well, which return no file; 3.12 doesn't
    others = [other for other in sys.meta_path if hasattr(other, "find_spec")]
    sys.meta_path[:] = [finder, *(other for other in others if not isinstance(other, _CheckingFinder))]
    for module in list(sys.modules.values()):
        finder.require_files(_files_of(module))


class _CheckingFinder:
    """Finder of modules that asks the others in sys.meta_path and checks the files of what they find."""

    def __init__(self, allowed: frozenset[int]) -> None:
        self._allowed = allowed
        self._passed: set[str] = set()
        """Directories whose entries only `allowed` can change."""
        self._sticky: set[str] = set()
        """Those of them, as /tmp, in which others can create what isn't there."""
        self._unclear: list[str] = []
        """Files that need a closer look."""
        self._is_loading = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for other in sys.meta_path:
            spec = None if other is self else other.find_spec(name, path, target)
            if spec is not None:
                self._require_found(spec)
                return spec
        return None

    def require_files(self, files: Iterable[str]) -> None:
        """Raise UntrustedError for the first file that others can change, or could create."""
        self._unclear += [file for file in files if not (file.startswith("/") and self._passes(file))]
        if not self._unclear or self._is_loading:  # what the closer look itself imports is examined by it
            return
        self._is_loading = True
        from latmon.support import trust  # noqa: PLC0415 - for links, groups and refusals

        self._is_loading = False
        while self._unclear:
            trust.require_installed(Path(self._unclear.pop(0)), self._allowed)

    def _require_found(self, spec: ModuleSpec) -> None:
        is_namespace = spec.loader is None  # a directory without __init__.py: nothing of it runs
        if not (spec.has_location or is_namespace or spec.loader in _WITHOUT_FILES):
            raise UntrustedError(
                f"latmon does not run as root, because the file of the module {spec.name} can't be found: "
                "install its package again"
            )
        self.require_files(_files(spec))

    def _passes(self, path: str) -> bool:
        """Return whether it is plain that only `allowed` can change an absolute path, or create it."""
        if path in self._passed:
            return True
        directory = os.path.dirname(path)  # noqa: PTH120 - a Path for each module takes 5 ms in all
        if directory != path and not self._passes(directory):
            return False
        try:
            status = os.lstat(path)
        except OSError as error:  # byte code may be missing
            return isinstance(error, FileNotFoundError) and directory not in self._sticky
        if not stat.S_ISDIR(status.st_mode):
            return is_plain(status, self._allowed)
        if status.st_uid in self._allowed and status.st_mode & stat.S_ISVTX:
            self._sticky.add(path)
        elif not is_plain(status, self._allowed):
            return False
        self._passed.add(path)
        return True


def _files_of(module: ModuleType) -> Iterator[str]:
    """Yield the files of an imported module; a script that Python was started with has no spec."""
    values = getattr(module, "__dict__", {})  # anything may be in sys.modules, also what imports when it is asked
    spec, file = values.get("__spec__"), values.get("__file__")
    if isinstance(spec, ModuleSpec):
        yield from _files(spec)
    elif isinstance(file, str):
        yield file


def _files(spec: ModuleSpec) -> Iterator[str]:
    """Yield the file of a module, and its byte code, which Python prefers to it."""
    if spec.has_location:
        yield from filter(None, (spec.origin, spec.cached))


def main() -> None:
    """Run a module as the program of this process; a refusal is one sentence on stderr, with exit code 3."""
    import runpy  # noqa: PLC0415 - the starts of users don't need it

    try:
        guard()
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except UntrustedError as error:
        sys.stderr.write(f"latmon: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
