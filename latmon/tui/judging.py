"""When rules are asked: between pictures and keys, some milliseconds at a time. Knows no rule and no widget."""

from __future__ import annotations

import time
from collections.abc import Callable

from latmon.errors import LatmonError
from latmon.views.watched import Watched

_AT_ONCE_S = 0.01
_REST_S = 0.02
"""At least; a part that took longer rests longer, so that this is a third of the time at most."""
_SHARE = 2


class Judging:
    """Goes on until nothing is left to be judged. `later` calls back after so many seconds."""

    def __init__(
        self,
        watched: Watched,
        later: Callable[[float, Callable[[], None]], object],
        changed: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._watched, self._later, self._changed, self._say = watched, later, changed, say
        self._coming = False

    def wake(self) -> None:
        """Something may have come."""
        if not self._coming and self._watched.behind:
            self._coming = True
            self._later(_REST_S, self._some)

    def _some(self) -> None:
        began = time.monotonic()
        changed = False
        try:
            while self._watched.behind and not changed and time.monotonic() - began < _AT_ONCE_S:
                changed = self._watched.proceed()
        except LatmonError as error:  # a file that is gone
            self._watched.fail(str(error))
            self._say(str(error))
            changed = True
        finally:
            self._coming = False
        if self._watched.behind:
            self._coming = True
            self._later(max(_REST_S, _SHARE * (time.monotonic() - began)), self._some)
        if changed:
            self._changed()
