"""What a model saw or heard as small pictures: an image as it was prepared, the spectrogram of a sound."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional

from regard.models.sounds import Sound

__all__ = ["Picture", "picture_of_sound", "pictures_of"]

# The longer side of a picture that is kept: enough for a screen, and at most a few hundred kilobytes.
LONGEST = 512
# Samples under one column of a spectrogram: 25 ms of a sound for models, which is sampled at 16 kHz.
STRETCH = 400
# Below this share of its loudest point a spectrogram is black: 80 dB.
QUIET = 1e-4


class Picture(NamedTuple):
    """A PNG of what a model saw, or the spectrogram of what it heard, named like its passage.

    An image is cut into `rows` × `columns` patches by the vision part; both are 0 for a sound, and where the
    patches do not lie on a grid.
    """

    name: str
    png: bytes
    rows: int = 0
    columns: int = 0


def pictures_of(
    pixels: Any,
    processor: Any,
    given: Sequence[Any],
    patch: int | tuple[int, int] | None = None,
) -> list[Picture]:
    """What was seen, one picture for each image.

    Pixel values are turned back into colours with the processor's mean and deviation, so that a picture shows
    just what was left of it after resizing and cropping. Where the processor has cut it up already, the
    picture is the one that was `given`.
    """
    names = [f"image {number}" for number in range(1, len(given) + 1)]
    if isinstance(pixels, Tensor) and pixels.ndim == 4 and pixels.shape[1] == 3 and len(pixels) == len(given):
        high, wide = (patch, patch) if isinstance(patch, int) else tuple(patch or (0, 0))[-2:]
        grid = (pixels.shape[2] // high, pixels.shape[3] // wide) if high and wide else (0, 0)
        seen = _colours(pixels.float().cpu(), processor)
        return [Picture(name, _png(_bytes(one)), *grid) for name, one in zip(names, seen, strict=True)]
    arrays = [_array(image) for image in given]
    return [
        Picture(name, _png(_bytes(one))) for name, one in zip(names, arrays, strict=True) if one is not None
    ]


def picture_of_sound(sound: Sound, name: str = "sound") -> Picture:
    """The loudness of each frequency over time; low ones at the bottom."""
    hop = max(STRETCH // 4, -(-len(sound.samples) // LONGEST))
    samples = functional.pad(sound.samples.float().cpu(), (0, max(0, STRETCH - len(sound.samples))))
    bins = torch.stft(samples, STRETCH, hop, window=torch.hann_window(STRETCH), return_complex=True).abs()
    loud = (bins / bins.max().clamp(min=1e-12)).clamp(min=QUIET).log10() / 4 + 1
    return Picture(name, _png((loud.flip(0) * 255).round().byte()[..., None].numpy()))


def _colours(pixels: Float[Tensor, "n 3 high wide"], processor: Any) -> Float[Tensor, "n 3 high wide"]:
    """Pixel values as colours from 0 to 1."""
    maker = getattr(processor, "image_processor", None) or processor
    mean, deviation = (getattr(maker, name, None) for name in ("image_mean", "image_std"))
    if mean is not None and deviation is not None and getattr(maker, "do_normalize", True):
        mean, deviation = (torch.as_tensor(list(of)).view(1, -1, 1, 1).float() for of in (mean, deviation))
        return (pixels * deviation + mean).clamp(0, 1)
    low, high = pixels.amin(), pixels.amax()
    return (pixels - low) / (high - low).clamp(min=1e-12)


def _array(image: Any) -> Float[Tensor, "3 high wide"] | None:
    """A PIL image, or an array of height × width × 3 bytes, as colours from 0 to 1; None otherwise."""
    if hasattr(image, "convert"):
        image = image.convert("RGB")
    found = np.asarray(image) if not isinstance(image, Tensor) else image.cpu().numpy()
    if found.ndim != 3 or found.shape[2] != 3 or found.dtype != np.uint8:
        return None
    return torch.from_numpy(found.copy()).permute(2, 0, 1).float() / 255


def _bytes(colours: Float[Tensor, "3 high wide"]) -> UInt8[np.ndarray, "high wide 3"]:
    """Small enough to be kept."""
    high, wide = colours.shape[1:]
    shrink = min(1.0, LONGEST / max(high, wide))
    if shrink < 1:
        size = max(1, round(high * shrink)), max(1, round(wide * shrink))
        colours = functional.interpolate(colours[None], size, mode="bilinear", antialias=True)[0]
    return (colours.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).contiguous().numpy()


def _png(pixels: UInt8[np.ndarray, "high wide channels"]) -> bytes:
    """A PNG of grey or coloured pixels. Pillow is not needed, and not there where only sounds are read."""
    high, wide, channels = pixels.shape
    # Each row begins with how it is filtered: by nothing.
    rows = np.concatenate([np.zeros((high, 1), np.uint8), pixels.reshape(high, -1)], 1)
    header = struct.pack(">IIBBBBB", wide, high, 8, 0 if channels == 1 else 2, 0, 0, 0)
    parts = (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
