"""SageMaker's files of every host, written from the configuration of a run."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.local.network import INTERFACE, address_of
from training.contract import RunConfig

_DIRECTORIES = ("input/config", "input/data", "model", "output/data", "code")


@dataclass(frozen=True)
class HostIdentity:
    """One instance of the job: its number counts through all groups in their order, from 0."""

    index: int
    group: str
    instance_type: str

    @property
    def name(self) -> str:
        """SageMaker's name of the host: algo-1, algo-2 and so on."""
        return f"algo-{self.index + 1}"

    @property
    def label(self) -> str:
        """The host with its group, for people: gpu/algo-1."""
        return f"{self.group}/{self.name}"


def hosts_of(config: RunConfig) -> tuple[HostIdentity, ...]:
    """The hosts of a run, in the order of its groups."""
    groups = [group for group in config.instance_groups for _ in range(group.instance_count)]
    return tuple(HostIdentity(index, group.name, group.instance_type) for index, group in enumerate(groups))


def head_of(config: RunConfig) -> HostIdentity:
    """The host that is expected to run the training: the first of the head group, whose files are the job's result."""
    accelerated = [group.name for group in config.instance_groups if group.has_accelerator]
    group = config.training.head_group or (accelerated or [config.instance_groups[0].name])[0]
    return next(host for host in hosts_of(config) if host.group == group)


def resource_config(config: RunConfig, current: HostIdentity) -> dict[str, object]:
    """The content of resourceconfig.json on one host; names are sorted as text, but not inside a group, as on AWS."""
    hosts = hosts_of(config)
    return {
        "current_host": current.name,
        "current_instance_type": current.instance_type,
        "current_group_name": current.group,
        "hosts": sorted(host.name for host in hosts),
        "instance_groups": [
            {
                "instance_group_name": group.name,
                "instance_type": group.instance_type,
                "hosts": [host.name for host in reversed(hosts) if host.group == group.name],
            }
            for group in config.instance_groups
        ],
        "network_interface_name": INTERFACE,
    }


def input_data_config(channels: Iterable[str]) -> dict[str, object]:
    """The content of inputdataconfig.json."""
    channel = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
    return dict.fromkeys(channels, channel)


def name_table(hosts: Sequence[HostIdentity]) -> str:
    """The content of /etc/hosts that resolves these hosts and nobody else."""
    lines = ["127.0.0.1 localhost", "::1 localhost", *(f"{address_of(host.index)} {host.name}" for host in hosts)]
    return "\n".join(lines) + "\n"


def write_ml(directory: Path, config: RunConfig, current: HostIdentity, channels: Mapping[str, Path]) -> None:
    """Lays out one host's /opt/ml in `directory`; what an earlier run left there stays, but for its failure."""
    for name in (*_DIRECTORIES, *(f"input/data/{channel}" for channel in channels)):
        (directory / name).mkdir(parents=True, exist_ok=True)
    (directory / "output/failure").unlink(missing_ok=True)
    contents = {
        "resourceconfig": resource_config(config, current),
        "hyperparameters": config.training.to_hyperparameters(),
        "inputdataconfig": input_data_config(channels),
    }
    for name, content in contents.items():
        (directory / f"input/config/{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def read_failure(directory: Path, max_characters: int = 1024) -> str | None:
    """The start of a host's failure file, as much as SageMaker shows, or None if it wrote none."""
    try:
        return (directory / "output/failure").read_text(errors="replace")[:max_characters] or None
    except OSError:
        return None
