"""The settings of a run as a whole: defaults, numbers as JSON has them, channels, spot, fallbacks and tags."""

import json

import pytest
from pydantic import ValidationError

from tests.infra.bad_inputs import CPU, DATA, GPU, KEY_ID, REFUSED, Json
from training.contract import Channel, ContractError, InstanceGroup, RunConfig, TrainingConfig


def test_the_settings_of_a_run_and_their_defaults() -> None:
    assert RunConfig().model_dump(mode="json", exclude={"instance_groups", "training"}) == {
        "mode": "train",
        "fallback_instance_groups": [],
        "channels": [],
        "max_runtime_seconds": 3600,
        "spot": False,
        "max_wait_seconds": None,
        "checkpoints": True,
        "volume_gb": 50,
        "tags": {},
    }


@pytest.mark.parametrize("kind", REFUSED)
def test_a_bad_run_gets_its_lines(kind: str) -> None:
    value, lines = REFUSED[kind]
    with pytest.raises(ContractError) as caught:
        RunConfig.parse_json(json.dumps(value))
    assert caught.value.problems == lines
    assert KEY_ID not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_whole_number_may_be_written_with_a_point() -> None:
    text = (
        '{"instance_groups": [{"name": "a", "instance_type": "ml.g5.xlarge", "instance_count": 2.0}], "volume_gb": 1e2}'
    )
    run = RunConfig.parse_json(text)
    assert (run.instance_groups[0].instance_count, run.volume_gb) == (2, 100)
    assert isinstance(run.volume_gb, int)
    assert run == RunConfig.parse_json(run.model_dump_json())


def test_everything_at_once_is_a_run() -> None:
    value: Json = {
        "mode": "compare",
        "instance_groups": [GPU, CPU],
        "fallback_instance_groups": [[{**GPU, "instance_type": "ml.g6.xlarge"}, CPU], [CPU, GPU]],
        "training": {"head_group": "gpu", "dataset": "image_folder", "channel": "data"},
        "channels": [{**DATA, "instance_groups": ["gpu", "cpu"]}, {**DATA, "name": "b", "instance_groups": ["cpu"]}],
        "max_runtime_seconds": 7200,
        "spot": True,
        "max_wait_seconds": 7200,
        "volume_gb": 16_384,
        "tags": {"team": "vision", "Größe": "", "a b:c/d=e+f@g-h_i": "x"},
    }
    run = RunConfig.parse(value)
    assert run.channels[1] == Channel(name="b", s3_uri="s3://bucket/data", instance_groups=("cpu",))
    assert [group.instance_type for group in run.fallback_instance_groups[0]] == ["ml.g6.xlarge", "ml.c5.4xlarge"]
    assert RunConfig.parse(run.model_dump(mode="json")) == run == RunConfig.parse(run.model_dump())


def test_images_without_any_channel_are_a_run() -> None:
    # The local runner gives the folder itself; what a stack asks for besides is the workflow's to check.
    assert RunConfig.parse({"training": {"dataset": "image_folder"}}).channels == ()


def test_a_path_that_looks_like_a_secret_key_is_a_path() -> None:
    uri = "s3://my-" + "bucket/Data2026/train/imagenet/classes/a"
    assert RunConfig.parse({"channels": [{"name": "data", "s3_uri": uri}]}).channels[0].s3_uri == uri


def test_the_constructor_compares_settings_too() -> None:
    with pytest.raises(ValidationError, match="spot"):
        RunConfig(spot=True)
    with pytest.raises(ValidationError, match="wrong form"):
        RunConfig(tags={"aws:x": "y"})
    with pytest.raises(ValidationError, match="looks like a secret"):
        TrainingConfig(model_arguments={"token": "x"})
    with pytest.raises(ValidationError, match="not a SageMaker training type"):
        InstanceGroup(name="gpu", instance_type="ml.c5.large")


def test_a_list_that_is_too_long_is_refused_before_its_items() -> None:
    with pytest.raises(ContractError) as caught:
        RunConfig.parse({"channels": [{"name": 5}] * 21})
    assert caught.value.problems == ["channels: 21 channels; allowed: 0 to 20 channels; remove or merge channels"]


def test_the_schema_has_the_limits_of_lists_and_objects() -> None:
    properties = RunConfig.json_schema()["properties"]
    fallbacks, tags = properties["fallback_instance_groups"], properties["tags"]
    assert (fallbacks["minItems"], fallbacks["maxItems"]) == (0, 5)
    assert (fallbacks["items"]["minItems"], fallbacks["items"]["maxItems"]) == (1, 5)
    assert (tags["maxProperties"], tags["additionalProperties"]) == (40, {"type": "string"})
