"""How recordings and logs are redacted."""

from typing import NamedTuple


class Redaction(NamedTuple):
    """Redaction of a recording and its log: names that may identify the host or its users are left out."""

    paths: tuple[str, ...] = ()
    """Private paths of the config: a sentence may have one with a blank, which no pattern finds as a whole."""
