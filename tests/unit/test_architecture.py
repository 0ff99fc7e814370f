"""Who may import what: the contracts of import-linter, the lists of what is allowed, and the cost of an import."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import grimp
import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parents[2]

# What a package may import directly besides the standard library and itself. Of nested packages the inner one counts.
ALLOWED_IMPORTS = {
    "training.contract": {"pydantic", "pydantic_core"},
    "training.advisor": set[str](),
    "training.report": {"training.advisor"},
    "infra.local": {"training.contract", "rich", "psutil"},
    "infra.local.aws": {
        "infra.local",
        "infra.settings",
        "training.report",
        "training.advisor",
        "rich",
        # In the environment of the emulator, or to look at it from outside.
        *("boto3", "botocore", "ministack", "hypercorn", "jsonata", "pydantic"),
    },
    "infra.client": {"training.contract", "infra.settings", "boto3", "botocore", "typer", "rich", "click"},
    "infra.settings": {"pydantic", "pydantic_core", "training.contract"},
    "infra.workflow": {
        *("aws_cdk", "constructs"),  # in its construct alone, as import-linter holds
        *("infra.access", "infra.network", "infra.observability", "infra.settings"),
        *("training.advisor", "training.contract", "pydantic"),
    },
    "container.bootstrap": {
        *("training.contract", "psutil", "sagemaker_training", "pynvml"),
        *("ray", "boto3", "botocore"),  # where they are needed, not at import
    },
}

# What a fresh interpreter must not have loaded after importing every module of a package.
HEAVY = {"torch", "torchvision", "timm", "ray", "numpy", "boto3", "botocore", "aws_cdk", "sagemaker_training"}
FORBIDDEN_AT_IMPORT = {
    "infra.local": HEAVY | {"container"},
    "infra.client": HEAVY | {"container"},
    "container.bootstrap": HEAVY | {"infra"},
}

# pydantic and what pydantic itself consists of.
PYDANTIC = {"pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}

IMPORT_EVERYTHING = """
import importlib, json, pkgutil, sys
before = set(sys.modules)
package = importlib.import_module(sys.argv[1])
for module in pkgutil.iter_modules(getattr(package, "__path__", []), package.__name__ + "."):
    if not module.ispkg:  # the emulator's modules need an environment of their own
        importlib.import_module(module.name)
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


@cache
def import_graph() -> grimp.ImportGraph:
    return grimp.build_graph("infra", "container", "training", include_external_packages=True, cache_dir=None)


def is_inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def loaded_by(module: str, home: Path) -> set[str]:
    """Top-level names that a fresh interpreter has after importing a module and, of a package, everything in it."""
    environment = os.environ | {"HOME": str(home), "SAGEMAKER_BASE_DIR": str(home)}
    command = [sys.executable, "-W", "error", "-c", IMPORT_EVERYTHING, module]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return set(json.loads(ended.stdout))


def test_import_contracts_hold(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code = lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None, no_logo=True)
    assert exit_code == 0, capsys.readouterr().out


@pytest.mark.parametrize("package", ALLOWED_IMPORTS)
def test_only_what_is_allowed_is_imported(package: str) -> None:
    graph = import_graph()
    inner = [name for name in ALLOWED_IMPORTS if name.startswith(f"{package}.")]
    modules = {
        module
        for module in graph.modules
        if is_inside(module, package) and not any(is_inside(module, name) for name in inner)
    }
    assert modules, f"{package} does not exist"
    allowed = ALLOWED_IMPORTS[package] | {package}
    strangers = [
        f"{module} imports {imported}"
        for module in sorted(modules)
        for imported in sorted(graph.find_modules_directly_imported_by(module))
        if imported.partition(".")[0] not in sys.stdlib_module_names
        and not any(is_inside(imported, name) for name in allowed)
    ]
    assert strangers == []


@pytest.mark.parametrize("package", FORBIDDEN_AT_IMPORT)
def test_import_stays_light(package: str, tmp_path: Path) -> None:
    assert loaded_by(package, tmp_path) & FORBIDDEN_AT_IMPORT[package] == set()
    assert list(tmp_path.iterdir()) == [], "an import wrote to the home folder"


def test_contract_loads_only_pydantic(tmp_path: Path) -> None:
    loaded = loaded_by("training.contract", tmp_path) - sys.stdlib_module_names
    # The standard library's record of how Python was built is named after the platform.
    strangers = {name for name in loaded if not name.startswith("_sysconfigdata")} - PYDANTIC - {"training"}
    assert strangers == set()


def test_training_package_is_empty() -> None:
    assert (ROOT / "training" / "__init__.py").read_bytes() == b""


def test_nothing_that_a_job_reads_is_unpickled() -> None:
    """Ray pickles what it sends between processes of one job; files and what strangers send are another matter."""
    unpickling = re.compile(
        r"\btorch\.load\(|\byaml\.load\(|allow_pickle=True"
        r"|\b(pickle|cloudpickle|joblib|marshal|shelve)\.\w|\b(import|from) (pickle|joblib|marshal|shelve)\b"
    )
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for part in ("container", "training", "infra")
        for path in (ROOT / part).rglob("*.py")
        for line in path.read_text().splitlines()
        if unpickling.search(line)
    ]
    assert found == []
