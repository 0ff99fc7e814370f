"""Jobs that something befalls, and what one asks of them afterwards."""

import itertools
import json
import sys
from pathlib import Path
from typing import Any

from container.bootstrap.errors import STOPPED
from tests.cluster import local_runner
from tests.faults import faulty_training

STEPS, BATCH_SIZE, STEP_SECONDS, REPORT_EVERY, CHECKPOINT_EVERY = 60, 4, 0.1, 5, 20
NUM_ROWS = STEPS * BATCH_SIZE
JOIN_SECONDS = 120
TRAINING: dict[str, Any] = {
    "model": "test_vit",
    "model_arguments": {"patch_size": 16, "depth": 1, "embed_dim": 32, "num_heads": 1},
    "image_size": 32,
    "transform": "normalize",
    "batch_size": BATCH_SIZE,
    "steps": STEPS,
    "num_records": NUM_ROWS,
    "report_every_steps": REPORT_EVERY,
    "checkpoint_every_steps": CHECKPOINT_EVERY,
    "join_timeout_seconds": JOIN_SECONDS,
}
GPU_ALONE = [["gpu", "ml.g5.xlarge", 1]]
TWO_TRAINERS = [["gpu", "ml.g5.xlarge", 2]]
KILLED = 137
TRAIN = (sys.executable, "-m", faulty_training.MODULE, "train")


class EndedJob:
    """A job that has ended, and what became of it."""

    def __init__(self, job_dir: Path, outcome: dict[str, Any], output: str) -> None:
        self.job_dir, self.outcome, self.output = job_dir, outcome, output
        self.exit_codes: dict[str, int] = outcome["exit_codes"]
        self.failure: str = outcome["failure"] or ""

    def events(self, name: str, host: str | None = None) -> list[dict[str, Any]]:
        """Events of that name, of one host or of all, in their order."""
        return [event for event in self.outcome["events"] if event["name"] == name and host in (None, event["host"])]

    def at(self, name: str, host: str | None = None, *, which: int = 0) -> float:
        """Seconds from the launch to one of those events."""
        found = self.events(name, host)
        assert found, f"no event {name}\n{self.output}"
        return float(found[which]["seconds_since_launch"])

    @property
    def seconds(self) -> float:
        """From the launch to the end of the last host."""
        return float(self.outcome["seconds"])

    def longest_pause(self) -> float:
        """Seconds between two reports of steps, from the fault on."""
        begin = self.at("fault")
        reports = (float(event["seconds_since_launch"]) for event in self.events("step"))
        times = [begin, *(time for time in reports if time > begin)]
        assert len(times) > 1, f"no step after the fault\n{self.output}"
        return max(after - before for before, after in itertools.pairwise(times))

    def rows(self) -> list[int]:
        """What was trained on, step after step, by all ranks."""
        files = sorted(self.job_dir.glob("*/ml/output/data/rows-*.txt"))
        return [int(row) for file in files for line in file.read_text().splitlines() for row in line.split()]

    def results(self) -> dict[str, Any]:
        """results.json of the head."""
        results: dict[str, Any] = json.loads((Path(self.outcome["output_dir"]) / "data" / "results.json").read_text())
        return results

    def has_model(self) -> bool:
        return (Path(self.outcome["model_dir"]) / "model.safetensors").exists()

    def check_completed(self, *, killed: str = "", code: int = KILLED) -> None:
        """The training ended well, over every row exactly once, on every host but one that was `killed`."""
        expected = {host: code if host == killed else 0 for host in self.exit_codes}
        assert self.exit_codes == expected, self.output
        assert self.has_model(), "a head that ends with 0 has a model"
        assert sorted(self.rows()) == list(range(NUM_ROWS)), "each row exactly once"
        assert self.results()["rows"] == NUM_ROWS
        self.check_left_nothing(killed=killed if code == KILLED else "")

    def check_failed(self, code: int, *begins: str, killed: str = "") -> None:
        """Every host failed with `code`, but one that was `killed`, and the reason begins with what went wrong."""
        expected = {host: KILLED if host == killed else code for host in self.exit_codes}
        assert self.exit_codes == expected, self.output
        assert self.failure.startswith(begins), self.failure
        assert 0 < len(self.failure) <= 1024
        assert code == STOPPED or not self.events("result"), "a job that failed has no result"
        self.check_left_nothing(killed=killed)

    def check_left_nothing(self, *, killed: str = "") -> None:
        """No process was left when process 1 of a host ended; those of a `killed` host die with it."""
        left = {host: number for host, number in self.outcome["left_processes"].items() if host != killed}
        assert set(left.values()) <= {0}, left


def run(
    job_dir: Path,
    *faults: dict[str, Any],
    training: dict[str, Any] | None = None,
    fault: str = "",
    before: str = "",
    kept: Path | None = None,
    **order: Any,
) -> EndedJob:
    """Run a job to its end.

    `faults` are those of the runner, `fault` is one of the training (`faulty_training.FAULT_VARIABLE`), `before` is
    done by a shell on every host before process 1 takes its place, `kept` holds the checkpoints of an earlier job, and
    `order` goes on to `local_runner.run`.
    """
    kept = kept or job_dir / "no-checkpoints"
    kept.mkdir(parents=True, exist_ok=True)
    command = ["sh", "-c", f'{before}\nexec "$@"', "sh", *TRAIN] if before else list(TRAIN)
    environment = {faulty_training.STEP_SECONDS_VARIABLE: str(STEP_SECONDS)}
    if fault:
        environment[faulty_training.FAULT_VARIABLE] = fault
    outcome, output = local_runner.run(
        job_dir,
        command=command,
        training={**TRAINING, **(training or {})},
        faults=list(faults),
        checkpoints=str(kept),
        **{**order, "environment": {**environment, **order.get("environment", {})}},
    )
    return EndedJob(job_dir / "job0", outcome, output)


def during_training(host: str, action: str, delay_seconds: float = 0.0) -> dict[str, Any]:
    """The fault that something befalls a host after the second report of steps."""
    return {"at": "step", "count": 2, "host": host, "action": action, "delay_seconds": delay_seconds}
