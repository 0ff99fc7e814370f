"""The training driver as a child: its events are read line by line, and its end is judged by what it left."""

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from container.bootstrap.driver import Driver, EventFile
from container.bootstrap.host import HostContext
from container.bootstrap.outcome import Outcome
from tests.bootstrap.hosts import CPU, GPU, host_context
from training.main import parse_arguments

MODEL = "open(model, 'w').close()"
REASON = "open(failure, 'w').write('ValueError: loss is nan\\n\\nTraceback')"


@dataclass
class TinyDriver(Driver):
    """A driver whose program is a few words of Python that know their files by name."""

    code: str
    context: HostContext

    def __post_init__(self) -> None:
        super().__init__(self.context)

    def command(self) -> list[str]:
        files = {
            word.partition("=")[0].removeprefix("--").partition("-")[0]: word.partition("=")[2]
            for word in super().command()
            if word.startswith("--")
        }
        files["model"] += "/model.safetensors"
        return [sys.executable, "-S", "-c", f"import os, sys, time\n{_assignments(files)}\n{self.code}"]


def _assignments(files: dict[str, str]) -> str:
    return "\n".join(f"{name} = {value!r}" for name, value in files.items())


async def started(directory: Path, code: str) -> TinyDriver:
    context = host_context(directory, environ=dict(os.environ))
    driver = TinyDriver(code, context)
    await driver.start("10.0.0.1:6379")
    return driver


def outcome(directory: Path, code: str) -> Outcome:
    async def run() -> Outcome:
        return await (await started(directory, code)).wait()

    return asyncio.run(run())


def test_the_true_driver_understands_its_command_line(tmp_path: Path) -> None:
    driver = Driver(host_context(tmp_path, GPU, CPU))
    program, arguments = driver.command()[:3], driver.command()[3:]
    files = parse_arguments(arguments)
    assert program == [sys.executable, "-m", "training.main"]
    assert files.model_dir == tmp_path / "ml" / "model"
    assert [host["name"] for host in files.hosts] == ["algo-1", "algo-2"]
    assert files.head_host == "algo-1"


@pytest.mark.parametrize(
    ("code", "exit_code", "reason"),
    [
        (MODEL, 0, ""),
        ("pass", 1, "training ended without an error, but {model} is missing"),
        (f"{REASON}; sys.exit(2)", 2, "ValueError: loss is nan\n\nTraceback"),
        ("sys.exit(2)", 2, "the training process ended with exit code 2 and gave no reason; see its log above"),
        (f"{MODEL}; sys.exit(143)", 143, "stopped by SIGTERM"),
        (f"{REASON}; sys.exit(1)", 1, "ValueError: loss is nan\n\nTraceback"),
        (f"{REASON}; sys.exit(77)", 1, "ValueError: loss is nan\n\nTraceback"),
        ("sys.exit(1)", 1, "the training process ended with exit code 1 and gave no reason; see its log above"),
        (
            "os.kill(os.getpid(), 9)",
            1,
            "the training process was killed by SIGKILL; the kernel does this when memory runs out",
        ),
        ("os.kill(os.getpid(), 11)", 1, "the training process was killed by SIGSEGV"),
        ("os.kill(os.getpid(), 40)", 1, "the training process was killed by Real-time signal 6"),
        ("open(failure, 'wb').write(b'\\xff'); sys.exit(1)", 1, "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_an_end_is_judged_by_code_model_and_reason(tmp_path: Path, code: str, exit_code: int, reason: str) -> None:
    model = tmp_path / "ml" / "model" / "model.safetensors"
    assert outcome(tmp_path, code) == Outcome(exit_code=exit_code, reason=reason.format(model=model))


def test_the_driver_sees_its_environment_and_is_told_when_to_go_and_stop(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = """
for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "COUNTERPOISE_HOST"):
    print(os.environ[name], flush=True)
for path in (ready, stop):
    while not os.path.exists(path):
        time.sleep(0.01)
sys.exit(143)
"""

    async def run() -> Outcome:
        driver = await started(tmp_path, code)
        assert len(driver.pids) == 1
        driver.set_ready()
        driver.ask_to_stop()
        return await driver.wait()

    assert asyncio.run(run()).exit_code == 143
    assert capfd.readouterr().out.splitlines() == ["10.0.0.1:6379", "token", "algo-1"]


def test_events_are_printed_up_to_the_last_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = f"""
with open(events, "a") as file:
    print('{{"event": "step", "step": 1, "name": "a name"}}', 'no json', '[1]', '{{"rows": 2}}', sep="\\n", file=file)
{MODEL}
"""
    assert outcome(tmp_path, code).exit_code == 0
    assert capsys.readouterr().out.splitlines() == [
        'counterpoise: event=step step=1 name="a name"',
        'counterpoise: event=unreadable_event line="no json"',
        "counterpoise: event=unreadable_event line=[1]",
        "counterpoise: event=unnamed rows=2",
    ]


def test_a_driver_can_be_ended_at_any_time(tmp_path: Path) -> None:
    async def run() -> None:
        driver = TinyDriver("time.sleep(600)", host_context(tmp_path, environ=dict(os.environ)))
        assert driver.pids == ()
        await driver.kill()
        with pytest.raises(RuntimeError, match="was not started"):
            await driver.wait()
        await driver.start("10.0.0.1:6379")
        waiting = asyncio.create_task(driver.wait())
        await driver.kill()
        await driver.kill()
        assert (await waiting).reason.startswith("the training process was killed by SIGKILL")

    asyncio.run(run())


def test_progress_is_what_touches_the_event_file(tmp_path: Path) -> None:
    driver = TinyDriver("", host_context(tmp_path))
    events = tmp_path / "runtime" / "events.jsonl"
    events.touch()
    os.utime(events, (1, 1))
    assert driver.seconds_since_progress() > 1e9
    driver.set_ready()  # the wait for the other hosts is over, and the clock starts anew
    assert driver.seconds_since_progress() < 600


def test_only_complete_lines_are_read_and_each_once(tmp_path: Path) -> None:
    events = EventFile(tmp_path / "events.jsonl")
    events.path.touch()
    assert events.read_new() == []
    with events.path.open("a", buffering=1) as file:
        file.write('{"step": 1}\n{"step"')
        file.flush()
        assert events.read_new() == [{"step": 1}]
        assert events.read_new() == []
        file.write(': 2}\n{"step": "\u2028 \u00e9"}\n')
        assert events.read_new() == [{"step": 2}, {"step": "\u2028 \u00e9"}]
        assert events.read_new() == []
