"""The output bucket, the key, the cluster token and the images: kept safe, kept as long as said, gone when said."""

import json
from typing import Any

import pytest

from infra.image import IMAGE_BY_DIGEST
from infra.settings import CURRENT_TAG_PREFIX, DeploySettings
from tests.infra.synthesis import KEY_ARN, Synthesis, synthesis, text


def test_bucket_is_private_encrypted_and_versioned(any_combination: Synthesis) -> None:
    bucket = any_combination.only("AWS::S3::Bucket")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert len(bucket["PublicAccessBlockConfiguration"]) == 4
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    assert bucket["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    assert len(bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]) == 1


def test_bucket_is_reached_over_tls_only(any_combination: Synthesis) -> None:
    [statement] = any_combination.only("AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]
    assert statement["Effect"] == "Deny"
    assert statement["Action"] == "s3:*"
    assert statement["Principal"] == {"AWS": "*"}
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert [text(resource) for resource in statement["Resource"]] == ["${Output.Arn}", "${Output.Arn}/*"]


@pytest.mark.parametrize(
    ("combination", "checkpoint_days", "version_days"), [("defaults", 30, 30), ("everything", 3, 4)]
)
def test_checkpoints_and_old_versions_expire(combination: str, checkpoint_days: int, version_days: int) -> None:
    rules = synthesis(combination).only("AWS::S3::Bucket")["LifecycleConfiguration"]["Rules"]
    assert rules == [
        {"Id": "checkpoints", "Prefix": "checkpoints/", "ExpirationInDays": checkpoint_days, "Status": "Enabled"},
        {
            "Id": "old-versions",
            "NoncurrentVersionExpiration": {"NoncurrentDays": version_days},
            "ExpiredObjectDeleteMarker": True,
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
            "Status": "Enabled",
        },
    ]


def policies(synthesis: Synthesis, cfn_type: str) -> set[tuple[str | None, str | None]]:
    resources = synthesis.resources(cfn_type).values()
    return {(resource.get("DeletionPolicy"), resource.get("UpdateReplacePolicy")) for resource in resources}


def test_output_outlives_the_stack_with_its_policy(defaults: Synthesis) -> None:
    assert policies(defaults, "AWS::S3::Bucket") == {("Retain", "Retain")}
    assert policies(defaults, "AWS::S3::BucketPolicy") == {("Retain", "Retain")}


def test_output_goes_with_the_stack_when_told(everything: Synthesis) -> None:
    for cfn_type in ("AWS::S3::Bucket", "AWS::S3::BucketPolicy", "AWS::KMS::Key"):
        assert policies(everything, cfn_type) == {("Delete", "Delete")}


def encryption(bucket: dict[str, Any]) -> dict[str, Any]:
    [rule] = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    default: dict[str, Any] = rule["ServerSideEncryptionByDefault"]
    return default


def test_without_a_key_the_services_encrypt_with_their_own(defaults: Synthesis) -> None:
    assert defaults.resources("AWS::KMS::Key") == {}
    assert encryption(defaults.only("AWS::S3::Bucket")) == {"SSEAlgorithm": "AES256"}
    assert "EncryptionConfiguration" not in defaults.only("AWS::ECR::Repository")  # ECR's default is AES256
    assert "KmsKeyId" not in defaults.only("AWS::SecretsManager::Secret")


@pytest.mark.parametrize(("combination", "key"), [("everything", "${DataKey.Arn}"), ("existing", KEY_ARN)])
def test_a_key_encrypts_output_images_and_token(combination: str, key: str) -> None:
    stack = synthesis(combination)
    bucket, repository = stack.only("AWS::S3::Bucket"), stack.only("AWS::ECR::Repository")
    assert encryption(bucket)["SSEAlgorithm"] == "aws:kms"
    assert text(encryption(bucket)["KMSMasterKeyID"]) == key
    assert repository["EncryptionConfiguration"]["EncryptionType"] == "KMS"
    assert text(repository["EncryptionConfiguration"]["KmsKey"]) == key
    assert text(stack.only("AWS::SecretsManager::Secret")["KmsKeyId"]) == key


def test_a_new_key_rotates_and_is_left_to_the_account(everything: Synthesis) -> None:
    key = everything.only("AWS::KMS::Key")
    assert key["EnableKeyRotation"] is True
    [statement] = key["KeyPolicy"]["Statement"]
    assert text(statement["Principal"]["AWS"]) == "arn:aws:iam::ACCOUNT:root"


def test_a_key_of_the_user_is_not_touched(existing: Synthesis) -> None:
    assert existing.resources("AWS::KMS::Key") == {}


def test_token_is_made_up_on_aws(any_combination: Synthesis) -> None:
    secret = any_combination.only("AWS::SecretsManager::Secret")
    assert secret["GenerateSecretString"] == {"ExcludePunctuation": True, "PasswordLength": 64}
    assert "SecretString" not in secret


def test_images_are_immutable_and_scanned_and_go_with_the_stack(any_combination: Synthesis) -> None:
    repository = any_combination.only("AWS::ECR::Repository")
    assert repository["ImageTagMutability"] == "IMMUTABLE"
    assert repository["ImageScanningConfiguration"] == {"ScanOnPush": True}
    assert repository["EmptyOnDelete"] is True
    assert policies(any_combination, "AWS::ECR::Repository") == {("Delete", "Delete")}


@pytest.mark.parametrize(("combination", "count"), [("defaults", 20), ("everything", 5)])
def test_images_that_were_current_are_counted_by_themselves(combination: str, count: int) -> None:
    policy = synthesis(combination).only("AWS::ECR::Repository")["LifecyclePolicy"]
    rules = sorted(json.loads(policy["LifecyclePolicyText"])["rules"], key=lambda rule: int(rule["rulePriority"]))
    counted = {"countType": "imageCountMoreThan", "countNumber": count}
    assert [rule["selection"] for rule in rules] == [
        {"tagStatus": "tagged", "tagPrefixList": [CURRENT_TAG_PREFIX], **counted},
        {"tagStatus": "any", **counted},
    ]
    assert {rule["action"]["type"] for rule in rules} == {"expire"}


def test_pointer_holds_an_image_by_digest_or_none(defaults: Synthesis) -> None:
    pointer = defaults.only("AWS::SSM::Parameter")
    assert (pointer["Name"], pointer["Type"], pointer["Value"]) == ("/counterpoise/image", "String", "none")
    assert pointer["AllowedPattern"] == f"^(none|{IMAGE_BY_DIGEST})$"


def test_nothing_but_the_name_changes_the_pointer() -> None:
    """CloudFormation writes the template's value back with any change, which would take the current image away."""
    pointers = [synthesis(name).only("AWS::SSM::Parameter") for name in ("defaults", "existing", "everything")]
    written = [json.dumps(pointer).replace("other", DeploySettings().name) for pointer in pointers]
    assert written[0] == written[1] == written[2]
