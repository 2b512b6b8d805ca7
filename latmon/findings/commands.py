"""Commands that steps of several rules offer, one line that can be copied, and which foreign names may stand in one."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[\w!.:-]+", re.ASCII)


def plain(name: str) -> bool:
    """Nothing in it means something to a shell; a leading dash would be an option."""
    return bool(_PLAIN.fullmatch(name)) and not name.startswith("-")


def sysfs(name: str) -> str:
    """A disk's directory; of one with an odd name the place for it."""
    return f"/sys/block/{name if plain(name) else 'DEVICE'}"


def threads(called: str, *, is_sun: bool) -> str:
    """Shows class, priority and CPU of threads: of one, told as comm (prio N), or of all."""
    name = called.rpartition(" (prio ")[0]
    only = f" | grep -w {name}" if plain(name) else ""
    return f"ps -eLo {'pid,lwp,class,pri,psr,comm' if is_sun else 'tid,cls,rtprio,psr,pcpu,comm'}{only}"
