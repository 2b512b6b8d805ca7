"""Check of the privilege that the probe child gets: root, `sudo -n` or capabilities. latmon itself needs none."""

from __future__ import annotations

import re

from latmon.doctor.check import Check, Place, Status
from latmon.errors import UnavailableError
from latmon.tools import find_tool

_EFFECTIVE = re.compile(rb"^CapEff:\s*([0-9a-f]+)", re.MULTILINE)
_WANTED = {"CAP_BPF": 39, "CAP_PERFMON": 38, "CAP_DAC_READ_SEARCH": 2, "CAP_DAC_OVERRIDE": 1}
"""bpftrace takes these instead of root since 0.25; CAP_SYS_ADMIN holds the first two."""
_SYS_ADMIN = 21


def privilege(place: Place) -> Check:
    """How a probe could be started by this user."""
    capable = _missing(place)
    if place.uid == 0:
        if "CAP_BPF" in capable:
            what = "root without CAP_BPF and CAP_SYS_ADMIN, as in a container: probes are refused"
            return Check("privilege", Status.DEGRADED, what, "run latmon on the host")
        return Check("privilege", Status.OK, "root")
    if not capable:
        return Check("privilege", Status.OK, "capabilities (bpftrace honours them since 0.25)")
    code, _ = place.run(["sudo", "-n", "-l", _tool(place)])
    if code == 0:
        return Check("privilege", Status.OK, "sudo starts the probe without a password")
    what = "not root, and sudo is not installed" if code == 127 else "not root, and sudo wants a password"  # noqa: PLR2004  # the shell's own number
    remedy = "run latmon as root" if code == 127 else "sudo latmon, or run `sudo -v` first"  # noqa: PLR2004
    return Check("privilege", Status.DEGRADED, f"{what}: only the kernel's counters can be shown", remedy)


def _tool(place: Place) -> str:
    try:
        return str(find_tool("bpftrace", "LATMON_BPFTRACE", place.environ))
    except UnavailableError:
        return "true"


def _missing(place: Place) -> frozenset[str]:
    found = _EFFECTIVE.search(place.read(place.proc / "self/status"))
    held = int(found.group(1), 16) if found else 0
    if held >> _SYS_ADMIN & 1:
        held |= 1 << _WANTED["CAP_BPF"] | 1 << _WANTED["CAP_PERFMON"]
    return frozenset(name for name, bit in _WANTED.items() if not held >> bit & 1)
