"""Errors of AWS and of the way there, each as one line with the command that helps."""

from typing import Any

from infra.client.errors import AwsError

EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
REFUSED_KEYS = {
    "AuthFailure",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403"}
THROTTLED = {
    "RequestLimitExceeded",
    "SlowDown",
    "Throttling",
    "ThrottledException",
    "ThrottlingException",
    "TooManyRequestsException",
}
WRONG_CLOCK = {"RequestTimeTooSkewed", "RequestInTheFuture"}

_LOG_IN = "log in with `aws sso login` or `aws configure`; another profile: --profile NAME"
_DOCTOR = "`counterpoise doctor` checks the set-up"
_MAX_MESSAGE_CHARACTERS = 300


def translated(error: Exception, operation: str, region: str) -> AwsError:
    """An exception of botocore as one line; `operation` is what was called, `region` where."""
    from botocore.exceptions import ClientError

    if isinstance(error, ClientError):
        return _answered(error.response, operation)
    return _unanswered(error, operation, region)


def no_region() -> AwsError:
    """The error for an AWS command without a region."""
    return AwsError("no AWS region is set; `export AWS_REGION=us-east-1` or add --region us-east-1", "NoRegion")


def bad_endpoint(reason: str) -> AwsError:
    """The error for an AWS_ENDPOINT_URL that is no address; `reason` is botocore's."""
    return AwsError(
        f"AWS_ENDPOINT_URL: {reason}; allowed: an address such as http://127.0.0.1:4566; correct or unset it"
    )


def _answered(response: Any, operation: str) -> AwsError:
    """What AWS answered, by its error code."""
    code, text = str(response["Error"].get("Code", "")), _one_line(str(response["Error"].get("Message", "")))
    is_broken = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500
    if code in EXPIRED or (code in REFUSED_KEYS and "expired" in text):
        line = f"the AWS credentials have expired; {_LOG_IN}"
    elif code in REFUSED_KEYS:
        line = f"AWS does not know the credentials ({code}: {text}); {_LOG_IN}"
    elif code in WRONG_CLOCK:
        line = f"this machine's clock is wrong for AWS ({text}); set it: `sudo timedatectl set-ntp true`"
    elif code in DENIED:
        line = f"no permission for {operation} ({text}); what is missing: `counterpoise doctor`"
    elif code in THROTTLED:
        line = f"AWS is throttling {operation} ({text}); repeat the command in a minute"
    elif is_broken:
        line = f"AWS failed in {operation} ({code}: {text}); repeat the command in a minute"
    else:
        line = f"AWS refused {operation} ({code}: {text}); {_DOCTOR}"
    return AwsError(line, code, is_transient=is_broken or code in THROTTLED)


def _unanswered(error: Exception, operation: str, region: str) -> AwsError:
    """What went wrong before AWS could answer, by botocore's exception."""
    from botocore import exceptions as boto

    code, text = type(error).__name__, _one_line(str(error))
    is_network = isinstance(error, boto.HTTPClientError | boto.ConnectionError)
    if isinstance(error, boto.ProfileNotFound):
        line = f"{text}; the profiles there are: `aws configure list-profiles`"
    elif isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError):
        line = f"no AWS credentials ({text}); {_LOG_IN}"
    elif isinstance(error, boto.CredentialRetrievalError | boto.TokenRetrievalError | boto.SSOError | boto.LoginError):
        line = f"the AWS credentials are not to be had ({text}); {_LOG_IN}"
    elif isinstance(error, boto.NoRegionError | boto.InvalidRegionError):
        line = f"{text}; name a region: --region us-east-1"
    elif is_network:
        line = f"cannot reach AWS ({text}); check the network, the region {region} and AWS_ENDPOINT_URL"
    else:
        line = f"{operation or 'AWS'}: {text}; {_DOCTOR}"
    return AwsError(line, code, is_transient=is_network)


def _one_line(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= _MAX_MESSAGE_CHARACTERS else line[: _MAX_MESSAGE_CHARACTERS - 3] + "..."
