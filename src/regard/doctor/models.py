"""Examines a whole model of token ids from outside: causality, padding, dropout and determinism."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.doctor.as_built import changed_settings
from regard.doctor.masks import MaskForm
from regard.doctor.subject import (
    BATCH,
    LENGTH,
    Options,
    Scenario,
    Subject,
    library_of,
    not_callable,
    tensors_in,
)

__all__ = ["ModelSubject", "reads_tokens"]

ATTENTION = re.compile(r"(?i)att(entio)?n(?!ion)")
# A module by its path, with the arguments that the model gives it.
Called = tuple[str, nn.Module, dict[str, Any]]


def reads_tokens(module: nn.Module) -> bool:
    """Whether a module takes token ids: by its argument's name, or because an embedding inside reads them.

    >>> reads_tokens(nn.Linear(2, 2)), reads_tokens(nn.Embedding(9, 2))
    (False, True)
    """
    return "input_ids" in inspect.signature(module.forward).parameters or bool(_vocabulary(module))


def _vocabulary(module: nn.Module) -> int:
    """The size of the embedding that reads the module's input; 0 if there is none."""
    tables = [part for part in module.modules() if isinstance(part, nn.Embedding)]
    if not tables:
        return 0
    # Use ids other than 0, 1, 2 …, which an embedding of positions would look up.
    ids = torch.arange(LENGTH).flip(0).expand(BATCH, LENGTH) % min(part.num_embeddings for part in tables)
    found: list[int] = []

    def hook(part: nn.Module, args: tuple[Any, ...]) -> None:
        if args and isinstance(args[0], Tensor) and args[0].shape == ids.shape and args[0].equal(ids):
            found.append(cast(nn.Embedding, part).num_embeddings)

    handles = [part.register_forward_pre_hook(hook) for part in tables]
    try:
        module(ids)
    except Exception:
        return found[0] if found else 0
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else 0


class ModelSubject(Subject):
    """A model that reads `input_ids`; for an encoder-decoder, the decoder is examined."""

    kind = "model"
    seeable = False

    def __init__(self, model: nn.Module, options: Options | None = None) -> None:
        self.options = options or Options()
        self.model, self.name = model.eval(), type(model).__name__
        self.arguments = tuple(inspect.signature(model.forward).parameters)
        config = getattr(model, "config", None)
        self.both = bool(getattr(config, "is_encoder_decoder", False))
        text = getattr(config, "vocab_size", None) or (
            0 if "input_ids" in self.arguments else _vocabulary(model)
        )
        self.tokens = min(int(text), 90) if text and isinstance(text, int) else 64
        # Skip the first ids, which are often special, unless the vocabulary is small.
        self.edge = 5 if self.tokens > 20 else 0
        self.own = library_of(model) == "transformers"
        # Settings of a library's model that were changed after it was built, by the path of their module.
        self.changed = changed_settings(model) if self.own else {}
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
        """A note that the model was examined from outside."""
        return {"kind": "a model of token ids, seen from outside"}

    def sample(self, n: int | None = None, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
        """Random token ids, away from the special ones."""
        draw = torch.Generator().manual_seed(seed)
        return torch.randint(self.edge, self.tokens - self.edge, (BATCH, n or LENGTH), generator=draw)

    def change(self, state: Any, j: int, part: str = "all") -> Any:
        """Another token at j."""
        state = state.clone()
        step = 7 if self.edge else 1
        state[:, j] = (state[:, j] - self.edge + step) % (self.tokens - 2 * self.edge) + self.edge
        return state

    def run(self, state: Any, *, keep: Tensor | None = None, **how: Any) -> Tensor:
        """Hidden states or logits, whichever the model returns first."""
        extra: dict[str, Any] = {"use_cache": False} if "use_cache" in self.arguments else {}
        ids = state
        if self.both:
            # Padding is examined in the encoder and order in the decoder; the other side reads a fixed text.
            other = self.sample(seed=1)
            ids, extra["decoder_input_ids"] = (other, state) if keep is None else (state, other)
        if self.padding:
            extra["attention_mask"] = torch.ones_like(ids) if keep is None else keep.long()
        found = (
            self.model(input_ids=ids, **extra) if "input_ids" in self.arguments else self.model(ids, **extra)
        )
        wanted = [x for x in tensors_in(found) if x.dim() == 3 and x.shape[:2] == state.shape]
        out = wanted[0] if wanted else None
        if out is None or out.dim() != 3 or out.shape[:2] != state.shape:
            raise TypeError("it returned no tensor of one vector per token")
        return out.float()

    def scenarios(self, n: int | None = None) -> Sequence[Scenario]:
        """One: the model is called as it is."""
        return [Scenario("plain", {}, causal=self.causal is True)]

    def layers(self) -> list[Called]:
        """One attention module per kind and settings, by path, with the arguments that the model passes.

        If no class name contains attention, these are the innermost modules that mix tokens.
        """
        found: dict[tuple[type, str | None], Called] = {}
        handles = []

        def watch(path: str, module: nn.Module) -> None:
            names = tuple(inspect.signature(module.forward).parameters)

            def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
                given = dict(zip(names, args, strict=False)) | kwargs
                tokens = [name for name, x in given.items() if isinstance(x, Tensor) and x.dim() == 3]
                fixed = {name: x for name, x in given.items() if name not in tokens[:1]}
                found.setdefault((type(module), self.changed.get(path)), (path, module, fixed))

            handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

        parts = {path: part for path, part in self.model.named_modules() if path}
        named = {path: part for path, part in parts.items() if _is_called_attention(part)}
        containers = nn.ModuleList | nn.ModuleDict
        whole = {path: part for path, part in parts.items() if not isinstance(part, containers)}
        for path, part in (named or whole).items():
            watch(path, part)
        try:
            self.run(self.sample())
        finally:
            for handle in handles:
                handle.remove()
        return list(found.values()) if named else _mixers(list(found.values()))


def _mixers(called: list[Called]) -> list[Called]:
    """The innermost modules whose output at one token changes with another token."""
    found = [one for one in called if _mixes(one[1])]
    return [
        one
        for one in found
        if not any(other[1] is not one[1] and other[1] in set(one[1].modules()) for other in found)
    ]


def _mixes(module: nn.Module) -> bool:
    """Whether the output at a token changes with another token."""
    weights = [x for x in module.parameters() if x.dim() == 2]
    if not weights:
        return False
    x = torch.randn(1, LENGTH, weights[0].shape[-1], generator=torch.Generator().manual_seed(0))
    other = x.clone()
    other[:, 0] += 1
    try:
        a, b = (tensors_in(module(y))[0] for y in (x, other))
    except Exception:
        return False
    return a.shape[:2] == x.shape[:2] and not torch.allclose(a[:, 1:], b[:, 1:], atol=1e-5)


def _is_called_attention(module: nn.Module) -> bool:
    """Whether the class name contains attention, and that of no module inside does."""
    outer, *inner = (ATTENTION.search(type(part).__name__) for part in module.modules())
    return bool(outer) and not any(inner)
