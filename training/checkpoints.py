"""Checkpoints: files that a training goes on from. Written by one rank, each whole or not at all, read without pickle.

A checkpoint is one file, since S3 keeps files, not folders, whole. Its name holds the step and a digest of its bytes:
what a kill, a full disk or a cut-off upload leaves behind does not match its name, and is never gone on from.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from training.files import publish

FORMAT_VERSION = 1
_NAME = re.compile(r"step-(\d{9})-([0-9a-f]{32})\.safetensors")
_METADATA = "counterpoise"
_PARTIAL = ".checkpoint.partial"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The state of a training after `step` optimizer steps.

    `rows_taken` are the places of the row plan that all ranks together have used, from 0 on. `tensors` lie on the CPU;
    `identity` is what a training that goes on must have in common with this one; `figures` are numbers to go on from.
    """

    step: int
    rows_taken: int
    tensors: Mapping[str, torch.Tensor]
    identity: Mapping[str, Any]
    figures: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a folder holds: the newest whole checkpoint, and the names of newer files that are none."""

    newest: Checkpoint | None
    damaged: tuple[str, ...]


def write(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint; returns its file. Raises OSError, and leaves nothing under a checkpoint's name then."""
    partial = folder / _PARTIAL
    facts = {
        "format_version": FORMAT_VERSION,
        "step": checkpoint.step,
        "rows_taken": checkpoint.rows_taken,
        "identity": checkpoint.identity,
        "figures": checkpoint.figures,
    }
    try:
        try:
            safetensors.torch.save_file(dict(checkpoint.tensors), partial, metadata={_METADATA: json.dumps(facts)})
        except safetensors.SafetensorError as error:
            raise OSError(str(error)) from error  # it wraps what the disk says
        path = folder / f"step-{checkpoint.step:09d}-{_digest(partial)}.safetensors"
        publish(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def find(folder: Path) -> Found:
    """The newest checkpoint that is whole. What is damaged stays where it is, for people to look at."""
    damaged: list[str] = []
    for path in reversed(files(folder)):
        checkpoint = _read(path)
        if checkpoint is not None:
            return Found(newest=checkpoint, damaged=tuple(damaged))
        damaged.append(path.name)
    return Found(newest=None, damaged=tuple(damaged))


def files(folder: Path) -> list[Path]:
    """The files with a checkpoint's name, from the oldest step to the newest."""
    return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))


def step_of(path: Path) -> int:
    """The step of a file with a checkpoint's name."""
    matched = _NAME.fullmatch(path.name)
    assert matched
    return int(matched[1])


def _read(path: Path) -> Checkpoint | None:
    matched = _NAME.fullmatch(path.name)
    assert matched
    try:
        if _digest(path) != matched[2]:
            return None
        with safetensors.safe_open(path, framework="pt") as file:
            facts = json.loads(file.metadata()[_METADATA])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 it is no mapping
    except OSError:
        return None
    if facts["format_version"] != FORMAT_VERSION:
        return None
    return Checkpoint(
        step=facts["step"],
        rows_taken=facts["rows_taken"],
        tensors=tensors,
        identity=facts["identity"],
        figures=facts["figures"],
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def with_prefix(prefix: str, tensors: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors under longer names, each a copy of its own on the CPU."""
    for name, tensor in tensors.items():
        yield f"{prefix}.{name}", tensor.detach().to("cpu", copy=True).contiguous()


def without_prefix(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Those tensors that have the prefix, without it."""
    start = f"{prefix}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def random_state(device: torch.device, rank: int) -> dict[str, torch.Tensor]:
    """Where torch's random numbers of one rank stand."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return dict(with_prefix(f"random.{rank}", states))


def set_random_state(device: torch.device, tensors: Mapping[str, torch.Tensor], rank: int) -> None:
    """Go on with the random numbers of a checkpoint; a rank that it does not know keeps those of its seed."""
    states = without_prefix(f"random.{rank}", tensors)
    if "cpu" in states:
        torch.set_rng_state(states["cpu"])
    if "cuda" in states and device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)
