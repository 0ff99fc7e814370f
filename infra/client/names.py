"""Names of executions: any name is accepted, and what Step Functions refuses in it is mapped, always the same way."""

import hashlib
import re
import secrets
from datetime import datetime

MAX_CHARACTERS = 80
_DIGEST_CHARACTERS = 8
# Step Functions takes more, but then cannot log the execution to CloudWatch (API reference, StartExecution).
_REFUSED = re.compile(r"[^A-Za-z0-9_-]+")
_STEP_FUNCTIONS_NAME = re.compile(r"[^\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f]{1,80}")


def execution_name(wanted: str) -> str:
    """A name that Step Functions takes and logs: `wanted` itself if it can be, else its readable part and a digest.

    The digest is that of `wanted`, so that two names are mapped to two names.
    """
    readable = _REFUSED.sub("-", wanted).strip("-")
    if readable == wanted and 0 < len(wanted) <= MAX_CHARACTERS:
        return wanted
    digest = hashlib.sha256(wanted.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARACTERS]
    kept = readable[: MAX_CHARACTERS - _DIGEST_CHARACTERS - 1].rstrip("-")
    return f"{kept}-{digest}" if kept else digest


def new_name(mode: str, now: datetime) -> str:
    """A name that no execution has yet, with the mode and the time (UTC) in it."""
    return f"{mode}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def possible_names(wanted: str) -> list[str]:
    """What an execution may be called that somebody calls `wanted`: so itself, if started elsewhere, or mapped."""
    as_it_is = [wanted] if _STEP_FUNCTIONS_NAME.fullmatch(wanted) else []
    return list(dict.fromkeys([*as_it_is, execution_name(wanted)]))
