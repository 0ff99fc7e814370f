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

    @classmethod
    def of(cls, *, num_steps: int, wait_seconds: float, compute_seconds: float) -> "StepTimes":
        """The averages of so many steps that took this long together."""
        count = max(num_steps, 1)
        return cls(
            num_steps=num_steps,
            step_seconds=(wait_seconds + compute_seconds) / count,
            data_wait_seconds=wait_seconds / count,
            compute_seconds=compute_seconds / count,
        )

    @property
    def data_wait_share(self) -> float:
        """Share of the time that the trainer waited for data, 0..1."""
        return self.data_wait_seconds / self.step_seconds if self.step_seconds else 0.0


@dataclass(frozen=True, kw_only=True)
class StepFigures:
    """What one rank measured of one optimizer step.

    `wait_seconds`: the device had nothing to do for lack of a batch. `compute_seconds`: all else, from the end of the
    step before to the end of this one. `preparing_cpu_seconds`: what its rows took, on any host.
    """

    wait_seconds: float
    compute_seconds: float
    rows_by_host: Mapping[str, int]
    num_valid: int
    preparing_cpu_seconds: float


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

    def add(self, step: StepFigures) -> None:
        """Count one step that has ended just now."""
        self.num_steps += 1
        self.num_rows += step.num_valid
        self.last_step_ended_at = time.time()
        if self.num_steps == 1:
            self.first_wait_seconds, self.first_compute_seconds = step.wait_seconds, step.compute_seconds
            self.first_step_ended_at = self.last_step_ended_at
            return
        # Rows of the first step are not counted per host: they say who started first, not who is faster.
        self.rows_by_host.update(step.rows_by_host)
        self.wait_seconds += step.wait_seconds
        self.compute_seconds += step.compute_seconds
        self.preparing_cpu_seconds += step.preparing_cpu_seconds

    def lap(self) -> StepTimes:
        """Averages since the last call; `num_steps` is 0, and so is every time, where only the first step has been."""
        steps, wait, compute = self._mark
        self._mark = (max(self.num_steps - 1, 0), self.wait_seconds, self.compute_seconds)
        return StepTimes.of(
            num_steps=self._mark[0] - steps,
            wait_seconds=self.wait_seconds - wait,
            compute_seconds=self.compute_seconds - compute,
        )

    def total(self) -> StepTimes:
        """Averages over every step but the first."""
        return StepTimes.of(
            num_steps=max(self.num_steps - 1, 0), wait_seconds=self.wait_seconds, compute_seconds=self.compute_seconds
        )

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


def merge_ranks(ranks: list[dict[str, Any]], rows_per_step: int) -> dict[str, Any]:
    """One summary for all ranks: rows are summed, times are those of the rank that waited longest for its data.

    `rows_per_step` are the rows of one rank in one step.

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
        "images_per_second": rows_per_step * len(ranks) / step_seconds if step_seconds else 0.0,
    }
