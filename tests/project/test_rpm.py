"""The package for Fedora and SUSE: its files, what it needs, the same bytes each time, and that its program starts."""

import shutil
import subprocess
import sys
from pathlib import Path

import deb
import manual
import pytest
import rpm

import latmon

REPO = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(shutil.which("rpmbuild") is None, reason="no rpmbuild here")


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> tuple[Path, Path]:
    """A tree as that of the single file, but without other packages, and share/."""
    tree, share = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("share")
    for source in ("latmon", "backends/latmon_backends"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPO / source, tree / Path(source).name, ignore=ignored)
    shutil.copyfile(REPO / "contrib/zip_main.py", tree / "__main__.py")
    manual.write(share)
    return tree, share


@pytest.fixture(scope="module")
def package(parts, tmp_path_factory) -> Path:
    return rpm.write(latmon.__version__, *parts, tmp_path_factory.mktemp("rpm"))


def queried(package: Path, *words: str) -> list[str]:
    done = subprocess.run(["rpm", "-qp", *words, str(package)], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_it_has_the_files_of_the_deb_and_a_config_that_updates_keep(package, parts, tmp_path):
    deb.lay_out(tmp_path / "root", *parts)
    expected = {f"/{path.relative_to(tmp_path / 'root')}" for path in (tmp_path / "root").rglob("*") if path.is_file()}
    listed = set(queried(package, "-l"))
    assert expected <= listed
    assert all(one.startswith(("/usr/share/latmon", "/usr/share/doc/latmon")) for one in listed - expected)
    assert queried(package, "-c") == ["/etc/xdg/latmon/config.yaml"]


def test_it_needs_python_alone_and_belongs_to_root(package):
    needs = [one for one in queried(package, "--requires") if not one.startswith(("rpmlib(", "/bin/sh", "config("))]
    assert needs == ["python3 >= 3.11"]
    assert queried(package, "--recommends") == ["bpftrace"]
    assert {*queried(package, "--qf", "[%{FILEUSERNAME}:%{FILEGROUPNAME}\n]")} == {"root:root"}
    assert queried(package, "--qf", "%{VERSION} %{ARCH}\n") == [f"{latmon.__version__} noarch"]


@pytest.mark.skipif(shutil.which("cpio") is None, reason="no cpio here")
def test_the_program_in_it_starts(package, tmp_path):
    unpack = f"rpm2cpio {package} | cpio --extract --make-directories --quiet"
    subprocess.run(unpack, shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "usr/bin/latmon").read_text() == f'#!/bin/sh\nexec /usr/bin/python3 -I /{deb.HOME} "$@"\n'
    words = [sys.executable, "-I", str(tmp_path / deb.HOME), "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"latmon {latmon.__version__}\n"), done.stderr


def test_it_is_the_same_each_time(parts, package, tmp_path):
    assert rpm.write(latmon.__version__, *parts, tmp_path).read_bytes() == package.read_bytes()
