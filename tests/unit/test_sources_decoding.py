"""Decoding: whatever a camera or a program wrote becomes RGB of the set size, or says why not."""

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torchvision.transforms import CenterCrop, Compose, Resize  # type: ignore[import-untyped]

from training.data.decoding import decode_image, fit_pixels
from training.data.sources import UnreadableRow

RNG = np.random.default_rng(0)


def noise(height: int, width: int, channels: int = 3) -> NDArray[np.uint8]:
    shape = (height, width) if channels == 1 else (height, width, channels)
    return RNG.integers(0, 256, shape, np.uint8)


def encode(image: Image.Image, form: str = "PNG", **options: object) -> bytes:
    content = io.BytesIO()
    image.save(content, form, **options)
    return content.getvalue()


def decode(content: bytes, image_size: int) -> NDArray[np.uint8]:
    return decode_image(content, image_size, "name.jpg")


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(side: int, depth: int, colour: int, pixel: bytes, more: bytes = b"") -> bytes:
    """A square of one colour in a form that Pillow reads and does not write."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, depth, colour, 0, 0, 0))
    lines = zlib.compress((b"\0" + pixel * side) * min(side, 64))
    return b"\x89PNG\r\n\x1a\n" + header + more + chunk(b"IDAT", lines) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty file"),
        (b"<?xml version='1.0'?><Error/>", "not a JPEG or PNG image"),
        (encode(Image.new("L", (9, 9)), "GIF"), "not a JPEG or PNG image"),
        (encode(Image.fromarray(noise(40, 40)), "JPEG")[:900], "truncated"),
        (encode(Image.fromarray(noise(40, 40)))[:2000], "truncated"),
    ],
)
def test_what_is_no_image_says_why(content: bytes, reason: str) -> None:
    with pytest.raises(UnreadableRow, match=f"^name.jpg: .*{reason}") as caught:
        decode(content, 8)
    assert "\n" not in str(caught.value)


def test_a_decompression_bomb_is_unreadable_and_a_large_picture_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnreadableRow, match=r"Image size \(3600000000 pixels\) exceeds limit"):
        decode(png(60_000, 8, 2, b"\1\2\3"), 8)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # 1,200 pixels: Pillow warns, and refuses from 2,001 on
    assert decode(encode(Image.fromarray(noise(40, 30))), 8).shape == (8, 8, 3)


SIZES = [(8, 8), (30, 40), (41, 30), (7, 9), (300, 17), (16, 500), (225, 224), (1, 50)]


@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("size", [8, 33, 224])
def test_size_and_crop_are_those_of_torchvision(height: int, width: int, size: int) -> None:
    image = Image.fromarray(noise(height, width))
    expected = np.asarray(Compose([Resize(size), CenterCrop(size)])(image)).astype(int)
    assert abs(decode(encode(image), size).astype(int) - expected).max() <= 1  # rounding of the crop's edges


@pytest.mark.parametrize(("height", "width"), [(640, 900), (900, 641), (1303, 1301)])
def test_a_large_jpeg_looks_as_torchvision_makes_it_within_half_a_pixel(height: int, width: int) -> None:
    content = encode(Image.fromarray(noise(9, 13)).resize((width, height), Image.Resampling.BICUBIC), "JPEG")
    expected = np.asarray(Compose([Resize(64), CenterCrop(64)])(Image.open(io.BytesIO(content)))).astype(int)
    slope = max(abs(np.diff(expected, axis=axis)).max() for axis in (0, 1))  # from one pixel to the next
    difference = abs(decode(content, 64).astype(int) - expected)
    assert difference.max() <= slope / 2 + 2  # JPEG's rounding
    assert difference.mean() < 3


def test_a_long_thin_picture_costs_no_more_than_its_crop() -> None:
    content = encode(Image.new("RGB", (20_000, 1), (9, 8, 7)))
    assert np.unique(decode(content, 64).reshape(-1, 3), axis=0).tolist() == [[9, 8, 7]]


def test_16_bit_gray_is_scaled_and_not_clipped() -> None:
    values = np.array([[0, 257], [32768, 65535]], np.uint16)
    pixels = decode(encode(Image.fromarray(np.kron(values, np.ones((8, 8), np.uint16)))), 16)
    assert [pixels[y, x].tolist() for y, x in [(0, 0), (0, 15), (15, 0), (15, 15)]] == [
        [0] * 3,
        [1] * 3,
        [128] * 3,
        [255] * 3,
    ]


DEEP = {
    "gray": (0, (0x8080,), b"", (128, 128, 128)),
    "gray with a clear gray": (0, (0x8080,), chunk(b"tRNS", struct.pack(">H", 0x8080)), (255, 255, 255)),
    "gray with another clear gray": (0, (0x8080,), chunk(b"tRNS", struct.pack(">H", 0x8081)), (128, 128, 128)),
    "gray and alpha": (4, (0x8080, 0), b"", (255, 255, 255)),
    "colour": (2, (0xFFFF, 0x8080, 0x0101), b"", (255, 128, 1)),
    "colour and alpha": (6, (0, 0, 0, 0x8080), b"", (127, 127, 127)),
}


@pytest.mark.parametrize("name", DEEP)
def test_16_bits_become_8_in_every_colour_type(name: str) -> None:
    colour, values, more, expected = DEEP[name]
    content = png(8, 16, colour, struct.pack(f">{len(values)}H", *values), more)
    assert np.unique(decode(content, 4).reshape(-1, 3), axis=0).tolist() == [list(expected)]


def _clear_palette() -> Image.Image:
    image = Image.new("P", (16, 16), 1)
    image.putpalette([0, 0, 0, 200, 100, 50])
    return image


def _cmyk() -> Image.Image:
    return Image.new("CMYK", (16, 16), (0, 255, 255, 0))


RED, WHITE = (255, 0, 0), (255, 255, 255)
COLOURS: dict[str, tuple[Callable[[], Image.Image], dict[str, object], tuple[int, int, int]]] = {
    "rgb.png": (lambda: Image.new("RGB", (16, 16), RED), {}, RED),
    "bilevel.png": (lambda: Image.new("1", (16, 16), 1), {}, WHITE),
    "gray.jpg": (lambda: Image.new("L", (16, 16), 77), {}, (77, 77, 77)),
    "palette.png": (_clear_palette, {}, (200, 100, 50)),
    "palette_byte.png": (_clear_palette, {"transparency": 1}, WHITE),
    "palette_bytes.png": (_clear_palette, {"transparency": b"\xff\x00"}, WHITE),
    "colour_key.png": (lambda: Image.new("RGB", (16, 16), RED), {"transparency": RED}, WHITE),
    "rgba_clear.png": (lambda: Image.new("RGBA", (16, 16), (1, 2, 3, 0)), {}, WHITE),
    "rgba_half.png": (lambda: Image.new("RGBA", (16, 16), (0, 0, 0, 128)), {}, (127, 127, 127)),
    "gray_alpha.png": (lambda: Image.new("LA", (16, 16), (10, 255)), {}, (10, 10, 10)),
    "cmyk.jpg": (_cmyk, {}, RED),
}


@pytest.mark.parametrize("name", COLOURS)
def test_every_colour_mode_becomes_rgb(name: str) -> None:
    make, options, colour = COLOURS[name]
    pixels = decode(encode(make(), "JPEG" if name.endswith("jpg") else "PNG", **options), 8)
    assert (pixels.shape, pixels.flags.writeable) == ((8, 8, 3), True)
    assert abs(pixels.astype(int) - np.array(colour)).max() <= 3  # JPEG's rounding


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", [0, *range(1, 9), 77])
def test_orientation_is_applied(orientation: int, form: str) -> None:
    image = Image.fromarray(np.kron(noise(2, 3), np.ones((16, 16, 1), np.uint8)))
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encode(image, form, exif=exif)
    with Image.open(io.BytesIO(content)) as stored:
        plain = encode(Image.fromarray(np.array(ImageOps.exif_transpose(stored))))
    assert np.array_equal(decode(content, 24), decode(plain, 24))


def test_damaged_metadata_does_not_matter() -> None:
    image = Image.fromarray(noise(16, 16))
    damaged = encode(image, "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff broken", quality=95)
    assert np.array_equal(decode(damaged, 8), decode(encode(image, "JPEG", quality=95), 8))


def test_no_damaged_file_raises_anything_else() -> None:
    rng = np.random.default_rng(1)
    for form in ("JPEG", "PNG"):
        good = encode(Image.fromarray(noise(24, 24)), form)
        for _ in range(150):
            damaged = bytearray(good)
            for place in rng.integers(0, len(good), 8):
                damaged[place] = int(rng.integers(256))
            try:
                assert decode(bytes(damaged[: rng.integers(1, len(good) + 1)]), 8).shape == (8, 8, 3)
            except UnreadableRow as problem:
                assert str(problem).startswith("name.jpg: ")  # noqa: PT017 either way is right
                assert "\n" not in str(problem)  # noqa: PT017


@pytest.mark.parametrize("form", ["MPO", "PNG"])
def test_of_several_pictures_the_first_is_taken(form: str) -> None:
    first, second = (Image.new("RGB", (16, 16), colour) for colour in ((250, 0, 0), (0, 250, 0)))
    content = encode(first, form, save_all=True, append_images=[second])
    assert abs(decode(content, 8).astype(int) - (250, 0, 0)).max() <= 3


# --- pixels ---


@pytest.mark.parametrize(
    ("shape", "as_image"),
    [
        ((20, 30, 3), lambda pixels: pixels),
        ((3, 20, 30), lambda pixels: pixels.transpose(1, 2, 0)),
        ((20, 30), lambda pixels: np.stack([pixels] * 3, axis=-1)),
        ((3, 5, 3), lambda pixels: pixels),
        ((3, 3, 5), lambda pixels: pixels.transpose(1, 2, 0)),
    ],
)
def test_pixels_come_out_as_from_a_file(
    shape: tuple[int, ...], as_image: Callable[[NDArray[np.uint8]], NDArray[np.uint8]]
) -> None:
    pixels = RNG.integers(0, 256, shape, np.uint8)
    found = fit_pixels(pixels, 8, "row 3")
    assert np.array_equal(found, decode(encode(Image.fromarray(np.ascontiguousarray(as_image(pixels)))), 8))
    assert found.flags.writeable


@pytest.mark.parametrize("shape", [(), (5,), (4, 5, 2), (4, 5, 4), (2, 4, 5), (0, 5, 3), (4, 0), (1, 4, 5, 3)])
def test_pixels_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UnreadableRow) as caught:
        fit_pixels(np.zeros(shape, np.uint8), 8, "row 3")
    assert str(caught.value) == (f"row 3: has shape {shape}; expected (height, width, 3), (3, height, width) or gray")
