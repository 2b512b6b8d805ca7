"""A probe's manifest: the YAML beside its script that says what the script needs and what its output means.

A new driver's probe needs no Python: its maps are declared here and decoded by framing.py. Knows no probe tool and runs
nothing. Scripts are put together as whole files; the only substitution is `{{name}}` by a checked integer or one of a
manifest's listed words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from latmon.errors import ManifestError
from latmon.model import OPS, STAGES

MAX_BYTES = 64 * 1024
ROLES = ("histogram", "sum", "bytes", "untimed", "unmatched", "max")
COSTS = ("cheap", "moderate", "invasive")
PLATFORMS = ("linux", "illumos", "freebsd")
CLOCKS = ("monotonic", "boottime")
_NEEDED = (
    *("name", "purpose", "platform", "tool", "tier", "cost"),
    *("clock", "latency_from", "hooks", "requirements", "key", "maps"),
)
# safe_load lets the last four through: 2026-02-31, `!!bool x`, `!!timestamp x` and deep nesting.
_NOT_YAML = (yaml.YAMLError, ValueError, KeyError, AttributeError, RecursionError)
_COMMENT = re.compile(r"^\s*//.*\n|^\s*\n", re.MULTILINE)
_PLACE = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True)
class Part:
    """A field packed into a map's integer key, `bits` wide, `shift` from the right; decoder: dev_t, op or bucket."""

    name: str
    shift: int
    bits: int
    decoder: str

    def read(self, key: int) -> int:
        return (key >> self.shift) & ((1 << self.bits) - 1)


@dataclass(frozen=True, slots=True)
class MapSpec:
    """What one cumulative map (for `max`: one slot) adds to. `stages` are the series it feeds."""

    name: str
    role: str
    stages: tuple[str, ...] = ()
    rest_of: str = ""
    """The stage whose I/Os that this histogram doesn't count lie in its bucket 0."""
    slot: int = -1
    """For `max`: the tick number modulo 4 that it holds the maximum of."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value the script takes: an integer in [low, high], or one of `words`."""

    name: str
    low: int = 0
    high: int = 0
    words: tuple[str, ...] = ()

    def check(self, value: int | str) -> str:
        """The text to put in; ManifestError for anything else."""
        if self.words:
            if value not in self.words:
                raise ManifestError(f"parameter {self.name} takes one of {', '.join(self.words)}, not {value!r}")
            return str(value)
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            raise ManifestError(f"parameter {self.name} takes an integer from {self.low} to {self.high}, not {value!r}")
        return str(value)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One probe. `includes`: per measured stage the neighbours whose time it holds; `absent`: why not others."""

    name: str
    path: Path
    purpose: str
    platform: str
    tool: str
    tier: str
    cost: str
    clock: str
    latency_from: str
    hooks: tuple[str, ...]
    requirements: tuple[str, ...]
    parameters: tuple[Parameter, ...] = ()
    key: tuple[Part, ...] = ()
    maps: tuple[MapSpec, ...] = ()
    includes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def script(self) -> Path:
        return self.path.with_suffix(".bt")

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that its maps feed."""
        return tuple(sorted({stage for spec in self.maps for stage in spec.stages}))

    def program(self, values: Mapping[str, int | str]) -> str:
        """The script's text, without its comment lines, with every `{{parameter}}` replaced by its checked value."""
        known = {p.name: p for p in self.parameters}

        def put(place: re.Match[str]) -> str:
            name = place[1]
            if name not in known or name not in values:
                raise ManifestError(f"{self.script.name}: no value for {{{{{name}}}}}")
            return known[name].check(values[name])

        return _PLACE.sub(put, _COMMENT.sub("", self.script.read_text(encoding="utf-8")))


def load_all(directory: Path) -> list[Manifest]:
    """Every manifest below `directory`, by name."""
    return sorted((load(p) for p in directory.rglob("*.yaml")), key=lambda m: m.name)


def load(path: Path) -> Manifest:
    """One manifest; ManifestError names the file and the key that is wrong."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ManifestError(f"{path.name}: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise ManifestError(f"{path.name}: larger than {MAX_BYTES // 1024} KiB")
    try:
        tree = yaml.safe_load(raw)
    except _NOT_YAML as error:
        raise ManifestError(f"{path.name}: not YAML: {' '.join(str(error).split())}") from error
    manifest = _Reader(path.name).manifest(path, tree)
    if not manifest.script.is_file():
        raise ManifestError(f"{path.name}: no script {manifest.script.name} beside it")
    return manifest


class _Reader:
    """Turns a YAML tree into a Manifest and names what is wrong."""

    def __init__(self, file: str) -> None:
        self.file = file

    def fail(self, where: str, what: str) -> ManifestError:
        return ManifestError(f"{self.file}: {where}: {what}")

    def table(self, tree: Any, where: str, needed: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
        if not isinstance(tree, dict):
            raise self.fail(where, "must be a table of keys")
        for key in tree:
            if key not in needed and key not in optional:
                raise self.fail(where, f"unknown key {key!r}")
        for key in needed:
            if key not in tree:
                raise self.fail(where, f"key {key!r} is missing")
        return tree

    def text(self, value: Any, where: str) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self.fail(where, "must be text")
        return " ".join(value.split())

    def integer(self, value: Any, where: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.fail(where, "must be an integer")
        return value

    def within(self, value: Any, where: str, low: int, high: int) -> int:
        if not low <= self.integer(value, where) <= high:
            raise self.fail(where, f"must lie from {low} to {high}")
        return int(value)

    def word(self, value: Any, where: str, words: tuple[str, ...]) -> str:
        if value not in words:
            shown = repr(value) if isinstance(value, str | int) else f"a {type(value).__name__}"
            raise self.fail(where, f"must be one of {', '.join(words)}, not {shown}")
        return str(value)

    def texts(self, value: Any, where: str) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise self.fail(where, "must be a list")
        return tuple(self.text(v, where) for v in value)

    def stages(self, value: Any, where: str) -> tuple[str, ...]:
        return tuple(self.word(v, where, STAGES) for v in self.texts(value, where))

    def manifest(self, path: Path, tree: Any) -> Manifest:
        top = self.table(tree, "manifest", _NEEDED, ("parameters", "includes", "absent", "notes"))
        name = self.text(top["name"], "name")
        if name != path.stem:
            raise self.fail("name", f"must be the file's: {path.stem}")
        maps = self.table(top["maps"], "maps", (), tuple(top["maps"]) if isinstance(top["maps"], dict) else ())
        absent = self.table(top.get("absent", {}), "absent", (), STAGES)
        includes = self.table(top.get("includes", {}), "includes", (), STAGES)
        parameters = top.get("parameters", {})
        self.table(parameters, "parameters", (), tuple(parameters) if isinstance(parameters, dict) else ())
        return Manifest(
            name=name,
            path=path,
            purpose=self.text(top["purpose"], "purpose"),
            platform=self.word(top["platform"], "platform", PLATFORMS),
            tool=self.word(top["tool"], "tool", ("bpftrace", "dtrace")),
            tier=self.text(top["tier"], "tier"),
            cost=self.word(top["cost"], "cost", COSTS),
            clock=self.word(top["clock"], "clock", CLOCKS),
            latency_from=self.word(top["latency_from"], "latency_from", ("queued", "issue")),
            hooks=self.texts(top["hooks"], "hooks"),
            requirements=self.texts(top["requirements"], "requirements"),
            parameters=tuple(self.parameter(key, value) for key, value in parameters.items()),
            key=tuple(
                self.part(key, value) for key, value in self.table(top["key"], "key", ("dev", "op", "bucket")).items()
            ),
            maps=tuple(self.map(name, key, value) for key, value in maps.items()),
            includes={stage: self.stages(value, f"includes.{stage}") for stage, value in includes.items()},
            absent={stage: self.text(value, f"absent.{stage}") for stage, value in absent.items()},
            notes=self.texts(top.get("notes", []), "notes"),
        )

    def parameter(self, name: str, tree: Any) -> Parameter:
        where = f"parameters.{name}"
        fields = self.table(tree, where, ("type",), ("low", "high", "words"))
        if self.word(fields["type"], where, ("integer", "word")) == "word":
            return Parameter(name, words=self.texts(fields.get("words"), where))
        return Parameter(name, self.integer(fields.get("low"), where), self.integer(fields.get("high"), where))

    def part(self, name: str, tree: Any) -> Part:
        where = f"key.{name}"
        fields = self.table(tree, where, ("shift", "bits", "decoder"))
        decoder = self.word(fields["decoder"], where, ("dev_t", "op", "bucket"))
        shift, bits = self.within(fields["shift"], where, 0, 63), self.within(fields["bits"], where, 1, 64)
        return Part(name, shift, bits, decoder)

    def map(self, probe: str, name: str, tree: Any) -> MapSpec:
        where = f"maps.{name}"
        if not str(name).startswith(probe + "_"):
            raise self.fail(where, f"a map's name begins with {probe}_")
        fields = self.table(tree, where, ("role",), ("stages", "rest_of", "slot"))
        role = self.word(fields["role"], where, ROLES)
        stages = self.stages(fields.get("stages", []), where)
        if bool(stages) != (role in ("histogram", "sum", "max")):
            raise self.fail(where, "histogram, sum and max feed stages, the others don't")
        rest_of = self.word(fields["rest_of"], where, STAGES) if "rest_of" in fields else ""
        slot = self.integer(fields.get("slot", -1), where)
        if (role == "max") != (0 <= slot <= 3):  # noqa: PLR2004 - four slots, in the scripts and here
            raise self.fail(where, "a max has a slot from 0 to 3, nothing else has")
        return MapSpec(name, role, stages, rest_of, slot)


def op_name(number: int) -> str:
    """The op of a REQ_OP number (include/linux/blk_types.h): zone append (7) is a write, the unnamed are `other`."""
    return _OPS.get(number, "other")


_OPS = {0: OPS[0], 1: OPS[1], 2: OPS[2], 3: OPS[3], 7: OPS[1]}
