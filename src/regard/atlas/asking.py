"""The input and the output of a model that are compared before and after a cut."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.atlas.anatomy import Anatomy
from regard.atlas.reading import Tokens, ids_of, place_of, read
from regard.errors import ModelError
from regard.models.switch import check_model

__all__ = ["Answer", "Question", "question_of"]

# Tokenizer outputs about padding and lengths, which a single text doesn't need.
IGNORED = ("attention_mask", "length", "special_tokens_mask", "offset_mapping")
# The argument names of images and sounds.
OTHERS = ("pixel_values", "input_features", "input_values")


@dataclass(frozen=True)
class Answer:
    """A model's output at one position: logits of tokens or classes; for models without a head, a state.

    `at` is the position; None if the output is about the whole input. `loss` is in nats per token over the
    whole text.
    """

    kind: str
    at: int | None
    tokens: int
    values: Float[Tensor, " size"]
    loss: float | None = None


@dataclass(frozen=True)
class Question:
    """The input of a model. `ids` are the tokens that it continues: the text, or the decoder's tokens.

    `readers` are the stacks whose keys are the tokens of the input text.
    """

    arguments: dict[str, Any]
    ids: Int[Tensor, "1 n"] | None
    readers: tuple[str, ...] = ()

    def anatomy(self, model: Any) -> Anatomy:
        """The attention layers that run for this input."""
        if self.arguments.keys() == {"input_ids"} and not model.config.is_encoder_decoder:
            return Anatomy.of_text(model, self.arguments["input_ids"])
        return Anatomy.of(model, self._known(model))

    def ask(self, model: Any, at: int | None) -> Answer:
        """The output at one position; of the whole input if `at` is None or the model has a single output."""
        if at is not None and self.ids is not None and _has_base(model):
            place = place_of(at, self.ids.shape[1])
            beside = {name: value for name, value in self.arguments.items() if name != "input_ids"}
            found = read(model, self.ids, [place], beside=beside)
            loss = None if found.losses is None else float(found.losses.double().mean())
            return Answer("tokens", place, self.ids.shape[1], _numbers(found.logits[0, 0]), loss)
        output = model(**self._known(model))
        logits = getattr(output, "logits", None)
        if logits is None:
            return _state(model, output, at)
        if logits.ndim == 2 and len(logits) == 1:
            return Answer("classes", None, self._count(), _numbers(logits[0]))
        if logits.ndim != 3 or len(logits) != 1 or logits.shape[-1] < 2:
            raise ModelError(
                f"{type(model).__name__} gives logits of shape {tuple(logits.shape)}; wanted one row over "
                "tokens or classes, (1, classes), or one for every token, (1, n, classes)."
            )
        if at is None:
            raise ModelError(
                f"at is None, and {type(model).__name__} predicts something at each token; give a position."
            )
        n, kind = logits.shape[1], "tokens" if _speaks(model) else "labels"
        place = place_of(at, n)
        loss = None
        if kind == "tokens" and self.ids is not None and self.ids.shape[1] == n > 1:
            loss = float(torch.nn.functional.cross_entropy(logits[0, :-1].double(), self.ids[0, 1:]))
        return Answer(kind, place, n, _numbers(logits[0, place]), loss)

    def _count(self) -> int:
        given = next(iter(self.arguments.values()))
        return given.shape[1] if self.ids is None else self.ids.shape[1]

    def _known(self, model: Any) -> dict[str, Any]:
        known = inspect.signature(model.forward).parameters
        return {**self.arguments, **({"use_cache": False} if "use_cache" in known else {})}


def question_of(model: Any, tokens: Tokens, written: Tokens | None = None, tokenizer: Any = None) -> Question:
    """The input of a model, from a text, ids or the arguments of its pass, and the decoder's tokens."""
    check_model(model)
    beside = _beside(model, tokens) if isinstance(tokens, Mapping) else {}
    if not model.config.is_encoder_decoder:
        if written is not None:
            raise ModelError(f"{type(model).__name__} writes where it reads; give the whole text as tokens.")
        if isinstance(tokens, Mapping) and "input_ids" not in tokens:
            return Question(beside, None)
        ids = ids_of(model, tokens, tokenizer)
        return Question({"input_ids": ids, **beside}, ids)
    if isinstance(tokens, Mapping) and "input_ids" not in tokens:
        arguments = beside
    else:
        arguments = {"input_ids": ids_of(model, tokens, tokenizer), **beside}
    if written is None:
        written = arguments.get("decoder_input_ids")
    ids = _written(model, written, tokenizer)
    arguments["decoder_input_ids"] = ids
    return Question(arguments, ids, ("encoder", "cross"))


def _beside(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a model besides or instead of token ids: pixels, features, token types."""
    if not any(name in given for name in ("input_ids", *OTHERS)):
        named = ", ".join(map(str, given)) or "nothing"
        raise ModelError(f"tokens hold {named}; wanted input_ids, {', '.join(OTHERS[:-1])} or {OTHERS[-1]}.")
    mask = given.get("attention_mask")
    if mask is not None and "input_ids" in given and not bool(torch.as_tensor(mask).all()):
        raise ModelError(
            "attention_mask marks padding, and a cut is made in one text; give it without padding."
        )
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name == "input_ids" or (name in IGNORED and "input_ids" in given) or not isinstance(value, Tensor):
            continue
        found[name] = value.to(model.device, model.dtype if value.is_floating_point() else None)
    return found


def _written(model: Any, written: Tokens | None, tokenizer: Any) -> Int[Tensor, "1 n"]:
    """The decoder's input: its start token, then the written tokens, without the end token."""
    start = model.config.decoder_start_token_id
    start = start if start is not None else model.config.bos_token_id or 0
    if written is None:
        return torch.tensor([[start]], device=model.device)
    if isinstance(written, str):
        if tokenizer is None:
            raise ModelError("written is a text and there is no tokenizer; give tokenizer=, or token ids.")
        found: Sequence[int] = tokenizer(text_target=written)["input_ids"]
        ends = model.config.eos_token_id
        if found and found[-1] in (ends if isinstance(ends, list) else [ends]):
            # Leave out the end token: no token follows it.
            found = found[:-1]
        ids = torch.tensor([found or [start]], device=model.device)
    else:
        ids = ids_of(model, written)
    if int(ids[0, 0]) == start:
        return ids
    return torch.cat([ids.new_tensor([[start]]), ids], 1)


def _speaks(model: Any) -> bool:
    """Whether the logits of a model are those of tokens of its vocabulary."""
    return model.get_output_embeddings() is not None


def _has_base(model: Any) -> bool:
    """Whether a model is one that predicts tokens from the states of a part of it."""
    return _speaks(model) and model.base_model is not model and not model.config.is_encoder_decoder


def _state(model: Any, output: Any, at: int | None) -> Answer:
    """The state of a model without a head at one token, or the mean over all, as sentence encoders use it."""
    states = getattr(output, "last_hidden_state", None)
    if not isinstance(states, Tensor) or states.ndim != 3 or len(states) != 1:
        raise ModelError(
            f"{type(model).__name__} gives neither logits nor a state for every token; load the model with a "
            "head, or its part that reads the text."
        )
    n = states.shape[1]
    place = None if at is None else place_of(at, n)
    values = states[0].double().mean(0) if place is None else states[0, place]
    return Answer("states", place, n, _numbers(values))


def _numbers(x: Tensor) -> Tensor:
    return x.detach().double().cpu()
