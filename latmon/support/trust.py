"""Trust in files that decide what runs as root (owner, mode, links, directories above), and the search for probe tools.

A tool must be changeable only by root, and is never searched in the current directory; latmon's own installation may
also belong to the user who called sudo, because sudo on it makes that user root anyway. Reads and runs nothing.
A path that passes can only be changed by its owners, so it may be opened by name afterwards. Not checked: what a file
server or a FUSE file system returns the next time, NFSv4 access lists, what a tool loads (libraries, other programs).
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import shlex
import shutil
import stat
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from latmon.support import paths
from latmon.support.errors import UnavailableError, UntrustedError
from latmon.support.owners import ROOT, is_plain, is_shared, owners
from latmon.support.paths import data_dir

_PACKAGE = Path(__file__).resolve().parents[1]
_CHECKOUT = _PACKAGE.parent
_OTHERS = (
    "yaml",
    "psutil",
    "textual",
    "rich",
    "markdown_it",
    "mdurl",
    "mdit_py_plugins",
    "linkify_it",
    "uc_micro",
    "platformdirs",
    "pygments",
    "typing_extensions",
    "bcrypt",
)
"""Packages that latmon imports directly or indirectly."""
_MODULES = (".py", ".pyc", ".pth", ".so")
"""Files in a directory of sys.path that Python may run by themselves."""
_BYTE_CODE = "__pycache__"
"""Directory of their compiled forms, which Python runs instead."""
_WHAT = f"latmon, which runs from {_PACKAGE},"
_INSTALL_REMEDY = "install latmon as root, or run it with sudo as the user who owns it"
_IN_CWD = "start latmon in another directory, because Python looks for modules in this one"
_WRITE_REMEDY = "name a file in a directory that only root can change"
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LINKS = 40
"""Symbolic links in one path that the kernel follows."""
_SYSTEM_GIDS = range(1000)
"""Groups whose members this host lists completely; a domain's group may have more members."""
_ACL = "system.posix_acl_access"
VARIABLES = ("LATMON_BPFTRACE", "LATMON_DTRACE", "LATMON_KSTAT")
"""Environment variables that name a tool."""
_ADMIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Directories of root's tools, which are often missing in a user's search path."""
_TOOL_REMEDY = "put it where only root can write, such as /usr/local/bin"
_MAX_INTERPRETERS = 5
"""Nested interpreters of scripts that the kernel allows."""
_FIRST_LINE = 256


@dataclass(frozen=True, slots=True)
class Flaw:
    """The first step of a path that others can change."""

    at: Path
    why: str
    """The flaw of `at`, as "belongs to eve (uid 1001)"."""
    mend: str
    """The command that corrects it; empty where there is no single one."""


def flaw(path: Path, allowed: frozenset[int] = ROOT) -> Flaw | None:
    """Return the first step to `path` that a uid outside `allowed` can change, None where there is none."""
    with contextlib.closing(_Walk(path, allowed)) as walk:
        try:
            walk.go()
        except _FlawError as error:
            return error.flaw
        except (FileNotFoundError, NotADirectoryError):  # users that can write to `at` decide what will be there
            pass
        except OSError as error:
            return Flaw(walk.step, f"can't be examined: {error.strerror}", "")
        return walk.changeable()


@contextlib.contextmanager
def directory_to_write(path: Path, what: str, allowed: frozenset[int], *, makes: bool = False) -> Iterator[int]:
    """Yield the descriptor of a directory that no uid outside `allowed` can change, nor any step on the way to it.

    It may also be one such as /tmp: who creates a file in it has to make sure that the file is new. `makes`: it is made
    where it doesn't exist. `what` names what is written. Raises UnavailableError with the step that others can change,
    OSError where there is no such directory.
    """
    with contextlib.closing(_Walk(path, allowed, makes=makes)) as walk:
        try:
            walk.go()
            found_flaw = walk.shared()
        except _FlawError as error:
            found_flaw = error.flaw
        if found_flaw:
            raise UnavailableError(_sentence(what, "written", found_flaw, _WRITE_REMEDY))
        if not stat.S_ISDIR(walk.status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        yield walk.directory


def require_to_write(path: Path, status: os.stat_result, what: str, allowed: frozenset[int]) -> None:
    """Raise UnavailableError where a uid outside `allowed` can change an opened file, or where it has another name.

    Another user may have made that name, in a directory such as /tmp, for a file that latmon should not write.
    """
    found_flaw = changeable(path, status, allowed)
    if found_flaw is None and status.st_nlink != 1:
        found_flaw = Flaw(path, "has another name, a hard link", "")
    if found_flaw:
        raise UnavailableError(_sentence(what, "written", found_flaw, _WRITE_REMEDY))


class _FlawError(Exception):
    def __init__(self, flaw: Flaw) -> None:
        self.flaw = flaw


class _Walk:
    """A walk from `/` along a path, step by step, on a descriptor of the directory that it has come to.

    Links are followed one by one, so the directories that hold a link count like those of its target. What a checked
    step leads to is opened relative to its directory, so that nothing changes between the check and the next step.
    """

    def __init__(self, path: Path, allowed: frozenset[int], *, makes: bool = False) -> None:
        """`makes`: directories that don't exist are made."""
        self._steps = deque(path.absolute().parts[1:])
        self._allowed, self._makes = allowed, makes
        self._links = 0
        self.at = self.step = Path("/")
        """Where the walk has come to, and the step that was examined last."""
        self.directory = os.open("/", _DIRECTORY)
        """`at`, or the directory of `at` where that is a file."""
        self.status = os.fstat(self.directory)
        """Of `at`."""

    def close(self) -> None:
        os.close(self.directory)

    def go(self) -> None:
        """Walk to the end. Raises _FlawError for a step that others can change, OSError for one that isn't there."""
        while self._steps:
            self._take(self._steps.popleft())

    def changeable(self) -> Flaw | None:
        """Return how others can change where the walk has come to."""
        return changeable(self.at, self.status, self._allowed)

    def shared(self) -> Flaw | None:
        """Return how others can change or replace what is in this directory.

        In a directory with the sticky bit they can't replace what isn't theirs.
        """
        is_sticky = self.status.st_uid in self._allowed and self.status.st_mode & stat.S_ISVTX
        return None if is_sticky else self.changeable()

    def _take(self, name: str) -> None:
        self.step = self.at.parent if name == ".." else self.at / name
        if not stat.S_ISDIR(self.status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        try:
            entry = os.stat(name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            if not self._makes:
                raise
            entry = self._made(name)
        found_flaw = self.shared()
        if found_flaw is None and entry.st_uid not in self._allowed and self.changeable():
            found_flaw = _foreign(self.step, entry)
        if found_flaw:
            raise _FlawError(found_flaw)
        if stat.S_ISLNK(entry.st_mode):
            self._follow(Path(os.readlink(name, dir_fd=self.directory)))
            return
        if stat.S_ISDIR(entry.st_mode):
            entry = self._enter(name)
        self.at, self.status = self.step, entry

    def _made(self, name: str) -> os.stat_result:
        if found_flaw := self.shared():
            raise _FlawError(found_flaw)
        with contextlib.suppress(FileExistsError):  # another latmon makes it at the same moment
            os.mkdir(name, 0o700, dir_fd=self.directory)
        return os.stat(name, dir_fd=self.directory, follow_symlinks=False)

    def _enter(self, name: str) -> os.stat_result:
        below = os.open(name, _DIRECTORY, dir_fd=self.directory)
        os.close(self.directory)
        self.directory = below
        return os.fstat(below)

    def _follow(self, target: Path) -> None:
        self._links += 1
        if self._links > _MAX_LINKS:
            raise _FlawError(Flaw(self.step, "is a loop of symbolic links", ""))
        if target.is_absolute():
            self.at, self.status = Path("/"), self._enter("/")
        self._steps.extendleft(reversed(target.parts[target.is_absolute() :]))


def changeable(path: Path, status: os.stat_result, allowed: frozenset[int] = ROOT) -> Flaw | None:
    """Return how a uid outside `allowed` can change this one file or directory, None where none can."""
    if status.st_uid not in allowed:
        return _foreign(path, status)
    if not is_shared(status):
        return None
    mode = f"mode {stat.S_IMODE(status.st_mode):04o}, owner {_user(status.st_uid)}"
    if status.st_mode & stat.S_IWOTH:
        mend = "" if status.st_mode & stat.S_ISVTX else f"chmod o-w {_quoted(path)}"  # /tmp has to stay as it is
        return Flaw(path, f"can be written to by every user ({mode})", mend)
    if _has_others(status.st_gid, allowed):
        group = _group(status.st_gid)
        return Flaw(path, f"can be written to by the group {group} ({mode})", f"chmod g-w {_quoted(path)}")
    if _has_acl(path):  # its mask is what the mode shows as the group's bits
        return Flaw(path, f"has an access list that may let others write ({mode})", f"setfacl -b {_quoted(path)}")
    return None


def require_path(path: Path, what: str, remedy: str, allowed: frozenset[int] = ROOT) -> None:
    """Raise UntrustedError where a uid outside `allowed` can change the file or a step on the way to it.

    `what` names the file and where its path comes from; `remedy` is the advice beside the command.
    """
    if found_flaw := flaw(path, allowed):
        raise _refusal(what, found_flaw, remedy)


def require_installation(environ: Mapping[str, str] = os.environ) -> None:
    """Raise UntrustedError where others can change latmon's code, its probes, or where Python looks for modules."""
    allowed = owners(environ)
    for path in _searched():
        require_path(path, _WHAT, _IN_CWD if path == _cwd() else _INSTALL_REMEDY, allowed)
    for path in _run_or_imported(allowed):
        require_installed(path, allowed)
    for tree in (_PACKAGE, *_packages("latmon_backends"), data_dir("probes")):
        require_tree(tree, environ)


def require_installed(path: Path, allowed: frozenset[int]) -> None:
    """Raise UntrustedError where a uid outside `allowed` can change the file, which latmon's process runs."""
    require_path(path, _WHAT, _INSTALL_REMEDY, allowed)


def require_tree(directory: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Raise UntrustedError where others can change a file below `directory`, which is a part of the installation.

    What a link leads to outside of it follows the rule for tools.
    """
    allowed = owners(environ)
    require_installed(directory, allowed)
    for path in _suspicious(directory, allowed):
        is_inside = _real(path).is_relative_to(_real(directory))
        if found_flaw := flaw(path, allowed if is_inside else ROOT):
            raise _refusal(_WHAT, found_flaw, _INSTALL_REMEDY)


def require_package(name: str, environ: Mapping[str, str] = os.environ) -> None:
    """Raise UntrustedError where others can change the installed package, or where its files can't be found.

    To be called before any of it is imported.
    """
    packages = _packages(name)
    has_no_files = name in sys.builtin_module_names or find_spec(name) is None
    if not has_no_files and not (packages and all(path.exists() for path in packages)):
        raise UntrustedError(
            f"the package {name} is not used as root, because the files of {name} can't be found: install it again"
        )
    for directory in packages:
        require_tree(directory, environ)


def require_script(path: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Raise UntrustedError for a probe's file that others can change. One from outside latmon must be root's alone."""
    is_ours = any(_real(path).is_relative_to(home) for home in (_PACKAGE, _CHECKOUT / "probes"))
    require_path(
        path, f"the probe {path}", "copy it to where only root can write", owners(environ) if is_ours else ROOT
    )


def _refusal(what: str, found_flaw: Flaw, remedy: str) -> UntrustedError:
    return UntrustedError(_sentence(what, "used", found_flaw, remedy))


def _sentence(what: str, verb: str, found_flaw: Flaw, remedy: str) -> str:
    mend = f"`{found_flaw.mend}`, or " if found_flaw.mend else ""
    return f"{what} is not {verb} as root, because {found_flaw.at} {found_flaw.why}: {mend}{remedy}"


def _searched() -> Iterator[Path]:
    """Yield the interpreter and where it looks for modules and for their compiled forms."""
    if sys.executable:
        yield Path(sys.executable)
    yield from (Path(entry) if entry else _cwd() for entry in dict.fromkeys(sys.path))
    if sys.pycache_prefix is not None:
        yield Path(sys.pycache_prefix)
    yield from (directory / "pyvenv.cfg" for directory in {Path(sys.prefix), Path(sys.executable).parent})


def _run_or_imported(allowed: frozenset[int]) -> Iterator[Path]:
    """Yield what needs a closer look of the modules and the packages that latmon imports, and of the *.pth files."""
    for directory in dict.fromkeys(sys.path):
        for entry, status in _entries(directory or _cwd()):
            is_byte_code = entry.name == _BYTE_CODE
            if (is_byte_code or entry.name.endswith(_MODULES)) and not is_plain(status, allowed):
                yield Path(entry.path)
            if is_byte_code:
                yield from _suspicious(entry.path, allowed)
    for package in _packages(*_OTHERS):
        yield package
        yield from _suspicious(package, allowed)


def _packages(*names: str) -> list[Path]:
    """Return the directories of installed packages, or the file of a single module, without importing them.

    A package without `__init__.py` may have several directories.
    """
    found_paths: list[Path] = []
    for spec in filter(None, map(find_spec, names)):
        if spec.submodule_search_locations is not None:
            found_paths += map(Path, spec.submodule_search_locations)
        elif spec.has_location and spec.origin is not None:  # else it is built in
            found_paths.append(Path(spec.origin))
    return found_paths


def _cwd() -> Path:
    """Return the current directory; `/` if it was removed."""
    return paths.current() or Path("/")


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve fails for a loop of links


def _suspicious(directory: str | Path, allowed: frozenset[int]) -> Iterator[Path]:
    """Yield the files below that need a check of their links or of their owners and modes."""
    for entry, status in _entries(directory):
        if not is_plain(status, allowed):
            yield Path(entry.path)
        if stat.S_ISDIR(status.st_mode):
            yield from _suspicious(entry.path, allowed)


def _entries(directory: str | Path) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    """Yield the entries of the directory; none of a zip file, which was checked as a whole."""
    try:
        entries = list(os.scandir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        with contextlib.suppress(FileNotFoundError):  # another Python has just replaced a compiled module
            yield entry, entry.stat(follow_symlinks=False)


def _foreign(path: Path, status: os.stat_result) -> Flaw:
    """Return the flaw of another owner. No command is given for a directory, which should not be given to root."""
    mend = ""
    if stat.S_ISREG(status.st_mode):  # Python makes byte code again; what the other user wrote must not become root's
        mend = f"{'rm' if path.suffix == '.pyc' else 'chown root'} {_quoted(path)}"
    return Flaw(path, f"belongs to {_user(status.st_uid)}", mend)


def _has_others(gid: int, allowed: frozenset[int]) -> bool:
    """Return whether the group has a member outside `allowed`, or may have one that this host doesn't list.

    Some distributions give system accounts the primary group 0.
    """
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return True
    names = {entry.pw_name for entry in pwd.getpwall() if entry.pw_uid in allowed}
    if set(group.gr_mem) - names:
        return True
    if gid == 0:
        return False
    is_listed = gid in _SYSTEM_GIDS or group.gr_name in names
    return not is_listed or any(entry.pw_gid == gid and entry.pw_uid not in allowed for entry in pwd.getpwall())


def _has_acl(path: Path) -> bool:
    try:
        return bool(os.getxattr(path, _ACL, follow_symlinks=False))
    except (AttributeError, OSError):  # not on this system; no such list
        return False


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _group(gid: int) -> str:
    try:
        return f"{grp.getgrgid(gid).gr_name} (gid {gid})"
    except KeyError:
        return f"gid {gid}"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def find_tool(name: str, variable: str, environ: Mapping[str, str]) -> Path:
    """Return the tool's absolute path: `$variable` when it is set, else `name` on the search path.

    Raises UnavailableError where there is none, UntrustedError where latmon is root and others can change it.
    """
    named = environ.get(variable, "")
    if named:
        path = _named(Path(named), variable)
        require(path, f"{variable}={path}")
        return path
    # then all directories, so that the error explains why a tool in an untrusted one is refused
    tool_path = shutil.which(name, path=search_path(environ)) or shutil.which(name, path=_whole_path(environ))
    if tool_path is None:
        raise UnavailableError(f"{name} is not installed (looked in PATH and for {variable}).")
    require(Path(tool_path), f"{tool_path}, found in PATH,")
    return Path(tool_path)


def with_tools(tools: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment to find tools in: `tools`, the paths of the config by variable, stand for unset ones."""
    return {**environ, **{variable: path for variable, path in tools.items() if not environ.get(variable)}}


def search_path(environ: Mapping[str, str]) -> str:
    """Return PATH without relative parts and with root's directories; for root only those that only root can change."""
    words = _whole_path(environ).split(os.pathsep)
    return os.pathsep.join(words if os.geteuid() else [part for part in words if flaw(Path(part)) is None])


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for every program that latmon starts: PATH has no relative directory.

    Under sudo HOME and XDG_* are the user's while latmon is still root. A child that runs as root gets root's home and
    no PYTHON*: a wrapper in Python would import modules from the user's home.
    """
    kept = {**environ, "PATH": search_path(environ)}
    if os.geteuid():
        return kept
    root = pwd.getpwuid(0)
    kept = {name: value for name, value in kept.items() if not name.startswith(("PYTHON", "XDG_"))}
    return {**kept, "HOME": root.pw_dir, "USER": root.pw_name, "LOGNAME": root.pw_name}


def require(path: Path, what: str) -> None:
    """Raise UntrustedError where latmon is root and others can change the tool, or the interpreter that it names.

    `what` names the path and where it comes from.
    """
    if os.geteuid():
        return
    require_path(path, what, _TOOL_REMEDY)
    for _ in range(_MAX_INTERPRETERS):
        interpreter = _interpreter(path)
        if interpreter is None:
            return
        if not interpreter.is_absolute():
            raise UntrustedError(
                f"{what} is not used as root, because {path} names its interpreter {interpreter} relative to the "
                "current directory: name an absolute path in its first line"
            )
        require_path(interpreter, f"{what} with the interpreter {interpreter}", _TOOL_REMEDY)
        path = interpreter


def require_named(environ: Mapping[str, str]) -> None:
    """Raise UntrustedError where latmon is root and a variable names a tool that others can change."""
    for variable in VARIABLES:
        path = Path(environ.get(variable, ""))
        if path.is_absolute():
            require(path, f"{variable}={path}")


def _whole_path(environ: Mapping[str, str]) -> str:
    parts = [part for part in environ.get("PATH", os.defpath).split(os.pathsep) if Path(part).is_absolute()]
    return os.pathsep.join(dict.fromkeys((*parts, *_ADMIN)))


def _interpreter(path: Path) -> Path | None:
    """Return the interpreter in the first line of a script; None for another program or a missing file."""
    try:
        line, *_ = paths.regular(path, _FIRST_LINE).splitlines() or [b""]
    except OSError:
        return None
    words = line.removeprefix(b"#!").split()
    return Path(os.fsdecode(words[0])) if line.startswith(b"#!") and words else None


def _named(path: Path, variable: str) -> Path:
    if not path.is_absolute():
        raise UnavailableError(f"{variable} must be an absolute path, not {str(path)!r}.")
    if not path.is_file() or not os.access(path, os.X_OK):
        raise UnavailableError(f"{variable} names {path}, which can't be run.")
    return path
