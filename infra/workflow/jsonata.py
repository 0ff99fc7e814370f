"""JSONata text made of Python values: the one way in which the builders of the state machine write expressions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Code:
    """A piece of JSONata, as opposed to a text that JSONata shall hold."""

    text: str


Value: TypeAlias = "Code | str | int | float | bool | Sequence[Value] | Mapping[str, Value] | None"


def literal(value: Value) -> str:
    """The JSONata that evaluates to a value: its JSON, in which every Code stands as it is."""
    if isinstance(value, Code):
        return value.text
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)}: {literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    return json.dumps(value)


def expression(value: Value) -> str:
    """The value as Step Functions wants an expression in a field: between `{%` and `%}`."""
    return "{% " + literal(value) + " %}"


def block(**bindings: str) -> str:
    """A JSONata block: each name is bound in turn to its expression; the last one, `result`, is the value."""
    *steps, (name, result) = bindings.items()
    if name != "result":
        raise ValueError(f"the last binding of a block is its result, not {name}")
    return "(" + " ".join(f"${step} := {text};" for step, text in steps) + f" {result})"


def merged(*objects: str) -> str:
    """An object with the keys of all objects; a later one wins."""
    return f"$merge([{', '.join(objects)}])"
