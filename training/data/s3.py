"""A dataset's folder in S3, read with the credentials and the region of the host."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from training.contract import ContractError
from training.data.decoding import one_line
from training.data.storage import MAX_FILE_BYTES, Listing

if TYPE_CHECKING:
    from pyarrow import NativeFile  # type: ignore[import-untyped]
    from pyarrow.fs import FileInfo, S3FileSystem  # type: ignore[import-untyped]

_SCHEME = "s3://"
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_DEFAULT_REGION = "us-east-1"
_CONNECT_SECONDS, _SILENCE_SECONDS, _MAX_ATTEMPTS = 5, 10, 4
"""A request is given up after 4 tries of at most 10 s of silence each, with pauses in between about 45 s: longer than
S3 asks anyone to slow down, far shorter than the stall that ends a run (stall_timeout_seconds)."""
_ADVICE = {
    "NO_SUCH_BUCKET": "the bucket does not exist; correct its name",
    "ACCESS_DENIED": "access is denied; let the job's role list and read it, by the deploy setting input_s3_uris",
    "INVALID_ACCESS_KEY_ID": "the credentials are not valid; renew them",
    "SIGNATURE_DOES_NOT_MATCH": "the credentials are not valid; renew them",
    "EXPIRED_TOKEN": "the credentials have expired; renew them",
    "NETWORK_CONNECTION": "cannot be reached; give the hosts a way to S3, such as a gateway endpoint of the VPC",
}


@dataclass(frozen=True)
class S3Folder:
    """The objects below `bucket`/`prefix`, or the one object of that name."""

    bucket: str
    prefix: str
    region: str
    endpoint: str | None

    @classmethod
    def at(cls, uri: str, environment: Mapping[str, str] = os.environ) -> S3Folder:
        """Return the folder at s3://bucket/prefix, its region found out; raises ContractError in one line.

        AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL name an S3 other than AWS's own.
        """
        bucket, _, prefix = uri.removeprefix(_SCHEME).partition("/")
        endpoint = next((environment[name] for name in _ENDPOINT_VARIABLES if environment.get(name)), None)
        own_region = next((environment[name] for name in _REGION_VARIABLES if environment.get(name)), None)
        folder = cls(bucket, prefix.strip("/"), own_region or _DEFAULT_REGION, endpoint)
        return folder if endpoint else folder._in_region_of_bucket(is_guess_good=own_region is not None)

    @property
    def is_remote(self) -> bool:
        """True: an object takes tens of milliseconds, nearly all of it waiting."""
        return True

    def __str__(self) -> str:
        return f"training.data_uri: {_SCHEME}{self._root}"

    def list_files(self, endings: tuple[bytes, ...], hidden: tuple[bytes, ...], layout: str) -> Listing:
        """See training.data.storage.Storage."""
        from pyarrow.fs import FileType

        try:
            infos = self._infos()
        except FileNotFoundError as error:
            raise ContractError([f"{self}: has no files; {layout}"]) from error
        except OSError as error:
            raise self._refusal(error) from error
        if not infos:
            return Listing([], [b""])
        folders: set[bytes] = set()
        found: list[bytes] = []
        for info in infos:
            path = info.path.encode()[len(self._root.encode()) + 1 :]
            top, *rest = path.split(b"/")
            if any(part.startswith(hidden) for part in (top, *rest)):
                continue
            if rest or info.type == FileType.Directory:
                folders.add(top)
            if info.type == FileType.File and path.lower().endswith(endings):
                found.append(path)
        return Listing(sorted(folders), sorted(found))

    def read(self, path: bytes) -> bytes:
        """See training.data.storage.Storage; raises ValueError for an object above MAX_FILE_BYTES."""
        with self.open(path) as file:
            if file.size() > MAX_FILE_BYTES:
                raise ValueError(f"larger than {MAX_FILE_BYTES >> 20} MiB")
            content: bytes = file.read()
            return content

    def open(self, path: bytes) -> NativeFile:
        """See training.data.storage.Storage."""
        name = f"{self._root}/{path.decode()}" if path else self._root
        return self._files.open_input_file(name)

    def _infos(self) -> list[FileInfo]:
        """Return what is below the prefix; nothing where it is the key of an object."""
        from pyarrow.fs import FileSelector, FileType

        try:
            infos: list[FileInfo] = self._files.get_file_info(FileSelector(self._root, recursive=True))
        except FileNotFoundError:
            if self._files.get_file_info(self._root).type != FileType.File:
                raise
            return []
        return infos

    @property
    def _files(self) -> S3FileSystem:
        return _connect(self.region, self.endpoint)

    @property
    def _root(self) -> str:
        return f"{self.bucket}/{self.prefix}" if self.prefix else self.bucket

    def _in_region_of_bucket(self, *, is_guess_good: bool) -> S3Folder:
        from pyarrow.fs import resolve_s3_region

        try:
            return S3Folder(self.bucket, self.prefix, resolve_s3_region(self.bucket), None)
        except OSError as error:
            # A VPC whose only way to S3 is a gateway endpoint does not reach other regions, so it is this one.
            if is_guess_good and _aws_code(error) == "NETWORK_CONNECTION":
                return self
            raise self._refusal(error) from error

    def _refusal(self, error: OSError) -> ContractError:
        reason = _ADVICE.get(_aws_code(error)) or f"cannot be listed ({one_line(error)})"
        return ContractError([f"{self}: {reason}"])


def _aws_code(error: OSError) -> str:
    text = str(error)
    if re.search(r"^Bucket '.*' not found", text):  # what looking for the region says
        return "NO_SUCH_BUCKET"
    found = re.search(r"AWS Error ([A-Z_]+)", text)
    return found[1] if found else ""


@lru_cache(maxsize=4)
def _connect(region: str, endpoint: str | None) -> S3FileSystem:
    """Return this process's connection; the credentials are those that AWS's programs find by themselves."""
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    return S3FileSystem(
        region=region,
        endpoint_override=endpoint,
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_SILENCE_SECONDS,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=_MAX_ATTEMPTS),
        tls_ca_file_path=os.environ.get("AWS_CA_BUNDLE"),
    )
