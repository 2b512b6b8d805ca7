import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from latmon.capture import registry
from latmon.support.errors import UnavailableError, UsageError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def foreign(monkeypatch):
    def install(**targets):
        points = [EntryPoint(name, value, registry.GROUP) for name, value in targets.items()]
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points if group == registry.GROUP else [])

    install()
    return install


@pytest.mark.usefixtures("foreign")
def test_ours_are_named_without_entry_points():
    assert registry.names() == ("bpftrace", "dtrace", "procfs", "fleet", "demo", "replay", "prometheus")


def test_the_entry_points_of_an_installation_are_the_same_table():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][registry.GROUP]
    assert declared == registry.OWN


def test_a_third_partys_backend_is_named_and_loaded(foreign):
    foreign(nimble="collections:OrderedDict")
    assert registry.names()[-1] == "nimble"
    assert registry.load("nimble").__name__ == "OrderedDict"


def test_a_foreign_backend_can_not_replace_our_own(foreign):
    foreign(procfs="collections:OrderedDict")
    assert registry.names().count("procfs") == 1
    assert registry.load("procfs").__name__ == "ProcfsBackend"


@pytest.mark.usefixtures("foreign")
def test_an_unknown_backend_name_is_a_usage_error():
    with pytest.raises(UsageError, match="no backend 'dtrase'; there are: bpftrace, dtrace, procfs"):
        registry.load("dtrase")


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("no_such_package.sub:X", "no_such_package"),
        ("collections:NoSuchClass", "has no NoSuchClass"),
        ("sys:maxsize", "is not a class"),
    ],
)
def test_what_cannot_be_loaded_is_a_sentence(foreign, target, sentence):
    foreign(broken=target)
    with pytest.raises(UnavailableError, match=sentence):
        registry.load("broken")


def test_a_missing_package_is_named_with_its_remedy(foreign, tmp_path, monkeypatch):
    (tmp_path / "thirsty.py").write_text("import surely_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    foreign(thirsty="thirsty:X")
    with pytest.raises(UnavailableError, match="pip install surely_not_installed"):
        registry.load("thirsty")


def test_a_bare_checkout_finds_its_backends_and_imports_only_one():
    script = (
        "import sys; from latmon.capture import registry; registry.names();"
        "before = [m for m in sys.modules if m.startswith('latmon_backends')];"
        "registry.load('procfs');"
        "print(before, 'latmon_backends.procfs' in sys.modules, 'latmon_backends.demo' in sys.modules,"
        " 'textual' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "[] True False False"
