"""Somebody's attention module: of tokens as vectors, `(batch, length, d_model)`."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.doctor.recipe import Recipe, compute, pattern
from regard.doctor.subject import (
    BATCH,
    CACHES,
    FLAGS,
    HEADS,
    LENGTH,
    MASKS,
    Options,
    Scenario,
    Subject,
    declares_causal,
    first_tensor,
    parameter_of,
)
from regard.doctor.weights import projections
from regard.errors import RegardError

__all__ = ["ModuleSubject"]

PADDINGS = (
    "key_padding_mask",
    "src_key_padding_mask",
    "padding_mask",
    "pad_mask",
    "attention_mask",
    "mask",
    "attn_mask",
)


class ModuleSubject(Subject):
    """A module called on a copy of itself with random weights, in evaluation.

    >>> subject = ModuleSubject(nn.MultiheadAttention(8, 2, batch_first=True))
    >>> subject.reading()["padding"]
    'key_padding_mask: True is padding'
    """

    kind = "module"
    seeable = False

    def __init__(self, module: nn.Module, options: Options | None = None) -> None:
        self.options = options or Options()
        self.original, self.name = module, type(module).__name__
        self.module = randomised(module)
        # A library's part follows its library's rules: masks made elsewhere, flags that are only hints.
        self.own = type(module).__module__.split(".")[0] in ("torch", "transformers")
        parameters = inspect.signature(module.forward).parameters
        self.names = tuple(parameters)
        self.required = tuple(
            p.name for p in parameters.values() if p.default is p.empty and p.kind not in (2, 4)
        )
        self.first = getattr(module, "batch_first", True) is not False
        self.heads = self.options.heads or _setting(module, HEADS)
        self.projections = projections(self.module, self.heads)
        self.width = self._width()
        self.flag = parameter_of(self.names, FLAGS)
        self.cache_name = parameter_of(self.names, CACHES)
        self.repeats = sum(1 for name in self.names[:3] if name.lower() in _QKV) == 3
        self._try()
        self.padding = self._find_padding()
        self.causal = self.options.causal
        if self.causal is None and not self.flag and not self.own and declares_causal(module):
            self.causal = True

    def reading(self) -> dict[str, Any]:
        """The heads, whether the weights were recognised, and what its padding mask means."""
        found: dict[str, Any] = {"d_model": self.width, "heads": self.heads or "unknown"}
        found["weights"] = "recognised" if self.projections else "not recognised"
        if self.padding:
            word = {"keep": "True is a token", "drop": "True is padding", "additive": "added"}[
                self.padding[1]
            ]
            found["padding"] = f"{self.padding[0]}: {word}"
        return found

    def _width(self) -> int:
        if self.projections:
            return self.projections[0].q[0].shape[0]
        for name in ("d_model", "embed_dim", "hidden_size", "dim", "n_embd"):
            if isinstance(getattr(self.module, name, None), int):
                return getattr(self.module, name)
        linear = next((m for m in self.module.modules() if isinstance(m, nn.Linear)), None)
        if linear is None:
            raise RegardError(
                f"{self.name} has no weights to read its width from. "
                "Examine a function of x, or give the module an attribute d_model."
            )
        return linear.in_features

    def _try(self) -> None:
        try:
            self.run(self.sample())
        except Exception as error:
            raise RegardError(
                f"{self.name} could not be called on a ({BATCH}, {LENGTH}, {self.width}) tensor "
                f"({type(error).__name__}: {error}). Wrap it in a module whose forward takes x."
            ) from error

    # What the probes ask

    def sample(self, n: int = LENGTH, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
        """Random tokens."""
        return torch.randn(BATCH, n, self.width, generator=torch.Generator().manual_seed(seed)).to(dtype)

    def change(self, state: Any, j: int, part: str = "all") -> Any:
        """Another vector at token j."""
        state = state.clone()
        state[:, j] = state[:, j].roll(1, -1) * -1.5 + 0.5 * state.abs().max()
        return state

    def run(
        self,
        state: Any,
        *,
        keep: Tensor | None = None,
        causal: bool | None = None,
        raw: bool = False,
        **more: Any,
    ) -> Any:
        """The output, whatever else the module returns."""
        extra = dict(more)
        if self.flag and (causal is not None or self.flag in self.required):
            extra[self.flag] = bool(causal)
            hint = parameter_of(self.names, ("attn_mask", "src_mask", "mask"))
            if causal and self.own and hint:
                extra[hint] = ~pattern("causal", state.shape[1], state.shape[1])
        if keep is not None and self.padding:
            extra[self.padding[0]] = _as(keep, self.padding[1], self.padding[2], state)
        for name in self.required[3 if self.repeats else 1 :]:
            if name in MASKS or name in CACHES or name in ("position_embeddings",):
                extra.setdefault(name, None)
        x = state if self.first else state.transpose(0, 1)
        found = self.module(*([x] * (3 if self.repeats else 1)), **extra)
        if raw:
            return found
        out = first_tensor(found)
        if out is None:
            raise TypeError(f"it returned {type(found).__name__} and no tensor")
        return out if self.first else out.transpose(0, 1)

    def _find_padding(self) -> tuple[str, str, str] | None:
        """The argument for padding, its meaning and shape: the first way to call it that works."""
        name = parameter_of(self.names, PADDINGS)
        if name is None:
            return None
        state, keep = self.sample(), torch.ones(BATCH, LENGTH, dtype=torch.bool)
        plain = self.run(state)
        keep[:, 0] = keep[:, -1] = False
        meanings = (
            ("drop", "keep", "additive")
            if "padding" in name or "pad" in name
            else ("keep", "drop", "additive")
        )
        shapes = ("bk", "b11k", "bqk") if name != "attn_mask" else ("b1qk", "qk")
        possible = None
        for meaning in meanings:
            for shape in shapes:
                self.padding = (name, meaning, shape)
                try:
                    out = self.run(state, keep=keep)
                except Exception:
                    continue
                possible = possible or self.padding
                # Padding is what can be changed without any token noticing.
                other = self.run(self.change(self.change(state, 0), LENGTH - 1), keep=keep)
                real, others = out[:, 1:-1], other[:, 1:-1]
                same = bool(real.isfinite().all()) and torch.allclose(real, others, rtol=1e-5, atol=1e-6)
                if same and not torch.allclose(out, plain, rtol=1e-5, atol=1e-6):
                    return self.padding
        return possible

    def scenarios(self, n: int = LENGTH) -> Sequence[Scenario]:
        """Plainly; with its causal flag; padded."""
        found = [Scenario("plain", self.run, causal=self.causal is True)]
        if self.flag:
            flagged = lambda state: self.run(state, causal=True)  # noqa: E731
            found.append(Scenario(f"{self.flag}=True", flagged, pattern("causal", n, n), causal=True))
        return found

    def conventions(self) -> Sequence[Any]:
        """Every reading of the weights with every possible number of heads."""
        if not self.projections:
            return ()
        width = self.projections[0].q[0].shape[-1]
        heads = [self.heads] if self.heads else [h for h in (1, 2, 4, 8, 16) if width % h == 0]
        return [(p, h) for p in self.projections for h in heads]

    def expected(
        self, state: Any, convention: Any, allowed: Tensor, recipe: Recipe, queries: int | None = None
    ) -> Tensor | None:
        """The formula with the module's own weights; `queries` keeps only the last ones."""
        weights, heads = convention
        if state.shape[-1] != weights.q[0].shape[0]:
            return None
        q, k, v = (_apply(state, pair) for pair in (weights.q, weights.k, weights.v))
        q = q if queries is None else q[:, -queries:]
        width = q.shape[-1] // heads
        if k.shape[-1] % width or v.shape[-1] != k.shape[-1] or heads % (k.shape[-1] // width):
            return None
        out = compute(q, k, v, (heads, k.shape[-1] // width), allowed, recipe)
        if weights.out is None or not recipe.project:
            return out
        return _apply(out, weights.out) if out.shape[-1] == weights.out[0].shape[0] else None


_QKV = ("q", "k", "v", "query", "key", "value", "queries", "keys", "values", "src")


def _apply(x: Tensor, pair: tuple[Tensor, Tensor | None]) -> Tensor:
    return x @ pair[0] if pair[1] is None else x @ pair[0] + pair[1]


def _as(keep: Tensor, meaning: str, shape: str, state: Tensor) -> Tensor:
    n = state.shape[1]
    if shape == "b11k":
        keep = keep[:, None, None]
    elif shape == "bqk":
        keep = keep[:, None].expand(-1, n, -1)
    elif shape == "b1qk":
        keep = keep[:, None, None].expand(-1, 1, n, -1)
    elif shape == "qk":
        keep = keep[0].expand(n, -1)
    if meaning == "additive":
        return torch.zeros(keep.shape, dtype=state.dtype).masked_fill(~keep, torch.finfo(state.dtype).min)
    return keep if meaning == "keep" else ~keep


def _setting(module: nn.Module, names: Sequence[str]) -> int | None:
    for part in module.modules():
        for holder in (part, getattr(part, "config", None)):
            for name in names:
                value = getattr(holder, name, None)
                if isinstance(value, int) and not isinstance(value, bool):
                    return value
    return None


def randomised(module: nn.Module) -> nn.Module:
    """A copy in evaluation whose linear weights are random: nothing hides behind a zero initialisation."""
    try:
        module = copy.deepcopy(module).eval()
    except Exception:
        return module.eval()
    draw = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.is_floating_point() or parameter.device.type != "cpu":
                continue
            if parameter.dim() == 2:
                parameter.copy_(torch.randn(parameter.shape, generator=draw) * parameter.shape[-1] ** -0.5)
        for part in module.modules():
            for name in ("bias", "in_proj_bias"):
                bias = getattr(part, name, None)
                if isinstance(bias, nn.Parameter) and not isinstance(part, nn.LayerNorm):
                    bias.copy_(0.1 * torch.randn(bias.shape, generator=draw))
    return module
