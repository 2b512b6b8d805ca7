"""Which backends exist, by name, and how to get one: imported late, and only the one that is asked for.

Ours are a literal table, because a bare checkout has no entry points; third parties' are entry points of the group
`latmon.backends` and can't replace ours. Must not import a backend before it is wanted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from latmon import trust
from latmon.errors import UnavailableError, UsageError

GROUP = "latmon.backends"
OWN = {
    "bpftrace": "latmon_backends.bpftrace:BpftraceBackend",
    "dtrace": "latmon_backends.dtrace:DtraceBackend",
    "procfs": "latmon_backends.procfs:ProcfsBackend",
    "demo": "latmon_backends.demo:DemoBackend",
    "replay": "latmon_backends.replay:ReplayBackend",
}
_CHECKOUT = Path(__file__).resolve().parent.parent / "backends"


def names() -> tuple[str, ...]:
    """All backends' names, ours first. Imports none of them."""
    return (*OWN, *sorted(name for name in _foreign() if name not in OWN))


def load(name: str) -> Callable[..., Any]:
    """The backend's class. A name nobody knows is a UsageError; one that can't be imported is unavailable."""
    target = OWN.get(name) or _foreign().get(name)
    if target is None:
        raise UsageError(f"There is no backend {name!r}; there are: {', '.join(names())}.")
    if name not in OWN and os.geteuid() == 0:
        trust.require_package(target.partition(":")[0].partition(".")[0])
    return load_target(name, target)


def load_target(name: str, target: str) -> Callable[..., Any]:
    """What `module:attribute` names; `name` is what the sentence calls it when that fails."""
    module, _, attribute = target.partition(":")
    _find_checkout()
    try:
        found = getattr(import_module(module), attribute)
    except ImportError as error:
        raise UnavailableError(_sentence(name, module, error)) from error
    except AttributeError as error:
        raise UnavailableError(f"The backend {name} is broken: {module} has no {attribute}.") from error
    if not callable(found):
        raise UnavailableError(f"The backend {name} is broken: {target} is not a class.")
    return found  # type: ignore[no-any-return]  # what an entry point names is only known here


def _sentence(name: str, module: str, error: ImportError) -> str:
    package = (error.name or "").partition(".")[0]
    if package and package != module.partition(".")[0]:
        return f"The backend {name} needs the Python package {package}: install it with `pip install {package}`."
    return f"The backend {name} can't be loaded: {error}; install latmon again."


def _foreign() -> dict[str, str]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - 20 ms that only a foreign name costs

    return {point.name: point.value for point in entry_points(group=GROUP)}


def _find_checkout() -> None:
    """A checkout that was never installed keeps its backends in a directory of their own."""
    if _CHECKOUT.is_dir() and find_spec("latmon_backends") is None:
        sys.path.append(str(_CHECKOUT))
