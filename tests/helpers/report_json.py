"""A report as its JSON, with the report itself for what renders it."""

from typing import Any

from latmon.report.model.report import Report
from latmon.report.reading import summarise
from latmon.support.typed_json import to_json


class ReportJson(dict[str, Any]):
    """JSON value of a report."""

    def __init__(self, report: Report) -> None:
        super().__init__(to_json(report))
        self.report = report


def summarised(*args: Any, **options: Any) -> ReportJson:
    """Return the report of a recording; the arguments are those of `summarise`."""
    return ReportJson(summarise(*args, **options))
