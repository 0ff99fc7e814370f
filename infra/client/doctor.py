"""`counterpoise doctor`: whether everything is there to start a job, and for each thing that is not, what mends it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

from rich.text import Text

from infra.client.caller import Caller, read_caller
from infra.client.errors import AwsError, CommandError, ExitCode
from infra.client.image_pointer import check_image
from infra.client.permissions import check_permissions
from infra.client.quotas import check_quotas
from infra.client.session import Session
from training.contract import RunConfig

BOOTSTRAP_PARAMETER = "/cdk-bootstrap/hnb659fds/version"
"""What `cdk bootstrap` leaves in an account, with the CDK's default qualifier in its name."""
ONLY_FOR_DOCTOR = ("bootstrap", "quota", "permissions")
_COLORS = {"ok": "green", "failed": "red", "unknown": "yellow"}


@dataclass(frozen=True)
class Finding:
    """What one check found; `detail` of a failed one ends with the command that mends it."""

    check: str
    state: Literal["ok", "failed", "unknown"]
    detail: str


def doctor(session: Session, config: RunConfig) -> ExitCode:
    """Check everything that a run of `config` needs, in the order in which it has to be mended."""
    findings: list[Finding] = []
    for check, look in _checks(session, config):
        finding = _found(check, look)
        findings.append(finding)
        session.screen.show(Text.assemble((f"{finding.state:8}", _COLORS[finding.state]), f"{check}: {finding.detail}"))
        if finding.state == "failed" and check in ("credentials", "stack"):
            session.screen.note(f"the rest can be checked once this is mended ({check})")
            break
    is_well = all(finding.state != "failed" for finding in findings)
    session.screen.result({"ok": is_well, "checks": [asdict(finding) for finding in findings]})
    return ExitCode.OK if is_well else ExitCode.AWS


def _found(check: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(check, "ok", look())
    except CommandError as error:
        # What only the check wants to know, and AWS does not tell this caller, keeps nobody from starting a job.
        is_hidden = check in ONLY_FOR_DOCTOR and isinstance(error, AwsError) and error.code != ""
        return Finding(check, "unknown" if is_hidden else "failed", str(error))


def _checks(session: Session, config: RunConfig) -> list[tuple[str, Callable[[], str]]]:
    caller: list[Caller] = []

    def credentials() -> str:
        caller.append(read_caller(session.aws))
        return f"{caller[0].arn} in {session.aws.region}"

    return [
        ("credentials", credentials),
        ("bootstrap", lambda: _bootstrap(session, caller[0])),
        ("stack", lambda: f"{session.stack.name} is deployed"),
        ("image", lambda: check_image(session.aws, session.stack) or "the caller may not know; the execution can"),
        ("quota", lambda: check_quotas(session.aws, config)),
        ("permissions", lambda: check_permissions(session.aws, session.stack, caller[0])),
    ]


def _bootstrap(session: Session, caller: Caller) -> str:
    try:
        answer = session.aws.call("ssm", "GetParameter", Name=BOOTSTRAP_PARAMETER)
    except AwsError as error:
        if error.code != "ParameterNotFound":
            raise
        place = f"aws://{caller.account}/{session.aws.region}"
        raise AwsError(
            f"the CDK has not been set up in this account and region: `npx aws-cdk bootstrap {place}`"
        ) from error
    return f"version {answer['Parameter']['Value']}"
