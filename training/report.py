"""The Results table: two arms of one run side by side, with their cost, from what each measured. Pure functions."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from training.advisor.article import Article

BASELINE, HETEROGENEOUS = "baseline", "heterogeneous"


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One arm. `results` is its results.json, whose headline has the figures as SageMaker keeps them; prices in USD.

    First step: seconds from the launch of its hosts. Teardown: seconds from the last batch to the end of the last host.
    """

    name: str
    results: Mapping[str, Any]
    price_usd_per_hour: float
    first_step_seconds: float
    teardown_seconds: float

    @property
    def images_per_second(self) -> float:
        """Images trained on per second, between the first and the last step."""
        return float(self.results["headline"]["images_per_second"])

    @property
    def cost_per_1000_steps(self) -> float:
        """USD for 1,000 steps at the measured step time, without start and end."""
        return float(self.results["headline"]["step_seconds"]) * 1000 / 3600 * self.price_usd_per_hour

    def to_json(self) -> dict[str, Any]:
        """The figures of this arm as runs/latest/results.json holds them."""
        return {
            "name": self.name,
            **self.results["headline"],
            "cpu_seconds_per_row": self.results["cpu_seconds_per_row"],
            "batch_size": self.results["config"]["batch_size"],
            "first_step_seconds": self.first_step_seconds,
            "teardown_seconds": self.teardown_seconds,
            "price_usd_per_hour": self.price_usd_per_hour,
            "cost_per_1000_steps_usd": self.cost_per_1000_steps,
            "hosts": self.results["hosts"],
        }


@dataclass(frozen=True, kw_only=True)
class Balance:
    """What all hosts reach together, what the CPU hosts reach alone, and what the GPU hosts reach alone, the baseline.

    In images per second, and in cores that prepare images: a shared machine changes its speed between the arms.
    """

    together: float
    cpu_hosts: float
    gpu_hosts: float
    together_cores: float
    cpu_hosts_cores: float
    gpu_hosts_cores: float

    @property
    def efficiency(self) -> float:
        """Throughput over the sum of what the hosts reach alone; 1.0 loses nothing to balancing."""
        return self.together / (self.cpu_hosts + self.gpu_hosts)

    @property
    def efficiency_at_equal_speed(self) -> float:
        """The same in cores at work, which leaves the machine's speed out."""
        return self.together_cores / (self.cpu_hosts_cores + self.gpu_hosts_cores)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The heterogeneous arm against the baseline."""

    baseline: Arm
    heterogeneous: Arm
    article: Article
    conditions: Mapping[str, Any]

    @property
    def speedup(self) -> float:
        """Throughput over the baseline's."""
        return self.heterogeneous.images_per_second / self.baseline.images_per_second

    @property
    def price_performance(self) -> float:
        """Images per dollar over the baseline's: the speed-up divided by the ratio of prices."""
        return self.speedup * self.baseline.price_usd_per_hour / self.heterogeneous.price_usd_per_hour

    @property
    def balance(self) -> "Balance | None":
        """How well the hosts shared the work; None where the heterogeneous arm did not measure it."""
        figures = self.heterogeneous.results["headline"]
        if "balance_all_hosts" not in figures:
            return None
        return Balance(
            together=figures["balance_all_hosts"],
            cpu_hosts=figures["balance_cpu_hosts"],
            gpu_hosts=self.baseline.images_per_second,
            together_cores=figures["balance_all_hosts_cores"],
            cpu_hosts_cores=figures["balance_cpu_hosts_cores"],
            gpu_hosts_cores=self.baseline.images_per_second * self.baseline.results["cpu_seconds_per_row"],
        )

    def to_json(self) -> dict[str, Any]:
        """Everything, for runs/latest/results.json."""
        return {
            "arms": [self.baseline.to_json(), self.heterogeneous.to_json()],
            "balance": self.balance and asdict(self.balance),
            "balance_efficiency": self.balance and self.balance.efficiency,
            "balance_at_equal_speed": self.balance and self.balance.efficiency_at_equal_speed,
            "speedup": self.speedup,
            "price_performance": self.price_performance,
            "first_step_seconds": self.heterogeneous.first_step_seconds,
            "teardown_seconds": self.heterogeneous.teardown_seconds,
            "peak_memory_bytes": sum(host["peak_memory_bytes"] for host in self.heterogeneous.results["hosts"]),
            "versions": self.heterogeneous.results["versions"],
            "conditions": dict(self.conditions),
            "article": {
                "price_ratio": self.article.price_ratio,
                "throughput_ratio": self.article.throughput_ratio,
                "price_performance": self.article.price_performance,
            },
        }


def results_rows(comparison: Comparison) -> list[tuple[str, str, str]]:
    """The Results table: what, baseline, heterogeneous; every cell is text that a person reads."""
    arms = (comparison.baseline, comparison.heterogeneous)
    return [
        _row("step time", [f"{arm.results['headline']['step_seconds']:.3f} s" for arm in arms]),
        _row("images per second", [f"{arm.images_per_second:.1f}" for arm in arms]),
        _row("waiting for data", [f"{arm.results['headline']['data_wait_share']:.0%} of the step" for arm in arms]),
        *_host_rows(arms),
        _row("accelerator use", [_accelerator(arm) for arm in arms]),
        _row("price", [f"${arm.price_usd_per_hour:.3f} per hour" for arm in arms]),
        _row("cost of 1,000 steps", [f"${arm.cost_per_1000_steps:.3f}" for arm in arms]),
        ("throughput against baseline", "1.00", f"{comparison.speedup:.2f}"),
        ("price-performance against baseline", "1.00", f"{comparison.price_performance:.2f}"),
        _row("launch to first step", [f"{arm.first_step_seconds:.0f} s" for arm in arms]),
        _row("last step to all hosts gone", [f"{arm.teardown_seconds:.1f} s" for arm in arms]),
        _row("peak memory, all hosts", [_gigabytes(_total_memory(arm)) for arm in arms]),
    ]


def notes(comparison: Comparison) -> list[str]:
    """What has to stand beside the table: balance, conditions, and the article's figures under its own name."""
    article = comparison.article
    balance = comparison.balance
    return [
        *([] if balance is None else [_balance_note(balance)]),
        *(f"{key}: {value}" for key, value in comparison.conditions.items()),
        f"Prices: the article's instance types, USD per hour in {article.region}, read {article.prices_read}.",
        (
            f"The article's own figures ({article.published}, on AWS, not measured here): throughput "
            f"{article.throughput_ratio:.2f}, price {article.price_ratio:.2f}, "
            f"price-performance {article.price_performance:.2f}."
        ),
    ]


def _balance_note(balance: Balance) -> str:
    return (
        f"Balance: {balance.efficiency:.2f} of the sum. Together the hosts reached {balance.together:.1f} images/s; "
        f"alone, in turns with that, the CPU hosts {balance.cpu_hosts:.1f}, and the GPU hosts {balance.gpu_hosts:.1f}, "
        f"the baseline. In cores at work, which leaves the changing speed of a shared machine out: "
        f"{balance.efficiency_at_equal_speed:.2f} ({balance.together_cores:.2f} of {balance.cpu_hosts_cores:.2f} + "
        f"{balance.gpu_hosts_cores:.2f})."
    )


def to_markdown(comparison: Comparison) -> str:
    """The table and its notes as Markdown."""
    lines = ["| | baseline | heterogeneous |", "| --- | --- | --- |"]
    lines += [f"| {' | '.join(row)} |" for row in results_rows(comparison)]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes(comparison)), ""])


def _row(name: str, cells: Iterable[str]) -> tuple[str, str, str]:
    first, second = cells
    return (name, first, second)


def _host_rows(arms: tuple[Arm, Arm]) -> list[tuple[str, str, str]]:
    """For every host of either arm: its share of the rows and of its CPU time that was used."""
    names = list(dict.fromkeys(host["name"] for arm in arms for host in arm.results["hosts"]))
    rows = []
    for name in names:
        hosts = [next((host for host in arm.results["hosts"] if host["name"] == name), None) for arm in arms]
        group = next(host["group"] for host in hosts if host)
        rows.append(_row(f"{group} host {name}", [_host_cell(host) for host in hosts]))
    return rows


def _host_cell(host: Mapping[str, Any] | None) -> str:
    if host is None:
        return "-"
    used = host["cpu_share_used"]
    share = "CPU not sampled" if used is None else f"{used:.0%} of {host['cpu_cores']:.2f} cores busy"
    return f"{host['row_share']:.0%} of rows, {share}"


def _accelerator(arm: Arm) -> str:
    shares = [host["accelerator_share"] for host in arm.results["hosts"] if host["accelerator_share"] is not None]
    return f"{sum(shares) / len(shares):.0%}" if shares else "no device"


def _total_memory(arm: Arm) -> int:
    return sum(int(host["peak_memory_bytes"]) for host in arm.results["hosts"])


def _gigabytes(count_bytes: int) -> str:
    return f"{count_bytes / 1e9:.1f} GB"
