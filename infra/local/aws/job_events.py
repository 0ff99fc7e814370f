"""The events that SageMaker sends to EventBridge with every change of a training job."""

import json
from typing import Any

from ministack.core.responses import request_scope
from ministack.services import eventbridge

from infra.local.aws.settings import ACCOUNT, REGION

_MILLISECONDS = ("CreationTime", "LastModifiedTime", "TrainingStartTime", "TrainingEndTime", "StartTime", "EndTime")


def send_change(description: dict[str, Any]) -> None:
    """Sends the state of a job, as DescribeTrainingJob tells it, to the default bus; times are in milliseconds."""
    entry = {
        "Source": "aws.sagemaker",
        "DetailType": "SageMaker Training Job State Change",
        "Resources": [description["TrainingJobArn"]],
        "Detail": json.dumps(_in_milliseconds(description)),
    }
    with request_scope(ACCOUNT, REGION):
        eventbridge._put_events({"Entries": [entry]}, allow_aws_source=True)


def _in_milliseconds(value: Any) -> Any:
    if isinstance(value, list):
        return [_in_milliseconds(item) for item in value]
    if isinstance(value, dict):
        return {
            key: round(item * 1000) if key in _MILLISECONDS else _in_milliseconds(item) for key, item in value.items()
        }
    return value
