"""Published cases as synthetic hosts, one module each: the numbers of the text, and the same host in health.

Owns their names and order. What a case looks like is its own module's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from latmon_backends.incidents.bubbles import BUBBLES, BUBBLES_HEALTHY
from latmon_backends.incidents.e810 import E810_CASE, E810_HEALTHY
from latmon_backends.incidents.emulex import EMULEX, EMULEX_HEALTHY
from latmon_backends.incidents.qumulo import QUMULO, QUMULO_HEALTHY
from latmon_backends.incidents.scenario import Scenario
from latmon_backends.incidents.serialised import SERIALISED, SERIALISED_HEALTHY

INCIDENTS: Mapping[str, Scenario] = MappingProxyType(
    {
        "emulex": EMULEX,
        "emulex-healthy": EMULEX_HEALTHY,
        "e810": E810_CASE,
        "e810-healthy": E810_HEALTHY,
        "serialised": SERIALISED,
        "serialised-healthy": SERIALISED_HEALTHY,
        "qumulo": QUMULO,
        "qumulo-healthy": QUMULO_HEALTHY,
        "bubbles": BUBBLES,
        "bubbles-healthy": BUBBLES_HEALTHY,
    }
)
"""By name, each followed by its healthy counterpart."""
