"""The entry: arguments, bad settings, and what is left in the log and in the failure file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from container.bootstrap import log
from container.bootstrap.errors import HostError
from container.bootstrap.outcome import Outcome
from container.bootstrap.run import write_failure
from tests.bootstrap.job import ROOT, Job

CASES = ROOT / "tests" / "cases" / "hyperparameters"
SINGLE = {"ml.m5.large": ["algo-1"]}


def test_an_unknown_argument_is_refused_in_one_line() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "container.bootstrap", "serve", "--now"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (2, "")
    assert ended.stdout == "counterpoise: argument 'serve --now' is not known; allowed: train\n"


@pytest.mark.parametrize(
    ("hyperparameters", "named"),
    [
        (json.loads((CASES / "hp04_bad_number.json").read_text()), ["batch_size", "sixty-four"]),
        ({"batch_sise": "64"}, ["batch_sise", "batch_size"]),
        ({"dataset": '"imagenet"'}, ["dataset", "imagenet", "synthetic", "image_folder"]),
        (
            {"steps": "0", "learning_rate": "NaN", "sagemaker_region": '"eu-west-1"'},
            ["steps", "0", "learning_rate", "NaN"],
        ),
        ({"head_group": "gpu"}, ["head_group", "gpu", "group0"]),
    ],
)
def test_bad_settings_end_a_host_before_anything_is_started(
    tmp_path: Path, hyperparameters: dict[str, str], named: list[str]
) -> None:
    with Job(tmp_path, layout=SINGLE, hyperparameters=hyperparameters) as job:
        host = job.start("algo-1")
        assert host.end() == 2
        assert (job.num_starts("algo-1"), job.ray_pids()) == (0, [])
    assert host.failure is not None
    assert "\n" not in host.failure
    for name in named:
        assert name in host.failure
    assert "Traceback" not in host.log
    assert [line for line in host.log.splitlines() if "event=" in line] == [
        f"counterpoise: event=end exit_code=2 reason={json.dumps(host.failure)}"
    ]


def test_settings_may_be_plain_or_encoded_text_beside_those_of_the_platform(tmp_path: Path) -> None:
    settings = {"batch_size": "8", "dataset": '"synthetic"', "sagemaker_job_name": '"vit-1"'}
    with Job(tmp_path, layout=SINGLE, hyperparameters=settings) as job:
        assert job.start("algo-1").end() == 0


def test_the_failure_file_begins_with_the_cause_and_its_folder_is_made(tmp_path: Path) -> None:
    path = tmp_path / "output" / "failure"
    write_failure(path, "ValueError: \ud800 " + "é" * 2000)
    assert path.read_text(encoding="utf-8") == "ValueError: ? " + "é" * (1024 - len("ValueError: ? "))


def test_a_failure_file_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "output").touch()
    write_failure(tmp_path / "output" / "failure", "ValueError")
    assert "output/failure: cannot be written (" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("algo-1", "algo-1"),
        (12, "12"),
        (0.1 + 0.2, "0.3"),
        (1e-9, "1e-09"),
        (None, "None"),
        ("", '""'),
        ("two words", '"two words"'),
        ('say "no"', r'"say \"no\""'),
        ("a=b", '"a=b"'),
        ("a\nb", r'"a\nb"'),
        ("a\rb\tc", r'"a\rb\tc"'),
        ("a\u2028b", r'"a\u2028b"'),
        ("\udcff", r'"\udcff"'),
        ("größe", "größe"),
    ],
)
def test_an_event_is_one_line_of_words(capsys: pytest.CaptureFixture[str], value: object, shown: str) -> None:
    log.event("step", value=value, name="x")
    assert capsys.readouterr().out == f"counterpoise: event=step value={shown} name=x\n"


def test_an_error_is_told_by_its_reason_or_by_its_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert Outcome.of(HostError(3, "no room")) == Outcome(exit_code=3, reason="no room")
    assert capsys.readouterr().out == ""
    assert Outcome.of(OSError(28, "No space\nleft")) == Outcome(exit_code=1, reason="OSError: [Errno 28] No space left")
    assert Outcome.of(KeyError()) == Outcome(exit_code=1, reason="KeyError")
    assert "OSError" in capsys.readouterr().out


def test_the_bootstrap_says_the_same_under_any_locale(tmp_path: Path) -> None:
    with Job(tmp_path, layout=SINGLE, hyperparameters={"model": "größe"}) as job:
        host = job.start("algo-1", environment={"LC_ALL": "C", "LANG": "C"})
        assert host.end() == 2
    assert host.failure is not None
    assert host.failure.startswith("model: 'gr?e' has the wrong form")
