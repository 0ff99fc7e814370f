"""The blur stack: torchvision's pixels from the row's own random stream, one by one or all at once."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torchvision import transforms as vision  # type: ignore[import-untyped]
from torchvision.transforms.functional import gaussian_blur  # type: ignore[import-untyped]

from training.data.synthetic import Synthetic
from training.data.transforms import Draw, GaussianBlurStack
from training.data.transforms.fused_blur import blur_fused
from training.data.transforms.gaussian_blur import blur_one_by_one
from training.data.transforms.number_format import BFLOAT16

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Synthetic(num_rows=20, num_classes=5, image_size=24, seed=0)


def on_host(transform: GaussianBlurStack, image: NDArray[np.uint8], draw: Draw = (0, 0)) -> NDArray[np.generic]:
    out = np.zeros(transform.wire_shape(len(image)), transform.wire_dtype)
    transform.on_host(image, draw, out)
    return out


def in_float64(image: NDArray[np.uint8], sigmas: Sequence[float], kernel_size: int) -> torch.Tensor:
    """What torchvision's kernels, as they are in float32, make of an image when nothing is rounded on the way."""
    pixels: torch.Tensor = vision.functional.to_tensor(image).double()
    half = kernel_size // 2
    for sigma in sigmas:
        point = torch.zeros(1, 4 * half + 1, 4 * half + 1)
        point[0, 2 * half, 2 * half] = 1
        inner = slice(half, half + kernel_size)
        kernel = gaussian_blur(point, [kernel_size, kernel_size], [sigma, sigma])[:, inner, inner].double()
        padded = torch.nn.functional.pad(pixels[:, None], [half] * 4, mode="reflect")
        pixels = torch.nn.functional.conv2d(padded, kernel[None])[:, 0]
    return pixels


def worst(first: torch.Tensor, second: torch.Tensor) -> float:
    assert first.shape == second.shape
    return float((first.double() - second.double()).abs().max())


def noise(seed: int, size: int, num_channels: int, darkest: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(darkest, 256, (size, size, num_channels), np.uint8)


def test_the_blur_stack_is_to_tensor_and_ten_gaussian_blurs() -> None:
    transform = GaussianBlurStack(seed=9)
    reference = vision.Compose([vision.ToTensor(), *[vision.GaussianBlur(kernel_size=11) for _ in range(10)]])
    for draw in ((0, 0), (2, 3)):
        image = SOURCE.read(draw[1])
        with torch.random.fork_rng():
            # torchvision draws from the global generator: put the image's own stream there.
            torch.manual_seed(transform.generator(draw).initial_seed())
            expected = reference(image).numpy()
        found = on_host(transform, image, draw)
        assert (str(found.dtype), found.shape) == ("float32", (3, 24, 24))
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("implementation", ["torchvision", "fused"])
def test_blur_depends_on_seed_epoch_and_row_and_not_on_the_host(implementation: str) -> None:
    image = SOURCE.read(0)

    def blurred(seed: int, draw: Draw) -> bytes:
        return on_host(GaussianBlurStack(seed, implementation), image, draw).tobytes()  # type: ignore[arg-type]

    torch.manual_seed(1)
    first = blurred(1, (4, 7))
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    assert blurred(1, (4, 7)) == first
    assert torch.equal(state, torch.random.get_rng_state())  # nothing else in the process is disturbed
    assert len({first, blurred(1, (4, 8)), blurred(1, (5, 7)), blurred(2, (4, 7))}) == 4


def test_sigmas_fill_the_range_of_torchvision() -> None:
    sigmas = np.array([GaussianBlurStack(seed=3).draw_sigmas((row % 2, row)) for row in range(300)])
    assert sigmas.shape == (300, 10)
    assert 0.1 <= sigmas.min() < 0.12
    assert 1.98 < sigmas.max() <= 2.0
    assert abs(sigmas.mean() - 1.05) < 0.05  # 5 standard deviations of the mean of 3,000


@settings(max_examples=60)
@given(
    size=st.integers(8, 100),
    half_kernel=st.integers(1, 7),
    num_channels=st.integers(1, 4),
    sigmas=st.lists(st.floats(0.1, 9), min_size=1, max_size=10),
    darkest=st.sampled_from([0, 230, 255]),
    seed=st.integers(0, 1000),
)
def test_fused_is_exact_on_any_image(
    size: int, half_kernel: int, num_channels: int, sigmas: list[float], darkest: int, seed: int
) -> None:
    image = noise(seed, size, num_channels, darkest)
    kernel_size = 2 * half_kernel + 1
    fused = blur_fused(image, sigmas, kernel_size)
    assert fused.dtype == torch.float32
    assert worst(fused, in_float64(image, sigmas, kernel_size)) <= 4e-7


@settings(max_examples=60, derandomize=True)  # the rounding of torchvision itself comes close to the bound
@given(
    size=st.integers(8, 100),
    num_channels=st.integers(1, 4),
    sigmas=st.lists(st.floats(0.1, 2), min_size=1, max_size=10),
    seed=st.integers(0, 1000),
)
def test_fused_gives_the_pixels_of_torchvision(size: int, num_channels: int, sigmas: list[float], seed: int) -> None:
    image = noise(seed, size, num_channels)
    assert worst(blur_fused(image, sigmas, 11), blur_one_by_one(image, sigmas, 11)) <= 1e-6


@pytest.mark.parametrize("row", range(3))
def test_both_implementations_agree_on_a_whole_row(row: int) -> None:
    image = noise(row, 224, 3)
    pixels = [
        torch.from_numpy(on_host(GaussianBlurStack(0, implementation), image, (1, row)))
        for implementation in ("torchvision", "fused")
    ]
    assert 0 < worst(*pixels) <= 1e-6  # not 0: they are two implementations


def test_in_half_precision_the_model_gets_the_rounded_pixels() -> None:
    image = SOURCE.read(0)
    exact = torch.from_numpy(on_host(GaussianBlurStack(0), image))
    half = GaussianBlurStack(0, wire=BFLOAT16)
    received = half.on_device(torch.from_numpy(on_host(half, image))[None])
    assert torch.equal(received[0], exact.to(torch.bfloat16).to(torch.float32))


IMPORT_IN_A_FRESH_PROCESS = """
import sys
import training.data.transforms.gaussian_blur
print("torch._dynamo" in sys.modules)
import torchvision.ops
roi_align = sys.modules["torchvision.ops.roi_align"]
from torch._dynamo.utils import is_compile_supported
import torch
print(roi_align.is_compile_supported is not is_compile_supported, roi_align.is_compile_supported("cpu"))
print(torch.compile(torch.nn.Linear(2, 2), backend="eager")(torch.zeros(1, 2)).shape == (1, 2))
"""


def test_a_data_worker_does_not_pay_for_the_compiler_and_others_still_have_it() -> None:
    command = [sys.executable, "-c", IMPORT_IN_A_FRESH_PROCESS]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ended.stdout.split() == ["False", "True", "True", "True"], ended.stdout + ended.stderr
