"""A /proc with a hierarchy of cgroups, for readers of a controller's files."""

from __future__ import annotations

from concurrent.futures import Future


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class CgroupHost:
    """The hierarchy of a controller, of version 1 or 2, and /proc/self/mountinfo that names it."""

    def __init__(self, root, version, controller):
        self.proc, self.cgroups, self.version = root / "proc", root / "cg", version
        kind = "cgroup2 cgroup2 rw" if version == 2 else f"cgroup cgroup rw,{controller}"
        put(self.proc / "self/mountinfo", f"30 1 0:26 / {self.cgroups} rw - {kind}\n")
        self.cgroups.mkdir()


def at_once(call):
    """Return the future of a call that was made here, in place of one on a thread."""
    done = Future()
    done.set_result(call())
    return done
