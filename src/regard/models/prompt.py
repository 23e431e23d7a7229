"""The input of a model: token ids and their positions in the text."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.errors import ModelError
from regard.models.passages import Passage, chat_passages, is_chat
from regard.models.pictures import Picture
from regard.models.text import chat_text, fit
from regard.models.tokens import Token

__all__ = ["Prompt", "Read", "prompt_of", "written_chat"]

# Inputs that models take instead of token ids, and words for them in messages.
SENSES = {"pixel_values": "images", "input_features": "sounds", "input_values": "sounds"}


@dataclass(frozen=True)
class Read:
    """One text as token ids, with its characters and passages, if known."""

    ids: Sequence[int]
    text: str | None = None
    spans: Sequence[tuple[int, int]] = ()
    passages: Sequence[Passage] = ()


@dataclass(frozen=True)
class Prompt:
    """Token ids on the model's device; `window` is the length of the pieces in which they are read, if any.

    `real` says which tokens of a batch are not padding. `beside` are further arguments of the model: the
    pixels of an image, the features of a sound; `pictures` are the images that these show.
    """

    ids: Int[Tensor, "batch n"]
    texts: Sequence[str] | None = None
    spans: Sequence[Sequence[tuple[int, int]]] | None = None
    window: int | None = None
    real: Bool[Tensor, "batch n"] | None = None
    passages: list[Sequence[Passage]] = field(default_factory=list[Sequence[Passage]])
    beside: dict[str, Any] = field(default_factory=dict[str, Any])
    pictures: list[Picture] = field(default_factory=list[Picture])

    @property
    def positions(self) -> Int[Tensor, "batch n"]:
        """The position of each token in its text or its window."""
        if self.real is not None:
            return (self.real.long().cumsum(-1) - 1).clamp(min=0)
        places = torch.arange(self.ids.shape[1], device=self.ids.device)
        return (places if self.window is None else places % self.window).expand_as(self.ids)


def prompt_of(model: Any, tokenizer: Any, given: Any, too_long: str) -> Prompt:
    """Tokenize a text, several texts or a chat, or take token ids; shorten the result as `too_long` says."""
    _check_reads_text(model)
    if isinstance(given, Mapping):
        prompt = _as_tokenized(model, given)
    elif _is_texts(given):
        texts = [given] if isinstance(given, str) or is_chat(given) else given
        if tokenizer is None:
            raise ModelError(
                "record got a text and a model without its tokenizer. "
                "Give both, record((model, tokenizer), text), or give token ids."
            )
        prompt = _side_by_side([_read(tokenizer, text) for text in texts], tokenizer)
    elif isinstance(given, Sequence) and not given:
        raise ModelError("the text has no tokens; give at least one word.")
    else:
        prompt = Prompt(_checked(model, given))
    return _placed(model, prompt, too_long)


def _placed(model: Any, prompt: Prompt, too_long: str) -> Prompt:
    """Move the prompt to the model's device, and shorten it as `too_long` says."""
    pieces = fit(model, prompt.ids, too_long)
    if len(pieces) > 1 and prompt.real is not None:
        if too_long != "truncate":
            raise ModelError(
                "texts of a batch are not read in windows, because shorter ones would end in padding. Record "
                "them one by one, or use too_long='truncate'."
            )
        prompt = replace(prompt, real=prompt.real[:, : pieces[0].shape[1]])
    if too_long == "truncate" and len(pieces) > 1:
        prompt, pieces = _truncated(prompt, pieces[0]), pieces[:1]
    window = pieces[0].shape[1] if len(pieces) > 1 else None
    real = None if prompt.real is None else prompt.real.to(model.device)
    return replace(prompt, ids=prompt.ids.to(model.device), real=real, window=window)


def _truncated(prompt: Prompt, ids: Int[Tensor, "batch n"]) -> Prompt:
    n = ids.shape[1]
    passages = [[p._replace(stop=min(p.stop, n)) for p in row if p.start < n] for row in prompt.passages]
    prompt = replace(prompt, ids=ids, passages=passages)
    if prompt.texts is None or prompt.spans is None:
        return prompt
    spans = [row[:n] for row in prompt.spans]
    ends = [max(stop for _, stop in row) for row in spans]
    texts = [text[:end] for text, end in zip(prompt.texts, ends, strict=True)]
    return replace(prompt, texts=texts, spans=spans)


def _is_texts(given: Any) -> bool:
    """Whether the value is a text, a chat, or a list of them."""
    if isinstance(given, str) or is_chat(given):
        return True
    if isinstance(given, Tensor) or not isinstance(given, Sequence) or not given:
        return False
    known = [isinstance(each, str) or is_chat(each) for each in given]
    if any(known) and not all(known):
        odd = given[known.index(False)]
        raise ModelError(f"record got a list of texts with {odd!r} in it; wanted texts or chats only.")
    return all(known)


def _read(tokenizer: Any, given: str | Sequence[Mapping[str, Any]]) -> Read:
    """The tokens of a text or a chat; for a chat also the passages of its messages."""
    chat = None if isinstance(given, str) else given
    # A byte order mark is what some files begin with, also when they were read elsewhere.
    text = given.removeprefix("\ufeff") if isinstance(given, str) else written_chat(tokenizer, given)
    fast = bool(getattr(tokenizer, "is_fast", False))
    # What a template writes holds the special tokens already.
    options = {"return_offsets_mapping": fast, "add_special_tokens": chat is None, "verbose": False}
    found = tokenizer(text, **options)
    if not fast:
        # A tokenizer that cannot say where its tokens stand gives tokens with a text of their own.
        return Read(found["input_ids"])
    ids, spans = found["input_ids"], [tuple(span) for span in found["offset_mapping"]]
    tokens = [Token(i, text[a:b], a, b) for i, (a, b) in zip(ids, spans, strict=True)]
    said = [] if chat is None else chat_passages(chat, lambda some: written_chat(tokenizer, some), tokens)
    return Read(ids, text, spans, said)


def written_chat(tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> str:
    """A chat as one text; unless the last message is the model's, the text ends where its turn begins."""
    return chat_text(tokenizer, messages, answer=messages[-1]["role"] != "assistant")


def _side_by_side(reads: Sequence[Read], tokenizer: Any) -> Prompt:
    """Texts as rows of one batch, padded at the end, so that every token keeps its position."""
    n = max(len(read.ids) for read in reads)
    if n and not all(read.ids for read in reads):
        raise ModelError("one of the texts has no tokens; give at least one word in each.")
    fill = getattr(tokenizer, "pad_token_id", None) or 0
    ids = torch.tensor([[*read.ids, *[fill] * (n - len(read.ids))] for read in reads], dtype=torch.long)
    lengths = torch.tensor([len(read.ids) for read in reads])
    real = None if bool((lengths == n).all()) else torch.arange(n) < lengths[:, None]
    texts = [read.text for read in reads if read.text is not None]
    if len(texts) < len(reads):
        return Prompt(ids, real=real)
    # The span of a padding token is empty, at the end of the text.
    rows = zip(texts, (read.spans for read in reads), strict=True)
    spans = [[*found, *[(len(text), len(text))] * (n - len(found))] for text, found in rows]
    return Prompt(ids, texts, spans, real=real, passages=[read.passages for read in reads])


def _as_tokenized(model: Any, given: Mapping[str, Any]) -> Prompt:
    """Take a tokenizer's output: ids and, for a batch, the attention mask; padding may be on either side."""
    if "input_ids" not in given:
        raise ModelError(f"record got {', '.join(map(str, given)) or 'nothing'}; wanted input_ids.")
    ids = _checked(model, given["input_ids"])
    if given.get("attention_mask") is None:
        return Prompt(ids)
    real = torch.as_tensor(given["attention_mask"]).view(-1, ids.shape[1]).bool()
    if real.shape != ids.shape or not bool(real.any(1).all()):
        raise ModelError(
            f"attention_mask has shape {tuple(real.shape)} and marks {int(real.any(1).sum())} of "
            f"{len(ids)} texts; wanted {tuple(ids.shape)} with at least one token of each text."
        )
    return Prompt(ids, real=None if bool(real.all()) else real)


def _check_reads_text(model: Any) -> None:
    """Raise ModelError if the model doesn't read plain text, instead of a traceback from transformers."""
    known = inspect.signature(model.forward).parameters
    sense = SENSES.get(getattr(model, "main_input_name", "input_ids"))
    name = type(model).__name__
    if sense is not None and "input_ids" not in known:
        way = "audio='voice.wav'" if sense == "sounds" else "images='cat.png'"
        raise ModelError(
            f"{name} takes {sense}, and record got a text. Give what it takes, with its processor: "
            f"record((model, processor), {way})."
        )
    config = model.config
    image_token = getattr(config, "image_token_id", None) or getattr(config, "image_token_index", None)
    if "pixel_values" in known and image_token is None and not model.can_generate():
        raise ModelError(
            f"{name} reads a text beside an image, and record got the text alone. Give both, with the "
            "processor: record((model, processor), text, images='cat.png')."
        )


def _checked(model: Any, given: Any) -> Int[Tensor, "batch n"]:
    try:
        ids = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        raise ModelError(
            f"record got a {type(given).__name__} that holds neither texts nor token ids; wanted a text, a "
            "list of texts, a chat, or whole numbers (n,) or (batch, n)."
        ) from None
    if ids.is_floating_point() or ids.dtype == torch.bool or ids.ndim not in (1, 2):
        raise ModelError(
            f"record got tokens of type {ids.dtype} and shape {tuple(ids.shape)}; wanted whole numbers, "
            "(n,) or (batch, n)."
        )
    ids = ids.view(-1, ids.shape[-1]).long()
    size = model.get_input_embeddings().num_embeddings
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < size:
        raise ModelError(
            f"record got token ids from {int(ids.min())} to {int(ids.max())}; the model knows 0 to "
            f"{size - 1}. Use the tokenizer that belongs to the model."
        )
    return ids
