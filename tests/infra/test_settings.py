"""What a deploy may be told, and the one line that each mistake gets."""

from typing import Any

import pytest

from infra.settings import DeploySettings
from training.contract.errors import ContractError


def problems(**context: Any) -> list[str]:
    with pytest.raises(ContractError) as caught:
        DeploySettings.from_context({f"counterpoise:{name}": value for name, value in context.items()})
    return caught.value.problems


def test_nothing_is_required() -> None:
    assert DeploySettings.from_context({}) == DeploySettings()
    assert DeploySettings().name == "counterpoise"
    assert DeploySettings().output_retained


def test_every_setting_is_described_and_none_is_required() -> None:
    for name, field in DeploySettings.model_fields.items():
        assert field.description is not None, name
        assert field.description.endswith("."), name
        assert not field.is_required(), name


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("poll_seconds", "7", 7),
        ("create_vpc", "true", True),
        ("create_vpc", "False", False),
        ("kms_key", "create", "create"),
        ("notification_email", "me@example.com", "me@example.com"),
        ("notification_email", "null", None),
        ("subnet_ids", "[]", ()),
        ("input_s3_uris", '["s3://bucket/folder/"]', ("s3://bucket/folder/",)),
        ("tags", '{"team": "vision"}', {"team": "vision"}),
    ],
)
def test_text_of_the_command_line_is_read_as_what_it_stands_for(name: str, text: str, value: object) -> None:
    assert getattr(DeploySettings.from_context({f"counterpoise:{name}": text}), name) == value


def test_values_of_cdk_json_are_taken_as_they_are() -> None:
    settings = DeploySettings.from_context({"counterpoise:poll_seconds": 7, "counterpoise:tags": {"team": "vision"}})
    assert (settings.poll_seconds, settings.tags) == (7, {"team": "vision"})


def test_keys_of_the_cdk_are_none_of_ours() -> None:
    keys = [
        "@aws-cdk/core:explicitStackTags",
        "aws:cdk:enable-path-metadata",
        "availability-zones:account=1:region=x",
        "cli-telemetry",
        "acknowledged-issue-numbers",
    ]
    assert DeploySettings.from_context(dict.fromkeys(keys, True)) == DeploySettings()


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("counterpoise:poll_second", "counterpoise:poll_second: unknown setting; nearest: poll_seconds; SEE"),
        ("counterpoise:vpc", "counterpoise:vpc: unknown setting; nearest: create_vpc; SEE"),
        ("counterpoise:sagemaker_x", "counterpoise:sagemaker_x: unknown setting; SEE"),
        ("poll_seconds", "poll_seconds: unknown context key; nearest: counterpoise:poll_seconds; SEE"),
        ("stage", "stage: unknown context key; settings are written counterpoise:<name>; SEE"),
        ("counterpoise", "counterpoise: unknown context key; settings are written counterpoise:<name>; SEE"),
        ("counterpoise.name", "counterpoise.name: unknown context key; settings are written counterpoise:<name>; SEE"),
    ],
)
def test_unknown_key_is_named_with_the_nearest(key: str, line: str) -> None:
    with pytest.raises(ContractError) as caught:
        DeploySettings.from_context({key: "7"})
    assert caught.value.problems == [line.replace("SEE", "see docs/settings.md")]


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("name", "my-stack", "'my-stack' has the wrong form; allowed: 1 to 16 lowercase letters and digits, a letter"),
        ("name", "a" * 17, "has the wrong form; allowed: 1 to 16 lowercase"),
        ("poll_seconds", "0", "0 is out of range; allowed: 1 to 300"),
        ("poll_seconds", "soon", "'soon' is not a whole number; allowed: 1 to 300"),
        ("poll_seconds", 1.5, "1.5 is not a whole number"),
        ("max_runtime_limit_seconds", 2_419_201, "is out of range; allowed: 60 to 2419200"),
        ("image_keep_count", 1, "1 is out of range; allowed: 2 to 1000"),
        ("log_retention_days", "8", "8 is not one of the choices; allowed: 1, 3, 5, 7,"),
        ("create_vpc", "yes", "'yes' is not true or false"),
        ("kms_key", "alias/mine", "'alias/mine' has the wrong form; allowed: none, create, or the ARN of a KMS key"),
        ("notification_email", "team", "'team' has the wrong form; allowed: an address such as team@example.com"),
        ("input_kms_keys", '["mine"]', "'mine' has the wrong form; allowed: the ARN of a KMS key"),
        ("subnet_ids", "subnet-0a1b2c3d", "'subnet-0a1b2c3d' is not a list of subnet ids"),
        ("input_s3_uris", '["s3://bucket/*"]', "has the wrong form; allowed: a place such as s3://bucket/folder/"),
        ("input_s3_uris", '["s3://bucket/${aws:userid}"]', "has the wrong form"),
        ("tags", '{"aws:x": "1"}', "the key has the wrong form"),
        ("tags", '{"team": 1}', "1 is not text"),
        ("tags", '{"api_key": "1"}', "looks like a secret"),
    ],
)
def test_bad_value_gets_one_line(name: str, value: object, line: str) -> None:
    [problem] = problems(**{name: value})
    assert problem.startswith(f"counterpoise:{name}")
    assert line in problem


def test_secret_is_never_shown() -> None:
    secret = "AKIA" + "ABCDEFGHIJKLMNOP"
    assert secret not in "".join(problems(notification_email=secret, tags={"owner": secret}))


@pytest.mark.parametrize(
    ("subnet", "group", "line"),
    [
        ("subnet-x", "sg-0a1b2c3d", "subnet_ids[0]: 'subnet-x' has the wrong form; allowed: an id such as subnet-0a1"),
        ("subnet-0a1b2c3d", "open", "security_group_ids[0]: 'open' has the wrong form; allowed: an id such as sg-0a1"),
    ],
)
def test_ids_of_a_network_have_a_form(subnet: str, group: str, line: str) -> None:
    [problem] = problems(subnet_ids=[subnet], security_group_ids=[group])
    assert problem.startswith(f"counterpoise:{line}")


@pytest.mark.parametrize(
    ("given", "missing"), [("subnet_ids", "security_group_ids"), ("security_group_ids", "subnet_ids")]
)
def test_half_a_network_is_refused(given: str, missing: str) -> None:
    ids = {"subnet_ids": ["subnet-0a1b2c3d"], "security_group_ids": ["sg-0a1b2c3d"]}
    [problem] = problems(**{given: ids[given]})
    assert problem == (
        f"counterpoise:{missing}: missing while {given} is set; allowed: both or neither; "
        f"add {missing} or remove {given}"
    )


def test_two_networks_are_refused() -> None:
    ids = {"subnet_ids": ["subnet-0a1b2c3d"], "security_group_ids": ["sg-0a1b2c3d"]}
    [problem] = problems(create_vpc=True, **ids)
    assert problem == (
        "counterpoise:create_vpc: true while subnet_ids is set; allowed: one of the two; keep the one that you mean"
    )


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ContractError) as caught:
        DeploySettings.from_context({"stage": 1, "counterpoise:poll_seconds": 0, "counterpoise:image_keep_count": 0})
    assert [problem.partition(": ")[0] for problem in caught.value.problems] == [
        "stage",
        "counterpoise:poll_seconds",
        "counterpoise:image_keep_count",
    ]
