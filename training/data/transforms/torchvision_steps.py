"""Compositions of torchvision.transforms.v2, written as text; nothing of the text is ever executed."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import isclass, signature
from typing import Any

import torch

from training.contract import ContractError, nearest
from training.data.decoding import one_line
from training.data.transforms.function import ImageFunction


@dataclass(frozen=True)
class TorchvisionSteps:
    """Steps in order, each `Name` or `Name(arguments)`: a class of torchvision.transforms.v2 and Python literals.

    Of names there is only `torch.<dtype>`, as in `ToDtype(torch.float32, scale=True)`.
    """

    steps: tuple[str, ...]

    def load(self) -> Sequence[tuple[str, ImageFunction]]:
        """Return the steps as callables. Raises ContractError with a line for each that is wrong."""
        return _load(self.steps)


@lru_cache(maxsize=4)
def _load(steps: tuple[str, ...]) -> list[tuple[str, ImageFunction]]:
    loaded: list[tuple[str, ImageFunction]] = []
    problems: list[str] = []
    for index, text in enumerate(steps):
        name = f"training.transform_steps[{index}]: {text}"
        try:
            loaded.append((name, _create(text)))
        except _BadStep as problem:
            problems.append(f"{name}: {problem}")
    if problems:
        raise ContractError(problems)
    return loaded


class _BadStep(Exception):
    """What is wrong with a step, without its name."""


def _create(text: str) -> ImageFunction:
    name, positional, named = _parse(text)
    known = _known_steps()
    if name not in known:
        similar = ", ".join(nearest(name, known)) or "none, see the v2 classes in torchvision's documentation"
        raise _BadStep(f"torchvision.transforms.v2 has no transform {name}; nearest: {similar}")
    try:
        step: ImageFunction = known[name](*positional, **named)
    except Exception as error:  # the user's arguments reach any of torchvision's constructors
        arguments = ", ".join(signature(known[name]).parameters) or "none"
        raise _BadStep(f"{one_line(error).rstrip('.')}; its arguments: {arguments}") from error
    return step


@lru_cache(maxsize=1)
def _known_steps() -> dict[str, type]:
    from torchvision.transforms import v2  # type: ignore[import-untyped]  # half the jobs do without it

    return {name: value for name, value in vars(v2).items() if isclass(value) and issubclass(value, v2.Transform)}


def _parse(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Read `Name` or `Name(arguments)` into the name and its arguments."""
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise _BadStep("is not Name or Name(arguments), such as GaussianBlur(11)") from error
    if isinstance(node, ast.Name):
        return node.id, [], {}
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise _BadStep("is not Name or Name(arguments), such as GaussianBlur(11)")
    named = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise _BadStep("arguments are written out, without **")
        named[keyword.arg] = _value(keyword.value)
    return node.func.id, [_value(argument) for argument in node.args], named


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
        dtype = getattr(torch, node.attr, None)
        if isinstance(dtype, torch.dtype):
            return dtype
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError) as error:
        shown = ast.unparse(node)
        raise _BadStep(
            f"argument {shown} is neither a Python literal nor a torch dtype, such as 0.5 or [1, 2]"
        ) from error
