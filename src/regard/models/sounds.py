"""Reads sounds: samples from a WAV file or an array, features from the processor."""

from __future__ import annotations

import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ModelError

__all__ = ["Sound", "features_of", "sound_of"]


class Sound(NamedTuple):
    """Samples of one channel, from -1 to 1, and their rate per second."""

    samples: Float[Tensor, " n"]
    rate: int

    @property
    def seconds(self) -> float:
        """The length in seconds.

        >>> Sound(torch.zeros(8000), 16000).seconds
        0.5
        """
        return len(self.samples) / self.rate


def sound_of(given: Any, extractor: Any) -> Sound:
    """Read a WAV file, samples at the processor's rate, or a pair of samples and their rate."""
    wanted = getattr(extractor, "sampling_rate", None)
    if isinstance(given, str | Path):
        sound, name = _read(Path(given)), str(given)
    else:
        samples, rate = given if isinstance(given, tuple) and len(given) == 2 else (given, wanted)
        if rate is None:
            raise ModelError(
                f"{type(extractor).__name__} does not say at which rate it listens; give samples with "
                "their rate, audio=(samples, rate)."
            )
        sound, name = Sound(_mono(samples), int(rate)), "the sound"
    if wanted is not None and sound.rate != wanted:
        raise ModelError(
            f"{name} has {sound.rate:,} samples a second, and the model listens at {wanted:,}. Convert it "
            f"first, for example with: ffmpeg -i IN -ar {wanted} -ac 1 OUT.wav"
        )
    most = getattr(extractor, "n_samples", None)
    if most is not None and len(sound.samples) > most:
        raise ModelError(
            f"{name} is {sound.seconds:.1f} s long, and the model listens to {most / sound.rate:g} s at "
            "once. Record it in pieces."
        )
    if not len(sound.samples):
        raise ModelError(f"{name} holds no samples.")
    return sound


def features_of(model: Any, extractor: Any, sound: Sound) -> dict[str, Any]:
    """The input features of a sound, by argument name, on the model's device and in its dtype."""
    made = extractor(sound.samples.numpy(), sampling_rate=sound.rate, return_tensors="pt")
    name = getattr(model, "main_input_name", "input_features")
    if name not in made:
        raise ModelError(
            f"{type(model).__name__} takes {name}, and {type(extractor).__name__} makes "
            f"{', '.join(made)}. Use the processor that belongs to the model."
        )
    return {name: made[name].to(model.device, model.dtype)}


def _mono(samples: Any) -> Float[Tensor, " n"]:
    found = torch.as_tensor(samples)
    if not found.is_floating_point() or found.ndim != 1:
        raise ModelError(
            f"the sound is {found.dtype} of shape {tuple(found.shape)}; wanted floats from -1 to 1, (n,), of "
            "one channel."
        )
    return found.float()


def _read(path: Path) -> Sound:
    try:
        with wave.open(str(path), "rb") as file:
            channels, width, rate, frames = file.getparams()[:4]
            raw = bytearray(file.readframes(frames))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from None
    except (wave.Error, EOFError) as error:
        raise ModelError(f"{path} is not a WAV file of whole numbers: {error or 'it ends early'}.") from None
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
    if width not in kinds:
        raise ModelError(f"{path} has samples of {8 * width} bits; wanted 8, 16 or 32. Convert it first.")
    if not raw:
        raise ModelError(f"{path} holds no samples.")
    numbers = torch.frombuffer(raw, dtype=kinds[width]).double()
    # 8-bit samples are unsigned, with 128 for silence.
    numbers = (numbers - 128) / 128 if width == 1 else numbers / 2 ** (8 * width - 1)
    return Sound(_channels(numbers, channels), rate)


def _channels(numbers: Tensor, channels: int) -> Tensor:
    """The mean of the channels."""
    return numbers.view(-1, channels).mean(1).float()


def frame_names(count: int, seconds: float) -> Sequence[str]:
    """The start time of each audio frame, as names.

    >>> list(frame_names(2, 0.5))
    ['0.00 s', '0.25 s']
    """
    return [f"{place * seconds / count:.2f} s" for place in range(count)]
