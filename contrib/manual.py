"""Generator of the man pages and of the completions of bash, zsh and fish: `python contrib/manual.py DIRECTORY`.

All of it is read from the parsers that latmon/cli/arguments.py makes of the table of options, so that it can't differ
from `latmon COMMAND --help`. The files are where `man` and the shells look below /usr/share and /usr/local/share.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from latmon import __version__
from latmon.cli import arguments
from latmon.cli.values import Columns, OneOf

MAN = "man/man1"
BASH, ZSH, FISH = (
    "bash-completion/completions/latmon",
    "zsh/vendor-completions/_latmon",
    "fish/vendor_completions.d/latmon.fish",
)
_QUOTE = "\N{RIGHT SINGLE QUOTATION MARK}"
"""Replaces the quote in texts: bash, zsh and fish each escape it in a way of their own."""
_FILES = frozenset({"FILE", "OUT", "PATH", "DIR", "LOG", "F"})
"""Names of values that are files or directories."""
_FILES_SECTION = {
    "~/.config/latmon/config.yaml": "defaults of options",
    "/etc/xdg/latmon/config.yaml": "the same for all users; under sudo it alone names the tool that runs as root",
}


def values(action: argparse.Action) -> tuple[str, ...]:
    """Return the values that an argument accepts; empty where any text or a number may be one."""
    return tuple(action.type.names()) if isinstance(action.type, OneOf | Columns) else ()


def is_file(action: argparse.Action) -> bool:
    """Return whether an argument is the path of a file or of a directory."""
    return action.metavar in _FILES


def shown(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments that --help lists."""
    return [one for one in parser._actions if one.help != argparse.SUPPRESS]  # noqa: SLF001 - argparse has no other way


def _takes_value(action: argparse.Action) -> bool:
    return action.nargs != 0


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return parser._get_formatter()._expand_help(action) if action.help else ""  # noqa: SLF001


# --- roff -----------------------------------------------------------------------------------------------------------


def roff(text: str) -> str:
    """Return a line of text for roff: no character of it is a request or an escape."""
    safe = text.replace("\\", "\\(rs").replace("-", "\\-").replace("~", "\\(ti").replace("^", "\\(ha")
    return f"\\&{safe}" if safe.startswith((".", "'")) else safe


def _entry(term: str, text: str) -> str:
    return f".TP\n{term}\n{roff(text)}\n"


def _term(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return an argument with its value, options bold and values italic."""
    value = parser._get_formatter()._format_args(action, _metavar(action)) if _takes_value(action) else ""  # noqa: SLF001
    options = ", ".join(f"\\fB{roff(one)}\\fR" for one in action.option_strings)
    return " ".join(filter(None, (options, value and f"\\fI{roff(value)}\\fR")))


def _metavar(action: argparse.Action) -> str:
    return action.dest.upper() if action.option_strings else action.dest


def _blocks(text: str) -> Iterator[str]:
    """Yield roff for the end of a help text: lines with a colon are headings, indented lines stay lines."""
    is_literal = False
    for line in text.splitlines():
        if line.startswith(" ") != is_literal:
            is_literal = not is_literal
            yield ".nf\n" if is_literal else ".fi\n"
        if line.endswith(":") and not is_literal:
            yield f".SH {roff(line.removesuffix(':')).upper()}\n"
        elif line.strip():
            yield f"{roff(line.strip()) if is_literal else '.PP' + chr(10) + roff(line)}\n"
    if is_literal:
        yield ".fi\n"


def page(name: str, parser: argparse.ArgumentParser) -> str:
    """Return the man page of a command; `name` is empty for latmon itself."""
    title = f"latmon-{name}" if name else "latmon"
    purpose = arguments.purpose(name)
    parts = [
        f'.TH {title.upper()} 1 "" "latmon {__version__}" "latmon"\n',
        f".SH NAME\n{roff(title)} \\- {roff(purpose)}\n",
        f".SH SYNOPSIS\n.nh\n.ad l\n{_synopsis(parser)}\n.ad b\n.hy\n",
        f".SH DESCRIPTION\n{roff(parser.description or '')}\n",
    ]
    for group in parser._action_groups:  # noqa: SLF001
        entries = [
            _entry(_term(parser, one), _help(parser, one))
            for one in group._group_actions  # noqa: SLF001
            if one.help != argparse.SUPPRESS
        ]
        if entries:
            parts += [f".SH {roff(group.title or '').upper()}\n", *entries]
    parts += _of_latmon() if not name else _blocks(parser.epilog or "")
    parts.append(f".SH SEE ALSO\n{_see_also(name)}\n")
    return "".join(parts)


def _synopsis(parser: argparse.ArgumentParser) -> str:
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    # an option and its value stay on a line, which may be broken after a comma of a long list
    return re.sub(r"\[[^]]*\]", lambda one: one[0].replace(" ", "\\~").replace(",", ",\\:"), roff(usage))


def _of_latmon() -> Iterator[str]:
    """Yield the sections that only the page of latmon itself has."""
    yield ".SH COMMANDS\n"
    for name in filter(None, arguments.parsers()):
        yield _entry(f"\\fBlatmon {roff(name)}\\fR", arguments.purpose(name))
    tables: Mapping[str, Mapping[str, str]] = {
        "EXIT STATUS": arguments.EXIT_CODES,
        "ENVIRONMENT": arguments.ENVIRONMENT,
        "FILES": _FILES_SECTION,
    }
    for title, rows in tables.items():
        yield f".SH {title}\n"
        yield from (_entry(f"\\fB{roff(term)}\\fR", text) for term, text in rows.items())
    yield from _blocks("\n".join(("examples:", *(f"  {one}" for one in arguments.COMMANDS[arguments.LIVE].examples))))


def _see_also(name: str) -> str:
    others = ("latmon", *(f"latmon-{one}" for one in arguments.parsers() if one))
    own = f"latmon-{name}" if name else "latmon"
    return ",\n".join(f".BR {roff(one)} (1)" for one in others if one != own).replace(",\n", " ,\n")


# --- completions ----------------------------------------------------------------------------------------------------


def _quoted(text: str) -> str:
    """Return a text in single quotes for any of the three shells."""
    return "'" + text.replace("\\", "").replace("'", _QUOTE) + "'"


def bash() -> str:
    """Return the completion of bash: after an option its values or files, else options, commands and files."""
    parsers = arguments.parsers()
    lines = [
        "# bash completion for latmon, made by contrib/manual.py",
        "_latmon_files() {  # a line each: names have blanks",
        "    local file typed=${cur//\\\\/}",
        """    typed=${typed#[\\"\\']}""",
        """    while IFS= read -r file; do COMPREPLY+=("$file"); done < <(compgen -f -- "$typed")""",
        "}",
        "",
        "_latmon() {",
        '    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} words=""',
        "    COMPREPLY=()",
        f'    case " {" ".join(filter(None, parsers))} " in *" $command "*) ;; *) command=live ;; esac',
        "    ((COMP_CWORD > 1)) || command=live",
        '    case "$command $prev" in',
        *(line for name, parser in parsers.items() for line in _bash_values(name or "live", parser)),
        "    esac",
        '    case "$command" in',
        *(
            f"    {name or 'live'}) words={_quoted(' '.join(_bash_words(parser)))} ;;"
            for name, parser in parsers.items()
        ),
        "    esac",
        f"    ((COMP_CWORD > 1)) || words+={_quoted(' ' + ' '.join((*filter(None, parsers), 'help')))}",
        '    COMPREPLY=($(compgen -W "$words" -- "$cur"))',
        "    ((COMP_CWORD == 1)) || [[ $cur == -* ]] || _latmon_files",
        "}",
        "complete -o filenames -F _latmon latmon",
    ]
    return "\n".join(lines) + "\n"


def _bash_words(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in shown(parser):
        yield from action.option_strings or values(action)


def _bash_values(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in shown(parser):
        if not (action.option_strings and _takes_value(action)):
            continue
        known = values(action)
        then = "return"
        if known:
            then = f'COMPREPLY=($(compgen -W {_quoted(" ".join(known))} -- "$cur")); return'
        elif is_file(action):
            then = "_latmon_files; return"
        yield f"    {'|'.join(_quoted(f'{name} {one}') for one in action.option_strings)}) {then} ;;"


def zsh() -> str:
    """Return the completion of zsh, with the help of each option."""
    parsers = arguments.parsers()
    lines = [
        "#compdef latmon",
        "# made by contrib/manual.py",
        "local -a commands",
        "commands=(",
        *(f"    {_quoted(f'{name}:{arguments.purpose(name)}')}" for name in filter(None, parsers)),
        "    'help:exit codes and environment'",
        ")",
        "if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then",
        "    _describe command commands",
        "    return",
        "fi",
        "case $words[2] in",
    ]
    for name, parser in sorted(parsers.items(), reverse=True):  # the live screen is the last one: it has any other word
        if name:
            lines += [f"{name})", "    shift words", "    (( CURRENT-- ))"]
        else:
            lines += ["*)"]
        lines += ["    _arguments -s \\", *(f"        {one} \\" for one in _zsh_specs(parser)), "        ;;"]
        lines[-2] = lines[-2].removesuffix(" \\")
    return "\n".join((*lines, "esac")) + "\n"


def _zsh_specs(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in shown(parser):
        known = values(action)
        how = f"({' '.join(known)})" if known else "_files" if is_file(action) else " "
        label = str(action.metavar or action.dest)
        text = re.sub(r"([\[\]:])", r"\\\1", _help(parser, action))
        value = f":{label}:{how}" if _takes_value(action) else ""
        again = "*" if isinstance(action, argparse._AppendAction) else ""  # noqa: SLF001
        for option in action.option_strings:
            yield f"{_quoted(f'{again}{option}')}{_zsh_rest(text, value)}"
        if not action.option_strings:
            yield _quoted(f"{'*' if action.nargs in ('+', '*') else ''}:{label}:{how}")


def _zsh_rest(text: str, value: str) -> str:
    # a backslash before [, ] and : is zsh's, so this is not for _quoted
    return "'[" + text.replace("'", _QUOTE) + "]" + value + "'"


def fish() -> str:
    """Return the completion of fish, with the help of each option."""
    parsers = arguments.parsers()
    lines = ["# fish completion for latmon, made by contrib/manual.py"]
    for name in filter(None, parsers):
        about = _quoted(arguments.purpose(name))
        lines.append(f"complete -c latmon -n __fish_use_subcommand -f -a {name} -d {about}")
    lines.append("complete -c latmon -n __fish_use_subcommand -f -a help -d 'exit codes and environment'")
    for name, parser in parsers.items():
        when = f"'__fish_seen_subcommand_from {name}'" if name else "__fish_use_subcommand"
        lines += [f"complete -c latmon -n {when} {one}" for one in _fish_words(parser)]
    return "\n".join(lines) + "\n"


def _fish_words(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in shown(parser):
        known = values(action)
        names = " ".join(f"-l {one[2:]}" if one.startswith("--") else f"-s {one[1:]}" for one in action.option_strings)
        given = f" -x -a {_quoted(' '.join(known))}" if known else " -r -F" if is_file(action) else " -x"
        about = f" -d {_quoted(_help(parser, action))}"
        if names:
            yield f"{names}{given if _takes_value(action) else ''}{about}"
        elif known:
            yield f"-a {_quoted(' '.join(known))}{about}"


def files() -> Iterable[tuple[str, str]]:
    """Yield the path below share/ and the text of each file."""
    for name, parser in arguments.parsers().items():
        yield f"{MAN}/latmon{name and '-' + name}.1", page(name, parser)
    yield from ((BASH, bash()), (ZSH, zsh()), (FISH, fish()))


def write(share: Path) -> None:
    """Write all files below a directory as /usr/share."""
    for name, text in files():
        (share / name).parent.mkdir(parents=True, exist_ok=True)
        (share / name).write_text(text, "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):  # noqa: PLR2004 - its name and one word
        sys.exit("usage: python contrib/manual.py DIRECTORY, such as /usr/local/share")
    write(Path(sys.argv[1]))
