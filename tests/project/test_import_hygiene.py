"""Imports: the contracts of pyproject.toml, and the modules that a headless process has really loaded."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
CONFIG = tomllib.loads((REPO / "pyproject.toml").read_text())
PRELUDE = f"import sys; sys.path[:0] = [{str(REPO)!r}, {str(REPO / 'backends')!r}]\n"
LOADED = "\nprint('loaded', *sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"


def loaded_after(code: str, *args: str, cwd: Path, expected: int = 0) -> set[str]:
    """The top-level modules that a process has when `code` is done."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code + LOADED, *args],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    assert done.returncode == expected, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("loaded ")]
    return set(line.split()[1:])


MAIN = """
from latmon.__main__ import main
try:
    code = main()
except SystemExit as exit:
    code = exit.code
assert not code, code
"""
EACH = """
from latmon.cli.main import run
for words in {}:
    assert not run([*words]), words
"""
"""One command after the other in the same process: what any of them loads stays loaded."""


def test_the_contracts_hold():
    lint = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + lint, "--no-cache"], cwd=REPO, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_backend_is_in_the_contract_of_independence():
    (contract,) = [c for c in CONFIG["tool"]["importlinter"]["contracts"] if c["type"] == "independence"]
    backends = CONFIG["project"]["entry-points"]["latmon.backends"].values()
    assert set(contract["modules"]) == {target.partition(":")[0].removesuffix(".backend") for target in backends}


@pytest.mark.parametrize(
    "args", [["--version"], ["--help"], ["demo", "--list"], ["probes", "list"], ["rules", "list"]], ids=" ".join
)
def test_a_command_without_a_screen_never_loads_textual(args, tmp_path):
    loaded = loaded_after(MAIN, *args, cwd=tmp_path)
    assert not {"textual", "rich"} & loaded
    assert "latmon_backends" not in loaded or args[0] in {"demo", "probes"}


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_load_next_to_nothing(option, tmp_path):
    slow = {"yaml", "psutil", "asyncio", "dataclasses", "inspect", "ctypes", "json", "traceback"}
    assert not slow & loaded_after(MAIN, option, cwd=tmp_path)


def test_a_headless_capture_and_its_report_never_load_textual(tmp_path):
    times = ("--duration", "300ms", "--interval", "100ms")
    loaded = loaded_after(MAIN, "--backend", "procfs", "--record", "x.latmon.jsonl.gz", *times, cwd=tmp_path)
    assert not {"textual", "rich"} & loaded
    assert "asyncio" in loaded
    commands = [("report", "x.latmon.jsonl.gz", form) for form in ("--json", "--text")]
    exports = ("csv", "openmetrics", "hlog")
    commands += [("export", "x.latmon.jsonl.gz", "--to", form, "-o", form) for form in exports]
    assert not {"textual", "rich"} & loaded_after(EACH.format(commands), cwd=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} >= {*exports}
    assert "textual" not in loaded_after(MAIN, "export", "x.latmon.jsonl.gz", "--to", "svg", "-o", "svg", cwd=tmp_path)


def test_the_collector_never_loads_textual(tmp_path):
    assert not {"textual", "rich"} & loaded_after("import latmon.capture.collector", cwd=tmp_path)


def test_a_recording_of_the_demo_never_loads_textual(tmp_path):
    words = ("demo", "serialised", "--record", "x.latmon.jsonl.gz", "--duration", "1s")
    assert not {"textual", "rich"} & loaded_after(MAIN, *words, cwd=tmp_path)
