"""Builder of the package for Debian and its descendants, by dpkg-deb from the tree of the single file.

Debian 12 and 13 have no current Textual, so the package carries latmon's packages itself, as files below
/usr/share/latmon: as root they need no copy, and dpkg knows each of them. psutil is no dependency, because no Linux
needs it. Services are installed and neither enabled nor started: they measure all the time.
"""

from __future__ import annotations

import calendar
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
HOME = "usr/share/latmon"
SYSTEM_CONFIG = "etc/xdg/latmon/config.yaml"
_MAINTAINER = "latmon maintainers <latmon@localhost>"
"""The project has no public address; DEBEMAIL and DEBFULLNAME, as Debian's tools read them, replace it."""
SUMMARY = "shows in real time where I/O latency hides on a host"
ABOUT = """latmon shows, in a terminal and in real time, where I/O latency hides on a
host: a heat map per device, the stages of each I/O from queue to wake-up,
outstanding I/O, outliers, and findings in words. It records, compares and
replays, and serves Prometheus.

With bpftrace the kernel counts, and one summary per second is read. Without
it latmon shows the kernel's own counters."""
_DOC = "usr/share/doc/latmon"
_COMMAND = f"""#!/bin/sh
exec /usr/bin/python3 -I /{HOME} "$@"
"""
_CONTROL = """Package: latmon
Version: {version}
Architecture: all
Maintainer: {maintainer}
Installed-Size: {size}
Depends: python3 (>= 3.11)
Recommends: bpftrace
Suggests: python3-bcrypt
Section: admin
Priority: optional
Description: {summary}
 {about}
"""
SERVICES = "latmon-exporter.socket latmon-exporter.service latmon-watch.service"
_SCRIPTS = {
    "postinst": """#!/bin/sh
set -e
if [ "$1" = configure ] && command -v py3compile >/dev/null 2>&1; then
    py3compile -p latmon /usr/share/latmon
fi
if [ -d /run/systemd/system ]; then
    deb-systemd-invoke daemon-reload >/dev/null 2>&1 || true
fi
""",
    "prerm": f"""#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    deb-systemd-invoke stop {SERVICES} >/dev/null 2>&1 || true
fi
if command -v py3clean >/dev/null 2>&1; then
    py3clean -p latmon
else
    find /usr/share/latmon -type d -name __pycache__ -prune -exec rm -rf {{}} +
fi
""",
    "postrm": f"""#!/bin/sh
set -e
if [ "$1" = purge ]; then
    deb-systemd-helper purge {SERVICES} >/dev/null 2>&1 || true
    rm -rf /var/cache/latmon
fi
if [ -d /run/systemd/system ]; then
    deb-systemd-invoke daemon-reload >/dev/null 2>&1 || true
fi
""",
}
"""Recordings of the service, in /var/lib/latmon, are data and outlast a purge."""
_OVERRIDES = """# The project has no public address of its own; whoever publishes the package sets DEBEMAIL.
latmon: bogus-mail-host
latmon: bogus-mail-host-in-debian-changelog
"""
_COPYRIGHT = """latmon is licensed under the Apache License, Version 2.0; on Debian systems the
text is in /usr/share/common-licenses/Apache-2.0.

Below /usr/share/latmon the package also has these packages, each with its own
copyright and licence:
"""


def released() -> tuple[str, int]:
    """Return the day of the newest release in CHANGELOG.md, as text and as seconds since 1970."""
    found = re.search(r"^## \[[0-9.]+\] - (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise ValueError("CHANGELOG.md has no release with its day: ## [0.1.0] - 2026-11-21")
    return found[1], calendar.timegm(time.strptime(found[1], "%Y-%m-%d"))


def maintainer() -> str:
    """Return name and address for the package."""
    address = os.environ.get("DEBEMAIL", "")
    return f"{os.environ.get('DEBFULLNAME', 'latmon maintainers')} <{address}>" if address else _MAINTAINER


def _put(root: Path, name: str, text: str | bytes) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)


def _packed(text: str | bytes) -> bytes:
    return gzip.compress(text.encode() if isinstance(text, str) else text, 9, mtime=0)


def lay_out(root: Path, tree: Path, share: Path) -> None:
    """Write the files of any package below `root`; `tree` and `share` are those of the single file and of manual.py."""
    shutil.copytree(tree, root / HOME)
    _put(root, "usr/bin/latmon", _COMMAND)
    _put(root, SYSTEM_CONFIG, (ROOT / "latmon/cli/sample.yaml").read_bytes())
    for file in (one for one in share.rglob("*") if one.is_file()):
        name, data = f"usr/share/{file.relative_to(share)}", file.read_bytes()
        _put(root, *((f"{name}.gz", _packed(data)) if file.suffix == ".1" else (name, data)))
    for unit in sorted((HERE / "systemd").glob("latmon-*")):
        text = unit.read_text("utf-8").replace("/usr/local/bin/latmon", "/usr/bin/latmon")
        _put(
            root,
            f"usr/lib/systemd/system/{unit.name}",
            re.sub(r"\A# Copy .*to /etc/systemd/system, then:", "# To start it:", text),
        )
    _put(root, f"{_DOC}/copyright", copyright_of(root / HOME))
    for page in sorted((ROOT / "docs").glob("*.md")):
        _put(root, f"{_DOC}/{page.name}", page.read_bytes())
    _put(root, f"{_DOC}/changes.md.gz", _packed((ROOT / "CHANGELOG.md").read_bytes()))


def _of_debian(root: Path, version: str) -> None:
    """Write the files that only Debian's package has."""
    day, seconds = released()
    stamp = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(seconds))
    lines = (f"latmon ({version}) unstable; urgency=medium", f"  * Release of {day}: see changes.md.gz beside this.")
    entry = "\n\n".join((*lines, f" -- {maintainer()}  {stamp}\n"))
    _put(root, f"{_DOC}/changelog.gz", _packed(entry))
    _put(root, "usr/share/lintian/overrides/latmon", _OVERRIDES)


def settle(root: Path) -> None:
    """Set modes and times, which are the same each time."""
    seconds = released()[1]
    for one in (root, *root.rglob("*")):
        is_program = one.is_dir() or one.parent.name == "bin" or one.name in _SCRIPTS
        one.chmod(0o755 if is_program else 0o644)
        os.utime(one, (seconds, seconds))


def copyright_of(tree: Path) -> str:
    """Return the licences of latmon and of all packages in the tree, whose own files of them are removed."""
    parts = [_COPYRIGHT]
    for about in sorted(tree.glob("*.dist-info")):
        found = [
            one
            for one in sorted(about.rglob("*"))
            if re.match(r"(LICEN[CS]E|COPYING|AUTHORS)", one.name) and one.is_file()
        ]
        if not about.name.startswith("latmon-"):
            title = about.name.removesuffix(".dist-info")
            parts += [f"\n{'=' * 70}\n{title}\n{'=' * 70}\n", *(one.read_text("utf-8") for one in found)]
        for one in found:
            one.unlink()
    return "".join(parts)


def write(version: str, tree: Path, share: Path, out: Path) -> Path:
    """Build the package into a directory, the same bytes each time, and return its path."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "latmon")
        root.mkdir()
        lay_out(root, tree, share)
        _of_debian(root, version)
        files = sorted(one for one in root.rglob("*") if one.is_file())
        size = sum(-(-one.stat().st_size // 1024) for one in files)
        sums = "".join(
            f"{hashlib.md5(one.read_bytes(), usedforsecurity=False).hexdigest()}  {one.relative_to(root)}\n"
            for one in files
        )
        words = {"version": version, "maintainer": maintainer(), "size": size, "summary": SUMMARY}
        _put(
            root, "DEBIAN/control", _CONTROL.format(**words, about=ABOUT.replace("\n\n", "\n.\n").replace("\n", "\n "))
        )
        _put(root, "DEBIAN/md5sums", sums)
        _put(root, "DEBIAN/conffiles", f"/{SYSTEM_CONFIG}\n")
        for name, text in _SCRIPTS.items():
            _put(root, f"DEBIAN/{name}", text)
        settle(root)
        file = out / f"latmon_{version}_all.deb"
        words = ("dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(root), str(file))
        environ = {**os.environ, "SOURCE_DATE_EPOCH": str(released()[1])}
        subprocess.run(words, check=True, env=environ, stdout=subprocess.DEVNULL)  # noqa: S603 - our own words
        return file
