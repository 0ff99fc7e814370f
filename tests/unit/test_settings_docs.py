"""What the documentation derives from the contract is what the contract says."""

import json
import re
from pathlib import Path

import pytest

from docs import generate
from infra.settings import DeploySettings
from training.contract import Channel, InstanceGroup, RunConfig, TrainingConfig

MODELS = (RunConfig, InstanceGroup, Channel, TrainingConfig, DeploySettings)
ROOT = Path(__file__).resolve().parents[2]


def test_committed_documents_are_fresh() -> None:
    assert generate.stale(ROOT) == [], "run python docs/generate.py"


def test_the_schema_states_what_the_contract_states() -> None:
    schema = json.loads((ROOT / generate.SCHEMA_FILE).read_text(encoding="utf-8"))
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    for model in (RunConfig, InstanceGroup, Channel, TrainingConfig):
        part = schema if model is RunConfig else schema["$defs"][model.__name__]
        assert part["additionalProperties"] is False
        assert list(part["properties"]) == list(model.model_fields)
        assert all(field["description"] for field in part["properties"].values())
    batch_size = schema["$defs"]["TrainingConfig"]["properties"]["batch_size"]
    assert (batch_size["minimum"], batch_size["maximum"], batch_size["default"]) == (1, 4096, 64)
    groups = schema["properties"]["instance_groups"]
    assert (groups["minItems"], groups["maxItems"]) == (1, 5)


def test_the_page_has_one_row_for_each_setting() -> None:
    page = generate.settings_page()
    names = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert names == [name for model in MODELS for name in model.model_fields]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 6 for row in page.splitlines() if row.startswith("|"))


def test_check_names_what_is_stale_and_writing_makes_it_fresh(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    readme = tmp_path / "README.md"
    readme.write_text("# Title\n<!-- settings:start -->\nstale text\n<!-- settings:end -->\nrest\n", encoding="utf-8")
    assert generate.main(["--check"], tmp_path) == 1
    stated = capsys.readouterr().err
    assert [line.split(":")[0] for line in stated.splitlines()] == [
        "docs/settings.md",
        "docs/run-config.schema.json",
        "README.md",
    ]
    assert generate.main([], tmp_path) == 0
    assert generate.main(["--check"], tmp_path) == 0
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("# Title\n<!-- settings:start -->\n| Setting |")
    assert text.endswith("|\n<!-- settings:end -->\nrest\n")
    assert "stale text" not in text


def test_a_document_without_markers_is_left_alone() -> None:
    assert generate.with_blocks("# Title\n", {"settings": "a table"}) == "# Title\n"


def test_a_readme_quotes_the_kept_figures_between_its_markers(tmp_path: Path) -> None:
    figures = tmp_path / "docs" / "benchmarks"
    figures.mkdir(parents=True)
    (figures / "latest.json").write_text('{"wire_ratio": 0.987}')
    (figures / "conditions.json").write_text('{"wire_ratio": {"date": "2026-01-02", "commit": "abc"}}')
    text = "above\n<!-- benchmarks:start -->\nold\n<!-- benchmarks:end -->\nbelow\n"
    (tmp_path / "README.md").write_text(text)
    lines = generate.generated(tmp_path)[tmp_path / "README.md"].splitlines()
    assert [lines[0], lines[-1]] == ["above", "below"]
    assert "old" not in lines
    assert any("0.987" in line and "2026-01-02" in line for line in lines)
