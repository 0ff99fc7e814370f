"""What can be wrong between settings of the training that are each fine by themselves, and with its lists."""

import math
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from training.contract.sentences import (
    FUSED_ELSEWHERE,
    NO_TRANSFORM_STEPS,
    NOT_AN_ARGUMENT,
    NOT_FINITE,
    STEPS_AND_EPOCHS,
    STEPS_OF_NO_TRANSFORM,
    TOO_MANY_CHARACTERS,
    URI_OF_NO_DATASET,
)
from training.contract.settings import JsonScalar
from training.contract.text import MAX_VALUE_CHARACTERS
from training.contract.values import SECRET_ADVICE, Finding, looks_secret, show_value

DEFAULT_TRANSFORM = "gaussian_blur_stack"
DEFAULT_DATASET = "synthetic"
MAX_TRANSFORM_STEPS = 32
NUMBER_CHARACTERS = 24  # the longest that a double is written with


def training_relations(raw: Mapping[str, Any]) -> list[Finding]:
    """Everything that is wrong between the settings of the training; `raw` may hold any JSON."""
    return list(chain(_arguments(raw), _length(raw), _data(raw), _implementation(raw), _transform_steps(raw)))


def _arguments(raw: Mapping[str, Any]) -> Iterator[Finding]:
    arguments = raw.get("model_arguments")
    if not isinstance(arguments, dict):
        return
    if _num_characters(arguments) > MAX_VALUE_CHARACTERS:
        yield ("model_arguments",), TOO_MANY_CHARACTERS.format(limit=MAX_VALUE_CHARACTERS)
        return
    for name, value in arguments.items():
        problem = _argument_problem(name, value) if isinstance(name, str) else None
        if problem:
            yield ("model_arguments", name), problem


def _argument_problem(name: str, value: object) -> str | None:
    items = value if isinstance(value, list) else [value]
    for item in items:
        if not isinstance(item, JsonScalar):
            return NOT_AN_ARGUMENT.format(value=show_value(item))
        if isinstance(item, float) and not math.isfinite(item):
            return NOT_FINITE.format(value=show_value(item))
    return SECRET_ADVICE if looks_secret("", name) or any(looks_secret(name, item) for item in items) else None


def _length(raw: Mapping[str, Any]) -> Iterator[Finding]:
    steps, epochs = raw.get("steps"), raw.get("epochs")
    if steps is not None and epochs is not None:
        yield ("epochs",), STEPS_AND_EPOCHS.format(epochs=show_value(epochs), steps=show_value(steps))


def _data(raw: Mapping[str, Any]) -> Iterator[Finding]:
    uri = raw.get("data_uri")
    if uri is not None and raw.get("dataset", DEFAULT_DATASET) == DEFAULT_DATASET:
        yield ("data_uri",), URI_OF_NO_DATASET.format(uri=show_value(uri))


def _implementation(raw: Mapping[str, Any]) -> Iterator[Finding]:
    transform = raw.get("transform", DEFAULT_TRANSFORM)
    if raw.get("transform_implementation") == "fused" and transform != DEFAULT_TRANSFORM:
        yield ("transform_implementation",), FUSED_ELSEWHERE.format(transform=show_value(transform))


def _transform_steps(raw: Mapping[str, Any]) -> Iterator[Finding]:
    transform, steps = raw.get("transform", DEFAULT_TRANSFORM), raw.get("transform_steps", [])
    if not isinstance(steps, list | tuple) or len(steps) > MAX_TRANSFORM_STEPS:
        return
    if transform == "torchvision" and not steps:
        yield ("transform_steps",), NO_TRANSFORM_STEPS.format(most=MAX_TRANSFORM_STEPS)
    elif transform != "torchvision" and steps:
        yield ("transform_steps",), STEPS_OF_NO_TRANSFORM.format(num=len(steps), transform=show_value(transform))
    elif _characters(list(steps)) > MAX_VALUE_CHARACTERS:
        yield ("transform_steps",), TOO_MANY_CHARACTERS.format(limit=MAX_VALUE_CHARACTERS)
    for index, step in enumerate(steps):
        if looks_secret("", step):
            yield ("transform_steps", index), SECRET_ADVICE


def _num_characters(arguments: Mapping[str, object]) -> int:
    """At least as many characters as the arguments take as JSON: what is no text counts with the most it can take."""
    return 1 + sum(_text_characters(str(name)) + _characters(value) + 2 for name, value in arguments.items())


def _characters(value: object) -> int:
    if isinstance(value, list):
        return 1 + sum(1 + (_text_characters(item) if isinstance(item, str) else NUMBER_CHARACTERS) for item in value)
    return _text_characters(value) if isinstance(value, str) else NUMBER_CHARACTERS


def _text_characters(text: str) -> int:
    return 2 + len(re.sub(r"[\x00-\x1f]", "123456", re.sub(r'["\\]', "12", text)))
