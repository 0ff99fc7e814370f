"""`counterpoise image build`: the image of this checkout, under a tag that its content decides."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from infra.client.engine import Engine, run
from infra.client.errors import ExitCode
from infra.client.image_content import DOCKERFILE, read_content
from infra.client.screen import Screen

LOCAL_NAME = "counterpoise"


def build_image(screen: Screen, project: Path, find_engine: Callable[[], Engine], *, is_dry_run: bool) -> ExitCode:
    """Build the image of the files in `project` on this machine.

    Raises:
        BadInput: no Dockerfile, or no engine.
        JobFailed: the build failed.
    """
    content = read_content(project)
    engine, image = find_engine(), f"{LOCAL_NAME}:{content.tag}"
    if is_dry_run:
        command = engine.build_command(image, DOCKERFILE, Path())
        screen.plan([{"command": command, "files": [file.as_posix() for file in content.files]}])
        return ExitCode.OK
    with tempfile.TemporaryDirectory(prefix="counterpoise-image-") as folder:
        content.copy_to(Path(folder))
        exit_code, output = run(engine.build_command(image, Path(folder) / DOCKERFILE, Path(folder)), screen.note)
    if exit_code != 0:
        raise engine.failure("image build", output)
    screen.result({"image": image, "id": engine.image_id(image), "tag": content.tag})
    screen.show(f"built {image}")
    screen.note("next: `counterpoise image push`")
    return ExitCode.OK
