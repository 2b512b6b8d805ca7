"""Strict YAML: values only, no tags, no aliases, no duplicate keys, bounded depth. Opens no file."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from latmon.support.errors import UsageError
from latmon.support.text import clean

try:
    from yaml import CSafeLoader as _Loader  # ten times as fast, and not everywhere
except ImportError:
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

MAX_DEPTH = 20
"""Levels of nesting: libyaml's composer recurses once per level."""


def _refusal(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


class _Strict(_Loader):
    """Loader that refuses duplicate keys, and dates and numbers that Python has none of."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Refuse `2001-99-99` and a number of 5,000 digits with their line."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError):
            raise _refusal(f"{clean(str(node.value), 40)!r} is no date or number", node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, on_demand: bool = False) -> dict[Any, Any]:
        """Refuse equal keys, of which only the last would count."""
        known: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in known:
                    raise _refusal(f"key {key.value!r} is there twice", key.start_mark)
                known.add((key.tag, key.value))
        return super().construct_mapping(node, on_demand)


def load(raw: bytes) -> Any:
    """Return the tree, None for an empty file. Raises YAMLError, and for some input RecursionError."""
    depth = 0
    for event in yaml.parse(raw, _Loader):
        if isinstance(event, yaml.AliasEvent):  # ten levels of them can grow a small file beyond all memory
            raise _refusal("aliases are not allowed", event.start_mark)
        if getattr(event, "tag", None) is not None:  # `!!bool x` raised KeyError, `!!int ""` IndexError
            raise _refusal("tags are not allowed", event.start_mark)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise _refusal(f"nested more than {MAX_DEPTH} deep", event.start_mark)
    return yaml.load(raw, _Strict)  # noqa: S506 - a SafeLoader


def parse(path: Path, raw: bytes) -> Any:
    """Return the tree of a user's file, an empty mapping for an empty file. Raises UsageError with path and line."""
    try:
        if not raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # YAML knows these two besides UTF-8
            raw.decode()
        values = load(raw)
    except UnicodeDecodeError as error:
        at = raw.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}:{at}: not UTF-8: byte 0x{raw[error.start]:02x}; save the file as UTF-8") from None
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UsageError(f"{path}{line}: not valid YAML: {error.problem}") from None
    except yaml.reader.ReaderError as error:
        what = f"character {error.position + 1}" if error.encoding == "unicode" else f"byte {error.position + 1}"
        raise UsageError(f"{path}: not valid YAML: {what} is no text: {error.reason}") from None
    except (yaml.YAMLError, RecursionError):
        raise UsageError(f"{path}: not valid YAML: it is nested too deep") from None
    return {} if values is None else values


def line_of(raw: bytes, keys: Iterable[str | int]) -> int:
    """Return the line, from 1, of the value below these keys and positions; where one is missing, that above it.

    `raw`: what `load` has accepted.
    """
    node = yaml.compose(raw, _Loader)
    line = 0
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            key_pair = next((pair for pair in node.value if pair[0].value == key), None)
            if key_pair is None:
                break
            line, node = key_pair[0].start_mark.line, key_pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int):
            node = node.value[key]
            line = node.start_mark.line
    return line + 1
