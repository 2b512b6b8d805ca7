"""Checks of a D script and its manifest by their texts alone. Runs nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from latmon.manifest import NAMED, Manifest, MapSpec
from latmon_backends.dtrace.program import fillings
from tests.d_compile.d_text import Clause, Tokens, assigned, calls, clauses, locals_read, members, split
from tests.d_compile.stubs import prelude

_TABLES = ("quantize", "lquantize", "llquantize")
_BUCKETS = ("2", "3", "34", "16")
_CONVERSION = re.compile(r"%(?:@?)-?\d*[a-z]")
_OWN_HOOK = re.compile(r"(?:dtrace:::)?(?:BEGIN|END|ERROR)|(?:profile:::)?(?:tick|profile)-\w+")
_PROTOCOL = {"ready": 1, "tick": 2, "done": 0, "last": 2}


def values(manifest: Manifest, platform: str = "") -> dict[str, int | str]:
    """A value for each parameter: the platform's word, 0 where that is automatic, else something in the middle."""
    numbers = {p.name: p.low if p.low == 0 else (p.low + p.high) // 2 for p in manifest.parameters if not p.words}
    return dict(next(fillings(manifest, numbers, platform)).values)


def faults(manifest: Manifest) -> list[str]:
    """One line each."""
    text = manifest.text
    actual_clauses = clauses(manifest.program(values(manifest)))
    return [
        f"{manifest.script.name}: {fault}"
        for fault in (
            *_of_text(text),
            *_of_hooks(manifest, actual_clauses),
            *_of_sources(manifest),
            *_of_locals(actual_clauses),
            *_of_globals(manifest.name, actual_clauses),
            *_of_members(manifest, actual_clauses),
            *_of_maps(manifest, actual_clauses),
            *_of_lines(manifest, actual_clauses),
        )
    ]


def _of_text(whole: str) -> Iterator[str]:
    if not whole.isascii():
        yield "is not ASCII alone: keys of other bytes would be printed as a dump"
    if "#pragma" in whole:
        yield "#pragma: options are latmon's, on the command line"
    if re.search(r"^\s*//", whole, re.MULTILINE):
        yield "// is no comment in D"
    if not re.match(r"(?:\s|/\*.*?\*/)*(?:dtrace:::)?BEGIN\b", whole, re.DOTALL):
        yield "must begin with BEGIN: the program is passed with -n"


def _of_hooks(manifest: Manifest, found: list[Clause]) -> Iterator[str]:
    used = {hook for clause in found for hook in clause.hooks}
    for hook in sorted(hook for hook in used if not _OWN_HOOK.fullmatch(hook)):
        if hook not in manifest.hooks:
            yield f"hooks {hook}, which the manifest doesn't name"
    for hook in manifest.hooks:
        if hook not in used:
            yield f"the manifest names {hook}, which the script doesn't hook"


def _of_sources(manifest: Manifest) -> Iterator[str]:
    for entry in manifest.sources:
        if not re.fullmatch(r"[^:]+: \S.*", entry):
            yield f"sources: not FILE: SYMBOLS: {entry}"
    named = " ".join(entry.partition(": ")[2] for entry in manifest.sources)
    # Where a script has run its hooks were there.
    for hook in manifest.hooks if not manifest.ran_on else ():
        provider, _, remainder = hook.partition(":")
        function, _, name = remainder.rpartition(":")
        symbol = function.rpartition(":")[2] if provider in ("fbt", "rawfbt") else name
        words = "|".join(re.escape(word) for word in (symbol or hook, symbol.replace("-", "__") or hook))
        if hook not in named and not re.search(rf"(?<![\w-])(?:{words})(?![\w-])", named):
            yield f"sources: no source of {hook}"


def _of_locals(found: list[Clause]) -> Iterator[str]:
    """A clause-local is not empty at first: where nothing set it, it has what another probe's clause left in it.

    So it is set before in the same clause, or by an earlier clause of the same probe that ran if this one does.
    """
    earlier: list[tuple[Clause, set[Tokens], set[str]]] = []
    for clause in found:
        wanted = set(split(clause.predicate, "&&"))
        known = set.intersection(*(_set_for(hook, wanted, earlier) for hook in clause.hooks))
        for name in locals_read(clause.predicate):
            if name not in known:
                yield f"line {clause.line}: this->{name} in a predicate, which no clause that ran before sets"
        own: set[str] = set()
        for statement in clause.statements:
            target = assigned(statement)
            is_local = target is not None and target.name.startswith("this->")
            read = statement[3:] if target is not None and is_local and target.operator == "=" else statement
            for name in locals_read(read):
                if name not in known | own:
                    yield f"line {clause.line}: this->{name} is read before this clause sets it"
            if target is not None and is_local:
                own.add(target.name.removeprefix("this->"))
        earlier.append((clause, wanted, own))


def _set_for(hook: str, wanted: set[Tokens], earlier: list[tuple[Clause, set[Tokens], set[str]]]) -> set[str]:
    """Return the names that are set when this hook's clause with these conditions runs."""
    return {name for clause, needed, own in earlier if hook in clause.hooks and needed <= wanted for name in own}


def _of_globals(name: str, found: list[Clause]) -> Iterator[str]:
    begun: set[str] = set()
    for clause in found:
        for statement in clause.statements:
            if statement[0] == "if":
                yield f"line {clause.line}: if is not for every DTrace"
            target = assigned(statement)
            if target is None or target.name.startswith("this->"):
                continue
            if not target.name.lstrip("@").removeprefix("self->").startswith(name + "_"):
                yield f"line {clause.line}: {target.name} doesn't begin with {name}_"
            if target.name.startswith("self->"):
                continue
            if clause.hooks[0].endswith("BEGIN"):
                begun.add(target.name)
            elif target.name not in begun and not target.name.startswith("@"):
                yield f"line {clause.line}: BEGIN gives {target.name} no value, so its type is not known"


def _of_members(manifest: Manifest, found: list[Clause]) -> Iterator[str]:
    """Every member of a struct is one that was found in the platform's sources."""
    stub = prelude(manifest.platform)
    if stub is None:
        return
    every = [tokens for clause in found for tokens in (clause.predicate, *clause.statements)]
    for member in sorted({member for tokens in every for member in members(tokens)}):
        if not re.search(rf"\b{member}\b", stub.text):
            yield f"member {member} is in no type of {stub.name}"


def _of_maps(manifest: Manifest, found: list[Clause]) -> Iterator[str]:
    specs = {spec.name: spec for spec in manifest.maps}
    aggregations: dict[str, tuple[int, str]] = {}
    for clause in found:
        for statement in clause.statements:
            target = assigned(statement)
            if target is None or not target.name.startswith("@"):
                continue
            function, given = calls(target.rest)
            aggregations[target.name[1:]] = (len(target.keys), function)
            if function in _TABLES and (
                function != "llquantize"
                or tuple("".join(one) for one in given[1:5]) != _BUCKETS
                or given[0][-2:] != ("*", "8")
            ):
                yield f"line {clause.line}: {target.name}: not llquantize(us * 8, 2, 3, 34, 16)"
    printed = _printed(found)
    for name in sorted(set(specs) | set(aggregations)):
        forms = [form for form, of in printed if of == name]
        if name not in specs:
            if not _adds_rows(specs, forms):
                yield f"@{name} is not in the manifest"
        elif name not in aggregations:
            yield f"@{name} is never set"
        else:
            yield from _of_map(specs[name], *aggregations[name], forms)


def _adds_rows(specs: Mapping[str, MapSpec], forms: list[str]) -> bool:
    """Return whether an aggregation is printed twice as rows of a map of the manifest, with a label in one column."""
    matches = [re.fullmatch(r"@@S (\w+)((?:\\t%[sdua])*)\\t[a-z ]+\\t%@d\\n", form) for form in forms]
    names = {
        match[1]
        for match in matches
        if match and len(_CONVERSION.findall(match[2])) + 1 == len(specs[match[1]].columns)
    }
    return len(forms) == 2 and len(set(forms)) == 1 and len(names) == 1


def _of_map(spec: MapSpec, keys: int, function: str, forms: list[str]) -> Iterator[str]:
    columns = spec.columns
    table = function in _TABLES
    if table != (len(columns) < len(spec.key)):
        yield f"@{spec.name}: {function}() with a key that {'lacks' if table else 'has'} a bucket"
    if keys != len(columns):
        yield f"@{spec.name} has {keys} keys, the manifest {len(columns)} columns"
    if len(forms) != 2 or len(set(forms)) > 1:
        yield f"@{spec.name} must be printed alike twice, in the tick and in END"
    for form in forms:
        kind, end = ("Q", "%@d@@E") if table else ("S", "\\t%@d")
        body = re.fullmatch(rf"@@{kind} {spec.name}((?:\\t[\w:]*%[sdua])*)(\\t)?{re.escape(end)}\\n", form)
        if body is None or bool(body[2]) != table:
            yield f"@{spec.name}: not a line of the protocol: {form}"
        elif len(conversions := _CONVERSION.findall(body[1])) != len(columns):
            yield f"@{spec.name} prints {len(conversions)} columns of {len(columns)}"
        else:
            for part, conversion in zip(columns, conversions, strict=True):
                if conversion in ("%s", "%a") and part.name not in NAMED:
                    yield f"@{spec.name}: {part.name} is printed with {conversion}"


def _printed(found: list[Clause]) -> list[tuple[str, str]]:
    given = [calls(statement) for clause in found for statement in clause.statements]
    return [(of[0][0].strip('"'), of[1][0].lstrip("@")) for name, of in given if name == "printa"]


def _of_lines(manifest: Manifest, found: list[Clause]) -> Iterator[str]:
    """The lines of the protocol and of the records; that nothing is cleared before the end."""
    for clause in found:
        lines = [line for statement in clause.statements for line in _lines(statement)]
        kinds = [line.split()[1] for line in lines if len(line.split()) > 1]
        for line in lines:
            yield from (f"line {clause.line}: {fault}" for fault in _of_line(manifest, line))
        ends = clause.hooks[0].endswith("END")
        for statement in clause.statements:
            name, _ = calls(statement)
            if name in ("clear", "trunc", "normalize", "denormalize") and not ends:
                yield f"line {clause.line}: {name}() before the end"
            if name in ("exit", "stop", "panic", "breakpoint", "raise", "system", "copyout", "chill"):
                yield f"line {clause.line}: {name}()"
        if any(calls(statement)[0] == "printa" for statement in clause.statements) and (
            kinds[:1] not in (["tick"], ["last"]) or (kinds[0] == "tick" and kinds[-1] != "done")
        ):
            yield f"line {clause.line}: maps are printed between tick and done, or after last"
    reported = {
        line.split()[1] for clause in found for s in clause.statements for line in _lines(s) if len(line.split()) > 1
    }
    for kind in (*_PROTOCOL, *manifest.records):
        if kind not in reported:
            yield f"prints no {kind}"


def _lines(statement: Tokens) -> list[str]:
    name, given = calls(statement)
    if name != "printf":
        return []
    return [line for line in given[0][0].strip('"').split("\\n") if line]


def _of_line(manifest: Manifest, line: str) -> Iterator[str]:
    # A TAB is in the text as it is written in D.
    parted = line.replace("\\t", " ").split()
    mark, kind, name, *words = [*parted, "", "", ""][: max(3, len(parted))]
    if mark != "@@" or name != manifest.name:
        yield f"not a line of ours: {line}"
    elif kind in _PROTOCOL:
        if len(words) != _PROTOCOL[kind]:
            yield f"{kind} has {_PROTOCOL[kind]} numbers: {line}"
    elif kind not in manifest.records:
        yield f"the manifest has no record {kind}"
    else:
        spec = manifest.records[kind]
        if len(words) != len(spec.fields) + bool(spec.text) and not (spec.text and len(words) > len(spec.fields)):
            yield f"{kind} has {len(spec.fields)} fields, the line {len(words)}: {line}"
        for field, word in zip(spec.fields, words, strict=False):
            if word == "%s" and field not in NAMED and field != "rwbs":
                yield f"{kind}: {field} is printed with %s"
