"""From a checked plan to a finished run: recipes into the cluster, TorchTrainer.fit, results out of it."""

import logging
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ray
import ray.train
from ray.train import RunConfig, ScalingConfig

from training.checkpoints import Checkpoint
from training.contract import ContractError, TrainingConfig, instance_type_has_accelerator
from training.data.plan import check_enough_rows
from training.data.worker import Recipe
from training.data.worker_pool import warm_up
from training.events import Events
from training.job_trainer import JobTrainer
from training.loop import train
from training.preflight import Plan
from training.rank import TrainJob
from training.results import write_results

if TYPE_CHECKING:
    from training.main import JobFiles

TRAINER_RESOURCE = "trainer"
"""Hosts that may train offer one unit of it per training worker; the bootstrap puts it there."""


_ENVIRONMENT_OF_ALL = {"RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0", "RAY_WARN_BLOCKING_GET_INSIDE_ASYNC": "0"}
"""Ray Train sets these for its own processes. A process is only reused by work that asks for the same environment, so
all work of the job asks for it: else what `warm_up` has imported would be imported again for the first batch. Where it
is asked for, and not only set for the job, Ray writes it without spaces, as it does for work of a training worker; it
compares the texts."""


class ClusterTooSmall(RuntimeError):
    """The cluster has no place for a training worker, or no CPU for its data."""


def run(config: TrainingConfig, plan: Plan, files: "JobFiles", resumed: Checkpoint | None) -> dict[str, Any]:
    """Train on the cluster that RAY_ADDRESS names, from a checkpoint if there is one; returns the summary.

    Raises:
        ContractError, ClusterTooSmall: before anything is trained.
        ray.train.TrainingFailedError: a training worker failed; `training.main.root_cause` finds why.
    """
    ray.init(
        address=os.environ["RAY_ADDRESS"],
        log_to_driver=False,  # process 1 of every host prints what its workers print
        logging_level=logging.WARNING,
        runtime_env={"env_vars": _ENVIRONMENT_OF_ALL},
    )
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    num_trainers = int(resources.get(TRAINER_RESOURCE, 0))
    check_resources(resources)
    check_enough_rows(plan.num_training_rows, num_trainers)
    check_steps_left(config, plan, num_trainers, resumed)
    for _ in range(int(resources["CPU"])):
        warm_up.options(runtime_env={"env_vars": _ENVIRONMENT_OF_ALL}).remote()
    job = _job(config, plan, files, resumed)
    trainer = JobTrainer(
        train,  # type: ignore[arg-type]  # Ray's annotation is older than results of a training function
        train_loop_config={"job": ray.put(job)},  # a reference: Ray's controller must not import what the job needs
        scaling_config=_scaling(num_trainers, use_gpu=resources.get("GPU", 0) > 0),
        run_config=RunConfig(name="train", storage_path=str(files.events_file.parent / "ray_train")),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Ray's own code, even for a clean program
        result: Any = trainer.fit()
    summary: dict[str, Any] = result.return_value
    results = write_results(summary, config, files)
    Events(files.events_file).emit("result", **results["headline"])
    return summary


def check_resources(resources: Mapping[str, float]) -> None:
    """Refuse at once what Ray would wait for without an end.

    Raises:
        ClusterTooSmall: with the sum that does not work out.
    """
    cpus, trainers = resources.get("CPU", 0), resources.get(TRAINER_RESOURCE, 0)
    if trainers < 1:
        raise ClusterTooSmall(f"no host offers a place to train: {TRAINER_RESOURCE} = {trainers:g}")
    if cpus < 1:
        raise ClusterTooSmall(
            f"no CPU is left for preprocessing: all hosts together offer {cpus:g}; "
            "add a CPU host, or set preprocess_on to all_hosts"
        )


def _scaling(num_trainers: int, *, use_gpu: bool) -> ScalingConfig:
    # No CPU is reserved: on a host with few that would keep all data tasks away, on a CPU-only one hang the job.
    return ScalingConfig(
        num_workers=num_trainers,
        use_gpu=use_gpu,
        resources_per_worker={TRAINER_RESOURCE: 1, **({"GPU": 1} if use_gpu else {})},
    )


def check_steps_left(config: TrainingConfig, plan: Plan, num_trainers: int, resumed: Checkpoint | None) -> None:
    """Refuse to go on from a checkpoint of a training that is longer than this one.

    Raises:
        ContractError: with both lengths.
    """
    if resumed is None:
        return
    before = {"steps_before": resumed.step, "rows_before": resumed.rows_taken}
    num_steps = config.num_steps(plan.num_training_rows, num_trainers, **before)
    if num_steps <= resumed.step:
        name, value = ("steps", num_steps) if config.epochs is None else ("epochs", config.epochs)
        problem = f"training.{name}: {value} is over with the checkpoint of step {resumed.step}"
        raise ContractError([f"{problem}; set more {name}, or take no checkpoints"])


def _job(config: TrainingConfig, plan: Plan, files: "JobFiles", resumed: Checkpoint | None) -> TrainJob:
    training = Recipe(source=plan.source, transform=plan.transform, plan=plan.training, image_size=config.image_size)
    validation = replace(training, plan=plan.validation or plan.training)
    return TrainJob(
        config=config,
        description=plan.description,
        transform=plan.transform,
        training=ray.put(training),
        num_training_rows=plan.num_training_rows,
        validation=ray.put(validation),
        num_validation_rows=plan.num_validation_rows,
        cpu_groups=_cpu_groups(files.hosts),
        head_host=files.head_host,
        events_file=files.events_file,
        stop_file=files.stop_file,
        model_dir=files.model_dir,
        output_dir=files.output_dir,
        checkpoint_dir=files.checkpoint_dir,
        resumed=None if resumed is None else ray.put(resumed),
        identity=plan.identity,
    )


def _cpu_groups(hosts: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Names of the groups without accelerators beside others that have them; none where all are alike."""
    groups = {host["group"]: instance_type_has_accelerator(host["instance_type"]) for host in hosts}
    return tuple(name for name, has_accelerator in groups.items() if not has_accelerator and any(groups.values()))
