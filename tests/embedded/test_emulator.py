"""The emulator's process: reachable on loopback alone, and gone with all that it started, however it ends."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from infra.local.aws import server
from infra.local.aws.server import EmbeddedAws, EmulatorError
from tests.embedded.clients import Clients, until
from tests.embedded.conftest import FAKE_RUNNER
from tests.embedded.jobs import Jobs
from tests.embedded.scenarios import Scenarios

ROOT = Path(__file__).resolve().parents[2]
HOLD = "import sys, infra.local.aws.__main__ as command; command.main(['serve', '--work-dir', sys.argv[1]])"


@pytest.fixture
def held(tmp_path: Path) -> Iterator[EmbeddedAws]:
    """An emulator of its own whose jobs run until they are stopped."""
    (tmp_path / "scenarios").mkdir()
    Scenarios(tmp_path / "scenarios").set("held", {"is_held": True})
    runner = [sys.executable, "-S", str(FAKE_RUNNER), "--scenarios", str(tmp_path / "scenarios")]
    with EmbeddedAws(runner_command=runner, work_dir=tmp_path / "aws") as aws:
        yield aws


def start_held_job(aws: EmbeddedAws) -> psutil.Process:
    """The runner of a job that does not end by itself."""
    jobs = Jobs.prepare(Clients.of(aws))
    jobs.start("held-1")
    jobs.entered("held-1", "Training")
    return next(process for process in emulator(aws).children(recursive=True) if is_runner(process))


def emulator(aws: EmbeddedAws) -> psutil.Process:
    [process] = [
        process for process in psutil.Process().children() if any(aws.settings.work_dir in a for a in process.cmdline())
    ]
    return process


def is_runner(process: psutil.Process) -> bool:
    return "fake_runner.py" in " ".join(process.cmdline())


def has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_nothing_outlives_the_emulator(tmp_path: Path) -> None:
    scenarios = tmp_path / "scenarios"
    scenarios.mkdir()
    Scenarios(scenarios).set("held", {"is_held": True})
    runner_command = [sys.executable, "-S", str(FAKE_RUNNER), "--scenarios", str(scenarios)]
    with EmbeddedAws(runner_command=runner_command, work_dir=tmp_path / "aws") as aws:
        runner, process = start_held_job(aws), emulator(aws)
    assert has_ended(runner)
    assert has_ended(process)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", aws.settings.port), timeout=1)


def test_runner_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    stubborn = tmp_path / "stubborn.py"
    stubborn.write_text(
        "import json, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(json.dumps({'event': 'status', 'secondary': 'Training'}), flush=True)\n"
        "signal.sigwait([signal.SIGUSR1])  # fake_runner.py\n"
    )
    command = [sys.executable, "-S", str(stubborn), "fake_runner.py"]
    with EmbeddedAws(runner_command=command, work_dir=tmp_path / "aws") as aws:
        runner = start_held_job(aws)
    assert has_ended(runner)


def test_killed_emulator_takes_its_runners_along(held: EmbeddedAws) -> None:
    runner = start_held_job(held)
    emulator(held).kill()
    until(lambda: has_ended(runner), "the end of the runner")


def test_emulator_ends_with_a_killed_owner(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    with owner.stdout as output:
        assert output.readline().startswith(b"export AWS_ENDPOINT_URL=http://127.0.0.1:")
        [process] = psutil.Process(owner.pid).children()
        owner.kill()
        owner.wait()
    until(lambda: has_ended(process), "the end of the emulator")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_ends_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    serving = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert serving.stdout is not None
    with serving.stdout as output:
        lines = [output.readline()]
        while lines[-1].startswith("export "):
            lines.append(output.readline())
        [process] = psutil.Process(serving.pid).children()
        serving.send_signal(number)
        assert serving.wait(60) == 0
    assert has_ended(process)
    names = {line.split("=")[0].removeprefix("export ") for line in lines[:-1]}
    assert {"AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_REGION", "CDK_HOME"} <= names


def test_only_one_port_on_loopback_is_open(embedded_aws: EmbeddedAws) -> None:
    listening = [
        connection.laddr for connection in emulator(embedded_aws).net_connections() if connection.status == "LISTEN"
    ]
    assert listening == [("127.0.0.1", embedded_aws.settings.port)]


def test_missing_environment_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "EMULATOR_PYTHON", tmp_path / "python")
    with pytest.raises(EmulatorError, match=r"python does not exist; run: make setup$"), EmbeddedAws():
        pass


def test_port_in_use_is_one_line(embedded_aws: EmbeddedAws, tmp_path: Path) -> None:
    with (
        pytest.raises(EmulatorError, match=r"the embedded AWS ended at its start: .*in use"),
        EmbeddedAws(port=embedded_aws.settings.port, work_dir=tmp_path),
    ):
        pass
