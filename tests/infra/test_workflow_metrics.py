"""Metric definitions: they read the figures out of the lines that process 1 really prints, and nothing else."""

import json
import re
from pathlib import Path

import pytest

from container.bootstrap import log
from infra.workflow.metrics import METRICS, RESULT_KEYS, STEP_KEYS, metric_definitions

LOGS = Path(__file__).resolve().parents[1] / "cases" / "logs"
FIGURES = [47.223847583, 1.3552431, 1e-05, 6.5e21, 0.0, -0.25, 12, 768]


def figures(lines: list[str]) -> dict[str, list[float]]:
    """What SageMaker would read: for each metric the figure of every line that its regex finds."""
    found: dict[str, list[float]] = {}
    for definition in metric_definitions():
        for line in lines:
            if match := re.search(definition["Regex"], line):
                found.setdefault(definition["Name"], []).append(float(match[1]))
    return found


def printed(capsys: pytest.CaptureFixture[str], name: str, **fields: object) -> list[str]:
    log.event(name, **fields)
    return capsys.readouterr().out.splitlines()


def test_definitions_are_within_sagemakers_limits() -> None:
    definitions = metric_definitions()
    assert len(definitions) <= 40
    assert all(len(definition["Regex"]) <= 500 and len(definition["Name"]) <= 255 for definition in definitions)
    assert all(re.compile(definition["Regex"]).groups == 1 for definition in definitions)
    assert len({definition["Name"] for definition in definitions}) == len(METRICS)


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_of_the_result_line_is_read_whole(figure: float, capsys: pytest.CaptureFixture[str]) -> None:
    # As text: the figure of a result is printed with all its digits.
    lines = printed(capsys, "result", **{key: repr(figure) for key in RESULT_KEYS})
    assert figures(lines) == {key: [figure] for key in RESULT_KEYS}


def test_every_figure_is_read_from_its_own_key(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "result", **{key: index for index, key in enumerate(RESULT_KEYS)})
    assert figures(lines) == {key: [index] for index, key in enumerate(RESULT_KEYS)}


def test_progress_is_never_taken_for_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "step", step=100, steps=1000, **dict.fromkeys(STEP_KEYS, 0.398))
    assert figures(lines) == {f"step:{key}": [0.398] for key in STEP_KEYS}


@pytest.mark.parametrize("value", ["nan", "inf", "dog", "1.5dog", "", "6.9 x"])
def test_text_in_place_of_a_figure_is_no_figure(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert figures(printed(capsys, "result", loss=value)) == {}
    assert figures(printed(capsys, "results", loss=1.0)) == {}
    assert figures([f"loss={value}", "loss=1.5", "validation loss improved"]) == {}


def test_recorded_lines_in_the_products_own_form(capsys: pytest.CaptureFixture[str]) -> None:
    expected = json.loads((LOGS / "l01_expect.json").read_text())
    strangers = (LOGS / "l01_lines.txt").read_text().splitlines()
    assert figures(strangers) == {}
    lines = [*strangers]
    for seconds, loss in zip(expected["step_time"], expected["loss"], strict=True):
        lines += printed(capsys, "step", step=1, step_seconds=seconds, loss=loss, images_per_second=161.3)
    found = figures(lines)
    assert found["step:step_seconds"] == expected["step_time"]
    assert found["step:loss"] == expected["loss"]
    assert found["step:images_per_second"][:1] == expected["throughput"]
