"""The exit codes of process 1 and the errors that lead to them, one place for both."""

SUCCESS = 0
TRAINING_FAILED = 1
BAD_INPUT = 2
CLUSTER_NOT_FORMED = 3
HEAD_LOST = 4
STALLED = 5
STOPPED = 143
"""What a shell reports for SIGTERM: the job was stopped from outside, and ended in order."""

FAILURE_MAX_CHARACTERS = 1024
"""SageMaker shows this much of /opt/ml/output/failure as the job's FailureReason."""


class HostError(Exception):
    """Ends this host: `exit_code` is its status, the text is the reason, cause first, one line."""

    def __init__(self, exit_code: int, reason: str) -> None:
        super().__init__(reason)
        self.exit_code = exit_code
        self.reason = reason
