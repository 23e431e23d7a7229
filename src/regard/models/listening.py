"""Recording of models that read audio: their inputs, the text that they write, and the names of frames."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.errors import ModelError
from regard.models.passages import Passage
from regard.models.pictures import picture_of_sound
from regard.models.recording import Recording
from regard.models.senses import tokenizer_of
from regard.models.sounds import Sound, features_of, frame_names, sound_of
from regard.models.tokens import Token
from regard.models.watch import watch

__all__ = ["Hearing", "hearing_of"]


class Hearing:
    """One sound as input of a model: the arguments of the forward pass, and the names of the audio frames."""

    def __init__(self, model: Any, processor: Any, sound: Sound, arguments: dict[str, Any]) -> None:
        self.model, self.processor, self.sound, self.arguments = model, processor, sound, arguments

    def name(self, recording: Recording) -> None:
        """Name the frames by their start times, and note which of them are the sound; silence may follow."""
        heard = recording.stacks.get("encoder") or recording.stacks.get("audio")
        tokenizer = tokenizer_of(self.processor)
        if self.model.config.is_encoder_decoder and hasattr(tokenizer, "decode"):
            recording.attach(tokenizer)
        if not heard:
            return
        frames = next(iter(heard.values())).keys
        seconds = self._seconds()
        names = frame_names(frames, seconds)
        real = min(frames, max(1, round(frames * self.sound.seconds / seconds)))
        recording.token_ids["encoder"] = torch.arange(frames)[None]
        recording.note_passages("encoder", [[Passage("sound", 0, real)]])
        recording.pictures = [picture_of_sound(self.sound)]
        recording.restore_tokens([[Token(i, name, 0, 0) for i, name in enumerate(names)]], "encoder")

    def _seconds(self) -> float:
        """The total length of the frames in seconds; models of fixed length pad a short sound with
        silence."""
        extractor = _extractor(self.processor)
        most = getattr(extractor, "n_samples", None)
        return self.sound.seconds if most is None else most / self.sound.rate


def hearing_of(model: Any, processor: Any, audio: Any, said: Any) -> Hearing:
    """Prepare a sound for a model. An encoder-decoder also gets `said`, a text or token ids, or transcribes
    the sound itself."""
    extractor = _extractor(processor)
    if extractor is None or not hasattr(extractor, "sampling_rate"):
        raise ModelError(
            f"record got a sound and a {type(processor).__name__}; give the model's processor, as in "
            "record((model, processor), audio='voice.wav')."
        )
    sound = sound_of(audio, extractor)
    arguments = features_of(model, extractor, sound)
    if model.config.is_encoder_decoder:
        arguments["decoder_input_ids"] = _written(model, processor, arguments, said)
        arguments["use_cache"] = False
    elif said is not None:
        raise ModelError(f"{type(model).__name__} writes no text; leave it out.")
    return Hearing(model, processor, sound, arguments)


def _extractor(processor: Any) -> Any:
    return getattr(processor, "feature_extractor", None) or processor


def _written(model: Any, processor: Any, features: dict[str, Any], said: Any) -> Int[Tensor, "1 n"]:
    """The decoder's input: the text that was said, if given, or the model's own transcript."""
    if said is None:
        with torch.no_grad(), watch(model, layers=[0], stats=(), keep_maps=False) as heard:
            try:
                model.generate(**features)
            except Exception as error:
                raise ModelError(f"{type(model).__name__} could not write what it heard: {error}") from error
        return heard.token_ids["decoder"].to(model.device)
    ids = tokenizer_of(processor)(said)["input_ids"] if isinstance(said, str) else list(said)
    start = model.config.decoder_start_token_id
    if start is not None and ids[:1] != [start]:
        ids = [start, *ids]
    return torch.tensor([ids], device=model.device)
