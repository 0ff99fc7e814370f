"""The contract in JSONata: what is wrong with an execution's input, in the contract's own words, and its defaults."""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

from pydantic import BaseModel

from infra.workflow.validation_tables import MODELS, item_rows, patterns, setting_rows
from training.contract import (
    Channel,
    InstanceGroup,
    RunConfig,
    TrainingConfig,
    errors,
    instance_types,
    models,
    relations,
    sentences,
    text,
    training,
    training_relations,
    values,
)

_LIBRARY = [
    Path(__file__).with_name(f"validation_{part}.jsonata")
    for part in ("words", "checks", "own_checks", "training", "relations")
]


def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    fields = model.model_fields.items()
    return {name: field.default for name, field in fields if not field.is_required()}


def _table(rows: Mapping[str, str]) -> str:
    return "".join(f"\n{name} {items}" for name, items in rows.items()) + "\n"


_CONTRACT: dict[str, Any] = {
    name: value
    for module in (values, errors, instance_types, models, relations, sentences, text, training, training_relations)
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str | int | float)
}
_DERIVED: dict[str, Any] = {
    "FAMILIES": _table(instance_types.SIZES),
    "KIN": _table(instance_types.KIN),
    "MODEL_NAMES": f" {' '.join(models.MODELS)} ",
    "BUILT_IN_TRANSFORMS": training.BUILT_IN_TRANSFORMS,
    "FILE_DATASETS": relations.FILE_DATASETS,
    "RUN_DEFAULTS": RunConfig().model_dump(mode="json"),
    "TRAINING_DEFAULTS": TrainingConfig().model_dump(mode="json"),
    "GROUP_DEFAULTS": _defaults(InstanceGroup),
    "CHANNEL_DEFAULTS": _defaults(Channel),
    "DEFAULT_GROUPS": RunConfig().model_dump(mode="json")["instance_groups"],
}
_SENTENCE = re.compile(r"<<(\w+)((?:~\w+=.+?)*)>>")
_WORD = re.compile(r"~(\w+)=([^~]+)")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


@cache
def checked_input(source: str = "$states.input") -> str:
    """An expression for `{"problems": [...], "run": {...}}` of the JSON value that `source` is.

    `problems` holds the lines that RunConfig.parse refuses the value with; where there are none, `run` is the value
    with every default filled in, else it is an empty object.
    """
    return (
        f"($input := {source}; {_library()} {_tables()} $relations := $relations_of($object($input));"
        " $problems := $limited($record($input, '', 'RunConfig'));"
        ' {"problems": $problems, "run": $count($problems) = 0 ? $filled($input) : {}})'
    )


def _library() -> str:
    code = _COMMENT.sub("", "\n".join(path.read_text(encoding="utf-8") for path in _LIBRARY))
    code = " ".join(line.strip() for line in code.splitlines() if line.strip())
    code = _SENTENCE.sub(lambda match: _sentence(match[1], dict(_WORD.findall(match[2]))), code)
    return re.sub(r"%(\w+)%", lambda match: _constant(match[1]), code)


def _sentence(name: str, words: Mapping[str, str]) -> str:
    """A sentence of the contract as JSONata that joins its fixed parts and the expressions for its words."""
    parts: list[str] = []
    for fixed, word, *_ in Formatter().parse(_CONTRACT[name]):
        parts += [json.dumps(fixed)] if fixed else []
        parts += [words[word]] if word else []
    return f"({' & '.join(parts)})"


def _constant(name: str) -> str:
    if name.endswith("_PATTERN"):
        return _regular_expression(_CONTRACT[name])
    return json.dumps(_DERIVED[name] if name in _DERIVED else _CONTRACT[name])


def _regular_expression(pattern: str) -> str:
    # Java and Python let `$` match before a last newline too; "nothing follows" means the same everywhere.
    body = re.sub(r"\$$", lambda _: r"(?![\s\S])", pattern)
    return "/" + body.replace("/", r"\/") + "/"


def _tables() -> str:
    """What the library reads: the rows of the settings, of the items of lists, the forms of text, names that moved."""
    rows = _chosen("$called", {model.__name__: json.dumps(setting_rows(model)) for model in MODELS})
    forms = {name: f"$contains($value, {_regular_expression(form)})" for name, form in patterns().items()}
    moved = {name: json.dumps(advice) for name, advice in RunConfig.moved_settings.items()}
    return (
        f"$item_rows := {json.dumps(item_rows())};"
        f" $rows_of := function($called) {{ {rows} }};"
        f" $has_form := function($value, $form) {{ {_chosen('$form', {**forms, '': 'true'})} }};"
        f" $moved_to := function($key) {{ {_chosen('$key', moved)} }};"
    )


def _chosen(variable: str, values: Mapping[str, str]) -> str:
    return " : ".join(f"{variable} = {json.dumps(name)} ? {value}" for name, value in values.items())
