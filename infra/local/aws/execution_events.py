"""The event that Step Functions sends to EventBridge with every change of an execution's status."""

import json
import logging
from datetime import datetime
from typing import Any

from ministack.services import eventbridge

REDRIVABLE = ("FAILED", "ABORTED", "TIMED_OUT")
_log = logging.getLogger("counterpoise.executions")


def send_status(record: dict[str, Any]) -> None:
    """Sends the status of an execution; a fault there does no harm to the execution, as on AWS."""
    entry = {
        "Source": "aws.states",
        "DetailType": "Step Functions Execution Status Change",
        "Detail": json.dumps(_detail(record)),
        "Resources": [record["executionArn"]],
    }
    try:
        eventbridge._put_events({"Entries": [entry]}, allow_aws_source=True)
    except Exception:  # noqa: BLE001 - whatever a rule's target does wrong is the target's
        _log.warning("no status event for %s", record["executionArn"], exc_info=True)


def _detail(record: dict[str, Any]) -> dict[str, Any]:
    has_succeeded = record["status"] == "SUCCEEDED"
    return {
        **{key: record[key] for key in ("executionArn", "stateMachineArn", "name", "status", "input")},
        "startDate": _milliseconds(record["startDate"]),
        "stopDate": _milliseconds(record.get("stopDate")),
        "inputDetails": {"included": True},
        "output": record["output"] if has_succeeded else None,
        "outputDetails": {"included": True} if has_succeeded else None,
        "error": record.get("error"),
        "cause": record.get("cause"),
        "redriveCount": record.get("redriveCount", 0),
        "redriveDate": _milliseconds(record.get("redriveDate")),
        "redriveStatus": "REDRIVABLE" if record["status"] in REDRIVABLE else "NOT_REDRIVABLE",
        "redriveStatusReason": None
        if record["status"] in REDRIVABLE
        else f"Execution is {record['status']} and cannot be redriven",
    }


def _milliseconds(date: str | None) -> int | None:
    return None if date is None else round(datetime.fromisoformat(date.replace("Z", "+00:00")).timestamp() * 1000)
