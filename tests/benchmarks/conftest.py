"""What every benchmark gets: a place for its results, shown as a table at the end."""

import pytest

from tests.benchmarks.results_file import Results

_RESULTS = pytest.StashKey[Results]()


@pytest.fixture(scope="session")
def results(pytestconfig: pytest.Config) -> Results:
    """The results of this run."""
    return pytestconfig.stash.setdefault(_RESULTS, Results())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table, if something was measured."""
    results = config.stash.get(_RESULTS, None)
    if results is not None:
        terminalreporter.section("headline figures")
        terminalreporter.write_line(results.table())
