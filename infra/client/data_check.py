"""Whether the input data of a run is there and the training role may read it, as far as AWS tells the caller."""

from collections.abc import Iterator

from infra.client.aws import Aws
from infra.client.errors import AwsError, BadInput
from infra.client.screen import Screen
from infra.client.stack import Stack
from training.contract import RunConfig


def check_data(aws: Aws, stack: Stack, config: RunConfig, screen: Screen) -> None:
    """Refuse data that cannot be read; what the caller may not find out is noted and left to the job.

    Raises:
        BadInput: one line for each setting that names such data, with its URI.
    """
    uris = {f"channels[{index}].s3_uri": channel.s3_uri for index, channel in enumerate(config.channels)}
    if config.training.data_uri:
        uris["training.data_uri"] = config.training.data_uri
    problems = []
    for setting, uri in uris.items():
        field = f"{setting}: {uri}"
        try:
            problems += [f"{field} {problem}" for problem in _problems(aws, stack, uri)]
        except AwsError as error:
            screen.note(f"{field} was not checked: {error}")
    if problems:
        raise BadInput(*problems)


def _problems(aws: Aws, stack: Stack, uri: str) -> Iterator[str]:
    """The first thing that is wrong with the data at a URI."""
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    try:
        bucket_region = aws.call("s3", "HeadBucket", Bucket=bucket).get("BucketRegion", aws.region)
    except AwsError as error:
        if error.code != "404":
            raise
        yield f"names a bucket that does not exist; the stack's own is s3://{stack.bucket_name}/data/"
        return
    if bucket_region != aws.region:
        yield f"is in {bucket_region}, the job in {aws.region}; copy it: `aws s3 sync {uri} s3://{stack.bucket_name}/data/`"
        return
    objects = aws.call("s3", "ListObjectsV2", Bucket=bucket, Prefix=prefix, MaxKeys=1).get("Contents", [])
    if not objects:
        yield f"holds no object; list the bucket: `aws s3 ls s3://{bucket}/`"
    elif not _role_may_read(aws, stack, bucket, objects[0]["Key"]):
        allow = f"""-c counterpoise:input_s3_uris='["{uri}"]'"""
        yield f"is not readable by the role {stack.training_role_arn}; deploy with {allow}"


def _role_may_read(aws: Aws, stack: Stack, bucket: str, key: str) -> bool:
    partition = stack.training_role_arn.split(":")[1]
    answer = aws.call(
        "iam",
        "SimulatePrincipalPolicy",
        PolicySourceArn=stack.training_role_arn,
        ActionNames=["s3:GetObject"],
        ResourceArns=[f"arn:{partition}:s3:::{bucket}/{key}"],
    )
    if all(result["EvalDecision"] == "allowed" for result in answer["EvaluationResults"]):
        return True
    # IAM simulates no bucket policies for a role; one that names the role may let it in.
    try:
        return stack.training_role_arn in aws.call("s3", "GetBucketPolicy", Bucket=bucket)["Policy"]
    except AwsError as error:
        if error.code == "NoSuchBucketPolicy":
            return False
        raise
