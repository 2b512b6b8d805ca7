"""Tests of the documents: links and anchors resolve, docs/CONFIG.md lists every key of configs and themes."""

import dataclasses
import re
from pathlib import Path

import pytest

from latmon.cli import arguments, config
from latmon.support import theme

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/incidents/*.md")])
CONFIG = (ROOT / "docs" / "CONFIG.md").read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"(?m)^#+ (.*)$", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_a_file_and_a_heading_that_exist(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        if ":" in name:
            continue
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def keys(section: str) -> set[str]:
    """Return the names in the first column of a section's table."""
    text = CONFIG.split(f"\n## {section}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {key for cell in rows for key in re.findall(r"`(\w+)`", cell)}


def test_every_key_of_the_config_is_described():
    names = {one.name for one in dataclasses.fields(config.Config)}
    assert keys("Keys") == names - {"named_in", "ignored"}


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
