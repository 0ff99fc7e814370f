"""How the contract speaks of names and values: quoted, cut short, the near ones found, and never a secret shown."""

import json
import math
import re
from collections.abc import Iterable, Sequence

Location = tuple[int | str, ...]
Finding = tuple[Location, str]

# All rules of this module can be said in JSONata, which the state machine checks its input with: plain ASCII, regular
# expressions without flags and without look-behind, numbers as doubles with 15 sure digits.
SECRET_ADVICE = "looks like a secret and settings are stored as plain text; remove it and read it at run time instead"
SECRET_NAME_PATTERN = r"secret|passw(or)?d|token|credential|(api|private|access)_?key"  # within a name in lower case
SECRET_FORM_PATTERN = (
    r"(AKIA|ASIA)[A-Z0-9]{16}|-----BEGIN|(^|[^A-Za-z0-9_])(gh[a-z]_[A-Za-z0-9_]{20}|github_pat_[A-Za-z0-9_]{20}"
    r"|hf_[A-Za-z0-9]{20}|xox[a-z]-|sk-[A-Za-z0-9_-]{20})"
)
AWS_SECRET_KEY_PATTERN = (
    r"(^|[^A-Za-z0-9_/+=])(?=[A-Za-z0-9_/+=]*[a-z])(?=[A-Za-z0-9_/+=]*[A-Z])(?=[A-Za-z0-9_/+=]*[0-9])"
    r"[A-Za-z0-9/+=]{40}(?![A-Za-z0-9_/+=])"
)
S3_START_PATTERN = r"^s3://"  # a path of 40 characters with capitals and digits is no secret key
PLAIN_KEY_PATTERN = r"^[A-Za-z0-9_.\-]{1,60}$"
HIDDEN_VALUE = "a value that looks like a secret"
HIDDEN_KEY = "(a name that looks like a secret)"
SHOWN_CHARACTERS = 60
SHOWN_NAMES = 5
SHOWN_DIGITS = 14  # one less than a double is sure of, so that rounding to 15 digits adds no sixteenth
SMALLEST_SHOWN = 0.0001  # below it some write an exponent and some do not
LARGE_NUMBER = f"a number of over {SHOWN_DIGITS} digits"
SMALL_NUMBER = f"a number nearer to 0 than {SMALLEST_SHOWN}"
LEAST_SIMILARITY = 0.6
COMPARED_CHARACTERS = 40


def looks_secret(name: str, value: object) -> bool:
    """Whether a text value, by its own form or by the name it goes under, may be a credential."""
    if not isinstance(value, str):
        return False
    if re.search(SECRET_FORM_PATTERN, value) or (value and re.search(SECRET_NAME_PATTERN, name.lower())):
        return True
    return not re.search(S3_START_PATTERN, value) and re.search(AWS_SECRET_KEY_PATTERN, value) is not None


def show_value(value: object) -> str:
    """A value as one short piece of printable ASCII; containers are counted, never spelled out."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return HIDDEN_VALUE if looks_secret("", value) else _quoted(value)
    if isinstance(value, int | float):
        return _show_number(value)
    if isinstance(value, dict):
        return f"an object of {len(value)} keys"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    return f"a value of type {type(value).__name__}"


def show_path(location: Location) -> str:
    """`("instance_groups", 1, "name")` as `instance_groups[1].name`; keys with odd characters are quoted."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{show_key(part)}"
    return path.removeprefix(".") or "input"


def show_key(key: str) -> str:
    """A name as part of a path: as it is where it is plain, else quoted."""
    if looks_secret("", key):
        return HIDDEN_KEY
    return key if re.fullmatch(PLAIN_KEY_PATTERN, key) else _quoted(key)


def show_keys(keys: Sequence[str]) -> str:
    """The first five names, and how many more there are."""
    rest = f" and {len(keys) - SHOWN_NAMES} more" if len(keys) > SHOWN_NAMES else ""
    return ", ".join(show_key(key) for key in keys[:SHOWN_NAMES]) + rest


def nearest(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Up to `limit` of the `known` names that `name` may have been meant to be, the most similar first.

    Only letters and digits count, in lower case. Similar is what shares 60 % of the pairs of neighbouring characters
    (Dice's coefficient); after those come names that contain this one and names of which it is the initials.
    """
    wanted = compact(name)[:COMPARED_CHARACTERS]
    texts = {candidate: compact(candidate) for candidate in known}
    same = [candidate for candidate, text in texts.items() if text == wanted]
    pairs = {wanted[i : i + 2] for i in range(len(wanted) - 1)}
    scores = {candidate: _similarity(pairs, text) for candidate, text in texts.items()}
    similar = [candidate for candidate, score in scores.items() if score >= LEAST_SIMILARITY]
    close = sorted(similar, key=lambda candidate: scores[candidate], reverse=True)
    inside = [candidate for candidate, text in texts.items() if len(wanted) >= 3 and wanted in text]
    short = [candidate for candidate in texts if wanted and wanted == initials(candidate)]
    return same[:limit] or list(dict.fromkeys([*close, *inside, *short]))[:limit]


def compact(name: str) -> str:
    """The letters and digits of a name, in lower case."""
    return re.sub(r"[^a-z0-9]+", "", name.lower())


def initials(name: str) -> str:
    """The first characters of a name's words, `lr` for learning_rate; empty for a name of one word."""
    return "".join(word[0] for word in name.lower().split("_") if word) if "_" in name else ""


def _similarity(pairs: set[str], text: str) -> float:
    num_pairs = len(pairs) + max(len(text) - 1, 0)
    return 2 * sum(pair in text for pair in pairs) / num_pairs if num_pairs else 0.0


def _quoted(text: str) -> str:
    shown = "'" + re.sub(r"[^ -~]+", "?", text) + "'"
    return shown if len(shown) <= SHOWN_CHARACTERS else shown[: SHOWN_CHARACTERS - 3] + "..."


def _show_number(number: float) -> str:
    if isinstance(number, float) and not math.isfinite(number):
        return repr(number)
    if abs(number) >= 10**SHOWN_DIGITS:
        return LARGE_NUMBER
    if number == int(number):
        return str(int(number))
    return SMALL_NUMBER if abs(number) < SMALLEST_SHOWN else f"{number:.15g}"
