"""Where a dataset in S3 is: bucket, prefix, endpoint and region (tests/embedded/test_s3_source.py reads one)."""

import pickle

import pytest

from training.contract import ContractError
from training.data.s3 import S3Folder

NETWORK = OSError(
    "When resolving region for bucket 'data': AWS Error NETWORK_CONNECTION during HeadBucket operation: "
    "curlCode: 28, Timeout was reached"
)


def resolve(monkeypatch: pytest.MonkeyPatch, answer: str | OSError) -> None:
    """Let AWS answer so when it is asked where a bucket is; these tests cannot ask it."""

    def resolve_s3_region(_bucket: str) -> str:
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr("pyarrow.fs.resolve_s3_region", resolve_s3_region)


@pytest.mark.parametrize(
    ("uri", "bucket", "prefix"),
    [
        ("s3://data", "data", ""),
        ("s3://data/", "data", ""),
        ("s3://data/a/b", "data", "a/b"),
        ("s3://data/a b/ü/", "data", "a b/ü"),
    ],
)
def test_a_uri_is_a_bucket_and_a_prefix(uri: str, bucket: str, prefix: str) -> None:
    folder = S3Folder.at(uri, {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    assert (folder.bucket, folder.prefix) == (bucket, prefix)
    assert str(folder) == f"training.data_uri: {uri.rstrip('/')}"


def test_an_endpoint_of_the_environment_is_used_as_it_is() -> None:
    variables = {"AWS_ENDPOINT_URL": "http://all:1", "AWS_ENDPOINT_URL_S3": "http://s3:1", "AWS_DEFAULT_REGION": "here"}
    assert S3Folder.at("s3://data/x", variables) == S3Folder("data", "x", "here", "http://s3:1")
    del variables["AWS_ENDPOINT_URL_S3"], variables["AWS_DEFAULT_REGION"]
    assert S3Folder.at("s3://data/x", variables) == S3Folder("data", "x", "us-east-1", "http://all:1")


def test_a_bucket_may_be_in_another_region(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, "eu-west-1")
    folder = S3Folder.at("s3://data/x", {"AWS_REGION": "us-east-2"})
    assert folder == S3Folder("data", "x", "eu-west-1", None)
    assert len(pickle.dumps(folder)) < 200


def test_without_a_way_to_other_regions_it_is_the_own_one(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, NETWORK)
    assert S3Folder.at("s3://data/x", {"AWS_REGION": "eu-west-3"}) == S3Folder("data", "x", "eu-west-3", None)
    with pytest.raises(ContractError) as refusal:
        S3Folder.at("s3://data/x", {})
    assert str(refusal.value) == (
        "training.data_uri: s3://data/x: cannot be reached; "
        "give the hosts a way to S3, such as a gateway endpoint of the VPC"
    )


def test_a_bucket_that_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, OSError("Bucket 'data' not found"))
    with pytest.raises(ContractError) as refusal:
        S3Folder.at("s3://data/x", {"AWS_REGION": "eu-west-3"})
    assert str(refusal.value) == "training.data_uri: s3://data/x: the bucket does not exist; correct its name"
