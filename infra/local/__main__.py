"""`python -m infra.local`: training jobs on this machine, as SageMaker would run them."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from infra.local.console import JobConsole
from infra.local.host import PROJECT_ROOT
from infra.local.job import LocalJob, run_job
from infra.local.sagemaker_job import add_command
from infra.local.sandbox import enter_sandbox
from training.contract import ContractError, RunConfig, TrainingConfig

RUNS = Path("runs")
EXIT_FAILED, EXIT_BAD_INPUT = 1, 2
EXIT_INTERRUPTED, EXIT_NO_READER = 130, 141  # what a shell reports for SIGINT and SIGPIPE
IMAGE_FOLDER_DEFAULTS: dict[str, Any] = {
    "dataset": "image_folder",
    "transform": "normalize",
    "model": "test_vit",
    "image_size": 160,
    "steps": 200,
    "validation_share": 0.1,
    "report_every_steps": 10,
    "learning_rate": 0.01,
}
"""What `train --images` starts from: timm's smallest ViT at its own size, so that a laptop has a model in minutes."""


def main(arguments: Sequence[str]) -> int:
    """Run a command: 0 when the job completed, 1 when it failed or was stopped, 2 for bad input, 128 + n: signal n."""
    options = _parse(arguments)
    try:
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever read our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_NO_READER
    except KeyboardInterrupt:
        print("interrupted before a job had started", file=sys.stderr)
        return EXIT_INTERRUPTED
    except ContractError as error:
        print("\n".join(error.problems), file=sys.stderr)
        return EXIT_BAD_INPUT
    except OSError as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED


class _Parser(argparse.ArgumentParser):
    """Refuses in one line, as everything else here does."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog="python -m infra.local", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    training = commands.add_parser("train", help="one training job")
    training.add_argument("--images", type=Path, help="folder with one folder of JPEG or PNG images per class")
    training.add_argument("--input", type=Path, help="JSON file with instance_groups and training")
    training.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="one training setting")
    training.set_defaults(run=_train)
    add_command(commands)
    return parser.parse_args(arguments)


def _train(options: argparse.Namespace) -> int:
    config = run_config(options.input, options.images, options.set)
    channels = {config.training.channel: options.images} if options.images else {}
    preflight(config.training, channels)
    sandbox = enter_sandbox()
    job_dir = fresh_directory(RUNS / "train")
    outcome = run_job(LocalJob(config=config, job_dir=job_dir, channels=channels), JobConsole(), sandbox)
    if outcome.status == "Completed":
        print(f"model: {outcome.model_dir}\nresults: {outcome.output_dir / 'data' / 'results.json'}")
        return 0
    print(outcome.reason, file=sys.stderr)
    codes = set(outcome.exit_codes.values())
    return EXIT_BAD_INPUT if codes == {EXIT_BAD_INPUT} else EXIT_FAILED


def run_config(input_file: Path | None, images: Path | None, settings: Sequence[str]) -> RunConfig:
    """The run that the command line asks for: the file, else the defaults; then the single settings.

    Raises:
        ContractError: one line per problem.
    """
    base = RunConfig.parse_json(_read(input_file)) if input_file else RunConfig.parse({})
    texts = dict(base.training.to_hyperparameters())
    if images and not input_file:
        texts.update(TrainingConfig.parse(IMAGE_FOLDER_DEFAULTS).to_hyperparameters())
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ContractError([f"--set: {setting!r} is no setting; allowed: NAME=VALUE, such as steps=100"])
        texts[name] = value
    training = TrainingConfig.from_hyperparameters(texts)
    _check_dataset(training, images)
    return RunConfig.parse({**base.model_dump(mode="json"), "training": training.model_dump(mode="json")})


def _check_dataset(training: TrainingConfig, images: Path | None) -> None:
    if images and training.dataset != "image_folder":
        reason = f"training.dataset is {training.dataset}, which reads no folder"
        raise ContractError([f"--images: {reason}; set dataset=image_folder or leave --images out"])
    if not images and training.dataset == "image_folder":
        raise ContractError(["training.dataset: image_folder needs a folder of images; add --images DIR"])


def fresh_directory(path: Path) -> Path:
    """Make room at `path`: what an earlier job left there, with its model, becomes `<path>.previous`, instead of older.

    An earlier model must not be taken for that of a job which wrote none. Raises OSError.
    """
    if path.exists():
        previous = path.with_name(f"{path.name}.previous")
        shutil.rmtree(previous, ignore_errors=True)
        path.rename(previous)
    return path


def preflight(config: TrainingConfig, channels: dict[str, Path]) -> None:
    """Check model and data in a process of its own, before any host starts: this one must not import torch.

    Raises:
        ContractError: what the check printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        hyperparameters = Path(folder) / "hyperparameters.json"
        hyperparameters.write_text(json.dumps(config.to_hyperparameters()))
        data_dir = Path(folder) / "data"
        data_dir.mkdir()
        for name, path in channels.items():
            (data_dir / name).symlink_to(path.absolute())
        files = [f"--hyperparameters={hyperparameters}", f"--data-dir={data_dir}"]
        # No warnings: whatever is on the standard error of this command is a problem.
        command = [sys.executable, "-W", "ignore", "-m", "training.preflight", *files]
        checked = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    if checked.returncode == 0:
        return
    lines = [line for line in checked.stderr.splitlines() if line]
    if checked.returncode != EXIT_BAD_INPUT:
        last = lines[-1] if lines else f"exit code {checked.returncode}"
        raise ContractError([f"the check of settings and data broke off: {last}"])
    for name, path in channels.items():
        lines = [line.replace(str(data_dir / name), str(path)) for line in lines]
    raise ContractError(lines)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ContractError([f"--input: cannot read {path} ({error.strerror}); name a JSON file"]) from error
    except UnicodeDecodeError as error:
        raise ContractError([f"--input: {path} is not text in UTF-8; name a JSON file"]) from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
