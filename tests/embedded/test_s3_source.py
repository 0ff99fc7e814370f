"""Datasets straight from S3: the same rows as from a folder, and one line about what is wrong."""

import io
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from PIL import Image

from infra.local.aws.server import EmbeddedAws
from infra.local.aws.settings import PROJECT_ROOT
from tests.embedded.clients import Clients
from tests.embedded.conftest import FAKE_RUNNER
from training.contract import ContractError, TrainingConfig
from training.data.sources import Source, UnreadableRow, open_source

BUCKET = "counterpoise-datasets"
SIZE = 16
FOLDER_LAYOUT = "expected one folder per class with images inside, such as cat/001.jpg and dog/001.jpg"


def png(seed: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (20, 24, 3), np.uint8)).save(content, "PNG")
    return content.getvalue()


BLOBS = [png(seed) for seed in range(40)]
FOLDER = {
    **{f"pets/cat/{number:02}.png": BLOBS[number] for number in range(20)},
    **{f"pets/dog/d ö/{number:02}.PNG": BLOBS[number] for number in range(20, 40)},
    "pets/cat/bad.jpg": b"no image",
    "pets/cat/notes.txt": b"no image either",
    "pets/.cache/x.png": BLOBS[0],
    "pets/dog/": b"",
    "pets-of-others/cow/1.png": BLOBS[0],
}


def parquet_file(first: int, last: int) -> bytes:
    images = [{"bytes": blob, "path": None} for blob in BLOBS[first:last]]
    content = io.BytesIO()
    table = pa.table(
        {"image": images, "label": ["even" if number % 2 == 0 else "odd" for number in range(first, last)]}
    )
    pq.write_table(table, content, row_group_size=4)
    return content.getvalue()


@pytest.fixture(scope="module")
def bucket(clients: Clients) -> str:
    clients.s3.create_bucket(Bucket=BUCKET)
    objects = FOLDER | {
        "tables/a.parquet": parquet_file(0, 18),
        "tables/b.parquet": parquet_file(18, 40),
        "tables/_metadata": b"no Parquet",
        "hollow/cat/1.png": BLOBS[0],
        "hollow/dog/readme.txt": b"",
    }
    for key, content in objects.items():
        clients.s3.put_object(Bucket=BUCKET, Key=key, Body=content)
    return BUCKET


@pytest.fixture(autouse=True)
def as_on_a_host(embedded_aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment in which pyarrow takes the embedded AWS for AWS."""
    for name, value in embedded_aws.environment.items():
        monkeypatch.setenv(name, value)


def from_s3(uri: str, dataset: str = "image_folder") -> Source:
    config = TrainingConfig.from_hyperparameters({"dataset": dataset, "data_uri": uri, "image_size": str(SIZE)})
    return open_source(config, Path("/nowhere"))


def from_disk(folder: Path, dataset: str, objects: dict[str, bytes]) -> Source:
    for key, content in objects.items():
        path = folder / "training" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        if not key.endswith("/"):
            path.write_bytes(content)
    config = TrainingConfig.from_hyperparameters({"dataset": dataset, "image_size": str(SIZE)})
    return open_source(config, folder)


def rows(source: Source) -> list[tuple[str, int, bytes]]:
    found = []
    for row in range(source.num_rows):
        try:
            image = source.read(row).tobytes()
        except UnreadableRow as problem:
            image = problem.reason.encode()
        found.append((source.describe(row), source.label(row), image))
    return found


@pytest.mark.parametrize("is_expected", [True, False])
def test_a_folder_has_the_rows_that_it_has_on_disk(bucket: str, tmp_path: Path, is_expected: bool) -> None:
    local = from_disk(tmp_path, "image_folder", {key[5:]: FOLDER[key] for key in FOLDER if key.startswith("pets/")})
    remote = from_s3(f"s3://{bucket}/pets/")
    assert remote.class_names == local.class_names == ("cat", "dog")
    if is_expected:
        remote.expect(np.arange(remote.num_rows))
    assert rows(remote) == rows(local)


@pytest.mark.parametrize("is_expected", [True, False])
def test_parquet_has_the_rows_that_it_has_on_disk(bucket: str, tmp_path: Path, is_expected: bool) -> None:
    files = {"a.parquet": parquet_file(0, 18), "b.parquet": parquet_file(18, 40)}
    local = from_disk(tmp_path, "parquet", files)
    remote = from_s3(f"s3://{bucket}/tables", "parquet")
    assert remote.class_names == local.class_names == ("even", "odd")
    assert np.array_equal(remote.read_groups(), local.read_groups())  # type: ignore[arg-type]
    if is_expected:
        remote.expect(np.arange(remote.num_rows))
    assert rows(remote) == rows(local)


def test_a_dataset_may_be_one_object(bucket: str) -> None:
    source = from_s3(f"s3://{bucket}/tables/b.parquet", "parquet")
    assert (source.num_rows, source.describe(21), source.read(21).shape) == (22, "b.parquet row 21", (SIZE, SIZE, 3))


def test_another_process_reads_what_this_one_has_listed(bucket: str, tmp_path: Path) -> None:
    source = from_s3(f"s3://{bucket}/pets")
    source.expect(np.arange(4))
    expected = source.read(1)
    text = pickle.dumps(source)
    assert len(text) < 2500
    (tmp_path / "source").write_bytes(text)
    code = "import pickle, sys; print(pickle.loads(open(sys.argv[1], 'rb').read()).read(1).sum())"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "source")],
        cwd=PROJECT_ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.stdout, done.returncode) == (f"{expected.sum()}\n", 0), done.stderr


def test_an_object_that_is_gone_takes_its_row_and_no_other(bucket: str, clients: Clients) -> None:
    for name in ("a", "b"):
        clients.s3.put_object(Bucket=bucket, Key=f"fading/cat/{name}.png", Body=BLOBS[0])
    source = from_s3(f"s3://{bucket}/fading")
    clients.s3.delete_object(Bucket=bucket, Key="fading/cat/a.png")
    with pytest.raises(UnreadableRow, match=r"^cat/a\.png: .*does not exist"):
        source.read(0)
    assert source.read(1).shape == (SIZE, SIZE, 3)


@pytest.mark.parametrize(
    ("uri", "dataset", "problem"),
    [
        ("s3://no-such-bucket-here/x", "image_folder", "the bucket does not exist; correct its name"),
        (f"s3://{BUCKET}/nothing", "image_folder", f"has no files; {FOLDER_LAYOUT}"),
        (f"s3://{BUCKET}/pets/cat", "image_folder", f"has images, but no folders; {FOLDER_LAYOUT}"),
        (f"s3://{BUCKET}/tables/a.parquet", "image_folder", f"is not a folder; {FOLDER_LAYOUT}"),
        (
            f"s3://{BUCKET}/hollow",
            "image_folder",
            "class folder 'dog' has no images (.jpg, .jpeg, .png); add some or remove it",
        ),
        (f"s3://{BUCKET}/nothing", "parquet", "has no files; expected files that end in .parquet"),
        (f"s3://{BUCKET}/pets", "parquet", "has no Parquet files; expected files that end in .parquet"),
    ],
)
@pytest.mark.usefixtures("bucket")
def test_what_is_no_dataset_is_refused_in_one_line(uri: str, dataset: str, problem: str) -> None:
    with pytest.raises(ContractError) as refusal:
        from_s3(uri, dataset)
    assert str(refusal.value) == f"training.data_uri: {uri}: {problem}"


def test_an_endpoint_that_does_not_answer(embedded_aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    assert embedded_aws.endpoint.startswith("http://127.0.0.1:")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")  # nobody listens on it
    with pytest.raises(ContractError, match=r"^training\.data_uri: s3://x-y-z/data: cannot be reached; "):
        from_s3("s3://x-y-z/data")


@pytest.fixture(scope="module")
def strict_aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    """An AWS that asks for rights, over TLS."""
    work_dir = tmp_path_factory.mktemp("strict-aws")
    with EmbeddedAws(
        runner_command=[sys.executable, "-S", str(FAKE_RUNNER)], is_iam_enforced=True, work_dir=work_dir
    ) as aws:
        yield aws


def test_rights_are_needed(strict_aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = Clients.of(strict_aws)
    clients.s3.create_bucket(Bucket=BUCKET)
    clients.s3.put_object(Bucket=BUCKET, Key="pets/cat/1.png", Body=BLOBS[0])
    clients.iam.create_user(UserName="nobody")
    key = clients.iam.create_access_key(UserName="nobody")["AccessKey"]
    for name, value in strict_aws.environment.items():
        monkeypatch.setenv(name, value)
    assert from_s3(f"s3://{BUCKET}/pets").read(0).shape == (SIZE, SIZE, 3)
    # Another process: a connection keeps the credentials that it was made with.
    code = "import sys, tests.embedded.test_s3_source as t; t.from_s3(sys.argv[1])"
    for name, value in (("AccessKeyId", "AWS_ACCESS_KEY_ID"), ("SecretAccessKey", "AWS_SECRET_ACCESS_KEY")):
        monkeypatch.setenv(value, key[name])
    done = subprocess.run(
        [sys.executable, "-c", code, f"s3://{BUCKET}/pets"],
        cwd=PROJECT_ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stderr.splitlines()[-1].endswith(
        f"training.data_uri: s3://{BUCKET}/pets: access is denied; "
        "let the job's role list and read it, by the deploy setting input_s3_uris"
    )
