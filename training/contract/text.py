"""How settings travel as SageMaker hyperparameters, which carry text only: plain where possible, else as JSON."""

import json
import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from training.contract.errors import M, refusal, validated
from training.contract.values import Finding

MAX_VALUE_CHARACTERS = 2500  # SageMaker's limit for one hyperparameter value

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def decode_hyperparameters(model: type[M], mapping: Mapping[str, object]) -> M:
    """A `model` from SageMaker hyperparameters, whose values are text, plain or (once or twice) JSON-encoded.

    Keys that begin with `sagemaker_` are the platform's and ignored. Values that are not text are taken as they are.
    Raises ContractError with one line for each key that is unknown or holds what its field does not allow.
    """
    values: dict[str, object] = {}
    found: list[Finding] = []
    for key, value in mapping.items():
        if str(key).startswith("sagemaker_"):
            continue
        field = model.model_fields.get(key)
        if isinstance(value, str) and len(value) > MAX_VALUE_CHARACTERS:
            found.append(((key,), _too_long(len(value))))
        values[key] = decode_value(value, field.annotation) if isinstance(value, str) and field else value
    return validated(model, values, found)


def encode_hyperparameters(config: BaseModel) -> dict[str, str]:
    """The settings as text that `decode_hyperparameters` turns back into an equal model; None is left out.

    Raises ContractError for a value that takes more than 2,500 characters.
    """
    texts = {}
    for name, value in config.model_dump(mode="json").items():
        field = type(config).model_fields[name]
        if value is None and field.default is None:
            continue
        texts[name] = encode_value(value, field.annotation)
    too_long = [((name,), _too_long(len(text))) for name, text in texts.items() if len(text) > MAX_VALUE_CHARACTERS]
    if too_long:
        raise refusal(type(config), too_long)
    return texts


def encode_value(value: object, annotation: Any) -> str:
    """One JSON value as text: str plain, or quoted so that it cannot be read as something else; all others as JSON."""
    once = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if not isinstance(value, str):
        return once
    # Two layers of quotes are always enough, since decoding takes off no more than two.
    return next(
        (text for text in (value, once) if decode_value(text, annotation) == value),
        json.dumps(once, ensure_ascii=False),
    )


def _too_long(num_characters: int) -> str:
    return (
        f"{num_characters} characters of text; allowed: {MAX_VALUE_CHARACTERS}, SageMaker's limit for one"
        " hyperparameter; shorten it"
    )


def _kinds(annotation: Any) -> frozenset[type]:
    """The plain types that an annotation accepts, e.g. {int, NoneType} for `int | None`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kinds(arguments[0])
    if origin in (Union, types.UnionType):
        return frozenset().union(*(_kinds(argument) for argument in arguments))
    if origin is Literal:
        return frozenset(type(choice) for choice in arguments)
    return frozenset([origin or annotation])


def decode_value(text: str, annotation: Any) -> object:
    """The value that a text stands for in a field of this annotation; the text itself where it stands for none."""
    kinds = _kinds(annotation)
    words, is_quoted = _unquoted(text)
    bare = words.strip()
    if type(None) in kinds and bare in ("None", "null", "") and not (is_quoted and str in kinds):
        return None
    if bool in kinds and bare in ("true", "false", "True", "False"):
        return bare in ("true", "True")
    if int in kinds and _WHOLE_NUMBER.fullmatch(bare):
        return int(bare)
    # 64.0 is a whole number to the contract; a number that is none keeps its text, which the refusal shows.
    if _NUMBER.fullmatch(bare) and (float in kinds or (int in kinds and float(bare).is_integer())):
        return float(bare)
    if kinds & {dict, list, tuple} and bare.startswith(("{", "[")):
        try:
            return json.loads(bare)
        except (ValueError, RecursionError):
            return words
    return words


def _unquoted(text: str) -> tuple[str, bool]:
    """The text inside up to two layers of JSON quotes, and whether there was any."""
    words = text
    for _ in range(2):
        if not (words.strip().startswith('"') and words.strip().endswith('"')):
            break
        try:
            inner = json.loads(words)
        except ValueError:
            break
        words = str(inner)
    return words, words is not text
