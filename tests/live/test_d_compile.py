"""The scripts of systems that this host isn't, through a real compiler of D: syntax, types, keys, formats.

A prelude (tests/d_compile/PLATFORM.d) replaces the platform's types, clocks its hooks. What it can't show is
whether the hooks exist there and when they fire. The DTrace is that of LATMON_DTRACE, else of tests/lab/dtrace-in.
"""

import os
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from fake_dtrace import manifests

from latmon.model.histogram import BITS
from tests.d_compile.checks import values
from tests.d_compile.stubs import prelude

pytestmark = pytest.mark.dtrace

ROOT = Path(__file__).parents[2]
DTRACE = shlex.split(os.environ.get("LATMON_DTRACE") or str(ROOT / "tests/lab/dtrace-in"))
ELSEWHERE = ("illumos", "freebsd")
EVERY = [one for one in manifests() if one.tool == "dtrace"]
SCRIPTS = [one for one in EVERY if one.platform in ELSEWHERE]


def compiled(platform, *manifests, change=lambda text: text):
    """The compiler's errors, empty without any. Through a pipe, for DTrace may see no file of ours."""
    stub = prelude(platform)
    text = stub.program(*(change(manifest.program(values(manifest, platform))) for manifest in manifests))
    ran = subprocess.run(
        [*DTRACE, "-e", "-q", "-s", "/dev/stdin"], input=text, capture_output=True, text=True, timeout=120, check=False
    )
    assert bool(ran.returncode) == bool(ran.stderr), ran
    return ran.stderr


@pytest.mark.parametrize("manifest", SCRIPTS, ids=lambda one: one.name)
def test_script_compiles(manifest):
    assert compiled(manifest.platform, manifest) == ""


def meant_for(platform):
    """FreeBSD's io gives its own structs, not the translated ones that io_d and resume_d read: devstat is there instead
    of the one, and the other's hooks are not there."""
    portable = (
        ("wakeups_d",)
        if platform == "freebsd"
        else [manifest.name for manifest in EVERY if manifest.platform == "portable"]
    )
    return [manifest for manifest in EVERY if manifest.platform == platform or manifest.name in portable]


@pytest.mark.parametrize(("platform", "bits"), [("illumos", BITS), ("illumos", 0), ("freebsd", BITS)])
def test_all_scripts_of_a_platform_compile_as_one_program(platform, bits):
    """They share one name space: a this-> of one type in one script can't be of another in the next."""
    together = [replace(manifest, bits=bits) for manifest in meant_for(platform)]
    assert len(together) > 1
    assert compiled(platform, *together) == ""


@pytest.mark.parametrize(
    ("old", "new", "output"),
    [
        (r"bio_bcount", "bio_bcounts", "bio_bcounts is not a member"),
        (r"geom_tokens--;", "geom_tokens--", "syntax error"),
        (r"geom_level\\t%s\\t%@d", r"geom_level\\t%s\\t%s\\t%@d", "missing a corresponding value argument"),
        (r"@@ slow geom %u %s", "@@ slow geom %u %d", "incompatible with conversion"),
        (r"this->hba, cpu\);", "this->hba);", "missing a corresponding value argument"),
        (r"geom_begun\[\(uint64_t\)arg0\] = timestamp;", 'geom_begun[(uint64_t)arg0] = "now";', "incompatible types"),
        (r"geom_tokens = 40;", "", "geom_tokens"),
    ],
)
def test_the_compiler_finds_what_is_planted(old, new, output):
    [geom] = [manifest for manifest in SCRIPTS if manifest.name == "geom"]

    def change(text):
        changed, n = re.subn(old, new, text)
        assert n
        return changed

    assert output in compiled("freebsd", geom, change=change)
