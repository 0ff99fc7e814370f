"""The commands of the local runner: what a command line asks for, and how a wrong one is refused before any host."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

import pytest

import infra.local.__main__ as commands
from infra.local.__main__ import IMAGE_FOLDER_DEFAULTS, fresh_directory, main, preflight, run_config
from infra.local.console import Event
from infra.local.job import LocalJob
from infra.local.outcome import JobOutcome
from infra.local.sandbox import Sandbox
from training.contract import ContractError, RunConfig, TrainingConfig
from training.models import WEIGHTS_FILE

ROOT = Path(__file__).resolve().parents[2]


# What a command line asks for


def test_no_argument_is_the_articles_experiment() -> None:
    assert run_config(None, None, []) == RunConfig.parse({})


def test_single_settings_go_over_the_file_and_leave_its_groups(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    groups = [{"name": "only", "instance_type": "ml.m5.large", "instance_count": 3}]
    file.write_text(json.dumps({"instance_groups": groups, "training": {"steps": 7, "batch_size": 5}}))
    config = run_config(file, None, ["steps=9", 'model_arguments={"depth": 2}', "head_group=only"])
    assert [group.model_dump() for group in config.instance_groups] == groups
    assert config.training == TrainingConfig(steps=9, batch_size=5, model_arguments={"depth": 2}, head_group="only")


def test_a_folder_of_images_brings_defaults_that_suit_it(tmp_path: Path) -> None:
    training = run_config(None, tmp_path, ["steps=3"]).training
    assert training == TrainingConfig(**{**IMAGE_FOLDER_DEFAULTS, "steps": 3})


def test_a_file_is_taken_as_it_is_with_a_folder_of_images(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text('{"training": {"dataset": "image_folder"}}')
    assert run_config(file, tmp_path, []).training == TrainingConfig(dataset="image_folder")


def groups(count: int) -> dict[str, Any]:
    return {"instance_groups": [{"name": f"g{index}", "instance_type": "ml.m5.large"} for index in range(count)]}


TWO_OF_ONE_NAME = {"instance_groups": [{"name": "cpu", "instance_type": "ml.m5.large"}] * 2}
NO_HOSTS = {"instance_groups": [{"name": "cpu", "instance_type": "ml.m5.large", "instance_count": 0}]}
BAD_FILES = [
    (json.dumps(groups(6)), "instance_groups: 6 groups; allowed: 1 to 5"),
    (json.dumps(groups(0)), "instance_groups: 0 groups; allowed: 1 to 5"),
    (json.dumps(TWO_OF_ONE_NAME), "instance_groups[1].name: 'cpu' is used by two groups"),
    (json.dumps(NO_HOSTS), "instance_groups[0].instance_count: 0 is out of range; allowed: 1 to 1000"),
    ("{", "input: not JSON at line 1 column 2"),
    ("[]", "input: a list of 0 is not an object"),
    ('{"trainin": {}}', "trainin: unknown setting; nearest: training"),
    ("\xff", "--input: "),
]


@pytest.mark.parametrize(("text", "message"), BAD_FILES, ids=[message for _, message in BAD_FILES])
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "run.json"
    file.write_bytes(text.encode("latin-1"))
    _check_refusal(lambda: run_config(file, None, []), message)


def test_a_file_that_cannot_be_read_is_refused_in_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "missing.json"
    _check_refusal(
        lambda: run_config(missing, None, []), f"--input: cannot read {missing} (No such file or directory); name a "
    )
    _check_refusal(lambda: run_config(tmp_path, None, []), f"--input: cannot read {tmp_path} (Is a directory)")


BAD_SETTINGS = [
    ("steps", "--set: 'steps' is no setting; allowed: NAME=VALUE, such as steps=100"),
    ("stepz=3", "stepz: unknown setting; nearest: steps"),
    ("=3", "'': unknown setting"),
    ("seed=", "seed: '' is not a whole number; allowed: 0 to 2147483647"),
    ("steps=0", "steps: 0 is out of range; allowed: 1 to 10000000 or null"),
    ("head_group=tpu", "training.head_group: 'tpu' is not a group of this run; allowed: gpu, cpu"),
    ("dataset=image_folder", "training.dataset: image_folder needs a folder of images; add --images DIR"),
]


@pytest.mark.parametrize(("setting", "message"), BAD_SETTINGS, ids=[setting for setting, _ in BAD_SETTINGS])
def test_a_wrong_setting_is_refused_in_one_line(setting: str, message: str) -> None:
    _check_refusal(lambda: run_config(None, None, [setting]), message)


def test_a_folder_of_images_that_nobody_would_read_is_refused(tmp_path: Path) -> None:
    message = "--images: training.dataset is synthetic, which reads no folder; set dataset=image_folder or leave"
    _check_refusal(lambda: run_config(None, tmp_path, ["dataset=synthetic"]), message)
    file = tmp_path / "run.json"
    file.write_text("{}")
    _check_refusal(lambda: run_config(file, tmp_path, []), message)


def _check_refusal(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ContractError) as refusal:
        call()
    assert len(refusal.value.problems) == 1
    assert refusal.value.problems[0].startswith(message)
    assert "\n" not in refusal.value.problems[0]


# The commands as programs


def run_command(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "infra.local", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


WRONG_COMMANDS = [
    (["train", "--set", "stepz=3"], "stepz: unknown setting; nearest: steps"),
    (["train", "--input", "missing.json"], "--input: cannot read missing.json"),
    (["train", "--input"], "python -m infra.local train: argument --input: expected one argument"),
    (["trian"], "python -m infra.local: argument command: invalid choice: 'trian'"),
    ([], "python -m infra.local: the following arguments are required: command"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG_COMMANDS, ids=[" ".join(case) for case, _ in WRONG_COMMANDS])
def test_a_wrong_command_is_refused_in_one_line_and_starts_nothing(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = run_command(arguments, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(message)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_refused_by_the_name_that_the_user_gave(tmp_path: Path) -> None:
    done = run_command(["train", "--images", "my/pictures"], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("dataset folder my/pictures: does not exist; expected one folder per class")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_check_that_breaks_off_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "Traceback ...\n  File ...\nImportError: no torch\n")

    monkeypatch.setattr(subprocess, "run", crash)
    _check_refusal(
        lambda: preflight(TrainingConfig(), {}), "the check of settings and data broke off: ImportError: no torch"
    )


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ContractError(["steps: wrong", "model: wrong"]), 2, "steps: wrong\nmodel: wrong\n"),
        (PermissionError(13, "Permission denied", "runs"), 1, "[Errno 13] Permission denied: 'runs'\n"),
        (KeyboardInterrupt(), 130, "interrupted before a job had started\n"),
    ],
)
def test_an_end_by_error_is_a_sentence_and_a_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    message: str,
) -> None:
    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr(commands, "_train", fail)
    assert main(["train"]) == code
    assert capsys.readouterr() == ("", message)


PRINTING = """
import sys
import infra.local.__main__ as commands

def show(_):
    for number in range({lines}):
        print("a line of some host", number, flush={flush})
    return 0

commands._train = show
sys.exit(commands.main(["train"]))
"""


@pytest.mark.parametrize(("lines", "flush"), [(100_000, True), (100_000, False), (1, False)])
def test_a_reader_that_leaves_ends_the_command_quietly(lines: int, flush: bool) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", PRINTING.format(lines=lines, flush=flush)],
            cwd=ROOT,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=300,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


# A job's place and end


def test_an_earlier_model_is_not_taken_for_that_of_this_job(tmp_path: Path) -> None:
    place = tmp_path / "runs" / "train"
    assert fresh_directory(place) == place
    assert not place.exists()
    for content in ("first", "second"):
        (place / "algo-1").mkdir(parents=True)
        (place / "algo-1" / WEIGHTS_FILE).write_text(content)
        fresh_directory(place)
        assert not place.exists()
        assert (tmp_path / "runs" / "train.previous" / "algo-1" / WEIGHTS_FILE).read_text() == content


Status = Literal["Completed", "Failed", "Stopped"]


def outcome(job: LocalJob, status: Status, *, failure: str | None = None, stop_reason: str | None = None) -> JobOutcome:
    now = datetime.now(UTC)
    return JobOutcome(
        status=status,
        stop_reason=stop_reason,
        failure=failure,
        exit_codes={"algo-1": 0 if status == "Completed" else 1},
        head="algo-1",
        model_dir=job.ml_dir("algo-1") / "model",
        output_dir=job.ml_dir("algo-1") / "output",
        started_at=now,
        ended_at=now,
        seconds=60.0,
        events=(Event("algo-1", "first_step", {}, 40.0),),
        last_step_to_end_seconds=2.5,
        cpu_seconds={},
        bytes_received={},
        bytes_sent={},
        peak_memory_bytes={},
        left_processes={},
        limits="none",
    )


@pytest.mark.parametrize(
    ("status", "failure", "stop_reason", "reason"),
    [
        ("Failed", "ValueError: boom\n\nTraceback ...", None, "failed: ValueError: boom"),
        ("Stopped", "stopped by SIGTERM", "signal SIGINT", "stopped: signal SIGINT"),
        ("Stopped", None, "max_runtime_seconds=3600 is over", "stopped: max_runtime_seconds=3600 is over"),
        ("Failed", "\n", None, "failed: "),
        ("Completed", None, None, "completed: no host reported a failure"),
    ],
)
def test_the_end_of_a_job_is_one_line(
    tmp_path: Path, status: Status, failure: str | None, stop_reason: str | None, reason: str
) -> None:
    job = LocalJob(config=RunConfig.parse({}), job_dir=tmp_path)
    assert outcome(job, status, failure=failure, stop_reason=stop_reason).reason == reason


@pytest.mark.parametrize("codes", [{"algo-1": 2, "algo-2": 2}, {"algo-1": 2, "algo-2": 4}])
def test_a_training_job_that_refused_its_settings_is_bad_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, codes: dict[str, int]
) -> None:
    def run(job: LocalJob, *_: object) -> JobOutcome:
        failed = outcome(job, "Failed", failure="steps: wrong")
        return JobOutcome(**{**vars(failed), "exit_codes": codes})

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "preflight", lambda *_: None)
    monkeypatch.setattr(commands, "enter_sandbox", lambda: cast(Sandbox, None))
    monkeypatch.setattr(commands, "run_job", run)
    assert main(["train"]) == (2 if set(codes.values()) == {2} else 1)
    assert capsys.readouterr().err == "failed: steps: wrong\n"


def test_a_training_job_that_completed_says_where_its_results_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "preflight", lambda *_: None)
    monkeypatch.setattr(commands, "enter_sandbox", lambda: cast(Sandbox, None))
    monkeypatch.setattr(commands, "run_job", lambda job, *_: outcome(job, "Completed"))
    assert main(["train", "--set", "steps=2"]) == 0
    ml = tmp_path / "runs" / "train" / "algo-1" / "ml"
    assert capsys.readouterr().out == f"model: {ml / 'model'}\nresults: {ml / 'output' / 'data' / 'results.json'}\n"


INTERRUPTED_CHECK = """
import sys
import infra.local.__main__ as commands

def wait_for_signal(_):
    print("waiting", flush=True)
    sys.stdin.read()
    return 0

commands._train = wait_for_signal
sys.exit(commands.main(["train"]))
"""


def test_an_interrupt_before_a_job_is_no_traceback() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED_CHECK],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (130, "interrupted before a job had started\n")
