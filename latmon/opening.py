"""From a request to an open backend; `auto` is the best one that opens here, with the reason for a lesser one.

Knows backends by name only. Whether one can run is found by opening it, never by a version.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from latmon import registry
from latmon.backend import Backend
from latmon.errors import UnavailableError, UsageError
from latmon.request import Request

AUTO = "auto"
Load = Callable[[str], Callable[..., Backend]]
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
        try:
            backend = await stack.enter_async_context(load("bpftrace")(**_arguments(request)))
        except UnavailableError as refusal:
            lesser = load("procfs")(**_arguments(request), reason=str(refusal))
            backend = await stack.enter_async_context(lesser)
        yield backend


def _arguments(request: Request) -> dict[str, Any]:
    if request.backend == "demo":
        return {"scenario": request.scenario, "seed": request.seed}
    return {"options": request.options}
