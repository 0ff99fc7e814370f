"""Any timm model by name: built, checked before anything is started, saved, and loaded again without pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import timm
import torch
from timm.layers.patch_embed import PatchEmbed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from training.contract import ContractError
from training.contract.models import MODELS, near_models
from training.files import write_whole

WEIGHTS_FILE = "model.safetensors"
DESCRIPTION_FILE = "model.json"
FORMAT_VERSION = 1

_MAX_SHOWN_CHARACTERS = 200

# Settings with a field of their own, and arguments with which timm would download or unpickle something.
_RESERVED_ARGUMENTS = {
    "num_classes": "set training.num_classes instead",
    "img_size": "set training.image_size instead",
    "model_name": "set training.model instead",
    "in_chans": "images have 3 channels",
    "features_only": "training needs a classifier",
    "pretrained": "no weights are downloaded",
    "pretrained_cfg": "no weights are downloaded",
    "pretrained_cfg_overlay": "no weights are downloaded",
    "pretrained_strict": "no weights are downloaded",
    "cache_dir": "no weights are downloaded",
    "checkpoint_path": "no weights are loaded",
    "device": "the run places the model",
    "dtype": "set training.precision instead",
}


@dataclass(frozen=True, kw_only=True)
class ModelDescription:
    """All that is needed to build a model again and to feed it; mean and std belong to pixels scaled to 0..1."""

    name: str
    num_classes: int
    image_size: int
    arguments: Mapping[str, Any]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    class_names: tuple[str, ...]


def build_model(name: str, num_classes: int, image_size: int, arguments: Mapping[str, Any]) -> nn.Module:
    """Return a timm model with fresh weights, float32 on the default device; the caller sets the seed.

    Raises ContractError in one line for an unknown name or for arguments that the model does not take.
    """
    _check_names(name, arguments)
    try:
        return _create(name, num_classes, image_size, arguments)[0]
    except Exception as error:  # the user's arguments reach any of timm's constructors, which raise anything
        raise _refused(name, arguments, error) from error


def check_model(name: str, num_classes: int, image_size: int, arguments: Mapping[str, Any]) -> None:
    """Raise ContractError in one line where a run could not train this model; shapes only, nothing is computed.

    Builds the model on torch's meta device, without memory or weights (0.05 to 2 CPU-seconds), and sends the shape of
    one image through it.
    """
    _check_names(name, arguments)
    images = torch.empty(1, 3, image_size, image_size, device="meta")
    try:
        with torch.device("meta"), torch.no_grad():
            model = _create(name, num_classes, image_size, arguments)[0].eval()
    except Exception as error:  # as in build_model
        raise _refused(name, arguments, error) from error
    _check_patch_size(model, name, image_size)
    try:
        with torch.device("meta"), torch.no_grad():
            output = model(images)
    except NotImplementedError:
        return  # an operation that needs values, not shapes: nothing can be said ahead of the run
    except Exception as error:  # what a shape that does not fit raises depends on the layer it meets
        reason = f"{image_size} does not fit {name}: {_one_line(error)}"
        raise ContractError([f"training.image_size: {reason}; {_usual_size(name)}"]) from error
    if getattr(output, "shape", None) != (1, num_classes):
        raise ContractError([f"training.model: {name!r} returns no {num_classes} class scores; choose a classifier"])


def model_mean_and_std(name: str) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Return mean and standard deviation, of pixels in 0..1, that timm trained this model with."""
    defaults = timm.get_pretrained_cfg(name, allow_unregistered=True)
    if defaults is None:
        return (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
    return _three(defaults.mean), _three(defaults.std)


def _three(values: tuple[float, ...]) -> tuple[float, float, float]:
    red, green, blue = values if len(values) == 3 else (values[0],) * 3
    return (red, green, blue)


def _check_names(name: str, arguments: Mapping[str, Any]) -> None:
    if not timm.is_model(name):
        similar = ", ".join(near_models(name)) or f"none, see timm.list_models() for all {len(MODELS)}"
        raise ContractError([f"training.model: {name!r} is not a timm model; nearest: {similar}"])
    problems = [
        f"training.model_arguments: {argument!r} cannot be given; {reason}"
        for argument, reason in _RESERVED_ARGUMENTS.items()
        if argument in arguments
    ]
    if problems:
        raise ContractError(problems)


def _create(
    name: str, num_classes: int, image_size: int, arguments: Mapping[str, Any]
) -> tuple[nn.Module, dict[str, Any]]:
    """Return the model and the arguments it was made with; `img_size` is among them where the architecture takes it."""
    # timm asks for tuples here and there; JSON has lists.
    own = {key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()}
    sized: dict[str, Any] = {**own, "num_classes": num_classes, "img_size": image_size}
    try:
        return timm.create_model(name, pretrained=False, **sized), sized
    except TypeError as error:
        if "img_size" not in str(error):
            raise
    del sized["img_size"]  # a convolutional network: any size will do
    return timm.create_model(name, pretrained=False, **sized), sized


def _check_patch_size(model: nn.Module, name: str, image_size: int) -> None:
    patches = getattr(model, "patch_embed", None)
    if not isinstance(patches, PatchEmbed) or patches.dynamic_img_pad:
        return  # overlapping patches, padding, or none at all
    for side in set(patches.patch_size):
        if image_size % side:  # timm would cut the edge off without a word
            lower, upper = image_size // side * side, (image_size // side + 1) * side
            allowed = f"{lower} or {upper}" if lower else f"{upper}"
            reason = f"{image_size} is no multiple of the {side}-pixel patches of {name}"
            raise ContractError([f"training.image_size: {reason}; use {allowed}"])


def _usual_size(name: str) -> str:
    defaults = timm.get_pretrained_cfg(name)
    return f"its usual size is {defaults.input_size[-1]}" if defaults else "try a multiple of 32"


def _refused(name: str, arguments: Mapping[str, Any], error: Exception) -> ContractError:
    if not arguments:
        return ContractError([f"training.model: {name} cannot be built: {_one_line(error)}"])
    given = json.dumps(dict(arguments), default=str)[:_MAX_SHOWN_CHARACTERS]
    return ContractError([f"training.model_arguments: {name} does not take {given}: {_one_line(error)}"])


def _one_line(error: Exception) -> str:
    if isinstance(error, KeyError):  # its text is the bare key
        return f"no {error}"
    return " ".join((str(error) or type(error).__name__).split())[:_MAX_SHOWN_CHARACTERS]


def bare(model: nn.Module) -> nn.Module:
    """The timm model itself, also of one that is wrapped for distributed training."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def save_model(model: nn.Module, directory: Path, description: ModelDescription) -> None:
    """Write model.json, then model.safetensors, each whole or not at all: where the weights are, both are complete.

    The weights' keys are those of the bare timm model, also when `model` is wrapped for distributed training.
    """
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_describe(description), indent=2) + "\n"
    write_whole(directory / DESCRIPTION_FILE, lambda path: path.write_text(text, encoding="utf-8"))
    write_whole(directory / WEIGHTS_FILE, lambda path: safetensors.torch.save_model(bare(model), str(path)))


def _describe(description: ModelDescription) -> dict[str, Any]:
    with torch.device("meta"):
        _, create_arguments = _create(
            description.name, description.num_classes, description.image_size, description.arguments
        )
    return {
        "format_version": FORMAT_VERSION,
        **asdict(description),
        # timm.create_model(name, **create_arguments) gives the model that the weights fit.
        "create_arguments": create_arguments,
        "versions": {
            "timm": timm.__version__,
            "torch": torch.__version__,
            "safetensors": safetensors.__version__,
        },
    }


def load_model(directory: Path) -> tuple[nn.Module, ModelDescription]:
    """Return the model that `save_model` wrote, on the CPU in evaluation mode, and its description.

    Raises ContractError in one line where a file is missing or the two do not belong together.
    """
    try:
        stored = json.loads((directory / DESCRIPTION_FILE).read_text(encoding="utf-8"))
        if stored["format_version"] != FORMAT_VERSION:
            raise ValueError(f"format {stored['format_version']} is not known here, only {FORMAT_VERSION}")
        description = ModelDescription(
            name=stored["name"],
            num_classes=stored["num_classes"],
            image_size=stored["image_size"],
            arguments=stored["arguments"],
            mean=_three(stored["mean"]),
            std=_three(stored["std"]),
            class_names=tuple(stored["class_names"]),
        )
        model = build_model(description.name, description.num_classes, description.image_size, description.arguments)
        safetensors.torch.load_model(model, str(directory / WEIGHTS_FILE))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, safetensors.SafetensorError) as error:
        raise ContractError([f"saved model {directory}: cannot be loaded: {_one_line(error)}"]) from error
    return model.eval(), description
