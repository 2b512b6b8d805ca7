"""Generator of schemas/config.json, the JSON Schema of the configuration file: `python contrib/config_schema.py`.

Keys are those of the checks in latmon/cli/config.py, values those of the tables that the checks use, thresholds those
of the rules, descriptions the comments of latmon/cli/sample.yaml. A range of durations is in the description alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from latmon.cli import arguments, config
from latmon.findings.rule import SEVERITIES, UNBOUNDED, Rule
from latmon.findings.rules import RULES
from latmon.model.stages import OPS, STAGES_MODES
from latmon.support.theme import AUTO, OUR_RAMPS, OUR_THEMES
from latmon.views.device_table import TITLES
from latmon.views.selection import ASIDES, PANELS, SCREENS, SORTS

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = ROOT / "schemas" / "config.json"
_Json = dict[str, Any]
_DURATION = {"type": ["string", "number"], "pattern": r"^\s*[0-9.]+\s*(us|µs|ms|s|m|min|h)?\s*$"}
_FLAG = {"type": "boolean"}
_PERCENT = {"type": "number", "minimum": 0, "maximum": arguments.MAX_BUDGET}
_PATH = {"type": "string", "pattern": "^/"}


def _named(known: Sequence[str]) -> _Json:
    """Return a text of which some values are known; users may have others."""
    return {"type": "string", "examples": list(known)}


_TYPES: Mapping[str, _Json] = {
    "theme": _named(OUR_THEMES),
    "ramp": _named((AUTO, *OUR_RAMPS)),
    "interval": _DURATION,
    "backend": _named(("auto", "bpftrace", "dtrace", "procfs")),
    "bpftrace": _PATH,
    "dtrace": _PATH,
    "threshold": _DURATION,
    "stages": {"enum": list(STAGES_MODES)},
    "history": _DURATION,
    "budget_percent": _PERCENT,
    "max_overhead": _PERCENT,
    "sweep": _FLAG,
    "bell": _FLAG,
    "mouse": _FLAG,
    "view": {"type": "string"},
    "sort": {"enum": list(SORTS)},
    "filter": {"type": "string", "maxLength": arguments.MAX_FILTER},
    "window": _DURATION,
    "columns": {"anyOf": [{"type": "array", "items": {"enum": list(TITLES)}, "minItems": 1}, {"type": "string"}]},
    "screen": {"enum": [*dict.fromkeys((*PANELS, *SCREENS, *ASIDES)), *range(1, len(SCREENS) + 1)]},
    "op": {"enum": ["all", *OPS]},
    "command": {"type": "array", "prefixItems": [_PATH], "items": {"type": "string"}, "minItems": 1},
    "record": _DURATION,
    "directory": _PATH,
    "severity": {"enum": list(SEVERITIES)},
    "quiet": _DURATION,
    "gone": _DURATION,
    "syslog": _FLAG,
}
"""Key -> its values, as the checks of config.py accept them."""


def _comments() -> dict[str, str]:
    """Return the comments of the sample by their key."""
    sample = (ROOT / "latmon/cli/sample.yaml").read_text("utf-8")
    return dict(re.findall(r"(?m)^#(\w+): \S.*?  # (.*)$", sample))


def _key(name: str, comments: Mapping[str, str]) -> _Json:
    about = {"description": comments[name]} if name in comments else {}
    return {**about, **_TYPES[name]}


def _rule(rule: Rule) -> _Json:
    """Return the values of a rule in the section `findings`."""
    thresholds = {
        name: {
            "description": f"{one.unit}: {one.meaning}",
            "type": "number",
            "default": one.value,
            "minimum": one.least,
            **({"maximum": one.most} if one.most < UNBOUNDED else {}),
        }
        for name, one in rule.thresholds.items()
    }
    of_it = {"type": "object", "additionalProperties": False, "properties": thresholds}
    return {"description": rule.fires, "anyOf": [{"enum": ["on", "off", True, False]}, of_it]}


def schema() -> _Json:
    """Return the schema."""
    comments = _comments()
    closed = {"type": "object", "additionalProperties": False}
    keys = {name: _key(name, comments) for name in config.DEFAULTS}
    view = {**closed, "properties": {name: {"$ref": f"#/properties/{name}"} for name in arguments.VIEW}}
    actions = ("command", *config.ACTIONS)
    sections = {
        "views": {"description": "saved views by name", "type": "object", "additionalProperties": view},
        "findings": {
            "description": "rules that are off, and their thresholds",
            **closed,
            "properties": {one.id: _rule(one) for one in RULES},
        },
        "on_finding": {
            "description": "what `latmon watch` does when a finding begins",
            **closed,
            "properties": {name: _key(name, {}) for name in actions},
        },
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "latmon config.yaml",
        "description": "Configuration of latmon. Made by contrib/config_schema.py.",
        **closed,
        "properties": keys | {name: sections[name] for name in config.SECTIONS},
    }


def main() -> None:
    """Write the schema."""
    SCHEMA.write_text(json.dumps(schema(), indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
