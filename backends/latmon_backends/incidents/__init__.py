"""Published cases as synthetic hosts, one module each: the numbers of the text, and the same host in health.

Owns their names and order. What a case looks like is its own module's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from latmon_backends.incidents.emulex import EMULEX, EMULEX_HEALTHY
from latmon_backends.incidents.scenario import Scenario

INCIDENTS: Mapping[str, Scenario] = MappingProxyType(
    {
        "emulex": EMULEX,
        "emulex-healthy": EMULEX_HEALTHY,
    }
)
"""By name, each followed by its healthy counterpart."""
