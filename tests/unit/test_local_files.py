"""SageMaker's files, as the local runner writes them."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from infra.local.console import Event
from infra.local.files import head_of, hosts_of, name_table, read_failure, resource_config, write_ml
from infra.local.host import Host
from infra.local.limits import CpuSets
from infra.local.network import address_of
from infra.local.outcome import JobOutcome
from infra.local.plan import LocalJob, host_spec, write_host_directory
from training.contract import InstanceGroup, RunConfig, TrainingConfig

CASES = Path(__file__).resolve().parents[1] / "cases" / "resourceconfig"
CPU = InstanceGroup(name="cpu", instance_type="ml.c5.4xlarge", instance_count=2)
GPU = InstanceGroup(name="gpu", instance_type="ml.g5.xlarge")
MANY = InstanceGroup(name="many", instance_type="ml.m5.large", instance_count=10)


def _config(*groups: InstanceGroup, head_group: str | None = None) -> RunConfig:
    return RunConfig(instance_groups=groups, training=TrainingConfig(head_group=head_group))


def test_hosts_are_numbered_through_the_groups() -> None:
    assert [host.label for host in hosts_of(_config(CPU, GPU))] == ["cpu/algo-1", "cpu/algo-2", "gpu/algo-3"]


@pytest.mark.parametrize(
    ("config", "head"),
    [
        (_config(GPU, CPU), "algo-1"),
        (_config(CPU, GPU), "algo-3"),
        (_config(CPU, GPU, head_group="cpu"), "algo-1"),
        (_config(CPU), "algo-1"),
    ],
)
def test_the_head_is_the_first_host_of_the_head_group(config: RunConfig, head: str) -> None:
    assert head_of(config).name == head


def test_resource_config_has_the_shape_of_the_recorded_cases() -> None:
    recorded = json.loads((CASES / "rc03_unsorted_group_hosts" / "algo-1.json").read_text())
    config = _config(CPU, GPU)
    ours = resource_config(config, hosts_of(config)[0])
    assert list(ours) == list(recorded)
    assert json.loads(json.dumps(ours))["instance_groups"] == [
        {"instance_group_name": "cpu", "instance_type": "ml.c5.4xlarge", "hosts": ["algo-2", "algo-1"]},
        {"instance_group_name": "gpu", "instance_type": "ml.g5.xlarge", "hosts": ["algo-3"]},
    ]
    assert ours["current_host"] == "algo-1"
    assert ours["current_group_name"] == "cpu"
    assert ours["current_instance_type"] == "ml.c5.4xlarge"


def test_hosts_are_sorted_as_text() -> None:
    config = _config(MANY)
    assert resource_config(config, hosts_of(config)[0])["hosts"] == [
        "algo-1",
        "algo-10",
        *(f"algo-{number}" for number in range(2, 10)),
    ]


def test_a_host_directory_is_complete(tmp_path: Path) -> None:
    config = _config(GPU)
    write_ml(tmp_path, config, hosts_of(config)[0], {"training": tmp_path})
    assert (tmp_path / "input/data/training").is_dir()
    for name in ("model", "output/data"):
        assert (tmp_path / name).is_dir()
    assert not (tmp_path / "checkpoints").exists(), "the platform makes it where it keeps checkpoints"
    hyperparameters = json.loads((tmp_path / "input/config/hyperparameters.json").read_text())
    assert TrainingConfig.from_hyperparameters(hyperparameters) == config.training
    assert json.loads((tmp_path / "input/config/inputdataconfig.json").read_text()) == {
        "training": {
            "TrainingInputMode": "File",
            "S3DistributionType": "FullyReplicated",
            "RecordWrapperType": "None",
        }
    }


def test_a_second_run_keeps_what_there_is_and_forgets_the_failure(tmp_path: Path) -> None:
    config = _config(GPU)
    write_ml(tmp_path, config, hosts_of(config)[0], {})
    (tmp_path / "output/failure").write_text("an old one")
    (tmp_path / "model/step").write_text("100")
    write_ml(tmp_path, config, hosts_of(config)[0], {})
    assert read_failure(tmp_path) is None
    assert (tmp_path / "model/step").exists()


def test_a_failure_is_cut_and_any_bytes_are_text(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    (tmp_path / "output/failure").write_bytes(b"\xff" + b"x" * 2000)
    assert read_failure(tmp_path) == "\ufffd" + "x" * 1023
    (tmp_path / "output/failure").write_bytes(b"")
    assert read_failure(tmp_path) is None


def test_the_name_table_names_hosts_by_address() -> None:
    assert name_table(hosts_of(_config(GPU, CPU))[1:]) == (
        "127.0.0.1 localhost\n::1 localhost\n10.117.0.2 algo-2\n10.117.0.3 algo-3\n"
    )


def test_addresses_stay_valid_and_different() -> None:
    addresses = [address_of(index) for index in range(5000)]
    assert len(set(addresses)) == 5000
    assert all(1 <= int(address.split(".")[3]) <= 250 for address in addresses)


def test_shares_change_by_event_and_a_host_goes_before_its_group(tmp_path: Path) -> None:
    shares: dict[str, dict[str, float | None]] = {
        "first_step": {"gpu": 0.5, "cpu": 1.5},
        "half_way": {"algo-2": 0.75},
        "last_step": {"cpu": None, "algo-1": 0.25},
        "start": {"cpu": 2.0},
    }
    job = LocalJob(config=_config(CPU, GPU), job_dir=tmp_path, cpu_share_at=shares)
    one, two, gpu = (list(job.shares_of(host).items()) for host in hosts_of(job.config))
    assert one == [("start", 2.0), ("first_step", 1.5), ("last_step", 0.25)]
    assert two == [("start", 2.0), ("first_step", 1.5), ("half_way", 0.75), ("last_step", None)]
    assert gpu == [("start", None), ("first_step", 0.5)]


def test_every_host_finds_the_checkpoints_of_an_earlier_job_if_any_are_kept(tmp_path: Path) -> None:
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    (earlier / "step-4").write_text("4")
    config = _config(CPU, GPU)
    keeping = LocalJob(config=config, job_dir=tmp_path / "keeping", checkpoints=earlier)
    careless = LocalJob(config=config, job_dir=tmp_path / "careless")
    for identity in hosts_of(config):
        for job in (keeping, careless):
            write_host_directory(job, identity)
        assert (keeping.ml_dir(identity.name) / "checkpoints" / "step-4").read_text() == "4"
        assert not (careless.ml_dir(identity.name) / "checkpoints").exists()


def _ended(job: LocalJob, number: int, exit_code: int) -> Host:
    identity = hosts_of(job.config)[number - 1]
    limits = CpuSets([0], "a test").add_host(identity.name, [None])
    host = Host(identity, host_spec(job, identity, limits, "0" * 64), limits, job.log_file(identity.name))
    host.exit_code = exit_code
    write_ml(job.ml_dir(identity.name), job.config, identity, {})
    return host


def _outcome(job: LocalJob, *hosts: Host, stop_reason: str | None = None) -> JobOutcome:
    events = [Event("algo-1", "first_step", {}, 2.0), Event("algo-1", "last_step", {}, 8.0)]
    return JobOutcome.of(job, hosts, events, stop_reason, datetime.now(UTC), 10.0, CpuSets([0], "a test"))


def test_the_outcome_is_sagemakers(tmp_path: Path) -> None:
    job = LocalJob(config=_config(CPU, GPU), job_dir=tmp_path)
    outcome = _outcome(job, _ended(job, 1, 0), _ended(job, 2, 0), _ended(job, 3, 0))
    assert outcome.status == "Completed"
    assert outcome.failure is None
    assert outcome.head == "algo-3"
    assert outcome.model_dir == tmp_path / "algo-3/ml/model"
    assert outcome.seconds_to("first_step") == 2.0
    assert outcome.seconds_to("never") is None
    assert outcome.last_step_to_end_seconds == 2.0


def test_a_stopped_job_is_stopped_whatever_its_codes(tmp_path: Path) -> None:
    job = LocalJob(config=_config(GPU), job_dir=tmp_path)
    assert _outcome(job, _ended(job, 1, 137), stop_reason="signal SIGINT").status == "Stopped"


def test_the_failure_is_the_heads_or_the_first(tmp_path: Path) -> None:
    job = LocalJob(config=_config(CPU, GPU), job_dir=tmp_path)
    hosts = [_ended(job, 2, 1), _ended(job, 1, 1), _ended(job, 3, 1)]
    assert _outcome(job, *hosts).failure == (
        f"algo-3 ended with exit code 1 and wrote no failure file; its log is {tmp_path / 'algo-3.log'}"
    )
    (job.ml_dir("algo-1") / "output/failure").write_text("one")
    assert _outcome(job, *hosts).failure == "one"
    (job.ml_dir("algo-2") / "output/failure").write_text("two")
    assert _outcome(job, *hosts).failure == "two"
    (job.ml_dir("algo-3") / "output/failure").write_text("three")
    assert _outcome(job, *hosts).failure == "three"
    hosts[2].exit_code = 0
    assert _outcome(job, *hosts).failure == "two"
