"""How close the hosts come to the sum of what each kind reaches alone, 1 : 4 in CPU share, simulated accelerator."""

import statistics
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from infra.local import scale_model
from tests.benchmarks.accelerator import Accelerator
from tests.benchmarks.cluster_job import TURNS
from tests.benchmarks.harness import Job, Measured, Run, in_turns, num_rounds
from tests.benchmarks.results_file import Results
from tests.benchmarks.virtual_cluster import article_cluster

pytestmark = [pytest.mark.bench, pytest.mark.timeout(7200)]

FAST_ACCELERATOR = Accelerator(step_seconds=0.005)
SLOW_STEP_SECONDS = 1.0
BATCH_SIZE = 16
TRAINING: dict[str, Any] = {**scale_model.TRAINING, "batch_size": BATCH_SIZE, "report_every_steps": 10}
LIGHT: dict[str, Any] = {
    "transform": "torchvision",
    "transform_steps": ["RandomHorizontalFlip", "RandomAdjustSharpness(2)"],
    "batch_size": 128,
}
"""1 to 2 ms of CPU time an image, uint8 on the wire."""


@pytest.mark.parametrize(("name", "settings"), [("balance_heavy", {}), ("balance_light", LIGHT)])
def test_balance_in_turns(name: str, settings: dict[str, Any], tmp_path: Path, results: Results) -> None:
    training = {**TRAINING, **settings, "steps": 10, "balance_rounds": num_rounds()}
    job = Job(cluster=article_cluster(), training=training, accelerator=FAST_ACCELERATOR)
    run_results = job.run(tmp_path).results()
    turns = run_results["balance"]
    rounds = [
        {
            hosts: {"images_per_second": turns[hosts][number], "cores": turns[f"{hosts}_cores"][number]}
            for hosts in TURNS
        }
        for number in range(num_rounds())
    ]
    by_rate, by_cores = ([balance(figures, what) for figures in rounds] for what in ("images_per_second", "cores"))
    print(f"\n{name}: {1e3 * run_results['cpu_seconds_per_row']:.2f} ms of CPU an image")
    print(f"by round {listed(by_rate)}, in cores at work {listed(by_cores)}")
    measured = Measured(rounds=rounds, conditions={"job": job.describe()})
    results.record(name, measured, {name: statistics.median(by_rate)})


def balance(figures: dict[str, dict[str, float]], what: str) -> float:
    return figures["all_hosts"][what] / (figures["cpu_hosts"][what] + figures["gpu_hosts"][what])


def listed(values: list[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)


def test_an_accelerator_that_is_the_bound_never_waits(tmp_path: Path, results: Results) -> None:
    training = {**TRAINING, "balance_rounds": 0, "steps": 25}
    job = Job(cluster=article_cluster(), training=training, accelerator=Accelerator(step_seconds=SLOW_STEP_SECONDS))
    measured = in_turns({"ours": job}, stall, tmp_path)
    results.record(
        "accelerator_bound", measured, {"stall_accelerator_bound": statistics.median(measured.values("stall", "ours"))}
    )


def stall(run: Run) -> dict[str, float]:
    figures = run.results()
    return {"stall": figures["data_wait_share"], "step_seconds": figures["step_seconds"]}


HALF_WAY, STEPS = 30, 70


def test_a_host_that_slows_down(tmp_path: Path, results: Results) -> None:
    slowed = article_cluster(changes={"half_way": {"cpu": scale_model.CPU_CORES / 2}})
    training = {**TRAINING, "balance_rounds": 2, "steps": STEPS}
    accelerator = Accelerator(step_seconds=FAST_ACCELERATOR.step_seconds, half_way_step=HALF_WAY)
    measured = in_turns(
        {"ours": Job(cluster=slowed, training=training, accelerator=accelerator)}, after_slowing, tmp_path
    )
    ratios = [
        figures["ours"]["images_per_second"] / figures["ours"]["bound_images_per_second"] for figures in measured.rounds
    ]
    results.record("slowed_host", measured, {"balance_slowed_host": statistics.median(ratios)})


def after_slowing(run: Run) -> dict[str, float]:
    """Images per second from the moment of slowing on, and what the hosts reach alone at their new speed."""
    last = next(event for event in run.outcome["events"] if event["fields"].get("step") == str(STEPS))
    began, ended = (datetime.fromisoformat(event["fields"]["at"]) for event in (run.event("half_way"), last))
    turns = run.results()["balance"]
    return {
        "images_per_second": BATCH_SIZE * (STEPS - HALF_WAY) / (ended - began).total_seconds(),
        "bound_images_per_second": statistics.median(turns["cpu_hosts"]) + statistics.median(turns["gpu_hosts"]),
    }
