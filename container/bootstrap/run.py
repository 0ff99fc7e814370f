"""One host's run from start to exit code: read, lead or follow, write the reason of a failure."""

import asyncio
import signal
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from container.bootstrap import log
from container.bootstrap.cluster import Cluster
from container.bootstrap.control import CONTROL_PORT
from container.bootstrap.environment import JobPaths, discover, read_config, read_json
from container.bootstrap.errors import FAILURE_MAX_CHARACTERS, STOPPED, SUCCESS, HostError
from container.bootstrap.handover import ask_for_token
from container.bootstrap.head import STOPPED_EARLY, Head
from container.bootstrap.host import make_context
from container.bootstrap.outcome import Outcome
from container.bootstrap.processes import adopt_orphans, descendants, end_all, reap
from container.bootstrap.reach import reach
from container.bootstrap.tasks import abandon
from container.bootstrap.token import Token, comes_from_head, keep_token, load_token
from container.bootstrap.user import prepare_user
from container.bootstrap.worker import Worker
from training.contract import TrainingConfig


def run_host(paths: JobPaths, environ: Mapping[str, str]) -> int:
    """Take part in the job that `paths` describes; returns the exit code and leaves the reason in the failure file."""
    adopt_orphans()
    return asyncio.run(_run(paths, environ)).exit_code


async def _run(paths: JobPaths, environ: Mapping[str, str]) -> Outcome:
    # First of all: process 1 of a container does not get a signal that it has no handler for.
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        outcome = await _take_part(paths, environ, stop)
    except Exception as error:  # noqa: BLE001 the last line of defence: the reason must reach the failure file
        outcome = Outcome.of(error)
    if outcome.exit_code != SUCCESS:
        write_failure(paths.failure_file, outcome.reason)
    log.event("end", exit_code=outcome.exit_code, reason=outcome.reason.splitlines()[0] if outcome.reason else "")
    return outcome


def write_failure(path: Path, reason: str) -> None:
    """Put the reason, cause first, where SageMaker looks for it; where that is impossible, the log has it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(reason[:FAILURE_MAX_CHARACTERS], encoding="utf-8", errors="replace")
    except OSError as error:
        log.say(f"{path}: cannot be written ({error.strerror}); the reason is in the line below")


async def _take_part(paths: JobPaths, environ: Mapping[str, str], stop: asyncio.Event) -> Outcome:
    config = read_config(read_json(paths.hyperparameters_file))
    cluster = discover(paths, head_group=config.head_group)
    # What a dying process still writes there is worth no failure.
    with tempfile.TemporaryDirectory(prefix="counterpoise-", ignore_cleanup_errors=True) as runtime:
        runtime_dir = Path(runtime)
        token = await _obtain_token(cluster, config, environ, runtime_dir, stop)
        user = prepare_user(environ, paths, runtime_dir)
        context = make_context(cluster, config, paths, token, user=user, runtime_dir=runtime_dir, environ=environ)
        host = cluster.current_host
        log.event(
            "start",
            host=host.name,
            group=host.group,
            type=host.instance_type,
            role=context.role,
            address=context.own.address,
            data_workers=context.num_data_workers(),
        )
        try:
            return await (Head(context, stop) if cluster.is_head else Worker(context, stop)).run()
        finally:
            await end_all(descendants, grace_seconds=1.0)
            reap(awaited=())


async def _obtain_token(
    cluster: Cluster, config: TrainingConfig, environ: Mapping[str, str], runtime_dir: Path, stop: asyncio.Event
) -> Token:
    """The job's token, from where the environment says, in a file in `runtime_dir`."""
    if cluster.is_head or not comes_from_head(environ):
        makes_own = len(cluster.hosts) == 1 or comes_from_head(environ)
        return load_token(environ, runtime_dir=runtime_dir, makes_own=makes_own)
    asking = asyncio.create_task(
        reach(
            cluster.head,
            partial(ask_for_token, port=CONTROL_PORT, host=cluster.current),
            deadline=asyncio.get_running_loop().time() + config.join_timeout_seconds,
            describe="joining",
        )
    )
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            raise HostError(STOPPED, STOPPED_EARLY)
        return keep_token(asking.result(), runtime_dir)
    finally:
        await abandon(asking, stopping)
