"""How well the hosts share the preprocessing: after the last step, all hosts and the CPU hosts alone take turns.

Side by side in one job, since a shared machine changes its speed from minute to minute: two rates that are compared
have to be measured in turns. The turns train nothing. Their rows go through a copy of the model, forward and backward,
so that the hosts that train are as busy with it as they are in a step.
"""

import copy
import itertools
import math
from collections.abc import Collection, Iterable, Mapping

from torch import nn

from training.data.batch import Part
from training.data.spans import training_spans
from training.models import bare
from training.rank import Rank
from training.step import compute_gradients, wait_for

BATCHES_OF_A_TURN = 8
"""At least; where all hosts need less than this time for them, as many as they make in it."""
SECONDS_OF_A_TURN = 5.0
"""Workers begin and end a turn within some chunks of each other, which take 50 ms each and count for little then."""
SPARE_BATCHES = 4
"""Batches behind those of a turn, begun and thrown away, so that no CPU falls idle while the turn lasts."""
CPU_HOSTS, ALL_HOSTS = "cpu_hosts", "all_hosts"


def measure_balance(
    rank: Rank, model: nn.Module, turns: Mapping[str, Collection[str] | None] | None = None
) -> dict[str, list[float]] | None:
    """Of every turn, over all ranks, images per second and busy cores; None where there is nothing to measure.

    `turns` are the groups whose hosts prepare, by the name of the turn, None for all; without it the CPU hosts and all.
    Busy cores are the CPU time that preparing took per second, `<hosts>_cores`. On a machine that changes its speed
    between two turns they are what can be compared: the images of a slow second cost more CPU time.
    """
    job = rank.job
    if not job.config.balance_rounds or not job.cpu_groups:
        return None
    copied = copy.deepcopy(bare(model))
    num_batches = _batches_of_a_turn(rank)
    figures: dict[str, list[float]] = {}
    taken = turns or {CPU_HOSTS: job.cpu_groups, ALL_HOSTS: None}
    for hosts, groups in [*taken.items()] * job.config.balance_rounds:
        if rank.is_asked_to_stop():
            return None
        rate, cores = (rank.sum(value) for value in preparing_rates(_turn(rank, copied, groups, num_batches)))
        figures.setdefault(hosts, []).append(rate)
        figures.setdefault(f"{hosts}_cores", []).append(cores)
        rank.events.emit("balance", hosts=hosts, images_per_second=round(rate, 3), cores=round(cores, 3))
    return figures


def preparing_rates(parts: Iterable[Part]) -> tuple[float, float]:
    """Rows per second and CPU seconds per second of all hosts together, from the parts of some batches in a row.

    Each host works its parts off in order, so its rates are what it ended between its first part and its last, and 0
    with one part only. Timing the batches instead would depend on what stands ready behind the first and behind the
    last one: batches come in order, and up to four of them wait behind a part that the slowest host has in work.
    """
    by_host: dict[str, list[Part]] = {}
    for part in sorted(parts, key=lambda part: part.ended_at):
        by_host.setdefault(part.host, []).append(part)
    rows_per_second = cores = 0.0
    for first, *rest in by_host.values():
        seconds = rest[-1].ended_at - first.ended_at if rest else 0.0
        if seconds > 0:
            rows_per_second += sum(part.num_rows for part in rest) / seconds
            cores += sum(part.cpu_seconds for part in rest) / seconds
    return rows_per_second, cores


def _batches_of_a_turn(rank: Rank) -> int:
    """The same on every rank."""
    step_seconds = rank.sum(rank.meter.total().step_seconds) / rank.world_size / rank.job.config.accumulate_batches
    return max(BATCHES_OF_A_TURN, math.ceil(SECONDS_OF_A_TURN / step_seconds) if step_seconds else 0)


def _turn(rank: Rank, model: nn.Module, groups: Collection[str] | None, num_batches: int) -> list[Part]:
    """The parts of a turn's batches, but for the first one, which says who started first and not who is faster."""
    spans = training_spans(
        num_batches=num_batches + SPARE_BATCHES,
        batch_size=rank.job.config.batch_size,
        rank=rank.index,
        world_size=rank.world_size,
    )
    feed = rank.feed(rank.job.training, spans, groups)
    parts: list[Part] = []
    try:
        for number, batch in enumerate(itertools.islice(feed, num_batches)):
            compute_gradients(rank, model, batch)
            wait_for(rank.device)
            parts += batch.parts if number else ()
            rank.events.touch()
    finally:
        feed.close()
    return parts
