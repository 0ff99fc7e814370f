"""The repository's own promises: locks that agree with the pins and with one another, and no address of a registry."""

import re
import subprocess
import tomllib
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = {
    "build": "container/build-requirements.txt",
    "container": "container/requirements.txt",
    "infra": "infra/requirements.txt",
    "dev": "tests/requirements.txt",
}
OWN_ENVIRONMENTS = {"emulator": "infra/local/aws/requirements.txt", "policy": "tests/infra/requirements.txt"}
"""Locks of tools that pin other versions of what the project uses; they need not agree with the rest."""
ALL_LOCKS = LOCKS | OWN_ENVIRONMENTS

PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[a-z,]+\])?==(?P<version>[A-Za-z0-9.!+]+)")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")

# Written in two parts so that this file does not match itself.
REGISTRY = re.compile(
    "|".join(
        (
            "index[-_]" + "url",
            "find[-_]" + "links",
            "trusted[-_]" + "host",
            "python" + "hosted",
            r"pypi\." + "org",
            r"registry\.npm" + "js",
            r"deb\.deb" + "ian",
        )
    ),
    re.IGNORECASE,
)


def normalized(name: str) -> str:
    """A package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lines: list[str]) -> dict[str, str]:
    """Version by package name; fails on a line that is no exact pin."""
    matches = [(line, PIN.fullmatch(line)) for line in lines]
    assert [line for line, match in matches if match is None] == []
    return {normalized(match["name"]): match["version"] for _, match in matches if match}


def asked_for(group: str) -> dict[str, str]:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    return pins(groups[group])


def lock_lines(group: str) -> list[str]:
    lines = (ROOT / ALL_LOCKS[group]).read_text().splitlines()
    return [line for line in lines if line and not line.lstrip().startswith("#")]


def locked(group: str) -> dict[str, str]:
    return pins([line.removesuffix(" \\") for line in lock_lines(group) if not line.startswith(" ")])


def files_of_the_repository() -> list[Path]:
    """Tracked files and those that would be added, so that the rule holds before the commit as well."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [path for path in (ROOT / name for name in names if name) if path.is_file()]


def test_no_file_names_a_registry() -> None:
    found = []
    for path in files_of_the_repository():
        content = path.read_bytes()
        if b"\0" in content:
            continue  # no text
        text = content.decode(errors="replace")  # a test case may be broken on purpose
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in REGISTRY.finditer(text)]
    assert found == []


@pytest.mark.parametrize("group", ALL_LOCKS)
def test_every_locked_package_is_pinned_with_hashes(group: str) -> None:
    hashes: dict[str, int] = {}
    name = ""
    for line in lock_lines(group):
        if HASH.fullmatch(line):
            hashes[name] += 1
        else:
            assert line.endswith(" \\"), f"{ALL_LOCKS[group]}: no hash after {line!r}"
            name = line.removesuffix(" \\")
            hashes[name] = 0
    assert len(hashes) == len(locked(group)) > 0
    assert [name for name, count in hashes.items() if not count] == []


@pytest.mark.parametrize("group", ALL_LOCKS)
def test_lock_holds_what_pyproject_asks_for(group: str) -> None:
    versions = locked(group)
    assert {name: versions.get(name) for name in asked_for(group)} == asked_for(group)


@pytest.mark.parametrize(("one", "other"), list(combinations(LOCKS, 2)))
def test_locks_agree_on_shared_packages(one: str, other: str) -> None:
    first, second = locked(one), locked(other)
    shared = first.keys() & second.keys()
    assert {name: first[name] for name in shared} == {name: second[name] for name in shared}


def test_every_group_has_a_lock() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert groups.keys() == ALL_LOCKS.keys()


def test_a_pipelines_deploy_asks_nothing_and_reads_nothing() -> None:
    """Case C38: `cdk deploy` waits for a yes where there is nobody to give it."""
    command = ["make", "--dry-run", "--no-print-directory", "--assume-old=setup", "deploy-ci"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    calls = [line for line in shown.splitlines() if "/bin/cdk " in line]
    assert [line.partition("/bin/cdk ")[2].split()[0] for line in calls] == ["diff", "deploy"]
    assert all(line.endswith("</dev/null") for line in calls)
    assert "--require-approval never" in calls[-1]
