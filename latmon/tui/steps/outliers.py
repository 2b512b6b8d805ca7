"""Steps in the log of outliers."""

from __future__ import annotations

from dataclasses import replace

from latmon.views.choice import Choice, after
from latmon.views.outliers import ORDERS
from latmon.views.panels.outliers import log, position
from latmon.views.sight import Sight


def pick(sight: Sight, by: int) -> Choice:
    """Another outlier, stopping at the ends; what is picked stays picked when newer ones come."""
    rows = log(sight)
    if not rows.rows:
        return sight.choice
    at = min(max(position(rows, sight.choice.outlier) + by, 0), len(rows.rows) - 1)
    return replace(sight.choice, outlier=rows.rows[at].outlier, top=0)


def read(sight: Sight, _by: int) -> Choice:
    """The picked outlier's waterfall."""
    return replace(pick(sight, 0), opened=bool(log(sight).rows), top=0)


def order(sight: Sight, _by: int) -> Choice:
    """By time or by total."""
    return replace(sight.choice, order=after(ORDERS, sight.choice.order), outlier=None)


STEPS = {"pick": pick, "read": read, "order": order}
