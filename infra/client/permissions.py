"""Whether the caller may do what this command does, by IAM's own simulation."""

from infra.client.aws import Aws
from infra.client.caller import Caller, identity_arn
from infra.client.errors import AwsError
from infra.client.logs import LOG_GROUP
from infra.client.stack import Stack


def needed_actions(stack: Stack, region: str) -> dict[str, list[str]]:
    """The actions that the commands need, by the ARN that they need them on."""
    partition = stack.state_machine_arn.split(":")[1]
    here = f"{region}:{stack.account}"
    executions = stack.state_machine_arn.replace(":stateMachine:", ":execution:", 1)
    return {
        stack.state_machine_arn: ["states:StartExecution", "states:ListExecutions"],
        f"{executions}:doctor": ["states:DescribeExecution", "states:GetExecutionHistory", "states:StopExecution"],
        f"arn:{partition}:sagemaker:{here}:training-job/{stack.name}-doctor": ["sagemaker:DescribeTrainingJob"],
        f"arn:{partition}:logs:{here}:log-group:{LOG_GROUP}:log-stream:doctor": ["logs:GetLogEvents"],
        f"arn:{partition}:logs:{here}:log-group:{LOG_GROUP}": ["logs:DescribeLogStreams"],
        f"arn:{partition}:s3:::{stack.bucket_name}/reports/doctor": ["s3:GetObject"],
        f"arn:{partition}:s3:::{stack.bucket_name}/jobs/doctor": ["s3:GetObject"],
        f"arn:{partition}:ssm:{here}:parameter{stack.image_parameter_name}": ["ssm:GetParameter", "ssm:PutParameter"],
        f"arn:{partition}:ecr:{here}:repository/{stack.repository_name}": [
            "ecr:BatchCheckLayerAvailability",
            "ecr:BatchGetImage",
            "ecr:CompleteLayerUpload",
            "ecr:DescribeImages",
            "ecr:InitiateLayerUpload",
            "ecr:PutImage",
            "ecr:UploadLayerPart",
        ],
        "*": ["ecr:GetAuthorizationToken"],
    }


def check_permissions(aws: Aws, stack: Stack, caller: Caller) -> str:
    """What the caller may do, in words.

    Raises:
        AwsError: something is missing, or the caller may not ask.
    """
    identity = identity_arn(aws, caller)
    if identity is None:
        return "the account's root may do everything"
    denied: list[str] = []
    for resource, actions in needed_actions(stack, aws.region).items():
        answer = aws.call(
            "iam",
            "SimulatePrincipalPolicy",
            PolicySourceArn=identity,
            ActionNames=actions,
            ResourceArns=[resource],
        )
        denied += [
            f"{result['EvalActionName']} on {resource}"
            for result in answer["EvaluationResults"]
            if result["EvalDecision"] != "allowed"
        ]
    if denied:
        command = "aws iam put-role-policy" if ":role/" in identity else "aws iam put-user-policy"
        raise AwsError(f"{identity} may not {', '.join(denied)}; allow it, for example with `{command}`")
    return f"{identity} may start, watch and stop jobs and push images"
