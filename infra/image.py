"""Where the image of the training jobs is: its repository, and the parameter that says which one is current."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_kms as kms
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.settings import CURRENT_TAG_PREFIX

NO_IMAGE = "none"
"""What the parameter holds until an image has been pushed."""

IMAGE_BY_DIGEST = r"[0-9]{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/[a-z0-9._/-]+@sha256:[0-9a-f]{64}"


class ImageRepository(ecr.Repository):
    """The repository; it goes with the stack, images and all, since an image can be built again.

    ECR's lifecycle rules know tags and push times, not use. An image that matches a rule is never expired by a rule
    with a greater number, so each kind of image is counted by itself: however many are pushed without becoming
    current, the last `keep_count` that jobs were pointed at stay. A running job needs its image again only when a
    spot host is replaced; it would have to see `keep_count` newer current images to lose it.
    """

    def __init__(self, scope: Construct, construct_id: str, *, key: kms.IKey | None, keep_count: int) -> None:
        super().__init__(
            scope,
            construct_id,
            empty_on_delete=True,
            encryption=ecr.RepositoryEncryption.KMS if key else ecr.RepositoryEncryption.AES_256,
            encryption_key=key,
            image_scan_on_push=True,
            image_tag_mutability=ecr.TagMutability.IMMUTABLE,
            removal_policy=RemovalPolicy.DESTROY,
            lifecycle_rules=[
                ecr.LifecycleRule(
                    rule_priority=1,
                    description=f"The last {keep_count} images that were current",
                    tag_status=ecr.TagStatus.TAGGED,
                    tag_prefix_list=[CURRENT_TAG_PREFIX],
                    max_image_count=keep_count,
                ),
                ecr.LifecycleRule(
                    rule_priority=2,
                    description=f"The last {keep_count} images in all",
                    tag_status=ecr.TagStatus.ANY,
                    max_image_count=keep_count,
                ),
            ],
        )


class ImagePointer(ssm.StringParameter):
    """The parameter that holds the current image by its digest; `counterpoise image push` sets it.

    CloudFormation writes the template's value back when anything about a parameter changes. So nothing here depends
    on a setting but the name, and the stack keeps the tags of the settings away from it.
    """

    def __init__(self, scope: Construct, construct_id: str, *, name: str) -> None:
        super().__init__(
            scope,
            construct_id,
            parameter_name=f"/{name}/image",
            description="The image of the next training job, by digest; counterpoise image push sets it",
            string_value=NO_IMAGE,
            allowed_pattern=f"^({NO_IMAGE}|{IMAGE_BY_DIGEST})$",
        )
