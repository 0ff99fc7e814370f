"""Who calls AWS, and the IAM identity behind it that permissions are given to."""

from dataclasses import dataclass

from infra.client.aws import Aws


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who the credentials belong to."""

    arn: str
    account: str


def read_caller(aws: Aws) -> Caller:
    """Who the credentials belong to; raises AwsError if AWS does not accept them."""
    answer = aws.call("sts", "GetCallerIdentity")
    return Caller(arn=answer["Arn"], account=answer["Account"])


def identity_arn(aws: Aws, caller: Caller) -> str | None:
    """The user or role whose policies count for the caller; None for the account's root, whom none restrict.

    Raises:
        AwsError: the caller may not know.
    """
    kind, _, name = caller.arn.split(":", 5)[5].partition("/")
    if kind == "root":
        return None
    if kind != "assumed-role":
        return caller.arn
    # The ARN of a session leaves the role's path out.
    return str(aws.call("iam", "GetRole", RoleName=name.partition("/")[0])["Role"]["Arn"])
