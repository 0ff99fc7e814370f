"""What the policies of a role say to a call, by MiniStack's evaluator."""

from collections.abc import Mapping
from typing import Any

from ministack.core import iam_evaluator
from ministack.core.responses import get_account_id, get_region


def decision(role_arn: str, principal_arn: str, action: str, resource: str, context: Mapping[str, Any]) -> str:
    """Allow, Deny or ImplicitDeny for one action on one resource.

    `principal_arn` is who makes the call, the role itself or a session of it; `context` is what conditions can see.
    """
    account = get_account_id()
    question = iam_evaluator.EvalContext(
        principal_arn=principal_arn,
        principal_type="AssumedRole",
        principal_account=account,
        action=action,
        resource_arn=resource,
        region=get_region(),
        secure_transport=True,
        service_context={key.lower(): value for key, value in context.items()},
    )
    policies = iam_evaluator._gather_role_policies(role_arn.rpartition("/")[2], account)
    return str(iam_evaluator.evaluate(question, policies).decision)
