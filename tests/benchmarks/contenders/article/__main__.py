"""The article's program on today's Ray, the contender of the whole product: this module with `train` on every host.

Here is its bootstrap; the pipeline is in `data`, the loop in `loop`. Settings are read as the product reads them, so
that one job description runs both, and events are printed as the product prints them. What differs from the article has
its reason beside it; where there was a choice, the one that helps the article's program was taken.
"""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from container.bootstrap import log
from container.bootstrap.addresses import num_usable_cpus
from container.bootstrap.telemetry import HostMeter, num_accelerators, shared_memory_free_bytes
from training.contract import TrainingConfig, instance_type_has_accelerator

ML_DIR = Path("/opt/ml")
HEAD_PORT = 6379
STAND_IN = "accelerator"
"""Ray resource of a host whose accelerator is only imagined: with a GPU counted, Ray Train would move tensors there."""
OBJECT_STORE_SHARE = 0.85  # of the shared memory, as the product
RAY_START_ATTEMPTS = 3  # the article's has one; on a busy machine Ray's own time-out ends one start of seven


@dataclass(frozen=True)
class Job:
    """What SageMaker tells a host."""

    config: TrainingConfig
    current: str
    head: str
    num_hosts: int
    is_training: bool

    @classmethod
    def read(cls) -> "Job":
        """From the files of the platform."""
        files = ML_DIR / "input/config"
        resources = json.loads((files / "resourceconfig.json").read_text())
        # The article looks up a group named `gpu`; here any name does.
        training_hosts = [
            host
            for group in resources["instance_groups"]
            if instance_type_has_accelerator(group["instance_type"])
            for host in group["hosts"]
        ]
        return cls(
            config=TrainingConfig.from_hyperparameters(json.loads((files / "hyperparameters.json").read_text())),
            current=resources["current_host"],
            head=min(training_hosts, key=lambda name: int(name.rpartition("-")[2])),
            num_hosts=len(resources["hosts"]),
            is_training=resources["current_host"] in training_hosts,
        )


def run() -> int:
    """One host from its start to its end."""
    job = Job.read()
    os.environ["RAY_AUTH_MODE"] = "disabled"  # Ray 2.59 switches tokens on by itself where it finds a file of them
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing outside can be reached
    start_ray(job)
    if job.current == job.head:
        train(job)
    else:
        wait_for_the_end(job)
    return 0


def start_ray(job: Job) -> None:
    """`ray start`, with the head's default services."""
    place = ["--head", f"--port={HEAD_PORT}"] if job.current == job.head else [f"--address={job.head}:{HEAD_PORT}"]
    # What Ray finds by itself on a real host. Here it would round a share of a CPU down, probe an address outside for
    # its own, put its objects on a disk rather than into too small a memory, and see no accelerator where none is.
    found = [
        f"--node-ip-address={socket.gethostbyname(job.current)}",
        f"--num-cpus={num_usable_cpus(HostMeter().quota_cores())}",
        f"--object-store-memory={int(OBJECT_STORE_SHARE * shared_memory_free_bytes())}",
        f"--resources={json.dumps({STAND_IN: 1} if job.is_training and not num_accelerators() else {})}",
    ]
    for attempt in range(1, RAY_START_ATTEMPTS + 1):
        if subprocess.run(["ray", "start", *place, *found], check=attempt == RAY_START_ATTEMPTS).returncode == 0:
            return


def wait_for_the_end(job: Job) -> None:
    """Stay while the head is there."""
    # The article polls `ray status`. A call costs 2.5 CPU seconds, nothing on 16 vCPUs but much on a host scaled down
    # to a share of one, so the polls that would succeed are left out. The one that fails takes its time as ever.
    while is_listening(job.head):
        time.sleep(1)
    while subprocess.run(["ray", "status"], capture_output=True, check=False).returncode == 0:
        time.sleep(1)


def is_listening(host: str) -> bool:
    try:
        socket.create_connection((host, HEAD_PORT), timeout=5).close()
    except OSError:
        return False
    return True


def train(job: Job) -> None:
    """The driver: wait for every host, train, end the cluster."""
    import ray
    from ray.train import ScalingConfig
    from ray.train.torch import TorchTrainer

    from tests.benchmarks.contenders.article.data import make_dataset
    from tests.benchmarks.contenders.article.loop import train_loop_per_worker

    ray.init(address="auto")
    # The article counts resource keys that contain "node". Those are two as soon as the head is up, so it does not
    # wait; what it means is that every host has joined.
    while len({node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}) < job.num_hosts:  # type: ignore[no-untyped-call]
        time.sleep(1)
    log.event("cluster_formed", hosts=job.num_hosts)
    num_gpus = int(ray.cluster_resources().get("GPU", 0))  # type: ignore[no-untyped-call]
    scaling = ScalingConfig(num_workers=num_gpus, use_gpu=True)
    if not num_gpus:
        num_stand_ins = int(ray.cluster_resources()[STAND_IN])  # type: ignore[no-untyped-call]
        scaling = ScalingConfig(num_workers=num_stand_ins, resources_per_worker={STAND_IN: 1})
    trainer = TorchTrainer(
        train_loop_per_worker,  # type: ignore[arg-type]  # Ray's annotation is older than results of the function
        train_loop_config={"config": job.config},
        scaling_config=scaling,
        datasets={"train": make_dataset(job.config)},
    )
    result: Any = trainer.fit()
    results = ML_DIR / "output/data/results.json"
    results.write_text(json.dumps(result.return_value, indent=1))
    log.event("trained")
    ray.shutdown()  # a driver that is connected dies with the cluster
    # The article's `ray down` needs a cluster file and ends nothing.
    subprocess.run(["ray", "stop"], check=True)


def main() -> int:
    """Process 1 of a host: a parent that reaps, and the program as its child."""
    # Nobody else reaps Ray's daemons in a host of its own, and `ray stop` waits 12 s for those that are not reaped.
    program = os.fork()
    if program == 0:
        return run()
    while True:
        pid, status = os.wait()
        if pid == program:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
