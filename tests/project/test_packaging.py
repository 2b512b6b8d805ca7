"""Installations have all of the tree: the wheel, the sdist and an editable install, built without a network."""

import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipapp
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grimp
import pytest
import release
from packaging.requirements import Requirement

import latmon

REPO = Path(__file__).resolve().parents[2]
FROM_TREE = {
    "latmon": "latmon",
    "backends/latmon_backends": "latmon_backends",
    "probes": "latmon/probes",
    "schemas": "latmon/schemas",
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


@pytest.mark.slow
def test_an_installed_wheel_runs_and_finds_its_files(wheel, python):
    install(python, str(wheel))
    assert run(python, "-m", "latmon", "--version").startswith(f"latmon {latmon.__version__}")
    assert run(python.with_name("latmon"), "--version").startswith("latmon ")
    probes, themes = map(Path, run(python, "-c", FIND_DATA).split("\n")[:2])
    for directory in (probes, themes):
        assert directory.is_relative_to(python.parents[1])
        assert any(directory.rglob("*.yaml"))
    assert set(run(python, "-c", FIND_BACKENDS).split()) == set(declared("project", "entry-points", "latmon.backends"))


@pytest.mark.slow
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


@pytest.mark.parametrize(
    "words",
    [
        ("probes", "list"),
        pytest.param(("doctor",), marks=pytest.mark.slow),
        pytest.param(("--record", "x", "--duration", "1s"), marks=pytest.mark.slow),
    ],
)
def test_a_zip_archive_is_refused_where_probes_are_needed(archive, tmp_path, words):
    done = subprocess.run(
        [sys.executable, "-P", str(archive), *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stdout == ""
    assert "doesn't run from a zip archive; install it" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "x").exists()


@pytest.fixture(scope="module")
def single(wheel, tmp_path_factory) -> Path:
    """The single file of a release, of the packages that are installed here; it unpacks itself beside it."""
    directory = tmp_path_factory.mktemp("single")
    tree = directory / "tree"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tree)
    for one in release.locked(release.RUNTIME.read_text("utf-8")):
        for file in importlib.metadata.files(one.name) or ():
            if ".." not in file.parts and file.locate().is_file():
                target = tree / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.locate(), target)
    release.strip(tree)
    program = tree / "__main__.py"
    program.write_text(program.read_text("utf-8").replace("/var/cache/latmon-pyz", str(directory / "cache/latmon")))
    return release.pack(tree, directory / "latmon.pyz")


def alone(single: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a single file in an empty environment, without site-packages."""
    python = str(Path(sys.executable).resolve())
    return subprocess.run(
        [python, "-I", "-S", str(single), *words],
        cwd=single.parent,
        env={"XDG_CACHE_HOME": str(single.parent / "cache"), **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def copies(single: Path) -> list[Path]:
    return list((single.parent / "cache/latmon").glob("*"))


@pytest.mark.slow
def test_a_single_file_has_no_compiled_code_and_the_same_bytes_each_time(single, tmp_path):
    names = zipfile.ZipFile(single).namelist()
    assert not [name for name in names if name.endswith((".so", ".pyc")) or name.startswith("psutil")]
    assert {"__main__.py", "textual/__init__.py", "rich/__init__.py", "yaml/__init__.py"} <= {*names}
    assert any(name.startswith("textual-") and name.endswith("METADATA") for name in names)
    assert single.stat().st_mode & 0o111
    again = release.pack(single.parent / "tree", tmp_path / "again.pyz")
    assert again.read_bytes() == single.read_bytes()
    assert single.read_bytes().startswith(b"#!/usr/bin/python3 -I\n")


@pytest.mark.slow
def test_a_single_file_runs_without_site_packages(single):
    shown = alone(single, "--version")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, f"latmon {latmon.__version__}\n", "")
    assert "kernel thread ran late" in alone(single, "demo", "emulex", "--once").stdout
    recorded = alone(single, "--backend", "procfs", "--record", "x", "--duration", "300ms", "--interval", "100ms")
    assert recorded.returncode in (0, 4), recorded.stderr  # a busy host may leave a gap
    assert "clean    everything" in alone(single, "check", "x").stdout
    listed = alone(single, "doctor").stdout
    assert "not installed; only a system without /proc/diskstats needs it" in listed
    assert re.search(r"^pyyaml +ok", listed, re.MULTILINE)
    assert "block_c" in alone(single, "probes", "list").stdout
    (path,) = copies(single)
    assert path.stat().st_mode & 0o777 == (0o700 if os.geteuid() else 0o755)


def test_a_copy_that_lost_data_is_made_again(single):
    alone(single, "--version")
    (path,) = copies(single)
    (path / "latmon/__main__.py").write_text("")  # as after a power failure
    assert alone(single, "--version").stdout == f"latmon {latmon.__version__}\n"
    assert copies(single) == [path]


@pytest.mark.slow
def test_starts_at_the_same_time_make_one_copy(single):
    for path in copies(single):
        shutil.rmtree(path)
    with ThreadPoolExecutor(4) as pool:
        codes = [done.returncode for done in pool.map(lambda _: alone(single, "--version"), range(4))]
    assert codes == [0] * 4
    assert len(copies(single)) == 1


@pytest.mark.parametrize("which", ["archive", "copy"])
def test_ctrl_c_before_the_first_line_of_a_single_file_ends_it_there(single, which):
    """The archive blocks the signal while it replaces itself by its copy."""
    alone(single, "--version")
    program = single if which == "archive" else copies(single)[0]
    code = (
        "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}); "
        "os.kill(os.getpid(), signal.SIGINT); os.execv(sys.executable, sys.argv[1:])"
    )
    python = str(Path(sys.executable).resolve())
    words = [python, "-c", code, python, "-I", "-S", str(program), "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize("which", ["copy", "cache"])
def test_a_copy_that_others_can_change_does_not_run(single, which):
    alone(single, "--version")
    (path,) = copies(single)
    at = path if which == "copy" else path.parent
    mode = at.stat().st_mode
    at.chmod(0o777)
    try:
        done = alone(single, "--version")
    finally:
        at.chmod(mode)
    assert (done.returncode, done.stdout) == (3, "")
    assert "can be written to by every user" in done.stderr
    assert "XDG_CACHE_HOME" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which gives the file to another user")
def test_root_does_not_run_another_users_single_file(single):
    os.chown(single, 64123, -1)
    try:
        done = alone(single, "--version")
        as_sudo = alone(single, "--version", SUDO_UID="64123", SUDO_GID="64123", SUDO_USER="nobodys")
    finally:
        os.chown(single, 0, -1)
    assert (done.returncode, done.stdout) == (3, "")
    assert "latmon.pyz belongs to uid 64123" in done.stderr
    assert as_sudo.returncode == 0, as_sudo.stderr


@pytest.mark.slow
def test_a_single_file_without_a_place_for_its_copy_names_the_remedy(single, tmp_path):
    (tmp_path / "file").write_text("")
    text = zipfile.ZipFile(single).read("__main__.py").decode()
    tree = tmp_path / "tree"
    with zipfile.ZipFile(single) as packed:
        packed.extractall(tree)
    (tree / "__main__.py").write_text(text.replace(str(single.parent / "cache/latmon"), str(tmp_path / "file/latmon")))
    done = alone(release.pack(tree, tmp_path / "latmon.pyz"), "--version", XDG_CACHE_HOME=str(tmp_path / "file"))
    assert done.returncode == 3
    assert "can't unpack itself" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_what_is_imported_is_declared():
    names = {line.split(">")[0].split("<")[0].lower() for line in declared("project", "dependencies")}
    graph = grimp.build_graph("latmon", "latmon_backends", include_external_packages=True, cache_dir=None)
    used = {name.partition(".")[0] for name in graph.modules}
    foreign = used - set(sys.stdlib_module_names) - {"latmon", "latmon_backends", "_typeshed"}
    assert (
        {"pyyaml" if name == "yaml" else name for name in foreign} == names == {"textual", "rich", "pyyaml", "psutil"}
    )


@pytest.mark.slow
def test_the_lowest_versions_that_are_declared_are_enough(tmp_path):
    bounds = dict(re.match(r"([\w-]+)>=([\d.]+)", one).groups() for one in declared("project", "dependencies"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path)]
    wanted = [f"{name}=={version}" for name, version in bounds.items()]
    done = subprocess.run([*pip, *wanted], capture_output=True, text=True, check=False)
    if "from versions: none" in done.stderr or "ConnectionError" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    code = f"from importlib.metadata import version; print(*map(version, {[*bounds]!r}))"
    stdout = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert all(word.startswith(bound) for word, bound in zip(stdout.split(), bounds.values(), strict=True)), stdout
    tests = ["tests/tui/test_app.py", "tests/tui/test_theme.py", "tests/cli/test_config.py"]
    keys = ["tests/tui/test_terminal.py", "-k", "not 97"]  # an older Textual passes over more than such a key's code
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, *keys]
    done = subprocess.run(words, cwd=REPO, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]


def test_a_lock_file_has_each_declared_package_and_what_it_needs():
    runtime = {one.name: one for one in release.locked(release.RUNTIME.read_text("utf-8"))}
    assert release.required(declared("project", "dependencies")) <= runtime.keys()
    for one in runtime.values():
        assert one.hashes
    built_by = {one.name for one in release.locked(release.BUILD.read_text("utf-8"))}
    assert release.required(declared("build-system", "requires")) <= built_by


def test_the_lock_of_the_tests_has_each_declared_version_and_those_that_a_run_gets():
    locks = (release.RUNTIME, release.BUILD, REPO / "contrib/dev.lock")
    runtime, builders, tests = (
        {package.name: package for package in release.locked(lock.read_text("utf-8"))} for lock in locks
    )
    assert {**runtime, **builders}.items() <= tests.items()
    extra = declared("project", "optional-dependencies")["dev"]
    for requirement in map(Requirement, (*declared("project", "dependencies"), *extra)):
        version = tests[release.normal(requirement.name)].version
        assert requirement.specifier.contains(version), f"{requirement}: the lock has {version}"


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
    assert all(component["licenses"] for component in found["components"])
    edges = {dependency["ref"]: dependency["dependsOn"] for dependency in found["dependencies"]}
    reached, todo = set(), [about["bom-ref"]]
    while todo:
        reached.add(one := todo.pop())
        todo += [other for other in edges[one] if other not in reached]
    assert reached == edges.keys() == {about["bom-ref"], *(component["bom-ref"] for component in found["components"])}


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
