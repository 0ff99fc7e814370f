"""What AWS, or the way to it, may answer: each is one line with the command that helps, and exit code 3."""

from collections.abc import Callable

import pytest

from infra.client.status import status
from tests.client.conftest import Ended
from tests.client.deployed import Deployed
from tests.client.fake_aws import FakeAws, Fault

Call = Callable[..., Ended]
LOG_IN = "log in with `aws sso login` or `aws configure`; another profile: --profile NAME"
DENIED = (
    "User: arn:aws:iam::123456789012:user/ci is not authorized to perform: states:ListExecutions on resource:"
    " arn:aws:states:us-east-1:123456789012:stateMachine:counterpoise"
)
ANSWERS = [
    (Fault("ExpiredTokenException", "The security token is expired"), f"the AWS credentials have expired; {LOG_IN}"),
    (
        Fault("UnrecognizedClientException", "The security token included in the request is invalid."),
        (
            "AWS does not know the credentials (UnrecognizedClientException: The security token included in the request"
            f" is invalid); {LOG_IN}"
        ),
    ),
    (
        Fault("InvalidSignatureException", "Signature expired: 20261130 is now earlier than 20261201"),
        f"the AWS credentials have expired; {LOG_IN}",
    ),
    (
        Fault("AccessDeniedException", DENIED),
        f"no permission for ListExecutions ({DENIED}); what is missing: `counterpoise doctor`",
    ),
    (
        Fault("ThrottlingException", "Rate exceeded"),
        "AWS is throttling ListExecutions (Rate exceeded); repeat the command in a minute",
    ),
    (
        Fault("InternalFailure", "Try\nagain.", 500),
        "AWS failed in ListExecutions (InternalFailure: Try again); repeat the command in a minute",
    ),
    (
        Fault("StateMachineDoesNotExist", "State Machine Does Not Exist"),
        (
            "AWS refused ListExecutions (StateMachineDoesNotExist: State Machine Does Not Exist);"
            " `counterpoise doctor` checks the set-up"
        ),
    ),
]


@pytest.mark.parametrize(("fault", "line"), ANSWERS, ids=[fault.code for fault, _ in ANSWERS])
@pytest.mark.usefixtures("deployed")
def test_what_aws_answers_is_one_line(call: Call, fake: FakeAws, fault: Fault, line: str) -> None:
    fake.answers["ListExecutions"] = fault
    ended = call(status, None)
    assert (ended.exit_code, ended.stderr) == (3, line + "\n")


def stack(status: str, outputs: list[dict[str, str]]) -> dict[str, object]:
    return {"Stacks": [{"StackName": "counterpoise", "StackStatus": status, "Outputs": outputs}]}


NOT_DEPLOYED = "stack counterpoise is not deployed in us-east-1; deploy it: `make deploy`; another one: --stack NAME, "


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (Fault("ValidationError", "Stack with id counterpoise does not exist"), NOT_DEPLOYED),
        (stack("DELETE_IN_PROGRESS", []), NOT_DEPLOYED),
        (
            stack("ROLLBACK_COMPLETE", []),
            "stack counterpoise is not deployed completely (ROLLBACK_COMPLETE); deploy it",
        ),
        (
            stack("CREATE_COMPLETE", []),
            "stack counterpoise is none of Counterpoise: it has no output StateMachineArn; ",
        ),
    ],
)
def test_a_stack_that_is_not_there_is_named(call: Call, fake: FakeAws, answer: Fault, line: str) -> None:
    fake.answers["DescribeStacks"] = answer
    ended = call(status, None)
    assert ended.exit_code == 3
    assert ended.stderr.startswith(line)
    assert ended.stderr.count("\n") == 1


# What keeps a request from reaching AWS, in a process of its own: all of it comes from the environment

NO_KEYS = {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}
WAYS = [
    (NO_KEYS, f"no AWS credentials (Unable to locate credentials); {LOG_IN}"),
    ({"AWS_REGION": None}, "no AWS region is set; `export AWS_REGION=us-east-1` or add --region us-east-1"),
    (
        {"AWS_PROFILE": "nobody"},
        "The config profile (nobody) could not be found; the profiles there are: `aws configure list-profiles`",
    ),
    (
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"},
        (
            'cannot reach AWS (Could not connect to the endpoint URL: "http://127.0.0.1:1/");'
            " check the network, the region us-east-1 and AWS_ENDPOINT_URL"
        ),
    ),
    (
        {"AWS_ENDPOINT_URL": "nonsense"},
        (
            "AWS_ENDPOINT_URL: Invalid endpoint: nonsense; allowed: an address such as http://127.0.0.1:4566;"
            " correct or unset it"
        ),
    ),
]


@pytest.mark.parametrize(
    ("variables", "line"), WAYS, ids=["no keys", "no region", "no profile", "no way", "no address"]
)
def test_what_stands_in_the_way_is_one_line(
    counterpoise: Callable[..., Ended], variables: dict[str, str | None], line: str
) -> None:
    ended = counterpoise("status", "--json", **variables)
    assert (ended.exit_code, ended.stderr) == (3, line + "\n")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("steps=0", "steps: 0 is out of range; allowed: 1 to 10000000 or null; set it in that range"),
        ("model=resnet-50", "model: 'resnet-50' is not a model of timm; nearest: resnet50; name one of them"),
        (
            "transform=normalise",
            (
                "transform: 'normalise' is not a transform; nearest: normalize; name one of them or your own function"
                " as package.module:function"
            ),
        ),
    ],
)
def test_nobody_waits_for_credentials_to_see_help_or_bad_input(
    counterpoise: Callable[..., Ended], deployed: Deployed, change: str, line: str
) -> None:
    ended = counterpoise("start", "--set", f"training.{change}", **NO_KEYS, AWS_REGION=None)
    assert (ended.exit_code, ended.stderr) == (2, f"training.{line}\n")
    assert deployed.fake.calls == []
