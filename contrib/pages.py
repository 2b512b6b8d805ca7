"""Builder of the documents as a site: `make site` writes dist/site, by mkdocs of pyproject.toml's extra `docs`.

Pages and what they link to are copied to .cache/site in the places that they have here, so that each link is the same
on the site. A link or an anchor that leads nowhere fails the build. mkdocs imports this module, too, for the anchors.

A page that quotes a screen has its picture on the site, by the command of the quote; a link to a cast gets a player.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STAGED, TOOLS = ROOT / ".cache/site", ROOT / ".cache/site-venv"
STYLE = "contrib/site.css"
_LINK = re.compile(r"\]\(([^)\s#]+)")
QUOTE = re.compile(r"<!-- latmon ([^>]*) -->\n\n```text\n(.*?)```", re.DOTALL)
"""Command and quoted output."""
_LINKED_CAST = re.compile(r"^.*\]\(([^)]*\.cast)\).*\n", re.MULTILINE)


def pages() -> list[Path]:
    """Return the documents."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def anchor(title: str, _separator: str = "-") -> str:
    """Return the anchor of a heading as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def on_config(config: Any) -> Any:
    """Have mkdocs make GitHub's anchors."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor
    return config


def linked(page: Path) -> Iterator[Path]:
    """Yield the files that a page links to."""
    for name in _LINK.findall(page.read_text("utf-8")):
        target = (page.parent / name).resolve()
        if ":" not in name and target.is_file():
            yield target


def stage(into: Path) -> None:
    """Copy the documents and the files that they link to."""
    shutil.rmtree(into, ignore_errors=True)
    files = {*pages(), ROOT / STYLE}
    for page in pages():
        files.update(linked(page))
    for file in sorted(files):
        target = into / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def illustrate(into: Path) -> None:
    """Put pictures of screens and players of casts into the copied pages."""
    for page in pages():
        staged = into / page.relative_to(ROOT)
        text = with_pictures(page.read_text("utf-8"), staged)
        staged.write_text(with_players(text, page), "utf-8")


def with_pictures(text: str, staged: Path) -> str:
    """Return the text of a page with a picture beside it in place of each quoted screen."""

    def picture(match: re.Match[str]) -> str:
        command = match[1]
        if "--once" not in command.split():
            return match[0]
        number = text[: match.start()].count("<!-- latmon ")
        file = staged.with_name(f"{staged.stem}-screen-{number}.svg")
        words = [word for word in shlex.split(command) if word != "--once"]
        subprocess.run([sys.executable, "-m", "latmon", *words, "--svg", str(file)], check=True, cwd=ROOT)  # noqa: S603 - a document's own words
        return f"![`latmon {command}`]({file.name})"

    return QUOTE.sub(picture, text)


def with_players(text: str, page: Path) -> str:
    """Return the text of a page with a player after each line that links a cast.

    The cast is a part of the page, because a browser reads no other file for a page that is itself a file.
    """

    def player(match: re.Match[str]) -> str:
        cast = (page.parent / match[1]).read_bytes()
        header = json.loads(cast.splitlines()[0])
        data = base64.b64encode(cast).decode("ascii")
        options = {
            "file": f"data:text/plain;base64,{data}",
            "cols": header["width"],
            "rows": header["height"],
            "mkap_theme": "none",
            "terminal_font_family": "monospace",
            "terminal_line_height": 1.2,
        }
        return f"{match[0]}\n```asciinema-player\n{json.dumps(options)}\n```\n"

    return _LINKED_CAST.sub(player, text)


def main() -> int:
    """Build the site; return mkdocs' exit code."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]["docs"]
    installed, packages = TOOLS / "installed.txt", "\n".join(wanted)
    if not installed.exists() or installed.read_text("utf-8") != packages:
        venv.create(TOOLS, with_pip=True, clear=True)
        pip = (TOOLS / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        subprocess.run([*pip, *wanted], check=True)  # noqa: S603 - our own words
        installed.write_text(packages, "utf-8")
    stage(STAGED)
    illustrate(STAGED)
    return subprocess.run([TOOLS / "bin/mkdocs", "build", "--strict", "--quiet"], check=False, cwd=ROOT).returncode  # noqa: S603 - our own words


if __name__ == "__main__":
    sys.exit(main())
