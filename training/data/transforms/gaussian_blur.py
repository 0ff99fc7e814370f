"""The article's transform: ten Gaussian blurs, computed one by one by torchvision or all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from training.data.transforms.fused_blur import blur_fused
from training.data.transforms.light_torchvision import functional as vision
from training.data.transforms.number_format import FLOAT32, NumberFormat
from training.data.transforms.transform import Draw, random_words


@dataclass(frozen=True)
class GaussianBlurStack:
    """The article's transform: ToTensor, then ten GaussianBlur(kernel_size=11) with random sigma. All work on the host.

    Sigma is drawn from 0.1..2.0 for each image and blur as torchvision draws it, but from a generator seeded by
    (seed, epoch, row): the same on every host, new in every epoch.
    """

    seed: int
    implementation: Literal["torchvision", "fused"] = "torchvision"
    wire: NumberFormat = FLOAT32
    num_blurs: int = 10
    kernel_size: int = 11
    sigma_range: tuple[float, float] = (0.1, 2.0)

    @property
    def wire_dtype(self) -> np.dtype[np.generic]:
        """A float format, since blurring leaves fractions."""
        return self.wire.carrier

    def wire_shape(self, image_size: int) -> tuple[int, int, int]:
        """Return the shape of one image, channels first, as the model takes it."""
        return (3, image_size, image_size)

    def on_host(self, image: NDArray[np.uint8], draw: Draw, out: NDArray[np.generic]) -> None:
        """Blur one image, uint8 (height, width, 3), into `out`, (3, height, width) in 0..1."""
        blur = blur_fused if self.implementation == "fused" else blur_one_by_one
        self.wire.write(blur(image, self.draw_sigmas(draw), self.kernel_size), out)

    def draw_sigmas(self, draw: Draw) -> list[float]:
        """Return the sigmas, in pixels, of an image's blurs."""
        drawn = torch.empty(self.num_blurs).uniform_(*self.sigma_range, generator=self.generator(draw))
        return drawn.tolist()

    def generator(self, draw: Draw) -> torch.Generator:
        """Return an image's own random stream."""
        return torch.Generator().manual_seed(random_words(self.seed, draw)[0])

    def on_device(self, images: torch.Tensor) -> torch.Tensor:
        """Return the batch as float32."""
        return self.wire.read(images)


def blur_one_by_one(image: NDArray[np.uint8], sigmas: Sequence[float], kernel_size: int) -> torch.Tensor:
    """Blur uint8 (height, width, channels) with each sigma in turn: float32 (channels, height, width) in 0..1."""
    pixels: torch.Tensor = vision.to_tensor(image)
    for sigma in sigmas:
        pixels = vision.gaussian_blur(pixels, [kernel_size, kernel_size], [sigma, sigma])
    return pixels
