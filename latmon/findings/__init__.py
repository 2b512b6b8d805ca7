"""latmon says in words what is wrong: rules over the last minute's frames, one file each, and what they find over time.

`Watch` is fed with frames; registry.py lists the rules, thresholds.py all of their numbers. Nothing here is recorded:
an old recording profits from a new rule.
"""

from latmon.findings.finding import CRITICAL, NOTICE, SEVERITIES, WARNING, Fact, Finding, Step, Where
from latmon.findings.watch import Episode, Watch

__all__ = ["CRITICAL", "NOTICE", "SEVERITIES", "WARNING", "Episode", "Fact", "Finding", "Step", "Watch", "Where"]
