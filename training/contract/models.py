"""The names of timm's models, from a dated list that `make docs` writes, and those near to a wrong one."""

import re
from pathlib import Path

from training.contract.values import COMPARED_CHARACTERS, nearest

_TEXT = Path(__file__).with_name("timm_models.txt").read_text(encoding="ascii")
SOURCE, *_NAMES = _TEXT.splitlines()
MODELS = tuple(_NAMES)
"""What timm.list_models() gives: every architecture but names that timm has replaced."""

SHARED_CHARACTERS = 5
"""Fewer would compare hundreds of names, too many for the state machine; more would miss more typing errors."""

_KNOWN = frozenset(MODELS)


def is_model(name: str) -> bool:
    """Whether timm has a model of this name; a tag of pretrained weights after the first dot is not looked at."""
    return _architecture(name) in _KNOWN


def near_models(name: str) -> list[str]:
    """Up to three names that a wrong one may have been meant to be, the most similar first.

    Compared are the models that begin with the same five characters, and where none of those is near the ones that end
    with the same five.
    """
    wanted = re.sub(r"[^a-z0-9]+", "_", _architecture(name).lower())[:COMPARED_CHARACTERS]
    start, end = wanted[:SHARED_CHARACTERS], wanted[-SHARED_CHARACTERS:]
    return nearest(wanted, [model for model in MODELS if model.startswith(start)]) or nearest(
        wanted, [model for model in MODELS if model.endswith(end)]
    )


def _architecture(name: str) -> str:
    return name.partition(".")[0]
