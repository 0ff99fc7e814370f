"""`make run`: the article's comparison as a scale model on this machine, from the hosts to the Results table."""

import json
import platform
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from infra.local.console import JobConsole
from infra.local.job import JobOutcome, LocalJob, run_job
from infra.local.sandbox import Sandbox
from training.advisor.article import Article, load_article
from training.contract import InstanceGroup, RunConfig
from training.report import BASELINE, HETEROGENEOUS, Arm, Comparison, to_markdown

GPU_CORES = 0.38
CPU_CORES = 4 * GPU_CORES
"""ml.g5.xlarge has 4 vCPUs, ml.c5.4xlarge 16; together both take 1.9 cores, which leaves some for the rest."""
GPU_GROUP = InstanceGroup(name="gpu", instance_type="ml.g5.xlarge", instance_count=1)
CPU_GROUP = InstanceGroup(name="cpu", instance_type="ml.c5.4xlarge", instance_count=1)
SCALE_MODEL: dict[str, Any] = {
    "model": "test_vit",
    "model_arguments": {"patch_size": 32, "depth": 1, "embed_dim": 32, "num_heads": 1},
    "image_size": 224,
    "transform": "gaussian_blur_stack",
    "batch_size": 64,
    "num_records": 64_000,
    "report_every_steps": 5,
    "balance_rounds": 2,
}
"""The article's rows and transform; the ViT is timm's smallest with 32-pixel patches, since here it trains on a CPU."""


class ArmFailed(Exception):
    """A job of the comparison did not complete; the text is its reason."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where the comparison runs and what it shows."""

    sandbox: Sandbox
    console: JobConsole
    output_dir: Path
    steps: int


def compare(bench: Bench) -> Comparison:
    """Run the baseline and the heterogeneous arm, one after the other, and write the results.

    Raises:
        ArmFailed: one of the jobs failed or was stopped.
    """
    shutil.rmtree(bench.output_dir, ignore_errors=True)
    bench.output_dir.mkdir(parents=True)
    article = load_article()
    comparison = Comparison(
        baseline=_run_arm(bench, BASELINE, (GPU_GROUP,), article),
        heterogeneous=_run_arm(bench, HETEROGENEOUS, (GPU_GROUP, CPU_GROUP), article),
        article=article,
        conditions=_conditions(bench),
    )
    (bench.output_dir / "results.json").write_text(json.dumps(comparison.to_json(), indent=1) + "\n")
    (bench.output_dir / "results.md").write_text(to_markdown(comparison))
    return comparison


def _run_arm(bench: Bench, name: str, groups: tuple[InstanceGroup, ...], article: Article) -> Arm:
    training: dict[str, Any] = {**SCALE_MODEL, "steps": bench.steps}
    config = RunConfig.parse({"instance_groups": [group.model_dump() for group in groups], "training": training})
    hosts = ", ".join(f"{group.instance_count} x {group.name} ({group.instance_type})" for group in groups)
    bench.console.line("run", f"arm {name}: {hosts}")
    job = LocalJob(
        config=config,
        job_dir=bench.output_dir / name,
        cpu_share={"gpu": GPU_CORES, "cpu": CPU_CORES},
        bind_share_at="first_step",
    )
    outcome = run_job(job, bench.console, bench.sandbox)
    return _arm(name, outcome, sum(article.prices_usd_per_hour[g.instance_type] * g.instance_count for g in groups))


def reason_of(outcome: JobOutcome) -> str:
    """How a job ended, and why, in one line."""
    # After a stop, what the hosts themselves say is no more than that they were stopped.
    text = outcome.stop_reason or outcome.failure or "no host reported a step"
    return f"{outcome.status.lower()}: {text.strip().partition(chr(10))[0]}"


def _arm(name: str, outcome: JobOutcome, price_usd_per_hour: float) -> Arm:
    first_step, teardown = outcome.seconds_to("first_step"), outcome.last_step_to_end_seconds
    if outcome.status != "Completed" or first_step is None or teardown is None:
        raise ArmFailed(f"arm {name} {reason_of(outcome)}")
    return Arm(
        name=name,
        results=json.loads((outcome.output_dir / "data" / "results.json").read_text()),
        price_usd_per_hour=price_usd_per_hour,
        first_step_seconds=first_step,
        teardown_seconds=teardown,
    )


def _conditions(bench: Bench) -> dict[str, Any]:
    training = SCALE_MODEL
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": _machine(),
        "limits": bench.sandbox.limits.description,
        "scale model": (
            f"gpu host {GPU_CORES:.2f} cores, cpu host {CPU_CORES:.2f} cores (1 : 4, as 4 and 16 vCPUs), "
            "limits bind with the first step, where the rates start; "
            "no accelerator, the model trains on the gpu host's cores"
        ),
        "run": (
            f"{bench.steps} steps of {training['batch_size']} images of {training['image_size']} pixels, "
            f"{training['model']} {json.dumps(training['model_arguments'])}, transform {training['transform']}, fp32; "
            "rates from the first to the last step"
        ),
    }


def _machine() -> str:
    """Cores, processor, memory and kernel of this machine, in one line."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    processor = models[0].partition(":")[2].strip() if models else platform.machine()
    memory_gb = psutil.virtual_memory().total / 1e9
    return (
        f"{psutil.cpu_count()} cores of {processor}, {memory_gb:.0f} GB, Linux {platform.release().partition('-')[0]}"
    )
