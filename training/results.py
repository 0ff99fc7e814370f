"""The results of one job: what the training measured, joined with what process 1 of every host sampled."""

import json
import platform
import statistics
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.contract import TrainingConfig, instance_type_has_accelerator
from training.files import write_whole

if TYPE_CHECKING:
    from training.main import JobFiles

RESULTS_FILE = "results.json"
HEADLINE = (
    "images_per_second",
    "step_seconds",
    "data_wait_seconds",
    "compute_seconds",
    "data_wait_share",
    "first_batch_wait_seconds",
    "steps",
    "loss",
    "validation_accuracy",
)
PACKAGES = ("ray", "torch", "torchvision", "timm", "numpy", "sagemaker-training")


def write_results(summary: Mapping[str, Any], config: TrainingConfig, files: "JobFiles") -> dict[str, Any]:
    """Write results.json into the output folder, whole or not at all; returns what it holds."""
    samples = read_samples(files.telemetry_file)
    results = {
        **summary,
        "config": config.model_dump(mode="json"),
        "hosts": host_figures(files.hosts, summary, samples),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }
    results["headline"] = headline(results)
    files.output_dir.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=1)
    write_whole(files.output_dir / RESULTS_FILE, lambda path: path.write_text(text))
    return results


def headline(results: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a run in one flat object; those that the run does not have are left out.

    Hosts are taken together by kind: `gpu_hosts_*` are those with accelerators, `cpu_hosts_*` those without. Six digits
    each: SageMaker keeps a job's metrics as 32-bit numbers, and they shall equal the results file to the digit.
    """
    figures: dict[str, Any] = {name: results.get(name) for name in HEADLINE}
    for kind, has_accelerator in (("gpu_hosts", True), ("cpu_hosts", False)):
        hosts = [
            host for host in results["hosts"] if instance_type_has_accelerator(host["instance_type"]) == has_accelerator
        ]
        if hosts:
            figures[f"{kind}_row_share"] = sum(host["row_share"] for host in hosts)
            figures[f"{kind}_cpu_use"] = _mean(host["cpu_share_used"] for host in hosts)
    figures["accelerator_use"] = _mean(host["accelerator_share"] for host in results["hosts"])
    figures["peak_memory_gb"] = sum(host["peak_memory_bytes"] for host in results["hosts"]) / 1e9
    for name, values in (results["balance"] or {}).items():
        figures[f"balance_{name}"] = statistics.median(values)
    return {name: float(f"{value:.6g}") for name, value in figures.items() if value is not None}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def read_samples(path: Path) -> list[dict[str, Any]]:
    """The samples in a telemetry file; the last line may still be in the writing, it is left out then."""
    if not path.exists():
        return []
    complete = path.read_text().rpartition("\n")[0]
    return [json.loads(line) for line in complete.splitlines()]


def host_figures(
    hosts: Iterable[Mapping[str, str]], summary: Mapping[str, Any], samples: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Per host: rows preprocessed, CPU and accelerator use between first and last step, peak memory of the run."""
    rows_by_host: Mapping[str, int] = summary["rows_by_host"]
    total_rows = sum(rows_by_host.values())
    window = (summary["first_step_ended_at"], summary["last_step_ended_at"])
    figures = []
    for host in hosts:
        own = [sample for sample in samples if sample["host"] == host["name"]]
        rows = rows_by_host.get(host["name"], 0)
        figures.append(
            {
                **host,
                "rows": rows,
                "row_share": rows / total_rows if total_rows else 0.0,
                "peak_memory_bytes": max((sample["memory_bytes"] for sample in own), default=0),
                **_use([sample for sample in own if window[0] <= sample["at"] <= window[1]]),
            }
        )
    return figures


def _use(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """CPU cores used on average and their share of the host's, and the mean accelerator use; None where unknown."""
    if len(samples) < 2 or samples[-1]["at"] <= samples[0]["at"]:
        return {"cpu_cores_used": None, "cpu_cores": None, "cpu_share_used": None, "accelerator_share": None}
    first, last = samples[0], samples[-1]
    cores_used = (last["cpu_seconds"] - first["cpu_seconds"]) / (last["at"] - first["at"])
    accelerator = [sample["accelerator_share"] for sample in samples if sample["accelerator_share"] is not None]
    return {
        "cpu_cores_used": cores_used,
        "cpu_cores": last["cores"],
        "cpu_share_used": cores_used / last["cores"],
        "accelerator_share": sum(accelerator) / len(accelerator) if accelerator else None,
    }
