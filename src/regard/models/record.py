"""`record`: a model reads a text once, and everything it attended to is kept."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.errors import ModelError
from regard.models.images import record_image
from regard.models.listening import hearing_of
from regard.models.prompt import Prompt, prompt_of
from regard.models.recording import Recording
from regard.models.senses import images_in, listed, prompt_with, tokenizer_of
from regard.models.switch import unwrapped
from regard.models.watch import ROWS, watch
from regard.stats import Statistic

__all__ = ["record"]

# A text, a chat, several of either, token ids, or what a tokenizer returned.
Given = str | Int[Tensor, "..."] | Sequence[Any] | Mapping[str, Any]


def record(
    model: Any,
    text: Given | None = None,
    *,
    images: Any = None,
    audio: Any = None,
    image_spans: Sequence[tuple[int, int]] | None = None,
    grid: tuple[int, int] | None = None,
    stats: Sequence[Statistic] = ROWS,
    layers: Sequence[int | str] | None = None,
    keep_maps: bool = True,
    store: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    max_bytes: int | None = None,
    too_long: str = "extend",
    progress: Callable[[int, int], None] | None = None,
) -> Recording:
    """Run a model on a text, images or a sound, and return the recording.

    `model` is what `load_model` or `bundled` returned, a pair of a model and its tokenizer; a model alone
    reads token ids. `text` is a text, token ids, or a chat: messages with role and content, which go through
    the tokenizer's template, and `recording.passages` says which tokens are whose. The model's turn begins
    where the chat ends, unless it spoke last.

    A list of texts, or of chats, is one batch; so is what a tokenizer returned for several, padded on either
    side. It gives one recording, in which maps and statistics have a row for each text and shorter texts end
    in padding; `recording.alone(i)` is what recording text i by itself gives.

    `images` are one or several files, PIL images or arrays, `audio` is a WAV file or samples, alone or as a
    pair with their rate; both need the model's processor in place of the tokenizer. Beside a text
    `recording.passages` says which tokens stand for each image; where they cannot be found, `image_spans`
    and `grid`, rows and columns of patches, say it. A model that writes what it hears is given what was
    said as `text`, or writes itself.

    A text longer than the model's context is read whole, with a warning, up to four times
    the context. Beyond that, and where the model has a table of positions that ends, it is read in windows:
    each piece of the context's length as if it stood alone, and the recording is still one, of the whole
    text. `too_long` is "extend" for this, "windows" for windows from the start, "truncate" for the beginning
    alone, or "refuse".

    The model runs without gradients and without a cache, and computes the logits of the last token only, so
    that memory grows with the length. With `store` each layer goes to disk while the next is computed. Ctrl-C
    then leaves a partial recording that `Recording.open` reads and `resume=True` completes. One that is
    there already is replaced only with `overwrite=True`. The other options are those of `watch`.

    >>> from regard.models import bundled
    >>> recording = record(bundled(), "The cat sat on the mat.", layers=[0, 5])
    >>> recording
    Recording(SmolLM3ForCausalLM, 2 layers, 9 tokens, 48.0 KB)
    >>> recording.tokens[2].text
    ' cat'
    """
    runner, processor = _parts(model)
    # What wraps a model has neither its config nor its arguments, and is what must be run.
    inner = unwrapped(runner)
    if not hasattr(inner, "main_input_name"):
        raise ModelError(
            f"record got a {type(inner).__name__} and does not know what it reads; call it yourself: "
            "with watch(model) as recording: model(...)."
        )
    options: dict[str, Any] = {
        "layers": layers, "stats": stats, "keep_maps": keep_maps, "store": store, "resume": resume,
        "overwrite": overwrite, "max_bytes": max_bytes, "progress": progress,
    }  # fmt: skip
    pictures = listed(images) or images_in(text)
    if text is None and pictures and audio is None:
        if len(pictures) > 1:
            raise ModelError("record got several images and no text; record them one by one.")
        return record_image((runner, processor), pictures[0], grid=grid, **options)
    if audio is not None and _listens(inner):
        hearing = hearing_of(inner, processor, audio, text)
        with torch.no_grad(), watch(runner, **options) as recording:
            runner(**hearing.arguments)
            hearing.name(recording)
        return recording
    if text is None:
        raise ModelError("record got nothing to read; give a text, a chat, token ids, images or a sound.")
    if pictures or audio is not None:
        prompt = prompt_with(
            inner, processor, text, images=pictures, audio=audio, spans=image_spans, grid=grid
        )
    else:
        prompt = prompt_of(inner, tokenizer_of(processor), text, too_long)
    with torch.no_grad():
        if prompt.window is not None:
            _check_windows(inner, runner)
        with watch(runner, **options) as recording:
            if processor is not None:
                recording.attach(tokenizer_of(processor), prompt.texts, prompt.spans)
            recording.note_passages(_reader(inner), prompt.passages)
            recording.pictures = prompt.pictures
            runner(**_arguments(inner, prompt))
    return recording


def _listens(model: Any) -> bool:
    """Whether a model is given a sound alone; others read a text with a sound in it."""
    return getattr(model, "main_input_name", "input_ids") in ("input_features", "input_values")


def _reader(model: Any) -> str:
    """Which side of a model reads the text."""
    return "encoder" if model.config.is_encoder_decoder else "decoder"


def _parts(model: Any) -> tuple[Any, Any]:
    """The model and, where it was given, its tokenizer."""
    if not isinstance(model, tuple):
        return model, None
    if len(model) != 2:
        raise ModelError(f"record got a tuple of {len(model)}; wanted a model, or a model and its tokenizer.")
    return model


def _arguments(model: Any, prompt: Prompt) -> dict[str, Any]:
    """What to call the model with: the tokens, and what spares memory where the model knows of it."""
    known = inspect.signature(model.forward).parameters
    given: dict[str, Any] = {"input_ids": prompt.ids, **prompt.beside}
    if prompt.real is not None:
        given["attention_mask"] = prompt.real.long()
        # Behind padding a text begins later than it says; what comes before padding is where it was.
        if "position_ids" in known and not bool(prompt.real[:, 0].all()):
            given["position_ids"] = prompt.positions
    given |= {name: value for name, value in (("use_cache", False), ("logits_to_keep", 1)) if name in known}
    if model.config.is_encoder_decoder:
        # The text is the encoder's; the decoder only begins.
        start = model.config.decoder_start_token_id or 0
        given["decoder_input_ids"] = prompt.ids.new_full((len(prompt.ids), 1), start)
    if prompt.window is not None:
        given["position_ids"] = prompt.positions
    return given


def _check_windows(model: Any, runner: Any) -> None:
    """See, with two windows of two tokens, whether a model keeps them apart when positions start anew."""
    refusal = (
        f"{type(model).__name__} cannot read a long text in windows: tokens of one window would attend to "
        "another. Use too_long='truncate', or record the pieces one by one."
    )
    if model.config.is_encoder_decoder or "position_ids" not in inspect.signature(model.forward).parameters:
        raise ModelError(refusal)
    probe = Prompt(torch.zeros(1, 4, dtype=torch.long, device=model.device), window=2)
    with watch(runner, stats=()) as seen:
        runner(**_arguments(model, probe))
    if any(bool(layer.map.dense()[:, :, 2:, :2].any()) for layer in seen.all_layers):
        raise ModelError(refusal)
