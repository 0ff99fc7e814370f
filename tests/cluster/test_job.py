"""Whole jobs on two hosts with the real bootstrap and a real Ray cluster: what a job leaves when it ends well."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import local_runner

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SHARE_AT = {"start": {"gpu": 1.0, "cpu": 2.0}, "first_step": {"gpu": 0.4, "cpu": 1.2}}
SMALL = {
    "model": "test_vit",
    "model_arguments": {"patch_size": 32, "depth": 1, "embed_dim": 32, "num_heads": 1},
    "image_size": 224,
    "transform": "gaussian_blur_stack",
    "batch_size": 16,
    "steps": 20,
    "num_records": 100,
    "report_every_steps": 4,
    "join_timeout_seconds": 120,
}

LOAD_IN_A_FRESH_PROCESS = """
import json, sys
from pathlib import Path
import safetensors.torch, timm, torch
folder = Path(sys.argv[1])
description = json.loads((folder / "model.json").read_text())
model = timm.create_model(description["name"], **description["create_arguments"])
missing = model.load_state_dict(safetensors.torch.load_file(folder / "model.safetensors"))
size = description["image_size"]
print(json.dumps(list(model.eval()(torch.zeros(1, 3, size, size)).shape)))
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """The outcome, the output and the results of one job that ended well."""
    outcome, output = local_runner.run(
        tmp_path_factory.mktemp("job"),
        training={**SMALL, "balance_rounds": 1},
        cpu_share_at=SHARE_AT,
    )
    results_file = Path(outcome["output_dir"]) / "data" / "results.json"
    assert results_file.exists(), output
    return outcome, output, json.loads(results_file.read_text())


def test_every_host_ends_with_0_and_leaves_no_process(finished: tuple[dict[str, Any], str, dict[str, Any]]) -> None:
    outcome, output, _ = finished
    assert outcome["status"] == "Completed", output
    assert outcome["exit_codes"] == {"algo-1": 0, "algo-2": 0}
    assert outcome["failure"] is None
    assert set(outcome["left_processes"].values()) <= {0}


def test_makes_exactly_the_steps(finished: tuple[dict[str, Any], str, dict[str, Any]]) -> None:
    _, _, results = finished
    assert results["steps_per_rank"] == [20]
    assert results["rows"] == 20 * 16


def test_the_cpu_host_preprocesses_most_rows(finished: tuple[dict[str, Any], str, dict[str, Any]]) -> None:
    """Case C13, here with three quarters of the CPU on the cpu host."""
    _, _, results = finished
    rows = {host["group"]: host["rows"] for host in results["hosts"]}
    # The first batch is left out, so 19 batches were counted, each row once.
    assert rows["gpu"] + rows["cpu"] == 19 * 16
    assert rows["cpu"] >= 0.5 * 19 * 16


def test_measures_what_the_cpu_hosts_reach_alone_after_the_last_step(
    finished: tuple[dict[str, Any], str, dict[str, Any]],
) -> None:
    outcome, _, results = finished
    assert set(results["balance"]) == {"cpu_hosts", "cpu_hosts_cores", "all_hosts", "all_hosts_cores"}
    assert all(len(values) == 1 and values[0] > 0 for values in results["balance"].values())
    names = [event["name"] for event in outcome["events"]]
    assert names.count("balance") == 2
    assert names.index("last_step") > names.index("balance")


def test_measures_waiting_apart_from_computing(finished: tuple[dict[str, Any], str, dict[str, Any]]) -> None:
    _, _, results = finished
    assert results["step_seconds"] == pytest.approx(results["data_wait_seconds"] + results["compute_seconds"])
    assert 0 < results["data_wait_share"] < 1
    assert results["first_batch_wait_seconds"] > 0


def test_samples_every_host(finished: tuple[dict[str, Any], str, dict[str, Any]]) -> None:
    _, _, results = finished
    assert [(host["name"], host["group"]) for host in results["hosts"]] == [("algo-1", "gpu"), ("algo-2", "cpu")]
    for host in results["hosts"]:
        assert host["peak_memory_bytes"] > 50e6  # Ray alone takes more
    assert sum(host["peak_memory_bytes"] for host in results["hosts"]) < 8e9


def test_saves_a_model_that_plain_timm_loads(finished: tuple[dict[str, Any], str, dict[str, Any]]) -> None:
    outcome, _, _ = finished
    command = [sys.executable, "-c", LOAD_IN_A_FRESH_PROCESS, outcome["model_dir"]]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(loaded.stdout) == [1, 1000]


def test_reports_loss_and_times_as_it_goes(finished: tuple[dict[str, Any], str, dict[str, Any]]) -> None:
    outcome, _, _ = finished
    steps = [event["fields"] for event in outcome["events"] if event["name"] == "step"]
    assert [fields["step"] for fields in steps] == ["4", "8", "12", "16", "20"]
    for fields in steps:
        assert float(fields["loss"]) > 0
        assert float(fields["step_seconds"]) > 0


def test_no_log_shows_the_token(finished: tuple[dict[str, Any], str, dict[str, Any]]) -> None:
    outcome, output, _ = finished
    job_dir = Path(outcome["model_dir"]).parents[2]
    logs = output + "".join(path.read_text(errors="replace") for path in job_dir.rglob("*.log") if path.is_file())
    # Any word of 64 hexadecimal characters would be one; Ray's ids are shorter.
    words = logs.replace("=", " ").split()
    assert not [word for word in words if len(word) == 64 and set(word) <= set("0123456789abcdef")]
    for line in logs.splitlines():
        assert "RAY_AUTH_TOKEN=" not in line


def test_a_single_host_trains_alone_even_if_its_gpu_host_only_trains(tmp_path: Path) -> None:
    """Cases C02 and C12: one host, and the setting that keeps data work off hosts with accelerators."""
    training = {**SMALL, "steps": 2, "preprocess_on": "cpu_hosts"}
    outcome, output = local_runner.run(tmp_path, training=training, groups=[["gpu", "ml.g5.xlarge", 1]])
    assert outcome["status"] == "Completed", output
    assert outcome["exit_codes"] == {"algo-1": 0}
