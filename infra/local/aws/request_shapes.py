"""A request against the shapes of SageMaker's API: names, types, required members, enums, patterns and limits."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import botocore.session
from botocore.validate import ParamValidator

from infra.local.aws.errors import ApiError, ValidationError

_JAVA_CLASSES = {r"\p{L}\p{Z}\p{N}_": r"\w\s", r"\p{Alnum}": "a-zA-Z0-9"}
"""Classes of the model's patterns that Python's expressions lack, inside brackets."""


@cache
def service_model() -> Any:
    """Botocore's model of SageMaker, the published form of its API."""
    return botocore.session.get_session().get_service_model("sagemaker")


def check_shapes(operation: str, request: dict[str, Any]) -> None:
    """Raises ApiError as SageMaker does for a request that does not have the shape of its operation."""
    shape = service_model().operation_model(operation).input_shape
    wrong = list(_broken_constraints(request, shape, ""))
    if wrong:
        noun = "error" if len(wrong) == 1 else "errors"
        raise ValidationError(f"{len(wrong)} validation {noun} detected: {'; '.join(wrong)}")
    # What is left are types; a member that is not in the model is refused here, while the real service ignores it.
    report = ParamValidator().validate(request, shape)
    if report.has_errors():
        raise ApiError("SerializationException", report.generate_report())


def _broken_constraints(value: Any, shape: Any, where: str) -> Iterator[str]:
    yield from (
        f"Value {_shown(value)} at '{where}' failed to satisfy constraint: {rule}" for rule in _rules(value, shape)
    )
    for inner, inner_shape, inner_where in _inside(value, shape, where):
        yield from _broken_constraints(inner, inner_shape, inner_where)
    if shape.type_name == "structure" and isinstance(value, dict):
        for name in shape.required_members:
            if name not in value:
                yield f"Value null at '{_join(where, name)}' failed to satisfy constraint: Member must not be null"


def _inside(value: Any, shape: Any, where: str) -> Iterator[tuple[Any, Any, str]]:
    if shape.type_name == "structure" and isinstance(value, dict):
        for name, member in shape.members.items():
            if name in value:
                yield value[name], member, _join(where, name)
    elif shape.type_name == "list" and isinstance(value, list):
        for number, item in enumerate(value, 1):
            yield item, shape.member, f"{where}.{number}.member"
    elif shape.type_name == "map" and isinstance(value, dict):
        for key, item in value.items():
            yield key, shape.key, f"{where}.key"
            yield item, shape.value, f"{where}.{key}.value"


def _rules(value: Any, shape: Any) -> Iterator[str]:
    metadata = shape.metadata
    if shape.type_name == "string" and isinstance(value, str):
        if "enum" in metadata and value not in metadata["enum"]:
            yield f"Member must satisfy enum value set: [{', '.join(metadata['enum'])}]"
        if "pattern" in metadata and not _pattern(metadata["pattern"]).fullmatch(value):
            yield f"Member must satisfy regular expression pattern: {metadata['pattern']}"
    yield from _limits(value, shape, metadata)


def _limits(value: Any, shape: Any, metadata: dict[str, Any]) -> Iterator[str]:
    measure = _MEASURES.get(shape.type_name)
    if measure is None or not isinstance(value, str | list | dict | int) or isinstance(value, bool):
        return
    noun, size = measure
    if isinstance(value, int) != (shape.type_name in ("integer", "long")):
        return
    if "max" in metadata and size(value) > metadata["max"]:
        yield f"Member must have {noun} less than or equal to {metadata['max']}"
    if "min" in metadata and size(value) < metadata["min"]:
        yield f"Member must have {noun} greater than or equal to {metadata['min']}"


_MEASURES: dict[str, tuple[str, Callable[[Any], int]]] = {
    "string": ("length", len),
    "list": ("length", len),
    "map": ("length", len),
    "integer": ("value", int),
    "long": ("value", int),
}


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """A pattern of the model, which is written for Java, as Python's."""
    for name, characters in _JAVA_CLASSES.items():
        text = text.replace(name, characters)
    return re.compile(text, re.DOTALL)


def _shown(value: Any) -> str:
    text = str(value)
    return f"'{text if len(text) <= 100 else text[:100] + '...'}'"


def _join(where: str, name: str) -> str:
    lower = name[0].lower() + name[1:]
    return f"{where}.{lower}" if where else lower
