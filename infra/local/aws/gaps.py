"""Where MiniStack 1.5.33 differs from AWS in a way that this project meets: each mend with its reason."""

import json
from typing import Any

import jsonata
from ministack import app
from ministack.core import iam_actions, router
from ministack.services import iam, stepfunctions

from infra.local.aws import execution_events, executions, sdk_calls, simulation, tasks
from infra.local.aws.execution_api import Handler, Response, extended
from infra.local.aws.network_types import add_network_types
from infra.local.aws.sagemaker_api import SageMaker
from infra.local.aws.training_job import arn_of

JSONATA_TIMEOUT_MS = 60_000
_error_matches = stepfunctions._error_matches
_extract_resource_arn = iam_actions.extract_resource_arn
_compile_expression = jsonata.Jsonata.jsonata


def mend(sagemaker: SageMaker) -> None:
    """Installs the SageMaker service and every mend; once, before the first request."""
    _add_sagemaker(sagemaker)
    _mend_step_functions()
    _mend_ecr()
    add_network_types()
    iam._IAM_HANDLERS["SimulatePrincipalPolicy"] = simulation.simulate


def _add_sagemaker(sagemaker: SageMaker) -> None:
    """MiniStack has no SageMaker, neither for clients nor for `aws-sdk:` tasks nor in its IAM."""
    router.SERVICE_PATTERNS["sagemaker"] = {
        "target_prefixes": ["SageMaker."],
        "host_patterns": [r"sagemaker\."],
        "credential_scope": "sagemaker",
    }
    app.SERVICE_HANDLERS["sagemaker"] = sagemaker.handle_request
    stepfunctions._AWS_SDK_SERVICE_MAP["sagemaker"] = {"target_prefix": "SageMaker", "protocol": "json"}
    stepfunctions._AWS_SDK_ERROR_PREFIX["sagemaker"] = "SageMaker"
    iam_actions.SERVICE_TO_IAM_NAMESPACE["sagemaker"] = "sagemaker"
    iam_actions.extract_resource_arn = _resource_arn


def _resource_arn(service: str, method: str, path: str, headers: Any, body: bytes, *rest: Any) -> str:
    if service != "sagemaker":
        return str(_extract_resource_arn(service, method, path, headers, body, *rest))
    request = json.loads(body or b"{}")
    name = request.get("TrainingJobName")
    return arn_of(name) if name else request.get("ResourceArn", "*")


def _mend_step_functions() -> None:
    """The interpreter of JSONata state machines, and the calls around it.

    - A run can be redriven, times out as the machine's TimeoutSeconds says, ends for good when it is stopped (MiniStack
      lets a stopped execution fail or succeed later), and Succeed has its Output: executions.
    - A Task's TimeoutSeconds may be an expression; MaxDelaySeconds and JitterStrategy count; events carry resource and
      arguments: tasks.
    - Errors have their names in the Java SDK, and the machine's own role is asked before every call: sdk_calls.
    - Events tell the number of redrives, and error and cause of every end: execution_events.
    - RedriveExecution exists, StartExecution is idempotent and has its limits: execution_api.
    """
    app.SERVICE_HANDLERS["states"] = extended(app.SERVICE_HANDLERS["states"])
    stepfunctions._run_execution = executions.run_execution
    stepfunctions._add_event = executions.add_event
    stepfunctions._emit_execution_status_event = execution_events.send_status
    stepfunctions._scaled_sleep = executions.sleep
    stepfunctions._execute_task = tasks.execute_task
    stepfunctions._invoke_aws_sdk_integration = sdk_calls.invoke
    stepfunctions._dispatch_aws_sdk_json = sdk_calls.call_json_service
    stepfunctions._prefix_sdk_error = sdk_calls.error_name
    stepfunctions._apply_state_assign = _assign
    stepfunctions._error_matches = _matches
    jsonata.Jsonata.jsonata = staticmethod(_compile)


def _assign(
    state: dict[str, Any], value: Any, context: dict[str, Any] | None, result: Any = None, error_output: Any = None
) -> None:
    """Every expression of one Assign sees the variables as they were before it; MiniStack sets them one by one."""
    if context is None or not isinstance(state.get("Assign"), dict):
        return
    evaluated = stepfunctions._apply_jsonata_template(state["Assign"], value, context, result, error_output)
    context.setdefault("variables", {}).update(evaluated)


def _matches(names: list[str], error: str) -> bool:
    """States.ALL stands for every error but these two, which only end an execution."""
    if error in ("States.Runtime", "States.DataLimitExceeded") and error not in names:
        return False
    return bool(_error_matches(names, error))


def _compile(expression: str, *arguments: Any, timeout: int | None = None, **options: Any) -> Any:
    """MiniStack gives an expression the second that AWS documents, but the Python engine needs longer than AWS's."""
    return _compile_expression(expression, *arguments, timeout=timeout and JSONATA_TIMEOUT_MS, **options)


def _mend_ecr() -> None:
    """MiniStack answers an empty list for an unknown tag or digest, where ECR has ImageNotFoundException."""
    app.SERVICE_HANDLERS["ecr"] = _with_image_errors(app.SERVICE_HANDLERS["ecr"])


def _with_image_errors(handle_request: Handler) -> Handler:
    async def handle(method: str, path: str, headers: dict[str, str], body: bytes, query: Any) -> Response:
        status, answer_headers, answer = await handle_request(method, path, headers, body, query)
        if status != 200 or not headers.get("x-amz-target", "").endswith(".DescribeImages"):
            return status, answer_headers, answer
        request = json.loads(body or b"{}")
        if len(json.loads(answer)["imageDetails"]) >= len(request.get("imageIds", [])):
            return status, answer_headers, answer
        image, repository = json.dumps(request["imageIds"][0]), request["repositoryName"]
        message = f"The image with imageId {image} does not exist within the repository with name '{repository}'"
        return 400, answer_headers, json.dumps({"__type": "ImageNotFoundException", "message": message}).encode()

    return handle
