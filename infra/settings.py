"""What a deploy is told: typed settings, read once from the CDK's context, refused in one line each when wrong."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field

from training.contract.errors import ContractError
from training.contract.relations import tag_findings
from training.contract.run import TagValue
from training.contract.settings import ListOf, Settings
from training.contract.text import decode_value
from training.contract.values import Finding, nearest, show_path

CONTEXT_PREFIX = "counterpoise:"
"""Every setting's context key begins with it: `cdk deploy -c counterpoise:create_vpc=true`."""

CURRENT_TAG_PREFIX = "current-"
"""How the tag of an image begins that the image parameter has pointed at."""

DATA_PREFIX, JOBS_PREFIX, CHECKPOINTS_PREFIX, REPORTS_PREFIX = "data", "jobs", "checkpoints", "reports"
"""The folders of the bucket: a user's input data, what jobs put out, their checkpoints, the workflow's reports."""

RetentionDays: TypeAlias = Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 3653]
"""What CloudWatch Logs offers, up to ten years."""

_KEY_ID = r"(mrk-[0-9a-f]{32}|[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12})"
_KEY_ARN = rf"arn:aws[a-z\-]*:kms:[a-z0-9\-]+:[0-9]{{12}}:key/{_KEY_ID}"


def _text(pattern: str, allowed: str) -> Any:
    return Field(pattern=f"^{pattern}$", json_schema_extra={"x-allowed": allowed})


# No star and no question mark: the place becomes part of a policy's resource.
S3Place = Annotated[
    str,
    _text(
        r"s3://[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9](/[A-Za-z0-9!_.'()/=+@ \-]*)?", "a place such as s3://bucket/folder/"
    ),
]
KeyArn = Annotated[str, _text(_KEY_ARN, "the ARN of a KMS key")]
SubnetId = Annotated[str, _text(r"subnet-[0-9a-f]{8,17}", "an id such as subnet-0a1b2c3d")]
SecurityGroupId = Annotated[str, _text(r"sg-[0-9a-f]{8,17}", "an id such as sg-0a1b2c3d")]


class DeploySettings(Settings):
    """The settings of one deploy; all have defaults, and none changes what a training job computes."""

    # No hyphen: the roles of a stack reach the jobs called `<name>-...`, and no other stack's jobs may match that.
    name: str = Field(
        default="counterpoise",
        pattern=r"^[a-z][a-z0-9]{0,15}$",
        json_schema_extra={"x-allowed": "1 to 16 lowercase letters and digits, a letter first"},
        description="Name of the stack and of its state machine; every job's name begins with it.",
    )
    tags: dict[str, TagValue] = Field(
        default={},
        max_length=40,
        json_schema_extra={"x-allowed": "an object of at most 40 tags", "x-items": "tags"},
        description="Tags on every resource but the image parameter, and on every job.",
    )
    poll_seconds: int = Field(
        default=15, ge=1, le=300, description="First wait between two looks at a job, in seconds; it grows with age."
    )
    retry_seconds: int = Field(
        default=5, ge=1, le=300, description="First wait before a throttled call is repeated, in seconds."
    )
    max_runtime_limit_seconds: int = Field(
        default=432_000,
        ge=60,
        le=2_419_200,
        description="Longest max_runtime_seconds that an execution may ask for, in seconds.",
    )
    image_keep_count: int = Field(
        default=20,
        ge=2,
        le=1000,
        description="Images that stay, of those that were current once and of all, in images.",
    )
    log_retention_days: RetentionDays = Field(
        default=90, description="How long the logs of the workflow are kept, in days."
    )
    checkpoint_expiry_days: int = Field(
        default=30, ge=1, le=3650, description="Age at which checkpoints are deleted, in days."
    )
    old_version_expiry_days: int = Field(
        default=30, ge=1, le=3650, description="How long replaced and deleted objects can be restored, in days."
    )
    output_retained: bool = Field(
        default=True,
        description="Whether the bucket outlives the stack; false deletes it with the stack once it is empty.",
    )
    input_s3_uris: Annotated[tuple[S3Place, ...], ListOf("places", most=20)] = Field(
        default=(), description="Where else jobs may read input data: all objects whose URI begins with one of these."
    )
    input_kms_keys: Annotated[tuple[KeyArn, ...], ListOf("key ARNs", most=20)] = Field(
        default=(), description="Keys that input data in other buckets is encrypted with."
    )
    kms_key: str = Field(
        default="none",
        pattern=rf"^(none|create|{_KEY_ARN})$",
        json_schema_extra={"x-allowed": "none, create, or the ARN of a KMS key"},
        description="Key for the bucket, images, cluster token and volumes; a change makes a new repository.",
    )
    create_vpc: bool = Field(
        default=False,
        description="Whether jobs run in a VPC of the stack, which reaches S3, the cluster token and no internet.",
    )
    subnet_ids: Annotated[tuple[SubnetId, ...], ListOf("subnet ids", most=16)] = Field(
        default=(), description="Subnets of a VPC of yours that jobs run in."
    )
    security_group_ids: Annotated[tuple[SecurityGroupId, ...], ListOf("security group ids", most=5)] = Field(
        default=(), description="Security groups of the hosts there; they must admit one another."
    )
    inter_container_encryption: bool = Field(
        default=False, description="Whether traffic between the hosts of a job is encrypted; it costs speed."
    )
    network_isolation: bool = Field(
        default=False, description="Whether hosts reach nothing but one another: no internet and no AWS API."
    )
    notification_email: str | None = Field(
        default=None,
        max_length=320,
        pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$",
        json_schema_extra={"x-allowed": "an address such as team@example.com, or null"},
        description="Who is told of alarms and ended executions; null tells nobody.",
    )

    @property
    def uses_vpc(self) -> bool:
        """Whether the hosts of a job are attached to a VPC."""
        return self.create_vpc or bool(self.subnet_ids)

    @classmethod
    def relations(cls, raw: Mapping[str, Any]) -> list[Finding]:
        """Tags that AWS refuses, and a network that is half described or described twice."""
        return [*tag_findings(raw), *_network_findings(raw)]

    @classmethod
    def from_context(cls, context: Mapping[str, object]) -> Self:
        """The settings among the keys of a CDK context, where `cdk -c` has put text only.

        Raises:
            ContractError: one line for each key that is unknown or holds what its setting does not allow.
        """
        problems = [_stray_sentence(key, cls.model_fields) for key in context if _is_stray(key)]
        values = {
            key.removeprefix(CONTEXT_PREFIX): value for key, value in context.items() if key.startswith(CONTEXT_PREFIX)
        }
        for name, field in cls.model_fields.items():
            text = values.get(name)
            if isinstance(text, str):
                values[name] = decode_value(text, field.annotation)
        try:
            settings = cls.parse(values)
        except ContractError as error:
            problems += [CONTEXT_PREFIX + problem for problem in error.problems]
        if problems:
            raise ContractError(problems)
        return settings


def _network_findings(raw: Mapping[str, Any]) -> Iterator[Finding]:
    names = ("subnet_ids", "security_group_ids")
    has = {name: isinstance(raw.get(name), list | tuple) and len(raw[name]) > 0 for name in names}
    for name, other in (names, names[::-1]):
        if has[other] and not has[name]:
            yield (name,), f"missing while {other} is set; allowed: both or neither; add {name} or remove {other}"
    if raw.get("create_vpc") is True and has["subnet_ids"]:
        yield ("create_vpc",), "true while subnet_ids is set; allowed: one of the two; keep the one that you mean"


def _is_stray(key: str) -> bool:
    """Whether a context key is meant for this stack and lacks the prefix; the CDK's own hold ':', '@' or '-'."""
    return key.isidentifier() or (key.startswith(CONTEXT_PREFIX[:-1]) and not key.startswith(CONTEXT_PREFIX))


def _stray_sentence(key: str, known: Mapping[str, object]) -> str:
    near = [CONTEXT_PREFIX + name for name in nearest(key, known)]
    hint = f"nearest: {', '.join(near)}" if near else f"settings are written {CONTEXT_PREFIX}<name>"
    return f"{show_path((key,))}: unknown context key; {hint}; see docs/settings.md"
