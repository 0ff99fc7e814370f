"""The user's own function: found in the code channel or in the image, on any host, and refused in one line."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from training.contract import ContractError
from training.data.synthetic import Synthetic
from training.data.transforms import Draw
from training.data.transforms.function import FunctionTransform, function_transform
from training.data.transforms.own_function import OwnFunction

ROOT = Path(__file__).resolve().parents[2]
SIZE = 16
SOURCE = Synthetic(num_rows=20, num_classes=5, image_size=SIZE, seed=0)

Write = Callable[..., Path]


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes modules, `{name: text}`, into a code channel's folder; Python forgets them after the test."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)

    def write(**modules: str) -> Path:
        for name, text in modules.items():
            file = tmp_path / "code" / f"{name.replace('__in__', '/')}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(dedent(text))
        return tmp_path / "code"

    yield write
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def own(path: str, folder: Path | None = None, precision: str = "fp32") -> FunctionTransform:
    function = OwnFunction(path, folder)
    return function_transform(function, image_size=SIZE, seed=7, precision=precision, mean=(0.5,) * 3, std=(0.5,) * 3)


def on_host(transform: FunctionTransform, draw: Draw = (0, 0)) -> NDArray[np.generic]:
    out = np.zeros(transform.wire_shape(SIZE), transform.wire_dtype)
    transform.on_host(SOURCE.read(draw[1]), draw, out)
    return out


def refusal(path: str, folder: Path | None = None) -> str:
    with pytest.raises(ContractError) as caught:
        own(path, folder)
    (line,) = caught.value.problems
    assert "\n" not in line
    return line.removeprefix("training.transform: ")


def test_a_function_gets_a_uint8_tensor_and_its_tensor_crosses(code: Write) -> None:
    folder = code(
        augment="""
        import torch

        def invert(image):
            assert (image.dtype, image.shape, image.is_contiguous()) == (torch.uint8, (3, 16, 16), True)
            return 255 - image
        """
    )
    transform = own("augment:invert", folder)
    assert transform.wire_dtype == np.uint8
    assert np.array_equal(on_host(transform), 255 - SOURCE.read(0).transpose(2, 0, 1))


@pytest.mark.parametrize(
    "expression",
    [
        "np.flip(np.flip(values, 1).copy(), 1)",
        "np.broadcast_to(values.astype(np.float32), values.shape)",
        "np.asfortranarray(values.astype(np.float16))",
    ],
)
def test_arrays_are_taken_however_they_lie_in_memory(code: Write, expression: str) -> None:
    folder = code(
        augment=f"""
        import numpy as np

        def work(image):
            values = image.numpy()
            return {expression}
        """
    )
    assert np.array_equal(on_host(own("augment:work", folder)), SOURCE.read(0).transpose(2, 0, 1))


def test_float32_crosses_in_the_precision_of_the_model(code: Write) -> None:
    folder = code(augment="def scale(image):\n    return image / 255\n")
    transform = own("augment:scale", folder, precision="bf16")
    received = transform.on_device(torch.from_numpy(on_host(transform))[None])[0]
    exact = torch.from_numpy(SOURCE.read(0)).permute(2, 0, 1) / 255
    assert torch.equal(received, exact.to(torch.bfloat16).to(torch.float32))


def test_random_numbers_of_torch_numpy_and_python_are_seeded(code: Write) -> None:
    folder = code(
        augment="""
        import random
        import numpy as np
        import torch

        def draw(image):
            numbers = torch.zeros(3, 16, 16)
            numbers[0] = torch.rand(1)
            numbers[1] = np.random.rand()
            numbers[2] = random.random()
            return numbers
        """
    )
    transform = own("augment:draw", folder)
    draws: list[Draw] = [(0, 0), (0, 1), (1, 0)]
    found = [on_host(transform, draw)[:, 0, 0].tolist() for draw in draws]
    assert [on_host(transform, draw)[:, 0, 0].tolist() for draw in draws] == found
    assert len({number for numbers in found for number in numbers}) == 9


def test_packages_modules_of_the_image_and_imports_between_files_work(code: Write) -> None:
    folder = code(
        mine__in____init__="",
        mine__in__sizes="SIDE = 16\n",
        mine__in__steps="from mine.sizes import SIDE\n\ndef crop(image):\n    return image[:, :SIDE, :SIDE]\n",
    )
    pixels = SOURCE.read(0).transpose(2, 0, 1)
    assert np.array_equal(on_host(own("mine.steps:crop", folder)), pixels)
    assert np.array_equal(on_host(own("torchvision.transforms.v2.functional:hflip")), pixels[:, :, ::-1])


def test_another_process_imports_the_function_for_itself(code: Write, tmp_path: Path) -> None:
    folder = code(far_away="def negative(image):\n    return 255 - image\n")
    transform = own("far_away:negative", folder)
    (tmp_path / "transform.pickle").write_bytes(pickle.dumps(transform))
    script = """
import pickle, sys
import numpy as np
transform = pickle.load(open(sys.argv[1], "rb"))
assert "far_away" not in sys.modules
out = np.zeros((3, 16, 16), np.uint8)
transform.on_host(np.full((16, 16, 3), 5, np.uint8), (0, 0), out)
assert (out == 250).all()
"""
    command = [sys.executable, "-c", script, str(tmp_path / "transform.pickle")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_names_that_do_not_exist_come_with_near_ones(code: Write) -> None:
    folder = code(
        augment="def flip_image(image):\n    return image\n", mine__in__steps="def crop(image):\n    return image\n"
    )
    assert refusal("augments:flip", folder) == (f"no module 'augments' in {folder} or in the image; nearest: augment")
    assert refusal("mine.stepz:crop", folder) == (
        f"no module 'mine.stepz' in {folder} or in the image; nearest: mine.steps"
    )
    assert refusal("augment:flip_img", folder) == "module augment has no function 'flip_img'; nearest: flip_image"
    assert refusal("augment:zoom", folder) == "module augment has no function 'zoom'; known: flip_image"
    assert refusal("augmnet:flip") == "no module 'augmnet' in the image, and training.code_channel is not set"


def test_a_module_that_cannot_be_imported_says_why(code: Write) -> None:
    folder = code(
        needs="import a_package_that_is_not_there\n",
        broken="def work(image:\n",
        fails="raise ValueError('two\\nlines')\n",
        plain="work = 3\n",
    )
    assert refusal("needs:work", folder) == (
        "module needs cannot be imported: ModuleNotFoundError: No module named 'a_package_that_is_not_there'"
    )
    assert refusal("broken:work", folder).startswith("module broken cannot be imported: SyntaxError: '(' was never")
    assert refusal("fails:work", folder) == "module fails cannot be imported: ValueError: two lines"
    assert refusal("plain:work", folder) == "plain:work is of type int; name a function of one image"


def test_a_file_that_python_would_never_find_is_told(code: Write) -> None:
    folder = code(json="def work(image):\n    return image\n")
    assert refusal("json:work", folder).startswith("Python finds another 'json' first, in ")
    assert refusal("json:work", folder).endswith(f"; rename the one in {folder}")


def test_a_missing_channel(tmp_path: Path) -> None:
    line = refusal("augment:flip", tmp_path / "code")
    assert line.startswith(f"training.code_channel: folder {tmp_path / 'code'} does not exist")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("return None", "returned a value of type NoneType for an image of noise; expected a tensor or array of"),
        ("return image.double()", "returned float64 of shape (3, 16, 16) for an image of noise; expected"),
        ("return image.numpy().astype('>f4')", "returned >f4 of shape (3, 16, 16) for an image of noise"),
        ("return image.permute(1, 2, 0)", "returned uint8 of shape (16, 16, 3) for an image of noise"),
        ("return image[None]", "returned uint8 of shape (1, 3, 16, 16) for an image of noise"),
        ("return image.undefined", "failed on an image of noise: AttributeError: 'Tensor' object has no attribute"),
    ],
)
def test_what_the_function_returns_must_be_an_image(code: Write, body: str, problem: str) -> None:
    folder = code(augment=f"def work(image):\n    {body}\n")
    assert refusal("augment:work", folder).startswith(f"augment:work {problem}")


def test_an_error_names_the_line_of_the_users_file(code: Write) -> None:
    folder = code(augment="def work(image):\n    return halve(image)\n\ndef halve(image):\n    return image / None\n")
    assert refusal("augment:work", folder).endswith(" (augment.py, line 5)")


def test_a_row_that_comes_out_otherwise_than_the_first_is_named(code: Write) -> None:
    folder = code(
        augment="""
        def work(image):
            if (image == 0).all():
                raise ValueError("all black")
            return image / 255 if (image == 1).all() else image
        """
    )
    transform = own("augment:work", folder)
    out = np.zeros((3, SIZE, SIZE), np.uint8)
    with pytest.raises(ContractError, match="augment:work returned float32 for row 5; expected uint8"):
        transform.on_host(np.ones((SIZE, SIZE, 3), np.uint8), (0, 5), out)
    with pytest.raises(ContractError, match="augment:work failed on row 6: ValueError: all black"):
        transform.on_host(np.zeros((SIZE, SIZE, 3), np.uint8), (0, 6), out)
