"""What an execution left in S3 for people: its report, and the results file that each of its jobs packed."""

import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from infra.client.aws import Aws
from infra.client.errors import AwsError, BadInput
from infra.client.screen import Screen

REPORT_FILE = "report.json"
RESULTS_FILE = "results.json"
MODEL_ARCHIVE, OUTPUT_ARCHIVE = "model.tar.gz", "output.tar.gz"
"""SageMaker packs a job's model and its output under these names, side by side."""


def read_report(aws: Aws, uri: str) -> bytes:
    """The report of an execution, as it is in S3; raises AwsError."""
    with aws.open_object(uri) as body:
        return body.read()


def read_results(aws: Aws, arm: Mapping[str, Any]) -> bytes:
    """The results file that an arm's job wrote.

    Raises:
        AwsError: there is none, or it may not be read.
    """
    uri = str(arm["model"]).removesuffix(MODEL_ARCHIVE) + OUTPUT_ARCHIVE
    with aws.open_object(uri) as body, tarfile.open(fileobj=body, mode="r|gz") as archive:
        for member in archive:
            file = archive.extractfile(member) if PurePosixPath(member.name).name == RESULTS_FILE else None
            if file:
                return file.read()
    raise AwsError(f"{uri} has no {RESULTS_FILE}")


def write_files(
    aws: Aws, screen: Screen, report: bytes, arms: Mapping[str, Mapping[str, Any]], folder: Path
) -> list[Path]:
    """Write the report, and below the name of each arm its results; returns the files. Raises BadInput."""
    contents = {folder / REPORT_FILE: report}
    for name, arm in arms.items():
        try:
            contents[folder / name / RESULTS_FILE] = read_results(aws, arm)
        except AwsError as error:
            screen.note(f"{name}: no {RESULTS_FILE}: {error}")
    for file, content in contents.items():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        except OSError as error:
            raise BadInput(f"--output: cannot write {file} ({error.strerror}); name another folder") from error
    return list(contents)
