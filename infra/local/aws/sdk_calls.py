"""`aws-sdk:` tasks as Step Functions makes them: errors by their names in the Java SDK, rights of its own role."""

import json
import re
from functools import cache
from typing import Any
from uuid import uuid4

import botocore.session
from ministack import app
from ministack.core.responses import get_region
from ministack.services import stepfunctions

from infra.local.aws.executions import current_run
from infra.local.aws.workflow_role import refusal

_BOTOCORE_NAMES = {"sfn": "stepfunctions", "eventbridge": "events", "cloudwatchlogs": "logs"}
_PUT_OBJECT_HEADERS = {
    "ContentType": "content-type",
    "ServerSideEncryption": "x-amz-server-side-encryption",
    "SsekmsKeyId": "x-amz-server-side-encryption-aws-kms-key-id",
}
_invoke = stepfunctions._invoke_aws_sdk_integration


def invoke(resource: str, arguments: Any) -> Any:
    """Makes the call of one task if the role of the calling state machine allows it. Raises _ExecutionError."""
    service, action = resource.split(":")[6:8]
    run = current_run()
    denied = refusal(run.role_arn, service, action, arguments) if run else None
    if denied:
        raise _error(service, "AccessDenied", denied, 400)
    return _put_object(arguments) if (service, action) == ("s3", "putObject") else _invoke(resource, arguments)


def _put_object(arguments: dict[str, Any]) -> dict[str, Any]:
    """PutObject, which MiniStack's dispatcher of S3 lacks; a Body that is not text is written as JSON."""
    content = arguments.get("Body", "")
    body = (content if isinstance(content, str) else json.dumps(content)).encode()
    headers = {name: str(arguments[key]) for key, name in _PUT_OBJECT_HEADERS.items() if key in arguments}
    path = f"/{arguments['Bucket']}/{arguments['Key']}"
    handler = app.SERVICE_HANDLERS["s3"]
    status, answer_headers, answer = app.call_service_handler_sync(handler, "PUT", path, headers, body, {})
    if status >= 400:
        code, message = (re.search(rf"<{tag}>(.*?)</{tag}>", answer.decode()) for tag in ("Code", "Message"))
        raise _error("s3", code[1] if code else "", message[1] if message else "", status)
    return {"ETag": {key.lower(): value for key, value in answer_headers.items()}["etag"]}


def call_json_service(info: dict[str, Any], service: str, action: str, arguments: Any) -> Any:
    """Calls a service of the JSON protocol in this process. Raises _ExecutionError."""
    key = info.get("service_key", service)
    operation = action[0].upper() + action[1:]
    headers = {
        "x-amz-target": f"{info['target_prefix']}.{operation}",
        "content-type": "application/x-amz-json-1.1",
        "host": f"{key}.{get_region()}.amazonaws.com",
        "authorization": f"AWS4-HMAC-SHA256 Credential=test/20260101/{get_region()}/{key}/aws4_request",
    }
    body = json.dumps(stepfunctions._sdk_json_params(info, key, operation, arguments)).encode()
    handler = app.SERVICE_HANDLERS[key]
    status, _, answer = app.call_service_handler_sync(handler, "POST", "/", headers, body, {})
    result = json.loads(answer or b"{}")
    if status >= 400:
        raise _error(service, result.get("__type", ""), result.get("message", ""), status)
    return stepfunctions._sdk_json_result(key, operation, result)


def error_name(service: str, code: str) -> str:
    """The name under which a task meets an error code of a service.

    An error of the service's model has its own class in the Java SDK; all others share the service's, so that
    throttling and a refused request of SageMaker are both SageMaker.SageMakerException.
    """
    if code.startswith("States."):
        return code
    prefix = stepfunctions._AWS_SDK_ERROR_PREFIX.get(service, service.capitalize())
    known = _modelled_errors(service)
    if code not in known:
        return f"{prefix}.{prefix}Exception"
    return f"{prefix}.{code.removesuffix('Fault').removesuffix('Exception')}Exception"


@cache
def _modelled_errors(service: str) -> frozenset[str]:
    model = botocore.session.get_session().get_service_model(_BOTOCORE_NAMES.get(service, service))
    return frozenset(shape.metadata.get("error", {}).get("code", shape.name) for shape in model.error_shapes) | {
        shape.name for shape in model.error_shapes
    }


def _error(service: str, code: str, message: str, status: int) -> stepfunctions._ExecutionError:
    prefix = stepfunctions._AWS_SDK_ERROR_PREFIX.get(service, service.capitalize())
    where = f"(Service: {prefix}, Status Code: {status}, Request ID: {uuid4()})"
    return stepfunctions._ExecutionError(error_name(service, code), f"{message} {where}")
