"""What the state machines are built from: values of one deploy, as plain text or as the CDK's tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class JobSecurity:
    """How the jobs of a deploy are protected."""

    kms_key_arn: str | None = None
    """The key of output and volumes; None leaves them to the services' own keys."""
    subnet_ids: Sequence[str] = ()
    security_group_ids: Sequence[str] = ()
    is_isolated: bool = False
    """Whether hosts reach nothing but one another."""
    is_traffic_encrypted: bool = False
    """Whether traffic between the hosts of a job is encrypted."""


@dataclass(frozen=True, kw_only=True)
class WorkflowSettings:
    """One deployed workflow. Every text may be a token that CloudFormation replaces."""

    name: str
    """Name of the stack: 1 to 16 lower-case letters and digits. The names of its jobs begin with it."""
    partition: str
    region: str
    bucket_name: str
    """Where jobs write their output and checkpoints, and the workflow its reports."""
    training_role_arn: str
    """The role that SageMaker and the hosts of a job take on."""
    image_parameter_name: str
    """The parameter that holds the URI of the current image, by digest."""
    repository_name: str
    repository_uri: str
    prices_usd_per_hour: Mapping[str, Mapping[str, float]]
    """On-demand prices of instance types, by region."""
    prices_read: str
    """The day on which the prices were read."""
    security: JobSecurity = JobSecurity()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of every host; nothing in it is secret."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of every job."""
    max_runtime_limit_seconds: int = 432_000
    """The longest max_runtime_seconds that an execution may ask for."""
    poll_seconds: int = 15
    """First wait between two looks at a job; it grows with the job's age."""
    retry_seconds: int = 5
    """First wait before a call that was throttled is repeated."""
