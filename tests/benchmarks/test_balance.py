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
TURNS_A_ROUND = 3
"""A turn lasts seconds, in which a shared machine may change its speed by a fifth: it takes many to see a percent."""
STEPS_OF_A_LAP = 5
TRAINING: dict[str, Any] = {**scale_model.TRAINING, "batch_size": BATCH_SIZE, "report_every_steps": 10}
LIGHT: dict[str, Any] = {
    "transform": "torchvision",
    "transform_steps": ["RandomHorizontalFlip", "RandomAdjustSharpness(2)"],
    "batch_size": 128,
}
"""1 to 2 ms of CPU time an image, uint8 on the wire."""


@pytest.mark.parametrize(("name", "settings"), [("balance_heavy", {}), ("balance_light", LIGHT)])
def test_balance_in_turns(name: str, settings: dict[str, Any], tmp_path: Path, results: Results) -> None:
    num_turns = TURNS_A_ROUND * num_rounds()
    training = {**TRAINING, **settings, "steps": 10, "balance_rounds": num_turns}
    job = Job(cluster=article_cluster(), training=training, accelerator=FAST_ACCELERATOR)
    run_results = job.run(tmp_path).results()
    turns = run_results["balance"]
    rounds = [
        {
            hosts: {"images_per_second": turns[hosts][number], "cores": turns[f"{hosts}_cores"][number]}
            for hosts in TURNS
        }
        for number in range(num_turns)
    ]
    by_rate, by_cores = ([balance(figures, what) for figures in rounds] for what in ("images_per_second", "cores"))
    print(f"\n{name}: {1e3 * run_results['cpu_seconds_per_row']:.2f} ms of CPU an image")
    for what, values in (("images/s", by_rate), ("cores at work", by_cores)):
        print(f"in {what}: median {statistics.median(values):.3f} of {listed(sorted(values))}")
    measured = Measured(rounds=rounds, conditions={"job": job.describe()})
    results.record(name, measured, {name: statistics.median(by_rate)})


def balance(figures: dict[str, dict[str, float]], what: str) -> float:
    return figures["all_hosts"][what] / (figures["cpu_hosts"][what] + figures["gpu_hosts"][what])


def listed(values: list[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)


def test_an_accelerator_that_is_the_bound_never_waits(tmp_path: Path, results: Results) -> None:
    laps = 1 + num_rounds()  # the first one lives on what was prepared while the model was built
    training = {
        **TRAINING,
        "balance_rounds": 0,
        "steps": STEPS_OF_A_LAP * laps,
        "report_every_steps": STEPS_OF_A_LAP,
    }
    job = Job(cluster=article_cluster(), training=training, accelerator=Accelerator(step_seconds=SLOW_STEP_SECONDS))
    reports = [event["fields"] for event in job.run(tmp_path).outcome["events"] if event["name"] == "step"]
    assert len(reports) == laps
    rounds = [{"ours": lap(report)} for report in reports[1:]]
    measured = Measured(rounds=rounds, conditions={"job": job.describe(), "round": f"{STEPS_OF_A_LAP} steps"})
    print(f"\nstall by round {measured.values('stall', 'ours')}")
    results.record(
        "accelerator_bound", measured, {"stall_accelerator_bound": statistics.median(measured.values("stall", "ours"))}
    )


def lap(report: dict[str, str]) -> dict[str, float]:
    step_seconds = float(report["step_seconds"])
    return {"stall": float(report["data_wait_seconds"]) / step_seconds, "step_seconds": step_seconds}


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
