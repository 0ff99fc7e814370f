"""The network between local hosts: what a host may send and receive, what is counted, and how many hosts it carries."""

import sys
from pathlib import Path

import pytest

from tests.cluster import local_runner

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="local hosts need Linux namespaces"),
]

NUM_BYTES = 16 << 20
CAP = 80e6  # so that the transfer takes 1.7 s, which a busy machine does not prolong by much

# Each host sends to the other, one after the other; who receives tells how fast the second half came.
TRANSFER = f"""
import socket, time
name = socket.gethostname()

def serve():
    server = socket.create_server(("", 7000))
    print("listening", flush=True)
    peer, half, marks = server.accept()[0], {NUM_BYTES} // 2, []
    num_received = 0
    while num_received < {NUM_BYTES}:
        num_received += len(peer.recv(1 << 20))
        marks.append((num_received, time.monotonic()))
    first = next(mark for mark in marks if mark[0] >= half)
    rate = (marks[-1][0] - first[0]) * 8 / (marks[-1][1] - first[1])
    peer.sendall(b"all")
    print("counterpoise: event=received bits_per_second=%.0f" % rate, flush=True)

def send():
    deadline = time.monotonic() + 60
    while True:
        try:
            server = socket.create_connection((other, 7000))
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    server.sendall(bytes({NUM_BYTES}))
    assert server.recv(3) == b"all"

if name == "algo-1":
    other = "algo-2"
    print("counterpoise: event=begin", flush=True)
    send()
    serve()
else:
    other = "algo-1"
    serve()
    send()
    print("counterpoise: event=done", flush=True)
"""


def test_a_capped_host_sends_and_receives_at_its_cap_and_every_byte_is_counted(tmp_path: Path) -> None:
    outcome, output = local_runner.run(tmp_path, TRANSFER, nic_bits_per_second={"gpu": CAP})
    events = {(event["host"], event["name"]): event for event in outcome["events"]}
    assert outcome["status"] == "Completed", output
    for receiver in ("algo-2", "algo-1"):
        rate = float(events[receiver, "received"]["fields"]["bits_per_second"])
        assert 0.8 < rate / CAP < 1.02, f"{receiver} received {rate / CAP:.3f} of the cap"
    for host in ("algo-1", "algo-2"):
        assert NUM_BYTES < outcome["bytes_sent"][host] < 1.05 * NUM_BYTES
        assert NUM_BYTES < outcome["bytes_received"][host] < 1.05 * NUM_BYTES
    half_way, done = (events["algo-2", name]["usage"]["algo-2"] for name in ("received", "done"))
    assert half_way["bytes_received"] > NUM_BYTES > half_way["bytes_sent"]
    assert done["bytes_sent"] > NUM_BYTES
    if "affinity" not in outcome["limits"]:
        begin, done = events["algo-1", "begin"], events["algo-2", "done"]
        assert begin["usage"]["algo-1"]["cpu_seconds"] > 0
        assert begin["usage"]["algo-2"]["cpu_seconds"] < done["usage"]["algo-2"]["cpu_seconds"]


ALL_TO_THE_FIRST = """
import socket, time
if socket.gethostname() == "algo-1":
    server = socket.create_server(("", 7000), backlog=64)
    names = {server.accept()[0].recv(16).decode() for _ in range(31)}
    assert len(names) == 31, names
else:
    deadline = time.monotonic() + 100
    while True:
        try:
            first = socket.create_connection(("algo-1", 7000))
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    first.sendall(socket.gethostname().encode())
"""


def test_thirty_two_hosts_reach_the_first(tmp_path: Path) -> None:
    groups = [["gpu", "ml.g5.xlarge", 1], ["cpu", "ml.c5.4xlarge", 31]]
    outcome, output = local_runner.run(tmp_path, ALL_TO_THE_FIRST, groups=groups, nic_bits_per_second={"cpu": CAP})
    assert outcome["status"] == "Completed", output
    assert len(outcome["exit_codes"]) == 32
