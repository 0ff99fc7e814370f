"""The contract's fields, limits and refusals, word for word."""

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from training.contract import (
    Channel,
    ContractError,
    InstanceGroup,
    RunConfig,
    TrainingConfig,
    instance_type_has_accelerator,
    nearest,
)
from training.contract.errors import field_schemas, model_in

ROOT = Path(__file__).resolve().parents[2]
GPU = {"name": "gpu", "instance_type": "ml.g5.xlarge"}
CPU = {"name": "cpu", "instance_type": "ml.c5.4xlarge", "instance_count": 2}
SECRET_KEY_ID = "AKIA" + "Q" * 16
EXAMPLES = settings(derandomize=True, deadline=None, max_examples=150, database=None)

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=80)
JSON_VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=7) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=20,
)
KNOWN_KEYS = st.sampled_from(
    [
        *RunConfig.model_fields,
        *InstanceGroup.model_fields,
        *Channel.model_fields,
        *TrainingConfig.model_fields,
        *("instance_type", "lr", "token"),
    ]
)
NEAR_MISSES = st.dictionaries(
    KNOWN_KEYS,
    JSON_VALUES
    | st.dictionaries(KNOWN_KEYS, JSON_VALUES, max_size=6)
    | st.lists(st.dictionaries(KNOWN_KEYS, JSON_VALUES, max_size=4), max_size=6),
    max_size=4,
)


def problems(obj: object) -> list[str]:
    with pytest.raises(ContractError) as caught:
        RunConfig.parse(obj)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


def outcome_of(parse: Callable[[], RunConfig]) -> RunConfig | list[str]:
    try:
        return parse()
    except ContractError as error:
        return error.problems


def training_problems(**values: object) -> list[str]:
    return problems({"training": values})


def test_an_empty_object_is_the_articles_experiment() -> None:
    run = RunConfig.parse({})
    assert run.instance_groups == (
        InstanceGroup(name="gpu", instance_type="ml.g5.xlarge", instance_count=1),
        InstanceGroup(name="cpu", instance_type="ml.c5.4xlarge", instance_count=1),
    )
    assert run.training == TrainingConfig()
    assert run == RunConfig() == RunConfig.parse_json("{}")


def test_the_set_of_training_settings_and_their_defaults() -> None:
    assert TrainingConfig().model_dump() == {
        "model": "vit_base_patch16_224",
        "model_arguments": {},
        "num_classes": None,
        "image_size": 224,
        "batch_size": 64,
        "accumulate_batches": 1,
        "steps": None,
        "epochs": None,
        "learning_rate": 0.001,
        "momentum": 0.9,
        "precision": "fp32",
        "compile": False,
        "channels_last": False,
        "seed": 0,
        "dataset": "synthetic",
        "num_records": 64_000,
        "channel": "training",
        "data_uri": None,
        "image_column": "image",
        "label_column": "label",
        "validation_share": 0.0,
        "max_bad_share": 0.01,
        "transform": "gaussian_blur_stack",
        "transform_implementation": "torchvision",
        "transform_steps": (),
        "code_channel": None,
        "preprocess_on": "all_hosts",
        "prefetch_batches": None,
        "balance_rounds": 0,
        "report_every_steps": 100,
        "checkpoint_every_steps": 500,
        "keep_checkpoints": 2,
        "head_group": None,
        "join_timeout_seconds": 600,
        "missing_hosts": "fail",
        "stall_timeout_seconds": 600,
    }


def test_the_length_of_a_training_in_optimizer_steps() -> None:
    assert TrainingConfig().num_steps(num_rows=7, num_workers=3) == 1000
    assert TrainingConfig(steps=5).num_steps(num_rows=7, num_workers=3) == 5
    per_step = TrainingConfig(epochs=2, batch_size=4, accumulate_batches=2)
    assert [per_step.num_steps(num_rows=rows, num_workers=3) for rows in (1, 12, 13, 24)] == [1, 1, 2, 2]
    # Beyond what a double tells apart.
    longest = TrainingConfig(epochs=100_000, batch_size=1)
    assert longest.num_steps(num_rows=10**12 + 1, num_workers=1) == 100_000 * (10**12 + 1)


@pytest.mark.parametrize("transform", ["my_code.augment:crop", "_:f", "torchvision:f"])
def test_a_function_of_ones_own_is_a_transform(transform: str) -> None:
    assert TrainingConfig.parse({"transform": transform}).transform == transform


def test_the_longest_transform_steps_still_fit_one_hyperparameter() -> None:
    steps = ["Pad(" + "1" * 158 + ")"] * 15 + ["Pad(1)"]
    config = TrainingConfig.parse({"transform": "torchvision", "transform_steps": steps})
    assert len(config.to_hyperparameters()["transform_steps"]) == 2500
    steps[-1] = steps[-1].replace("(1", "(11")
    with pytest.raises(ContractError, match=r"^transform_steps: over 2500 characters"):
        TrainingConfig.parse({"transform": "torchvision", "transform_steps": steps})


def test_groups_of_any_name_and_order_are_kept() -> None:
    run = RunConfig.parse({"instance_groups": [CPU, GPU], "training": {"head_group": "cpu", "learning_rate": 1}})
    assert [group.name for group in run.instance_groups] == ["cpu", "gpu"]
    assert [group.has_accelerator for group in run.instance_groups] == [False, True]
    assert run.instance_groups[0].instance_count == 2
    assert isinstance(run.training.learning_rate, float)


def test_the_error_keeps_its_lines_between_processes() -> None:
    error = ContractError(["a: 1", "b: 2"])
    copy = pickle.loads(pickle.dumps(error))
    assert copy.problems == ["a: 1", "b: 2"]
    assert str(copy) == "a: 1\nb: 2"


def test_settings_are_frozen() -> None:
    run = RunConfig()
    with pytest.raises(ValidationError):
        run.training.steps = 5


@pytest.mark.parametrize(
    "family", ["g4dn", "g5", "g6", "g6e", "gr6", "p3", "p3dn", "p4d", "p4de", "p5", "p5en", "p6-b200"]
)
def test_families_with_an_accelerator(family: str) -> None:
    assert instance_type_has_accelerator(f"ml.{family}.xlarge")


@pytest.mark.parametrize("family", ["c5", "c7g", "m5", "m6gd", "r5", "t3", "trn1", "inf2", "i3en", "x2gd"])
def test_families_without_an_accelerator(family: str) -> None:
    assert not instance_type_has_accelerator(f"ml.{family}.xlarge")


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"batch_size": 0}, "batch_size: 0 is out of range; allowed: 1 to 4096; set it in that range"),
        ({"batch_size": 5000}, "batch_size: 5000 is out of range; allowed: 1 to 4096; set it in that range"),
        ({"batch_size": "64"}, "batch_size: '64' is not a whole number; allowed: 1 to 4096"),
        ({"batch_size": 64.5}, "batch_size: 64.5 is not a whole number; allowed: 1 to 4096"),
        ({"batch_size": float("inf")}, "batch_size: inf is not a whole number; allowed: 1 to 4096"),
        ({"batch_size": True}, "batch_size: true is not a whole number; allowed: 1 to 4096"),
        ({"batch_size": None}, "batch_size: null is not a whole number; allowed: 1 to 4096"),
        ({"steps": "ten"}, "steps: 'ten' is not a whole number; allowed: 1 to 10000000 or null"),
        ({"steps": [1]}, "steps: a list of 1 is not a whole number; allowed: 1 to 10000000 or null"),
        (
            {"steps": 10**5000},
            "steps: a number of over 14 digits is out of range; allowed: 1 to 10000000 or null; set it in that range",
        ),
        (
            {"learning_rate": 0},
            "learning_rate: 0 is out of range; allowed: above 0, at most 10; set it in that range",
        ),
        (
            {"learning_rate": float("nan")},
            "learning_rate: nan is not a finite number; allowed: above 0, at most 10",
        ),
        ({"learning_rate": True}, "learning_rate: true is not a number; allowed: above 0, at most 10"),
        ({"momentum": 1}, "momentum: 1 is out of range; allowed: at least 0, below 1; set it in that range"),
        ({"validation_share": 0.6}, "validation_share: 0.6 is out of range; allowed: 0 to 0.5; set it in that range"),
        ({"num_classes": 0}, "num_classes: 0 is out of range; allowed: 1 to 1000000 or null; set it in that range"),
        (
            {"precision": "fp8"},
            "precision: 'fp8' is not one of the choices; allowed: fp32, tf32, bf16, fp16; choose one of them",
        ),
        (
            {"channel": "a b\nc"},
            "channel: 'a b?c' has the wrong form; allowed: 1 to 64 letters, digits, '-', '_' or '.'; correct it",
        ),
        (
            {"model": "x y" * 100},
            (
                "model: 'x yx yx yx yx yx yx yx yx yx yx yx yx yx yx yx yx yx yx ... has the wrong form; allowed: a"
                " timm model name, 1 to 256 characters, such as vit_base_patch16_224; correct it"
            ),
        ),
        ({"accumulate_batches": 0}, "accumulate_batches: 0 is out of range; allowed: 1 to 1024; set it in that range"),
        ({"epochs": 0.5}, "epochs: 0.5 is not a whole number; allowed: 1 to 100000 or null"),
        (
            {"steps": 10, "epochs": 2},
            "epochs: 2 is set and steps is 10; allowed beside steps: null; remove one of the two",
        ),
        ({"batchsize": 1}, "batchsize: unknown setting; nearest: batch_size; see docs/settings.md"),
        ({"lr": 0.1}, "lr: unknown setting; nearest: learning_rate; see docs/settings.md"),
        ({"zzz": 1}, "zzz: unknown setting; see docs/settings.md"),
        ({"a\nq": 1}, "'a?q': unknown setting; see docs/settings.md"),
        (
            {"model_arguments": 5},
            (
                "model_arguments: 5 is not an object; allowed: an object of JSON scalars or lists of them, at most 2500"
                " characters"
            ),
        ),
        (
            {"model_arguments": {"depth": {"a": 1}}},
            (
                "model_arguments.depth: an object of 1 keys is not accepted; allowed: JSON scalars or one list of them;"
                " flatten it"
            ),
        ),
        (
            {"model_arguments": {"rate": float("inf")}},
            "model_arguments.rate: inf is not a finite number; allowed: JSON values; set a finite number",
        ),
        (
            {"model_arguments": {"note": "x" * 2500}},
            "model_arguments: over 2500 characters as JSON; allowed: 2500; shorten it",
        ),
    ],
)
def test_a_bad_training_setting_gets_this_line(values: dict[str, object], line: str) -> None:
    assert problems({"training": values}) == [f"training.{line}"]
    with pytest.raises(ContractError) as caught:
        TrainingConfig.parse(values)
    assert caught.value.problems == [line]


@pytest.mark.parametrize(
    ("obj", "lines"),
    [
        ({"instance_groups": []}, ["instance_groups: 0 groups; allowed: 1 to 5 groups; add groups"]),
        ({"instance_groups": "auto"}, ["instance_groups: 'auto' is not a list of groups; allowed: 1 to 5 groups"]),
        (
            {"instance_groups": [{**GPU, "name": f"g{i}"} for i in range(6)]},
            ["instance_groups: 6 groups; allowed: 1 to 5 groups; remove or merge groups"],
        ),
        (
            {"instance_groups": [GPU, {**CPU, "name": "gpu"}]},
            ["instance_groups[1].name: 'gpu' is used by two groups; group names must differ; rename one"],
        ),
        (
            {"instance_groups": [{**GPU, "instance_count": 0}]},
            ["instance_groups[0].instance_count: 0 is out of range; allowed: 1 to 1000; set it in that range"],
        ),
        (
            {"instance_groups": [{**GPU, "instance_count": 1.5}]},
            ["instance_groups[0].instance_count: 1.5 is not a whole number; allowed: 1 to 1000"],
        ),
        (
            {"instance_groups": [{"name": "gpu"}, 7]},
            [
                "instance_groups[0].instance_type: missing; allowed: ml.<family>.<size>, such as ml.g5.xlarge; add it",
                "instance_groups[1]: 7 is not an object; allowed: a JSON object",
            ],
        ),
        (
            {"instance_groups": [{**GPU, "instance_type": "g5.xlarge"}]},
            [
                (
                    "instance_groups[0].instance_type: 'g5.xlarge' has the wrong form; allowed: ml.<family>.<size>,"
                    " such as ml.g5.xlarge; correct it"
                )
            ],
        ),
        (
            {"instance_groups": [{**GPU, "name": "my gpus"}]},
            [
                (
                    "instance_groups[0].name: 'my gpus' has the wrong form; allowed: 1 to 63 letters, digits, '-', '_'"
                    " or '.', with a letter or digit at both ends; correct it"
                )
            ],
        ),
        (
            {"training": {"head_group": "gpus"}},
            ["training.head_group: 'gpus' is not a group of this run; allowed: gpu, cpu; name one of them"],
        ),
        (
            {"instance_type": "ml.g5.xlarge", "instance_count": 1, "instance_groups": [GPU]},
            [
                (
                    "instance_count: unknown setting; types and counts belong inside instance_groups; keep"
                    " instance_groups and remove this key"
                ),
                (
                    "instance_type: unknown setting; types and counts belong inside instance_groups; keep"
                    " instance_groups and remove this key"
                ),
            ],
        ),
        ({"batch_size": 3}, ["batch_size: unknown setting; nearest: training.batch_size; see docs/settings.md"]),
        ({"training": None}, ["training: null is not an object; allowed: a JSON object"]),
        ([], ["input: a list of 0 is not an object; allowed: a JSON object such as {}; write an object"]),
        ("{}", ["input: '{}' is not an object; allowed: a JSON object such as {}; write an object"]),
        (None, ["input: null is not an object; allowed: a JSON object such as {}; write an object"]),
    ],
)
def test_a_bad_run_gets_these_lines(obj: object, lines: list[str]) -> None:
    assert problems(obj) == lines


def test_every_problem_is_reported_in_the_order_of_the_fields() -> None:
    lines = problems(
        {
            "zzz": 1,
            "training": {"head_group": "no", "zzz": 1, "steps": 0, "batch_size": "x"},
            "instance_groups": [GPU, {**GPU, "instance_count": -1}],
        }
    )
    assert [line.split(":")[0] for line in lines] == [
        "instance_groups[1].name",
        "instance_groups[1].instance_count",
        "training.batch_size",
        "training.steps",
        "training.head_group",
        "training.zzz",
        "zzz",
    ]


def test_the_constructor_too_compares_groups_and_head_group() -> None:
    group = InstanceGroup(name="gpu", instance_type="ml.g5.xlarge")
    with pytest.raises(ValidationError, match="used by two groups"):
        RunConfig(instance_groups=(group, group))
    with pytest.raises(ValidationError, match="not a group of this run"):
        RunConfig(training=TrainingConfig(head_group="other"))


@pytest.mark.parametrize(
    "obj",
    [
        {"training": {"model": SECRET_KEY_ID}},
        {"training": {"aws_secret_access_key": "hunter2-hunter2"}},
        {"training": {"model_arguments": {"hub_token": "hunter2-hunter2"}}},
        {"training": {"model_arguments": {"note": ["x", f"key {SECRET_KEY_ID}"]}}},
        {"training": {"model_arguments": {SECRET_KEY_ID: "x"}}},
        {"training": {"precision": "ghp_" + "a1" * 18}},
        {"training": {"steps": SECRET_KEY_ID}},
        {"training": {"head_group": SECRET_KEY_ID}},
        {"training": {SECRET_KEY_ID: 1}},
        {
            "instance_groups": [{"name": SECRET_KEY_ID, "instance_type": "ml.g5.xlarge"}],
            "training": {"head_group": "g"},
        },
        {"instance_groups": [{"name": SECRET_KEY_ID, "instance_type": "ml.g5.xlarge"}] * 2},
        {"password": "hunter2-hunter2"},
        SECRET_KEY_ID,
    ],
)
def test_a_secret_is_refused_and_never_shown(obj: object) -> None:
    text = "\n".join(problems(obj))
    assert SECRET_KEY_ID not in text
    assert "hunter2" not in text
    assert "a1a1" not in text


def test_a_secret_is_named_by_its_field() -> None:
    advice = "looks like a secret and settings are stored as plain text; remove it and read it at run time instead"
    assert training_problems(model=SECRET_KEY_ID) == [f"training.model: {advice}"]
    assert training_problems(model_arguments={"token": "abc"}) == [f"training.model_arguments.token: {advice}"]


def test_numbers_about_tokens_are_no_secrets() -> None:
    arguments: dict[str, Any] = {"reg_tokens": 4, "class_token": True, "global_pool": "token"}
    assert TrainingConfig(model_arguments=arguments).model_arguments == arguments


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "input: not JSON at line 1 column 1; allowed: a JSON object such as {}; correct it there"),
        ('{"a": 1,\n  b}', "input: not JSON at line 2 column 3; allowed: a JSON object such as {}; correct it there"),
        ("[1]", "input: a list of 1 is not an object; allowed: a JSON object such as {}; write an object"),
        ("9" * 5000, "input: a number of over 4300 digits; allowed: the numbers in docs/settings.md; shorten it"),
        (
            "[" * 100_000,
            "input: lists or objects nested over 900 deep; allowed: a JSON object such as {}; flatten it",
        ),
        (" " * 262_143 + "{}", "input: 262145 bytes; allowed: 262144 bytes; shorten it"),
        ("é" * 131_073, "input: 262146 bytes; allowed: 262144 bytes; shorten it"),
        (
            '{"training": {"momentum": NaN}}',
            "training.momentum: nan is not a finite number; allowed: at least 0, below 1",
        ),
    ],
)
def test_text_that_is_no_run_gets_this_line(text: str, line: str) -> None:
    with pytest.raises(ContractError) as caught:
        RunConfig.parse_json(text)
    assert caught.value.problems == [line]


def test_text_of_exactly_the_limit_is_read() -> None:
    assert RunConfig.parse_json(" " * 262_142 + "{}") == RunConfig()


@pytest.mark.parametrize("model", [InstanceGroup, TrainingConfig, RunConfig])
def test_each_numeric_limit_is_allowed_and_the_next_number_is_not(model: type[BaseModel]) -> None:
    required = GPU if model is InstanceGroup else {}
    for name, schema in field_schemas(model).items():
        if name == "max_wait_seconds":
            continue  # its least depends on max_runtime_seconds
        limits = schema.get("anyOf", [schema])[0]
        for key, step in (("minimum", -1), ("maximum", 1)):
            if key in limits:
                assert getattr(model.model_validate({**required, name: limits[key]}), name) == limits[key]
                with pytest.raises(ValidationError, match=name):
                    model.model_validate({**required, name: limits[key] + step})


def test_every_setting_has_one_line_of_help() -> None:
    for model in (RunConfig, InstanceGroup, Channel, TrainingConfig):
        for name, field in model.model_fields.items():
            assert field.description, name
            assert "\n" not in field.description
            assert field.description.endswith(".")


def test_every_setting_with_a_unit_in_its_name_says_it_in_its_help() -> None:
    for name, field in TrainingConfig.model_fields.items():
        for unit in ("seconds", "steps", "batches"):
            if name.endswith(unit):
                assert (field.description or "").endswith(f"{unit}."), name


def test_nearest_gives_the_most_similar_first() -> None:
    known = list(TrainingConfig.model_fields)
    assert nearest("batchsize", known) == ["batch_size"]
    assert nearest("lr", known) == ["learning_rate"]
    assert nearest("BATCH_SIZE", known)[0] == "batch_size"
    assert nearest("seconds", known) == ["join_timeout_seconds", "stall_timeout_seconds"]
    assert nearest("batch", known, limit=1) == ["batch_size"]
    assert nearest("", known) == nearest("x" * 100_000, known) == []


def test_model_in_finds_the_model_of_a_list() -> None:
    assert model_in(RunConfig.model_fields["instance_groups"].annotation) is InstanceGroup
    assert model_in(int | None) is None


@EXAMPLES
@given(obj=JSON_VALUES | NEAR_MISSES)
def test_any_json_is_a_run_or_gets_lines(obj: object) -> None:
    outcome = outcome_of(lambda: RunConfig.parse(obj))
    if isinstance(outcome, RunConfig):
        assert RunConfig.parse(outcome.model_dump(mode="json")) == outcome
    else:
        assert outcome
        assert [line for line in outcome if not line.isprintable() or len(line) > 500] == []


@EXAMPLES
@given(text=st.text(max_size=40) | JSON_VALUES.map(json.dumps) | NEAR_MISSES.map(json.dumps))
def test_any_text_is_a_run_or_gets_lines(text: str) -> None:
    outcome = outcome_of(lambda: RunConfig.parse_json(text))
    assert isinstance(outcome, RunConfig) or (outcome and all(line.isprintable() for line in outcome))


GROUPS = st.lists(
    st.builds(
        InstanceGroup,
        name=st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,8}[A-Za-z0-9])?", fullmatch=True),
        instance_type=st.sampled_from(["ml.g5.xlarge", "ml.p4d.24xlarge", "ml.c5.4xlarge", "ml.p6-b200.48xlarge"]),
        instance_count=st.integers(1, 1000),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda group: group.name,
).map(tuple)


@EXAMPLES
@given(groups=GROUPS, data=st.data())
def test_a_run_survives_its_dump(groups: tuple[InstanceGroup, ...], data: st.DataObject) -> None:
    head_group = data.draw(st.none() | st.sampled_from([group.name for group in groups]))
    run = RunConfig(instance_groups=groups, training=TrainingConfig(head_group=head_group))
    assert RunConfig.parse(run.model_dump()) == run
    assert RunConfig.parse_json(run.model_dump_json()) == run


def test_importing_the_contract_loads_nothing_heavy() -> None:
    code = (
        "import sys, training.contract;"
        "print([m for m in ('torch', 'ray', 'boto3', 'aws_cdk', 'numpy', 'timm', 'rich', 'container', 'infra')"
        " if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout == "[]\n"
