"""Command lines of known tools behind any prompt, as `$ COMMAND`: without sudo before them and pipes behind them.

A prompt ends in one of `$ # % >`, or has a sign that is neither a letter nor punctuation of prose, as those of
starship, oh-my-zsh, pure and powerline have.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from latmon.importers import values

ASCII_MARKS = "$#%>"
SHELL_MARKS = "\u276f\u279c\u03bb\u00bb\u25b6\u203a\u27e9\u21d2\u2192\u276d\u276c\u25b8\u2b9e"
NO_MARKS = "\u2018\u2019\u201c\u201d\u00ab\u2013\u2014\u2026\ufffd"
"""Punctuation of prose, and what damaged text becomes."""
LONGEST_PROMPT = 120
WRAPPERS = frozenset(
    (
        *("sudo", "doas", "time", "env", "nice", "ionice", "stdbuf", "unbuffer", "timeout"),
        *("exec", "command", "watch", "nohup", "chrt", "taskset"),
    )
)
"""Commands that run another one, which follows their options."""
SETTING = re.compile(r"[A-Za-z_]\w*=\S*")
OPTION = re.compile(r"-\S+|\d[\w.]*")
ARGUMENT = re.compile(r"[\w./,=@+-][\w./,:=@%+-]*")
BEHIND = re.compile(r"\s*(?:\|&? *[A-Za-z./]|[\s\d&]?>+ *[A-Za-z./~&]|&&? *(?:[A-Za-z.]|\Z)|\s#\s)|\s{3,}")
"""End of a command's arguments: a pipe, a redirection, a comment, the prompt at the right edge."""
HEAD = re.compile(
    r"Linux \d\S* \(|avg-cpu:|Device:?\s|Tracing [a-z]|\s+extended device statistics"
    r"|\s{2,}(?:\S+\s+)?(?:capacity\s+operations|total_wait\s+disk_wait)"
)
"""Begin of a tool's output, which a copy may have joined to the command line above it."""


def command_lines(line: str, names: re.Pattern[str]) -> list[str]:
    """Return a line; a command behind a prompt as `$ COMMAND`, and apart from a head that was joined to it."""
    if len(line) > values.LONGEST_LINE or not line.strip():
        return [line]
    begin = command_begin(line, names) if names.search(line) is not None else None
    if begin is None:
        if line.lstrip()[0].isascii():
            return [line]
        is_prompt = all(letter in SHELL_MARKS for letter in line.split(maxsplit=1)[0])
        return [f"$ {line}" if is_prompt else line]
    command, _ = cut(line[begin:])
    head = HEAD.search(line, begin)
    is_joined = head is not None and begin + len(command) >= head.start()
    if head is not None and (is_joined or not line[begin + len(command) : head.start()].strip()):
        command, _ = cut(line[begin : head.start()])
        return [f"$ {command}", line[head.start() :]]
    has_prompt = bool(line[:begin].strip())
    return [f"$ {command}"] if has_prompt else [line]


def cut(text: str) -> tuple[str, str]:
    """Return a command with its arguments, and what is behind them."""
    end = BEHIND.search(text)
    return (text, "") if end is None else (text[: end.start()], text[end.start() :])


def command_begin(line: str, names: re.Pattern[str]) -> int | None:
    """Return where the command of a known tool begins that is behind a prompt or at the line's begin."""
    for word in re.finditer(r"\S+", line[: LONGEST_PROMPT + 80]):
        name = word[0].rpartition("/")[2]
        if names.fullmatch(name) is None:
            continue
        before = prompt_before(line[: word.start()])
        command, _ = cut(line[word.start() :])
        head = HEAD.search(command)
        arguments = (command if head is None else command[: head.start()]).split()[1:]
        if before is None or not all(ARGUMENT.fullmatch(argument) for argument in arguments):
            return None
        return word.start()
    return None


def prompt_before(text: str) -> str | None:
    """Return the prompt before a command, without what runs it; None if the text is none."""
    words = text.split()
    while words and is_wrapper(words):
        words.pop()
    if not words:
        return ""
    if len(text) > LONGEST_PROMPT:
        return None
    is_prompt = words[-1][-1] in ASCII_MARKS or any(has_mark(word) for word in words)
    return " ".join(words) if is_prompt else None


def is_wrapper(words: Sequence[str]) -> bool:
    """Return whether the last word before a command runs it, or is an option or a setting of what does."""
    last = words[-1]
    if last.rpartition("/")[2] in WRAPPERS or SETTING.fullmatch(last):
        return True
    return OPTION.fullmatch(last) is not None and any(word.rpartition("/")[2] in WRAPPERS for word in words)


def has_mark(word: str) -> bool:
    """Return whether a word ends in a sign that shells print, and that prose and ASCII don't have."""
    last = word[-1]
    if last in SHELL_MARKS:
        return True
    if last.isascii() or last in NO_MARKS:
        return False
    return unicodedata.category(last)[0] in "SPC"
