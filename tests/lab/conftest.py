"""The table of the lab's cells at the end of `make test-lab`."""

import cells


def pytest_terminal_summary(terminalreporter):
    cell = next((one for one in terminalreporter.stats.get("passed", []) if "::test_cell[" in one.nodeid), None)
    cell = cell or next((one for one in terminalreporter.stats.get("failed", []) if "::test_cell[" in one.nodeid), None)
    if cell is not None:
        from test_findings import ROWS  # noqa: PLC0415 - only where its tests ran

        terminalreporter.section("lab")
        terminalreporter.write_line(cells.table(ROWS))
