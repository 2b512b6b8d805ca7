"""Tests of the documents: links and anchors resolve, docs/CONFIG.md lists every key of configs and themes.

Screens of docs/views are quoted from commands; slow tests compare them with what the commands print now.
"""

import base64
import json
import re
from pathlib import Path

import pages as site
import pytest
import yaml

from latmon.cli import arguments, config, options
from latmon.cli.main import run as main
from latmon.support import theme
from latmon.tui.keys import ACTIONS
from latmon.views.selection import ASIDES, PANELS, SCREENS

ROOT = Path(__file__).resolve().parents[2]
PAGES = site.pages()
VIEWS = sorted(ROOT.glob("docs/views/*.md"))
CONFIG = (ROOT / "docs" / "CONFIG.md").read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"(?m)^#+ (.*)$", page.read_text(encoding="utf-8"))
    return {site.anchor(title) for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_a_file_and_a_heading_that_exist(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        if ":" in name:
            continue
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_site_has_each_page_once():
    listed = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    named = [one for item in listed for one in ([item] if isinstance(item, str) else next(iter(item.values())))]
    assert sorted(named) == sorted(str(page.relative_to(ROOT)) for page in PAGES)


def test_what_a_page_links_to_is_on_the_site(tmp_path):
    site.stage(tmp_path)
    for page in PAGES:
        copy = tmp_path / page.relative_to(ROOT)
        assert copy.read_bytes() == page.read_bytes()
        for link in re.findall(r"\]\(([^)\s#]+)", page.read_text("utf-8")):
            target = page.parent / link
            assert ":" in link or not target.is_file() or (copy.parent / link).exists(), link


def test_a_quoted_screen_is_a_picture_on_the_site(tmp_path):
    page = tmp_path / "page.md"
    command = "demo --once --duration 20s --screen who --size 80x24"
    quote = f"<!-- latmon {command} -->\n\n```text\n$ latmon\n a screen\n```\n"
    text = site.with_pictures(f"# Title\n\n{quote}\nProse.\n", page)
    assert text == f"# Title\n\n![`latmon {command}`](page-screen-0.svg)\n\nProse.\n"
    assert "demo-db-07" in (tmp_path / "page-screen-0.svg").read_text("utf-8")


def test_a_quoted_report_stays_text_on_the_site(tmp_path):
    text = "<!-- latmon report a.latmon.jsonl.gz -->\n\n```text\n$ latmon\n```\n"
    assert site.with_pictures(text, tmp_path / "page.md") == text


def test_a_linked_cast_has_a_player_of_its_size_on_the_site():
    page = ROOT / "docs/incidents/emulex.md"
    text = site.with_players(page.read_text("utf-8"), page)
    (block,) = re.findall(r"```asciinema-player\n(.*?)\n```", text, re.DOTALL)
    options = json.loads(block)
    cast = (page.parent / "casts/emulex.cast").read_bytes()
    header = json.loads(cast.splitlines()[0])
    assert (options["cols"], options["rows"]) == (header["width"], header["height"])
    assert base64.b64decode(options["file"].partition("base64,")[2]) == cast


def test_each_screen_has_a_page_with_its_picture_and_every_quote_is_filled():
    shown = set()
    for page in VIEWS:
        for command, quoted in site.QUOTE.findall(page.read_text("utf-8")):
            words = command.split()
            assert quoted.startswith(f"$ latmon {command}\n"), "make incidents ARGS=views fills it"
            shown.add(arguments.parse(words).screen or "overview" if words[0] == "demo" else words[0])
        assert page.name == "README.md" or f"({page.name})" in (page.parent / "README.md").read_text("utf-8")
    assert shown == {*PANELS, *SCREENS, *ASIDES, "diff"}


@pytest.mark.slow
@pytest.mark.parametrize("page", VIEWS, ids=lambda page: page.stem)
def test_a_quoted_screen_is_what_its_command_prints(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT / "docs/incidents")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for command, quoted in site.QUOTE.findall(page.read_text("utf-8")):
        assert main(command.split()) == 0
        printed = capsys.readouterr().out.splitlines()
        lines = [line for line in quoted.splitlines()[1:] if line and not line.startswith("  …")]
        assert [line for line in lines if line not in printed] == []


def keys(section: str) -> set[str]:
    """Return the names in the first column of a section's table."""
    text = CONFIG.split(f"\n## {section}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {key for cell in rows for key in re.findall(r"`(\w+)`", cell)}


def test_every_key_of_the_config_is_described():
    assert keys("Keys") == {*options.SETTINGS, *config.SECTIONS}


def test_the_environment_and_the_exit_codes_are_those_of_the_help():
    """The shell's variables of ./bootstrap are of no program that has a help."""
    of_bootstrap = {"LATMON_VENV", "PYTHON"}
    helped = {name for names in arguments.ENVIRONMENT for name in names.split(", ")}
    assert keys("Environment") - of_bootstrap == helped
    table = (ROOT / "docs" / "CLI.md").read_text(encoding="utf-8").split("| exit code | meaning |\n|---|---|\n")[1]
    rows = [line.strip("| ").split(" | ") for line in table.split("\n\n")[0].splitlines()]
    assert {code: text.partition(" ([")[0] for code, text in rows} == arguments.EXIT_CODES


def test_every_key_of_a_theme_is_described():
    assert keys("Themes") == {"name", "dark", "colours", "colours_16", "heatmap"}
    assert all(f"`{role}`" in CONFIG for role in (*theme.ROLES, *theme.ACCENTS))


def test_every_theme_and_every_ramp_is_described_and_offered(capsys):
    themes = re.findall(r"(?m)^\| ((?:`[\w-]+` ?)+)\|", CONFIG.split("| theme | for |")[1].split("| key |")[0])
    names = re.findall(r"`([\w-]+)`", " ".join(themes))
    assert names == [*theme.OUR_THEMES, theme.AUTO, *theme.OUR_RAMPS]
    with pytest.raises(SystemExit):
        arguments.parse(["--help"])
    offered = " ".join(capsys.readouterr().out.split())
    assert f"{', '.join(theme.OUR_THEMES)} or one of your own" in offered.replace("colour- blind", "colour-blind")
    assert f"auto, {', '.join(theme.OUR_RAMPS)} or one of your own" in offered


def test_the_readme_fits_on_its_page():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 100


def test_each_letter_that_is_a_key_is_in_the_table_of_keys():
    """`A` was in no document."""
    section = (ROOT / "docs/CLI.md").read_text(encoding="utf-8").partition("\n## Keys\n")[2].partition("\n## ")[0]
    quoted = set(re.findall(r"`([^`]+)`", section)) | set("hjkl")
    letters = {action.shown for action in ACTIONS if len(action.shown) == 1 and action.shown.isalpha()}
    assert letters - quoted == set()
