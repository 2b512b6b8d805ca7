"""Option of `make test-lab`, and the table of its cells at the end."""

import cells


def pytest_addoption(parser):
    parser.addoption("--lab-again", action="store_true", help="record guests again, also where a recording is valid")


def pytest_terminal_summary(terminalreporter):
    cell = next((one for one in terminalreporter.stats.get("passed", []) if "::test_cell[" in one.nodeid), None)
    cell = cell or next((one for one in terminalreporter.stats.get("failed", []) if "::test_cell[" in one.nodeid), None)
    if cell is not None:
        from test_findings import ROWS  # noqa: PLC0415 - only where its tests ran

        terminalreporter.section("lab")
        terminalreporter.write_line(cells.table(ROWS))
