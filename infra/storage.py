"""Where the output of jobs goes: one private, encrypted, versioned bucket."""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.settings import CHECKPOINTS_PREFIX

ABORTED_UPLOAD_EXPIRY = Duration.days(7)
"""Parts of an upload that never ended cost as much as objects and are in no listing."""


class OutputBucket(s3.Bucket):
    """The bucket of input data, models, checkpoints and reports.

    It has no name of its own, so that a second deploy does not meet the bucket that the first one left.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        key: kms.IKey | None,
        removal_policy: RemovalPolicy,
        checkpoint_expiry: Duration,
        old_version_expiry: Duration,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            bucket_key_enabled=key is not None,  # one call to KMS for many objects
            encryption=s3.BucketEncryption.KMS if key else s3.BucketEncryption.S3_MANAGED,
            encryption_key=key,
            enforce_ssl=True,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            removal_policy=removal_policy,
            versioned=True,
            lifecycle_rules=[
                s3.LifecycleRule(id="checkpoints", prefix=f"{CHECKPOINTS_PREFIX}/", expiration=checkpoint_expiry),
                s3.LifecycleRule(
                    id="old-versions",
                    noncurrent_version_expiration=old_version_expiry,
                    expired_object_delete_marker=True,
                    abort_incomplete_multipart_upload_after=ABORTED_UPLOAD_EXPIRY,
                ),
            ],
        )
        if self.policy:
            self.policy.apply_removal_policy(removal_policy)  # a bucket that stays is still reached over TLS only

    def objects(self, prefix: str) -> str:
        """The ARN pattern of the objects in a folder."""
        return self.arn_for_objects(f"{prefix}/*")
