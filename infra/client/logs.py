"""`counterpoise logs`: what every host of an execution printed, merged by time; --follow goes on until its end."""

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.text import Text

from infra.client.aws import Aws
from infra.client.errors import AwsError, ExitCode
from infra.client.executions import Execution, describe, find_execution
from infra.client.interrupts import asking_to_stop
from infra.client.jobs import JobHistory
from infra.client.pace import Pace, looks
from infra.client.screen import Screen
from infra.client.session import Session
from infra.client.status import exit_code

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
"""Where SageMaker puts the output of every training job; each host has a stream <job>/<host>-<number>."""
QUIET_LOOKS = 2
"""Looks without a new line after which an ended execution is taken to have said everything: lines arrive late."""

_START = re.compile(r"counterpoise: event=start host=(\S+) group=(\S+)")  # what process 1 of a host prints first
_HOST = re.compile(r"algo-\d+")
_COLORS = ("cyan", "green", "magenta", "yellow", "blue", "bright_red")


@dataclass(frozen=True)
class LogLine:
    """One line of one host, with its time in milliseconds since 1970."""

    at_milliseconds: int
    job: str
    host: str
    text: str


class StreamReader:
    """One log stream, from its beginning; remembers where it was."""

    def __init__(self, aws: Aws, job: str, stream: str) -> None:
        self._aws, self._job, self._stream = aws, job, stream
        self._token: str | None = None
        match = _HOST.match(stream.removeprefix(f"{job}/"))
        self._host = match[0] if match else stream

    def new_lines(self) -> Iterator[LogLine]:
        """What was not read before, in its order; raises AwsError."""
        while True:
            position = {"nextToken": self._token} if self._token else {}
            answer = self._aws.call(
                "logs",
                "GetLogEvents",
                logGroupName=LOG_GROUP,
                logStreamName=self._stream,
                startFromHead=True,
                **position,
            )
            for event in answer["events"]:
                yield LogLine(event["timestamp"], self._job, self._host, event["message"].rstrip("\n"))
            # The end is where the token stays the same; a page without events is no end.
            if answer["nextForwardToken"] == self._token:
                return
            self._token = answer["nextForwardToken"]


class JobLogs:
    """The logs of every job of one execution."""

    def __init__(self, aws: Aws, execution_arn: str) -> None:
        self._aws = aws
        self._history = JobHistory(aws, execution_arn)
        self._readers: dict[str, StreamReader] = {}

    def new_lines(self) -> Iterator[LogLine]:
        """The lines of all hosts that were not read before, merged by time; raises AwsError."""
        for job in self._history.names():
            for stream in self._streams(job):
                self._readers.setdefault(stream, StreamReader(self._aws, job, stream))
        streams = [reader.new_lines() for reader in self._readers.values()]
        return heapq.merge(*streams, key=lambda line: line.at_milliseconds)

    def _streams(self, job: str) -> list[str]:
        try:
            pages = self._aws.pages("logs", "DescribeLogStreams", logGroupName=LOG_GROUP, logStreamNamePrefix=f"{job}/")
            return [stream["logStreamName"] for page in pages for stream in page["logStreams"]]
        except AwsError as error:
            if error.code == "ResourceNotFoundException":  # no job of this account has ever printed a line
                return []
            raise


class LogPrinter:
    """Shows lines as `group/host | line`, on a terminal each host in its colour; counts them."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._groups: dict[tuple[str, str], str] = {}
        self._colors: dict[str, str] = {}
        self._job = ""
        self.num_lines = 0

    def print(self, line: LogLine) -> None:
        """Shows one line, and before the first one of a job its name."""
        start = _START.search(line.text)
        if start:
            self._groups[line.job, start[1]] = start[2]
        group = self._groups.get((line.job, line.host))
        at = datetime.fromtimestamp(line.at_milliseconds / 1000, UTC)
        self.num_lines += 1
        self._screen.record({"at": at, "job": line.job, "host": line.host, "group": group, "line": line.text})
        if self._screen.as_json:
            return
        if line.job != self._job:
            self._job = line.job
            self._screen.note(f"job {line.job}")
        label = f"{group}/{line.host}" if group else line.host
        color = self._colors.setdefault(line.host, _COLORS[len(self._colors) % len(_COLORS)])
        self._screen.show(Text.assemble((label, color), " | ", Text.from_ansi(line.text)))


def logs(session: Session, reference: str | None, pace: Pace, *, is_following: bool) -> ExitCode:
    """Show the logs of an execution, with `is_following` until it has ended.

    Raises:
        BadInput: there is no such execution.
        TimedOut, Interrupted, AwsError: the end came before that of the execution.
    """
    execution = find_execution(session.aws, session.stack, reference)
    printer, job_logs = LogPrinter(session.screen), JobLogs(session.aws, execution.arn)
    if is_following:
        with asking_to_stop(session, execution):
            execution = _follow(session.aws, execution, printer, job_logs, pace)
        return exit_code(session.screen, execution)
    for line in job_logs.new_lines():
        printer.print(line)
    if not printer.num_lines:
        session.screen.note(f"execution {execution.name} ({execution.status}) has no log line yet")
    return ExitCode.OK


def _follow(aws: Aws, execution: Execution, printer: LogPrinter, job_logs: JobLogs, pace: Pace) -> Execution:
    def look() -> tuple[Execution, bool]:
        now, num_before = describe(aws, execution.arn), printer.num_lines
        for line in job_logs.new_lines():
            printer.print(line)
        return now, printer.num_lines == num_before

    num_quiet_looks = 0
    for now, is_quiet in looks(look, pace, f"execution {execution.name} still runs, and goes on,"):
        num_quiet_looks = num_quiet_looks + 1 if is_quiet and not now.is_running else 0
        if num_quiet_looks == QUIET_LOOKS:
            break
    return now
