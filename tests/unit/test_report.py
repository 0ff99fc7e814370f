"""The Results table and results.json, from two arms whose figures are known."""

from dataclasses import replace
from typing import Any

import pytest

from training.advisor.article import load_article
from training.report import Arm, Comparison, notes, results_rows, to_markdown

VERSIONS = {"python": "3.11.2", "ray": "2.60.0"}


def host(name: str, group: str, **values: Any) -> dict[str, Any]:
    return {
        "name": name,
        "group": group,
        "instance_type": "ml.g5.xlarge",
        "rows": 640,
        "row_share": 0.25,
        "cpu_cores_used": 0.3,
        "cpu_cores": 0.38,
        "cpu_share_used": 0.79,
        "accelerator_share": None,
        "peak_memory_bytes": 1_500_000_000,
        **values,
    }


BALANCE = {
    "balance_all_hosts": 190.0,
    "balance_cpu_hosts": 100.0,
    "balance_all_hosts_cores": 9.0,
    "balance_cpu_hosts_cores": 5.0,
}


def arm(name: str, images_per_second: float, price: float, hosts: list[dict[str, Any]]) -> Arm:
    step_seconds = 32 / images_per_second
    return Arm(
        name=name,
        results={
            "headline": {
                "images_per_second": images_per_second,
                "step_seconds": step_seconds,
                "data_wait_seconds": step_seconds * 0.8,
                "compute_seconds": step_seconds * 0.2,
                "data_wait_share": 0.8,
                "steps": 40,
                **({} if name == "baseline" else BALANCE),
            },
            "config": {"batch_size": 32},
            "cpu_seconds_per_row": 0.04,
            "hosts": hosts,
            "versions": VERSIONS,
        },
        price_usd_per_hour=price,
        first_step_seconds=41.4,
        teardown_seconds=3.25,
    )


GPU, CPU = host("algo-1", "gpu"), host("algo-2", "cpu", row_share=0.75, cpu_share_used=None)
COMPARISON = Comparison(
    baseline=arm("baseline", 100.0, 1.408, [GPU]),
    heterogeneous=arm("heterogeneous", 194.0, 2.224, [GPU, CPU]),
    article=load_article(),
    conditions={"date": "2026-11-30", "machine": "two cores"},
)


def test_the_articles_numbers_give_the_articles_result() -> None:
    assert COMPARISON.speedup == pytest.approx(1.94)
    assert COMPARISON.price_performance == pytest.approx(1.94 * 1.408 / 2.224)
    assert round(COMPARISON.price_performance, 2) == 1.23 == COMPARISON.article.price_performance


def test_price_performance_is_images_per_dollar() -> None:
    slower = replace(COMPARISON, heterogeneous=arm("heterogeneous", 100.0, 2 * 1.408, [GPU, CPU]))
    assert (slower.speedup, slower.price_performance) == (1.0, 0.5)


def test_balance_compares_with_what_the_hosts_reach_alone() -> None:
    result = COMPARISON.to_json()
    assert (result["balance"]["together"], result["balance"]["cpu_hosts"], result["balance"]["gpu_hosts"]) == (
        190,
        100,
        100,
    )
    assert result["balance_efficiency"] == pytest.approx(190.0 / (100.0 + 100.0))


def test_balance_in_cores_leaves_the_machines_speed_out() -> None:
    # The baseline's 100 images/s at 0.04 CPU seconds each are 4 cores at work.
    assert COMPARISON.to_json()["balance_at_equal_speed"] == pytest.approx(9.0 / (5.0 + 4.0))


def test_without_turns_nothing_is_said_of_balance() -> None:
    unmeasured = replace(COMPARISON, heterogeneous=COMPARISON.baseline)
    assert unmeasured.to_json()["balance_efficiency"] is None
    assert not any("Balance" in note for note in notes(unmeasured))


def test_cost_is_time_by_price() -> None:
    assert COMPARISON.baseline.cost_per_1000_steps == pytest.approx(0.32 * 1000 * 1.408 / 3600)


def test_the_json_holds_every_figure() -> None:
    result = COMPARISON.to_json()
    assert [entry["name"] for entry in result["arms"]] == ["baseline", "heterogeneous"]
    for entry in result["arms"]:
        assert {"name", "images_per_second", "step_seconds", "data_wait_share", "hosts"} <= set(entry)
        assert {"first_step_seconds", "teardown_seconds", "price_usd_per_hour"} <= set(entry)
        for row in entry["hosts"]:
            assert {"name", "group", "rows", "cpu_share_used", "peak_memory_bytes"} <= set(row)
    assert result["speedup"] == COMPARISON.speedup
    assert result["price_performance"] == COMPARISON.price_performance
    assert (result["first_step_seconds"], result["teardown_seconds"]) == (41.4, 3.25)
    assert result["versions"] == VERSIONS
    assert result["peak_memory_bytes"] == 3_000_000_000


def test_the_table_shows_both_arms() -> None:
    rows = {name: cells for name, *cells in results_rows(COMPARISON)}
    assert rows["step time"] == ["0.320 s", "0.165 s"]
    assert rows["images per second"] == ["100.0", "194.0"]
    assert rows["waiting for data"] == ["80% of the step", "80% of the step"]
    assert rows["gpu host algo-1"] == ["25% of rows, 79% of 0.38 cores busy"] * 2
    assert rows["cpu host algo-2"] == ["-", "75% of rows, CPU not sampled"]
    assert rows["accelerator use"] == ["no device", "no device"]
    assert rows["price"] == ["$1.408 per hour", "$2.224 per hour"]
    assert rows["throughput against baseline"] == ["1.00", "1.94"]
    assert rows["price-performance against baseline"] == ["1.00", "1.23"]
    assert rows["peak memory, all hosts"] == ["1.5 GB", "3.0 GB"]


def test_accelerator_use_is_the_mean_of_the_hosts_that_have_one() -> None:
    hosts = [host("algo-1", "gpu", accelerator_share=0.5), host("algo-2", "gpu", accelerator_share=0.7), CPU]
    comparison = replace(COMPARISON, heterogeneous=arm("heterogeneous", 194.0, 2.224, hosts))
    assert ("accelerator use", "no device", "60%") in results_rows(comparison)


def test_the_markdown_is_well_formed() -> None:
    table, _, rest = to_markdown(COMPARISON).partition("\n\n")
    lines = table.splitlines()
    assert {line.count("|") for line in lines} == {4}
    assert lines[1] == "| --- | --- | --- |"
    assert len(lines) == len(results_rows(COMPARISON)) + 2
    assert all(line.startswith("- ") for line in rest.splitlines())
    assert rest.endswith("\n")


def test_the_notes_keep_the_articles_figures_apart() -> None:
    texts = notes(COMPARISON)
    assert "Balance: 0.95 of the sum. Together the hosts reached 190.0 images/s" in texts[0]
    assert "machine: two cores" in texts
    assert "not measured here" in texts[-1]
    assert "1.94" in texts[-1]
    assert "2026-09-27" in texts[-2]
