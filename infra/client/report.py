"""`counterpoise report`: fetches the report of an execution and prints its Results table."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from infra.client.errors import AwsError, BadInput, ExitCode, JobFailed
from infra.client.executions import find_execution
from infra.client.report_files import read_report, write_files
from infra.client.session import Session

Arm = Mapping[str, Any]
ARMS = ("train", "baseline", "heterogeneous")
_UNKNOWN = "-"


def report(session: Session, reference: str | None, folder: Path | None) -> ExitCode:
    """Download the report of an execution into `folder` (None: runs/<name>) and show it.

    Raises:
        BadInput: there is no such execution, it still runs, or the folder cannot be written.
        JobFailed: it failed and has no report.
        AwsError: the report cannot be read.
    """
    execution = find_execution(session.aws, session.stack, reference)
    if execution.is_running:
        raise BadInput(f"execution {execution.name} still runs; wait for it: `counterpoise wait {execution.name}`")
    if not execution.has_succeeded:
        raise JobFailed(execution.failure)
    uri = (execution.output or {}).get("report")
    if not uri:
        raise AwsError(
            f"execution {execution.name} names no report; its output: `counterpoise status {execution.name}`"
        )
    content = read_report(session.aws, uri)
    document = json.loads(content)
    files = write_files(session.aws, session.screen, content, document["arms"], folder or Path("runs") / execution.name)
    session.screen.result(document)
    session.screen.show(results_table(document))
    for name, arm in document["arms"].items():
        session.screen.show(*(f"{key} ({name}): {arm[key]}" for key in ("note", "model", "logs") if arm.get(key)))
    session.screen.note(*(f"written: {file}" for file in files))
    return ExitCode.OK


def results_table(document: Mapping[str, Any]) -> Table:
    """The Results table: a column for each arm; rows that no arm has a figure for are left out."""
    arms: Mapping[str, Arm] = {name: document["arms"][name] for name in ARMS if name in document["arms"]}
    table = Table(title="Results", title_justify="left")
    for heading in ("", *arms):
        table.add_column(heading)
    for name, cell in _ROWS:
        cells = [cell(arm) for arm in arms.values()]
        if any(text != _UNKNOWN for text in cells):
            table.add_row(name, *cells)
    results = document.get("results") or {}
    for name, key in (("throughput", "speedup"), ("price-performance", "price_performance")):
        if results.get(key) is not None:
            table.add_row(f"{name} against baseline", "1.00", f"{results[key]:.2f}")
    return table


def _figure(form: Callable[[float], str], *path: str) -> Callable[[Arm], str]:
    """Shows one figure of an arm, found by its path."""

    def show(arm: Arm) -> str:
        value: Any = arm
        for key in path:
            value = (value or {}).get(key)
        return _UNKNOWN if value is None else form(float(value))

    return show


def _share(value: float) -> str:
    return f"{value:.0%}"


def _cost_of_1000_steps(arm: Arm) -> str:
    step_seconds, price = arm["metrics"].get("step_seconds"), arm.get("price_usd_per_hour")
    return _UNKNOWN if step_seconds is None or price is None else f"${step_seconds * 1000 / 3600 * price:.3f}"


_ROWS: tuple[tuple[str, Callable[[Arm], str]], ...] = (
    ("step time", _figure("{:.3f} s".format, "metrics", "step_seconds")),
    ("images per second", _figure("{:.1f}".format, "metrics", "images_per_second")),
    ("waiting for data", _figure("{:.0%} of the step".format, "metrics", "data_wait_share")),
    ("rows from CPU hosts", _figure(_share, "metrics", "cpu_hosts_row_share")),
    ("CPU use of GPU hosts", _figure(_share, "metrics", "gpu_hosts_cpu_use")),
    ("CPU use of CPU hosts", _figure(_share, "metrics", "cpu_hosts_cpu_use")),
    ("accelerator use", _figure(_share, "metrics", "accelerator_use")),
    ("loss", _figure("{:.4f}".format, "metrics", "loss")),
    ("accuracy on held-out rows", _figure("{:.1%}".format, "metrics", "validation_accuracy")),
    ("peak memory, all hosts", _figure("{:.1f} GB".format, "metrics", "peak_memory_gb")),
    ("billed", _figure("{:.0f} s".format, "billable_seconds")),
    ("saved by spot capacity", _figure(_share, "spot", "savings_share")),
    ("interruptions", _figure("{:.0f}".format, "spot", "interruptions")),
    ("price", _figure("${:.3f} per hour".format, "price_usd_per_hour")),
    ("cost of the job", _figure("${:.3f}".format, "cost_usd")),
    ("cost of 1,000 steps", _cost_of_1000_steps),
)
