"""What is kept secret and with which key: the optional key of the stack's data, and the secret of the cluster token."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct


def data_key(scope: Construct, choice: str, removal_policy: RemovalPolicy) -> kms.IKey | None:
    """The key for `choice`: None for "none", a new one that rotates for "create", else the key of that ARN.

    A new key goes when the bucket goes: what is left in a bucket can be read only as long as its key is there.
    """
    if choice == "none":
        return None
    if choice == "create":
        return kms.Key(
            scope,
            "DataKey",
            description="Encrypts the output, the images, the cluster token and the hosts' volumes of this stack",
            enable_key_rotation=True,
            removal_policy=removal_policy,
        )
    return kms.Key.from_key_arn(scope, "DataKey", choice)


class ClusterToken(secretsmanager.Secret):
    """The secret that the hosts of each job derive their cluster token from; nobody needs to know or set it."""

    def __init__(self, scope: Construct, construct_id: str, *, key: kms.IKey | None) -> None:
        super().__init__(
            scope,
            construct_id,
            description="The hosts of a training job derive the token of their Ray cluster from it",
            generate_secret_string=secretsmanager.SecretStringGenerator(password_length=64, exclude_punctuation=True),
        )
        if key:
            resource = self.node.default_child
            assert isinstance(resource, secretsmanager.CfnSecret)
            resource.kms_key_id = key.key_arn  # the class above would add to the key's policy, with wildcard actions
