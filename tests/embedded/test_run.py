"""`make run` on an embedded AWS whose jobs are acted: deploy, execute, hold all figures against each other, compare."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from infra.local.aws import __main__ as command
from infra.local.aws.run import Run, RunFailed, alone_in, check_metrics
from tests.embedded.conftest import FAKE_RUNNER
from tests.embedded.scenarios import Scenarios

HOST = {
    "row_share": 1.0,
    "cpu_cores": 1.0,
    "cpu_share_used": 0.9,
    "accelerator_share": None,
    "peak_memory_bytes": 10**9,
}


def job(images_per_second: float, **balance: float) -> dict[str, Any]:
    """What the job of one arm prints and leaves."""
    headline = {
        "images_per_second": images_per_second,
        "step_seconds": 64 / images_per_second,
        "data_wait_share": 0.5,
        "steps": 12.0,
        **balance,
    }
    results = {
        "headline": headline,
        "cpu_seconds_per_row": 0.04,
        "config": {"batch_size": 64},
        "hosts": [{**HOST, "name": "algo-1", "group": "gpu", "rows": 64}],
        "versions": {"python": "3.11"},
        "first_step_ended_at": time.time(),
        "work_ended_at": time.time(),
    }
    line = " ".join(f"{name}={value!r}" for name, value in headline.items())
    return {
        "lines": [f"counterpoise: event=result {line}"],
        "output": {"data/results.json": json.dumps(results), "../limits.txt": "acted"},
    }


@pytest.fixture
def run(scenario_dir: Path, tmp_path: Path) -> Run:
    runner = [sys.executable, "-S", str(FAKE_RUNNER), "--scenarios", str(scenario_dir)]
    return Run(tmp_path / "latest", steps=12, runner_command=runner)


def test_a_run_deploys_executes_and_compares(run: Run, scenarios: Scenarios, tmp_path: Path) -> None:
    balance = {
        "balance_all_hosts": 38.0,
        "balance_cpu_hosts": 30.0,
        "balance_all_hosts_cores": 1.5,
        "balance_cpu_hosts_cores": 1.2,
    }
    scenarios.set("counterpoise-run-", job(10.0), job(40.0, **balance))
    comparison = run.run()
    assert comparison.speedup == 4.0
    assert comparison.price_performance == 4.0 * 1.408 / (1.408 + 0.816)
    results = json.loads((tmp_path / "latest" / "results.json").read_text())
    assert [arm["name"] for arm in results["arms"]] == ["baseline", "heterogeneous"]
    assert results["balance_efficiency"] == pytest.approx(38.0 / (30.0 + 10.0))
    assert results["balance_at_equal_speed"] == pytest.approx(1.5 / (1.2 + 10.0 * 0.04))
    assert results["conditions"]["limits"] == "acted"
    assert (tmp_path / "latest" / "results.md").read_text().startswith("| |")
    assert (tmp_path / "latest" / "heterogeneous" / "model.safetensors").exists()


def test_a_job_that_fails_ends_the_run_with_its_reason(
    run: Run, scenarios: Scenarios, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    scenarios.set("counterpoise-run-", {"status": "Failed", "failure": "ValueError: boom"})
    with pytest.raises(RunFailed, match="why is said above"):
        run.run()
    assert "ValueError: boom" in capfd.readouterr().err
    assert not (tmp_path / "latest" / "results.json").exists()


def test_a_second_run_in_one_folder_is_refused_and_leaves_the_first_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs" / "latest").mkdir(parents=True)
    of_the_first = tmp_path / "runs" / "latest" / "cdk.log"
    of_the_first.touch()
    monkeypatch.chdir(tmp_path)
    with alone_in(Path("runs")):
        assert command.main(["run"]) == 1
    assert capsys.readouterr().err == "runs: another `make run` is at work here; wait until it has ended\n"
    assert of_the_first.exists()
    with alone_in(Path("runs")):
        pass


def test_figures_that_differ_are_no_result() -> None:
    described = [{"MetricName": "loss", "Value": 6.9}]
    check_metrics("baseline", {"loss": 6.9}, described, {"loss": 6.9})
    with pytest.raises(RunFailed, match="the execution's output"):
        check_metrics("baseline", {"loss": 6.8}, described, {"loss": 6.9})
    with pytest.raises(RunFailed, match=r"loss is 6\.9 in the job, 6\.8 in its results\.json"):
        check_metrics("baseline", {"loss": 6.9}, described, {"loss": 6.8})


def test_a_single_step_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["run", "--steps", "1"]) == 2
    assert capsys.readouterr().err == "--steps: 1 gives no rate; allowed: at least 2\n"


def test_a_stand_in_needs_an_embedded_aws(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    assert command.main(["stand-in-image"]) == 1
    assert capsys.readouterr().err.startswith("AWS_ENDPOINT_URL is not set; paste the lines")
