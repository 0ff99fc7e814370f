"""The one door to AWS: a session, its clients, and every call with its errors translated."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

from infra.client.aws_errors import bad_endpoint, no_region, translated

CONNECT_SECONDS, READ_SECONDS = 10, 60
"""Longest waits of one attempt; botocore makes three of them, with at most 20 seconds between two."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One call of the AWS API, as it is sent and as a dry run shows it; `operation` as in the API: StartExecution."""

    service: str
    operation: str
    parameters: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The request as JSON."""
        return {"service": self.service, "operation": self.operation, "parameters": dict(self.parameters)}


@dataclass(frozen=True)
class Aws:
    """AWS for one set of credentials and one region; a client is made when it is first needed."""

    session: Any
    region: str
    _clients: dict[str, Any] = field(default_factory=dict)

    def send(self, request: Request) -> dict[str, Any]:
        """AWS's answer to a request; raises AwsError."""
        return self.call(request.service, request.operation, **request.parameters)

    def call(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """AWS's answer to `operation`; raises AwsError."""
        from botocore import xform_name

        with self._errors_translated(operation):
            answer: dict[str, Any] = getattr(self._client(service), xform_name(operation))(**parameters)
            return answer

    def pages(self, service: str, operation: str, **parameters: Any) -> Iterator[dict[str, Any]]:
        """The pages of an answer that AWS gives in pages; raises AwsError."""
        from botocore import xform_name

        with self._errors_translated(operation):
            yield from self._client(service).get_paginator(xform_name(operation)).paginate(**parameters)

    @contextmanager
    def open_object(self, uri: str) -> Iterator[IO[bytes]]:
        """The object at an S3 URI, to be read from its beginning to its end; raises AwsError, also while it is read."""
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        with (
            self._errors_translated("GetObject"),
            self._client("s3").get_object(Bucket=bucket, Key=key)["Body"] as body,
        ):
            yield body

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            from botocore.config import Config

            config = Config(
                connect_timeout=CONNECT_SECONDS,
                read_timeout=READ_SECONDS,
                retries={"mode": "standard"},
                user_agent_extra="counterpoise",
            )
            try:
                self._clients[service] = self.session.client(service, config=config)
            except ValueError as error:  # botocore's only check of the one address that a user can set
                raise bad_endpoint(str(error)) from error
        return self._clients[service]

    @contextmanager
    def _errors_translated(self, operation: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise translated(error, operation, self.region) from error


def connect(profile: str | None, region: str | None) -> Aws:
    """AWS with the credentials and the region that the AWS command line would use; calls nothing yet.

    Raises:
        AwsError: no such profile, or no region.
    """
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        session = boto3.Session(profile_name=profile, region_name=region)
    except BotoCoreError as error:
        raise translated(error, "", region or "") from error
    if not session.region_name:
        raise no_region()
    return Aws(session, session.region_name)
