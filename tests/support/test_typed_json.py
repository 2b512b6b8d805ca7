"""JSON values of dataclasses, and their schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import pytest
from json_schema import mistakes
from typed_schema import schema_of

from latmon.support.typed_json import MERGED, IfAny, Key, OrAbsent, to_json


class Remark(NamedTuple):
    id: str
    text: str


@dataclass(frozen=True)
class Request:
    began: str | None
    sector: OrAbsent[int] = None


@dataclass(frozen=True, kw_only=True)
class Base:
    kind: Literal["disk", "volume"]
    """The kind of device."""
    last: Annotated[int | None, Key("p99.9")]


@dataclass(frozen=True, kw_only=True)
class Sample(Base):
    """A sample
    of two lines."""

    by_depth: Mapping[int, float]
    bounds: OrAbsent[tuple[int, int]] = None
    remarks: IfAny[tuple[Remark, ...]] = ()
    request: Annotated[Request | None, MERGED] = None
    always: Annotated[Request, MERGED] = Request(None)
    nearest: Request | None = None
    is_live: Annotated[IfAny[bool], Key("live")] = False


EMPTY = Sample(kind="disk", last=None, by_depth={})
FULL = Sample(
    kind="volume",
    last=3,
    by_depth={1: 0.5},
    bounds=(1, 2),
    remarks=(Remark("a", "b"),),
    request=Request("now", 8),
    nearest=Request(None),
    is_live=True,
)


def test_keys_are_absent_as_the_annotations_say():
    assert to_json(EMPTY) == {"kind": "disk", "p99.9": None, "by_depth": {}, "began": None, "nearest": None}


def test_values_nest_and_keys_are_in_the_order_of_the_fields():
    assert json.dumps(to_json(FULL)) == (
        '{"kind": "volume", "p99.9": 3, "by_depth": {"1": 0.5}, "bounds": [1, 2], '
        '"remarks": [{"id": "a", "text": "b"}], "began": null, "sector": 8, "nearest": {"began": null}, "live": true}'
    )


def test_what_is_no_json_is_refused():
    with pytest.raises(TypeError, match="set has no JSON value"):
        to_json({"a": {1}})


def test_the_schema_describes_the_values():
    schema = schema_of(Sample, "a sample")
    assert schema["description"] == "A sample of two lines."
    assert schema["required"] == ["kind", "p99.9", "by_depth", "began", "nearest"]
    assert schema["properties"]["kind"] == {"description": "The kind of device.", "enum": ["disk", "volume"]}
    assert schema["properties"]["p99.9"] == {"type": ["integer", "null"]}
    assert schema["properties"]["sector"] == {"type": "integer"}
    assert schema["properties"]["nearest"] == {"anyOf": [{"$ref": "#/$defs/Request"}, {"type": "null"}]}
    assert schema["$defs"]["Request"]["required"] == ["began"]
    assert "description" not in schema["$defs"]["Request"]
    for sample in (EMPTY, FULL):
        assert [*mistakes(to_json(sample), schema)] == []
    assert [*mistakes(to_json(FULL) | {"kind": "tape", "new": 1}, schema)] != []
