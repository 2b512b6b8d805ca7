"""Generator of the JSON Schemas of what commands print, from their types: `python contrib/typed_schema.py`.

A type is an entry of `$defs` with its docstring, a key has the text below its field. A field is required unless its
annotation (latmon/support/typed_json.py) lets it be absent. A base's fields come first.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
import types
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from latmon.diff.report import DiffReport
from latmon.report.model.report import Report
from latmon.support.typed_json import MERGED, Field, fields_of, is_object

SCHEMAS = Path(__file__).resolve().parents[1] / "schemas"
_Json = dict[str, Any]
_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", types.NoneType: "null"}
_REF = "#/$defs/"
_WIDTH = 100
"""Columns of a line, without the key and the comma."""


def schema_of(root: Any, title: str, description: str = "") -> _Json:
    """Return the schema of a type's JSON value, whose description is the type's docstring.

    A union is one of several objects; `description` is for it, because it has no docstring.
    """
    types_below: dict[str, type] = {}
    choices = _parts(root)
    if len(choices) == 1:
        properties = _object(root, types_below)
    else:
        properties = {"description": description, "oneOf": [_schema(choice, types_below) for choice in choices]}
    definitions: _Json = {}
    while missing := [name for name in types_below if name not in definitions]:
        for name in missing:
            definitions[name] = _object(types_below[name], types_below)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return head | properties | {"$defs": {name: definitions[name] for name in sorted(definitions)}}


def _object(of: type, types_below: dict[str, type]) -> _Json:
    properties: _Json = {}
    required: list[str] = []
    _add_fields(of, types_below, properties, required, is_certain=True)
    text = _own_docstring(of)
    described = {"description": text} if text else {}
    named = {"required": required} if required else {}
    return {**described, "type": "object", **named, "properties": properties}


def _add_fields(
    of: type, types_below: dict[str, type], properties: _Json, required: list[str], *, is_certain: bool
) -> None:
    """Add the keys of a type; `is_certain` is False where the whole type may be absent."""
    texts = _texts(of)
    for field in fields_of(of):
        if field.rule is MERGED:
            (merged,) = (part for part in _parts(field.hint) if part is not types.NoneType)
            _add_fields(merged, types_below, properties, required, is_certain=is_certain and merged is field.hint)
            continue
        text = {"description": texts[field.name]} if field.name in texts else {}
        properties[field.key] = text | _schema(_printed(field), types_below)
        if is_certain and field.rule is None:
            required.append(field.key)


def _printed(field: Field) -> Any:
    """Return the type of what is printed: a field that is absent where it is None is never null."""
    if field.rule is None:
        return field.hint
    parts = tuple(part for part in _parts(field.hint) if part is not types.NoneType)
    return Union[parts]  # noqa: UP007  the operator takes no tuple


def _parts(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _schema(hint: Any, types_below: dict[str, type]) -> _Json:
    parts = _parts(hint)
    if len(parts) > 1:
        return _any_of(parts, types_below)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
    if origin is not None:
        return _container(origin, arguments, types_below)
    if is_object(hint):
        name = hint.__name__
        if types_below.setdefault(name, hint) is not hint:
            raise TypeError(f"two types are called {name}")
        return {"$ref": _REF + name}
    return {"type": _NAMES[hint]}


def _container(origin: type, arguments: Sequence[Any], types_below: dict[str, type]) -> _Json:
    if issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1], types_below)}
    if issubclass(origin, tuple) and arguments[-1] is not Ellipsis:
        inner = [_schema(part, types_below) for part in arguments]
        return {"type": "array", "prefixItems": inner, "minItems": len(inner), "maxItems": len(inner)}
    return {"type": "array", "items": _schema(arguments[0], types_below)}


def _any_of(parts: Sequence[Any], types_below: dict[str, type]) -> _Json:
    choices = [_schema(part, types_below) for part in parts]
    if all(choice.keys() == {"type"} for choice in choices):
        return {"type": [choice["type"] for choice in choices]}
    if len(choices) == 2 and choices[1] == {"type": "null"} and isinstance(choices[0].get("type"), str):  # noqa: PLR2004
        return choices[0] | {"type": [choices[0]["type"], "null"]}
    return {"anyOf": choices}


def _own_docstring(of: type) -> str:
    """Return the docstring on one line; empty where there is only the signature, which dataclass() gives to a type."""
    text = " ".join((of.__doc__ or "").split())
    return "" if text.startswith(f"{of.__name__}(") else text


def _texts(of: type) -> dict[str, str]:
    """Return the texts below the fields of a type and of its bases."""
    texts: dict[str, str] = {}
    for base in reversed(of.__mro__):
        if not is_object(base):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for statement, below in pairwise(body):
            text = _text(below)
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and text:
                texts[statement.target.id] = text
    return texts


def _text(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return " ".join(str(statement.value.value).split())
    return ""


def schemas() -> dict[str, _Json]:
    """Return the schemas by the name of their file."""
    diff = "Two captures compared, or several as a sweep. New keys may come with any release."
    return {
        "diff": schema_of(DiffReport, "latmon diff --json", diff),
        "report": schema_of(Report, "latmon report --json"),
    }


def text_of(schema: _Json) -> str:
    """Return a schema as the file has it: each part that fits is on one line."""
    return _text_of(schema, "") + "\n"


def _text_of(part: Any, indent: str) -> str:
    line = json.dumps(part, ensure_ascii=False)
    if len(indent) + len(line) <= _WIDTH or not isinstance(part, dict | list):
        return line
    deeper = f"{indent} "
    if isinstance(part, list) and all(isinstance(entry, str) for entry in part):
        inside = textwrap.fill(line[1:-1], _WIDTH, initial_indent=deeper, subsequent_indent=deeper)
        return f"[\n{inside}\n{indent}]"
    if isinstance(part, list):
        inner, (begin, end) = [_text_of(entry, deeper) for entry in part], "[]"
    else:
        inner = [f"{json.dumps(key)}: {_text_of(value, deeper)}" for key, value in part.items()]
        begin, end = "{}"
    between = f",\n{deeper}"
    return f"{begin}\n{deeper}{between.join(inner)}\n{indent}{end}"


def main() -> None:
    """Write the schemas."""
    for name, schema in schemas().items():
        (SCHEMAS / f"{name}.json").write_text(text_of(schema), "utf-8")


if __name__ == "__main__":
    main()
