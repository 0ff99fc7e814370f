"""docs/reliability.md: every error that it explains is one that the code can give."""

import re
from pathlib import Path

import pytest

from tests.faults.catalogue import FAULTS

ROOT = Path(__file__).resolve().parents[2]
ROWS = re.findall(r"^\| `([^`]+)` \| [^|]+ \| [^|]+ \|$", (ROOT / "docs" / "reliability.md").read_text(), re.MULTILINE)


def code() -> str:
    """All that the hosts of a job run, with the strings that stand on several lines in one piece."""
    files = [file for part in ("container", "training") for file in sorted((ROOT / part).rglob("*.py"))]
    text = "\n".join(file.read_text() for file in files)
    return re.sub(r'"\s*\n\s*f?"', "", text)


def test_there_is_enough_to_look_up() -> None:
    assert len(ROWS) == len(set(ROWS)) >= 20


@pytest.mark.parametrize("text", ROWS)
def test_the_code_has_the_text(text: str) -> None:
    assert text in code()


def test_the_faults_are_those_of_the_tests() -> None:
    marks = re.findall(
        r'mark\.fault\("(F\d+)"\)', "".join(f.read_text() for f in (ROOT / "tests/faults").glob("test_*.py"))
    )
    assert set(marks) == set(FAULTS)
    assert list(FAULTS) == [f"F{number}" for number in range(1, 23)]
