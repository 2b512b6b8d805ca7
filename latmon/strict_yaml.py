"""YAML as people write it by hand: values only, no aliases, no key twice. Knows no file.

tree = strict_yaml.load(raw)    # yaml.YAMLError, mostly with a mark; ValueError, RecursionError on nonsense
"""

from __future__ import annotations

from typing import Any

import yaml


class _Strict(yaml.SafeLoader):
    """A SafeLoader that refuses even more: aliases, of which ten levels can grow a small file beyond all memory."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases are not allowed")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The last of two equal keys would win, and nobody would know."""
        known: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                one = key.tag, key.value
                if one in known:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value!r} is there twice", key.start_mark
                    )
                known.add(one)
        return super().construct_mapping(node, deep)


def load(raw: bytes) -> Any:
    """The tree; None for an empty file."""
    return yaml.load(raw, _Strict)  # noqa: S506 - a SafeLoader
