"""The virtual accelerator, simulated: a step takes a fixed time and no CPU, whatever the model and the batch.

It stands for a device beside the CPUs, which this machine does not have. A figure that was measured with it says so.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

STEP_SECONDS_VARIABLE = "COUNTERPOISE_SIMULATED_STEP_SECONDS"
HALF_WAY_VARIABLE = "COUNTERPOISE_HALF_WAY_STEP"


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """The device of each training worker of a job, told to it by its environment."""

    step_seconds: float
    half_way_step: int | None = None
    """The step at whose end the product's benchmark driver emits the event `half_way`; None: never."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Accelerator":
        """The accelerator that the environment of a job describes. Raises KeyError if it describes none."""
        half_way = environment.get(HALF_WAY_VARIABLE)
        return cls(
            step_seconds=float(environment[STEP_SECONDS_VARIABLE]),
            half_way_step=None if half_way is None else int(half_way),
        )

    def environment(self) -> dict[str, str]:
        """The inverse of `of`."""
        half_way = {} if self.half_way_step is None else {HALF_WAY_VARIABLE: str(self.half_way_step)}
        return {STEP_SECONDS_VARIABLE: str(self.step_seconds), **half_way}

    def step(self) -> None:
        """Take the time of one step."""
        time.sleep(self.step_seconds)
