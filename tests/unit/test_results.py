"""results.json: the training's figures, joined with what every host was sampled to use."""

import json
from pathlib import Path
from typing import Any

import pytest

from infra.workflow.metrics import RESULT_KEYS
from training.contract import TrainingConfig
from training.main import JobFiles
from training.results import PACKAGES, headline, host_figures, read_samples, write_results

HOSTS = (
    {"name": "algo-1", "group": "gpu", "instance_type": "ml.g5.xlarge"},
    {"name": "algo-2", "group": "cpu", "instance_type": "ml.c5.4xlarge"},
)
SUMMARY: dict[str, Any] = {
    "balance": None,
    "rows_by_host": {"algo-1": 100, "algo-2": 300},
    "first_step_ended_at": 10.0,
    "last_step_ended_at": 20.0,
}


def sample(at: float, host: str = "algo-1", **values: Any) -> dict[str, Any]:
    fixed = {"cores": 4.0, "memory_bytes": 100, "accelerator_share": None, "cpu_seconds": 0.0}
    return {"at": at, "host": host, **fixed, **values}


def test_use_is_that_between_first_and_last_step_and_memory_that_of_the_whole_run() -> None:
    samples = [
        sample(2.0, cpu_seconds=0.0, memory_bytes=900, accelerator_share=0.9),
        sample(10.0, cpu_seconds=100.0, accelerator_share=0.25),
        sample(15.0, cpu_seconds=111.0, accelerator_share=0.75),
        sample(20.0, cpu_seconds=120.0, accelerator_share=None),
        sample(21.0, cpu_seconds=999.0, memory_bytes=5),
        sample(15.0, host="algo-2", cpu_seconds=0.0),
    ]
    first, second = host_figures(HOSTS, SUMMARY, samples)
    assert {key: first[key] for key in ("name", "group", "instance_type")} == HOSTS[0]
    assert (first["rows"], first["row_share"]) == (100, 0.25)
    assert first["cpu_cores_used"] == pytest.approx(2.0)
    assert first["cpu_share_used"] == pytest.approx(0.5)
    assert first["cpu_cores"] == 4.0
    assert first["accelerator_share"] == pytest.approx(0.5)
    assert first["peak_memory_bytes"] == 900
    assert (second["rows"], second["row_share"], second["peak_memory_bytes"]) == (300, 0.75, 100)
    assert second["cpu_share_used"] is None, "one sample shows no use"


def test_a_host_without_samples_has_rows_and_no_figures() -> None:
    figures = host_figures(HOSTS, SUMMARY, [])
    assert [host["rows"] for host in figures] == [100, 300]
    assert [host["peak_memory_bytes"] for host in figures] == [0, 0]
    assert {host["cpu_share_used"] for host in figures} == {None}
    assert {host["accelerator_share"] for host in figures} == {None}


def test_no_rows_no_shares() -> None:
    summary = {**SUMMARY, "rows_by_host": {}}
    assert [host["row_share"] for host in host_figures(HOSTS, summary, [])] == [0.0, 0.0]


@pytest.mark.parametrize("later", [12.0, 11.0], ids=["same moment", "clock set back"])
def test_samples_of_no_time_show_no_use(later: float) -> None:
    figures = host_figures(HOSTS, SUMMARY, [sample(12.0), sample(later)])
    assert figures[0]["cpu_cores_used"] is None


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.jsonl"
    assert read_samples(path) == []
    path.write_text('{"at": 1.0')
    assert read_samples(path) == []
    path.write_text('{"at": 1.0}\n{"at": 2.0}\n{"at"')
    assert read_samples(path) == [{"at": 1.0}, {"at": 2.0}]
    path.write_text('{"at": 1.0}\n')
    assert read_samples(path) == [{"at": 1.0}]


def test_results_are_written_whole(tmp_path: Path) -> None:
    names = ("hyperparameters", "data_dir", "model_dir", "events_file", "failure_file", "ready_file", "stop_file")
    telemetry = tmp_path / "telemetry.jsonl"
    telemetry.write_text("".join(json.dumps(sample(at, cpu_seconds=at)) + "\n" for at in (11.0, 13.0)))
    files = JobFiles(
        **{name: tmp_path / name for name in names},
        output_dir=tmp_path / "output" / "data",
        telemetry_file=telemetry,
        checkpoint_dir=None,
        head_host="algo-1",
        hosts=HOSTS,
    )
    config = TrainingConfig(steps=7)
    returned = write_results({**SUMMARY, "steps": 7}, config, files)
    results = json.loads((files.output_dir / "results.json").read_text())
    assert returned == results
    assert [file.name for file in files.output_dir.iterdir()] == ["results.json"]
    assert (results["steps"], results["config"]) == (7, config.model_dump(mode="json"))
    assert [host["cpu_cores_used"] for host in results["hosts"]] == [1.0, None]
    assert set(results["versions"]) == {"python", *PACKAGES}


def test_the_headline_takes_hosts_of_a_kind_together_and_leaves_out_what_is_unknown() -> None:
    samples = [sample(at, cpu_seconds=at, host=host) for host in ("algo-1", "algo-2") for at in (10.0, 20.0)]
    results = {
        "images_per_second": 47.223847583,
        "loss": 1e-05,
        "validation_accuracy": None,
        "balance": {"all_hosts": [46.0, 49.0, 47.0], "cpu_hosts": [40.0]},
        "hosts": host_figures(HOSTS, SUMMARY, samples),
    }
    assert headline(results) == {
        "images_per_second": 47.2238,
        "loss": 1e-05,
        "gpu_hosts_row_share": 0.25,
        "gpu_hosts_cpu_use": 0.25,
        "cpu_hosts_row_share": 0.75,
        "cpu_hosts_cpu_use": 0.25,
        "peak_memory_gb": 2e-07,
        "balance_all_hosts": 47.0,
        "balance_cpu_hosts": 40.0,
    }
    assert set(headline(results)) <= set(RESULT_KEYS), "the workflow reads every figure out of the job's log"
    alone = headline({**results, "balance": None, "hosts": host_figures(HOSTS[:1], SUMMARY, [])})
    assert not [name for name in alone if name.startswith(("cpu_hosts", "balance")) or name.endswith("cpu_use")]
