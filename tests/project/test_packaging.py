"""Installations have all of the tree: the wheel, the sdist and an editable install, built without a network."""

import ast
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipapp
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import release

import latmon

REPO = Path(__file__).resolve().parents[2]
FROM_TREE = {
    "latmon": "latmon",
    "backends/latmon_backends": "latmon_backends",
    "probes": "latmon/probes",
    "themes": "latmon/themes",
    "tours": "latmon/tours",
}


def tracked_or_new() -> list[str]:
    """The files of the checkout that git doesn't ignore; in a source archive, all of them."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPO,
        capture_output=True,
        check=False,
        text=True,
    )
    if listed.returncode:
        return [str(p.relative_to(REPO)) for p in REPO.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    return [name for name in listed.stdout.split("\0") if name and (REPO / name).is_file()]


def expected_in_wheel() -> set[str]:
    names = set()
    for name in tracked_or_new():
        for source, target in FROM_TREE.items():
            if name.startswith(source + "/"):
                names.add(target + name.removeprefix(source))
    return names


def build(kind: str, directory: Path) -> Path:
    """By the build backend's own API, as pip calls it; in a process of its own, because it builds where it is."""
    code = f"import sys; from hatchling import build; print(build.build_{kind}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(directory)], cwd=REPO, capture_output=True, text=True, check=True
    )
    return directory / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """A Python with an environment of its own that sees our dependencies, but not the checkout."""
    directory = tmp_path_factory.mktemp("a venv")
    venv.create(directory, symlinks=True)
    site = next((directory / "lib").glob("python3.*")) / "site-packages"
    dependencies = site / "dependencies"
    dependencies.mkdir()
    (site / "dependencies.pth").write_text(f"{dependencies}\n")
    for path in map(Path, sys.path):
        if path.name in {"site-packages", "dist-packages"}:
            for entry in path.iterdir():
                if not entry.name.startswith(("latmon", "_latmon", "__editable__")) and entry.suffix != ".pth":
                    link = dependencies / entry.name
                    link.exists() or link.symlink_to(entry)
    return directory / "bin" / "python"


def install(python: Path, *what: str) -> None:
    """With pip, and pip's checks, but nothing from anywhere else."""
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--force-reinstall", "--quiet"]
    subprocess.run([str(python), "-m", "pip", "install", *offline, *what], check=True, cwd="/", capture_output=True)


def run(python: Path, *args: str, cwd: Path | str = "/") -> str:
    """Without a PYTHONPATH, which may name a checkout."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(python), *args], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


FIND_DATA = "from latmon.support.paths import data_dir; print(data_dir('probes')); print(data_dir('themes'))"
FIND_BACKENDS = (
    "from importlib.metadata import entry_points;"
    "print(*sorted(e.name for e in entry_points(group='latmon.backends') if callable(e.load())))"
)


def declared(*path: str) -> dict[str, str]:
    node = tomllib.loads((REPO / "pyproject.toml").read_text())
    for key in path:
        node = node[key]
    return node


def test_the_wheel_has_the_files_of_the_tree_and_no_others(wheel):
    in_wheel = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert in_wheel == expected_in_wheel()
    assert any(name.startswith("latmon/probes/") and name.endswith(".bt") for name in in_wheel)
    assert any(name.startswith("latmon/themes/") and name.endswith(".yaml") for name in in_wheel)
    assert "latmon/themes/ramps/cividis.yaml" in in_wheel
    assert any(name.endswith(".tcss") for name in in_wheel)
    assert {"latmon/py.typed", "latmon_backends/py.typed"} <= in_wheel


def test_the_wheel_says_version_licence_and_entry_points(wheel):
    files = {Path(n).name: n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" in n}
    read = {name: zipfile.ZipFile(wheel).read(path).decode() for name, path in files.items()}
    assert f"Version: {latmon.__version__}\n" in read["METADATA"]
    assert "License-Expression: Apache-2.0" in read["METADATA"]
    assert "LICENSE" in read
    for name, target in declared("project", "entry-points", "latmon.backends").items():
        assert f"{name} = {target}\n" in read["entry_points.txt"]


@pytest.mark.slow
def test_the_sdist_builds_the_same_wheel(wheel, tmp_path):
    with tarfile.open(build("sdist", tmp_path)) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert {"bootstrap", "Makefile", "tests", "LICENSE", "CHANGELOG.md"} <= {path.name for path in unpacked.iterdir()}
    code = "import sys; from hatchling import build; print(build.build_wheel(sys.argv[1]))"
    run(Path(sys.executable), "-c", code, str(tmp_path), cwd=unpacked)
    assert zipfile.ZipFile(tmp_path / wheel.name).namelist() == zipfile.ZipFile(wheel).namelist()
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes(), "a build has the same bytes wherever it is made"


def test_an_installed_wheel_runs_and_finds_its_files(wheel, python):
    install(python, str(wheel))
    assert run(python, "-m", "latmon", "--version").startswith(f"latmon {latmon.__version__}")
    assert run(python.with_name("latmon"), "--version").startswith("latmon ")
    probes, themes = map(Path, run(python, "-c", FIND_DATA).split("\n")[:2])
    for directory in (probes, themes):
        assert directory.is_relative_to(python.parents[1])
        assert any(directory.rglob("*.yaml"))
    assert set(run(python, "-c", FIND_BACKENDS).split()) == set(declared("project", "entry-points", "latmon.backends"))


def test_an_editable_install_runs_from_the_tree(python):
    install(python, "--editable", str(REPO))
    assert run(python, "-m", "latmon", "--version").startswith("latmon ")
    where = run(python, "-c", "import latmon, latmon_backends; print(latmon.__file__); print(latmon_backends.__file__)")
    assert [Path(line).parents[1] for line in where.split("\n")[:2]] == [REPO, REPO / "backends"]
    assert [Path(line) for line in run(python, "-c", FIND_DATA).split("\n")[:2]] == [REPO / "probes", REPO / "themes"]


def test_a_bare_checkout_runs():
    roots = [str(REPO), str(REPO / "backends")]
    bare = f"import sys; sys.path[:0] = {roots!r}; from latmon.__main__ import main; sys.exit(main())"
    assert run(Path(sys.executable), "-c", bare, "--version").startswith("latmon ")


@pytest.fixture(scope="module")
def archive(wheel, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("zip")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(directory / "in")
    zipapp.create_archive(directory / "in", directory / "latmon.pyz", main="latmon.__main__:main")
    return directory / "latmon.pyz"


@pytest.mark.parametrize("words", [("probes", "list"), ("doctor",), ("--record", "x", "--duration", "1s")])
def test_a_zip_archive_is_refused_where_probes_are_needed(archive, tmp_path, words):
    done = subprocess.run(
        [sys.executable, "-P", str(archive), *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stdout == ""
    assert "doesn't run from a zip archive; install it" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "x").exists()


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node; expressions, which import nothing, are most of a tree."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        found = getattr(node, name, ())
        for one in found if isinstance(found, list) else ():  # a lambda's body is an expression
            yield one
            yield from statements(one)


def imported(package: Path) -> set[str]:
    """The names of all modules that a package imports, without what is behind their dots."""
    names = set()
    for path in package.rglob("*.py"):
        for node in statements(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def test_what_is_imported_is_declared():
    names = {line.split(">")[0].split("<")[0].lower() for line in declared("project", "dependencies")}
    used = imported(REPO / "latmon") | imported(REPO / "backends" / "latmon_backends")
    foreign = used - set(sys.stdlib_module_names) - {"latmon", "latmon_backends", "_typeshed", ""}
    assert (
        {"pyyaml" if name == "yaml" else name for name in foreign} == names == {"textual", "rich", "pyyaml", "psutil"}
    )


def test_a_lock_file_has_each_declared_package_and_what_it_needs():
    runtime = {one.name: one for one in release.locked(release.RUNTIME.read_text("utf-8"))}
    assert release.required(declared("project", "dependencies")) <= runtime.keys()
    for one in runtime.values():
        assert one.hashes
    built_by = {one.name for one in release.locked(release.BUILD.read_text("utf-8"))}
    assert release.required(declared("build-system", "requires")) <= built_by


@pytest.mark.parametrize(
    "line",
    ["textual==8.2.8", "textual>=8.2 \\\n    --hash=sha256:" + "0" * 64, "textual==8 \\\n    --hash=md5:" + "0" * 64],
)
def test_a_lock_without_a_hash_is_refused(line):
    with pytest.raises(ValueError, match="no package with its version and hashes"):
        release.locked(f"# a comment\n{line}\n")


def test_the_sbom_names_every_package_and_what_needs_it(wheel):
    packages = release.locked(release.RUNTIME.read_text("utf-8"))
    found = release.bill(wheel, packages)
    assert found == release.bill(wheel, packages), "it has no time and no random number"
    assert json.loads(json.dumps(found)) == found
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.5")
    about = found["metadata"]["component"]
    assert about["purl"] == f"pkg:pypi/latmon@{latmon.__version__}"
    assert about["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}]
    assert all(one["licenses"] for one in found["components"])
    edges = {one["ref"]: one["dependsOn"] for one in found["dependencies"]}
    reached, todo = set(), [about["bom-ref"]]
    while todo:
        reached.add(one := todo.pop())
        todo += [other for other in edges[one] if other not in reached]
    assert reached == edges.keys() == {about["bom-ref"], *(one["bom-ref"] for one in found["components"])}


def test_an_sdist_that_gives_another_wheel_is_refused(tmp_path, monkeypatch):
    def built(_python, kind, tree, out):
        file = out / f"latmon.{kind}"
        if kind == "sdist":
            with tarfile.open(file, "w:gz") as archive:
                archive.add(REPO / "LICENSE", "latmon-0/LICENSE")
        else:
            file.write_bytes(str(tree).encode())
        return file

    monkeypatch.setattr(release, "_built", built)
    with pytest.raises(ValueError, match="gives another wheel than the tree"):
        release.build(tmp_path, Path(sys.executable))
