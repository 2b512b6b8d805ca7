"""The text of a D script as clauses of tokens: as much of the language as the checks of latmon's own scripts need.

Knows no manifest. Takes what Manifest.program gives: parameters are in their places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<skip>\s+|/\*.*?\*/)|(?P<string>"(?:\\.|[^"\\])*")|(?P<map>@\w+)|(?P<word>`?[A-Za-z_]\w*)|(?P<number>\d\w*)"""
    r"""|(?P<sign>->|\+\+|--|<<=|>>=|<<|>>|&&|\|\||[-+*/%&|^=!<>]=|.)""",
    re.DOTALL,
)
_ENDS = "])"
_OPENS = "[("
_ASSIGNS = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=", "++", "--")
Tokens = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Clause:
    """`HOOKS /PREDICATE/ { STATEMENTS }`."""

    hooks: tuple[str, ...]
    predicate: Tokens
    statements: tuple[Tokens, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Assigned:
    """An assignment: the name, the keys' tokens, whether its old value goes into the new one."""

    name: str
    keys: tuple[Tokens, ...]
    operator: str
    rest: Tokens


def tokens(text: str) -> Tokens:
    return tuple(m[0] for m in _TOKEN.finditer(text) if m.lastgroup != "skip")


def clauses(text: str) -> list[Clause]:
    """All clauses in their order; ValueError where the text is not made of them."""
    clauses = []
    at = 0
    while (begin := _past_comments(text, at)) < len(text):
        opens = _sign(text, "{", begin)
        ends = _sign(text, "}", opens)
        head = re.sub(r"/\*.*?\*/", " ", text[begin:opens], flags=re.DOTALL)
        specs, slash, predicate = head.partition("/")
        if slash and not predicate.rstrip().endswith("/"):
            raise ValueError(f"line {_line(text, begin)}: a predicate without its end")
        clauses.append(
            Clause(
                tuple(part.strip() for part in specs.split(",")),
                tokens(predicate.rstrip().removesuffix("/")),
                tuple(split(tokens(text[opens + 1 : ends]), ";")),
                _line(text, begin),
            )
        )
        at = ends + 1
    return clauses


def split(some: Sequence[str], sign: str) -> Iterator[Tokens]:
    """The parts between signs outside of brackets, without empty ones."""
    part: list[str] = []
    depth = 0
    for token in some:
        depth += (token in _OPENS) - (token in _ENDS)
        if token == sign and depth == 0:
            if part:
                yield tuple(part)
            part = []
        else:
            part.append(token)
    if part:
        yield tuple(part)


def assigned(statement: Tokens) -> Assigned | None:
    """Return the statement's assignment, to a variable or `this->NAME`, `self->NAME`; None where it only calls."""
    if not statement:
        return None
    if statement[1:2] == ("->",) and statement[0] in ("this", "self"):
        name, rest = f"{statement[0]}->{statement[2]}", statement[3:]
    elif statement[0] in ("++", "--"):
        return assigned((*statement[1:], statement[0]))
    else:
        name, rest = statement[0], statement[1:]
    keys: tuple[Tokens, ...] = ()
    if rest[:1] == ("[",):
        end = _closing(rest)
        keys, rest = tuple(split(rest[1:end], ",")), rest[end + 1 :]
    if rest and rest[0] in _ASSIGNS:
        return Assigned(name, keys, rest[0], rest[1:])
    return None


def locals_read(some: Sequence[str]) -> list[str]:
    return [some[n + 2] for n in range(len(some) - 2) if tuple(some[n : n + 2]) == ("this", "->")]


def members(some: Sequence[str]) -> list[str]:
    """Names behind -> and `.`, of structs: what follows this and self is none."""
    return [
        some[n + 1]
        for n in range(1, len(some) - 1)
        if some[n] in ("->", ".") and some[n - 1] not in ("this", "self") and re.match(r"[A-Za-z_]", some[n + 1])
    ]


def calls(statement: Tokens) -> tuple[str, list[Tokens]]:
    """The function that the statement calls and what it is given; an empty name where it is no call."""
    if len(statement) > 2 and statement[1] == "(" and _closing(statement[1:]) == len(statement) - 2:
        return statement[0], list(split(statement[2:-1], ","))
    return "", []


def _closing(some: Sequence[str]) -> int:
    depth = 0
    for n, token in enumerate(some):
        depth += (token in _OPENS) - (token in _ENDS)
        if depth == 0:
            return n
    raise ValueError(f"no end of {' '.join(some[:5])}")


def _past_comments(text: str, at: int) -> int:
    m = re.compile(r"(?:\s+|/\*.*?\*/)*", re.DOTALL).match(text, at)
    return at if m is None else m.end()


def _sign(text: str, sign: str, at: int) -> int:
    for m in _TOKEN.finditer(text, at):
        if m[0] == sign:
            return m.start()
    raise ValueError(f"line {_line(text, at)}: no {sign} of this clause")


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
