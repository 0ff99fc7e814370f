"""The input from the command line: where it comes from, and single settings written as text."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from infra.client.errors import BadInput
from infra.client.run_input import run_input
from training.contract import RunConfig


def test_nothing_is_the_articles_experiment() -> None:
    assert run_input(None, None, [], io.StringIO()) == ("{}", RunConfig.parse({}))


def test_the_text_of_a_file_standard_input_or_the_argument_is_sent_as_it_is(tmp_path: Path) -> None:
    text = ' {"training": {"steps": 7}}\n'
    (tmp_path / "run.json").write_text(text, encoding="utf-8-sig")  # as some editors write it
    for source in (str(tmp_path / "run.json"), "-", text):
        sent, config = run_input(source, None, [], io.StringIO(text))
        assert (sent, config.training.steps) == (text, 7)


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("training.steps=5", ("training", "steps"), 5),
        ("training.learning_rate=1e-3", ("training", "learning_rate"), 0.001),
        ("training.model=vit_tiny_patch16_224", ("training", "model"), "vit_tiny_patch16_224"),
        ("training.head_group=null", ("training", "head_group"), None),
        ("training.model_arguments.depth=2", ("training", "model_arguments", "depth"), 2),
        ('training.model_arguments={"depth": 2}', ("training", "model_arguments"), {"depth": 2}),
        ("checkpoints=false", ("checkpoints",), False),
        ("tags.team=vision", ("tags", "team"), "vision"),
        ("tags.cost.center=42", ("tags", "cost.center"), "42"),
        ("mode=compare", ("mode",), "compare"),
        (
            'instance_groups=[{"name": "g", "instance_type": "ml.g5.xlarge"}]',
            ("instance_groups",),
            [{"name": "g", "instance_type": "ml.g5.xlarge"}],
        ),
    ],
)
def test_a_single_setting_is_read_as_its_setting_is_typed(setting: str, path: tuple[str, ...], value: object) -> None:
    text, _ = run_input('{"training": {"batch_size": 3}}', None, [setting], io.StringIO())
    found: Any = json.loads(text)
    assert found["training"]["batch_size"] == 3, "the rest of the input stays"
    for part in path:
        found = found[part]
    assert found == value
    assert type(found) is type(value)


def test_later_settings_go_over_earlier_ones_and_over_mode_and_file() -> None:
    text, config = run_input(
        '{"mode": "train"}', "train", ["training.steps=3", "training.steps=4", "mode=compare"], io.StringIO()
    )
    assert json.loads(text) == {"mode": "compare", "training": {"steps": 4}}
    assert config.mode == "compare"


def test_settings_may_mend_what_the_file_lacks() -> None:
    _, config = run_input('{"spot": true}', None, ["max_wait_seconds=7200"], io.StringIO())
    assert config.max_wait_seconds == 7200


REFUSED: list[tuple[str | None, list[str], str]] = [
    (None, ["steps=5"], "steps: unknown setting; nearest: training.steps; see docs/settings.md"),
    (None, ["training.stepz=5"], "training.stepz: unknown setting; nearest: steps; see docs/settings.md"),
    (None, ["training.steps=five"], "training.steps: 'five' is not a whole number; allowed: 1 to 10000000 or null"),
    (
        None,
        ["training.steps"],
        "--set: 'training.steps' is no setting; allowed: NAME=VALUE, such as training.steps=100",
    ),
    (None, ["=5"], "--set: '=5' is no setting; "),
    (None, ["spot.on=true"], "spot: an object of 1 keys is not true or false"),
    ('{"training": 5}', ["training.steps=5"], "training: 5 is not an object; "),
    ("[]", [], "input: a list of 0 is not an object; "),
    ("[]", ["training.steps=5"], "input: a list of 0 is not an object; "),
    ("{", [], "input: not JSON at line 1 column 2; "),
    ("{", ["training.steps=5"], "input: not JSON at line 1 column 2; "),
    ('{"a": "' + "x" * 262_144 + '"}', [], "input: 262153 bytes; allowed: 262144 bytes; shorten it"),
    ("no/such.json", [], "--input: cannot read 'no/such.json' (No such file or directory); give a JSON file, - for"),
    (".", [], "--input: cannot read '.' (Is a directory); give a JSON file, - for standard input, or a JSON object"),
    ("a\0b", [], "--input: 'a?b' is not text in UTF-8; "),
]


@pytest.mark.parametrize(("source", "settings", "line"), REFUSED, ids=[line[:40] for _, _, line in REFUSED])
def test_what_is_wrong_is_said_in_one_line(source: str | None, settings: list[str], line: str) -> None:
    with pytest.raises(BadInput) as refused:
        run_input(source, None, settings, io.StringIO())
    assert len(refused.value.lines) == 1
    assert refused.value.lines[0].startswith(line)
    assert "\n" not in refused.value.lines[0]


def test_a_secret_is_refused_without_being_shown() -> None:
    secret = "AKIA" + "ABCDEFGHIJKLMNOP"
    with pytest.raises(BadInput) as refused:
        run_input(None, None, [f"tags.team={secret}"], io.StringIO())
    assert "tags.team" in str(refused.value)
    assert secret not in str(refused.value)
    with pytest.raises(BadInput) as refused:
        run_input(None, None, [secret], io.StringIO())
    assert secret not in str(refused.value)
