"""The contract's settings as tables of text, one row for each, which the check in JSONata reads."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from training.contract import Channel, InstanceGroup, RunConfig, TrainingConfig
from training.contract.errors import allowed, branches, field_schemas

MODELS: tuple[type[BaseModel], ...] = (RunConfig, TrainingConfig, InstanceGroup, Channel)

_OWN_CHECKS = {"model_arguments": "arguments", "tags": "tags"}
_KNOWN_NAMES = ("instance_type", "model", "transform")
"""Settings that the contract checks in code of its own, with the kind of their row, and text that must name a thing."""


def setting_rows(model: type[BaseModel]) -> str:
    """The rows `name|kind|mark|arguments|what is allowed` of a group of settings, in the contract's order."""
    schemas, fields = field_schemas(model), model.model_fields
    return "\n".join(_row(name, schema, fields[name].is_required()) for name, schema in schemas.items())


def item_rows() -> str:
    """The rows of the items of lists, under the names that the rows of the lists give them."""
    rows = {name: _row(name, item) for name, item in _items()}
    return "\n".join(rows.values())


def patterns() -> dict[str, str]:
    """The regular expressions that text must match, by the name that rows give them."""
    return {_form(pattern): pattern for pattern in _patterns()}


def _patterns() -> list[str]:
    schemas = [_main(schema) for _, schema in (*_settings(), *_items())]
    return list(dict.fromkeys(schema["pattern"] for schema in schemas if "pattern" in schema))


def _settings() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for model in MODELS:
        yield from field_schemas(model).items()


def _items() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for _, schema in _settings():
        listed = _main(schema)
        while "items" in listed:
            listed = listed["items"]
            yield _item_name(listed), listed


def _item_name(schema: Mapping[str, Any]) -> str:
    return "list of " + schema["x-items"] if "x-items" in schema else _model_name(schema) or allowed(schema)


def _model_name(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _main(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a setting may be besides null."""
    return next(branch for branch in branches(schema) if branch.get("type") != "null")


def _form(pattern: str) -> str:
    return f"form {_patterns().index(pattern)}"


def _row(name: str, schema: Mapping[str, Any], is_required: bool = False) -> str:
    kind, arguments = _kind(name, _main(schema))
    mark = "due" if is_required else "null" if len(branches(schema)) > 1 else ""
    row = (name, kind, mark, arguments, allowed(schema))
    if any("|" in part or "\n" in part for part in row):
        raise ValueError(f"{name}: neither | nor a newline may be in {row}")
    return "|".join(row)


def _kind(name: str, schema: Mapping[str, Any]) -> tuple[str, str]:
    """What kind of value a setting has and the arguments of the check for it."""
    kind = schema.get("type")
    if name in _OWN_CHECKS:
        return _OWN_CHECKS[name], ""
    if "$ref" in schema:
        return "record", _model_name(schema)
    if kind == "array":
        return "list", f"{schema['minItems']};{schema['maxItems']};{_item_name(schema['items'])};{schema['x-items']}"
    if "enum" in schema:
        return "choice", " ".join(schema["enum"])
    if kind in ("integer", "number"):
        return ("whole" if kind == "integer" else "real"), " ".join(_bounds(schema))
    if kind == "boolean":
        return "truth", ""
    return (name if name in _KNOWN_NAMES else "text"), _form(schema["pattern"]) if "pattern" in schema else ""


def _bounds(schema: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Least and most, and for each whether it is itself allowed or the value must be above or below it."""
    is_least, is_most = "minimum" in schema, "maximum" in schema
    return (
        repr(schema["minimum" if is_least else "exclusiveMinimum"]),
        repr(schema["maximum" if is_most else "exclusiveMaximum"]),
        "least" if is_least else "above",
        "most" if is_most else "below",
    )
