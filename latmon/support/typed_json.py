"""JSON values of dataclasses, and the annotations that say how a field becomes a key.

A key has the name of its field, in the order of the fields. Annotations of a field change that:

- `Annotated[int, Key("p99.9")]`: a key that is no identifier.
- `OrAbsent[int]`: the key is absent where the value is None. Without it None is null.
- `IfAny[Mapping[str, int]]`: the key is absent where the value is empty, 0 or False.
- `Annotated[Request | None, MERGED]`: the keys of this dataclass stand among those of the object; None has no keys.
- `Annotated[float, Digits(3)]`: the number, or each number in the list or object, is rounded to these decimals.
- `Annotated[Histogram, HIDDEN]`: no key; only texts and pictures need the value.

The annotation of a field stands outermost, before any union. A NamedTuple is an object as a dataclass is. Keys of a
mapping become texts. contrib/typed_schema.py makes JSON Schemas of the same types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, NamedTuple, TypeVar, get_origin, get_type_hints

T = TypeVar("T")
_FIELDS: dict[type[Any], tuple[Field, ...]] = {}
"""Fields of the types that were printed: reading their annotations takes longer than printing a value."""


class Key(NamedTuple):
    """Key of a field whose name differs from it."""

    name: str


class Digits(NamedTuple):
    """Decimals to which the numbers of a field are rounded."""

    decimals: int


class Rule(Enum):
    """When a field has no key of its own."""

    ABSENT_IF_NONE = "absent if None"
    ABSENT_IF_EMPTY = "absent if empty, 0 or False"
    MERGED = "its keys are merged"
    HIDDEN = "no key"


MERGED = Rule.MERGED
HIDDEN = Rule.HIDDEN
OrAbsent = Annotated[T | None, Rule.ABSENT_IF_NONE]
IfAny = Annotated[T, Rule.ABSENT_IF_EMPTY]


@dataclass(frozen=True)
class Field:
    """A field of a type that is an object in JSON."""

    name: str
    key: str
    rule: Rule | None
    hint: Any
    """The type, without these annotations."""
    decimals: int | None = None
    """To which its numbers are rounded; None: they are not."""


def to_json(value: object) -> Any:
    """Return the value for `json.dumps`: dict, list, str, int, float, bool or None."""
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_json(inner) for key, inner in value.items()}
    of: type[Any] = type(value)
    if is_object(of):
        return _object(value)
    if isinstance(value, tuple | list):
        return [to_json(inner) for inner in value]
    raise TypeError(f"{of.__name__} has no JSON value")


def is_object(hint: object) -> bool:
    """Return whether a type is a dataclass or a NamedTuple."""
    return isinstance(hint, type) and (hasattr(hint, "__dataclass_fields__") or hasattr(hint, "_fields"))


def fields_of(of: type[Any]) -> tuple[Field, ...]:
    """Return the fields of a dataclass or a NamedTuple that have keys, those of its bases first."""
    fields = _FIELDS.get(of)
    if fields is None:
        fields = _FIELDS[of] = _read_fields(of)
    return fields


def _read_fields(of: type[Any]) -> tuple[Field, ...]:
    hints = get_type_hints(of, include_extras=True)
    names: tuple[str, ...] = getattr(of, "_fields", ()) or tuple(vars(of)["__dataclass_fields__"])
    fields = [_field(name, hints[name]) for name in names]
    return tuple(field for field in fields if field.rule is not HIDDEN)


def _field(name: str, hint: Any) -> Field:
    key, rule, decimals = name, None, None
    if get_origin(hint) is Annotated:
        for annotation in hint.__metadata__:
            key = annotation.name if isinstance(annotation, Key) else key
            rule = annotation if isinstance(annotation, Rule) else rule
            decimals = annotation.decimals if isinstance(annotation, Digits) else decimals
        hint = hint.__origin__
    return Field(name, key, rule, hint, decimals)


def _object(value: object) -> dict[str, Any]:
    objects: dict[str, Any] = {}
    of: type[Any] = type(value)
    for field in fields_of(of):
        inner = getattr(value, field.name)
        if field.rule is MERGED:
            objects |= {} if inner is None else _object(inner)
        elif not _is_absent(inner, field.rule):
            printed = to_json(inner)
            objects[field.key] = printed if field.decimals is None else _rounded(printed, field.decimals)
    return objects


def _rounded(value: Any, decimals: int) -> Any:
    """Return a JSON value with its numbers rounded."""
    if isinstance(value, dict):
        return {key: _rounded(inner, decimals) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner, decimals) for inner in value]
    return None if value is None else round(value, decimals)


def _is_absent(value: object, rule: Rule | None) -> bool:
    if rule is Rule.ABSENT_IF_NONE:
        return value is None
    return rule is Rule.ABSENT_IF_EMPTY and not value
