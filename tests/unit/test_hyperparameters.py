"""Settings as SageMaker's text and back: both encodings, Python's words, bad text, exact round trips."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from training.contract import ContractError, TrainingConfig, decode_hyperparameters, encode_hyperparameters
from training.contract.values import looks_secret

CASES = Path(__file__).resolve().parents[1] / "cases" / "hyperparameters"
EXAMPLES = settings(derandomize=True, deadline=None, max_examples=150, database=None)


class OtherSettings(BaseModel):
    """Field names as in the recorded cases, which are not this project's."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    batch_size: int = Field(default=1, ge=1, le=4096)
    lr: float = 0.1
    epochs: int = 5
    max_steps: int = 5
    prefetch_batches: int = 1
    use_amp: bool = True
    pretrained: bool = False
    image_size: int = 1
    num_classes: int | None = None
    dataset: Literal["none", "synthetic"] = "none"
    text: str = ""
    optional_text: str | None = None
    always_set: int | None = 3
    table: dict[str, Any] = {}
    items: list[int] = []


@pytest.mark.parametrize("name", ["hp01_plain_strings", "hp02_json_encoded_strings", "hp03_python_bool_text"])
def test_recorded_hyperparameters_get_their_types(name: str) -> None:
    mapping = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))
    expected = json.loads((CASES / f"{name[:4]}_expect.json").read_text(encoding="utf-8"))
    expected.pop("note", None)
    decoded = decode_hyperparameters(OtherSettings, mapping).model_dump(exclude_unset=True)
    assert decoded == expected
    assert {key: type(value) for key, value in decoded.items()} == {key: type(value) for key, value in expected.items()}


def test_recorded_bad_number_is_refused_by_name_and_text() -> None:
    mapping = json.loads((CASES / "hp04_bad_number.json").read_text(encoding="utf-8"))
    line = "batch_size: 'sixty-four' is not a whole number; allowed: 1 to 4096"
    for model in (OtherSettings, TrainingConfig):
        with pytest.raises(ContractError) as caught:
            decode_hyperparameters(model, mapping)
        assert caught.value.problems == [line]


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("batch_size", "64", 64),
        ("batch_size", '"64"', 64),
        ("batch_size", '"\\"64\\""', 64),
        ("batch_size", " 64 ", 64),
        ("batch_size", 64, 64),
        ("lr", "1e-3", 0.001),
        ("lr", "0", 0.0),
        ("lr", ".5", 0.5),
        ("lr", 1, 1.0),
        ("use_amp", "true", True),
        ("use_amp", "False", False),
        ("use_amp", '"False"', False),
        ("use_amp", '"\\"true\\""', True),
        ("use_amp", False, False),
        ("num_classes", "None", None),
        ("num_classes", "null", None),
        ("num_classes", '"None"', None),
        ("num_classes", "", None),
        ("num_classes", None, None),
        ("num_classes", "10", 10),
        ("text", "64", "64"),
        ("text", "true", "true"),
        ("text", "None", "None"),
        ("text", '"64"', "64"),
        ("text", '"\\"quoted twice\\""', "quoted twice"),
        ("text", ' "a" ', "a"),
        ("text", '"half', '"half'),
        ("text", '"a" and "b"', '"a" and "b"'),
        ("text", '"', '"'),
        ("text", "  kept  ", "  kept  "),
        ("optional_text", "None", None),
        ("optional_text", '"None"', "None"),
        ("dataset", '"synthetic"', "synthetic"),
        ("table", '{"a": [1, 2.5, null, true, "x"]}', {"a": [1, 2.5, None, True, "x"]}),
        ("table", '"{\\"a\\": 1}"', {"a": 1}),
        ("table", {"a": 1}, {"a": 1}),
        ("items", "[1, 2]", [1, 2]),
    ],
)
def test_text_stands_for_this_value(key: str, text: object, value: object) -> None:
    decoded = getattr(decode_hyperparameters(OtherSettings, {key: text}), key)
    assert decoded == value
    assert type(decoded) is type(value)


@pytest.mark.parametrize(
    ("key", "text", "line"),
    [
        ("batch_size", "0", "batch_size: 0 is out of range; allowed: 1 to 4096; set it in that range"),
        ("batch_size", "64.5", "batch_size: '64.5' is not a whole number; allowed: 1 to 4096"),
        ("batch_size", "6_4", "batch_size: '6_4' is not a whole number; allowed: 1 to 4096"),
        ("batch_size", "٦", "batch_size: '?' is not a whole number; allowed: 1 to 4096"),
        ("batch_size", "", "batch_size: '' is not a whole number; allowed: 1 to 4096"),
        ("batch_size", "True", "batch_size: 'True' is not a whole number; allowed: 1 to 4096"),
        ("batch_size", True, "batch_size: true is not a whole number; allowed: 1 to 4096"),
        ("learning_rate", "nan", "learning_rate: 'nan' is not a number; allowed: above 0, at most 10"),
        ("learning_rate", "1e999", "learning_rate: inf is not a finite number; allowed: above 0, at most 10"),
        (
            "precision",
            '"fp8"',
            "precision: 'fp8' is not one of the choices; allowed: fp32, tf32, bf16, fp16; choose one of them",
        ),
        (
            "model_arguments",
            "{'a': 1}",
            (
                "model_arguments: '{'a': 1}' is not an object; allowed: an object of JSON scalars or lists of them,"
                " at most 2500 characters"
            ),
        ),
        ("batchsize", "64", "batchsize: unknown setting; nearest: batch_size; see docs/settings.md"),
        (
            "channel",
            "c" * 2501,
            "channel: 2501 characters of text; allowed: 2500, SageMaker's limit for one hyperparameter; shorten it",
        ),
    ],
)
def test_bad_text_gets_this_line(key: str, text: object, line: str) -> None:
    with pytest.raises(ContractError) as caught:
        TrainingConfig.from_hyperparameters({key: text})
    assert line in caught.value.problems
    assert all(problem.startswith(f"{key}: ") for problem in caught.value.problems)


def test_a_deeply_nested_text_is_refused_in_one_line() -> None:
    with pytest.raises(ContractError) as caught:
        TrainingConfig.from_hyperparameters({"model_arguments": "[" * 2500})
    assert len(caught.value.problems) == 1


def test_the_platforms_keys_are_ignored() -> None:
    mapping = {"sagemaker_program": '"train.py"', "sagemaker_region": "eu-west-1", "steps": "7"}
    assert TrainingConfig.from_hyperparameters(mapping) == TrainingConfig(steps=7)


def test_settings_as_text() -> None:
    config = TrainingConfig(model_arguments={"drop_rate": 0.1, "img_size": [224, 224]}, learning_rate=1)
    texts = config.to_hyperparameters()
    assert texts["model"] == "vit_base_patch16_224"
    assert texts["model_arguments"] == '{"drop_rate":0.1,"img_size":[224,224]}'
    assert texts["learning_rate"] == "1.0"
    assert (texts["compile"], texts["transform_steps"]) == ("false", "[]")
    nulls = {"num_classes", "steps", "epochs", "data_uri", "code_channel", "prefetch_batches", "head_group"}
    assert set(TrainingConfig.model_fields) - set(texts) == nulls


def test_transform_steps_as_text() -> None:
    steps = ("RandomHorizontalFlip", 'Pad("\\t", 1)')
    texts = TrainingConfig(transform="torchvision", transform_steps=steps).to_hyperparameters()
    assert texts["transform_steps"] == r'["RandomHorizontalFlip","Pad(\"\\t\", 1)"]'
    assert TrainingConfig.from_hyperparameters(texts).transform_steps == steps


def test_a_value_over_the_limit_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ContractError) as caught:
        encode_hyperparameters(OtherSettings(text="x" * 2501))
    assert caught.value.problems == [
        "text: 2501 characters of text; allowed: 2500, SageMaker's limit for one hyperparameter; shorten it"
    ]
    assert encode_hyperparameters(OtherSettings(text="x" * 2500))["text"] == "x" * 2500


SHORT_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ITEMS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | SHORT_TEXT
NAMES = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", fullmatch=True)
CHANNELS = st.sampled_from(["training", "64", "None", "true", "-.-"])
COLUMNS = st.text(
    st.characters(exclude_categories=["Cc", "Cs"], exclude_characters='"'), min_size=1, max_size=256
).filter(lambda name: not looks_secret("", name))
FREE = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["vit_base_patch16_224", "resnet18"]),
        "model_arguments": st.dictionaries(
            st.from_regex("[a-z_]{1,10}", fullmatch=True), ITEMS | st.lists(ITEMS, max_size=4), max_size=3
        ),
        "num_classes": st.none() | st.integers(1, 1_000_000),
        "image_size": st.integers(8, 1024),
        "batch_size": st.integers(1, 4096),
        "accumulate_batches": st.integers(1, 1024),
        "learning_rate": st.floats(0, 10, exclude_min=True),
        "momentum": st.floats(0, 1, exclude_max=True),
        "precision": st.sampled_from(["fp32", "tf32", "bf16", "fp16"]),
        "compile": st.booleans(),
        "channels_last": st.booleans(),
        "seed": st.integers(0, 2**31 - 1),
        "num_records": st.integers(1, 1_000_000_000),
        "channel": CHANNELS,
        "image_column": COLUMNS,
        "label_column": COLUMNS | st.sampled_from(["None", "true", "7", "[1]"]),
        "validation_share": st.floats(0, 0.5),
        "max_bad_share": st.floats(0, 1),
        "code_channel": st.none() | CHANNELS,
        "preprocess_on": st.sampled_from(["all_hosts", "cpu_hosts"]),
        "prefetch_batches": st.none() | st.integers(1, 64),
        "balance_rounds": st.integers(0, 20),
        "report_every_steps": st.integers(1, 1_000_000),
        "checkpoint_every_steps": st.integers(1, 10_000_000),
        "keep_checkpoints": st.integers(1, 100),
        "head_group": st.none() | NAMES | st.sampled_from(["None", "null", "true", "1"]),
        "join_timeout_seconds": st.integers(5, 3600),
        "missing_hosts": st.sampled_from(["fail", "continue"]),
        "stall_timeout_seconds": st.integers(10, 86_400),
    }
)
LENGTHS = st.fixed_dictionaries({}, optional={"steps": st.integers(1, 10_000_000)}) | st.fixed_dictionaries(
    {"epochs": st.integers(1, 100_000)}
)
DATA = st.just({"dataset": "synthetic"}) | st.fixed_dictionaries(
    {"dataset": st.sampled_from(["image_folder", "parquet"])},
    optional={"data_uri": st.from_regex(r"s3://bucket(/[^\x00-\x1f\x7f\ud800-\udfff]{0,40})?", fullmatch=True)},
)
TRANSFORM_STEPS = st.lists(st.from_regex(r"[A-Z][a-z]{0,9}(\([ -~]{0,40}\))?", fullmatch=True), min_size=1, max_size=32)
TRANSFORMS = st.one_of(
    st.fixed_dictionaries({"transform_implementation": st.sampled_from(["torchvision", "fused"])}),
    st.fixed_dictionaries({"transform": st.sampled_from(["normalize", "my.code:crop"])}),
    st.fixed_dictionaries({"transform": st.just("torchvision"), "transform_steps": TRANSFORM_STEPS.map(tuple)}),
)
CONFIGS = st.tuples(FREE, LENGTHS, DATA, TRANSFORMS).map(
    lambda parts: TrainingConfig.model_validate({name: value for part in parts for name, value in part.items()})
)


@EXAMPLES
@given(config=CONFIGS)
def test_training_settings_survive_the_journey_as_text(config: TrainingConfig) -> None:
    texts = config.to_hyperparameters()
    assert all(len(text) <= 2500 for text in texts.values())
    assert TrainingConfig.from_hyperparameters(texts) == config
    # SDK releases from 2.110 on encode every value, text included, as JSON once more.
    encoded_again = {key: json.dumps(text) for key, text in texts.items() if not text.startswith('"')}
    assert TrainingConfig.from_hyperparameters({**texts, **encoded_again}) == config


@EXAMPLES
@given(
    text=st.text(max_size=20) | st.sampled_from(['"', '""', '"a"', '"\\"a\\""', " null "]),
    optional_text=st.none() | st.text(max_size=20) | st.sampled_from(["None", "null", "", '"None"']),
    always_set=st.none() | st.integers(),
    use_amp=st.booleans(),
    items=st.lists(st.integers(), max_size=4),
)
def test_any_settings_survive_the_journey_as_text(
    text: str, optional_text: str | None, always_set: int | None, use_amp: bool, items: list[int]
) -> None:
    config = OtherSettings(text=text, optional_text=optional_text, always_set=always_set, use_amp=use_amp, items=items)
    assert decode_hyperparameters(OtherSettings, encode_hyperparameters(config)) == config


@EXAMPLES
@given(
    mapping=st.dictionaries(
        st.sampled_from(list(TrainingConfig.model_fields)) | st.text(max_size=10),
        st.text(max_size=30) | st.none() | st.booleans() | st.integers() | st.floats() | st.lists(st.none()),
        max_size=5,
    )
)
def test_any_mapping_is_settings_or_gets_lines(mapping: dict[str, object]) -> None:
    try:
        config = TrainingConfig.from_hyperparameters(mapping)
    except ContractError as error:
        lines = error.problems
    else:
        lines = ["none"]
        assert TrainingConfig.from_hyperparameters(config.to_hyperparameters()) == config
    assert lines
    assert all(line.isprintable() for line in lines)
