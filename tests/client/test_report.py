"""`counterpoise report`: the report arrives as it is, and its table has the arms side by side."""

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.client.report import report
from tests.client.conftest import Ended
from tests.client.deployed import Deployed, FakeExecution
from tests.client.fake_aws import Fault, Parameters

Call = Callable[..., Ended]
URI = "s3://counterpoise-output/reports/x.json"


def arm(images_per_second: float, price: float | None, **metrics: float) -> dict[str, Any]:
    return {
        "job_name": "counterpoise-x-0123456789-b1",
        "model": "s3://counterpoise-output/jobs/b1/output/model.tar.gz",
        "metrics": {"images_per_second": images_per_second, "step_seconds": 64 / images_per_second, **metrics},
        "billable_seconds": 120,
        "cost_usd": None if price is None else price / 30,
        "price_usd_per_hour": price,
        "logs": "https://example.com/logs",
        "instance_groups": [],
    }


COMPARED = {
    "mode": "compare",
    "report": URI,
    # In the order that an object may come in.
    "arms": {"heterogeneous": arm(38.123456, 2.224), "baseline": arm(20.0, 1.408, loss=6.9)},
    "results": {"speedup": 1.9061728, "price_performance": 1.2067712},
}


RESULTS = b'{"images_per_second": 38.123456}'


def archive() -> bytes:
    """What SageMaker makes of a job's output."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in (("profile.txt", b"x" * 100_000), ("results.json", RESULTS)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def publish(deployed: Deployed, document: dict[str, Any], *, has_results: bool = True) -> None:
    def read(asked: Parameters) -> dict[str, Any]:
        assert asked["Bucket"] == "counterpoise-output"
        if asked["Key"] == "reports/x.json":
            return {"Body": json.dumps(document).encode()}
        if has_results and asked["Key"] == "jobs/b1/output/output.tar.gz":
            return {"Body": archive()}
        raise Fault("NoSuchKey", http_status=404)

    deployed.fake.answers["GetObject"] = read
    deployed.add(FakeExecution("x", end={"status": "SUCCEEDED", "output": json.dumps(document)}))


def test_the_report_is_written_and_shown_as_a_table(call: Call, deployed: Deployed, tmp_path: Path) -> None:
    publish(deployed, COMPARED)
    ended = call(report, "x", tmp_path / "new" / "folder")
    assert ended.exit_code == 0
    folder = tmp_path / "new" / "folder"
    assert json.loads((folder / "report.json").read_text()) == COMPARED
    assert (folder / "baseline" / "results.json").read_bytes() == RESULTS
    rows = {line.split("│")[1].strip(): [cell.strip() for cell in line.split("│")[2:4]]
            for line in ended.stdout.splitlines() if "│" in line}  # fmt: skip
    assert rows["images per second"] == ["20.0", "38.1"]
    assert rows["cost of 1,000 steps"] == ["$1.252", "$1.037"]
    assert rows["loss"] == ["6.9000", "-"]
    assert rows["throughput against baseline"] == ["1.00", "1.91"]
    assert rows["price-performance against baseline"] == ["1.00", "1.21"]
    assert "accelerator use" not in rows, "nobody measured it"
    assert "model (heterogeneous): s3://counterpoise-output/jobs/b1/output/model.tar.gz" in ended.stdout
    files = ("report.json", "heterogeneous/results.json", "baseline/results.json")
    assert ended.stderr.splitlines() == [f"written: {folder / file}" for file in files]


def test_a_job_without_results_costs_only_them(call: Call, deployed: Deployed, tmp_path: Path) -> None:
    publish(deployed, COMPARED, has_results=False)
    ended = call(report, "x", tmp_path)
    assert ended.exit_code == 0
    assert "baseline: no results.json: AWS refused GetObject (NoSuchKey" in ended.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["report.json"]


def test_json_has_every_digit(call: Call, deployed: Deployed, tmp_path: Path) -> None:
    publish(deployed, COMPARED)
    assert json.loads(call(report, "x", tmp_path, as_json=True).stdout) == COMPARED


def test_a_run_of_one_arm_without_a_price_has_a_table_too(call: Call, deployed: Deployed, tmp_path: Path) -> None:
    note = "no price for ml.new.large in us-east-1; prices were read 2026-09-27"
    publish(deployed, {"mode": "train", "report": URI, "arms": {"train": arm(20.0, None) | {"note": note}}})
    ended = call(report, "x", tmp_path)
    assert ended.exit_code == 0
    assert f"note (train): {note}" in ended.stdout
    assert "$" not in ended.stdout


@pytest.mark.parametrize(
    ("execution", "exit_code", "line"),
    [
        (FakeExecution("x", looks_left=9), 2, "execution x still runs; wait for it: `counterpoise wait x`"),
        (
            FakeExecution("x", end={"status": "FAILED", "cause": "spot: problem one\ntags: problem two"}),
            1,
            "execution x failed: spot: problem one\ntags: problem two",
        ),
        (
            FakeExecution("x", end={"status": "SUCCEEDED", "output": "{}"}),
            3,
            "execution x names no report; its output: `counterpoise status x`",
        ),
    ],
)
def test_without_a_report_the_reason_is_told(
    call: Call, deployed: Deployed, tmp_path: Path, execution: FakeExecution, exit_code: int, line: str
) -> None:
    deployed.add(execution)
    ended = call(report, "x", tmp_path)
    assert (ended.exit_code, ended.stdout, ended.stderr) == (exit_code, "", line + "\n")
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_is_gone_leaves_no_file(call: Call, deployed: Deployed, tmp_path: Path) -> None:
    publish(deployed, COMPARED)
    deployed.fake.answers["GetObject"] = Fault("NoSuchKey", http_status=404)
    ended = call(report, "x", tmp_path)
    assert ended.exit_code == 3
    assert ended.stderr.startswith("AWS refused GetObject (NoSuchKey")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(call: Call, deployed: Deployed, tmp_path: Path) -> None:
    publish(deployed, COMPARED)
    (tmp_path / "file").write_text("")
    ended = call(report, "x", tmp_path / "file")
    assert ended.exit_code == 2
    assert ended.stderr == f"--output: cannot write {tmp_path}/file/report.json (File exists); name another folder\n"
