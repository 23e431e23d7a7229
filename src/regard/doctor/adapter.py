"""Somebody's function of q, k and v, whatever its argument names, its layout and its masks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.doctor.influence import influence
from regard.doctor.recipe import Recipe, compute, pattern
from regard.doctor.subject import (
    BATCH,
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
from regard.errors import RegardError

__all__ = ["LAYOUTS", "FunctionSubject"]

LAYOUTS = ("bhnd", "bnhd", "hnd", "bnd", "nd", "bnm")
NAMES = (
    ("q", "query", "queries", "Q", "xq", "query_states"),
    ("k", "key", "keys", "K", "xk", "key_states"),
    ("v", "value", "values", "V", "xv", "value_states"),
)
# A width whose 1/d is nobody's constant.
HEAD_COUNT, WIDTH = 4, 12
# PyTorch's own function is built in and has no signature to read.
BUILT_IN = {"scaled_dot_product_attention": ("query", "key", "value", "attn_mask", "is_causal", "enable_gqa")}


class FunctionSubject(Subject):
    """A function of q, k and v, called in its own layout; inside, all is `(batch, heads, length, dim)`.

    >>> subject = FunctionSubject(torch.nn.functional.scaled_dot_product_attention)
    >>> subject.reading()["layout"], subject.reading()["mask"]
    ('bhnd', 'attn_mask: bool, True may attend')
    """

    def __init__(self, fn: Callable[..., Any], options: Options | None = None) -> None:
        self.fn, self.options = fn, options or Options()
        self.name = getattr(fn, "__name__", type(fn).__name__)
        self.names, self.required = _signature(fn)
        found = [parameter_of(self.names, names) for names in NAMES]
        self.qkv = [name for name in found if name] if all(found) else None
        self.flag = parameter_of(self.names, FLAGS)
        self.mask_name = parameter_of(self.names, MASKS)
        self.heads_name = parameter_of(self.names, HEADS)
        self.mask_format: tuple[str, str] | None = None
        self.numpy = False
        self.heads = self.key_heads = self.options.heads or HEAD_COUNT
        self.width = self.options.dim or WIDTH
        self.layout = self._find_layout()
        if self.mask_name:
            self.mask_format = self._find_mask()
        self.causal = self.options.causal
        if self.causal is None and not self.flag and declares_causal(fn):
            self.causal = True
        # What belongs to PyTorch follows PyTorch's documentation, which may differ from ours.
        self.own = (getattr(fn, "__module__", "") or "").split(".")[0] in ("torch", "regard")
        self.own |= self.name in BUILT_IN and not inspect.isfunction(fn)

    def reading(self) -> dict[str, Any]:
        """The layout, and what its mask means."""
        found: dict[str, Any] = {"layout": self.layout}
        if self.mask_format:
            shape, meaning = self.mask_format
            words = {"allowed": "bool, True may attend", "blocked": "bool, True blocks", "additive": "added"}
            found["mask"] = f"{self.mask_name}: {words[meaning]}"
            if shape == "bk":
                found["mask"] += ", by key"
        return found

    # Calling it

    def call(
        self, q: Tensor, k: Tensor, v: Tensor, *, allowed: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """The output in our layout."""
        if self.layout == "bnm":
            flat = self._one(_flat(q), _flat(k), _flat(v), self._extra(allowed, causal, q, k))
            return flat.reshape(*flat.shape[:2], q.shape[1], -1).transpose(1, 2)
        if self.layout == "bhnd":
            return self._one(q, k, v, self._extra(allowed, causal, q, k))
        if self.layout == "bnhd":
            extra = self._extra(allowed, causal, q, k)
            return self._one(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), extra).transpose(1, 2)
        times = q.shape[1] // k.shape[1]
        rows = []
        for b in range(q.shape[0]):
            mine = None if allowed is None else allowed[b : b + 1]
            extra = self._extra(mine, causal, q, k)
            if self.layout == "hnd":
                rows.append(self._one(q[b], k[b], v[b], extra))
                continue
            at = slice(b, b + 1) if self.layout == "bnd" else b
            heads = [
                self._one(q[at, h], k[at, h // times], v[at, h // times], extra) for h in range(q.shape[1])
            ]
            rows.append(torch.cat(heads) if self.layout == "bnd" else torch.stack(heads))
        return torch.stack(rows)

    def _one(self, q: Tensor, k: Tensor, v: Tensor, extra: dict[str, Any]) -> Tensor:
        parts: Sequence[Any] = (q, k, v)
        if self.numpy:
            parts = [x.detach().numpy() for x in parts]
            extra = {key: x.numpy() if isinstance(x, Tensor) else x for key, x in extra.items()}
        if self.qkv:
            found = self.fn(**dict(zip(self.qkv, parts, strict=True)), **extra)
        else:
            found = self.fn(*parts, **extra)
        out = first_tensor(found)
        if out is None:
            raise TypeError(f"it returned {type(found).__name__} and no tensor")
        return out

    def _extra(self, allowed: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> dict[str, Any]:
        extra: dict[str, Any] = {}
        if self.flag and (causal or self.flag in self.required):
            extra[self.flag] = causal
        if self.heads_name and (self.layout == "bnm" or self.heads_name in self.required):
            extra[self.heads_name] = q.shape[1]
        if q.shape[1] != k.shape[1] and "enable_gqa" in self.names:
            extra["enable_gqa"] = True
        if allowed is None and self.mask_name in self.required:
            allowed = torch.ones(1, 1, q.shape[2], k.shape[2], dtype=torch.bool)
        if allowed is not None and self.mask_name:
            extra[self.mask_name] = self._mask(allowed, *(self.mask_format or ("b1qk", "allowed")), q.dtype)
        return extra

    def _mask(self, allowed: Tensor, shape: str, meaning: str, dtype: torch.dtype) -> Tensor:
        mask = allowed.expand(allowed.shape[0], 1, *allowed.shape[-2:])
        if shape == "qk":
            mask = mask[0, 0]
        elif shape == "bqk":
            mask = mask[:, 0]
        elif shape == "bk":
            mask = mask[:, 0, -1]
        if meaning == "allowed":
            return mask
        return (
            ~mask
            if meaning == "blocked"
            else torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -torch.inf)
        )

    # Finding out how to call it

    def _find_layout(self) -> str:
        given = self.options.layout
        if given is not None and given not in LAYOUTS:
            raise RegardError(f"layout={given!r} is not known; wanted one of {', '.join(LAYOUTS)}.")
        wanted = [given] if given else (["bnm"] if self.heads_name else []) + list(LAYOUTS[:-1])
        state, failures, possible = self.sample(), [], []
        for self.numpy in (False, True):
            for self.layout in wanted:
                try:
                    out = self.call(*state)
                    if out.shape != state[0].shape:
                        failures.append(f"{self.layout}: it returned {tuple(out.shape)}")
                        continue
                    possible.append(self.layout)
                    # A function that is told the number of heads is meant to split them itself.
                    if given or self.layout == "bnm" or self._keeps_heads_apart(state, out):
                        return self.layout
                except Exception as error:
                    failures.append(f"{self.layout}: {type(error).__name__}: {error}")
            if possible:
                self.layout = possible[0]
                return possible[0]
        reasons = list(dict.fromkeys(failures[: len(wanted)]))
        said = {reason.split(": ", 1)[1] for reason in reasons}
        words = f"always {said.pop()}" if len(said) == 1 else "; ".join(reasons)
        raise RegardError(
            f"{self.name} could not be called with q, k and v as {', '.join(wanted)} ({words}). "
            f"Name its layout with layout= ({', '.join(LAYOUTS)}), or wrap it in a function of q, k, v."
        )

    def _keeps_heads_apart(self, state: Any, out: Tensor) -> bool:
        q, k, v = state
        other = v.clone()
        other[:, 0, 1] += 1
        moved = (self.call(q, k, other) - out).nan_to_num(0.0).abs() > 1e-6
        return bool(moved[:, 0, 1:].any()) and not bool(moved[:, 1:].any())

    def _find_mask(self) -> tuple[str, str] | None:
        """The shape and meaning of masks under which the values that reach a query are those allowed."""
        state = self.sample()
        meanings = [self.options.mask] if self.options.mask else ["allowed", "additive", "blocked"]
        if self.options.mask and self.options.mask not in ("allowed", "additive", "blocked"):
            raise RegardError(
                f"mask={self.options.mask!r} is not known; wanted allowed, blocked or additive."
            )
        shapes = ["b1qk", "qk", "bqk", "bk"]
        possible = None
        for meaning in meanings:
            for shape in shapes:
                self.mask_format = (shape, meaning)
                allowed = self.some_mask(LENGTH)
                try:
                    seen = influence(lambda s: self.run(s, allowed=allowed), state, self._values, LENGTH)  # noqa: B023
                except Exception:
                    continue
                if bool((seen == allowed.any(0)[0]).all()):
                    return self.mask_format
                possible = possible or self.mask_format
        return possible

    def some_mask(self, n: int, queries: int | None = None) -> Tensor:
        """A mask of the kind the function takes, alike for both sequences: causal with a hole, or by key."""
        allowed = pattern("full", queries or n, n).clone()
        if self.mask_format and self.mask_format[0] == "bk":
            allowed[:, n // 2] = False
        else:
            allowed = pattern("causal", queries or n, n).clone()
            allowed[n // 2 + 1 :, 1] = False
        return allowed.expand(BATCH, 1, *allowed.shape).clone()

    # What the probes ask

    def sample(self, n: int = LENGTH, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
        """Random queries, keys and values."""
        draw = torch.Generator().manual_seed(seed)
        heads = (self.heads, self.key_heads, self.key_heads)
        return tuple(torch.randn(BATCH, h, n, self.width, generator=draw).to(dtype) for h in heads)

    def change(self, state: Any, j: int, part: str = "all") -> Any:
        """New values, keys or both at token j."""
        q, k, v = (x.clone() for x in state)
        if part in ("all", "k"):
            k[:, :, j] = -1.5 * k[:, :, j] + 0.5
        if part in ("all", "v"):
            v[:, :, j] += 1.0
        return q, k, v

    def _values(self, state: Any, j: int) -> Any:
        return self.change(state, j, "v")

    def run(self, state: Any, **how: Any) -> Tensor:
        """The output with the heads side by side."""
        return _flat(self.call(*state, **how))

    def scenarios(self, n: int = LENGTH) -> Sequence[Scenario]:
        """Plainly; with its causal flag; with its mask."""
        found = [Scenario("plain", self.run, causal=self.causal is True)]
        if self.flag:
            flagged = lambda state: self.run(state, causal=True)  # noqa: E731
            found.append(Scenario(f"{self.flag}=True", flagged, pattern("causal", n, n), causal=True))
        if self.mask_format:
            allowed = self.some_mask(n)
            found.append(Scenario(f"{self.mask_name}=…", lambda s: self.run(s, allowed=allowed), allowed))
        return found

    def conventions(self) -> Sequence[Any]:
        """One reading only."""
        return ("",)

    def expected(self, state: Any, convention: Any, allowed: Tensor, recipe: Recipe) -> Tensor | None:
        """The formula on the same q, k and v."""
        q, k, v = state
        if recipe.split == "view" or recipe.merge == "view":
            if self.layout not in ("bnm", "bhnd", "bnhd"):
                return None
        elif self.layout in ("hnd", "bnd", "nd") and recipe.axis == 0:
            return None
        recipe = replace(recipe, project=True)
        return compute(_flat(q), _flat(k), _flat(v), (q.shape[1], k.shape[1]), allowed, recipe)

    def grouped(self) -> FunctionSubject | None:
        """The same function with half as many key heads, if it takes that."""
        if self.layout not in ("bhnd", "bnhd", "hnd") or self.heads % 2:
            return None
        self.key_heads = self.heads // 2
        try:
            state = self.sample()
            fits = self.run(state).shape == self.run((state[0],) * 3).shape
        except Exception:
            fits = False
        if not fits:
            self.key_heads = self.heads
        return self if fits else None


def _flat(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def _signature(fn: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return BUILT_IN.get(getattr(fn, "__name__", ""), ()), ()
    return tuple(p.name for p in parameters), tuple(p.name for p in parameters if p.default is p.empty)
