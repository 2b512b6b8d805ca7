"""Builder of the package for Fedora, SUSE and their descendants, by rpmbuild, of the same files as deb.py's.

Where /usr/bin/python3 is older than 3.11, as on RHEL 9, the package can't be installed; the single file runs there with
another Python. It was built and unpacked on Debian alone: no Fedora and no SUSE has installed it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import deb

_SPEC = """Name: latmon
Version: {version}
Release: 1
Summary: {summary}
Packager: {packager}
License: Apache-2.0 AND MIT AND BSD-2-Clause AND PSF-2.0
BuildArch: noarch
Requires: python3 >= 3.11
Recommends: bpftrace
AutoReqProv: no

%description
{about}

%install
cp -a %{{_sourcedir}}/root/. %{{buildroot}}

%post
systemctl daemon-reload >/dev/null 2>&1 || :

%preun
if [ "$1" = 0 ]; then
    systemctl --now disable {services} >/dev/null 2>&1 || :
fi
find /{home} -type d -name __pycache__ -prune -exec rm -rf {{}} +

%postun
if [ "$1" = 0 ]; then
    rm -rf /var/cache/latmon
fi
systemctl daemon-reload >/dev/null 2>&1 || :

%changelog
* {day} {packager} - {version}-1
- Release of {released}: see changes.md.gz in the package's documents.

%files
%config(noreplace) /{config}
{files}
"""
_MACROS = {
    "__os_install_post": "%{nil}",
    "debug_package": "%{nil}",
    "use_source_date_epoch_as_buildtime": "1",
    "clamp_mtime_to_source_date_epoch": "1",
    "_buildhost": "localhost",
    "_binary_payload": "w9.gzdio",
}
"""Nothing is compiled or compressed again, and the same files give the same package."""
_WHOLE = (deb.HOME, "usr/share/doc/latmon")
"""Directories that are the package's own."""


def spec(root: Path, version: str) -> str:
    """Return the spec of the files below `root`."""
    names = [str(one.relative_to(root)) for one in sorted(root.rglob("*")) if one.is_file()]
    apart = [
        one for one in names if not one.startswith(tuple(f"{home}/" for home in _WHOLE)) and one != deb.SYSTEM_CONFIG
    ]
    released, seconds = deb.released()
    return _SPEC.format(
        version=version,
        released=released,
        day=time.strftime("%a %b %d %Y", time.gmtime(seconds)),
        packager=deb.maintainer(),
        summary=deb.SUMMARY[:1].upper() + deb.SUMMARY[1:],
        about=deb.ABOUT,
        services=deb.SERVICES,
        home=deb.HOME,
        config=deb.SYSTEM_CONFIG,
        files="\n".join(f"/{one}" for one in (*_WHOLE, *apart)),
    )


def write(version: str, tree: Path, share: Path, out: Path) -> Path:
    """Build the package into a directory and return its path; `tree` and `share` as for deb.write."""
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        root = top / "SOURCES/root"
        root.mkdir(parents=True)
        deb.lay_out(root, tree, share)
        deb.settle(root)
        (top / "latmon.spec").write_text(spec(root, version), "utf-8")
        macros = [word for name, value in _MACROS.items() for word in ("--define", f"{name} {value}")]
        words = ("rpmbuild", "-bb", "--quiet", "--define", f"_topdir {top}", *macros, str(top / "latmon.spec"))
        environ = {**os.environ, "SOURCE_DATE_EPOCH": str(deb.released()[1])}
        subprocess.run(words, check=True, env=environ, stdout=subprocess.DEVNULL)  # noqa: S603 - our own words
        (built,) = (top / "RPMS").rglob("*.rpm")
        return Path(shutil.copy(built, out))
