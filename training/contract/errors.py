"""How the contract refuses: one line for each problem, in this project's words, never with a secret in it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from training.contract.sentences import (
    MANY_UNKNOWN,
    MISSING,
    MORE_PROBLEMS,
    NOT_A_CHOICE,
    NOT_AN_INPUT,
    OUT_OF_RANGE,
    TOO_FEW,
    TOO_MANY,
    UNKNOWN,
    UNKNOWN_AND_MOVED,
    UNKNOWN_WITH_NEAREST,
    WRONG_FORM,
    WRONG_KIND,
)
from training.contract.values import Finding, Location, nearest, show_path, show_value

M = TypeVar("M", bound=BaseModel)

MAX_PROBLEMS = 20  # a hundred lines help nobody, and a state machine's Cause holds 32,768 characters
MAX_UNKNOWN = 5  # unknown settings of one object that get a line each

_NOUNS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "object": "an object",
}


class ContractError(ValueError):
    """Settings that the contract refuses; `problems` holds one line for each, and str() joins them with newlines."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__(self.problems)  # what pickle hands to the constructor on the other side

    def __str__(self) -> str:
        return "\n".join(self.problems)


def allowed(schema: Mapping[str, Any]) -> str:
    """What a setting may hold, in words, from its part of the JSON schema."""
    if "x-allowed" in schema:
        return str(schema["x-allowed"])
    if "anyOf" in schema:
        return " or ".join(allowed(branch) for branch in branches(schema))
    if "enum" in schema:
        return ", ".join(str(choice) for choice in schema["enum"])
    kind = schema.get("type")
    if kind in ("integer", "number"):
        return _range(schema)
    if kind == "array":
        return f"{schema.get('minItems', 0)} to {schema['maxItems']} {schema['x-items']}"
    return "null" if kind == "null" else _NOUNS.get(str(kind), "a JSON object")


def noun(schema: Mapping[str, Any]) -> str:
    """What the value of a setting is called, such as "a whole number" or "a list of groups"."""
    names = [_noun(branch) for branch in branches(schema) if branch.get("type") != "null"]
    return " or ".join(names)


def branches(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The alternatives that a schema allows."""
    alternatives: list[Mapping[str, Any]] = schema.get("anyOf", [schema])
    return alternatives


def _noun(schema: Mapping[str, Any]) -> str:
    return f"a list of {schema['x-items']}" if schema.get("type") == "array" else _NOUNS[schema.get("type", "object")]


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
    details = error.errors(include_url=False)
    unknown = Counter(detail["loc"][:-1] for detail in details if detail["type"] == "extra_forbidden")
    many = {where: num for where, num in unknown.items() if num > MAX_UNKNOWN}
    found: list[Finding] = [(where, MANY_UNKNOWN.format(num=num)) for where, num in many.items()]
    for detail in details:
        kind, location, value = detail["type"], detail["loc"], detail["input"]
        if kind == "extra_forbidden" and location[:-1] in many:
            continue
        found.append((location, _sentence(kind, detail["msg"], value, location, model)))
    return found


def refusal(model: type[BaseModel], found: Iterable[Finding]) -> ContractError:
    """The error for these findings: one line for each, in the order in which the fields are declared.

    Lines about names that are not declared come sorted at the end of their object. After twenty lines one says how
    many more there are.
    """
    ordered = []
    for location, sentence in found:
        places, is_declared = _position(model, location)
        line = f"{show_path(location)}: {sentence}"
        ordered.append((places, "" if is_declared else line, line))
    # The sort is stable: of two lines about one declared setting, the first finding's stays the first.
    ordered.sort(key=lambda entry: entry[:2])
    problems = list(dict.fromkeys(line for _, _, line in ordered))
    rest = problems[MAX_PROBLEMS:]
    return ContractError([*problems[:MAX_PROBLEMS], *([MORE_PROBLEMS.format(num=len(rest))] if rest else [])])


def validated(model: type[M], obj: object, known: Sequence[Finding] = ()) -> M:
    """`obj` as a `model`; raises ContractError for what is wrong with it and for what is `known` to be wrong."""
    try:
        config = model.model_validate(obj)
    except ValidationError as error:
        raise refusal(model, [*known, *findings(model, error)]) from None
    if known:
        raise refusal(model, known)
    return config


_SENTENCES = {"missing": MISSING, "literal_error": NOT_A_CHOICE, "too_long": TOO_MANY, "too_short": TOO_FEW}


def _sentence(kind: str, message: str, value: object, location: Location, root: type[BaseModel]) -> str:
    if kind == "contract":
        return message
    if kind == "invalid_key":
        return UNKNOWN
    if not location:
        return NOT_AN_INPUT.format(value=show_value(value))
    if kind == "extra_forbidden":
        return _unknown(str(location[-1]), _owner(root, location), at_top=len(location) == 1)
    sentence = _SENTENCES.get(kind, WRONG_KIND)
    if kind.startswith(("greater_than", "less_than")):
        sentence = OUT_OF_RANGE
    elif kind.startswith("string_") and kind != "string_type":
        sentence = WRONG_FORM
    schema = _schema_at(root, location)
    return sentence.format(
        value=show_value(value),
        allowed=allowed(schema),
        noun="a finite number" if kind == "finite_number" else noun(schema),
        items=next((branch["x-items"] for branch in branches(schema) if "x-items" in branch), None),
        num=len(value) if isinstance(value, dict | list | tuple) else 0,
    )


def _unknown(name: str, owner: type[BaseModel] | None, at_top: bool) -> str:
    known = dict(owner.model_fields) if owner else {}
    moved: Mapping[str, str] = getattr(owner, "moved_settings", {})
    if name in moved:
        return UNKNOWN_AND_MOVED.format(advice=moved[name])
    near = nearest(name, known)
    for parent, field in known.items() if at_top and not near else ():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            near += [f"{parent}.{child}" for child in nearest(name, inner.model_fields)]
    return UNKNOWN_WITH_NEAREST.format(names=", ".join(near)) if near else UNKNOWN


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


def _schema_at(root: type[BaseModel], location: Location) -> Mapping[str, Any]:
    """The JSON schema of the value at a location; empty inside a plain dict."""
    schema: Mapping[str, Any] = {}
    for depth, part in enumerate(location):
        if isinstance(part, int):
            schema = next((branch["items"] for branch in branches(schema) if "items" in branch), {})
        else:
            owner = _owner(root, location[: depth + 1])
            schema = field_schemas(owner).get(part, {}) if owner else {}
    return schema


def _position(root: type[BaseModel], location: Location) -> tuple[tuple[int, ...], bool]:
    """The places of the parts of a location among their neighbours, and whether its last part is not declared."""
    places, is_declared = [], True
    for depth, part in enumerate(location):
        owner = _owner(root, location[: depth + 1])
        names = list(owner.model_fields) if owner else []
        is_declared = isinstance(part, int) or part in names
        places.append(part if isinstance(part, int) else names.index(part) if is_declared else len(names))
    return tuple(places), is_declared
