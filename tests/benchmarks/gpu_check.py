"""What only a GPU can tell: the step of ViT-B/16 in bf16, what it waits for input, and whether copies hide behind it.

    python -m tests.benchmarks.gpu_check                          under 8 minutes on one GPU; prints a JSON object
    python -m tests.benchmarks.gpu_check --device cpu --rehearse  the same program with a tiny model; measures nothing

Contenders take turns; step, timer, buffers and copies are the product's. Ray is not needed.

- resident: a mock loader whose batch is always ready on the device. The ceiling.
- blocking: it is always ready in the host's ordinary memory, and copied when the trainer asks for it.
- staged: it is always ready in pinned memory, and copied beside the work of the step before.
- feed: data workers on this host's CPUs make the rows, as bytes and not as float32; `feed_ceiling` is its resident.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import timm
import torch
from torch import nn

from tests.benchmarks.gpu_sources import NUM_CLASSES, Kind, blocking, resident, staged, working_feed
from training.contract import TrainingConfig
from training.data.batch import Batch
from training.data.transforms import create_transform
from training.metrics import StepFigures, StepTimes
from training.models import ModelDescription
from training.numerics import Numerics, build_for_training, set_precision
from training.step import Learner
from training.timing import Moment, StepTimer

EXIT_REFUSED = 2
MEASURED, REHEARSED = "measured", "rehearsal, not measured"
NUM_ROUNDS, WARM_UP_STEPS, NUM_COPIES = 3, 3, 20
STEPS_SECONDS = 270.0
"""For all timed steps together. Start, warm-up and copies take about two minutes more; the limit is eight."""
MIN_STEPS, MAX_STEPS = 10, 100
"""Of one turn."""
MEAN = STD = (0.5, 0.5, 0.5)
TINY: Mapping[str, Any] = {
    "model": "test_vit",
    "model_arguments": {"patch_size": 8, "depth": 1, "embed_dim": 32, "num_heads": 2},
    "image_size": 32,
    "batch_size": 4,
}

Turn = Callable[[int], StepTimes]
"""Makes so many steps, after a few that warm up, and returns their averages."""


def run(device: torch.device, *, rehearse: bool) -> dict[str, Any]:
    """Measure everything; returns what is printed."""
    began = time.monotonic()
    config = TrainingConfig(precision="bf16", num_classes=NUM_CLASSES, **(TINY if rehearse else {}))
    set_precision(config.precision)
    model = make_model(config).to(device).train()
    floats, as_bytes = (make_kind(config, transform, device) for transform in ("gaussian_blur_stack", "normalize"))
    num_workers = 1 if rehearse else max(1, len(os.sched_getaffinity(0)) - 2)
    with working_feed(as_bytes, num_workers) as fed:
        contenders: dict[str, Turn] = {
            "resident": make_turn(floats, model, resident(floats)),
            "blocking": make_turn(floats, model, blocking(floats)),
            "staged": make_turn(floats, model, staged(floats)),
            "feed_ceiling": make_turn(as_bytes, model, resident(as_bytes)),
            "feed": make_turn(as_bytes, model, fed),
        }
        trial = contenders["resident"](MIN_STEPS)
        affordable = int(STEPS_SECONDS / (NUM_ROUNDS * len(contenders) * trial.step_seconds))
        num_steps = MIN_STEPS if rehearse else min(max(affordable, MIN_STEPS), MAX_STEPS)
        turns: dict[str, list[StepTimes]] = {name: [] for name in contenders}
        for number in range(1, NUM_ROUNDS + 1):
            for name, turn in contenders.items():
                times = turn(num_steps)
                turns[name].append(times)
                print(f"round {number} {name}: {times.step_seconds:.4f} s a step", file=sys.stderr, flush=True)
    copies = {"pageable": copy_seconds(floats, pinned=False), "pinned": copy_seconds(floats, pinned=True)}
    return {
        "status": REHEARSED if rehearse else MEASURED,
        "figures": headline(turns, copies, floats),
        "turns": {
            name: [{"step_seconds": one.step_seconds, "data_wait_share": one.data_wait_share} for one in of_contender]
            for name, of_contender in turns.items()
        },
        "copy_seconds": copies,
        "conditions": {
            **conditions(floats),
            "steps_of_a_turn": num_steps,
            "data_workers": num_workers,
            "seconds": round(time.monotonic() - began, 1),
        },
    }


def make_model(config: TrainingConfig) -> nn.Module:
    """The model with fresh weights, on the CPU."""
    description = ModelDescription(
        name=config.model,
        num_classes=NUM_CLASSES,
        image_size=config.image_size,
        arguments=config.model_arguments,
        mean=MEAN,
        std=STD,
        class_names=(),
    )
    torch.manual_seed(config.seed)
    return build_for_training(description, config)


def make_kind(config: TrainingConfig, transform: str, device: torch.device) -> Kind:
    """Batches as a transform leaves them."""
    config = config.model_copy(update={"transform": transform})
    return Kind(config=config, transform=create_transform(config, MEAN, STD), device=device)


def make_turn(kind: Kind, model: nn.Module, source: Iterator[Batch]) -> Turn:
    """A contender: a source of batches and the model that learns from them."""
    numerics = Numerics(device=kind.device, config=kind.config, transform=kind.transform)
    learner = Learner(model, numerics, num_classes=NUM_CLASSES)

    def turn(num_steps: int) -> StepTimes:
        timer = StepTimer(kind.device)
        batches = timer.timed(source)
        for _ in range(WARM_UP_STEPS):
            learner.step(batches, int)  # the rows of this rank are those of all
            timer.end_step()
        list(timer.read())
        figures: list[StepFigures] = []
        for _ in range(num_steps):
            learner.step(batches, int)
            timer.end_step()
            figures += timer.read(but=1)
        figures += timer.read()
        return StepTimes.of(
            num_steps=len(figures),
            wait_seconds=sum(step.wait_seconds for step in figures),
            compute_seconds=sum(step.compute_seconds for step in figures),
        )

    return turn


def copy_seconds(kind: Kind, *, pinned: bool) -> float:
    """Median time of copying the images of one batch to the device while it has nothing else to do."""
    images = kind.on_host(pinned=pinned).buffer.images
    target = torch.empty_like(images, device=kind.device)
    seconds = []
    for _ in range(NUM_COPIES):
        began = Moment(kind.device)
        target.copy_(images, non_blocking=pinned)
        seconds.append(Moment(kind.device).seconds_since(began))
    return statistics.median(seconds)


def headline(turns: Mapping[str, Sequence[StepTimes]], copies: Mapping[str, float], kind: Kind) -> dict[str, float]:
    """Medians over the rounds, and what follows from them."""
    step = {name: statistics.median(one.step_seconds for one in of) for name, of in turns.items()}
    stall = {name: statistics.median(one.data_wait_share for one in of) for name, of in turns.items()}
    return {
        "step_seconds": step["resident"],
        "images_per_second": kind.config.batch_size / step["resident"],
        "stall_blocking": stall["blocking"],
        "stall_staged": stall["staged"],
        "stall_feed": stall["feed"],
        "exposed_copy_seconds_blocking": step["blocking"] - step["resident"],
        "exposed_copy_seconds_staged": step["staged"] - step["resident"],
        "copy_hidden_share": 1 - (step["staged"] - step["resident"]) / copies["pinned"],
        "copy_gb_per_second_pinned": kind.num_image_bytes / copies["pinned"] / 1e9,
        "feed_over_ceiling": step["feed_ceiling"] / step["feed"],
    }


def conditions(kind: Kind) -> dict[str, Any]:
    """What the figures belong to."""
    is_cuda = kind.device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(kind.device) if is_cuda else platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "model": kind.config.model,
        "image_size": kind.config.image_size,
        "batch_size": kind.config.batch_size,
        "precision": kind.config.precision,
        "batch_bytes": kind.num_image_bytes,
        "rounds": NUM_ROUNDS,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "timm": timm.__version__,
            "cuda": torch.version.cuda if is_cuda else None,
        },
    }


def refusal(device: str, *, rehearse: bool) -> str | None:
    """Why nothing can be measured, with what to do; None where it can."""
    if device == "cpu" and not rehearse:
        return "gpu_check: a CPU has nothing to measure here; run it on a GPU, or try the program with --rehearse"
    if device == "cuda" and not torch.cuda.is_available():
        return "gpu_check: no CUDA device here; run it on a host with one, or try it with --device cpu --rehearse"
    return None


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 2 where nothing can be measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu_check", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="where to train")
    parser.add_argument("--rehearse", action="store_true", help="a tiny model; the output says so and measures nothing")
    options = parser.parse_args(arguments)
    reason = refusal(options.device, rehearse=options.rehearse)
    if reason:
        print(reason, file=sys.stderr)
        return EXIT_REFUSED
    print(json.dumps(run(torch.device(options.device), rehearse=options.rehearse), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
