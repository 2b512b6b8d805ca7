"""Stubs of a platform for its scripts: its types, and the sources of its hooks' arguments.

A prelude is D, with the file of each type in a comment, and has in comments of its own form what D can't express:

    args HOOK: TYPE, TYPE     the types of args[] at a hook that this host doesn't have
    keeps HOOK                a hook that this host has with the same arguments
    kernel NAME: TYPE         a variable of the kernel, written `NAME or MODULE`NAME

With it a script is rewritten so that the DTrace of this host compiles it: hooks become a clock's, arguments become
casts, types get a name of their own, because this host's kernel can have one of the same name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.d_compile.d_text import clauses

HERE = Path(__file__).parent
_SAYS = re.compile(r"^ \* (args|kernel) (\S+): (.+)$|^ \* (keeps) (\S+)$", re.MULTILINE)
_ELSEWHERE = "profile:::tick-1s"
_OURS = ("BEGIN", "END", "tick-", "profile-", "profile:::", "dtrace:::", "syscall:")


@dataclass(frozen=True, slots=True)
class Prelude:
    name: str
    text: str

    @property
    def args(self) -> dict[str, list[str]]:
        return {m[2]: [part.strip() for part in m[3].split(",")] for m in _SAYS.finditer(self.text) if m[1] == "args"}

    @property
    def variables(self) -> dict[str, str]:
        return {m[2]: m[3] for m in _SAYS.finditer(self.text) if m[1] == "kernel"}

    @property
    def kept(self) -> set[str]:
        return {m[5] for m in _SAYS.finditer(self.text) if m[4]}

    def renamed(self, text: str) -> str:
        """With the types that this prelude declares under names of their own."""
        own = "|".join(sorted(set(re.findall(r"^(?:typedef )?(?:struct|union) (\w+)", self.text, re.MULTILINE))))
        aliases = "|".join(sorted(set(re.findall(r"^} (\w+);", self.text, re.MULTILINE))))
        text = re.sub(rf"\b(struct|union) ({own})\b", r"\1 stub_\2", text) if own else text
        return re.sub(rf"\b({aliases})\b", r"stub_\1", text) if aliases else text

    def program(self, *scripts: str) -> str:
        """The prelude and the scripts, as this host can compile them."""
        return self.renamed("\n".join([self.text, *(self._rewritten(script) for script in scripts)]))

    def _rewritten(self, script: str) -> str:
        parts = []
        for clause in clauses(script):
            hooks = [hook if self._is_here(hook) else _ELSEWHERE for hook in clause.hooks]
            types = next((self.args[hook] for hook in clause.hooks if hook in self.args), [])
            predicate, *statements = (
                self._typed(" ".join(statement), types) for statement in (clause.predicate, *clause.statements)
            )
            body = "".join(f"\t{statement};\n" for statement in statements)
            parts.append(
                ",\n".join(dict.fromkeys(hooks)) + (f"\n/{predicate}/" if predicate else "") + f"\n{{\n{body}}}\n"
            )
        return "\n".join(parts)

    def _is_here(self, hook: str) -> bool:
        return hook.startswith(_OURS) or hook in self.kept

    def _typed(self, text: str, types: list[str]) -> str:
        # Blanks separate the tokens.
        for n, kind in enumerate(types):
            text = text.replace(f"args [ {n} ]", f"(({kind})arg{n})")
        return re.sub(r"(?:\b\w+ )?`(\w+)", self._variable, text)

    def _variable(self, match: re.Match[str]) -> str:
        kind = self.variables.get(match[1])
        return match[0] if kind is None else f"(*({kind} *)8)"


def prelude(platform: str) -> Prelude | None:
    """None for a platform whose scripts run here as they are."""
    path = HERE / f"{platform}.d"
    return Prelude(path.name, path.read_text(encoding="ascii")) if path.is_file() else None
