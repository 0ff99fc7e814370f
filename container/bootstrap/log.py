"""The lines of process 1: readable ones, and `counterpoise: event=...` ones for machines."""

import json
import sys
from typing import Any


def say(text: str) -> None:
    """Print one line at once: a killed container loses nothing that was said."""
    line(f"counterpoise: {text}")


def line(text: str) -> None:
    """Print one line of somebody else as it is."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def event(name: str, /, **fields: Any) -> None:
    """Print one machine-readable line, `event=NAME key=value ...`; text that is no single word is quoted as JSON."""
    say(" ".join([f"event={name}", *(f"{key}={_value(value)}" for key, value in fields.items())]))


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    is_word = text != "" and text.isprintable() and not any(character in text for character in ' "=')
    return text if is_word else json.dumps(text)
