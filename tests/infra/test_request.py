"""The CreateTrainingJob request: valid and within policy for every combination of flags, as the contract decides."""

import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.workflow.metrics import metric_definitions
from infra.workflow.request import training_job_request
from tests.infra.fake_aws import IMAGE, validate
from tests.infra.machine import evaluate
from tests.infra.workflow_inputs import KEY_ARN, SETTINGS, changed, request_for
from training.contract import RunConfig, TrainingConfig
from training.contract.values import looks_secret

EBS_GROUPS = [
    {"name": "gpu", "instance_type": "ml.p3.2xlarge", "instance_count": 1},
    {"name": "cpu", "instance_type": "ml.c5.4xlarge", "instance_count": 2},
]
NVME_GROUPS = [{"name": "gpu", "instance_type": "ml.g5.xlarge", "instance_count": 1}, EBS_GROUPS[1]]
NETWORK = {"subnet_ids": ("subnet-0a1b2c3d",), "security_group_ids": ("sg-0a1b2c3d",)}
SECRET_ARN = "arn:aws:secretsmanager:us-east-1:123456789012:secret:x-AbCdEf"
SECRET_ENVIRONMENT = {"COUNTERPOISE_CLUSTER_SECRET_ARN": SECRET_ARN}
ISOLATED_ENVIRONMENT = {"COUNTERPOISE_ISOLATED": "1"}
FLAGS = ("spot", "checkpoints", "vpc", "kms", "isolation", "encryption", "nvme")
COMBINATIONS = [
    dict(zip(FLAGS, values, strict=True))
    for values in itertools.product([False, True], repeat=len(FLAGS))
    if values[:2] != (True, False)  # the contract refuses spot without checkpoints
]
JOB_NAME = re.compile(r"counterpoise-[a-z0-9-]+-[0-9a-f]{10}-[tbh][0-9]+")
TAG_TEXT = re.compile(r"[\w\s.:/=+\-@]*")


def evaluated(settings: Any, run: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    """The request for one job of a run, without the rest of the workflow."""
    bindings = {
        "run": run,
        "job": job,
        "image": IMAGE,
        "stem": "counterpoise-run-1-0123456789",
        "metric_definitions": metric_definitions(),
    }
    request: dict[str, Any] = evaluate(training_job_request(settings), bindings)
    return request


def job_of(groups: list[dict[str, Any]], arm: str = "train") -> dict[str, Any]:
    return {"arm": arm, "letter": arm[0], "attempt": 1, "groups": groups}


def check_policy(request: dict[str, Any], flags: dict[str, bool]) -> None:
    """What the API would take and this project does not."""
    assert JOB_NAME.fullmatch(request["TrainingJobName"])
    assert len(request["TrainingJobName"]) <= 63
    assert re.fullmatch(r"[0-9]{12}\.dkr\.ecr\.[^/]+/[^@:]+@sha256:[0-9a-f]{64}", image_of(request)), "not by digest"
    assert 0 < request["StoppingCondition"]["MaxRuntimeInSeconds"] <= 2_419_200
    assert ("MaxWaitTimeInSeconds" in request["StoppingCondition"]) == flags["spot"]
    assert request["EnableManagedSpotTraining"] is flags["spot"]
    assert request["EnableNetworkIsolation"] is flags["isolation"]
    assert request["EnableInterContainerTrafficEncryption"] is flags["encryption"]
    assert ("VpcConfig" in request) == flags["vpc"]
    assert ("CheckpointConfig" in request) == flags["checkpoints"]
    assert request["OutputDataConfig"].get("KmsKeyId") == (KEY_ARN if flags["kms"] else None)
    has_volume_key = flags["kms"] and not flags["nvme"]
    assert request["ResourceConfig"].get("VolumeKmsKeyId") == (KEY_ARN if has_volume_key else None)
    assert set(request["ResourceConfig"]) <= {"InstanceGroups", "VolumeSizeInGB", "VolumeKmsKeyId"}
    check_limits(request)


def image_of(request: dict[str, Any]) -> str:
    return str(request["AlgorithmSpecification"]["TrainingImage"])


def check_limits(request: dict[str, Any]) -> None:
    """SageMaker's limits for names, numbers and texts, and that nothing in the request is secret."""
    groups = request["ResourceConfig"]["InstanceGroups"]
    assert 1 <= len(groups) <= 5
    assert all(re.fullmatch(r".{1,64}", group["InstanceGroupName"]) for group in groups)
    parameters = request["HyperParameters"]
    assert len(parameters) <= 100
    assert all(isinstance(text, str) and len(text) <= 2500 for text in parameters.values())
    assert all(len(text) <= 512 for text in request["Environment"].values())
    assert len(request["Tags"]) <= 50
    assert all(TAG_TEXT.fullmatch(tag["Key"]) and TAG_TEXT.fullmatch(tag["Value"]) for tag in request["Tags"])
    tags = {tag["Key"]: tag["Value"] for tag in request["Tags"]}
    for name, text in {**parameters, **request["Environment"], **tags}.items():
        if name not in SECRET_ENVIRONMENT:  # where the secret is, not what it is
            assert not looks_secret(name, text), name


def shown(flags: dict[str, bool]) -> str:
    return "-".join(name for name in FLAGS if flags[name]) or "none"


@pytest.mark.parametrize("flags", COMBINATIONS, ids=shown)
def test_every_combination_of_flags_gives_a_valid_request(flags: dict[str, bool]) -> None:
    changes: dict[str, Any] = {
        "kms_key_arn": KEY_ARN if flags["kms"] else None,
        "is_isolated": flags["isolation"],
        "is_traffic_encrypted": flags["encryption"],
        "environment": ISOLATED_ENVIRONMENT if flags["isolation"] else SECRET_ENVIRONMENT,
        **(NETWORK if flags["vpc"] else {}),
    }
    value = {
        "instance_groups": NVME_GROUPS if flags["nvme"] else EBS_GROUPS,
        "spot": flags["spot"],
        "max_wait_seconds": 7200 if flags["spot"] else None,
        "checkpoints": flags["checkpoints"],
    }
    run = RunConfig.parse(value).model_dump(mode="json")
    request = evaluated(changed(changes), run, job_of(run["instance_groups"]))
    validate(request)
    check_policy(request, flags)


LOCAL_DISKS = ("g4dn", "g5", "g6e", "g7", "p3dn", "p4d", "p5", "p6-b200", "trn1", "r5d")
NO_LOCAL_DISKS = ("c5", "c5n", "m5", "m7i-flex", "p2", "p3", "r5", "t3", "m8i")


@pytest.mark.parametrize(
    ("family", "has_local_storage"),
    [*((family, True) for family in LOCAL_DISKS), *((family, False) for family in NO_LOCAL_DISKS)],
)
def test_a_volume_key_is_left_out_where_disks_are_local(family: str, has_local_storage: bool) -> None:
    groups = [{"name": "a", "instance_type": f"ml.{family}.xlarge", "instance_count": 1}]
    run = RunConfig().model_dump(mode="json")
    request = evaluated(changed({"kms_key_arn": KEY_ARN}), run, job_of(groups))
    assert ("VolumeKmsKeyId" in request["ResourceConfig"]) != has_local_storage


finite = st.floats(min_value=1e-9, max_value=1, exclude_min=True).map(lambda number: float(f"{number:.12g}"))
trainings = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(["resnet18", "resnet18.a1_in1k"]),
        "model_arguments": st.dictionaries(
            st.sampled_from(["depth", "drop_rate", "é"]),
            st.none()
            | st.booleans()
            | st.integers(-(10**9), 10**9)
            | finite
            | st.text("ab\"'\\ é", max_size=5)
            | st.lists(st.integers(0, 9), max_size=3),
            max_size=3,
        ),
        "num_classes": st.none() | st.integers(1, 1000),
        "learning_rate": finite,
        "steps": st.integers(1, 10_000_000),
        "head_group": st.sampled_from([None, "gpu", "cpu", "null", "None"]),
        "channel": st.sampled_from(["training", "null", "a.b-c_d", "1"]),
        "code_channel": st.sampled_from([None, "null", "None", "1"]),
        "image_column": st.sampled_from(["null", "None", "[1]", " größe ' ", "1"]),
        "seed": st.integers(0, 2**31 - 1),
        "compile": st.booleans(),
    },
)
transforms = st.sampled_from(
    [
        {},
        {"transform": "my.code:crop"},
        {"transform": "torchvision", "transform_steps": ["Pad", 'Pad("a\\\\", 1.0)']},
    ]
)


@settings(derandomize=True, deadline=None, max_examples=100, database=None)
@given(trainings, transforms)
def test_hyperparameters_are_what_the_contract_makes_of_the_settings(
    training: dict[str, Any], transform: dict[str, Any]
) -> None:
    config = TrainingConfig.parse(training | transform)
    names = ("gpu", "cpu", "null", "None")
    groups = [{"name": name, "instance_type": "ml.g5.xlarge", "instance_count": 1} for name in names]
    run = {**RunConfig().model_dump(mode="json"), "training": config.model_dump(mode="json")}
    texts = evaluated(SETTINGS, run, job_of(groups))["HyperParameters"]
    assert TrainingConfig.from_hyperparameters(texts) == config
    expected = config.to_hyperparameters()
    assert set(texts) == set(expected)
    for name, text in expected.items():
        # Numbers and objects are JSON on both sides, which can write 1e-05 as 0.00001 and é as \u00e9.
        assert texts[name] == text or json.loads(texts[name]) == json.loads(text), name


@pytest.mark.parametrize("arm", ["baseline", "train"])
def test_a_head_group_that_the_arm_lacks_is_left_to_the_bootstrap(arm: str) -> None:
    run = RunConfig.parse({"training": {"head_group": "cpu"}}).model_dump(mode="json")
    groups = run["instance_groups"][:1] if arm == "baseline" else run["instance_groups"]
    texts = evaluated(SETTINGS, run, job_of(groups, arm))["HyperParameters"]
    assert texts.get("head_group") == (None if arm == "baseline" else "cpu")


def channels(*groups: list[str] | None) -> dict[str, Any]:
    return {
        "channels": [
            {"name": f"c{index}", "s3_uri": f"s3://data/{index}", **({"instance_groups": names} if names else {})}
            for index, names in enumerate(groups)
        ]
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (channels(None), [None]),
        (channels(["cpu"]), [["cpu"]]),
        (channels(["cpu"], ["gpu", "cpu"]), [["cpu"], ["gpu", "cpu"]]),
    ],
)
def test_channels_name_groups_all_or_none(value: dict[str, Any], expected: list[list[str] | None]) -> None:
    request = request_for(value)
    sources = [channel["DataSource"]["S3DataSource"] for channel in request["InputDataConfig"]]
    assert [source.get("InstanceGroupNames") for source in sources] == expected
    assert [source["S3Uri"] for source in sources] == [f"s3://data/{index}" for index in range(len(expected))]
    assert {channel["InputMode"] for channel in request["InputDataConfig"]} == {"File"}


def test_the_baseline_gets_every_channel_on_all_of_its_hosts() -> None:
    request = request_for({"mode": "compare", **channels(["cpu"], ["gpu"])})
    assert request["TrainingJobName"].endswith("-b1")
    assert all("InstanceGroupNames" not in c["DataSource"]["S3DataSource"] for c in request["InputDataConfig"])


def test_whole_numbers_are_whole_however_they_were_written() -> None:
    groups = [{"name": "gpu", "instance_type": "ml.g5.xlarge", "instance_count": 2.0}]
    value = {"instance_groups": groups, "volume_gb": 60.0, "max_runtime_seconds": 100.0, "spot": True}
    request = request_for({**value, "max_wait_seconds": 200.0, "training": {"steps": 7.0}})
    validate(request)
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 100, "MaxWaitTimeInSeconds": 200}
    assert TrainingConfig.from_hyperparameters(request["HyperParameters"]).steps == 7


def test_without_channels_there_is_no_empty_list() -> None:
    assert "InputDataConfig" not in request_for({})


def test_tags_of_execution_deploy_and_job() -> None:
    request = request_for({"tags": {"team": "mine", "run": "7"}}, {"tags": {"team": "ours", "cost": "12"}})
    tags = {tag["Key"]: tag["Value"] for tag in request["Tags"]}
    assert tags == {
        "team": "ours",
        "run": "7",
        "cost": "12",
        "counterpoise:stack": "counterpoise",
        "counterpoise:arm": "train",
    }


def test_another_attempt_of_an_arm_finds_the_checkpoints_of_the_last_one() -> None:
    run, groups = RunConfig().model_dump(mode="json"), RunConfig().model_dump(mode="json")["instance_groups"]
    uris = [
        evaluated(SETTINGS, run, {**job_of(groups, arm), "attempt": attempt})["CheckpointConfig"]["S3Uri"]
        for arm, attempt in (("train", 1), ("train", 17), ("baseline", 1))
    ]
    assert uris[0] == uris[1] == "s3://b-1/checkpoints/counterpoise-run-1-0123456789-t"
    assert uris[2] != uris[0]
