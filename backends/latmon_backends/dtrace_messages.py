"""What DTrace says on stderr, a message at a time: drops, faults of a clause, and why it does not trace.

Text in, values out. Knows neither programs nor probes: of a message that repeats the program (`-n`) only the reason is
kept. All texts are clean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from latmon.text import clean

MAX_REASON = 200


@dataclass(frozen=True, slots=True)
class Drops:
    """What was lost: records (`principal`), `aggregation`, `dynamic` (variables), `speculation`, `stkstrtab`, `error`.

    `cpu` is None where none is named.
    """

    kind: str
    count: int
    cpu: int | None


@dataclass(frozen=True, slots=True)
class Fault:
    """A clause that was given up at run time, once; tracing goes on."""

    probe: str
    what: str


@dataclass(frozen=True, slots=True)
class Started:
    """A program that matched so many probes."""

    probes: int


@dataclass(frozen=True, slots=True)
class Refused:
    """DTrace does not trace, or no longer: why, in a sentence."""

    reason: str


@dataclass(frozen=True, slots=True)
class Other:
    """Anything else."""

    text: str


Message = Drops | Fault | Started | Refused | Other

_DROPS = re.compile(
    r"(?:\[DTRACEDROP_[A-Z]++\] )?([0-9]{1,20}) ((?:jstack\(\)/ustack\(\) )?[a-z ]+?)s?(?: in ERROR probe enabling)?"
    r"(?: on CPU (?:([0-9]{1,6})|#)| with non-empty (?:rinsing|dirty) list| \((?:available|no spec)[a-z() ]+\))?"
)
_LOST = {
    "drop": "principal",
    "aggregation drop": "aggregation",
    "dynamic variable drop": "dynamic",
    "speculative drop": "speculation",
    "failed speculation": "speculation",
    "jstack()/ustack() string table overflow": "stkstrtab",
    "error": "error",
}
_FAULTS = (
    re.compile(r"error in [^ ]++ for probe ID [0-9]++ \(([^()]*+)\): (.++)"),
    re.compile(r"error on enabled probe ID [0-9]++ \(ID [0-9]++: ([^()]*+)\): (.++)"),
)
_STARTED = re.compile(r"(?:script|description) '.*' matched ([0-9]{1,9}) probes?", re.DOTALL)
_REASONS = (
    re.compile(r"failed to compile script [^\n]*?: (line [0-9]++: .++)", re.DOTALL),
    re.compile(r"failed to compile script [^\n]*?: (.++)", re.DOTALL),
    re.compile(r"failed to initialize dtrace: (.++)", re.DOTALL),
    re.compile(r"failed to enable '.*': (.++)", re.DOTALL),
    re.compile(
        r"((?:failed|could not|unable|cannot|can't|invalid option|no probes specified|processing aborted).*+)",
        re.DOTALL,
    ),
    re.compile(r"(run as root .*+)", re.DOTALL),
)
_BEGINNINGS = (": probe description ", ": syntax error", ": in action list", ": in predicate", ": line ")
_END_OF_PROGRAM = re.compile(r"\}\s*: ")
_LIBRARY = re.compile(r'"[^"]+\.d", line [0-9]+: ')
_TAG = re.compile(r"\[D[A-Z]*+_[A-Z0-9_]++\] ")
_REPEATING = ("dtrace: invalid probe specifier ", "dtrace: description '", "dtrace: failed to enable '")
_PRIVILEGE = (
    "additional privileges",
    "run as root",
    "operation not permitted",
    "permission denied",
    "a password is required",
)


def messages(stderr: str) -> Iterator[Message]:
    """All of `stderr`: a line each, but a message that repeats the program goes on to the next `dtrace: `."""
    for one in re.split(r"^(?=dtrace: )", stderr, flags=re.MULTILINE):
        parts = [one] if one.startswith(_REPEATING) else one.split("\n")
        yield from (message(part) for part in parts if part.strip())


def reason(complaints: Sequence[str], status: int) -> str:
    """Why dtrace ended, from the last lines of its stderr: one sentence without a full stop, nor any of the program."""
    said = "\n".join(complaints)
    found = [one for one in messages(said) if isinstance(one, Refused | Other)]
    for one in found:
        if isinstance(one, Refused):
            return one.reason.strip(" .")
    if _END_OF_PROGRAM.search(said):  # the program is longer than what is kept of stderr
        return _sentence(_after_the_program(said)).strip(" .")
    others = [one.text for one in found if isinstance(one, Other)]
    return others[-1].strip(" .") if others else f"dtrace ended with status {status}"


def message(text: str) -> Message:
    """One message, of one line or of several."""
    said = text.strip().removeprefix("dtrace: ")
    if (found := _DROPS.fullmatch(said)) and found[2] in _LOST:
        return Drops(_LOST[found[2]], int(found[1]), None if found[3] is None else int(found[3]))
    for fault in _FAULTS:
        if found := fault.fullmatch(said):
            return Fault(clean(found[1], MAX_REASON), clean(found[2], MAX_REASON))
    if found := _STARTED.fullmatch(said):
        return Started(int(found[1]))
    why = _why(said)
    return Other(_sentence(said)) if why is None else Refused(_sentence(why))


def _why(said: str) -> str | None:
    if said.startswith("invalid probe specifier "):
        return _after_the_program(said)
    return next((found[1] for pattern in _REASONS if (found := pattern.fullmatch(said))), None)


def _after_the_program(said: str) -> str:
    """A program ends in a brace, ours in a newline as well; a probe alone is repeated in the reason."""
    if ends := list(_END_OF_PROGRAM.finditer(said)):
        return said[ends[-1].end() :]
    at = max(said.rfind(beginning) for beginning in _BEGINNINGS)
    if at >= 0:
        return said[at + 2 :]
    return said.rpartition(": ")[2] if ": " in said else "the program is refused"


def _sentence(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return clean(" ".join(_TAG.sub("", line[: 4 * MAX_REASON]).split()), MAX_REASON)


def is_privilege(text: str) -> bool:
    """Whether it is rights that DTrace lacks."""
    said = text.lower()
    return any(words in said for words in _PRIVILEGE)


def is_library(text: str) -> bool:
    """Whether a file of DTrace's own is what it can't compile, which it reads for every program. Ours has no file."""
    return _LIBRARY.match(text) is not None
