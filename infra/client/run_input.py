"""The input of an execution from the command line: a file, standard input or JSON text, and single settings over it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO, get_args, get_origin

from infra.client.errors import BadInput
from training.contract import ContractError, RunConfig
from training.contract.settings import Settings
from training.contract.text import decode_value
from training.contract.values import show_value


def run_input(source: str | None, mode: str | None, settings: Sequence[str], stdin: TextIO) -> tuple[str, RunConfig]:
    """The JSON text to start an execution with, and the run that it asks for.

    `source` is JSON text, the path of a file with it, or `-`; each of `settings` is NAME=VALUE, such as
    training.steps=5, its value written as text. Without a source the run is the article's experiment.

    Raises:
        BadInput: one line for each problem, the same that the execution would fail with.
    """
    text = "{}" if source is None else _read(source, stdin)
    changes = [*([f"mode={mode}"] if mode is not None else []), *settings]
    try:
        if changes:
            raw = _object_in(text)
            for change in changes:
                _set(raw, change)
            text = json.dumps(raw, ensure_ascii=False, separators=(",", ":"))
        return text, RunConfig.parse_json(text)
    except ContractError as error:
        raise BadInput(*error.problems) from error


def _read(source: str, stdin: TextIO) -> str:
    if source.lstrip().startswith(("{", "[")):
        return source
    try:
        return stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8-sig")
    except OSError as error:
        problem = f"--input: cannot read {show_value(source)} ({error.strerror})"
    except (UnicodeDecodeError, ValueError):
        problem = f"--input: {show_value(source)} is not text in UTF-8"
    raise BadInput(f"{problem}; give a JSON file, - for standard input, or a JSON object")


def _object_in(text: str) -> Any:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        raw = None
    if not isinstance(raw, dict):
        RunConfig.parse_json(text)  # raises: the contract takes objects only
    return raw


def _set(raw: dict[str, Any], change: str) -> None:
    path, equals, text = change.partition("=")
    if not equals or not path:
        raise BadInput(f"--set: {show_value(change)} is no setting; allowed: NAME=VALUE, such as training.steps=100")
    _put(raw, RunConfig, path, text)


def _put(target: dict[str, Any], kind: Any, path: str, text: str) -> None:
    """Put a value, written as text, into an object of this kind; what the contract does not know it will refuse."""
    if get_origin(kind) is dict:
        target[path] = decode_value(text, get_args(kind)[1])
        return
    fields = kind.model_fields if isinstance(kind, type) and issubclass(kind, Settings) else {}
    name, dot, rest = path.partition(".")
    if name not in fields:
        target[name] = text
    elif not dot:
        target[name] = decode_value(text, fields[name].annotation)
    else:
        inner = target.setdefault(name, {})
        if isinstance(inner, dict):
            _put(inner, fields[name].annotation, rest, text)
