"""How the contract refuses: one line for each problem, in this project's words, never with a secret in it."""

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

SECRET_ADVICE = "looks like a secret and settings are stored as plain text; remove it and read it at run time instead"

M = TypeVar("M", bound=BaseModel)
Location = tuple[int | str, ...]
Finding = tuple[Location, str]

_SHOWN_CHARACTERS = 60
_MAX_SHOWN_INT_BITS = 190  # 60 digits take at most 200 bits; Python refuses to print ints over 4300 digits
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.\-]{1,60}")
_SECRET_NAME = re.compile(r"secret|passw(or)?d|token|credential|(api|private|access)_?key", re.IGNORECASE)
_SECRET_VALUE = re.compile(
    r"(AKIA|ASIA)[A-Z0-9]{16}|-----BEGIN|\bgh[a-z]_\w{20}|\bgithub_pat_\w{20}|\bhf_[A-Za-z0-9]{20}|\bxox[a-z]-|\bsk-\w{20}"
    r"|(?<![\w/+=])(?=[\w/+=]*[a-z])(?=[\w/+=]*[A-Z])(?=[\w/+=]*[0-9])[A-Za-z0-9/+=]{40}(?![\w/+=])"  # AWS secret key
)
_NOUNS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}


class ContractError(ValueError):
    """Settings that the contract refuses; `problems` holds one line for each, and str() joins them with newlines."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__(self.problems)  # what pickle hands to the constructor on the other side

    def __str__(self) -> str:
        return "\n".join(self.problems)


def nearest(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Up to `limit` of the `known` names that `name` may have been meant to be, the most similar first."""
    wanted = name[:100].lower()
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(wanted, by_lower, n=limit)
    inside = [lower for lower in by_lower if len(wanted) >= 3 and wanted in lower]
    initials = [
        lower for lower in by_lower if "_" in lower and wanted == re.sub(r"([a-z0-9])[a-z0-9]*_?", r"\1", lower)
    ]
    return [by_lower[lower] for lower in dict.fromkeys(close + inside + initials)][:limit]


def looks_secret(name: str, value: object) -> bool:
    """Whether a text value, by its own form or by the name it goes under, may be a credential."""
    return isinstance(value, str) and bool(_SECRET_VALUE.search(value) or (value and _SECRET_NAME.search(name)))


def show_value(value: object) -> str:
    """A value as one short piece of text without a newline; containers are counted, never spelled out."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if looks_secret("", value):
        return "a value that looks like a secret"
    if isinstance(value, str):
        text = repr(value[: _SHOWN_CHARACTERS + 1])
        return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
    if isinstance(value, int) and value.bit_length() > _MAX_SHOWN_INT_BITS:
        return "a number of more than 57 digits"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, dict):
        return f"an object of {len(value)} keys"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    return f"a value of type {type(value).__name__}"


def show_path(location: Location) -> str:
    """`("instance_groups", 1, "name")` as `instance_groups[1].name`; keys with odd characters are quoted."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{_show_key(part)}"
    return path.removeprefix(".") or "input"


def _show_key(key: str) -> str:
    if looks_secret("", key):
        return "(a name that looks like a secret)"
    return key if _PLAIN_KEY.fullmatch(key) else show_value(key)


def allowed(schema: Mapping[str, Any]) -> str:
    """What a setting may hold, in words, from its part of the JSON schema."""
    if "x-allowed" in schema:
        return str(schema["x-allowed"])
    if "anyOf" in schema:
        return " or ".join(allowed(branch) for branch in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(str(choice) for choice in schema["enum"])
    kind = schema.get("type")
    if kind in ("integer", "number"):
        return _range(schema)
    if kind == "string" and "maxLength" in schema:
        return f"{schema.get('minLength', 0)} to {schema['maxLength']} characters"
    if kind == "array" and "maxItems" in schema:
        return f"{schema.get('minItems', 0)} to {schema['maxItems']}"
    return "null" if kind == "null" else _NOUNS.get(str(kind), "a JSON object")


def _range(schema: Mapping[str, Any]) -> str:
    bounds = {key: int(bound) if bound == int(bound) else bound for key, bound in schema.items() if "imum" in key}
    if "minimum" in bounds and "maximum" in bounds:
        return f"{bounds['minimum']} to {bounds['maximum']}"
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    return ", ".join(f"{word} {bounds[key]}" for key, word in words.items() if key in bounds) or _NOUNS[schema["type"]]


@cache
def field_schemas(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """The JSON schema of each field of a model, by field name."""
    properties: dict[str, dict[str, Any]] = model.model_json_schema().get("properties", {})
    return properties


def findings(model: type[BaseModel], error: ValidationError) -> list[Finding]:
    """Pydantic's errors as (where, sentence without the path) in this project's words, in pydantic's order."""
    found = []
    for detail in error.errors(include_url=False):
        location = detail["loc"]
        # Pydantic also calls a list too short whose items are wrong: it counts the good ones only.
        if detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]:
            continue
        found.append((location, _sentence(detail["type"], detail["msg"], detail["input"], location, model)))
    return found


def refusal(model: type[BaseModel], found: Iterable[Finding]) -> ContractError:
    """The error for these findings: one line for each, in the order in which the fields are declared."""
    ordered = sorted(found, key=lambda finding: _position(model, finding[0]))
    return ContractError(dict.fromkeys(f"{show_path(location)}: {sentence}" for location, sentence in ordered))


def validated(model: type[M], obj: object, known: Sequence[Finding] = ()) -> M:
    """`obj` as a `model`; raises ContractError for what is wrong with it and for what is `known` to be wrong."""
    try:
        config = model.model_validate(obj)
    except ValidationError as error:
        raise refusal(model, [*known, *findings(model, error)]) from None
    if known:
        raise refusal(model, known)
    return config


def _sentence(kind: str, message: str, value: object, location: Location, root: type[BaseModel]) -> str:
    if kind == "contract":
        return message
    if kind == "invalid_key":
        return "unknown setting; names of settings are text; see docs/settings.md"
    if not location:
        return f"{show_value(value)} is not an object; allowed: a JSON object such as {{}}; write an object"
    name = str(location[-1])
    owner = _owner(root, location)
    if kind == "extra_forbidden":
        return _unknown(name, owner, at_top=len(location) == 1)
    schema = field_schemas(owner).get(name, {}) if owner else {}
    may = allowed(schema)
    if kind == "missing":
        return f"missing; allowed: {may}; add it"
    if schema.get("type") == "array":
        return _list_sentence(kind, value, name.split("_")[-1], may)
    shown = "a value that looks like a secret" if looks_secret(name, value) else show_value(value)
    if kind.startswith(("greater_than", "less_than")):
        return f"{shown} is out of range; allowed: {may}; set it in that range"
    if kind == "literal_error":
        return f"{shown} is not one of the choices; allowed: {may}; choose one of them"
    if kind.startswith("string_") and kind != "string_type":
        return f"{shown} has the wrong form; allowed: {may}; correct it"
    noun = "a finite number" if kind == "finite_number" else _noun(schema)
    return f"{shown} is not {noun}; allowed: {may}"


def _list_sentence(kind: str, value: object, items: str, may: str) -> str:
    if kind in ("too_long", "too_short") and isinstance(value, list | tuple):
        step = f"remove or merge {items}" if kind == "too_long" else f"add {items}"
        return f"{len(value)} {items}; allowed: {may}; {step}"
    return f"{show_value(value)} is not a list of {items}; allowed: {may} {items}"


def _noun(schema: Mapping[str, Any]) -> str:
    kinds = [branch.get("type", "object") for branch in schema.get("anyOf", [schema])]
    return " or ".join(_NOUNS[kind] for kind in kinds if kind in _NOUNS)


def _unknown(name: str, owner: type[BaseModel] | None, at_top: bool) -> str:
    known = dict(owner.model_fields) if owner else {}
    moved = getattr(owner, "moved_settings", {})
    if name in moved:
        return f"unknown setting; {moved[name]}"
    near = nearest(name, known)
    for parent, field in known.items() if at_top and not near else ():
        inner = model_in(field.annotation)
        children = nearest(name, inner.model_fields) if inner else []
        near += [f"{parent}.{child}" for child in ([name] if name in children else children)]
    hint = f"nearest: {', '.join(near[:3])}; " if near else ""
    return f"unknown setting; {hint}see docs/settings.md"


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The first pydantic model inside an annotation such as `tuple[Model, ...]`, or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for argument in get_args(annotation) if (model := model_in(argument))), None)


def _owner(root: type[BaseModel], location: Location) -> type[BaseModel] | None:
    """The model that declares, or refuses, the last part of a location; None inside a plain dict."""
    owner: type[BaseModel] | None = root
    for part in location[:-1]:
        if isinstance(part, str):
            field = owner.model_fields.get(part) if owner else None
            owner = model_in(field.annotation) if field else None
    return owner


def _position(root: type[BaseModel], location: Location) -> tuple[int, ...]:
    position = []
    for depth, part in enumerate(location):
        owner = _owner(root, location[: depth + 1])
        names = list(owner.model_fields) if owner else []
        position.append(part if isinstance(part, int) else names.index(part) if part in names else len(names))
    return tuple(position)
