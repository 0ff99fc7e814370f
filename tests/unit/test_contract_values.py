"""How values and names are shown in a refusal, which names are near, and what is taken for a secret."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.contract.values import looks_secret, nearest, show_key, show_keys, show_path, show_value

KEY_ID = "AKIA" + "Q" * 16
SECRET_KEY = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY12"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, "true"),
        (7, "7"),
        (7.0, "7"),
        (-0.0, "0"),
        (1.5, "1.5"),
        (0.1 + 0.2, "0.3"),
        (-0.0001, "-0.0001"),
        (0.00009, "a number nearer to 0 than 0.0001"),
        (99_999_999_999_999, "99999999999999"),
        (-(10**14), "a number of over 14 digits"),
        (10**400, "a number of over 14 digits"),
        (float("nan"), "nan"),
        ("it's", "'it's'"),
        ("a\nb\x00é😀c", "'a?b?c'"),
        ("x" * 58, "'" + "x" * 58 + "'"),
        ("x" * 59, "'" + "x" * 56 + "..."),
        ([1, 2], "a list of 2"),
        ({}, "an object of 0 keys"),
        (KEY_ID, "a value that looks like a secret"),
        (b"x", "a value of type bytes"),
    ],
)
def test_a_value_is_shown_in_plain_ascii(value: object, shown: str) -> None:
    assert show_value(value) == shown


@given(value=st.text() | st.floats() | st.integers())
def test_whatever_is_shown_is_short_and_printable(value: object) -> None:
    assert re.fullmatch("[ -~]{1,60}", show_value(value))


def test_a_path_quotes_odd_keys_and_hides_secrets() -> None:
    assert show_path(("channels", 2, "name")) == "channels[2].name"
    assert show_path(("tags", "a b", KEY_ID)) == "tags.'a b'.(a name that looks like a secret)"
    assert show_path(("fallback_instance_groups", 0, 1)) == "fallback_instance_groups[0][1]"
    assert show_path(()) == "input"
    assert show_key("a.b-c_1") == "a.b-c_1"


def test_many_names_are_cut_short() -> None:
    assert show_keys(["a"]) == "a"
    assert show_keys(["a", "b", "c", "d", "e", "f", "g"]) == "a, b, c, d, e and 2 more"


def test_nearest_looks_at_letters_and_digits_only() -> None:
    known = ["batch_size", "instance_groups", "learning_rate", "model"]
    assert nearest("Batch-Size", known) == nearest("batchSize", known) == ["batch_size"]
    assert nearest("instances", known) == ["instance_groups"]
    assert nearest("rate", known) == ["learning_rate"]
    assert nearest("ra", known) == nearest("é", known) == []


@pytest.mark.parametrize(
    "value",
    [
        KEY_ID,
        f"key {KEY_ID}",
        SECRET_KEY,
        f"({SECRET_KEY})",
        "-----BEGIN RSA PRIVATE KEY-----",
        "ghp_" + "a1" * 18,
        "github_pat_" + "a1" * 10,
        "hf_" + "a1" * 10,
        "xoxb-1",
        "sk-proj-" + "a1" * 10,
    ],
)
def test_these_look_like_secrets(value: str) -> None:
    assert looks_secret("", value)


@pytest.mark.parametrize(
    "value",
    [
        "vit_base_patch16_224",
        "laugh_x" + "a1" * 10,
        "s3://" + SECRET_KEY,
        SECRET_KEY + "x",
        SECRET_KEY.lower(),
        "task-" + "a" * 20,
        "",
    ],
)
def test_these_do_not(value: str) -> None:
    assert not looks_secret("", value)


@pytest.mark.parametrize("name", ["token", "HUB_TOKEN", "Password", "passwd", "client_secret", "apiKey", "access_key"])
def test_text_under_such_a_name_is_a_secret(name: str) -> None:
    assert looks_secret(name, "x")
    assert not looks_secret(name, "")
    assert not looks_secret(name, 5)
