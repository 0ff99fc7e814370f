"""The article's experiment at the size of one machine: its groups, the CPU each host gets, and what each job trains."""

import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from training.contract import InstanceGroup

GPU_CORES = 0.38
CPU_CORES = 4 * GPU_CORES
"""ml.g5.xlarge has 4 vCPUs, ml.c5.4xlarge 16; together both take 1.9 cores, which leaves some for the rest."""
CPU_SHARE_AT = {
    "start": {"gpu": 1.0, "cpu": 2.0},
    "first_step": {"gpu": GPU_CORES, "cpu": CPU_CORES},
}
"""Cores of a host, by its group. Until the first step, whole CPUs: the GPU host's imports alone would last minutes."""
GROUPS = (
    InstanceGroup(name="gpu", instance_type="ml.g5.xlarge", instance_count=1),
    InstanceGroup(name="cpu", instance_type="ml.c5.4xlarge", instance_count=1),
)
STEPS = 10
TRAINING: dict[str, Any] = {
    "model": "test_vit",
    "model_arguments": {"patch_size": 32, "depth": 1, "embed_dim": 32, "num_heads": 1},
    "image_size": 224,
    "transform": "gaussian_blur_stack",
    "batch_size": 64,
    "num_records": 64_000,
    "report_every_steps": 4,
    "balance_rounds": 2,
}
"""The article's rows and transform; the ViT is timm's smallest with 32-pixel patches, since here it trains on a CPU."""


def conditions(training: Mapping[str, Any], limits: str) -> dict[str, str]:
    """Under which conditions the figures of a run were measured, in words; `limits` says how CPU shares were kept."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": machine(),
        "limits": limits,
        "scale model": (
            f"gpu host {GPU_CORES:.2f} cores, cpu host {CPU_CORES:.2f} cores (1 : 4, as 4 and 16 vCPUs), "
            "limits bind with the first step, where the rates start; "
            "no accelerator, the model trains on the gpu host's cores"
        ),
        "run": (
            f"{training['steps']} steps of {training['batch_size']} images of {training['image_size']} pixels, "
            f"{training['model']} {json.dumps(training['model_arguments'])}, transform {training['transform']}, fp32; "
            "rates from the first to the last step"
        ),
    }


def machine() -> str:
    """Cores, processor, memory and kernel of this machine, in one line."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    processor = models[0].partition(":")[2].strip() if models else platform.machine()
    memory_gb = psutil.virtual_memory().total / 1e9
    return (
        f"{psutil.cpu_count()} cores of {processor}, {memory_gb:.0f} GB, Linux {platform.release().partition('-')[0]}"
    )
