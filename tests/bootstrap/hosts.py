"""A host's context without reading a machine."""

from pathlib import Path

from container.bootstrap.addresses import OwnAddress
from container.bootstrap.cluster import Cluster, Host
from container.bootstrap.environment import JobPaths
from container.bootstrap.host import HostContext
from container.bootstrap.telemetry import HostMeter
from container.bootstrap.token import Token
from tests.bootstrap.job import TOKEN
from training.contract import TrainingConfig

GPU = Host(name="algo-1", group="gpu", instance_type="ml.g5.xlarge")
CPU = Host(name="algo-2", group="cpu", instance_type="ml.c5.4xlarge")
SECOND_GPU = Host(name="algo-3", group="gpu", instance_type="ml.g5.xlarge")


def host_context(
    directory: Path,
    *hosts: Host,
    current: str = "algo-1",
    head: str = "algo-1",
    config: TrainingConfig | None = None,
    environ: dict[str, str] | None = None,
) -> HostContext:
    """What the host `current` of a job of `hosts` knows; all its folders are below `directory`."""
    proc_cgroup = directory / "cgroup"
    proc_cgroup.write_text("")
    for name in ("ml/model", "runtime"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    return HostContext(
        cluster=Cluster(hosts=hosts or (GPU,), head=head, current=current, interface="eth0"),
        config=config or TrainingConfig(),
        paths=JobPaths(base=directory / "ml"),
        runtime_dir=directory / "runtime",
        token=Token(value=TOKEN, path=directory / "ray_token"),
        own=OwnAddress(address="10.0.0.1", interface="eth1"),
        meter=HostMeter(proc_cgroup=proc_cgroup, root=directory / "none"),
        user=None,
        environ=environ or {},
    )
