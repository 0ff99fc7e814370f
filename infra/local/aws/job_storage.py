"""What a training job reads from S3 and writes there, with the session of its own role."""

import contextlib
import os
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import ClientError

from infra.local.aws.training_job import TrainingJob


class StorageError(Exception):
    """S3 refused what a job needs; the text is SageMaker's FailureReason."""


class JobStorage:
    """The S3 side of one job."""

    def __init__(self, job: TrainingJob, s3: Any) -> None:
        self._job, self._s3 = job, s3
        self._synced: dict[str, tuple[int, int]] = {}  # checkpoint files by key, with time in ns and size

    def download_channels(self, directory: Path) -> dict[str, Path]:
        """Copies every channel to a folder of its name. Raises StorageError."""
        folders = {}
        for channel in self._job.request.get("InputDataConfig", []):
            name, uri = channel["ChannelName"], channel["DataSource"]["S3DataSource"]["S3Uri"]
            folders[name] = directory / name
            if self._download(uri, folders[name]) == 0:
                raise StorageError(
                    f'ClientError: Data download failed:NoSuchKey (404): No S3 objects found under S3 URL "{uri}" '
                    "given in input data source. Please ensure that the bucket exists in the selected region and "
                    "that objects exist under that S3 prefix."
                )
        return folders

    def restore_checkpoints(self, directory: Path) -> None:
        """Copies what an earlier job left at the checkpoint URI; no folder without one. Raises StorageError."""
        if self._checkpoint_uri is None:
            return
        directory.mkdir(parents=True, exist_ok=True)
        self._download(f"{self._checkpoint_uri.rstrip('/')}/", directory)
        for key, file in self._checkpoint_files(directory):
            self._synced[key] = _version(file)

    def sync_checkpoints(self, directory: Path) -> None:
        """Copies the files to the checkpoint URI that are new or changed since the last call. Raises StorageError."""
        for key, file in self._checkpoint_files(directory):
            with contextlib.suppress(FileNotFoundError):  # the job has replaced it meanwhile: its successor comes next
                version = _version(file)
                if self._synced.get(key) != version:
                    self._upload(file, key, self._checkpoint_uri or "")
                    self._synced[key] = version

    def upload_results(self, model_dir: Path, output_dir: Path) -> None:
        """Packs the model, and what the job wrote to output/data, and uploads both. Raises StorageError."""
        uri = f"{self._job.output_uri}/output"
        self._upload_archive(model_dir, f"{uri}/model.tar.gz")
        if any((output_dir / "data").glob("*")):
            self._upload_archive(output_dir / "data", f"{uri}/output.tar.gz")

    @property
    def _checkpoint_uri(self) -> str | None:
        uri: str | None = self._job.request.get("CheckpointConfig", {}).get("S3Uri")
        return uri

    def _checkpoint_files(self, directory: Path) -> Iterator[tuple[str, Path]]:
        if self._checkpoint_uri is None:
            return
        prefix = urlsplit(self._checkpoint_uri).path.strip("/")
        for folder, _, names in os.walk(directory):
            for name in names:
                file = Path(folder, name)
                yield f"{prefix}/{file.relative_to(directory)}", file

    def _download(self, uri: str, directory: Path) -> int:
        """Number of objects under `uri`, each now a file below `directory`."""
        bucket, prefix = urlsplit(uri).netloc, urlsplit(uri).path.lstrip("/")
        directory.mkdir(parents=True, exist_ok=True)
        num_objects = 0
        try:
            for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
                for entry in page.get("Contents", []):
                    num_objects += self._download_object(bucket, entry["Key"], prefix, directory)
        except ClientError as error:
            raise StorageError(f"ClientError: Data download failed:{_reason(error, uri)}") from error
        return num_objects

    def _download_object(self, bucket: str, key: str, prefix: str, directory: Path) -> int:
        if key.endswith("/"):
            return 0  # a folder as the console makes it
        file = (directory / _local_name(key, prefix)).resolve()
        if not file.is_relative_to(directory.resolve()):
            raise StorageError(f"ClientError: Data download failed: the key {key} leads out of its channel")
        file.parent.mkdir(parents=True, exist_ok=True)
        self._s3.download_file(bucket, key, str(file))
        return 1

    def _upload_archive(self, directory: Path, uri: str) -> None:
        with tempfile.NamedTemporaryFile(suffix=".tar.gz") as archive:
            with tarfile.open(archive.name, "w:gz", compresslevel=1) as tar:  # weights hardly get smaller
                for entry in sorted(directory.iterdir()) if directory.is_dir() else []:
                    tar.add(entry, entry.name)
            self._upload(Path(archive.name), urlsplit(uri).path.lstrip("/"), uri)

    def _upload(self, file: Path, key: str, uri: str) -> None:
        try:
            self._s3.upload_file(str(file), urlsplit(uri).netloc, key, ExtraArgs=self._encryption())
        except S3UploadFailedError as error:
            raise StorageError(f"ClientError: Artifact upload failed:{error}") from error

    def _encryption(self) -> Mapping[str, str]:
        key = self._job.request["OutputDataConfig"].get("KmsKeyId")
        return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key} if key else {}


def _local_name(key: str, prefix: str) -> str:
    """Where an object goes: relative to the prefix as a folder, else to the folder that the prefix is in."""
    folder = f"{prefix.rstrip('/')}/" if prefix else ""
    return key.removeprefix(folder) if key.startswith(folder) else key[prefix.rfind("/") + 1 :]


def _version(file: Path) -> tuple[int, int]:
    state = file.stat()
    return state.st_mtime_ns, state.st_size


def _reason(error: ClientError, uri: str) -> str:
    code, status = error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
    return f"{code} ({status}): {error.response['Error'].get('Message', '')} ({uri})"
