"""No lock holds a version that docs/advisories.csv knows to be vulnerable.

It is a floor that is kept by hand, not a scan: a scanner that cannot reach its service finds nothing and looks green.
"""

import csv
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted(path for part in ("container", "infra", "tests") for path in (ROOT / part).rglob("*requirements.txt"))
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)
MUST_BE_WATCHED = {"pillow", "pyarrow", "ray", "torch"}
"""They read what others made."""


class Advisory(NamedTuple):
    package: str
    minimum_version: Version
    name: str


def advisories() -> list[Advisory]:
    with (ROOT / "docs" / "advisories.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [Advisory(row["package"], Version(row["minimum_version"]), row["advisory"]) for row in rows]


def pins(lock: Path) -> dict[str, Version]:
    return {name.lower(): Version(version) for name, version in PIN.findall(lock.read_text())}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_pin_is_below_the_floor(lock: Path) -> None:
    locked = pins(lock)
    assert locked
    below = [
        f"{known.package} {locked[known.package]}: {known.name} needs {known.minimum_version}"
        for known in advisories()
        if known.package in locked and locked[known.package] < known.minimum_version
    ]
    assert below == []


def test_every_row_is_an_advisory_of_something_that_is_locked() -> None:
    locked = {name for lock in LOCKS for name in pins(lock)}
    assert [known.package for known in advisories() if known.package not in locked] == []
    assert all(re.fullmatch(r"(CVE-\d{4}-\d{4,}|GHSA(-[a-z0-9]{4}){3})", known.name) for known in advisories())
    assert {known.package for known in advisories()} >= MUST_BE_WATCHED


def test_the_floor_would_catch_an_old_version() -> None:
    old = {"ray": Version("2.55.1")}
    assert [known.name for known in advisories() if known.package in old and old["ray"] < known.minimum_version]
