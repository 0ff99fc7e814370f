"""`counterpoise image`: the tag follows from the content, a push happens once, and only what SageMaker runs is used."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from infra.client.engine import Engine
from infra.client.image_build import build_image
from infra.client.image_content import read_content
from infra.client.image_push import push_image
from infra.client.manifest import KNOWN_TYPES, manifest_problem
from infra.client.session import Session
from infra.settings import CURRENT_TAG_PREFIX
from tests.client import fake_engine
from tests.client.conftest import Ended
from tests.client.deployed import DIGEST, POINTER, REPOSITORY, Deployed
from tests.client.fake_aws import Parameters

Call = Callable[..., Ended]
CASES = Path(__file__).resolve().parents[1] / "cases" / "manifests"
DOCKER = json.loads((CASES / "m01_docker_v2.json").read_text())
INDEX = json.loads((CASES / "m02_index_with_attestation.json").read_text())
CONFIG_DIGEST = DOCKER["config"]["digest"]
IMMUTABLE = (
    "tag invalid: The image tag '{tag}' already exists in the 'counterpoise' repository and cannot be overwritten"
    " because the repository is immutable."
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with what an image is made of, and what it is not."""
    files = {
        "container/Dockerfile": "FROM scratch\n",
        "container/bootstrap/run.py": "print(1)\n",
        "training/main.py": "print(2)\n",
        "training/__pycache__/main.pyc": "bytecode",
        "container/.hidden": "hidden",
        "infra/app.py": "print(3)\n",
    }
    for name, text in files.items():
        file = tmp_path / "project" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "project"


@dataclass
class FakeEngine:
    """A program of the test's own in place of an engine."""

    folder: Path
    scenario: dict[str, Any] = field(default_factory=lambda: {"image_id": CONFIG_DIGEST})

    def install(self, kind: str = "docker", *, has_buildx: bool = True, **scenario: Any) -> Callable[[], Engine]:
        self.folder.mkdir()
        program = self.folder / kind
        program.write_text(f"#!{sys.executable} -S\n{Path(fake_engine.__file__).read_text()}")
        program.chmod(0o755)
        (self.folder / "scenario.json").write_text(json.dumps(self.scenario | scenario))
        return lambda: Engine(kind=kind, program=str(program), has_buildx=has_buildx)

    def calls(self, verb: str) -> list[dict[str, Any]]:
        file = self.folder / "calls.jsonl"
        calls = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [call for call in calls if verb in call["arguments"]]


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    return FakeEngine(tmp_path / "engine")


@pytest.fixture
def registry(deployed: Deployed, engine: FakeEngine) -> Iterator[dict[str, Any]]:
    """The stack's repository: empty until the engine has pushed; `image` and `manifest` are what is there then."""
    state: dict[str, Any] = {"is_there": False, "manifest": DOCKER, "appears_after_push": True}

    def images(asked: Parameters) -> dict[str, Any]:
        assert set(asked["acceptedMediaTypes"]) == set(KNOWN_TYPES)
        if not state["is_there"] and not (state["appears_after_push"] and engine.calls("push")):
            return {"images": [], "failures": [{"failureCode": "ImageNotFound"}]}
        image = {"imageId": {"imageDigest": DIGEST}, "imageManifest": json.dumps(state["manifest"])}
        return {"images": [image], "failures": []}

    deployed.fake.answers |= {
        "BatchGetImage": images,
        "GetAuthorizationToken": {"authorizationData": [{"authorizationToken": "QVdTOnNlY3JldA=="}]},  # AWS:secret
    }
    deployed.parameters[POINTER] = "none"
    yield state
    shutil.rmtree(engine.folder, ignore_errors=True)


def push(
    call: Call, project: Path, find: Callable[[], Engine], *, is_dry_run: bool = False, as_json: bool = False
) -> Ended:
    return call(push_image, project, find, is_dry_run=is_dry_run, as_json=as_json)


def build(call: Call, project: Path, find: Callable[[], Engine], *, is_dry_run: bool = False) -> Ended:
    def command(session: Session) -> Any:
        return build_image(session.screen, project, find, is_dry_run=is_dry_run)

    return call(command, as_json=True)


# The tag


def test_the_same_content_has_the_same_tag_wherever_it_lies(project: Path, tmp_path: Path) -> None:
    tag = read_content(project).tag
    shutil.copytree(project, tmp_path / "copy")
    (tmp_path / "copy" / "training" / "main.py").chmod(0o700)
    (tmp_path / "copy" / "infra" / "app.py").write_text("changed")
    assert read_content(tmp_path / "copy").tag == tag


@pytest.mark.parametrize("change", ["text", "name", "new file", "moved text"])
def test_other_content_has_another_tag(project: Path, change: str) -> None:
    tag = read_content(project).tag
    main, run = project / "training/main.py", project / "container/bootstrap/run.py"
    if change == "text":
        main.write_text("print(5)\n")
    elif change == "name":
        main.rename(main.with_name("other.py"))
    elif change == "new file":
        main.with_name("empty.py").write_text("")
    else:
        main.write_text(main.read_text() + run.read_text())
        run.write_text("")
    assert read_content(project).tag != tag


def test_the_tag_is_one_that_the_repository_keeps_apart(project: Path) -> None:
    assert read_content(project).tag.startswith(CURRENT_TAG_PREFIX)


# Building


@pytest.mark.parametrize(
    ("kind", "has_buildx", "flags"),
    [
        ("docker", True, ["buildx", "build", "--provenance=false", "--sbom=false", "type=docker,oci-mediatypes=false"]),
        ("docker", False, ["build"]),
        ("podman", False, ["build", "--format", "docker"]),
        ("finch", False, ["build", "--provenance=false", "--sbom=false"]),
    ],
)
def test_an_image_is_built_for_one_platform_without_attestations(
    call: Call, project: Path, engine: FakeEngine, kind: str, has_buildx: bool, flags: list[str]
) -> None:
    ended = build(call, project, engine.install(kind, has_buildx=has_buildx))
    assert ended.exit_code == 0
    tag = read_content(project).tag
    assert json.loads(ended.stdout) == {"image": f"counterpoise:{tag}", "id": CONFIG_DIGEST, "tag": tag}
    (called,) = engine.calls("build")
    words = called["arguments"]
    assert set(flags) <= set(words)
    assert words[words.index("--platform") + 1] == "linux/amd64"
    assert words[words.index("--tag") + 1] == f"counterpoise:{tag}"


def test_an_image_is_built_from_nothing_but_the_files_of_its_tag(call: Call, project: Path, engine: FakeEngine) -> None:
    assert build(call, project, engine.install()).exit_code == 0
    assert json.loads((engine.folder / "built.json").read_text()) == {
        "container/Dockerfile": "FROM scratch\n",
        "container/bootstrap/run.py": "print(1)\n",
        "training/main.py": "print(2)\n",
    }


def test_a_dry_run_builds_nothing(call: Call, project: Path, engine: FakeEngine) -> None:
    find = engine.install()
    (step,) = json.loads(build(call, project, find, is_dry_run=True).stdout)
    assert step["command"][1:3] == ["buildx", "build"]
    assert step["files"] == ["container/Dockerfile", "container/bootstrap/run.py", "training/main.py"]
    assert engine.calls("build") == []


def test_without_a_dockerfile_there_is_one_line(call: Call, project: Path, engine: FakeEngine) -> None:
    (project / "container/Dockerfile").unlink()
    ended = build(call, project, engine.install())
    assert ended.exit_code == 2
    assert ended.stderr == (
        f"container/Dockerfile does not exist in {project}; run the command from a checkout that has it\n"
    )


FAILURES = [
    ("write /layer: no space left on device", "the disk is full; free some: `docker system prune`, `df -h`"),
    (
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        "the engine is not running; start it: `sudo systemctl start docker`",
    ),
    ("ERROR: process pip did not complete: exit code: 1\n\n", "ERROR: process pip did not complete: exit code: 1"),
    ("", "it printed nothing"),
]


@pytest.mark.parametrize(("output", "reason"), FAILURES)
def test_a_failed_build_is_told_in_one_line(
    call: Call, project: Path, engine: FakeEngine, output: str, reason: str
) -> None:
    ended = build(call, project, engine.install(build={"output": output, "exit_code": 1}))
    assert ended.exit_code == 1
    assert ended.stderr.splitlines()[-1] == f"image build failed: {reason}"


# Pushing


@pytest.mark.usefixtures("registry")
def test_a_new_image_is_pushed_and_becomes_the_one_that_jobs_run(
    call: Call, project: Path, engine: FakeEngine, deployed: Deployed
) -> None:
    ended = push(call, project, engine.install(), as_json=True)
    assert ended.exit_code == 0
    tag = read_content(project).tag
    image = f"{REPOSITORY}@{DIGEST}"
    assert json.loads(ended.stdout) == {"image": image, "tag": tag, "is_pushed": True, "is_pointer_changed": True}
    assert deployed.parameters[POINTER] == image
    assert engine.calls("tag")[0]["arguments"] == ["tag", f"counterpoise:{tag}", f"{REPOSITORY}:{tag}"]
    assert engine.calls("push")[0]["arguments"] == ["push", f"{REPOSITORY}:{tag}"]
    (login,) = engine.calls("login")
    assert login["arguments"][-1] == REPOSITORY.partition("/")[0]
    assert login["stdin"] == "secret"
    assert "secret" not in ended.stdout + ended.stderr + json.dumps(login["arguments"])


@pytest.mark.usefixtures("registry")
def test_pushing_the_same_content_again_does_nothing(
    call: Call, project: Path, engine: FakeEngine, deployed: Deployed
) -> None:
    find = engine.install()
    assert push(call, project, find).exit_code == 0
    ended = push(call, project, find, as_json=True)
    assert ended.exit_code == 0
    assert (json.loads(ended.stdout)["is_pushed"], json.loads(ended.stdout)["is_pointer_changed"]) == (False, False)
    assert len(engine.calls("push")) == 1
    assert len(deployed.fake.called("PutParameter")) == 1


def test_an_image_that_is_there_needs_no_engine_to_become_current(
    call: Call, project: Path, registry: dict[str, Any], deployed: Deployed
) -> None:
    registry["is_there"] = True

    def find() -> Engine:
        raise AssertionError("no engine is needed")

    assert push(call, project, find).exit_code == 0
    assert deployed.parameters[POINTER] == f"{REPOSITORY}@{DIGEST}"


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("image_id", "exit_code"),
    [(CONFIG_DIGEST, 0), (CONFIG_DIGEST.removeprefix("sha256:"), 0), (DIGEST, 0), (f"sha256:{'f' * 64}", 1)],
    ids=["same config", "same config, as podman says it", "same manifest", "another image"],
)
def test_a_tag_taken_meanwhile_is_fine_only_for_the_same_image(
    call: Call,
    project: Path,
    engine: FakeEngine,
    deployed: Deployed,
    image_id: str,
    exit_code: int,
) -> None:
    tag = read_content(project).tag
    refusal = {"output": IMMUTABLE.format(tag=tag), "exit_code": 1}
    ended = push(call, project, engine.install(image_id=image_id, push=refusal))
    assert ended.exit_code == exit_code
    if exit_code:
        assert ended.stderr.splitlines()[-1] == (
            f"image push: the tag {tag} was given to another build of the same files meanwhile;"
            " take that one: `counterpoise image push`"
        )
        assert deployed.parameters[POINTER] == "none"


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            "no basic auth credentials",
            "the login did not last; see credsStore and credHelpers in ~/.docker/config.json",
        ),
        ("denied: requested access to the resource is denied", "denied: requested access to the resource is denied"),
    ],
)
def test_a_push_that_fails_for_another_reason_fails(
    call: Call,
    project: Path,
    engine: FakeEngine,
    registry: dict[str, Any],
    deployed: Deployed,
    output: str,
    reason: str,
) -> None:
    registry["appears_after_push"] = False
    ended = push(call, project, engine.install(push={"output": output, "exit_code": 1}))
    assert ended.exit_code == 1
    assert ended.stderr.splitlines()[-1] == f"image push failed: {reason}"
    assert deployed.parameters[POINTER] == "none"


@pytest.mark.usefixtures("registry")
def test_a_refused_login_ends_it(call: Call, project: Path, engine: FakeEngine) -> None:
    ended = push(call, project, engine.install(login={"output": "Error: 401 Unauthorized", "exit_code": 1}))
    assert ended.exit_code == 1
    assert ended.stderr.splitlines()[-1] == f"login to {REPOSITORY.partition('/')[0]} failed: Error: 401 Unauthorized"
    assert engine.calls("push") == []


@pytest.mark.usefixtures("registry")
def test_what_is_not_built_cannot_be_pushed(call: Call, project: Path, engine: FakeEngine) -> None:
    ended = push(call, project, engine.install(image_id=None))
    assert ended.exit_code == 2
    tag = read_content(project).tag
    assert ended.stderr == f"the image counterpoise:{tag} is not built; build it: `counterpoise image build`\n"


def test_an_image_that_sagemaker_may_refuse_never_becomes_current(
    call: Call, project: Path, engine: FakeEngine, registry: dict[str, Any], deployed: Deployed
) -> None:
    registry["manifest"] = INDEX
    ended = push(call, project, engine.install())
    assert ended.exit_code == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("the image is an index with an attestation entry; build it as one image in Docker's format")
    assert f"--image-ids imageTag={read_content(project).tag}" in last
    assert deployed.parameters[POINTER] == "none"


def test_a_dry_run_names_every_step_and_takes_none(
    call: Call, project: Path, engine: FakeEngine, registry: dict[str, Any], deployed: Deployed
) -> None:
    find = engine.install("podman", has_buildx=False)
    steps = json.loads(push(call, project, find, is_dry_run=True, as_json=True).stdout)
    tag = read_content(project).tag
    assert [step["command"][1:] for step in steps[:-1]] == [
        ["login", "--username", "AWS", "--password-stdin", REPOSITORY.partition("/")[0]],
        ["tag", f"counterpoise:{tag}", f"{REPOSITORY}:{tag}"],
        ["push", "--format", "v2s2", f"{REPOSITORY}:{tag}"],
    ]
    assert steps[-1]["operation"] == "PutParameter"
    assert engine.calls("push") == []
    registry["is_there"] = True
    (request,) = json.loads(push(call, project, find, is_dry_run=True, as_json=True).stdout)
    push(call, project, find)
    assert request["parameters"] == deployed.fake.called("PutParameter")[0]


# What SageMaker runs


def test_one_image_in_dockers_format_is_accepted() -> None:
    assert manifest_problem(DOCKER) is None


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (INDEX, "an index with an attestation entry"),
        ({**INDEX, "manifests": INDEX["manifests"][:1]}, "an index of 1 manifests"),
        ({**DOCKER, "mediaType": "application/vnd.oci.image.manifest.v1+json"}, "application/vnd.oci.image.manifest"),
        ({key: value for key, value in DOCKER.items() if key != "mediaType"}, "a part of media type None"),
        ({**DOCKER, "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+zstd"}]}, "tar+zstd"),
    ],
)
def test_anything_else_is_refused_with_what_it_is(manifest: dict[str, Any], problem: str) -> None:
    assert problem in str(manifest_problem(manifest))
