"""A whole model, of token ids: causality, padding, dropout and determinism can be seen from outside."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.doctor.masks import MaskForm
from regard.doctor.subject import BATCH, LENGTH, Options, Scenario, Subject, not_callable, tensors_in

__all__ = ["ModelSubject", "reads_tokens"]


def reads_tokens(module: nn.Module) -> bool:
    """Whether a module takes token ids.

    >>> reads_tokens(nn.Linear(2, 2))
    False
    """
    return "input_ids" in inspect.signature(module.forward).parameters


class ModelSubject(Subject):
    """A model that reads `input_ids`; of an encoder and a decoder, the decoder is watched."""

    kind = "model"
    seeable = False

    def __init__(self, model: nn.Module, options: Options | None = None) -> None:
        self.options = options or Options()
        self.model, self.name = model.eval(), type(model).__name__
        self.arguments = tuple(inspect.signature(model.forward).parameters)
        config = getattr(model, "config", None)
        self.both = bool(getattr(config, "is_encoder_decoder", False))
        text = getattr(config, "vocab_size", None) or 64
        self.tokens = min(int(text), 90) if isinstance(text, int) else 64
        self.own = type(model).__module__.split(".")[0] == "transformers"
        self.causal = self.options.causal
        if self.causal is None and "Causal" in self.name:
            self.causal = True
        named = "attention_mask" in self.arguments
        self.padding = MaskForm("attention_mask", "bk", "ones") if named else None
        try:
            self.run(self.sample())
        except Exception as error:
            raise not_callable(
                f"{self.name} could not be called on ({BATCH}, {LENGTH}) token ids "
                f"({type(error).__name__}: {error}). Wrap it in a module whose forward takes input_ids.",
                [f"{type(error).__name__}: {error}"],
            ) from error

    def reading(self) -> dict[str, Any]:
        """That it was seen from outside."""
        return {"kind": "a model of token ids, seen from outside"}

    def sample(self, n: int | None = None, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
        """Random token ids, away from the special ones."""
        draw = torch.Generator().manual_seed(seed)
        return torch.randint(5, self.tokens - 5, (BATCH, n or LENGTH), generator=draw)

    def change(self, state: Any, j: int, part: str = "all") -> Any:
        """Another token at j."""
        state = state.clone()
        state[:, j] = (state[:, j] - 5 + 7) % (self.tokens - 10) + 5
        return state

    def run(self, state: Any, *, keep: Tensor | None = None, **how: Any) -> Tensor:
        """Hidden states or logits, whichever the model puts first."""
        extra: dict[str, Any] = {"use_cache": False} if "use_cache" in self.arguments else {}
        ids = state
        if self.both:
            # Padding is the encoder's affair and order the decoder's: the other reads one text throughout.
            other = self.sample(seed=1)
            ids, extra["decoder_input_ids"] = (other, state) if keep is None else (state, other)
        if self.padding:
            extra["attention_mask"] = torch.ones_like(ids) if keep is None else keep.long()
        found = self.model(input_ids=ids, **extra)
        wanted = [x for x in tensors_in(found) if x.dim() == 3 and x.shape[:2] == state.shape]
        out = wanted[0] if wanted else None
        if out is None or out.dim() != 3 or out.shape[:2] != state.shape:
            raise TypeError("it returned no tensor of one vector per token")
        return out.float()

    def scenarios(self, n: int | None = None) -> Sequence[Scenario]:
        """One: the model is called as it is."""
        return [Scenario("plain", {}, causal=self.causal is True)]

    def layers(self) -> list[tuple[str, nn.Module, dict[str, Any]]]:
        """One attention module of each kind, by its path, with the arguments the model gives it."""
        found: dict[type, tuple[str, nn.Module, dict[str, Any]]] = {}
        handles = []

        def watch(path: str, module: nn.Module) -> None:
            names = tuple(inspect.signature(module.forward).parameters)

            def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
                given = dict(zip(names, args, strict=False)) | kwargs
                tokens = [name for name, x in given.items() if isinstance(x, Tensor) and x.dim() == 3]
                fixed = {name: x for name, x in given.items() if name not in tokens[:1]}
                found.setdefault(type(module), (path, module, fixed))

            handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

        for path, module in self.model.named_modules():
            inner = [type(part).__name__ for part in module.modules() if part is not module]
            if _named(type(module).__name__) and not any(map(_named, inner)):
                watch(path, module)
        try:
            self.run(self.sample())
        finally:
            for handle in handles:
                handle.remove()
        return list(found.values())


def _named(name: str) -> bool:
    return bool(re.search(r"(?i)att(entio)?n(?!ion)", name))
