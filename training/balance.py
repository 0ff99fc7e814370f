"""How well the hosts share the preprocessing: after the last step, all hosts and the CPU hosts alone take turns.

Side by side in one job, since a shared machine changes its speed from minute to minute: two rates that are compared
have to be measured in turns. The turns train nothing. Their rows go through a copy of the model, forward and backward,
so that the hosts that train are as busy with it as they are in a step.
"""

import copy
import itertools
import time
from collections.abc import Collection

from torch import nn

from training.data.feed import Feed, training_spans
from training.rank import Rank
from training.step import compute_gradients, wait_for

MEASURED_BATCHES = 6
"""Timed batches of a turn; one before them fills the cluster."""
SPARE_BATCHES = 4
"""Batches behind the timed ones, begun and thrown away, so that no CPU falls idle while the time is taken."""
CPU_HOSTS, ALL_HOSTS = "cpu_hosts", "all_hosts"


def measure_balance(rank: Rank, model: nn.Module) -> dict[str, list[float]] | None:
    """Images per second of every turn, over all ranks, by who prepared them; None where there is nothing to measure."""
    job = rank.job
    if not job.config.balance_rounds or not job.cpu_groups:
        return None
    bare = copy.deepcopy(getattr(model, "module", model))
    rates: dict[str, list[float]] = {CPU_HOSTS: [], ALL_HOSTS: []}
    turns = [(CPU_HOSTS, job.cpu_groups), (ALL_HOSTS, None)] * job.config.balance_rounds
    for hosts, groups in turns:
        if rank.is_asked_to_stop():
            return None
        seconds = _turn_seconds(rank, bare, groups)
        rates[hosts].append(rank.sum(MEASURED_BATCHES * job.config.batch_size / seconds))
        rank.events.emit("balance", hosts=hosts, images_per_second=round(rates[hosts][-1], 3))
    return rates


def _turn_seconds(rank: Rank, model: nn.Module, groups: Collection[str] | None) -> float:
    """From the end of a turn's first batch to the end of its last timed one."""
    config = rank.job.config
    spans = training_spans(
        num_steps=1 + MEASURED_BATCHES + SPARE_BATCHES,
        batch_size=config.batch_size,
        rank=rank.index,
        world_size=rank.world_size,
    )
    feed = Feed(
        rank.job.training,
        spans,
        batch_rows=config.batch_size,
        max_tasks=rank.job.max_tasks_of_rank(rank.world_size),
        prefetch_batches=config.prefetch_batches,
        groups=groups,
    )
    ended = []
    try:
        for batch in itertools.islice(feed, 1 + MEASURED_BATCHES):
            compute_gradients(rank, model, batch)
            wait_for(rank.device)
            ended.append(time.perf_counter())
            rank.events.touch()
    finally:
        feed.close()
    return ended[-1] - ended[0]
