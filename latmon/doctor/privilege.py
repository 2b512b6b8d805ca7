"""Check of the privilege that the probe child gets: root, `sudo -n` or capabilities. latmon itself needs none."""

from __future__ import annotations

from latmon import capabilities
from latmon.doctor.check import Check, Place, Status

_PROBE = ("sudo", "-n", "sh", "-c", ":")
"""What runs the probe, with nothing to run: a rule for bpftrace alone doesn't cover the shell that ends it."""
_NOT_THERE = 127


def privilege(place: Place) -> Check:
    """How a probe could be started by this user."""
    if place.uid == 0:
        if "CAP_BPF" in capabilities.missing(place.proc):
            what = "root without CAP_BPF and CAP_SYS_ADMIN, as in a container: probes are refused"
            return Check("privilege", Status.DEGRADED, what, "run latmon on the host")
        return Check("privilege", Status.OK, "root")
    if not capabilities.missing_in_children(place.proc):
        return Check("privilege", Status.OK, "capabilities (bpftrace honours them since 0.25)")
    return by_sudo(place)


def by_sudo(place: Place) -> Check:
    """Whether sudo starts the probe without asking."""
    code, said = place.run(_PROBE)
    if code == 0:
        return Check("privilege", Status.OK, "sudo starts the probe without a password")
    what, remedy = _refused(code, said)
    return Check("privilege", Status.DEGRADED, f"not root, and {what}: only the kernel's counters can be shown", remedy)


def _refused(code: int, said: str) -> tuple[str, str]:
    """What sudo has against it, and what to do."""
    if code == _NOT_THERE:
        return "sudo is not installed", "run latmon as root"
    if "password is required" in said:
        return "sudo wants a password", "sudo latmon, or run `sudo -v` first"
    return "sudo may not start a shell for this user", "allow `sh` in sudoers, or run latmon as root"
