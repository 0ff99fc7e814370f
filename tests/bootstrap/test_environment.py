"""Who is in the job and who leads, read from real files through the adapter: the same answer on every host."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container.bootstrap.cluster import Cluster, Host, elect_head
from container.bootstrap.environment import JobPaths, discover, read_json
from container.bootstrap.errors import HostError
from tests.bootstrap.job import ROOT, resource_config, write_inputs

CASES = sorted((ROOT / "tests" / "cases" / "resourceconfig").iterdir())


def discovered(base: Path, resources: dict[str, Any] | str, head_group: str | None = None) -> Cluster:
    write_inputs(base, resources)
    return discover(JobPaths(base=base), head_group=head_group)


def refusal(base: Path, resources: dict[str, Any] | str, head_group: str | None = None) -> str:
    with pytest.raises(HostError) as caught:
        discovered(base, resources, head_group)
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.reason
    return caught.value.reason


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_is_answered_as_expected(case: Path, tmp_path: Path) -> None:
    expected = json.loads((case / "expect.json").read_text())
    clusters = {
        file.stem: discovered(tmp_path / file.stem, file.read_text())
        for file in case.glob("*.json")
        if file.name != "expect.json"
    }
    assert clusters
    for name, cluster in clusters.items():
        assert cluster.current == name
        assert cluster.is_head == (cluster.head == name)
        assert cluster.head in expected.get("head_in", [expected.get("head", cluster.head)])
        assert len(cluster.hosts) == expected.get("nodes", len(cluster.hosts))
        assert {host.name for host in cluster.workers} == {host.name for host in cluster.hosts} - {cluster.head}
        if "roles" in expected:
            assert ("head" if cluster.is_head else "worker") == expected["roles"][name]
        if "gpu_hosts" in expected:
            assert [host.name for host in cluster.hosts if host.has_accelerator] == expected["gpu_hosts"]
        if "default_interface" in expected:
            assert cluster.interface == expected["default_interface"]
    assert len({(cluster.head, cluster.hosts) for cluster in clusters.values()}) == 1


def test_a_file_from_before_groups_describes_one_group(tmp_path: Path) -> None:
    cluster = discovered(tmp_path, {"current_host": "algo-2", "hosts": ["algo-1", "algo-2"]})
    assert {host.group for host in cluster.hosts} == {"homogeneousCluster"}
    assert (cluster.head, cluster.training_hosts) == ("algo-1", (cluster.hosts[0],))
    assert cluster.current_host == cluster.hosts[1]


INSTANCE_TYPES = ["ml.g5.xlarge", "ml.p3dn.24xlarge", "ml.gr6.4xlarge", "ml.c5.4xlarge", "ml.m5.large", "ml.r5.large"]


@st.composite
def layouts(draw: st.DrawFn) -> list[Host]:
    """The hosts of a job of up to five groups, in any order within and between them."""
    numbers = draw(st.permutations(range(1, draw(st.integers(1, 14)) + 1)))
    kinds = draw(st.lists(st.sampled_from(INSTANCE_TYPES), min_size=1, max_size=5))
    groups = [draw(st.integers(0, len(kinds) - 1)) for _ in numbers]
    return [
        Host(name=f"algo-{number}", group=f"group{group}", instance_type=kinds[group])
        for number, group in zip(numbers, groups, strict=True)
    ]


@given(layouts(), st.randoms(use_true_random=False))
def test_there_is_one_head_and_every_host_names_it(hosts: list[Host], random: Any) -> None:
    head = elect_head(hosts, None)
    for _ in hosts:
        random.shuffle(hosts)
        assert elect_head(hosts, None) == head
    leader = next(host for host in hosts if host.name == head)
    rivals = [host for host in hosts if host.has_accelerator] or hosts
    assert leader in rivals
    assert int(head.removeprefix("algo-")) == min(int(host.name.removeprefix("algo-")) for host in rivals)


@given(layouts(), st.data())
def test_a_head_group_is_honoured(hosts: list[Host], data: st.DataObject) -> None:
    group = data.draw(st.sampled_from(sorted({host.group for host in hosts})))
    head = elect_head(hosts, group)
    assert next(host for host in hosts if host.name == head).group == group


def test_hosts_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    names = [f"algo-{number}" for number in (10, 11, 2, 9, 1)]
    cluster = discovered(tmp_path, resource_config("algo-9", {"ml.g5.xlarge": names}))
    assert [host.name for host in cluster.hosts] == ["algo-1", "algo-2", "algo-9", "algo-10", "algo-11"]


def test_a_head_group_that_is_none_names_the_known_ones(tmp_path: Path) -> None:
    resources = resource_config("algo-1", {"ml.c5.4xlarge": ["algo-1"], "ml.g5.xlarge": ["algo-2"]})
    assert discovered(tmp_path, resources, "group0").head == "algo-1"
    assert refusal(tmp_path, resources, "gpu") == (
        "head_group: 'gpu' is no group of this job; known groups: group0, group1; name one of them"
    )


GROUP = {"instance_group_name": "gpu", "instance_type": "ml.g5.xlarge", "hosts": ["algo-1"]}
GOOD = {"current_host": "algo-1", "hosts": ["algo-1"], "instance_groups": [GROUP]}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"current_host": None}, "'current_host' is null; expected a host name"),
        ({"hosts": []}, "'hosts' is []; expected a list of host names"),
        ({"hosts": "algo-1"}, "'hosts' is \"algo-1\"; expected a list of host names"),
        ({"hosts": ["algo-2"]}, "current_host 'algo-1' is not in 'hosts'"),
        ({"hosts": ["algo-1", "algo-2"]}, "'instance_groups' hold the hosts algo-1, 'hosts' algo-1, algo-2"),
        (
            {"instance_groups": {"gpu": ["algo-1"]}},
            '\'instance_groups\' is {"gpu": ["algo-1"]}; expected a list of objects',
        ),
        ({"instance_groups": [{**GROUP, "instance_type": 5}]}, "'instance_type' is 5; expected an instance type"),
        ({"instance_groups": [{"hosts": ["algo-1"]}]}, "'instance_group_name' is missing; expected a group name"),
        ({"instance_groups": [GROUP, {**GROUP}]}, "two of 'instance_groups' have one name"),
        ({"current_instance_type": None}, "'current_instance_type' is null; expected text"),
        ({"network_interface_name": 0}, "'network_interface_name' is 0; expected text"),
    ],
)
def test_what_describes_no_cluster_is_refused_in_one_line(tmp_path: Path, change: dict[str, Any], what: str) -> None:
    assert refusal(tmp_path, {**GOOD, **change}) == f"resourceconfig.json: {what}; the platform writes this file"


@pytest.mark.parametrize("key", ["current_host", "hosts"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    assert f"{key!r} is missing" in refusal(tmp_path, {name: GOOD[name] for name in GOOD if name != key})


def test_groups_that_are_null_are_none(tmp_path: Path) -> None:
    assert discovered(tmp_path, {**GOOD, "instance_groups": None}).head == "algo-1"


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "\xff", "[" * 100_000])
def test_what_is_no_json_object_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    assert refusal(tmp_path, text).startswith("resourceconfig.json: ")


def test_an_absent_file_is_an_empty_object(tmp_path: Path) -> None:
    assert read_json(tmp_path / "absent.json") == {}
    with pytest.raises(HostError, match="Is a directory"):
        read_json(tmp_path)


GUARDED = """
import json, os, socket, sys
from pathlib import Path

def refuse(*_, **__):
    raise AssertionError("the network was asked")

for name in ("getaddrinfo", "gethostbyname", "create_connection"):
    setattr(socket, name, refuse)
socket.socket.connect = refuse
before = dict(os.environ)
from container.bootstrap.environment import JobPaths, discover
cluster = discover(JobPaths(base=Path(sys.argv[1])), head_group=None)
assert dict(os.environ) == before, "the environment was changed"
print(json.dumps({"head": cluster.head, "interface": cluster.interface}))
"""


def test_the_adapter_makes_no_folder_and_asks_no_network(tmp_path: Path) -> None:
    base, home, scratch = (tmp_path / name for name in ("ml", "home", "tmp"))
    home.mkdir()
    scratch.mkdir()
    write_inputs(base, GOOD)
    before = sorted(base.rglob("*"))
    had_opt_ml = Path("/opt/ml").exists()
    environment = {
        **{name: value for name, value in os.environ.items() if name != "SAGEMAKER_BASE_DIR"},
        "HOME": str(home),
        "TMPDIR": str(scratch),
        "PYTHONDONTWRITEBYTECODE": "1",
        # Of what the toolkit reads from its environment, these would end it.
        "AWS_PROFILE": "absent",
        "SAGEMAKER_CONTAINER_LOG_LEVEL": "loud",
    }
    ended = subprocess.run(
        [sys.executable, "-c", GUARDED, str(base)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {"head": "algo-1", "interface": "eth0"}
    assert sorted(base.rglob("*")) == before
    assert [*home.iterdir(), *scratch.iterdir()] == []
    assert Path("/opt/ml").exists() == had_opt_ml
