"""What the benchmarks share: jobs on a virtual cluster, in turns, with what they took of it from event to event.

Example, two programs on the same two hosts in turns, and one headline of it::

    CLUSTER = article_cluster()
    JOBS = {
        "ours": Job(cluster=CLUSTER, training=TRAINING, accelerator=Accelerator(step_seconds=0.05)),
        "article": Job(cluster=CLUSTER, training=TRAINING, command=ARTICLE, accelerator=Accelerator(step_seconds=0.05)),
    }


    def figures(run: Run) -> dict[str, float]:
        steady = run.between("first_step", "last_step")
        return {"steps_per_second": (STEPS - 1) / steady.seconds, "cpu_seconds": sum(steady.cpu_seconds.values())}


    def test_vs_article(tmp_path: Path, results: Results) -> None:
        measured = in_turns(JOBS, figures, tmp_path)
        ratio = statistics.median(measured.ratios("steps_per_second", "ours", "article"))
        results.record("vs_article_heavy", measured, {"vs_article_steps_heavy": ratio})

`results` is a fixture of this folder. COUNTERPOISE_BENCH_ROUNDS=1 is a trial: it measures once and writes nothing.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.accelerator import Accelerator
from tests.benchmarks.virtual_cluster import Cluster
from tests.cluster import local_runner

ROUNDS_VARIABLE = "COUNTERPOISE_BENCH_ROUNDS"
DEFAULT_ROUNDS = 5
PRODUCT = (sys.executable, "-m", "container.bootstrap", "train")
PRODUCT_WITH_ACCELERATOR = (sys.executable, "-m", "tests.benchmarks.cluster_job", "train")


@dataclass(frozen=True, kw_only=True)
class Job:
    """One contender: what runs on which cluster."""

    cluster: Cluster
    training: Mapping[str, Any] = field(default_factory=dict)
    """Settings of TrainingConfig."""
    accelerator: Accelerator | None = None
    """Told to the job by its environment; without a command of its own, the product then runs with this accelerator."""
    command: Sequence[str] | None = None
    """Process 1 of every host; None takes the product."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of `local_runner.run`, such as `stop_at`, `channels`, `environment`."""
    expected_status: str = "Completed"

    def run(self, job_dir: Path) -> "Run":
        """Run it once. Raises AssertionError, with what the hosts printed, when it ends otherwise than expected."""
        product = PRODUCT if self.accelerator is None else PRODUCT_WITH_ACCELERATOR
        simulation = {} if self.accelerator is None else self.accelerator.environment()
        outcome, output = local_runner.run(
            job_dir,
            command=list(self.command or product),
            training=dict(self.training),
            **self.cluster.options(),
            **{**self.options, "environment": {**simulation, **self.options.get("environment", {})}},
        )
        assert outcome["status"] == self.expected_status, output
        return Run(outcome)

    def describe(self) -> dict[str, Any]:
        """The job as the conditions of a figure."""
        simulated = self.accelerator
        return {
            "cluster": self.cluster.describe(),
            "accelerator": "none" if simulated is None else f"simulated, {simulated.step_seconds:g} s a step",
            "program": "the product" if self.command is None else " ".join(["python", *self.command[1:]]),
            "training": dict(self.training),
        }


@dataclass(frozen=True, kw_only=True)
class Phase:
    """What a job took between two events, by host."""

    seconds: float
    cpu_seconds: Mapping[str, float]
    bytes_sent: Mapping[str, int]
    bytes_received: Mapping[str, int]


class Run:
    """One job that has ended."""

    def __init__(self, outcome: Mapping[str, Any]) -> None:
        self.outcome = outcome
        """`infra.local.outcome.JobOutcome` as JSON has it."""

    def event(self, name: str) -> Mapping[str, Any]:
        """The first event of that name: `host`, `fields`, `seconds_since_launch`, `usage`. Raises AssertionError."""
        names = [event["name"] for event in self.outcome["events"]]
        assert name in names, f"the job has no event {name}, only {sorted(set(names))}"
        found: Mapping[str, Any] = self.outcome["events"][names.index(name)]
        return found

    def seconds_to(self, name: str) -> float:
        """Seconds from the launch of the hosts to the first event of that name."""
        return float(self.event(name)["seconds_since_launch"])

    def between(self, first: str, last: str) -> Phase:
        """What every host took from one event to another; only hosts that ran at both."""
        return _phase(self.event(first), self.event(last))

    def between_steps(self, first: int, last: int) -> Phase:
        """The same from the end of one training step to that of another, both of which were reported."""
        reports = {event["fields"]["step"]: event for event in self.outcome["events"] if event["name"] == "step"}
        return _phase(reports[str(first)], reports[str(last)])

    def results(self) -> dict[str, Any]:
        """The results.json that the product wrote."""
        file = Path(self.outcome["output_dir"]) / "data" / "results.json"
        results: dict[str, Any] = json.loads(file.read_text())
        return results


def _phase(begin: Mapping[str, Any], end: Mapping[str, Any]) -> Phase:
    def taken(what: str) -> dict[str, Any]:
        hosts = [host for host in begin["usage"] if host in end["usage"]]
        return {host: end["usage"][host][what] - begin["usage"][host][what] for host in hosts}

    return Phase(
        seconds=end["seconds_since_launch"] - begin["seconds_since_launch"],
        cpu_seconds=taken("cpu_seconds"),
        bytes_sent=taken("bytes_sent"),
        bytes_received=taken("bytes_received"),
    )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a benchmark has measured."""

    rounds: Sequence[Mapping[str, Mapping[str, float]]]
    """Of each round the figures of each contender."""
    conditions: Mapping[str, Any]
    """What else one has to know, beside machine, versions and date: clusters, settings, how shares were enforced."""

    def values(self, figure: str, contender: str) -> list[float]:
        """One figure of one contender, round by round."""
        return [contenders[contender][figure] for contenders in self.rounds]

    def ratios(self, figure: str, contender: str, other: str) -> list[float]:
        """One contender's figure over another's, round by round."""
        pairs = zip(self.values(figure, contender), self.values(figure, other), strict=True)
        return [one / another for one, another in pairs]


def num_rounds() -> int:
    """How many rounds a benchmark makes: 5, or what COUNTERPOISE_BENCH_ROUNDS says."""
    return int(os.environ.get(ROUNDS_VARIABLE, DEFAULT_ROUNDS))


def in_turns(jobs: Mapping[str, Job], figures: Callable[[Run], Mapping[str, float]], folder: Path) -> Measured:
    """Runs the contenders in turns (A, B, A, B ...), since a shared machine changes its speed from minute to minute.

    `figures` says what is measured of each run. Folders of jobs are removed once they are measured.
    """
    rounds: list[dict[str, dict[str, float]]] = []
    limits = set()
    for number in range(num_rounds()):
        rounds.append({})
        for name, job in jobs.items():
            job_dir = folder / f"{name}{number}"
            run = job.run(job_dir)
            rounds[-1][name] = dict(figures(run))
            limits.add(run.outcome["limits"])
            shutil.rmtree(job_dir)
            shown = ", ".join(f"{figure} {value:.4g}" for figure, value in rounds[-1][name].items())
            print(f"round {number + 1} {name}: {shown}", flush=True)
    contenders = {name: job.describe() for name, job in jobs.items()}
    return Measured(rounds=rounds, conditions={"limits": ", ".join(sorted(limits)), "contenders": contenders})
