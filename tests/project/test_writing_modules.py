"""One module opens what latmon writes; a new place that opens a file by itself would follow other users' links."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WRITER = "latmon/support/output_files.py"
ALLOWED = {
    # descriptors of directories that are checked, for the module above
    "latmon/support/trust.py": {"os.mkdir"},
    # a failed write is cut off, on the descriptor that is open
    "latmon/recording/writer.py": {"os.O_APPEND", "os.O_RDWR", "os.ftruncate"},
    # the null device, in the place of standard files that are closed
    "latmon/cli/main.py": {"os.O_RDWR"},
    # a unix socket: bound after `require`, removed on the descriptor of its directory
    "latmon/metrics/listen_address.py": {"os.unlink"},
    "latmon/metrics/server.py": {".unlink"},
    # the loop device that the self-test made; the name of a thread in /proc
    "latmon/doctor/selftest.py": {"os.O_RDWR", ".write_text"},
    # a priority in /proc
    "latmon/support/process.py": {".write_text"},
    # the counters of hosts, in a private directory that tempfile made; a connection
    "backends/latmon_backends/fleet/host.py": {
        ".mkdir",
        ".open",
        ".symlink_to",
        ".unlink",
        ".write_text",
        "shutil.rmtree",
    },
    # a URL
    "backends/latmon_backends/prometheus.py": {".open"},
}
"""What other modules open, make and remove by themselves; the comments say why that is no file of a user."""
SOURCES = [
    str(path.relative_to(ROOT))
    for directory in ("latmon", "backends/latmon_backends")
    for path in sorted((ROOT / directory).rglob("*.py"))
]
FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC", "O_TMPFILE"}
DEVICES = {"os.devnull", "'/dev/tty'"}
"""First argument of os.open, which is then no file."""
PATH_METHODS = {
    "write_text",
    "write_bytes",
    "mkdir",
    "touch",
    "symlink_to",
    "hardlink_to",
    "rename",
    "unlink",
    "rmdir",
    "chmod",
    "lchmod",
}
OS_FUNCTIONS = {
    "chmod",
    "chown",
    "lchown",
    "link",
    "makedirs",
    "mkdir",
    "mkfifo",
    "mknod",
    "remove",
    "removedirs",
    "rename",
    "renames",
    "replace",
    "rmdir",
    "symlink",
    "truncate",
    "ftruncate",
    "unlink",
}
SHUTIL = {"copy", "copy2", "copyfile", "copymode", "copystat", "copytree", "move", "rmtree", "chown", "make_archive"}
TEMPFILE = {"NamedTemporaryFile", "mkstemp", "mkdtemp", "mktemp"}
"""Of a TemporaryFile, which has no name, and a TemporaryDirectory, which is private, other users change nothing."""
FUNCTIONS = {
    "os": OS_FUNCTIONS,
    "shutil": SHUTIL,
    "tempfile": TEMPFILE,
    "output_files": set(),
}


def writes(source):
    """Yield what of a source opens, makes or removes a file, with its line."""
    tree = ast.parse(source)
    of_devices = {
        id(part)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and call.args and ast.unparse(call.args[0]) in DEVICES
        for part in ast.walk(call)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in FLAGS and id(node) not in of_devices:
            yield node.lineno, f"os.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module in ("os", "shutil", "tempfile"):
            wanted = FUNCTIONS[node.module] | FLAGS | ({"open"} if node.module == "os" else set())
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in wanted)
        elif isinstance(node, ast.Call):
            yield from ((node.lineno, what) for what in called(node))


def called(call):
    """Yield the name of the function where a call writes."""
    function = call.func
    if isinstance(function, ast.Name):
        if function.id == "open" and opens_to_write(call, 1) and "closefd=False" not in ast.unparse(call):
            yield "open"
        return
    if not isinstance(function, ast.Attribute):
        return
    owner = ast.unparse(function.value)
    if owner in FUNCTIONS:
        if function.attr in FUNCTIONS[owner]:
            yield ast.unparse(function)
    elif function.attr in PATH_METHODS:
        yield f".{function.attr}"
    elif function.attr == "replace" and len(call.args) == 1 and not call.keywords and owner != "dataclasses":
        yield ".replace"  # Path's, as str.replace has two arguments and that of a date or a tuple none
    elif function.attr == "open" and owner != "os":
        # of a module the path comes first
        is_module = owner in ("gzip", "bz2", "lzma", "io", "codecs", "tarfile", "zipfile")
        if opens_to_write(call, int(is_module)):
            yield ".open"


def opens_to_write(call, place):
    """Return whether the mode, which is argument number `place`, is one to write with, or is not known."""
    modes = [word.value for word in call.keywords if word.arg == "mode"] + call.args[place : place + 1]
    return any(not isinstance(mode, ast.Constant) or set(str(mode.value)) & set("wax+") for mode in modes)


@pytest.mark.parametrize("path", [path for path in SOURCES if path != WRITER])
def test_no_other_module_opens_a_file_to_write(path):
    names = {name for _, name in writes((ROOT / path).read_text("utf-8"))}
    assert names == ALLOWED.get(path, set()), f"use {WRITER}"


@pytest.mark.parametrize(
    "source",
    [
        "open(path, 'w')",
        "open(path, mode='ab')",
        "open(path, mode)",
        "path.open('xb')",
        "path.open(mode='r+')",
        "gzip.open(path, 'wt')",
        "os.open(path, os.O_WRONLY)",
        "flags = os.O_RDWR | os.O_CLOEXEC",
        "from os import O_CREAT",
        "from shutil import rmtree",
        "path.write_text(text)",
        "path.parent.mkdir(parents=True)",
        "os.makedirs(path)",
        "new.replace(path)",
        "os.replace(new, path)",
        "path.unlink(missing_ok=True)",
        "shutil.copyfile(a, b)",
        "tempfile.NamedTemporaryFile()",
    ],
)
def test_what_writes_is_found(source):
    assert list(writes(source))


@pytest.mark.parametrize(
    "source",
    [
        "open(path)",
        "open(path, 'rb')",
        "path.open('rb')",
        "gzip.open(path)",
        "os.open(os.devnull, os.O_WRONLY)",
        "text.replace('a', 'b')",
        "dataclasses.replace(frame)",
        "output_files.unlink(path, descriptor)",
        "os.open(path, os.O_RDONLY)",
    ],
)
def test_what_reads_is_not(source):
    assert not list(writes(source))
