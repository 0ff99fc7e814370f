"""How a job ended, as every host of it has to end."""

import traceback
from dataclasses import dataclass

from container.bootstrap import log
from container.bootstrap.errors import TRAINING_FAILED, HostError


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the job ended: every host exits with `exit_code`; `reason` is empty on success."""

    exit_code: int
    reason: str

    @classmethod
    def of(cls, error: Exception) -> "Outcome":
        """What an error means for the job; one that nobody foresaw is a failure, with its traceback in the log."""
        if isinstance(error, HostError):
            return cls(exit_code=error.exit_code, reason=error.reason)
        log.say("".join(traceback.format_exception(error)).rstrip())
        message = " ".join(str(error).split())
        return cls(exit_code=TRAINING_FAILED, reason=f"{type(error).__name__}: {message}".removesuffix(": "))
