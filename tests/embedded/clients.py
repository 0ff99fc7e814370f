"""Clients of an embedded AWS, and waiting for what happens in it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import boto3
from botocore.config import Config

from infra.local.aws.server import EmbeddedAws
from infra.local.aws.settings import REGION

T = TypeVar("T")
DEADLINE_SECONDS = 60.0
NO_RETRIES = Config(retries={"total_max_attempts": 1})


@dataclass(frozen=True)
class Clients:
    """boto3 clients by attribute: `clients.sfn`, `clients.sagemaker`; they never try a call twice."""

    endpoint: str
    credentials: Mapping[str, str]
    certificate: str | None = None
    _made: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, aws: EmbeddedAws) -> "Clients":
        """Clients of the root user."""
        variables = aws.environment
        credentials = {
            "aws_access_key_id": variables["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": variables["AWS_SECRET_ACCESS_KEY"],
        }
        return cls(aws.endpoint, credentials, aws.settings.certificate)

    def acting_as(self, credentials: Mapping[str, str]) -> "Clients":
        """The same clients with other credentials, as boto3's keyword arguments."""
        return Clients(self.endpoint, credentials, self.certificate)

    def __getattr__(self, service: str) -> Any:
        if service.startswith("_"):
            raise AttributeError(service)
        if service not in self._made:
            self._made[service] = boto3.client(
                "stepfunctions" if service == "sfn" else service,
                endpoint_url=self.endpoint,
                region_name=REGION,
                verify=self.certificate,
                config=NO_RETRIES,
                **self.credentials,
            )
        return self._made[service]


def until(what: Callable[[], T | None], description: str) -> T:
    """The first value of `what` that is not None or False; fails the test if there is none for a minute."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        value = what()
        if value:
            return value
        assert time.monotonic() < deadline, f"never happened: {description}"
        time.sleep(0.05)  # between two looks, not for anything to have happened
