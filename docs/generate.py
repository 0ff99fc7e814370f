"""Writes what documents derive from the contract and from kept figures; --check only says which file is stale."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that `python docs/generate.py` finds the package; its own folder is all it gets

from pydantic import BaseModel  # noqa: E402

from infra.settings import CONTEXT_PREFIX, DeploySettings  # noqa: E402
from tests.benchmarks import results_file  # noqa: E402
from tests.faults.catalogue import FAULTS  # noqa: E402
from training.contract import Channel, InstanceGroup, RunConfig, TrainingConfig  # noqa: E402
from training.contract.errors import allowed, field_schemas  # noqa: E402

SETTINGS_PAGE = "docs/settings.md"
SCHEMA_FILE = "docs/run-config.schema.json"
README = "README.md"
RELIABILITY_PAGE = "docs/reliability.md"
BENCHMARKS = "docs/benchmarks"

_SECTIONS: tuple[tuple[type[BaseModel], str, str], ...] = (
    (RunConfig, "Run", "The input of an execution. `{}` is complete: it runs the article's experiment."),
    (InstanceGroup, "Instance group", "One entry of `instance_groups`."),
    (Channel, "Channel", "One entry of `channels`."),
    (TrainingConfig, "Training", "The object `training`; each setting travels to the job as one text hyperparameter."),
    (
        DeploySettings,
        "Deploy",
        f"Settings of the stack, from the CDK's context: `cdk deploy -c {CONTEXT_PREFIX}create_vpc=true`, or cdk.json.",
    ),
)
_INTRODUCTION = (
    "# Settings\n\n"
    "Generated from `training/contract` and `infra/settings.py` by `python docs/generate.py`; edit those, not this.\n"
    "The input of an execution as a JSON schema: [run-config.schema.json](run-config.schema.json).\n\n"
    'A value is taken as it is or refused: `"64"` is no number, and a name that is not here is an error. JSON has one\n'
    "kind of number, so `1.0` is the whole number 1. Hyperparameters are text, since SageMaker carries nothing else:\n"
    '`64`, `true`, `False`, `"synthetic"` with its quotes and JSON objects are read as what they stand for.\n'
)


def settings_page() -> str:
    """The whole text of docs/settings.md."""
    sections = [f"## {title}\n\n{text}\n\n{settings_table(model)}" for model, title, text in _SECTIONS]
    return "\n".join([_INTRODUCTION, *sections])


def settings_table(model: type[BaseModel]) -> str:
    """A Markdown table with one row for each setting of a model."""
    rows = [("Setting", "Type", "Allowed", "Default", "Meaning"), ("---",) * 5]
    for name, schema in field_schemas(model).items():
        is_required = model.model_fields[name].is_required()
        default = "required" if is_required else f"`{_default_text(schema)}`"
        rows.append((f"`{name}`", _type_text(schema), _allowed_text(schema), default, str(schema["description"])))
    return _table(rows)


def schema_text() -> str:
    """The whole text of docs/run-config.schema.json."""
    return json.dumps(RunConfig.json_schema(), indent=2) + "\n"


def faults_table() -> str:
    """A Markdown table with one row for each fault that is tested."""
    rows = [("", "Fault", "What happens", "What it costs", "What you see", "Held to"), ("---",) * 6]
    for name, case in FAULTS.items():
        held = f"{case.bound}: {case.bound_seconds:g} s"
        rows.append((name, case.title, case.happens, case.costs, case.seen, held))
    return _table(rows)


def with_blocks(current: str, blocks: Mapping[str, str]) -> str:
    """A document's text with the blocks between its markers rewritten; what has no markers stays."""
    for name, text in blocks.items():
        start, end = f"<!-- {name}:start -->\n", f"<!-- {name}:end -->"
        before, has_block, rest = current.partition(start)
        if has_block:
            current = before + start + text + end + rest.partition(end)[2]
    return current


def generated(root: Path) -> dict[Path, str]:
    """The path and the due text of each derived file."""
    texts = {root / SETTINGS_PAGE: settings_page(), root / SCHEMA_FILE: schema_text()}
    tables = {
        README: {
            "settings": settings_table(TrainingConfig),
            "benchmarks": results_file.to_markdown(root / BENCHMARKS),
        },
        RELIABILITY_PAGE: {"faults": faults_table()},
    }
    for name, blocks in tables.items():
        page = root / name
        if page.exists():
            texts[page] = with_blocks(page.read_text(encoding="utf-8"), blocks)
    return texts


def stale(root: Path) -> list[str]:
    """The files below `root`, by relative path, whose text is not what it should be."""
    return [
        str(path.relative_to(root))
        for path, text in generated(root).items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Write the derived files, or with --check name the stale ones; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 and name the files that are stale")
    options = parser.parse_args(arguments)
    names = stale(root)
    if options.check:
        for name in names:
            print(f"{name}: is not what it derives from any more; run python docs/generate.py", file=sys.stderr)
        return 1 if names else 0
    for path, text in generated(root).items():
        if str(path.relative_to(root)) in names:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(root)}")
    return 0


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(_cell(text) for text in row)} |\n" for row in rows)


def _cell(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "&#124;")


def _default_text(schema: Mapping[str, Any]) -> str:
    if "properties" in schema or "$ref" in schema:
        return "{}"
    default = schema.get("default")
    return default if isinstance(default, str) else json.dumps(default)


def _type_text(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type_text(branch) for branch in schema["anyOf"])
    if "enum" in schema:
        return "choice"
    if schema.get("type") == "array":
        return f"list of {schema['x-items']}"
    names = {"string": "text", "integer": "whole number", "boolean": "true or false", "null": "null"}
    return names.get(str(schema.get("type")), str(schema.get("type", "object")))


def _allowed_text(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    return allowed(schema)


if __name__ == "__main__":
    sys.exit(main())
