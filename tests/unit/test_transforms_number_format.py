"""Number formats of the network: rounded as torch rounds, and lost on nobody who computes in them anyway."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.data.transforms.number_format import BFLOAT16, FLOAT16, FLOAT32, NumberFormat

FORMATS = [FLOAT32, FLOAT16, BFLOAT16]
floats = st.lists(st.floats(width=32), min_size=1, max_size=40)


def across(wire: NumberFormat, pixels: torch.Tensor) -> torch.Tensor:
    out = np.zeros(pixels.shape, wire.carrier)
    wire.write(pixels, out)
    return wire.read(torch.from_numpy(out))


@given(floats)
def test_rounding_is_that_of_torch(values: list[float]) -> None:
    pixels = torch.tensor(values)
    for wire in FORMATS:
        torch.testing.assert_close(
            across(wire, pixels), pixels.to(wire.number).to(torch.float32), rtol=0, atol=0, equal_nan=True
        )


@given(floats)
def test_nothing_that_is_in_the_format_changes(values: list[float]) -> None:
    for wire in FORMATS:
        pixels = torch.tensor(values).to(wire.number).to(torch.float32)
        torch.testing.assert_close(across(wire, pixels), pixels, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("wire", [FLOAT16, BFLOAT16])
def test_a_first_layer_in_autocast_computes_the_same(wire: NumberFormat) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(3, 8, kernel_size=4, stride=4)
    pixels = torch.rand(2, 3, 16, 16)
    with torch.autocast("cpu", dtype=wire.number):
        assert torch.equal(layer(across(wire, pixels)), layer(pixels))


def test_half_precision_is_half_the_bytes() -> None:
    assert [wire.carrier.itemsize for wire in FORMATS] == [4, 2, 2]
