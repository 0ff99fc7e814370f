"""What a test of a fault measured, against its bound, and runs/faults/latest.json where all of them ran."""

import json
from collections.abc import Generator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

from tests.faults.catalogue import FAULTS

RESULTS_FILE = Path(__file__).parents[2] / "runs" / "faults" / "latest.json"


@dataclass
class Result:
    """One fault over all of its tests; the file has these fields by the name of the fault."""

    passed: bool
    seconds: float | None
    bound_seconds: float
    reason: str
    """What the job told of it; where a test failed, why."""


@dataclass
class FaultUnderTest:
    """The fault that a test is about."""

    name: str
    seconds: list[float] = field(default_factory=list)
    reason: str = ""

    def took(self, seconds: float, reason: str | None = None) -> None:
        """Note how long the job took for what the bound of this fault is about, and what it told; over it, fail."""
        self.seconds.append(seconds)
        self.reason = reason or self.reason
        case = FAULTS[self.name]
        assert seconds <= case.bound_seconds, f"{self.name}: {case.bound}: {seconds:.1f} s"


_FAULT = pytest.StashKey[FaultUnderTest]()
_RESULTS = pytest.StashKey[dict[str, Result]]()


@pytest.fixture
def fault(request: pytest.FixtureRequest) -> FaultUnderTest:
    """The fault that the test's mark names: `@pytest.mark.fault("F4")`."""
    (mark,) = request.node.iter_markers("fault")
    under_test = FaultUnderTest(mark.args[0])
    request.node.stash[_FAULT] = under_test
    return under_test


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    under_test = item.stash.get(_FAULT, None)
    if report.when == "call" and under_test is not None:
        _note(item.config.stash.setdefault(_RESULTS, {}), under_test, call)
    return report


def _note(results: dict[str, Result], under_test: FaultUnderTest, call: pytest.CallInfo[None]) -> None:
    name, before = under_test.name, results.get(under_test.name)
    error = "" if call.excinfo is None else call.excinfo.exconly()[:1000]
    seconds = [*under_test.seconds, *([before.seconds] if before and before.seconds is not None else [])]
    results[name] = Result(
        passed=not error and (before is None or before.passed),
        seconds=round(max(seconds), 1) if seconds else None,
        bound_seconds=FAULTS[name].bound_seconds,
        reason=error or under_test.reason or (before.reason if before else ""),
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    results = session.config.stash.get(_RESULTS, {})
    if results.keys() == FAULTS.keys():  # a part of them says nothing about the rest
        RESULTS_FILE.parent.mkdir(parents=True, exist_ok=True)
        RESULTS_FILE.write_text(json.dumps({name: asdict(results[name]) for name in FAULTS}, indent=1) + "\n")
