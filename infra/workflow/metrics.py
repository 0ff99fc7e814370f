"""Metric definitions: which figures SageMaker reads out of the lines that process 1 prints."""

from dataclasses import dataclass

_NUMBER = r"([-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One figure: its name in the job's description, and the event and key that it stands under in the log."""

    name: str
    event: str
    key: str

    @property
    def regex(self) -> str:
        """Finds the figure in a line `counterpoise: event=<event> ... <key>=<figure> ...`; the one group is the figure.

        Text in its place, or nan, is no match.
        """
        return rf"counterpoise: event={self.event} (?:.* )?{self.key}={_NUMBER}(?: |$)"


RESULT_KEYS = (
    "images_per_second",
    "step_seconds",
    "data_wait_seconds",
    "compute_seconds",
    "data_wait_share",
    "steps",
    "loss",
    "validation_accuracy",
    "first_batch_wait_seconds",
    "peak_memory_gb",
    "gpu_hosts_row_share",
    "cpu_hosts_row_share",
    "gpu_hosts_cpu_use",
    "cpu_hosts_cpu_use",
    "accelerator_use",
    "balance_all_hosts",
    "balance_all_hosts_cores",
    "balance_cpu_hosts",
    "balance_cpu_hosts_cores",
)
"""Printed once, at the end, so that what the job's description ends up with is exactly this figure."""

STEP_KEYS = ("images_per_second", "step_seconds", "loss")
"""Printed on the way: the curves in the console. Under names of their own, so that they never are the final figure."""

METRICS = (
    *(Metric(name=key, event="result", key=key) for key in RESULT_KEYS),
    *(Metric(name=f"step:{key}", event="step", key=key) for key in STEP_KEYS),
)


def metric_definitions() -> list[dict[str, str]]:
    """`AlgorithmSpecification.MetricDefinitions` of every training job."""
    return [{"Name": metric.name, "Regex": metric.regex} for metric in METRICS]
