"""Builder of a release: `make dist` writes wheel, sdist, single file, man pages, deb, rpm, SBOM, checksums to dist/.

The build tools are those of contrib/build.lock, of which pip compares the hashes. The wheel is built of the tree and of
the unpacked sdist, and both must have the same bytes. The SBOM is CycloneDX 1.5 (https://cyclonedx.org/docs/1.5/json/)
of contrib/requirements.lock, which has the versions that a release was tested with and the hashes of their files.
The single file is a zip archive for Python: the wheel and the packages of that lock without their C code, run by
zip_main.py. psutil is left out, because no system with /proc/diskstats needs it. manual.py makes the man pages and
completions below dist/share. deb.py and rpm.py pack them with the tree of the single file, where there is
dpkg-deb, rpmbuild. Beside latmon's parsers all here is the standard library's.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
import venv
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deb
import manual
import rpm

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RUNTIME, BUILD = HERE / "requirements.lock", HERE / "build.lock"
_PACKAGE = re.compile(
    r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+)(?P<rest>(?: ;[^\\\n]*)?(?: \\\n +--hash=sha256:[0-9a-f]{64})+)$",
    re.MULTILINE,
)
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[([^]]*)\])?")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:")
_RUNS = b"#!/usr/bin/python3 -I\n"
"""First line of the single file. A name that is looked up in PATH could be another user's under sudo."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
_COMPILED = ("psutil", "_yaml")
"""Directories that are C code, and Python that is of no use without it."""
_NOT_SHIPPED = frozenset({".so", ".pyc"})
_OF_PIP = frozenset({"RECORD", "INSTALLER", "REQUESTED", "WHEEL", "direct_url.json"})
"""Files on an installation, which have paths and hashes of one host."""
_BUILDS = "import sys; from hatchling import build; print(getattr(build, f'build_{sys.argv[1]}')(sys.argv[2]))"


@dataclass(frozen=True, slots=True)
class Package:
    """A package of a lock file, with the hashes (sha256) of all of its files."""

    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def purl(self) -> str:
        """Package URL (https://github.com/package-url/purl-spec)."""
        return f"pkg:pypi/{self.name}@{self.version}"


def locked(text: str) -> tuple[Package, ...]:
    """Return the packages of a lock file in its order. ValueError for a line that is none of one, and for no hash."""
    left = _PACKAGE.sub("", text)
    if wrong := next((line for line in left.splitlines() if line.strip() and not line.startswith("#")), ""):
        raise ValueError(f"no package with its version and hashes: {wrong!r}")
    return tuple(
        Package(one["name"], one["version"], (*_HASH.findall(one["rest"]),)) for one in _PACKAGE.finditer(text)
    )


def normal(name: str) -> str:
    """Return a package's name as the lock files have it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def required(lines: Sequence[str], extra: str = "") -> set[str]:
    """Return the names in requirements (PEP 508), with those of the extras that they name; `extra`: of this one alone.

    Markers of systems and versions are not evaluated: the lock file is for all of them.
    """
    found: set[str] = set()
    for line in lines:
        marked = re.search(r"extra == ['\"]([^'\"]+)", line)
        if (marked[1] if marked else "") != extra:
            continue
        if one := _REQUIREMENT.match(line):
            found.add(normal(one[1]))
            for name in filter(None, re.split(r"[, ]+", one[2] or "")):
                found |= required(importlib.metadata.requires(one[1]) or [], name)
    return found


def bill(wheel: Path, packages: tuple[Package, ...]) -> dict[str, Any]:
    """Return the SBOM: latmon's wheel, the packages that it needs, and who needs whom. It has no time of its own."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    latmon = Package("latmon", wheel.name.split("-")[1], (digest,))
    by_name = {one.name: one for one in packages}
    needs = {latmon.purl: required(declared["dependencies"])}
    needs |= {one.purl: required(importlib.metadata.requires(one.name) or []) for one in packages}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {"component": _component(latmon, "application", {"license": {"id": declared["license"]}})},
        "components": [_component(one, "library", _licence(one.name)) for one in packages],
        "dependencies": [
            {"ref": purl, "dependsOn": sorted(by_name[name].purl for name in names if name in by_name)}
            for purl, names in needs.items()
        ],
    }


def _component(one: Package, kind: str, licence: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "type": kind,
        "bom-ref": one.purl,
        "name": one.name,
        "version": one.version,
        "purl": one.purl,
        "hashes": [{"alg": "SHA-256", "content": found} for found in one.hashes],
        **({"licenses": [licence]} if licence else {}),
    }


def _licence(name: str) -> dict[str, Any] | None:
    """Return the licence in a package's own words; None where it has none."""
    about = importlib.metadata.metadata(name)
    if "License-Expression" in about:
        return {"expression": about["License-Expression"]}
    words = about.get("License", "")
    if re.fullmatch(r"[A-Za-z0-9.+-]{1,40}", words):
        return {"license": {"name": words}}
    classified = [one.rpartition(" :: ")[2] for one in about.get_all("Classifier", []) if one.startswith("License ::")]
    return {"license": {"name": classified[0]}} if classified else None


def _run(*words: str | Path, cwd: Path = ROOT) -> str:
    return subprocess.run([str(one) for one in words], cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603 - our own words


def _builder(directory: Path) -> Path:
    """Return a Python that has the build tools of the lock file."""
    venv.create(directory, with_pip=True)
    python = directory / "bin/python"
    _run(python, *_PIP, "--require-hashes", "-r", BUILD)
    return python


def unpack(python: Path, wheel: Path, tree: Path) -> None:
    """Install latmon's wheel and the packages of the lock into the tree of the single file."""
    into = ("--no-compile", "--no-deps", "--target", tree)
    _run(python, *_PIP, *into, "--require-hashes", "-r", RUNTIME)
    shutil.rmtree(tree / "bin", ignore_errors=True)
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tree)  # noqa: S202 - made by us a moment ago
    strip(tree)


def strip(tree: Path) -> None:
    """Leave out what is for one host alone, C code first, and add the program that the archive runs."""
    for name in _COMPILED:
        for found in (tree / name, *tree.glob(f"{name}-*.dist-info")):
            shutil.rmtree(found, ignore_errors=True)
    for file in [one for one in tree.rglob("*") if one.is_file()]:
        if file.suffix in _NOT_SHIPPED or (file.name in _OF_PIP and file.parent.suffix == ".dist-info"):
            file.unlink()
    shutil.copyfile(HERE / "zip_main.py", tree / "__main__.py")


def pack(tree: Path, file: Path) -> Path:
    """Write a tree as an archive that Python runs, the same bytes each time."""
    with file.open("wb") as out:
        out.write(_RUNS)
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
            for one in sorted(one for one in tree.rglob("*") if one.is_file()):
                entry = zipfile.ZipInfo(one.relative_to(tree).as_posix(), _EPOCH)
                packed.writestr(entry, one.read_bytes(), zipfile.ZIP_DEFLATED)
    file.chmod(0o755)
    return file


def _built(python: Path, kind: str, tree: Path, out: Path) -> Path:
    return out / _run(python, "-c", _BUILDS, kind, out, cwd=tree).splitlines()[-1]


def build(out: Path, python: Path) -> tuple[Path, Path]:
    """Build wheel and sdist of the tree into a directory. ValueError where the sdist gives another wheel."""
    wheel, sdist = (_built(python, kind, ROOT, out) for kind in ("wheel", "sdist"))
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(sdist) as archive:
            if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and later; Debian 12 has 3.11.2
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(scratch)  # noqa: S202 - it was built right before
        (tree,) = Path(scratch).iterdir()
        again = Path(scratch, "again")
        again.mkdir()
        if _built(python, "wheel", tree, again).read_bytes() != wheel.read_bytes():
            raise ValueError(f"{sdist.name} gives another wheel than the tree")
    return wheel, sdist


def main() -> int:
    """Build into dist/ and print the checksums."""
    out = ROOT / "dist"
    out.mkdir(exist_ok=True)
    packages = locked(RUNTIME.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as scratch:
        python = _builder(Path(scratch, "builder"))
        wheel, sdist = build(out, python)
        stem = wheel.name.removesuffix("-py3-none-any.whl")
        tree = Path(scratch, "tree")
        unpack(python, wheel, tree)
        single = pack(tree, out / f"{stem}.pyz")
        shutil.rmtree(out / "share", ignore_errors=True)
        manual.write(out / "share")
        built = [
            one.write(stem.split("-")[1], tree, out / "share", out)
            for tool, one in (("dpkg-deb", deb), ("rpmbuild", rpm))
            if shutil.which(tool)
        ]
    listed = out / f"{stem}.cdx.json"
    listed.write_text(json.dumps(bill(wheel, packages), indent=2) + "\n", "utf-8")
    files = (wheel, sdist, single, *built, listed, *sorted(one for one in out.glob("share/**/*") if one.is_file()))
    sums = "".join(f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.relative_to(out)}\n" for one in files)
    (out / "SHA256SUMS").write_text(sums, "utf-8")
    print(sums, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
