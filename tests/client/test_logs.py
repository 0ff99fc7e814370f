"""`counterpoise logs`: every host's lines once, in the order of their time, with the host in front."""

import json
from collections.abc import Callable

from infra.client.logs import LOG_GROUP, logs
from infra.client.pace import Pace
from tests.client.conftest import Ended
from tests.client.deployed import Deployed, FakeExecution
from tests.client.fake_aws import FakeAws, Fault, Parameters

Call = Callable[..., Ended]
FAST = Pace(poll_seconds=0.01, timeout_seconds=30)
JOB = "counterpoise-x-0123456789-t1"
HEAD, OTHER = f"{JOB}/algo-1-1700000000", f"{JOB}/algo-2-1700000001"


def start_line(host: str, group: str) -> str:
    return f"counterpoise: event=start host={host} group={group} type=ml.g5.xlarge role=head address=10.0.0.1"


def add_job(deployed: Deployed, looks_left: int = 0, **end: object) -> None:
    deployed.add_job(JOB)
    deployed.add(FakeExecution("x", jobs=[JOB], looks_left=looks_left, **end))  # type: ignore[arg-type]


def test_lines_of_all_hosts_are_merged_by_time(call: Call, deployed: Deployed, fake: FakeAws) -> None:
    add_job(deployed)
    deployed.logs = {
        HEAD: [(10, start_line("algo-1", "gpu")), (30, "third\n"), (50, "[fifth]")],
        OTHER: [(20, "second"), (40, start_line("algo-2", "cpu")), (60, "sixth")],
        "counterpoise-x-0123456789-t10/algo-1-1700000000": [(1, "of another job")],
    }
    ended = call(logs, "x", FAST, is_following=False)
    assert ended.exit_code == 0
    assert ended.stdout.splitlines() == [
        f"gpu/algo-1 | {start_line('algo-1', 'gpu')}",
        "algo-2 | second",
        "gpu/algo-1 | third",
        f"cpu/algo-2 | {start_line('algo-2', 'cpu')}",
        "gpu/algo-1 | [fifth]",
        "cpu/algo-2 | sixth",
    ]
    assert ended.stderr == f"job {JOB}\n"
    assert {asked["logGroupName"] for asked in fake.called("GetLogEvents")} == {LOG_GROUP}


def test_json_is_an_object_a_line(call: Call, deployed: Deployed) -> None:
    add_job(deployed)
    deployed.logs = {HEAD: [(1_700_000_000_123, start_line("algo-1", "gpu")), (1_700_000_001_000, 'say "hi"')]}
    ended = call(logs, "x", FAST, is_following=False, as_json=True)
    assert [json.loads(line) for line in ended.stdout.splitlines()][1] == {
        "at": "2023-11-14T22:13:21+00:00",
        "job": JOB,
        "host": "algo-1",
        "group": "gpu",
        "line": 'say "hi"',
    }


def test_following_shows_each_line_once_also_those_that_come_after_the_end(
    call: Call, deployed: Deployed, fake: FakeAws
) -> None:
    add_job(deployed, looks_left=3, end={"status": "FAILED", "cause": "no space"})
    deployed.logs = {HEAD: []}
    read = fake.answers["GetLogEvents"]

    def grow(asked: Parameters) -> object:
        num_reads = len(fake.called("GetLogEvents"))
        if num_reads in (2, 3, 6, 9):
            deployed.logs[HEAD].append((num_reads, f"line {num_reads}"))
        if num_reads == 6:
            deployed.logs[OTHER] = [(7, "late host")]
        assert callable(read)
        return read(asked)

    fake.answers["GetLogEvents"] = grow  # type: ignore[assignment]
    ended = call(logs, "x", FAST, is_following=True)
    assert ended.exit_code == 1
    shown = ended.stdout.splitlines()
    assert shown == ["algo-1 | line 2", "algo-1 | line 3", "algo-1 | line 6", "algo-2 | late host", "algo-1 | line 9"]
    assert ended.stderr.splitlines()[-1] == "execution x failed: no space"


def test_an_execution_without_lines_says_so(call: Call, deployed: Deployed) -> None:
    deployed.add(FakeExecution("x", looks_left=100))
    ended = call(logs, "x", FAST, is_following=False)
    assert (ended.exit_code, ended.stdout) == (0, "")
    assert ended.stderr == "execution x (RUNNING) has no log line yet\n"
    add_job(deployed)
    assert call(logs, "x", FAST, is_following=False).stderr == "execution x (SUCCEEDED) has no log line yet\n"


def test_other_errors_of_the_log_service_are_told(call: Call, deployed: Deployed, fake: FakeAws) -> None:
    add_job(deployed)
    fake.answers["DescribeLogStreams"] = Fault("AccessDeniedException", "User: me is not authorized")
    ended = call(logs, "x", FAST, is_following=False)
    assert ended.exit_code == 3
    assert ended.stderr.startswith("no permission for DescribeLogStreams (User: me is not authorized); ")
