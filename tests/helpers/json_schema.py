"""Minimal validator of JSON Schema for the schemas that latmon ships: a keyword that it doesn't know is an error.

A key that `properties` lacks is a mistake, also where the schema lets others come: what is printed is described.
"""

import re
from collections.abc import Iterator
from typing import Any

_TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
_NUMBERS = {"number": (int, float), "integer": (int,)}
_TEXTS = {"$schema", "title", "description", "default", "examples", "$defs"}


def mistakes(value: Any, schema: dict[str, Any], root: dict[str, Any] | None = None, at: str = "$") -> Iterator[str]:
    """Yield what differs from the schema, with its place."""
    root = root or schema
    for key, rule in schema.items():
        if key not in _TEXTS:
            yield from _CHECKS[key](value, rule, schema, root, at)


def _referred(root: dict[str, Any], pointer: str) -> dict[str, Any]:
    for name in pointer.removeprefix("#/").split("/"):
        root = root[name]
    return root


def _type(value, rule, _schema, _root, at):
    names = [rule] if isinstance(rule, str) else rule
    if not any(_is(value, name) for name in names):
        yield f"{at}: {value!r} is not {rule}"


def _is(value: Any, name: str) -> bool:
    if name in _NUMBERS:
        return isinstance(value, _NUMBERS[name]) and not isinstance(value, bool)
    return isinstance(value, _TYPES[name])


def _required(value, rule, _schema, _root, at):
    if isinstance(value, dict):
        yield from (f"{at}: no {name}" for name in rule if name not in value)


def _properties(value, rule, schema, root, at):
    for name, one in value.items() if isinstance(value, dict) else ():
        if name in rule:
            yield from mistakes(one, rule[name], root, f"{at}.{name}")
        elif "additionalProperties" not in schema:
            yield f"{at}: {name} is not described"


def _others(value, rule, schema, root, at):
    known = schema.get("properties", {})
    for name, one in value.items() if isinstance(value, dict) else ():
        if name not in known and rule is False:
            yield f"{at}: unknown key {name!r}"
        elif name not in known:
            yield from mistakes(one, rule, root, f"{at}.{name}")


def _items(value, rule, schema, root, at):
    if isinstance(value, list):
        for number, one in enumerate(value[len(schema.get("prefixItems", ())) :]):
            yield from mistakes(one, rule, root, f"{at}[{number}]")


def _first_items(value, rule, _schema, root, at):
    for one, of in zip(value, rule, strict=False) if isinstance(value, list) else ():
        yield from mistakes(one, of, root, f"{at}[]")


def _choice(value, rule, _schema, root, at):
    found = [[*mistakes(value, one, root, at)] for one in rule]
    if all(found):
        yield from min(found, key=len)


def _one(value, rule, _schema, root, at):
    if (many := sum(not [*mistakes(value, one, root, at)] for one in rule)) != 1:
        yield f"{at}: {many} of the choices hold"


def _compared(is_wrong):
    def check(value, rule, _schema, _root, at):
        if is_wrong(value, rule):
            yield f"{at}: {value!r} against {rule!r}"

    return check


def _is_number(value: Any) -> bool:
    return _is(value, "number")


_CHECKS = {
    "type": _type,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _others,
    "items": _items,
    "prefixItems": _first_items,
    "anyOf": _choice,
    "oneOf": _one,
    "$ref": lambda value, rule, _, root, at: mistakes(value, _referred(root, rule), root, at),
    "const": _compared(lambda value, rule: value != rule),
    "enum": _compared(lambda value, rule: not any(value == one and type(value) is type(one) for one in rule)),
    "pattern": _compared(lambda value, rule: isinstance(value, str) and not re.search(rule, value)),
    "maxLength": _compared(lambda value, rule: isinstance(value, str) and len(value) > rule),
    "minItems": _compared(lambda value, rule: isinstance(value, list) and len(value) < rule),
    "maxItems": _compared(lambda value, rule: isinstance(value, list) and len(value) > rule),
    "minimum": _compared(lambda value, rule: _is_number(value) and value < rule),
    "maximum": _compared(lambda value, rule: _is_number(value) and value > rule),
}
