"""Prepares texts with images and sounds by the model's processor, and finds the tokens of each image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.errors import ModelError
from regard.models.images import picture_of
from regard.models.passages import Passage, chat_passages, is_chat
from regard.models.pictures import Picture, picture_of_sound, pictures_of
from regard.models.prompt import Prompt, written_chat
from regard.models.sounds import sound_of
from regard.models.text import chat_text
from regard.models.tokens import Token

__all__ = ["images_in", "listed", "prompt_with", "tokenizer_of"]

Span = tuple[int, int]


def tokenizer_of(processor: Any) -> Any:
    """The tokenizer of a processor; the argument itself if it has none."""
    return getattr(processor, "tokenizer", None) or processor


def listed(given: Any) -> list[Any]:
    """Return one or several images as a list."""
    if given is None:
        return []
    return list(given) if isinstance(given, list) else [given]


def images_in(messages: Any) -> list[Any]:
    """The images in a chat's messages: files, PIL images or arrays."""
    found: list[Any] = []
    for message in messages if is_chat(messages) else ():
        for part in message["content"] if not isinstance(message["content"], str) else ():
            if isinstance(part, Mapping) and part.get("type") == "image":
                found += [part[key] for key in ("image", "path") if key in part][:1]
    return found


def prompt_with(
    model: Any,
    processor: Any,
    text: Any,
    *,
    images: Sequence[Any] = (),
    audio: Any = None,
    spans: Sequence[Span] | None = None,
    grid: tuple[int, int] | None = None,
) -> Prompt:
    """Prepare a text or a chat with images, or with a sound, by the processor.

    If the text has no placeholders, images are put in front of it. `spans` gives the tokens of the images, if
    the config has no image token; `grid` gives the rows and columns of each image.
    """
    tokenizer = tokenizer_of(processor)
    if tokenizer is processor or tokenizer is None:
        raise ModelError(
            f"record got {'images' if images else 'a sound'} and a {type(processor).__name__}, which "
            "prepares text alone. Give the model's processor: AutoProcessor.from_pretrained(...)."
        )
    if not isinstance(text, str) and not is_chat(text):
        raise ModelError("record got images beside several texts or token ids; wanted one text, or a chat.")
    given: dict[str, Any] = {"text": [_written(processor, text, len(images), audio is not None)]}
    if images:
        given["images"] = [picture_of(image) for image in images]
    pictures: list[Picture] = []
    sound = None if audio is None else sound_of(audio, processor.feature_extractor)
    if sound is not None:
        given |= {"audio": [sound.samples.numpy()], "sampling_rate": sound.rate}
    try:
        made = processor(**given, return_tensors="pt")
    except Exception as error:  # processors may raise any exception
        raise ModelError(f"{type(processor).__name__} refuses this: {error}") from error
    ids = made.pop("input_ids")
    made.pop("labels", None)  # what training wants; logits of the last token cannot be compared with them
    beside = {name: _moved(value, model) for name, value in made.items() if name != "offset_mapping"}
    found = _chat(processor, text, ids, _image_token(model))
    if images:
        found += _image_passages(model, processor, ids, made, len(images), spans, grid)
        patch = getattr(getattr(model.config, "vision_config", None), "patch_size", None)
        pictures += pictures_of(made.get("pixel_values"), processor, given["images"], patch)
    if sound is not None:
        found += _runs(ids, getattr(model.config, "audio_token_id", None), "sound")
        pictures.append(picture_of_sound(sound, "sound 1"))
    found.sort(key=lambda each: each.start)
    return Prompt(ids.to(model.device), passages=[found], beside=beside, pictures=pictures)


def _written(processor: Any, text: Any, images: int, sound: bool) -> str:
    """The text with a placeholder for each image and sound."""
    if is_chat(text):
        return written_chat(processor, text)
    places = [("image_token", "image", images), ("audio_token", "audio", int(sound))]
    missing: list[tuple[Any, str]] = []
    for attribute, kind, count in places:
        token = getattr(processor, attribute, None)
        has = 0 if token is None else text.count(str(token))
        missing += [(token, kind)] * max(0, count - has)
    if not missing:
        return text
    if getattr(processor, "chat_template", None):
        parts = [*({"type": kind} for _, kind in missing), {"type": "text", "text": text}]
        return chat_text(processor, [{"role": "user", "content": parts}])
    return "".join(f"{token}\n" for token, _ in missing if token is not None) + text


def _moved(value: Any, model: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.to(model.device, model.dtype) if value.is_floating_point() else value.to(model.device)


def _chat(processor: Any, text: Any, ids: Int[Tensor, "1 n"], image: int | None) -> list[Passage]:
    """The passages of a chat: found in the rendered text, where each image is one token, then shifted."""
    if not is_chat(text):
        return []
    tokenizer = tokenizer_of(processor)
    if not getattr(tokenizer, "is_fast", False):
        return []
    found = tokenizer(written_chat(processor, text), return_offsets_mapping=True, add_special_tokens=False)
    places = _places(found["input_ids"], ids[0].tolist(), image)
    if places is None:
        return []
    tokens = [
        Token(i, "", *span) for i, span in zip(found["input_ids"], found["offset_mapping"], strict=True)
    ]
    said = chat_passages(text, lambda some: written_chat(processor, some), tokens)
    return [each._replace(start=places[each.start], stop=places[each.stop - 1] + 1) for each in said]


def _places(written: Sequence[int], read: Sequence[int], image: int | None) -> list[int] | None:
    """The index of each rendered token among the ids that the model reads; None if they differ in more than
    repeated image tokens.

    >>> _places([5, 9, 6], [1, 5, 9, 9, 9, 6], image=9)
    [1, 4, 5]
    """
    found: list[int] = []
    at = 0
    for number, token in enumerate(written):
        if (
            token != image
            and number
            and written[number - 1] != image
            and found
            and read[at : at + 1] != [token]
        ):
            return None
        while at < len(read) and (read[at] != token or (token == image and read[at : at + 2] == [image] * 2)):
            at += 1
        if at == len(read):
            return None
        found.append(at)
        at += 1
    return found


def _runs(ids: Int[Tensor, "1 n"], token: int | None, name: str) -> list[Passage]:
    """The runs of one repeated token, as passages."""
    if token is None:
        return []
    there = (ids[0] == token).long()
    edges = torch.nn.functional.pad(there, (1, 1)).diff()
    pairs = zip(*((edges == side).nonzero().flatten().tolist() for side in (1, -1)), strict=True)
    return [Passage(f"{name} {number}", *pair) for number, pair in enumerate(pairs, 1)]


def _image_passages(
    model: Any,
    processor: Any,
    ids: Int[Tensor, "1 n"],
    made: Mapping[str, Any],
    count: int,
    spans: Sequence[Span] | None,
    grid: tuple[int, int] | None,
) -> list[Passage]:
    if spans is None:
        found = _split(_runs(ids, _image_token(model), "image"), count)
    else:
        found = [Passage(f"image {number}", *span) for number, span in enumerate(spans, 1)]
    if not found and not model.can_generate():
        # The model compares texts with images; the text has no image tokens.
        return []
    n = ids.shape[1]
    if not found or any(not 0 <= p.start < p.stop <= n for p in found):
        where = "has no token for images" if not found else f"has {n} tokens, and image_spans reach outside"
        raise ModelError(
            f"the text that {type(processor).__name__} made {where}. Say which tokens stand for the images: "
            "image_spans=[(start, stop), ...]."
        )
    if grid is None:
        grids = _grids(model, processor, made, found, count)
        return [passage._replace(rows=h, columns=w) for passage, (h, w) in zip(found, grids, strict=True)]
    for passage in found:
        if grid[0] * grid[1] != len(passage.tokens):
            raise ModelError(
                f"{grid[0]} x {grid[1]} patches do not fit {passage.name}, which has {len(passage.tokens)} "
                "tokens."
            )
    return [passage._replace(rows=grid[0], columns=grid[1]) for passage in found]


def _image_token(model: Any) -> int | None:
    """The token id that represents a part of an image."""
    named = (getattr(model.config, name, None) for name in ("image_token_id", "image_token_index"))
    return next((token for token in named if isinstance(token, int)), None)


def _split(runs: list[Passage], count: int) -> list[Passage]:
    """One passage per image; runs of adjacent images are split evenly."""
    if len(runs) == 1 < count and len(runs[0].tokens) % count == 0:
        size = len(runs[0].tokens) // count
        starts = [runs[0].start + size * number for number in range(count)]
        return [Passage(f"image {number}", start, start + size) for number, start in enumerate(starts, 1)]
    if len(runs) != count:
        # Some models cut an image into several crops, each with tokens of its own.
        return [run._replace(name=f"image part {number}") for number, run in enumerate(runs, 1)]
    return runs


def _grids(
    model: Any, processor: Any, made: Mapping[str, Any], found: Sequence[Passage], count: int
) -> list[tuple[int, int]]:
    """The rows and columns of each image's token grid: from the processor, else a square; (0, 0) if neither
    fits."""
    sizes = made.get("image_grid_thw")
    if sizes is not None and len(sizes) == len(found) == count:
        vision = getattr(model.config, "vision_config", None)
        merge = getattr(getattr(processor, "image_processor", None), "merge_size", None)
        merge = int(merge or getattr(vision, "spatial_merge_size", 1))
        given = [(t * h // merge, w // merge) for t, h, w in sizes.tolist()]
    else:
        given = [(isqrt(len(p.tokens)), isqrt(len(p.tokens))) for p in found]
    fitting = zip(given, found, strict=True)
    return [one if one[0] * one[1] == len(passage.tokens) else (0, 0) for one, passage in fitting]
