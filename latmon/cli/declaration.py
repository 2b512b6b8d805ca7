"""Types of the table of options (latmon/cli/options.py), and the check of a command line by the rules between options.

Knows no option and no command.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from latmon.cli.values import Flag
from latmon.support.text import clean

T = TypeVar("T")
MAX_QUOTED = 80
"""Characters of a value in a sentence."""
SHOWN = "the screen"
"""Heading in the sample of a config."""


class Rule(NamedTuple):
    """Parts of a command line that an option needs, of which one is enough, or that it excludes.

    A part names options as they are typed, and arguments by their destination: it is given if each of them is, with the
    value behind it where there is one. Options of other commands are never given.
    """

    parts: tuple[str, ...]
    sentence: str = "{option} needs {parts}"
    """Error of a command line that breaks the rule.

    {option} and {usage} are the option without and with the name of its value, {part} is the excluded part, {parts} are
    all parts of the command with the names of their values; a destination, such as {files}, is replaced by its value.
    """
    unless: tuple[str, ...] = ()
    """Parts of which each one lifts the rule."""
    commands: tuple[str, ...] = ()
    """Commands that have the rule; empty: all that have the option."""


class Option(NamedTuple, Generic[T]):
    """An option or an argument of commands, a key of the config file, or both: then the option overrides the key."""

    usage: str = ""
    """The option as it is typed, with the name of its value: `-q, --quiet`, `--record FILE`; of an argument `FILE`."""
    help: str = ""
    kind: Callable[[str], T] = Flag()  # type: ignore[assignment]  # then there is no value
    """Parser of the value. Raises ValueError with a sentence. Of a key it is a Kind."""
    dest: str = ""
    """Attribute of the namespace; empty: by the option's name."""
    commands: tuple[str, ...] = ()
    unlisted_in: tuple[str, ...] = ()
    """Commands whose help doesn't list the option."""
    heading: str = ""
    """Heading in the help, which a command may replace; empty: the parser's own."""
    unset: object = None
    """Value where an option with a value isn't given."""
    nargs: str | None = None
    is_repeatable: bool = False
    is_required: bool = False
    is_behind_dashes: bool = False
    """The words behind `--`, which no other option takes."""
    has_schema: bool = False
    """The option prints the JSON Schema that is named like its command, and ends."""
    one_of: str = ""
    """Name of a set of options of which one at most is given."""
    needs: tuple[Rule, ...] = ()
    excludes: tuple[Rule, ...] = ()
    check: Callable[[argparse.Namespace], str] | None = None
    """Return the error that no rule expresses; empty where there is none. Called if the option isn't given, too."""
    key: str = ""
    """Key of the config file; empty: it has none."""
    group: str = SHOWN
    """Heading in the sample of a config."""
    default: str = ""
    """Value without option and config, in words. Tests compare it with docs/CONFIG.md."""
    example: str = ""
    """Value in the sample of a config; empty: the default."""
    comment: str = ""
    """Meaning of the key in the sample of a config, and its description in the JSON Schema."""
    is_of_view: bool = False
    """Whether saved views may have the key."""
    variable: str = ""
    """Environment variable that overrides the config."""

    @property
    def flags(self) -> list[str]:
        """Return the names with a dash, the last one of which is used in sentences; an argument has none."""
        return [word.rstrip(",") for word in self.usage.split() if word.startswith("-")]

    @property
    def metavar(self) -> str | None:
        """Return the name of the value in the help; None where that lists the choices."""
        word = self.usage.split()[-1]
        return word if word not in self.flags and (self.flags or word.isupper()) else None

    @property
    def name(self) -> str:
        return self.flags[-1] if self.flags else self.destination

    @property
    def destination(self) -> str:
        return self.dest or (self.flags or [self.usage])[-1].lstrip("-").replace("-", "_")

    @property
    def has_value(self) -> bool:
        return not isinstance(self.kind, Flag)

    @property
    def initial(self) -> Any:
        """Return the value where the option isn't given."""
        if not self.has_value:
            return False
        return [] if self.is_repeatable or self.nargs == "*" else self.unset

    def is_given(self, args: argparse.Namespace) -> bool:
        return bool(getattr(args, self.destination, self.initial) != self.initial)


def mistake(args: argparse.Namespace, declared: Iterable[Option[Any]]) -> str:
    """Return the sentence on the first rule of a command's options that its command line breaks; empty without."""
    by_name = {option.name: option for option in declared}
    for option in by_name.values():
        sentence = _broken_rule(option, args, by_name) if option.is_given(args) else ""
        if not sentence and option.check is not None:
            sentence = option.check(args)
        if sentence:
            return sentence
    return ""


def _broken_rule(option: Option[Any], args: argparse.Namespace, by_name: Mapping[str, Option[Any]]) -> str:
    """Return the sentence on the first rule of an option that is broken; empty without."""
    for rules, is_needed in ((option.needs, True), (option.excludes, False)):
        for rule in rules:
            if rule.commands and args.command not in rule.commands:
                continue
            given = [part for part in rule.parts if _is_given(part, args, by_name)]
            is_lifted = any(_is_given(part, args, by_name) for part in rule.unless)
            if bool(given) != is_needed and not is_lifted:
                return _sentence(rule, option, args, given, by_name)
    return ""


def _sentence(
    rule: Rule, option: Option[Any], args: argparse.Namespace, given: Sequence[str], by_name: Mapping[str, Option[Any]]
) -> str:
    typed = {name: clean(str(value), MAX_QUOTED) for name, value in vars(args).items()}
    possible = [part for part in rule.parts if all(_name(words) in by_name for words in _options(part))]
    *others, last = [by_name[part].usage if part in by_name else part for part in possible]
    parts = f"{', '.join(others)} or {last}" if others else last
    return rule.sentence.format_map(
        {**typed, "option": option.name, "usage": option.usage, "part": "".join(given[:1]), "parts": parts}
    )


def _is_given(part: str, args: argparse.Namespace, by_name: Mapping[str, Option[Any]]) -> bool:
    """Return whether each option of a part of a command line is given, with its value where there is one."""
    for words in _options(part):
        name, _, value = words.partition(" ")
        option = by_name.get(name)
        if option is None:
            return False
        if value and str(getattr(args, option.destination)) != value:
            return False
        if not value and not option.is_given(args):
            return False
    return True


def _name(words: str) -> str:
    return words.partition(" ")[0]


def _options(part: str) -> list[str]:
    """Return each option of a part of a command line, with its value."""
    return re.split(r" (?=--)", part)
