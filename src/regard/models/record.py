"""`record`: run a model on a text, and return a recording of its attention."""

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

# A text, a chat, a list of either, token ids, or the output of a tokenizer.
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
    keys: str | None = None,
    queries: str | None = None,
    max_bytes: int | None = None,
    too_long: str = "extend",
    progress: Callable[[int, int], None] | None = None,
) -> Recording:
    """Run a model on a text, images or a sound, and return the recording.

    `model` is a pair of a model and its tokenizer, as `load_model` and `bundled` return it, or a model alone,
    which then reads token ids. `text` is a text, token ids, or a chat: messages with role and content,
    rendered with the tokenizer's template; `recording.passages` gives the tokens of each message. Unless the
    model spoke last, the rendered chat ends where its turn begins.

    A list of texts or chats is one batch, and so is a tokenizer's output for several texts, padded on either
    side. The result is one recording whose maps and statistics have a row for each text; `recording.alone(i)`
    equals a recording of text i by itself.

    `images` are one or several files, PIL images or arrays; `audio` is a WAV file, samples, or a pair of
    samples and their rate. Both need the model's processor in place of the tokenizer. With a text,
    `recording.passages` gives the tokens of each image; if they cannot be found, pass `image_spans`, and
    `grid` for the rows and columns of patches. A speech model takes the transcript as `text`, or writes its
    own.

    By default, `too_long="extend"`, a text longer than the model's context is read whole, with a warning, up
    to four times the context. Beyond that, and if the model has a position table that ends, the text is read
    in windows: pieces of the context's length, each as if it were a text of its own, in one recording.
    "windows" uses windows from the start, "truncate" reads only the beginning, "refuse" raises ModelError.

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
    # Run the wrapper, if there is one, but read config and arguments from the model inside.
    inner = unwrapped(runner)
    if not hasattr(inner, "main_input_name"):
        raise ModelError(
            f"record got a {type(inner).__name__} and does not know what it reads; call it yourself: "
            "with watch(model) as recording: model(...)."
        )
    options: dict[str, Any] = {
        "layers": layers, "stats": stats, "keep_maps": keep_maps, "store": store, "resume": resume,
        "overwrite": overwrite, "keys": keys, "queries": queries, "max_bytes": max_bytes,
        "progress": progress,
    }  # fmt: skip
    pictures = listed(images) or images_in(text)
    if text is None and pictures and audio is None:
        if len(pictures) > 1:
            raise ModelError("record got several images and no text; record them one by one.")
        return record_image((runner, processor), pictures[0], grid=grid, **options)
    if audio is not None and _listens(inner):
        return _record_speech(runner, inner, processor, audio, text, options)
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


def _record_speech(
    runner: Any, inner: Any, processor: Any, audio: Any, text: Any, options: dict[str, Any]
) -> Recording:
    hearing = hearing_of(inner, processor, audio, text)
    with torch.no_grad(), watch(runner, **options) as recording:
        runner(**hearing.arguments)
        hearing.name(recording)
    return recording


def _listens(model: Any) -> bool:
    """Whether a model takes only a sound; others take a text with a sound in it."""
    return getattr(model, "main_input_name", "input_ids") in ("input_features", "input_values")


def _reader(model: Any) -> str:
    """The side of a model that reads the text: "encoder" or "decoder"."""
    return "encoder" if model.config.is_encoder_decoder else "decoder"


def _parts(model: Any) -> tuple[Any, Any]:
    """The model and its tokenizer, if given."""
    if not isinstance(model, tuple):
        return model, None
    if len(model) != 2:
        raise ModelError(f"record got a tuple of {len(model)}; wanted a model, or a model and its tokenizer.")
    return model


def _arguments(model: Any, prompt: Prompt) -> dict[str, Any]:
    """The arguments of the forward pass: the tokens, and options that save memory if the model has them."""
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
    """Test with two windows of two tokens whether a model keeps windows apart when positions restart."""
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
