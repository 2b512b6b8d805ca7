"""Modules that root imports, with real owners: what belongs to another user doesn't run."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import MAGIC_NUMBER, cache_from_source
from marshal import dumps
from pathlib import Path

import pytest

from latmon.capture.session import COLLECTOR
from latmon.support import imports
from latmon_backends.probe.launcher import STARTER

ROOT = Path(__file__).resolve().parents[2]
EVE = 64_123
"""A uid that no user of this host has."""
UNCHECKED = (0b01).to_bytes(4, "little") + bytes(8)
"""Flags of byte code that Python doesn't compare with its source, and the hash that it ignores."""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def tree(tmp_path):
    """A place for modules, in front of a latmon of which only the support is there."""
    shutil.copytree(ROOT / "latmon/support", tmp_path / "latmon/support")
    shutil.copy(ROOT / "latmon/__init__.py", tmp_path / "latmon")
    subprocess.run(["chmod", "-R", "g-w,o-w", tmp_path / "latmon"], check=True)
    (tmp_path / "modules").mkdir(mode=0o755)
    return tmp_path


def marks(tree):
    """Source that leaves a mark when it runs."""
    return f"open({str(tree / 'ran')!r}, 'a').write(__name__ + '\\n')\n"


def byte_code(source, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(MAGIC_NUMBER + UNCHECKED + dumps(compile(source, "eves.py", "exec")))
    return path


def python(tree, *words, **environ):
    path = os.pathsep.join((str(tree / "modules"), str(tree)))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SUDO_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, "-P", *words],
        env={**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environ},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


def checked(tree, code, before="", **environ):
    return python(tree, "-c", f"{before}\nfrom latmon.support import imports\nimports.guard()\n{code}", **environ)


def in_source(tree):
    path = tree / "modules/eves.py"
    path.write_text(marks(tree))
    return path


def in_a_cache(tree):
    source = tree / "modules/eves.py"
    source.touch()
    return byte_code(marks(tree), Path(cache_from_source(source)))


def below_a_prefix(tree):
    (tree / "modules/eves.py").touch()
    return byte_code(marks(tree), Path(f"{tree}/cache{tree}/modules/eves.{sys.implementation.cache_tag}.pyc"))


def without_a_source(tree):
    return byte_code(marks(tree), tree / "modules/eves.pyc")


def in_a_package(tree):
    path = tree / "modules/eves/__init__.py"
    path.parent.mkdir(mode=0o755)
    path.write_text(marks(tree))
    return path


FORMS = (in_source, in_a_cache, below_a_prefix, without_a_source, in_a_package)


@as_root
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("imported", ["after", "before"])
def test_a_module_of_another_user_is_refused(tree, form, imported):
    """One that Python has imported before the check can only be reported."""
    path = form(tree)
    environ = {"PYTHONPYCACHEPREFIX": f"{tree}/cache"} if form is below_a_prefix else {}
    code, before = ("import eves", "") if imported == "after" else ("", "import eves")
    good = checked(tree, code, before, **environ)
    assert (good.returncode, (tree / "ran").exists()) == (0, True), good.stderr
    (tree / "ran").unlink()
    os.chown(path, EVE, EVE)
    bad = checked(tree, code, before, **environ)
    assert f"{path} belongs to uid {EVE}" in bad.stderr
    assert (f"`rm {path}`" in bad.stderr) == (path.suffix == ".pyc")
    assert (tree / "ran").exists() == (imported == "before")


@as_root
def test_byte_code_that_others_could_make_in_a_sticky_directory_is_refused(tree):
    path = in_source(tree)
    path.parent.chmod(0o1777)
    assert "modules can be written to by every user" in checked(tree, "import eves").stderr
    in_a_cache(tree)
    assert checked(tree, "import eves").stderr == ""


@as_root
def test_all_files_may_need_a_closer_look(tree):
    """Debian's /usr/local is writable by a group; what looks closer is imported by way of the check."""
    in_source(tree)
    subprocess.run(["chmod", "-R", "g+w", tree], check=True)
    done = checked(tree, "import eves")
    assert (done.returncode, (tree / "ran").exists()) == (0, True), done.stderr
    os.chown(tree / "latmon/support/trust.py", EVE, EVE)
    assert f"trust.py belongs to uid {EVE}" in checked(tree, "import eves").stderr


@as_root
def test_a_link_to_a_file_of_another_user_is_refused(tree):
    path = in_source(tree)
    outside = path.rename(tree / "outside.py")
    path.symlink_to(outside)
    assert checked(tree, "import eves").returncode == 0
    os.chown(outside, EVE, EVE)
    assert f"{outside} belongs to uid {EVE}" in checked(tree, "import eves").stderr


FINDERS = """
import sys
from importlib.util import spec_from_loader
class Loader:
    def load_module(self, name): sys.exit("ran")
    def create_module(self, spec): sys.exit("ran")
    def exec_module(self, module): pass
class Old:
    def find_module(self, name, path=None): return Loader() if name == "eves" else None
class New:
    def find_spec(self, name, path=None, target=None):
        return spec_from_loader(name, Loader()) if name == "eves" else None
"""


@as_root
@pytest.mark.parametrize(
    ("finder", "text"), [("New", "the file of the module eves can't be found"), ("Old", "No module named 'eves'")]
)
def test_a_module_of_a_finder_that_names_no_file_is_refused(tree, finder, text):
    done = checked(tree, "import eves", f"{FINDERS}\nsys.meta_path.insert(0, {finder}())")
    assert text in done.stderr


@as_root
def test_modules_of_the_interpreter_of_a_zip_file_and_of_a_namespace_are_imported(tree):
    in_source(tree)
    shutil.make_archive(str(tree / "packed"), "zip", tree / "modules")
    (tree / "modules/eves.py").unlink()
    (tree / "modules/space").mkdir(mode=0o755)
    (tree / "modules/space/part.py").touch(mode=0o644)
    packed = str(tree / "packed.zip")
    code = f"import faulthandler, space.part, sys\nsys.path.insert(0, {packed!r})\nimport eves"
    done = checked(tree, code)
    assert (done.returncode, (tree / "ran").exists()) == (0, True), done.stderr
    os.chown(tree / "packed.zip", EVE, EVE)
    assert f"packed.zip belongs to uid {EVE}" in checked(tree, code).stderr


@as_root
def test_the_invoking_users_modules_are_imported_under_sudo(tree):
    os.chown(in_source(tree), EVE, EVE)
    assert checked(tree, "import eves", SUDO_UID=str(EVE)).returncode == 0
    assert checked(tree, "import eves", SUDO_UID=str(EVE + 1)).returncode == 1


def test_a_plain_users_imports_are_not_checked(tree):
    in_source(tree).chmod(0o666)
    done = checked(tree, "import eves", "import os; os.geteuid = lambda: 1000")
    assert (done.returncode, (tree / "ran").exists()) == (0, True), done.stderr


def test_a_process_runs_its_module_behind_the_check(tree):
    source = "import sys\nsys.stdout.write(' '.join([__name__, *sys.argv[1:]]))\nsys.exit(7)\n"
    (tree / "modules/eves.py").write_text(source)
    words = [*imports.CHECKED[2:], "eves", "a", "b"]
    done = python(tree, *words)
    assert (done.returncode, done.stdout, done.stderr) == (7, "__main__ a b", "")


@as_root
def test_a_process_with_a_module_of_another_user_ends_with_a_sentence(tree):
    path = in_source(tree)
    os.chown(path, EVE, EVE)
    done = python(tree, *imports.CHECKED[2:], "eves")
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert f"{path} belongs to uid {EVE}" in done.stderr
    assert not (tree / "ran").exists()


def test_each_process_in_python_is_started_behind_the_check():
    """`latmon` itself checks first."""
    sources = [path for tree in ("latmon", "backends") for path in (ROOT / tree).rglob("*.py")]
    starts = {path.name for path in sources if re.search(r'\(sys\.executable, "', path.read_text())}
    assert starts == {"imports.py", "commands.py"}
    assert '"-m", "latmon")' in (ROOT / "latmon/cli/commands.py").read_text()
    for command in (COLLECTOR, STARTER):
        assert command[: len(imports.CHECKED)] == imports.CHECKED
