"""Where the time of a run went: waiting for data apart from computing, the first batch apart from the rest."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Averages over a number of steps, in seconds; images are those of one rank."""

    num_steps: int
    step_seconds: float
    data_wait_seconds: float
    compute_seconds: float

    @property
    def data_wait_share(self) -> float:
        """Share of the time that the trainer waited for data, 0..1."""
        return self.data_wait_seconds / self.step_seconds if self.step_seconds else 0.0


@dataclass
class StepMeter:
    """Times the steps of one rank. The first step is kept apart: it holds the start of every worker of the cluster."""

    rows_by_host: Counter[str] = field(default_factory=Counter)
    bad_rows: dict[int, str] = field(default_factory=dict)
    num_steps: int = 0
    num_rows: int = 0
    first_wait_seconds: float = 0.0
    first_compute_seconds: float = 0.0
    first_step_ended_at: float = 0.0
    last_step_ended_at: float = 0.0
    work_ended_at: float = 0.0
    """When the last batch had been used, trained or only measured, in seconds since 1970."""
    wait_seconds: float = 0.0
    compute_seconds: float = 0.0
    preparing_cpu_seconds: float = 0.0
    loss: float | None = None
    """Mean loss of the last batch over all ranks; None before the end."""
    _mark: tuple[int, float, float] = (0, 0.0, 0.0)

    def add(
        self,
        *,
        wait_seconds: float,
        compute_seconds: float,
        rows_by_host: Mapping[str, int],
        num_valid: int,
        preparing_cpu_seconds: float,
    ) -> None:
        """Count one step that has just ended; `preparing_cpu_seconds` is what its rows took, on any host."""
        self.num_steps += 1
        self.num_rows += num_valid
        self.last_step_ended_at = time.time()
        if self.num_steps == 1:
            self.first_wait_seconds, self.first_compute_seconds = wait_seconds, compute_seconds
            self.first_step_ended_at = self.last_step_ended_at
            return
        # Rows of the first batch are not counted per host: they say who started first, not who is faster.
        self.rows_by_host.update(rows_by_host)
        self.wait_seconds += wait_seconds
        self.compute_seconds += compute_seconds
        self.preparing_cpu_seconds += preparing_cpu_seconds

    def lap(self) -> StepTimes:
        """Averages since the last call; `num_steps` is 0, and so is every time, where only the first step has been."""
        steps, wait, compute = self._mark
        self._mark = (max(self.num_steps - 1, 0), self.wait_seconds, self.compute_seconds)
        return _averages(self._mark[0] - steps, self.wait_seconds - wait, self.compute_seconds - compute)

    def total(self) -> StepTimes:
        """Averages over every step but the first."""
        return _averages(max(self.num_steps - 1, 0), self.wait_seconds, self.compute_seconds)

    def summary(self) -> dict[str, Any]:
        """What one rank reports at the end; merged over ranks by `merge_ranks`."""
        times = self.total()
        return {
            "steps": self.num_steps,
            "rows": self.num_rows,
            "rows_by_host": dict(self.rows_by_host),
            "preparing_cpu_seconds": self.preparing_cpu_seconds,
            "loss": self.loss,
            "bad_rows": {str(row): text for row, text in self.bad_rows.items()},
            **{key: value for key, value in asdict(times).items() if key != "num_steps"},
            "data_wait_share": times.data_wait_share,
            "first_batch_wait_seconds": self.first_wait_seconds,
            "first_step_compute_seconds": self.first_compute_seconds,
            "first_step_ended_at": self.first_step_ended_at,
            "last_step_ended_at": self.last_step_ended_at,
            "work_ended_at": self.work_ended_at,
        }


def merge_ranks(ranks: list[dict[str, Any]], batch_size: int) -> dict[str, Any]:
    """One summary for all ranks: rows are summed, times are those of the rank that waited longest for its data.

    Ranks step together, so their step times agree; a rank whose data came early spends the others' wait in the sum of
    the gradients, which counts as computing. Only the rank that all others waited for tells the two apart.
    """
    slowest = max(ranks, key=lambda rank: rank["data_wait_seconds"])
    rows_by_host: Counter[str] = Counter()
    bad_rows: dict[str, str] = {}
    for rank in ranks:
        rows_by_host.update(rank["rows_by_host"])
        bad_rows.update(rank["bad_rows"])
    step_seconds = slowest["step_seconds"]
    preparing_cpu_seconds = sum(rank["preparing_cpu_seconds"] for rank in ranks)
    return {
        **slowest,
        "steps_per_rank": [rank["steps"] for rank in ranks],
        "rows": sum(rank["rows"] for rank in ranks),
        "rows_by_host": dict(rows_by_host),
        "preparing_cpu_seconds": preparing_cpu_seconds,
        "cpu_seconds_per_row": preparing_cpu_seconds / max(sum(rows_by_host.values()), 1),
        "bad_rows": bad_rows,
        "images_per_second": batch_size * len(ranks) / step_seconds if step_seconds else 0.0,
    }


def _averages(num_steps: int, wait_seconds: float, compute_seconds: float) -> StepTimes:
    count = max(num_steps, 1)
    return StepTimes(
        num_steps=num_steps,
        step_seconds=(wait_seconds + compute_seconds) / count,
        data_wait_seconds=wait_seconds / count,
        compute_seconds=compute_seconds / count,
    )
