"""From a request to an open backend; `auto` is the best one that opens here, with the reason for a lesser one.

Knows backends by name only. Whether one can run is found by opening it, never by a version.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import AsyncIterator, Callable
from typing import Any

from latmon import registry
from latmon.backend import Backend
from latmon.errors import UnavailableError, UsageError
from latmon.request import Request

AUTO = "auto"
Load = Callable[[str], Callable[..., Backend]]
BEST = {"Linux": ("bpftrace", "dtrace"), "": ("dtrace",)}
"""By uname's name of a system, before procfs."""
FINITE = frozenset({"demo", "replay"})
"""Backends whose frames may end without anything having failed."""


def check(name: str) -> None:
    """UsageError for a name that --backend doesn't take; imports no backend."""
    known = (AUTO, *(one for one in registry.names() if one != "replay"))
    if name not in known:
        raise UsageError(f"--backend: there is no {name!r}; there are {', '.join(known)}")


@contextlib.asynccontextmanager
async def opened(request: Request, load: Load = registry.load) -> AsyncIterator[Backend]:
    """The request's backend, open. UnavailableError is one sentence why there is none."""
    async with contextlib.AsyncExitStack() as stack:
        if request.backend != AUTO:
            yield await stack.enter_async_context(load(request.backend)(**_arguments(request)))
            return
        yield await _best(stack, request, load)


async def _best(stack: contextlib.AsyncExitStack, request: Request, load: Load) -> Backend:
    """The first that opens; a lesser one says why the best doesn't."""
    reason = ""
    for name in BEST.get(platform.system(), BEST[""]):
        why = {"reason": reason} if reason else {}
        try:
            return await stack.enter_async_context(load(name)(**_arguments(request), **why))
        except UnavailableError as refusal:
            reason = reason or str(refusal)
    return await stack.enter_async_context(load("procfs")(**_arguments(request), reason=reason))


def _arguments(request: Request) -> dict[str, Any]:
    if request.backend == "demo":
        return {"scenario": request.scenario, "seed": request.seed}
    return {"options": request.options}
