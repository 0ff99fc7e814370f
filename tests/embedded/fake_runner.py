"""A runner that speaks the emulator's protocol and follows a scenario instead of starting hosts."""

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.embedded.scenarios import Scenarios

RESULT = (
    "counterpoise: event=result images_per_second=123.4567890123 step_seconds=0.25 data_wait_share=0.125 loss=1e-05"
)
CONTENTS = (("model", "model"), ("output", "output"), ("checkpoints", "checkpoints"))


class Stopped(BaseException):
    """SIGTERM has come."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=Path, required=True)
    parser.add_argument("--request", type=Path, required=True)
    parser.add_argument("--job-dir", type=Path, required=True)
    parser.add_argument("--channel", action="append", default=[])
    options = parser.parse_args()
    request = json.loads(options.request.read_text())
    entry = Scenarios(options.scenarios).take(request["TrainingJobName"])
    started = time.monotonic()
    try:
        signal.signal(signal.SIGTERM, stop)
        follow(entry, options.job_dir, options.channel)
        status = entry.get("status", "Completed")
    except Stopped:
        status = entry.get("status_after_stop", "Stopped")
    failed = status == "Failed"
    tell(
        event="ended",
        status=status,
        failure=entry.get("failure") if failed else None,
        exit_codes={"algo-1": entry.get("exit_code", 1) if failed else 0},
        model_dir=str(options.job_dir / "model"),
        output_dir=str(options.job_dir / "output"),
        checkpoint_dir=str(options.job_dir / "checkpoints"),
        seconds=time.monotonic() - started,
    )


def follow(entry: dict[str, Any], job_dir: Path, channels: list[str]) -> None:
    tell(event="status", secondary="Training", checkpoint_dir=str(job_dir / "checkpoints"))
    for line in describe(job_dir, channels) if entry.get("shows_input") else ():
        log({"line": line})
    for key, folder in CONTENTS:
        (job_dir / folder).mkdir(parents=True, exist_ok=True)
        for name, text in entry.get(key, {"model.safetensors": "weights"} if key == "model" else {}).items():
            file = job_dir / folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    for line in entry.get("lines", [RESULT]):
        log(line if isinstance(line, dict) else {"line": line})
    while entry.get("is_held"):
        signal.pause()


def describe(job_dir: Path, channels: list[str]) -> list[str]:
    """What the job was given: its channels with their files, and the checkpoints of an earlier job."""
    folders = [*(channel.partition("=")[::2] for channel in channels), ("checkpoints", str(job_dir / "checkpoints"))]
    return [
        f"{name}: {sorted(str(file.relative_to(path)) for file in Path(path).rglob('*') if file.is_file())}"
        for name, path in folders
    ]


def log(line: dict[str, str]) -> None:
    tell(**{"event": "log", "host": "algo-1", **line})


def tell(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Stopped


if __name__ == "__main__":
    main()
