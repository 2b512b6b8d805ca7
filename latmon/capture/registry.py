"""The registry of backends by name, and the opening of one from a request; `auto` tries the best first.

Backends of latmon are a literal table, because a bare checkout has no entry points. Others are entry points of the
group `latmon.backends` and can't replace them. A backend is imported when it is opened. Whether it can run is found by
opening it, not by a version.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from latmon.capture.backend import Backend, Options
from latmon.model.redaction import Redaction
from latmon.support import trust
from latmon.support.errors import UnavailableError, UsageError

GROUP = "latmon.backends"
OWN = {
    "bpftrace": "latmon_backends.bpftrace.backend:BpftraceBackend",
    "dtrace": "latmon_backends.dtrace.backend:DtraceBackend",
    "procfs": "latmon_backends.procfs:ProcfsBackend",
    "fleet": "latmon_backends.fleet.backend:FleetBackend",
    "demo": "latmon_backends.demo.backend:DemoBackend",
    "replay": "latmon_backends.replay:ReplayBackend",
    "prometheus": "latmon_backends.prometheus:PrometheusBackend",
}
_CHECKOUT = Path(__file__).resolve().parents[2] / "backends"
AUTO = "auto"
Load = Callable[[str], Callable[..., Backend]]
BEST = {"Linux": ("bpftrace", "dtrace"), "": ("dtrace",)}
"""System name (uname) -> backends to try before procfs."""
FINITE = frozenset({"demo", "replay"})
"""Backends whose frames may end without an error."""
_APART = frozenset({"replay", "prometheus", "fleet"})
"""Backends that need more than the options of a capture: they are opened by commands of their own."""
_COMPILES = {
    "bpftrace": "bpftrace compiles its probes first, an old one for up to half a minute",
    "": "the probe tool compiles its probes first, an old bpftrace for up to half a minute",
    "dtrace": "dtrace compiles its probes first, for some seconds, on a busy host for up to a minute",
    "demo": "the demo makes its first windows",
    "fleet": "the hosts are connected, and those with latmon or bpftrace compile its probes",
    "prometheus": "",
}


def names() -> tuple[str, ...]:
    """Return the names of all backends, latmon's own first, without importing them."""
    return (*OWN, *sorted(name for name in _foreign() if name not in OWN))


def load(name: str) -> Callable[..., Any]:
    """Return a backend's class. UsageError for an unknown name, UnavailableError if it can't be imported."""
    target = OWN.get(name) or _foreign().get(name)
    if target is None:
        raise UsageError(f"There is no backend {name!r}; there are: {', '.join(names())}.")
    if name not in OWN and os.geteuid() == 0:
        trust.require_package(target.partition(":")[0].partition(".")[0])
    return load_target(name, target)


def load_target(name: str, target: str) -> Callable[..., Any]:
    """Import the callable `module:attribute`; UnavailableError calls it `name`."""
    module, _, attribute = target.partition(":")
    _find_checkout()
    try:
        loaded = getattr(import_module(module), attribute)
    except ImportError as error:
        raise UnavailableError(_sentence(name, module, error)) from error
    except AttributeError as error:
        raise UnavailableError(f"The backend {name} is broken: {module} has no {attribute}.") from error
    if not callable(loaded):
        raise UnavailableError(f"The backend {name} is broken: {target} is not a class.")
    return loaded  # type: ignore[no-any-return]  # the type of an entry point is not known


def _sentence(name: str, module: str, error: ImportError) -> str:
    package = (error.name or "").partition(".")[0]
    if package and package != module.partition(".")[0]:
        return f"The backend {name} needs the Python package {package}: install it with `pip install {package}`."
    return f"The backend {name} can't be loaded: {error}; install latmon again."


def _foreign() -> dict[str, str]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - takes 20 ms, and only foreign names need it

    return {point.name: point.value for point in entry_points(group=GROUP)}


def _find_checkout() -> None:
    """Add the directory of the backends to sys.path in a checkout that is not installed."""
    if _CHECKOUT.is_dir() and find_spec("latmon_backends") is None:
        sys.path.append(str(_CHECKOUT))


@dataclass(frozen=True, slots=True)
class Request:
    """A capture to run: `backend` is a name or `auto`; `record` is absolute; `scenario` and `seed` are the demo's."""

    backend: str = "auto"
    options: Options = field(default_factory=Options)
    record: Path | None = None
    duration_us: int | None = None
    max_size: int | None = None
    """Maximal size of all parts of the recording in bytes."""
    keep_us: int | None = None
    """Age from which on parts are deleted, since their end."""
    redact: bool = False
    resumes: bool = False
    """After an error the recording goes on in a new part, once that can be written."""
    scenario: str = "host"
    seed: int = 1
    hosts: tuple[str, ...] = ()
    """Hosts of the backend `fleet`, as ssh takes them."""
    store: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Arguments of the backend `prometheus`, of which one is a password, and of `fleet`."""
    workload: str = ""
    """Command line that the recording measures, which its header has."""
    commands: tuple[str, ...] = ()
    """Names of the commands that the collector takes from the process that reads its frames."""

    @property
    def redaction(self) -> Redaction | None:
        """Return how the recording is redacted; None: it isn't."""
        return Redaction(tuple(self.options.tools.values())) if self.redact else None

    def encode(self) -> bytes:
        return json.dumps(asdict(self), default=str, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Request:
        """Decode the line of the parent process; it is trusted, so an error in it is a bug and may raise."""
        values: Mapping[str, Any] = json.loads(line)
        options = dict(values["options"])
        tuples = {name: tuple(options[name]) for name in ("devices", "invasive")}
        options.update(tuples, proc=Path(options["proc"]), sys=Path(options["sys"]))
        record = values["record"]
        path = None if record is None else Path(record)
        lists = {name: tuple(values[name]) for name in ("hosts", "commands")}
        return cls(**{**values, **lists, "options": Options(**options), "record": path})


def check(name: str) -> None:
    """Raise UsageError for a name that --backend doesn't accept; imports no backend."""
    known = (AUTO, *(name for name in names() if name not in _APART))
    if name not in known:
        raise UsageError(f"--backend: there is no {name!r}; there are {', '.join(known)}")


@contextlib.asynccontextmanager
async def opened(request: Request, load: Load = load) -> AsyncIterator[Backend]:
    """Open the request's backend. UnavailableError with the reason in one sentence."""
    async with contextlib.AsyncExitStack() as stack:
        if request.backend != AUTO:
            yield await stack.enter_async_context(load(request.backend)(**_arguments(request)))
            return
        yield await _best(stack, request, load)


async def _best(stack: contextlib.AsyncExitStack, request: Request, load: Load) -> Backend:
    """Return the first backend that opens, with the reason why the best one doesn't."""
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
    if request.backend == "fleet":
        probes = load_target("bpftrace", "latmon_backends.bpftrace.backend:RemoteBpftrace")
        return {"options": request.options, "hosts": request.hosts, "probes": probes, **request.store}
    if request.backend == "prometheus":
        return dict(request.store)
    return {"options": request.options}


def compiling(backend: str = "auto", system: str = platform.system()) -> str:
    """Return a sentence about the compilation that a start waits for; empty where there is none."""
    own = "" if system == "Linux" else "dtrace"  # bpftrace, or dtrace where it doesn't open
    return _COMPILES.get(own if backend == "auto" else backend, "")
