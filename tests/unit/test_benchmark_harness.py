"""Arithmetic of the benchmarks' harness, on outcomes that are written down."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.benchmarks import harness
from tests.benchmarks.accelerator import Accelerator
from tests.benchmarks.cluster_job import reporting
from tests.benchmarks.harness import Job, Run, in_turns
from tests.benchmarks.virtual_cluster import NIC_BITS_PER_SECOND, article_cluster
from tests.cluster import local_runner


def event(name: str, seconds: float, **cpu_seconds: float) -> dict[str, Any]:
    usage = {
        host: {"cpu_seconds": value, "bytes_sent": int(10 * value), "bytes_received": int(100 * value)}
        for host, value in cpu_seconds.items()
    }
    return {"host": "h1", "name": name, "fields": {}, "seconds_since_launch": seconds, "usage": usage}


RUN = Run(
    {
        "status": "Completed",
        "limits": "none",
        "events": [
            event("first_step", 10.0, h1=3.0, h2=5.0),
            event("step", 12.0),
            event("first_step", 13.0, h1=9.0, h2=9.0),  # another job's, or a second rank's: the first one counts
            event("last_step", 20.0, h1=4.0, h3=1.0),
        ],
    }
)


def test_a_phase_is_the_difference_of_two_events() -> None:
    phase = RUN.between("first_step", "last_step")
    assert phase.seconds == 10.0
    assert phase.cpu_seconds == {"h1": 1.0}, "only hosts that ran at both events"
    assert (phase.bytes_sent, phase.bytes_received) == ({"h1": 10}, {"h1": 100})
    assert RUN.seconds_to("first_step") == 10.0


def test_a_missing_event_is_named() -> None:
    with pytest.raises(AssertionError, match=r"no event half_way, only .*'first_step'"):
        RUN.between("first_step", "half_way")


def test_a_cluster_is_what_the_local_runner_takes() -> None:
    cluster = article_cluster(
        num_cpu_hosts=3,
        gpu_cores=0.4,
        cpu_cores=3.6,
        nic_bits_per_second=NIC_BITS_PER_SECOND,
        changes={"half_way": {"algo-3": 0.6}},
    )
    assert cluster.options() == {
        "groups": [["gpu", "ml.g5.xlarge", 1], ["cpu", "ml.c5.4xlarge", 3]],
        "cpu_share_at": {
            "start": {"gpu": 1, "cpu": 2},
            "first_step": {"gpu": 0.4, "cpu": pytest.approx(1.2)},
            "half_way": {"algo-3": 0.6},
        },
        "nic_bits_per_second": NIC_BITS_PER_SECOND,
    }
    assert cluster.hosts_of("cpu") == ("algo-2", "algo-3", "algo-4")


def test_clusters_of_any_size_have_the_same_total() -> None:
    totals = []
    for num_cpu_hosts in (1, 3, 7, 15):
        groups = article_cluster(num_cpu_hosts=num_cpu_hosts).groups
        totals.append(sum(group.count * (group.cores or 0) for group in groups))
    assert totals == pytest.approx([totals[0]] * 4)


def test_an_accelerator_survives_the_environment() -> None:
    for accelerator in (Accelerator(step_seconds=0.25), Accelerator(step_seconds=0.0, half_way_step=7)):
        assert Accelerator.of(accelerator.environment()) == accelerator


def test_half_way_is_told_once_after_its_step() -> None:
    told: list[str] = []
    rank = SimpleNamespace(events=SimpleNamespace(emit=told.append))
    report = reporting(
        lambda _rank, step, _loss: told.append(f"step {step}"), Accelerator(step_seconds=0, half_way_step=2)
    )
    for step in range(1, 4):
        report(rank, step, None)
    assert told == ["step 1", "step 2", "half_way", "step 3"]


def test_contenders_run_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str, dict[str, str]]] = []

    def run(job_dir: Path, *, command: list[str], **options: Any) -> tuple[dict[str, Any], str]:
        job_dir.mkdir()
        calls.append((job_dir.name, command[2], options["environment"]))
        return {**RUN.outcome, "number": len(calls)}, ""

    monkeypatch.setattr(local_runner, "run", run)
    monkeypatch.setenv(harness.ROUNDS_VARIABLE, "2")
    accelerator = Accelerator(step_seconds=0.5)
    jobs = {
        "ours": Job(cluster=article_cluster(), accelerator=accelerator),
        "plain": Job(cluster=article_cluster(), options={"environment": {"A": "1"}}),
        "other": Job(cluster=article_cluster(), command=["python", "-m", "theirs", "train"]),
    }
    measured = in_turns(jobs, lambda run: {"number": run.outcome["number"]}, tmp_path)
    assert [name for name, *_ in calls] == ["ours0", "plain0", "other0", "ours1", "plain1", "other1"]
    assert [module for _, module, _ in calls[:3]] == ["tests.benchmarks.cluster_job", "container.bootstrap", "theirs"]
    assert [environment for *_, environment in calls[:2]] == [accelerator.environment(), {"A": "1"}]
    assert measured.values("number", "plain") == [2, 5]
    assert measured.ratios("number", "other", "ours") == [3.0, 6 / 4]
    assert measured.conditions["limits"] == "none"
    assert measured.conditions["contenders"]["other"]["program"] == "python -m theirs train"
    assert list(tmp_path.iterdir()) == [], "folders of jobs are removed"


def test_a_failed_job_is_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_runner, "run", lambda *_, **__: ({"status": "Failed"}, "why it failed"))
    with pytest.raises(AssertionError, match="why it failed"):
        Job(cluster=article_cluster()).run(tmp_path)
