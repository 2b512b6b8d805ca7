"""Checks of what has to be installed: Python, the packages latmon stands on, and the probe tool."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, requires, version

from latmon.doctor.check import Check, Place, Status
from latmon.errors import UnavailableError
from latmon.text import clean
from latmon.tools import find_tool

_PYTHON = (3, 11)
_TESTED = (0, 17)
_PACKAGES = ("textual", "PyYAML", "psutil")
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


def python(_place: Place) -> Check:
    """The interpreter that runs latmon."""
    shown = f"{'.'.join(map(str, sys.version_info[:3]))} ({clean(sys.executable, 80)})"
    if sys.version_info >= _PYTHON:
        return Check("python", Status.OK, shown)
    return Check("python", Status.MISSING, f"{shown} is too old", "run latmon with Python 3.11 or newer")


def packages(_place: Place) -> tuple[Check, ...]:
    """One check per package: installed, and which version."""
    return tuple(_package(name) for name in _PACKAGES)


def _package(name: str) -> Check:
    try:
        return Check(name.lower(), Status.OK, clean(version(name)))
    except PackageNotFoundError:
        return Check(name.lower(), Status.MISSING, "not installed", f"pip install '{_requirement(name)}'")


def _requirement(name: str) -> str:
    """What our own metadata asks for (`textual>=8.2,<9`); the bare name in a checkout that was never installed."""
    try:
        wanted = requires("latmon") or []
    except PackageNotFoundError:
        wanted = []
    return next((each for each in wanted if each.lower().startswith(name.lower())), name)


def bpftrace(place: Place) -> Check:
    """The tool that measures: where it is and how old."""
    try:
        path = find_tool("bpftrace", "LATMON_BPFTRACE", place.environ)
    except UnavailableError as error:
        # A path that the user named is mended by naming another one; only an absent package can be installed.
        named = place.environ.get("LATMON_BPFTRACE")
        remedy = "set LATMON_BPFTRACE to a bpftrace that runs, or unset it" if named else place.install("bpftrace")
        return Check("bpftrace", Status.MISSING, str(error), remedy)
    code, text = place.run([str(path), "--version"])
    found = _VERSION.search(text)
    if code != 0 or found is None:
        said = clean(text.strip(), 80) or f"exit code {code}"
        return Check("bpftrace", Status.MISSING, f"{path} doesn't run: {said}", place.install("bpftrace"))
    if tuple(map(int, found.groups()[:2])) < _TESTED:
        what = f"{found.group()} ({path}) is older than 0.17, the oldest that latmon is tested with"
        return Check("bpftrace", Status.DEGRADED, what, "install a newer one and name it in LATMON_BPFTRACE")
    return Check("bpftrace", Status.OK, f"{found.group()} ({path})")
