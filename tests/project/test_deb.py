"""The package for Debian: its files, the same bytes each time, and what Debian's own checks say of it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import deb
import manual
import pytest

import latmon
from latmon.cli import config, options

REPO = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="no dpkg-deb here")


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> tuple[Path, Path]:
    """A tree as that of the single file, but with latmon alone, and share/."""
    tree, share = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("share")
    shutil.copytree(REPO / "latmon", tree / "latmon", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(REPO / "contrib/zip_main.py", tree / "__main__.py")
    about = tree / "rich-15.0.0.dist-info"
    about.mkdir()
    (about / "LICENSE").write_text("Copyright (c) 2020 of rich\n")
    manual.write(share)
    return tree, share


@pytest.fixture(scope="module")
def package(parts, tmp_path_factory) -> Path:
    return deb.write(latmon.__version__, *parts, tmp_path_factory.mktemp("deb"))


def output(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def unpacked(package, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("unpacked")
    output("dpkg-deb", "-R", str(package), str(directory))
    return directory


@pytest.mark.slow
def test_it_has_command_pages_completions_config_and_units(unpacked):
    assert (unpacked / "usr/bin/latmon").stat().st_mode & 0o777 == 0o755
    assert (unpacked / "usr/share/latmon/__main__.py").is_file()
    assert (unpacked / "usr/share/man/man1/latmon-report.1.gz").is_file()
    for name in (manual.BASH, manual.ZSH, manual.FISH):
        assert (unpacked / "usr/share" / name).is_file()
    units = list((unpacked / "usr/lib/systemd/system").iterdir())
    assert {unit.name for unit in units} == {path.name for path in (REPO / "contrib/systemd").iterdir()}
    for unit in units:
        assert "/usr/local" not in unit.read_text()
        assert "Copy " not in unit.read_text()
    assert (unpacked / "DEBIAN/conffiles").read_text() == "/etc/xdg/latmon/config.yaml\n"


@pytest.mark.slow
def test_it_depends_on_python_alone(unpacked):
    control = (unpacked / "DEBIAN/control").read_text()
    assert f"\nVersion: {latmon.__version__}\n" in control
    assert "\nDepends: python3 (>= 3.11)\n" in control
    assert "\nRecommends: bpftrace\n" in control


@pytest.mark.slow
def test_the_licences_of_all_packages_are_in_one_file(unpacked):
    assert "Copyright (c) 2020 of rich" in (unpacked / "usr/share/doc/latmon/copyright").read_text()
    assert not list((unpacked / "usr/share/latmon").rglob("LICENSE"))


@pytest.mark.slow
def test_all_of_it_is_root_s_and_the_same_each_time(parts, package, tmp_path):
    for line in output("dpkg-deb", "-c", str(package)).splitlines():
        mode, owner = line.split()[:2]
        assert owner == "root/root"
        assert mode[5] == mode[8] == "-", line
    previous = os.umask(0o077)
    try:
        again = deb.write(latmon.__version__, *parts, tmp_path)
    finally:
        os.umask(previous)
    assert again.read_bytes() == package.read_bytes()


@pytest.mark.skipif(shutil.which("lintian") is None, reason="no lintian here")
@pytest.mark.slow
def test_lintian_has_no_error_and_each_override_a_reason(package):
    done = subprocess.run(
        ["lintian", "--allow-root", "--fail-on", "error,warning", str(package)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert re.match(r"# \w", deb._OVERRIDES)


def test_an_address_of_the_publisher_replaces_ours(monkeypatch):
    monkeypatch.setenv("DEBEMAIL", "me@debian.org")
    monkeypatch.setenv("DEBFULLNAME", "Me")
    assert deb.maintainer() == "Me <me@debian.org>"


def test_the_sample_config_sets_nothing_and_has_each_key(tmp_path):
    sample = (REPO / "latmon/cli/sample.yaml").read_text("utf-8")
    assert config.load({"XDG_CONFIG_HOME": str(tmp_path)}, REPO / "latmon/cli/sample.yaml") == config.Config()
    on = re.sub(r"^#(?=[a-z ])(?! )(?=[a-z_]+:)|^#(?=  )", "", sample, flags=re.MULTILINE)
    (tmp_path / "on.yaml").write_text(on)
    loaded = config.load({"XDG_CONFIG_HOME": str(tmp_path)}, tmp_path / "on.yaml")
    assert set(loaded.named_in) == {*options.SETTINGS, "views", "findings", "on_finding"}
