"""What goes into the image: its files, the tag that follows from them, and the folder that it is built from."""

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from infra.client.errors import BadInput
from infra.settings import CURRENT_TAG_PREFIX

DOCKERFILE = Path("container/Dockerfile")
FOLDERS = ("container", "training")
"""All that the image is made from: the Dockerfile with its locks and process 1, and the training code."""
_DIGEST_CHARACTERS = 16
_BYTECODE = "__pycache__"


@dataclass(frozen=True)
class Content:
    """The files of the image below the project's folder, in one order, whatever the machine."""

    project: Path
    files: tuple[Path, ...]

    @property
    def tag(self) -> str:
        """The tag of the image: the same files have the same tag, and a changed file has another."""
        digest = hashlib.sha256()
        for file in self.files:
            data = (self.project / file).read_bytes()
            digest.update(f"{file.as_posix()}\0{len(data)}\0".encode())
            digest.update(data)
        return f"{CURRENT_TAG_PREFIX}{digest.hexdigest()[:_DIGEST_CHARACTERS]}"

    def copy_to(self, folder: Path) -> None:
        """Copies the files: an image built from there can hold nothing that its tag does not stand for.

        Permissions are not copied, since they are not in the tag either: a checkout's depend on the user's umask.
        """
        for file in self.files:
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.project / file, target)
            target.chmod(0o644)


def read_content(project: Path) -> Content:
    """The files of the image in this checkout; hidden files and bytecode are none of them.

    Raises:
        BadInput: there is no Dockerfile.
    """
    if not (project / DOCKERFILE).is_file():
        raise BadInput(f"{DOCKERFILE} does not exist in {project}; run the command from a checkout that has it")
    files = [
        path.relative_to(project)
        for folder in FOLDERS
        for path in (project / folder).rglob("*")
        if path.is_file() and not _is_left_out(path.relative_to(project))
    ]
    return Content(project, tuple(sorted(files, key=lambda file: file.as_posix())))


def _is_left_out(file: Path) -> bool:
    return any(part.startswith(".") or part == _BYTECODE for part in file.parts)
