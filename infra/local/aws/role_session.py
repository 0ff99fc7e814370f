"""A role as SageMaker takes it: checked for trust, then temporary credentials that MiniStack accepts."""

import json
import time
from typing import Any

import boto3
from ministack.core import iam_evaluator
from ministack.services import iam, sts

from infra.local.aws.settings import ACCOUNT, REGION, ROOT_CREDENTIALS, EmulatorSettings

SAGEMAKER = "sagemaker.amazonaws.com"
SESSION_SECONDS = 12 * 3600  # longer than any job on this machine


def client(settings: EmulatorSettings, service: str, credentials: dict[str, str] | None = None) -> Any:
    """A boto3 client of the emulator, by default with its root user's credentials."""
    return boto3.client(
        service,
        endpoint_url=settings.endpoint,
        region_name=REGION,
        verify=settings.certificate,
        **(credentials or ROOT_CREDENTIALS),
    )


def find_role(role_arn: str) -> dict[str, Any] | None:
    """MiniStack's record of a role, None if there is none of this ARN."""
    role = iam._roles.get_scoped(ACCOUNT, None, role_arn.rpartition("/")[2])
    return role if role and role["Arn"] == role_arn else None


def trusts_sagemaker(role: dict[str, Any], job_arn: str) -> bool:
    """Whether the trust policy lets SageMaker take the role for this job, its conditions included."""
    question = iam_evaluator.EvalContext(
        principal_arn=SAGEMAKER,
        principal_type="Service",
        principal_account=ACCOUNT,
        action="sts:AssumeRole",
        resource_arn=role["Arn"],
        region=REGION,
        service_context={"aws:sourceaccount": ACCOUNT, "aws:sourcearn": job_arn},
    )
    policy = role["AssumeRolePolicyDocument"]
    document = json.loads(policy) if isinstance(policy, str) else policy
    statements = [{**statement, "Resource": "*"} for statement in document["Statement"]]  # a trust policy names none
    verdict = iam_evaluator.evaluate_resource_policy({"Statement": statements}, question, SAGEMAKER)
    return bool(verdict.decision == "Allow")


def assume(role_arn: str, job_name: str) -> dict[str, str]:
    """Credentials of the role as boto3's keyword arguments, for one job."""
    role = find_role(role_arn)
    if role is None:
        raise LookupError(role_arn)
    key, secret, token = sts._gen_session_access_key(), iam._gen_secret(), sts._gen_session_token()
    session = {
        "Arn": f"arn:aws:sts::{ACCOUNT}:assumed-role/{role['RoleName']}/SageMaker-{job_name}"[:2048],
        "UserId": f"{role['RoleId']}:SageMaker",
        "SecretAccessKey": secret,
        "SessionToken": token,
        "Expiration": time.time() + SESSION_SECONDS,
        "AccountId": ACCOUNT,
        "PrincipalType": "AssumedRole",
    }
    sts.register_session(key, session)
    return {"aws_access_key_id": key, "aws_secret_access_key": secret, "aws_session_token": token}
