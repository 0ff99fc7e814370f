"""What one local job is: its description and, derived from it, the specification of each host."""

import os
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infra.local.faults import Fault
from infra.local.files import HostIdentity, write_ml
from infra.local.host import PROJECT_ROOT, SEARCH_PATH, reachable_directories
from infra.local.host_init import TOKEN_FILE, Bind, HostSpec
from infra.local.limits import HostLimits
from infra.local.network import address_of
from training.contract import RunConfig

START = "start"
"""In `LocalJob.cpu_share_at`, the start of a host."""
NOBODY = 65_534
_PASSED_ON = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE")


@dataclass(frozen=True, kw_only=True)
class LocalJob:
    """Everything that describes one local job."""

    config: RunConfig
    job_dir: Path
    """Gets `<host>/ml`, `<host>/tmp` and `<host>.log`."""
    channels: Mapping[str, Path] = field(default_factory=dict)
    """Directory of each input channel, read-only in every host."""
    checkpoints: Path | None = None
    """What an earlier job left, maybe nothing: each host gets a copy as /opt/ml/checkpoints. None: nobody keeps any."""
    cpu_share_at: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    """Cores of a host from an event on, by the event's name (`start`: from its start), then by group or host.

    The share of a host goes before that of its group. None means no limit, and so does no share at the start.
    """
    nic_bits_per_second: Mapping[str, float] = field(default_factory=dict)
    """By group: what each host can send, and as much receive; a group that is missing has no limit."""
    shm_bytes: int = 2 << 30
    """Size of each host's /dev/shm; memory is taken only as it fills."""
    command: Sequence[str] = (sys.executable, "-m", "container.bootstrap", "train")
    start_delay_seconds: Mapping[str, float] = field(default_factory=dict)
    """By host: how long after the launch of the job it starts."""
    name_delay_seconds: Mapping[str, float] = field(default_factory=dict)
    """By host: how long after the launch the other hosts cannot resolve its name."""
    faults: Sequence[Fault] = ()
    """What befalls the hosts on purpose."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the few variables that a host has."""
    max_runtime_seconds: float = 3600.0
    """After this long the job is stopped, as by SageMaker."""

    def shares_of(self, host: HostIdentity) -> dict[str, float | None]:
        """Cores of one host from each event on that changes them; the first one is `start`. None means no limit."""
        shares: dict[str, float | None] = {START: None}
        for event, cores in self.cpu_share_at.items():
            for name in (host.group, host.name):
                if name in cores:
                    shares[event] = cores[name]
        return shares

    def ml_dir(self, host: str) -> Path:
        """What the host of this name sees as /opt/ml."""
        return self.job_dir.absolute() / host / "ml"

    def name_table(self, host: str) -> Path:
        """What the host of this name sees as /etc/hosts."""
        return self.job_dir.absolute() / host / "hosts"

    def log_file(self, host: str) -> Path:
        """Everything that the host of this name printed."""
        return self.job_dir.absolute() / f"{host}.log"


def write_host_directory(job: LocalJob, identity: HostIdentity) -> None:
    """Lays out one host's directory below `job.job_dir`, all but its table of names."""
    private = job.ml_dir(identity.name).parent / "tmp"
    (private / "home").mkdir(parents=True, exist_ok=True)
    private.chmod(0o1777)
    job.log_file(identity.name).write_bytes(b"")
    write_ml(job.ml_dir(identity.name), job.config, identity, job.channels)
    if job.checkpoints is not None:
        shutil.copytree(job.checkpoints, job.ml_dir(identity.name) / "checkpoints", dirs_exist_ok=True)


def host_spec(job: LocalJob, identity: HostIdentity, limits: HostLimits, token: str) -> HostSpec:
    """The specification of one host; the paths in it must exist when the host starts."""
    ml = job.ml_dir(identity.name)
    channels = [Bind(str(path.absolute()), f"/opt/ml/input/data/{name}", True) for name, path in job.channels.items()]
    views = [Bind(str(group), str(mount_point), True) for group, mount_point in limits.views]
    return HostSpec(
        name=identity.name,
        address=address_of(identity.index),
        nic_bits_per_second=job.nic_bits_per_second.get(identity.group),
        command=job.command,
        environment=_environment(job),
        working_directory=str(PROJECT_ROOT),
        binds=[
            Bind(str(ml.parent / "tmp"), "/tmp"),
            Bind(str(ml), "/opt/ml"),
            *channels,
            Bind(str(job.name_table(identity.name)), "/etc/hosts"),
            *views,
        ],
        reachable=[str(path) for path in reachable_directories()],
        shm_bytes=job.shm_bytes,
        token=token,
        joins=[str(path) for path in limits.joins],
        cpus=sorted(limits.cpus),
    )


def _environment(job: LocalJob) -> dict[str, str]:
    return {
        "PATH": SEARCH_PATH,
        "HOME": "/tmp/home",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(PROJECT_ROOT),
        "COUNTERPOISE_TOKEN_FILE": TOKEN_FILE,
        **_user(),
        **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        **job.environment,
    }


def _user() -> dict[str, str]:
    """An ordinary user for the training, as in the image.

    None where the kernel gave this sandbox no second user, or where a second one could not read the checkout.
    """
    numbers = [int(number) for number in Path("/proc/self/uid_map").read_text().split()]
    is_readable = all(path.stat().st_mode & stat.S_IROTH for path in (*reachable_directories(), Path(__file__)))
    return {"COUNTERPOISE_USER": str(NOBODY)} if sum(numbers[2::3]) > NOBODY and is_readable else {}
