"""Compositions of torchvision.transforms.v2 from text: the same as in Python, and every mistake in one line."""

import pickle
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torchvision.transforms import v2  # type: ignore[import-untyped]

from training.contract import ContractError
from training.data.synthetic import Synthetic
from training.data.transforms import Draw, Normalize
from training.data.transforms.function import FunctionTransform, function_transform
from training.data.transforms.torchvision_steps import TorchvisionSteps
from training.data.transforms.transform import random_words

SIZE = 24
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SOURCE = Synthetic(num_rows=20, num_classes=5, image_size=SIZE, seed=0)


def steps(*texts: str, precision: str = "fp32") -> FunctionTransform:
    return function_transform(TorchvisionSteps(texts), image_size=SIZE, seed=7, precision=precision, mean=MEAN, std=STD)


def on_host(transform: FunctionTransform, draw: Draw = (0, 0)) -> NDArray[np.generic]:
    out = np.zeros(transform.wire_shape(SIZE), transform.wire_dtype)
    transform.on_host(SOURCE.read(draw[1]), draw, out)
    return out


def refusal(*texts: str) -> list[str]:
    with pytest.raises(ContractError) as caught:
        steps(*texts)
    assert all("\n" not in problem for problem in caught.value.problems)
    return caught.value.problems


def test_text_means_what_it_means_in_python() -> None:
    transform = steps(
        "RandomResizedCrop(24, scale=(0.5, 1.0), antialias=True)",
        "RandomHorizontalFlip",
        "ColorJitter(brightness=0.2, hue=[-0.1, 0.1])",
        "ToDtype(torch.float32, scale=True)",
        "Normalize(mean=[0.5, 0.5, 0.5], std=[0.25, 0.25, 0.25])",
    )
    written = v2.Compose(
        [
            v2.RandomResizedCrop(24, scale=(0.5, 1.0), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(brightness=0.2, hue=[-0.1, 0.1]),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(mean=[0.5, 0.5, 0.5], std=[0.25, 0.25, 0.25]),
        ]
    )
    for draw in ((0, 3), (1, 3), (0, 4)):
        image = torch.from_numpy(SOURCE.read(draw[1])).permute(2, 0, 1).contiguous()
        with torch.random.fork_rng():
            torch.manual_seed(random_words(7, draw)[0])
            expected = written(image)
        assert np.array_equal(on_host(transform, draw), expected.numpy())
        received = transform.on_device(torch.from_numpy(on_host(transform, draw))[None])
        assert torch.equal(received[0], expected)


def test_bytes_cross_as_bytes_and_are_normalised_on_the_device() -> None:
    transform = steps("RandomVerticalFlip(p=1.0)")
    wire = on_host(transform)
    assert (str(wire.dtype), wire.shape) == ("uint8", (3, SIZE, SIZE))
    flipped = SOURCE.read(0)[::-1].copy()
    expected = Normalize(MEAN, STD).on_device(torch.from_numpy(flipped)[None])
    torch.testing.assert_close(transform.on_device(torch.from_numpy(wire)[None]), expected, rtol=0, atol=0)


def test_float16_crosses_as_it_is_whatever_the_precision() -> None:
    for precision in ("fp32", "bf16"):
        transform = steps("ToDtype(torch.float16, scale=True)", precision=precision)
        wire = on_host(transform)
        assert wire.dtype == np.float16
        received = transform.on_device(torch.from_numpy(wire)[None])
        assert received.dtype == torch.float32
        assert torch.equal(received[0], torch.from_numpy(wire).to(torch.float32))


def test_random_numbers_depend_on_seed_epoch_and_row_alone() -> None:
    transform = steps("RandomErasing(p=1.0, value='random')", "RandomHorizontalFlip")
    image = SOURCE.read(0)
    found = set()
    for draw in ((0, 0), (0, 1), (1, 0)):
        runs = set()
        for disturbance in (1, 2):
            torch.manual_seed(disturbance)
            np.random.seed(disturbance)
            random.seed(disturbance)
            out = np.zeros((3, SIZE, SIZE), np.uint8)
            transform.on_host(image, draw, out)
            runs.add(out.tobytes())
        assert len(runs) == 1
        found |= runs
    assert len(found) == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("RandomHorizontalFlp", "torchvision.transforms.v2 has no transform RandomHorizontalFlp; nearest: RandomHori"),
        ("functional", "torchvision.transforms.v2 has no transform functional; nearest: "),
        ("GaussianBlur", "missing 1 required positional argument: 'kernel_size'; its arguments: kernel_size, sigma"),
        ("GaussianBlur(10)", "Kernel size value should be an odd and positive number"),
        ("GaussianBlur(11, sigm=2)", "unexpected keyword argument 'sigm'; its arguments: kernel_size, sigma"),
        ("GaussianBlur(__import__('os').getpid())", "argument __import__('os').getpid() is neither a Python literal"),
        ("GaussianBlur(torch.load)", "argument torch.load is neither a Python literal nor a torch dtype"),
        ("GaussianBlur(*[11])", "argument *[11] is neither a Python literal"),
        ("GaussianBlur(**{'kernel_size': 11})", "arguments are written out, without **"),
        ("v2.GaussianBlur(11)", "is not Name or Name(arguments), such as GaussianBlur(11)"),
        ("GaussianBlur(11", "is not Name or Name(arguments), such as GaussianBlur(11)"),
        ("GaussianBlur(11)(3)", "is not Name or Name(arguments), such as GaussianBlur(11)"),
        ("[GaussianBlur(11)]", "is not Name or Name(arguments), such as GaussianBlur(11)"),
    ],
)
def test_a_wrong_step_is_refused_in_one_line(text: str, problem: str) -> None:
    first, second = refusal("RandomHorizontalFlip", text, "Nothing")
    assert first.startswith(f"training.transform_steps[1]: {text}: ")
    assert problem in first
    assert second.startswith("training.transform_steps[2]: Nothing: ")


def test_nothing_in_a_step_is_executed(tmp_path: Path) -> None:
    file = tmp_path / "x"
    refusal(f"GaussianBlur(open({str(file)!r}, 'w'))")
    assert not file.exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ToDtype(torch.float64, scale=True)", "returned float64 of shape (3, 24, 24) for an image of noise; expected"),
        (
            "Resize(20)",
            "returned uint8 of shape (3, 20, 20) for an image of noise; expected a tensor or array of uint8",
        ),
        ("Grayscale", "returned uint8 of shape (1, 24, 24) for an image of noise"),
        ("ToPILImage", "returned a value of type Image for an image of noise"),
        ("RandomCrop(300)", "failed on an image of noise: ValueError: Required crop size"),
    ],
)
def test_what_the_last_step_leaves_must_be_an_image(text: str, problem: str) -> None:
    (line,) = refusal("RandomHorizontalFlip", text)
    assert line.startswith(f"training.transform_steps[1]: {text} {problem}")


def test_steps_pickle_as_text() -> None:
    transform = steps("RandomHorizontalFlip")
    expected = on_host(transform)
    data = pickle.dumps(transform)
    assert b"torchvision.transforms" not in data
    assert np.array_equal(on_host(pickle.loads(data)), expected)
