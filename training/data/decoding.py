"""Any JPEG or PNG becomes a square RGB image of the set size; what cannot be decoded says why."""

from __future__ import annotations

import io
import warnings

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from training.data.sources import UnreadableRow

# Whatever a file calls itself, no other decoder is let near it (Pillow would start Ghostscript for an EPS). JPEG takes
# in MPO, a JPEG with further pictures after the first, which some cameras write into .jpg files.
_FORMATS = ("JPEG", "PNG")
_ORIENTATION_TAG = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# Transparent images are shown on white nearly everywhere, and dark drawings would vanish on black.
_BACKGROUND = (255, 255, 255, 255)
_DRAFT_FACTOR = 2  # twice the size: what is resized by half or more shows no trace of how it was decoded
_MAX_REASON_CHARACTERS = 200


def decode_image(content: bytes, image_size: int, name: str) -> NDArray[np.uint8]:
    """Decode a JPEG or PNG as uint8 RGB of shape (image_size, image_size, 3), a new writable array.

    Orientation is applied, palette, gray and CMYK converted, 16-bit gray scaled to 8 bits, transparency laid over
    white, of several pictures the first taken; then the shorter side is resized to `image_size` (bilinear,
    antialiased) and the centre cut out, as torchvision's Resize and CenterCrop do. A JPEG at least four times as large
    is decoded at a half, quarter or eighth of its size, never below twice `image_size`, which may shift it by half a
    pixel. Raises UnreadableRow, with `name`, for what is empty, cut short, something else, or larger than Pillow's
    limit for decompression bombs (179 megapixels).
    """
    try:
        if not content:
            raise ValueError("empty file")
        # What Pillow warns of (size, corrupt metadata) is either an error below or does not touch the pixels.
        with (
            warnings.catch_warnings(action="ignore"),
            Image.open(io.BytesIO(content), formats=_FORMATS) as image,
        ):
            # The decoder of JPEG scales by itself while it decodes; a photo of 12 megapixels then takes a third.
            image.draft(None, (_DRAFT_FACTOR * image_size, _DRAFT_FACTOR * image_size))
            image.load()
            return np.array(_resize_and_crop(_to_rgb(_upright(image)), image_size))
    except UnidentifiedImageError as error:
        raise UnreadableRow(name, "not a JPEG or PNG image") from error
    except MemoryError:
        raise  # the host's trouble, not the file's
    except Exception as error:  # decoders raise anything from struct.error to IndexError on damaged files
        raise UnreadableRow(name, one_line(error)) from error


def fit_pixels(pixels: NDArray[np.uint8], image_size: int, name: str) -> NDArray[np.uint8]:
    """Bring an image that is pixels already to uint8 RGB of shape (image_size, image_size, 3), as `decode_image` does.

    `pixels` is uint8 of shape (height, width) for gray, (height, width, 3) or (3, height, width); an image that fits
    both of the last is taken as the former. Raises UnreadableRow, with `name`, for any other shape.
    """
    shape = pixels.shape
    if pixels.ndim == 3 and shape[0] == 3 and shape[2] != 3:
        pixels = pixels.transpose(1, 2, 0)
    if not pixels.size or (pixels.ndim != 2 and (pixels.ndim != 3 or pixels.shape[2] != 3)):
        raise UnreadableRow(name, f"has shape {shape}; expected (height, width, 3), (3, height, width) or gray")
    image = Image.fromarray(np.ascontiguousarray(pixels))
    return np.array(_resize_and_crop(image.convert("RGB"), image_size))


def _upright(image: Image.Image) -> Image.Image:
    try:
        orientation = image.getexif().get(_ORIENTATION_TAG)
    except Exception:  # noqa: BLE001 damaged metadata raises anything, and the pixels are still good
        return image
    turn = _TURNS.get(orientation) if isinstance(orientation, int) else None
    return image if turn is None else image.transpose(turn)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and not image.has_transparency_data:
        return image
    if image.mode.startswith("I"):  # 16-bit gray; Pillow's own conversion would clip instead of scale
        values = np.asarray(image).astype(np.int64).clip(0, 65535)
        gray = ((values * 255 + 32767) // 65535).astype(np.uint8)
        gray[values == image.info.get("transparency")] = _BACKGROUND[0]
        return Image.fromarray(gray).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, _BACKGROUND), image)
    return image.convert("RGB")


def _resize_and_crop(image: Image.Image, size: int) -> Image.Image:
    """Do both in one pass, so that a picture of 1 x 20,000 pixels never becomes one of 224 x 4,480,000."""
    width, height = image.size
    shorter = min(width, height)
    new_width, new_height = size * width // shorter, size * height // shorter
    left, top = round((new_width - size) / 2), round((new_height - size) / 2)
    scale_x, scale_y = width / new_width, height / new_height
    # Rounding may carry the far edge a hair beyond the image, which Pillow refuses.
    right, bottom = min((left + size) * scale_x, width), min((top + size) * scale_y, height)
    return image.resize((size, size), Image.Resampling.BILINEAR, box=(left * scale_x, top * scale_y, right, bottom))


def one_line(error: Exception) -> str:
    """Return what an exception says, or its kind where it says nothing, without line breaks and cut short."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join((text or type(error).__name__).split())[:_MAX_REASON_CHARACTERS]
