"""The adapter to SageMaker's files: the only module that knows sagemaker_training.

`Environment()` reads, guesses and even creates folders as soon as it is imported. So the import happens in one
function, after the base folder has been pinned by an environment variable, and everything it finds leaves here as
plain values.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from container.bootstrap.cluster import Cluster, Host, elect_head
from container.bootstrap.errors import BAD_INPUT, HostError
from training.contract import ContractError, TrainingConfig


@dataclass(frozen=True, kw_only=True)
class JobPaths:
    """The folders that SageMaker gives a training container, all below `base` (/opt/ml)."""

    base: Path

    @property
    def config_dir(self) -> Path:
        """Where the platform's three JSON files lie."""
        return self.base / "input" / "config"

    @property
    def hyperparameters_file(self) -> Path:
        """The training settings, as text values."""
        return self.config_dir / "hyperparameters.json"

    @property
    def data_dir(self) -> Path:
        """One folder per input channel."""
        return self.base / "input" / "data"

    @property
    def model_dir(self) -> Path:
        """What becomes model.tar.gz."""
        return self.base / "model"

    @property
    def output_dir(self) -> Path:
        """What becomes output.tar.gz."""
        return self.base / "output" / "data"

    @property
    def checkpoint_dir(self) -> Path:
        """What the platform keeps in S3 and gives back to a job that goes on; absent where it keeps none."""
        return self.base / "checkpoints"

    @property
    def failure_file(self) -> Path:
        """Its first 1,024 characters become the job's FailureReason."""
        return self.base / "output" / "failure"


def read_json(path: Path) -> dict[str, Any]:
    """The object in `path`; an absent file is an empty object.

    Raises:
        HostError: the file does not hold a JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise HostError(
            BAD_INPUT, f"{path.name}: not readable as JSON ({error}); the platform writes this file"
        ) from error
    if not isinstance(value, dict):
        raise HostError(BAD_INPUT, f"{path.name}: holds a {type(value).__name__}, not an object")
    return value


def read_config(hyperparameters: Mapping[str, Any]) -> TrainingConfig:
    """The contract's view of the hyperparameters.

    Raises:
        HostError: one line that joins everything that is wrong.
    """
    try:
        return TrainingConfig.from_hyperparameters(hyperparameters)
    except ContractError as error:
        raise HostError(BAD_INPUT, " | ".join(error.problems)) from error


def discover(paths: JobPaths, *, head_group: str | None) -> Cluster:
    """Read the platform's files through `sagemaker_training` and name the head.

    Raises:
        HostError: a file is missing or does not describe a cluster.
    """
    resources = read_json(paths.config_dir / "resourceconfig.json")
    _check(resources)
    environment = _environment(resources)
    hosts = _hosts(environment)
    return Cluster(
        hosts=tuple(sorted(hosts, key=lambda host: host.order)),
        head=elect_head(hosts, head_group),
        current=environment.current_host,
        interface=environment.network_interface_name,
    )


def _check(resources: dict[str, Any]) -> None:
    """Refuse what the toolkit would stumble over, and what would let two hosts name two heads."""
    _expect(_is_name, resources, "current_host", "a host name")
    _expect(_are_names, resources, "hosts", "a list of host names")
    for key in ("current_instance_type", "current_group_name", "network_interface_name"):
        if key in resources:
            _expect(_is_name, resources, key, "text")
    groups = resources["instance_groups"] = resources.get("instance_groups") or []
    _expect(_are_objects, resources, "instance_groups", "a list of objects")
    for group in groups:
        _expect(_is_name, group, "instance_group_name", "a group name")
        _expect(_is_name, group, "instance_type", "an instance type")
        _expect(_are_names, group, "hosts", "a list of host names")
    if len({group["instance_group_name"] for group in groups}) < len(groups):
        raise _unusable("two of 'instance_groups' have one name")
    if resources["current_host"] not in resources["hosts"]:
        raise _unusable(f"current_host {resources['current_host']!r} is not in 'hosts'")
    grouped = sorted(name for group in groups for name in group["hosts"])
    if groups and grouped != sorted(resources["hosts"]):
        raise _unusable(
            f"'instance_groups' hold the hosts {', '.join(grouped)}, 'hosts' {', '.join(resources['hosts'])}"
        )


def _expect(is_right: Callable[[Any], bool], holder: dict[str, Any], key: str, what: str) -> None:
    if key not in holder:
        raise _unusable(f"{key!r} is missing; expected {what}")
    if not is_right(holder[key]):
        raise _unusable(f"{key!r} is {json.dumps(holder[key])[:80]}; expected {what}")


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and value != [] and all(_is_name(item) for item in value)


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _unusable(what: str) -> HostError:
    return HostError(BAD_INPUT, f"resourceconfig.json: {what}; the platform writes this file")


def _environment(resources: dict[str, Any]) -> Any:
    # The import makes <base>/code; all content is passed in, so the base may be a folder that is gone a moment later.
    with tempfile.TemporaryDirectory() as scratch, _only_environment(scratch):
        from sagemaker_training.environment import Environment

        # Neither may be empty, or it reads files instead. Hyperparameters are the contract's business.
        return Environment(
            resource_config=resources,
            input_data_config={"unused": {}},
            hyperparameters={"sagemaker_region": "none"},
        )


@contextmanager
def _only_environment(base_dir: str) -> Iterator[None]:
    """Give the toolkit an environment of its own: it reads log levels and AWS profiles from it, and writes to it."""
    before = dict(os.environ)
    os.environ.clear()
    # With a region at hand boto3, which it asks for one in any case, opens no file.
    os.environ.update({"SAGEMAKER_BASE_DIR": base_dir, "PATH": before.get("PATH", ""), "AWS_DEFAULT_REGION": "none"})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _hosts(environment: Any) -> list[Host]:
    """The hosts of all groups; a file from before instance groups describes one group of all hosts."""
    groups = environment.instance_groups_dict or {
        environment.current_instance_group: {
            "instance_type": environment.current_instance_type,
            "hosts": environment.hosts,
        }
    }
    return [
        Host(name=name, group=group, instance_type=facts["instance_type"])
        for group, facts in groups.items()
        for name in facts["hosts"]
    ]
