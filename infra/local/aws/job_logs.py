"""The log of a training job: streamed into CloudWatch Logs, and read for the job's metrics."""

import contextlib
import logging
import re
import time
from typing import Any

from botocore.exceptions import ClientError

from infra.local.aws.training_job import TrainingJob

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
MAX_BATCH_EVENTS = 1000  # CloudWatch Logs takes 10,000 and 1 MiB a call; lines of a job are below 1 kB
_log = logging.getLogger("counterpoise.logs")


class JobLogs:
    """The streams of one job, one for each host, and the last value of each of its metrics."""

    def __init__(self, job: TrainingJob, logs: Any) -> None:
        self._name, self._logs = job.name, logs
        self._waiting: dict[str, list[dict[str, Any]]] = {}
        self._streams: dict[str, str] = {}
        definitions = job.request["AlgorithmSpecification"].get("MetricDefinitions", [])
        self._patterns = {definition["Name"]: re.compile(definition["Regex"]) for definition in definitions}
        self._metrics: dict[str, dict[str, Any]] = {}
        self._is_refused = False

    def add(self, host: str, line: str) -> None:
        """Takes one line; `flush` sends it."""
        now = time.time()
        self._waiting.setdefault(host, []).append({"timestamp": int(now * 1000), "message": line or " "})
        for name, pattern in self._patterns.items():
            match = pattern.search(line)
            if match and match.groups():
                self._keep(name, match[1], now)

    def _keep(self, name: str, text: str, now: float) -> None:
        try:
            self._metrics[name] = {"MetricName": name, "Value": float(text), "Timestamp": now}
        except (TypeError, ValueError):
            return  # a definition that catches text has no value there, as on AWS

    def final_metrics(self) -> list[dict[str, Any]]:
        """FinalMetricDataList: the last value of every metric that some line had."""
        return list(self._metrics.values())

    def flush(self) -> None:
        """Sends what has come since the last call; a role without the rights has no logs, but its job goes on."""
        waiting, self._waiting = self._waiting, {}
        if self._is_refused:
            return
        try:
            for host, events in waiting.items():
                for start in range(0, len(events), MAX_BATCH_EVENTS):
                    self._send(host, events[start : start + MAX_BATCH_EVENTS])
        except ClientError as error:
            self._is_refused = True
            _log.warning("job %s: no logs, since CloudWatch Logs refuses its role: %s", self._name, error)

    def _send(self, host: str, events: list[dict[str, Any]]) -> None:
        if host not in self._streams:
            self._streams[host] = f"{self._name}/{host}-{events[0]['timestamp']}"
            self._create(self._streams[host])
        self._logs.put_log_events(logGroupName=LOG_GROUP, logStreamName=self._streams[host], logEvents=events)

    def _create(self, stream: str) -> None:
        with contextlib.suppress(self._logs.exceptions.ResourceAlreadyExistsException):
            self._logs.create_log_group(logGroupName=LOG_GROUP)
        self._logs.create_log_stream(logGroupName=LOG_GROUP, logStreamName=stream)
