"""`latmon rules`: when each rule fires, and its thresholds with the values of the config."""

from __future__ import annotations

from latmon.findings.rule import MISSING, UNBOUNDED, Rule, Settings, Threshold
from latmon.findings.rules import RULES
from latmon.support.errors import EXIT_DONE, UsageError
from latmon.support.text import aligned


def list_rules(settings: Settings) -> int:
    """Print one line per rule; return the exit code."""
    print("\n".join(aligned([(one.id, "off" if one.id in settings.off else "on", one.fires) for one in RULES])))
    return EXIT_DONE


def show(name: str | None, settings: Settings) -> int:
    """Print one rule, or all without a name; return the exit code. Raises UsageError for an unknown name."""
    found = [one for one in RULES if name in (None, one.id)]
    if not found:
        raise UsageError(f"there is no rule {name!r}; the rules are {', '.join(one.id for one in RULES)}")
    print("\n\n".join("\n".join(_lines(one, settings)) for one in found))
    return EXIT_DONE


def _lines(rule: Rule, settings: Settings) -> list[str]:
    values = settings.of(rule)
    head = [
        ("name", rule.id),
        *([("state", "off in the config")] if rule.id in settings.off else []),
        ("fires", f"when {rule.fires}"),
        ("not evaluated", f"where {MISSING[rule.needs]}"),
        *(("" if n else "left out", f"where {name} explains it") for n, name in enumerate(rule.explained_by)),
    ]
    rows = [
        (key, _number(values[key]), one.unit, _range(one), _meaning(one, values[key]))
        for key, one in rule.thresholds.items()
    ]
    return [*aligned(head), "", *aligned([("threshold", "value", "unit", "range", "meaning"), *rows])]


def _number(value: float) -> str:
    return f"{value:,.12g}"


def _range(one: Threshold) -> str:
    """Return the values that the config may set."""
    return f"{one.least:g} to {one.most:g}" if one.most < UNBOUNDED else f"from {one.least:g}"


def _meaning(one: Threshold, value: float) -> str:
    return one.meaning if value == one.value else f"{one.meaning} (default {_number(one.value)})"
