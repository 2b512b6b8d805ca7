"""Foreign names are text: nothing of the product parses markup, and no screen, report or export hands a control on.

The second half takes a demo's recording and gives every device, program, handler and file in it a hostile name.
"""

import ast
import dataclasses
import gzip
import json
import re
import unicodedata
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hostile import member
from terminal import Terminal, latmon, wait_for

from latmon.cli.main import run as main
from latmon.recording.reader import open_recording

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [
    path
    for directory in ("latmon", "backends/latmon_backends")
    for path in sorted((ROOT / directory).rglob("*.py"))
    if re.search(r"\b(textual|rich)\b", path.read_text("utf-8"))
]
PARSERS = {
    "textual": {"widgets", "content", "markup", "notifications"},
    "rich": {"markup", "text", "print", "prompt", "table", "panel", "markdown", "traceback"},
}
"""Modules whose widgets and functions take markup out of a string."""
CALLS = {"notify", "from_markup", "print_markup", "render_markup"}
TITLES = {"border_title", "border_subtitle", "tooltip", "sub_title"}
"""Attributes of Textual's widgets that are parsed as markup."""


def parsed_as_markup(source):
    """Yield what a source has of it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            top, _, remainder = (node.module or "").partition(".")
            names = {remainder.partition(".")[0]} if remainder else {alias.name for alias in node.names}
            yield from names & PARSERS.get(top, set())
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top, _, remainder = alias.name.partition(".")
                yield from {remainder.partition(".")[0]} & PARSERS.get(top, set())
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in CALLS:
                yield node.func.attr
            yield from (word.arg for word in node.keywords if word.arg == "markup")
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in TITLES:
            yield node.attr


def test_nothing_of_the_product_parses_markup():
    assert len(SOURCES) > 5
    assert {str(path): found for path in SOURCES if (found := list(parsed_as_markup(path.read_text("utf-8"))))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "from textual.widgets import Static",
        "from textual import widgets",
        "import textual.widgets as shown",
        "from rich.text import Text",
        "from rich import print",
        "app.notify(f'{name} is gone')",
        "self.border_title = name",
        "Widget(name, markup=True)",
    ],
)
def test_what_parses_markup_is_found(source):
    assert list(parsed_as_markup(source))


EVIL = "[/red][@click=app.quit]\x1b[31m\x1b]52;c;aGk=\x07\x9b2J\u202e\u200b\n\t"
SHOWN = r"[/red][@click=app.quit]\x1b[31m\x1b]52;"
NAMES = {
    "name",
    "device",
    "comm",
    "thread",
    "handler",
    "path",
    "label",
    "model",
    "controller",
    "serial",
    "driver",
    "cgroup",
}
SCREENS = "overview maps zoom offsets ticks stages outstanding outliers interrupts findings who".split()  # noqa: SIM905


def names_in(value, key=""):
    """Yield the strings of all fields that hold foreign names."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from names_in(getattr(value, field.name), field.name)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from names_in(one, key)
    elif isinstance(value, str) and value and key in NAMES:
        yield value


def renamed(value, names):
    if isinstance(value, dict):
        return {renamed(key, names): renamed(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [renamed(one, names) for one in value]
    return names.get(value, value) if isinstance(value, str) else value


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    directory = tmp_path_factory.mktemp("foreign")
    path, evil = directory / "demo.gz", directory / "evil.gz"
    assert main(["demo", "--record", str(path), "--duration", "70s"]) == 0
    found = set(names_in(list(open_recording(path)))) | {open_recording(path).origin.host}
    names = {name: f"{name[:12]}{EVIL}" for name in found}
    assert {"sda", "demo-db-07"} <= set(names)
    assert len(names) > 20
    with gzip.open(path, "rt") as lines, evil.open("wb") as written:
        at = 0
        for line in map(json.loads, lines):
            at = line.get("mono", at)
            written.write(member(json.dumps(renamed(line, names)).encode() + b"\n", at))
    return evil


def strings(value):
    """Yield all strings of a JSON value."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for one in value:
            yield from strings(one)
    elif isinstance(value, str):
        yield value


def controls(text):
    """Return what a terminal or an editor would obey of a text; lines may end."""
    return {char for char in text if char not in "\n\r" and (unicodedata.category(char) in ("Cc", "Cf"))}


TEXTS = {
    "report": ["report", "F"],
    "report --json": ["report", "F", "--json"],
    "report --html": ["report", "F", "--html", "OUT"],
    **{
        f"--to {kind}": ["export", "F", "--to", kind, "-o", "OUT"]
        for kind in ("csv", "openmetrics", "hlog", "perfetto", "jsonl")
    },
    **{
        f"--to {kind} {screen}": ["export", "F", "--to", kind, "--screen", screen, "--size", "150x50", "-o", "OUT"]
        for kind in ("text", "svg")
        for screen in SCREENS
    },
    "diff": ["diff", "F", "F"],
    "check": ["check", "F"],
}


@pytest.mark.slow
@pytest.mark.parametrize("words", TEXTS.values(), ids=TEXTS)
def test_a_report_or_an_export_has_no_control(hostile, tmp_path, capsys, words):
    out = tmp_path / "out"
    assert main([{"F": str(hostile), "OUT": str(out)}.get(word, word) for word in words]) in (0, 1)
    shown = capsys.readouterr()
    text = (out.read_text("utf-8") if out.exists() else "") + shown.out + shown.err
    assert controls(text) == set()
    if "perfetto" in words or "--json" in words:
        assert not any(map(controls, strings(json.loads(out.read_text("utf-8") if out.exists() else shown.out))))
    if "svg" in words:
        assert ET.fromstring(out.read_text("utf-8")).tag.endswith("svg")
    if words[0] == "report" and len(words) == 2:
        assert SHOWN in text


@pytest.mark.slow
def test_a_cast_has_no_sequence_of_a_name(hostile, tmp_path):
    out = tmp_path / "out"
    words = ["export", str(hostile), "--to", "cast", "--size", "150x50", "--duration", "5s", "-o", str(out)]
    assert main(words) == 0
    drawn = "".join(json.loads(line)[2] for line in out.read_text("utf-8").splitlines()[1:])
    assert "[/red][@click" in drawn
    obeyed_by_a_terminal(drawn)


SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[78=>()][B0]?|\]22;\w+\x07)")
"""CSI, charsets, and Textual's shape of the pointer."""


def obeyed_by_a_terminal(drawn):
    """latmon's own sequences alone: none of a name, no window title, no clipboard."""
    assert "\x1b[31m\\" not in drawn
    assert "]52;" not in drawn.replace("\\x1b]52;", "")
    left = SEQUENCES.sub("", drawn)
    assert controls(left) <= set("\x0f\x0e\b"), re.findall(r"[\x00-\x1f\x7f].{,40}", left)


@pytest.mark.slow
def test_a_screen_shows_it_and_goes_on(hostile, tmp_path):
    with Terminal(latmon("replay", str(hostile)), tmp_path, TEXTUAL_LOG="") as terminal:
        assert wait_for(lambda: b"[/red]" in terminal.output, 120, 0.2), terminal.output[-2000:]
        for key in (b"2", b"3", b"4", b"5", b"6", b"7", b"1", b"\t", b"\t", b"\r", b"?", b"\x1b", b"I", b"\x1b"):
            before = len(terminal.output)
            terminal.type(key)
            wait_for(lambda before=before: len(terminal.output) > before, 10, 0.1)
        terminal.type(b"q")
        assert terminal.left(60.0) == []
        assert terminal.status() == 0, terminal.output[-2000:]
    assert b"Traceback" not in terminal.output
    obeyed_by_a_terminal(terminal.output.decode("utf-8", "backslashreplace"))
