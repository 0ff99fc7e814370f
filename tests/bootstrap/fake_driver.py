"""Stands in for the training driver: takes its command line and behaves as its first argument says."""

import json
import os
import signal
import sys
import time
from pathlib import Path


def main() -> int:
    """Behave; the exit code is what the true driver would give."""
    behaviour = sys.argv[1]
    files = {key: value for key, _, value in (word.partition("=") for word in sys.argv[2:])}
    if behaviour == "bad_input":
        Path(files["--failure-file"]).write_text("model: 'resnot' is not known")
        return 2
    if behaviour == "usage":
        return 2
    wait_for(Path(files["--ready-file"]))
    with Path(files["--events-file"]).open("a") as events:
        events.write(json.dumps({"event": "first_step", "step": 1}) + "\n")
    if behaviour == "until_stopped":
        wait_for(Path(files["--stop-file"]))
        return 143
    if behaviour == "until_go":
        wait_for(Path(files["--model-dir"]).parent / "go")
    if behaviour == "for_ever":
        time.sleep(600)
    if behaviour == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "fail":
        Path(files["--failure-file"]).write_text("ValueError: loss is nan\n\nTraceback: many lines" + "x" * 100_000)
        return 1
    if behaviour == "crash":
        return 1
    if behaviour != "no_model":
        (Path(files["--model-dir"]) / "model.safetensors").touch()
    return 0


def wait_for(path: Path) -> None:
    """Wait until there is such a file; one minute at most, so that no test leaves a driver behind."""
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
