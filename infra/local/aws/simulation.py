"""SimulatePrincipalPolicy with every resource and with the context that a caller gives; MiniStack leaves both out."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from xml.sax.saxutils import escape

from ministack.services import iam

from infra.local.aws.role_policies import decision

_DECISIONS = {"Allow": "allowed", "Deny": "explicitDeny", "ImplicitDeny": "implicitDeny"}
_simulate = iam._IAM_HANDLERS["SimulatePrincipalPolicy"]


def simulate(parameters: Mapping[str, Any]) -> Any:
    """The answer for a role: one decision for each action on each resource."""
    arn = iam._p(parameters, "PolicySourceArn")
    if ":role/" not in arn:
        return _simulate(parameters)
    context = dict(_context(parameters))
    results = ""
    for action in _members(parameters, "ActionNames"):
        for resource in _members(parameters, "ResourceArns") or ["*"]:
            decided = _DECISIONS[decision(arn, arn, action, resource, context)]
            results += (
                f"<member><EvalActionName>{escape(action)}</EvalActionName>"
                f"<EvalResourceName>{escape(resource)}</EvalResourceName><EvalDecision>{decided}</EvalDecision></member>"
            )
    inner = f"<EvaluationResults>{results}</EvaluationResults><IsTruncated>false</IsTruncated>"
    answer = f"<SimulatePrincipalPolicyResult>{inner}</SimulatePrincipalPolicyResult>"
    return iam._xml(200, "SimulatePrincipalPolicyResponse", answer, ns="iam")


def _members(parameters: Mapping[str, Any], name: str) -> list[str]:
    pattern = re.compile(rf"{re.escape(name)}\.member\.(\d+)")
    found = {int(match[1]): iam._p(parameters, key) for key in parameters if (match := pattern.fullmatch(key))}
    return [found[number] for number in sorted(found)]


def _context(parameters: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    names = (key for key in parameters if key.endswith(".ContextKeyName"))
    for key in names:
        values = _members(parameters, f"{key.removesuffix('ContextKeyName')}ContextKeyValues")
        yield iam._p(parameters, key), values[0] if len(values) == 1 else values
