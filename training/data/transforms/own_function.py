"""The user's own transform: a function named `package.module:function`, imported where an image needs it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from training.contract import ContractError, nearest
from training.data.decoding import one_line
from training.data.transforms.function import ImageFunction


@dataclass(frozen=True)
class OwnFunction:
    """`package.module:function` from the files in `folder`, where a code channel gives one, or from the image.

    The function takes one image, a uint8 tensor (3, image_size, image_size), RGB, and returns a tensor or array of that
    shape: uint8, float32 or float16. It pickles as its name; every process imports it for itself.
    """

    path: str
    folder: Path | None = None

    def load(self) -> Sequence[tuple[str, ImageFunction]]:
        """Return the function. Raises ContractError in one line that says what could not be imported."""
        return ((f"training.transform: {self.path}", _load(self.path, self.folder)),)


@lru_cache(maxsize=4)
def _load(path: str, folder: Path | None) -> ImageFunction:
    module_name, _, function_name = path.partition(":")
    if folder is not None:
        _offer(folder, module_name.partition(".")[0])
    module = _import(module_name, folder)
    function: Any = getattr(module, function_name, None)
    if function is None:
        known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise _refused(f"module {module_name} has no function {function_name!r}", function_name, known)
    if not callable(function):
        kind = type(function).__name__
        raise ContractError([f"training.transform: {path} is of type {kind}; name a function of one image"])
    loaded: ImageFunction = function
    return loaded


def _offer(folder: Path, top: str) -> None:
    """Let Python import from `folder`, last of all places: nothing of the image is replaced by a file of that name."""
    if not folder.is_dir():
        reason = f"folder {folder} does not exist; give the job an input channel of this name, on every host"
        raise ContractError([f"training.code_channel: {reason}"])
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    importlib.invalidate_caches()
    if not ((folder / top).is_dir() or (folder / f"{top}.py").is_file()):
        return
    spec = importlib.util.find_spec(top)
    found = [*(spec.submodule_search_locations or [spec.origin or ""])] if spec else []
    if not any(Path(place).resolve().is_relative_to(folder.resolve()) for place in found):
        reason = f"Python finds another {top!r} first, in {', '.join(found)}; rename the one in {folder}"
        raise ContractError([f"training.transform: {reason}"])


def _import(name: str, folder: Path | None) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            where = f"in {folder} or in the image" if folder else "in the image, and training.code_channel is not set"
            raise _refused(f"no module {name!r} {where}", name, _modules(folder)) from error
        raise _failed(name, error) from error
    except Exception as error:  # whatever the user's module does while it is imported
        raise _failed(name, error) from error


def _failed(name: str, error: Exception) -> ContractError:
    reason = f"{type(error).__name__}: {one_line(error)}"
    return ContractError([f"training.transform: module {name} cannot be imported: {reason}"])


def _modules(folder: Path | None) -> list[str]:
    """Return the names of all modules in a folder."""
    if folder is None:
        return []
    files = [file.relative_to(folder).with_suffix("") for file in sorted(folder.rglob("*.py"))]
    return [".".join(file.parent.parts if file.name == "__init__" else file.parts) for file in files]


def _refused(reason: str, name: str, known: Sequence[str]) -> ContractError:
    similar = nearest(name, known)
    hint = f"; nearest: {', '.join(similar)}" if similar else f"; known: {', '.join(known[:10])}" if known else ""
    return ContractError([f"training.transform: {reason}{hint}"])
