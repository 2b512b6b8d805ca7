"""Builder of the documents as a site: `make site` writes dist/site, by mkdocs of pyproject.toml's extra `docs`.

Pages and what they link to are copied to .cache/site in the places that they have here, so that each link is the same
on the site. A link or an anchor that leads nowhere fails the build. mkdocs imports this module, too, for the anchors.
"""

from __future__ import annotations

import re
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
_LINK = re.compile(r"\]\(([^)\s#]+)")


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
    for file in {*pages(), *(one for page in pages() for one in linked(page))}:
        target = into / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def main() -> int:
    """Build the site; return mkdocs' exit code."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]["docs"]
    if not (TOOLS / "bin/mkdocs").exists():
        venv.create(TOOLS, with_pip=True, clear=True)
        pip = (TOOLS / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        subprocess.run([*pip, *wanted], check=True)  # noqa: S603 - our own words
    stage(STAGED)
    return subprocess.run([TOOLS / "bin/mkdocs", "build", "--strict", "--quiet"], check=False, cwd=ROOT).returncode  # noqa: S603 - our own words


if __name__ == "__main__":
    sys.exit(main())
