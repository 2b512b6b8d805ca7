"""Generator of schemas/config.json and latmon/cli/sample.yaml: `python contrib/config_schema.py`.

The former is the JSON Schema of the configuration file, the latter the file's sample. Keys, values, descriptions and
examples are those of latmon/cli/options.py, thresholds those of the rules. A range of durations is in the description
alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from latmon.cli import config, options
from latmon.cli.declaration import SHOWN, Option
from latmon.cli.options import SETTINGS
from latmon.findings.rule import UNBOUNDED, Rule
from latmon.findings.rules import RULES

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = ROOT / "schemas" / "config.json"
SAMPLE = ROOT / "latmon" / "cli" / "sample.yaml"
_Json = dict[str, Any]
_COMMAND = {
    "type": "array",
    "prefixItems": [{"type": "string", "pattern": "^/"}],
    "items": {"type": "string"},
    "minItems": 1,
}
_COMMENT_COLUMN = 26
_SAMPLE_HEAD = """\
# Settings of latmon: /etc/xdg/latmon/config.yaml for all users, ~/.config/latmon/config.yaml for one, key by key.
# An option beats the environment, and the environment these files. `latmon config` shows what is in effect and where it
# was set, `latmon config check` names mistakes. Each key is commented out here; docs/CONFIG.md has more about them.
"""
_SAMPLE_SECTIONS = """\
#views:
#  disks: {filter: "sd?", sort: max}
#  slow writes: {op: write, window: 5min}

# --- rules of the findings (`latmon rules show` lists their thresholds)
#findings:
#  peer-outlier: {octaves: 3}
#  tick-quantum: off

# --- what `latmon watch` does when a finding begins (docs/WATCH.md)
#on_finding:
#  command: [/usr/local/bin/notify, latmon]
#  record: 5min
#  directory: /var/lib/latmon
#  severity: warning
#  quiet: 10min
#  gone: 1min
#  syslog: false
"""


def _key(setting: Option[Any]) -> _Json:
    about = {"description": setting.comment} if setting.comment else {}
    return {**about, **setting.kind.schema()}


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
    closed = {"type": "object", "additionalProperties": False}
    keys = {key: _key(setting) for key, setting in SETTINGS.items()}
    view = {**closed, "properties": {key: {"$ref": f"#/properties/{key}"} for key in options.OF_VIEWS}}
    actions = {"command": _COMMAND} | {key: kind.schema() for key, (_, kind) in config.ACTIONS.items()}
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
            "properties": actions,
        },
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "latmon config.yaml",
        "description": "Configuration of latmon. Made by contrib/config_schema.py.",
        **closed,
        "properties": keys | {name: sections[name] for name in config.SECTIONS},
    }


def sample() -> str:
    """Return the sample: each key, commented out."""
    parts = [_SAMPLE_HEAD]
    for group in (options.MEASURED, options.TOOLS, SHOWN):
        parts.append(f"\n# --- {group}\n")
        parts += [_sample_line(setting) for setting in SETTINGS.values() if setting.group == group]
    return "".join((*parts, _SAMPLE_SECTIONS))


def _sample_line(setting: Option[Any]) -> str:
    line = f"#{setting.key}: {setting.example or setting.default}"
    return f"{line:<{_COMMENT_COLUMN}}# {setting.comment}\n" if setting.comment else f"{line}\n"


def main() -> None:
    """Write the schema and the sample."""
    SCHEMA.write_text(json.dumps(schema(), indent=1, ensure_ascii=False) + "\n", "utf-8")
    SAMPLE.write_text(sample(), "utf-8")


if __name__ == "__main__":
    main()
