"""How the command ends: every exit code, and the error behind each of them."""

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """What the command tells the shell."""

    OK = 0
    JOB_FAILED = 1
    USAGE = 2
    AWS = 3
    TIMED_OUT = 124  # as timeout(1) reports it
    INTERRUPTED = 130  # as a shell reports SIGINT
    NO_READER = 141  # as a shell reports SIGPIPE


MEANINGS = {
    ExitCode.OK: "done; with --wait, --follow, wait, status and report also: the job completed or still runs",
    ExitCode.JOB_FAILED: "the job failed or was stopped, or the image could not be built or pushed",
    ExitCode.USAGE: "wrong usage or bad input, or a program is missing on this machine; nothing was started",
    ExitCode.AWS: "AWS or its credentials: the line says which command helps",
    ExitCode.TIMED_OUT: "--timeout passed; the job goes on",
    ExitCode.INTERRUPTED: "interrupted with Ctrl-C; the job goes on unless the answer was to stop it",
    ExitCode.NO_READER: "whoever read the output has left, as `head` does",
}


class CommandError(Exception):
    """The command cannot go on; `lines` say why, one problem each."""

    exit_code: ClassVar[ExitCode]

    def __init__(self, *lines: str) -> None:
        self.lines = lines
        super().__init__("\n".join(lines))


class BadInput(CommandError):
    """What the user asked for cannot be, or something on this machine is missing; AWS was not changed."""

    exit_code = ExitCode.USAGE


class AwsError(CommandError):
    """AWS did not do as asked; `code` is its name of the error, or botocore's; a transient error may pass by itself."""

    exit_code = ExitCode.AWS

    def __init__(self, line: str, code: str = "", *, is_transient: bool = False) -> None:
        super().__init__(line)
        self.code = code
        self.is_transient = is_transient


class JobFailed(CommandError):
    """The job, or the build or push of its image, did not succeed."""

    exit_code = ExitCode.JOB_FAILED


class TimedOut(CommandError):
    """The wait was longer than the user allowed."""

    exit_code = ExitCode.TIMED_OUT


class Interrupted(CommandError):
    """The user pressed Ctrl-C."""

    exit_code = ExitCode.INTERRUPTED


def exit_code_help() -> str:
    """The exit codes as the end of --help shows them, a paragraph each."""
    return "\n\n".join(["Exit codes:", *(f"{code.value}: {meaning}" for code, meaning in MEANINGS.items())])
