"""What a run of benchmarks keeps, and what it shows."""

import json
from pathlib import Path

import pytest

from tests.benchmarks.harness import Measured
from tests.benchmarks.results_file import BARS, LEAST_ROUNDS, Results, read_headlines, to_markdown


def measured(num_rounds: int = LEAST_ROUNDS) -> Measured:
    return Measured(rounds=[{"ours": {"seconds": number + 1.0}} for number in range(num_rounds)], conditions={"a": "b"})


def test_headlines_are_flat_numbers_and_those_of_others_stay(tmp_path: Path) -> None:
    Results(tmp_path).record("forming", measured(), {"form_32_hosts_seconds": 48.12345})
    Results(tmp_path).record("balance", measured(), {"balance_light": 0.5, "balance_heavy": 0.987654})
    expected = {"balance_heavy": 0.9877, "balance_light": 0.5, "form_32_hosts_seconds": 48.12}
    assert json.loads((tmp_path / "latest.json").read_text()) == expected
    assert list(json.loads((tmp_path / "latest.json").read_text())) == list(expected), "in the order of the table"
    assert read_headlines(tmp_path) == expected


def test_every_figure_has_its_conditions_and_every_round(tmp_path: Path) -> None:
    Results(tmp_path).record("balance", measured(), {"balance_light": 0.5})
    conditions = json.loads((tmp_path / "conditions.json").read_text())
    assert {"benchmark", "commit", "date", "machine", "versions", "rounds"} <= conditions["balance_light"].keys()
    raw = json.loads((tmp_path / "balance.json").read_text())
    assert raw["figures_by_round"] == measured().rounds
    assert raw["a"] == "b"
    assert {"ray", "torch", "python"} <= raw["versions"].keys()


def test_a_trial_is_shown_and_not_kept(tmp_path: Path) -> None:
    Results(tmp_path).record("balance", measured(), {"balance_light": 0.95})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    trial = Results(tmp_path)
    trial.record("balance", measured(LEAST_ROUNDS - 1), {"balance_light": 0.5})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert "not kept, with fewer than 5 rounds: balance" in trial.table()
    [line] = [line.split() for line in trial.table().splitlines() if line.startswith("balance_light")]
    assert line == ["balance_light", "0.5", "0.95", ">=", "0.9", "MISSED"]


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [
        ("balance_heavy", 0.97, "holds"),
        ("balance_heavy", 0.969, "MISSED"),
        ("wire_ratio", 1.05, "holds"),
        ("wire_ratio", 1.06, "MISSED"),
    ],
)
def test_a_bar_holds_on_its_side(tmp_path: Path, name: str, value: float, verdict: str) -> None:
    results = Results(tmp_path)
    results.record("any", measured(), {name: value})
    [line] = [line for line in results.table().splitlines() if line.startswith(f"{name} ")]
    assert line.endswith(verdict)


def test_the_table_names_every_figure_also_without_a_measurement(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.record("only_raw", measured())
    assert (tmp_path / "only_raw.json").exists()
    assert not read_headlines(tmp_path)
    shown = [line.split()[0] for line in results.table().splitlines()[1:]]
    assert shown == list(BARS)
    assert to_markdown(tmp_path).count("not measured") == len(BARS)


def test_a_document_shows_what_is_kept(tmp_path: Path) -> None:
    Results(tmp_path).record("balance", measured(), {"balance_light": 0.95})
    [line] = [line for line in to_markdown(tmp_path).splitlines() if "balance_light" in line]
    conditions = json.loads((tmp_path / "conditions.json").read_text())["balance_light"]
    assert f"| 0.95 | >= 0.9 | {conditions['date']} | {conditions['commit']} |" in line


@pytest.mark.parametrize("headlines", [{"balance": 1.0}, {"balance_light": float("nan")}])
def test_no_wrong_headline_is_kept(tmp_path: Path, headlines: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="no headline, or no number"):
        Results(tmp_path).record("balance", measured(), {"balance_heavy": 1.0, **headlines})
    assert list(tmp_path.iterdir()) == []
