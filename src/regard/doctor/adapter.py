"""Adapts a user's function of q, k and v with any argument names, layout and masks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.doctor.arguments import Parameters, Sizes, fill, fillers, parameters_of
from regard.doctor.influence import influence
from regard.doctor.layouts import LAYOUTS
from regard.doctor.masks import MaskForm, find_form, forms, holed
from regard.doctor.recipe import Recipe, compute, pattern
from regard.doctor.subject import (
    BATCH,
    LENGTH,
    Options,
    Scenario,
    Subject,
    declares_causal,
    not_callable,
    raised_by,
    tensors_in,
)
from regard.errors import RegardError

__all__ = ["FunctionSubject"]

# A head width whose 1/d doesn't occur as a constant in code.
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
        self.parameters = signature_of(fn)
        if self.options.mask is None:
            self.parameters = self.parameters.without_unread()
        self.inputs = _inputs(self.parameters)
        self.flag = self.parameters.of("flag")
        self.heads_name = self.parameters.of("heads")
        self.numpy = False
        self.heads = self.key_heads = self.options.heads or HEAD_COUNT
        self.width = self.options.dim or width_of(fn) or WIDTH
        self.runnable: list[dict[str, str]] = [{}]
        self.plan: dict[str, str] = {}
        # If a mask is required: the forms to try for a mask that allows everything.
        self.meanings: list[MaskForm] = []
        self.layout = self._find_layout()
        self._find_masks()
        self.causal = self.options.causal
        if self.causal is None and not self.flag and declares_causal(fn):
            self.causal = True
        # PyTorch's own functions follow PyTorch's documentation, whose rules may differ from regard's.
        self.own = (getattr(fn, "__module__", "") or "").split(".")[0] in ("torch", "regard")
        self.own |= self.name in BUILT_IN and not inspect.isfunction(fn)

    def reading(self) -> dict[str, Any]:
        """The layout, and the meaning of the mask."""
        found: dict[str, Any] = {"layout": self.layout}
        if self.mask:
            found["mask"] = self.mask.words
        return found

    def names(self) -> dict[str, str]:
        """The function's own names for q, k, v, its mask and its flag."""
        q, k, v = self.inputs
        found = {"name": self.name, "q": q, "k": k, "v": v}
        return found | {key: x for key, x in (("mask", self._mask_name()), ("flag", self.flag)) if x}

    def _mask_name(self) -> str | None:
        return self.parameters.of("mask") or self.parameters.of("lengths")

    # Calling it

    def call(
        self, q: Tensor, k: Tensor, v: Tensor, *, allowed: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """The output in our layout."""
        into, back, loops = LAYOUTS[self.layout]
        if not loops:
            extra = self._extra(allowed, causal, q, k)
            return back(self._one(into(q), into(k), into(v), extra), q)
        times = q.shape[1] // k.shape[1]
        rows = []
        for b in range(q.shape[0]):
            mine = None if allowed is None else allowed[b : b + 1]
            extra = self._extra(mine, causal, q[b : b + 1], k)
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
        try:
            if self.parameters.names:
                found = self.fn(**dict(zip(self.inputs, parts, strict=True)), **extra)
            else:
                found = self.fn(*parts, **extra)
        except Exception as error:
            raise raised_by(error) from error
        outs = tensors_in(found)
        if not outs:
            raise TypeError(f"it returned {type(found).__name__} and no tensor")
        if self.layout in ("bnhd", "nbhd"):
            # The output has the heads side by side.
            outs = [x.unflatten(-1, q.shape[2:]) if x.shape == q.flatten(2).shape else x for x in outs]
        return next((x for x in outs if x.shape == q.shape), outs[0])

    def _extra(self, allowed: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> dict[str, Any]:
        sizes = Sizes(q.shape[0], k.shape[2], q.shape[1], q.shape[3], q.dtype)
        if self.layout in ("bnd", "nd"):
            sizes = replace(sizes, heads=1)
        extra = {name: fill(choice, sizes) for name, choice in self.plan.items()}
        if self.flag and (causal or self.flag in self.parameters.required):
            extra[self.flag] = causal
        if self.heads_name and (self.layout == "bnm" or self.heads_name in self.parameters.required):
            extra[self.heads_name] = q.shape[1]
        if q.shape[1] != k.shape[1] and "enable_gqa" in self.parameters.names:
            extra["enable_gqa"] = True
        mask = self.mask or self.padding
        if allowed is None and mask and mask.name in self.parameters.required:
            allowed = torch.ones(q.shape[0], 1, q.shape[2], k.shape[2], dtype=torch.bool)
        if allowed is not None and mask:
            extra[mask.name] = mask.build(allowed, sizes.heads, q.dtype)
        return extra

    # Finding out how to call it

    def _find_layout(self) -> str:
        given = self.options.layout
        if given is not None and given not in LAYOUTS:
            raise RegardError(f"layout={given!r} is not known; wanted one of {', '.join(LAYOUTS)}.")
        wanted = (
            [given] if given else (["bnm"] if self.heads_name else []) + [x for x in LAYOUTS if x != "bnm"]
        )
        skip = [*self.inputs, *(x for x in (self.flag, self.heads_name) if x)]
        state, failures, possible = self.sample(), [], []
        choices = fillers(self.parameters, skip)
        for self.numpy in (False, True):
            for self.layout in wanted:
                for self.plan in choices:
                    try:
                        out = self.call(*state)
                        if out.shape != state[0].shape:
                            failures.append(f"{self.layout}: it returned {tuple(out.shape)}")
                            continue
                        possible.append((self.layout, self.plan))
                    except Exception as error:
                        failures.append(f"{self.layout}: {error}")
                        continue
                    # A function that takes the number of heads splits them itself.
                    if given or self.layout == "bnm" or self._keeps_apart(state, out):
                        self.runnable = [self.plan, *self._others(choices, state, out)]
                        return self.layout
            if possible:
                self.layout, self.plan = possible[0]
                return self.layout
        said = [failure.split(": ", 1)[1] for failure in failures]
        raise not_callable(self._refusal(wanted, failures), said)

    def _others(self, choices: list[dict[str, str]], state: Any, out: Tensor) -> list[dict[str, str]]:
        """Further ways to fill in arguments with which it can be called, up to a maximum."""
        first, found = self.plan, []
        for self.plan in choices[choices.index(first) + 1 :]:
            try:
                if self.call(*state).shape == out.shape and len(found) < 5:
                    found.append(self.plan)
            except Exception:
                continue
        self.plan = first
        return found

    def _refusal(self, wanted: list[str], failures: list[str]) -> str:
        reasons = list(dict.fromkeys(failures[: len(wanted)]))
        said = {reason.split(": ", 1)[1] for reason in reasons}
        words = f"always {said.pop()}" if len(said) == 1 else "; ".join(reasons)
        return (
            f"{self.name} could not be called with q, k and v as {', '.join(wanted)} ({words}). "
            f"Name its layout with layout= ({', '.join(LAYOUTS)}), or wrap it in a function of q, k, v."
        )

    def _keeps_apart(self, state: Any, out: Tensor) -> bool:
        """Whether a value affects outputs of its own head and sequence only, at more than one token."""
        q, k, v = state
        other = v.clone()
        other[0, 0, 1] += 1
        moved = (self.call(q, k, other) - out).nan_to_num(0.0).abs() > 1e-6
        mine = moved[0, 0].any(-1)
        return bool(mine[2:].any() or mine[0]) and not bool(moved[1:].any()) and not bool(moved[0, 1:].any())

    def _find_masks(self) -> None:
        """Find the mask form under which exactly the allowed values affect each query's output."""
        state, name = self.sample(), self._mask_name()
        if name is None:
            return
        candidates = forms(name, self.parameters.roles[name], self.options.mask)

        def sees(form: MaskForm, allowed: Tensor, tolerance: float) -> Tensor:
            self.mask = form
            # Every query may see a key, so NaN means that the mask has another form.
            if not bool(self.run(state, allowed=allowed).isfinite().all()):
                return torch.zeros(LENGTH, LENGTH, dtype=torch.bool)
            run = lambda s: self.run(s, allowed=allowed)  # noqa: E731
            return influence(run, state, self._values, LENGTH, tolerance)

        exact, possible = find_form(candidates, sees, BATCH, LENGTH, own=True)
        self.mask = exact or (possible[0] if possible else None)
        if exact is None and name in self.parameters.required:
            self.meanings = list({one.meaning: one for one in reversed(possible)}.values())[::-1]

    # What the probes ask

    def sample(self, n: int | None = None, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
        """Random queries, keys and values."""
        draw = torch.Generator().manual_seed(seed)
        heads, n = (self.heads, self.key_heads, self.key_heads), n or LENGTH
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
        out = self.call(*state, **how)
        return out.transpose(1, 2).reshape(out.shape[0], out.shape[2], -1)

    def scenarios(self, n: int | None = None) -> Sequence[Scenario]:
        """A plain call; a call with the causal flag; a call with the mask."""
        n = n or LENGTH
        exempt = bool(self.options.causal and (self.flag or (self.mask and not self.mask.by_key)))
        found = [Scenario("plain", {}, causal=self.causal is True and not exempt)]
        if self.flag:
            label = f"{self.flag}=True"
            found.append(Scenario(label, {"causal": True}, pattern("causal", n, n), causal=True))
        if self.mask:
            allowed = holed(self.mask, BATCH, n, n)
            found.append(Scenario(f"{self.mask.name}=…", {"allowed": allowed}, allowed))
        return found

    def plans(self) -> int:
        """The number of ways to fill in unknown arguments with which it can be called."""
        return len(self.runnable) * max(len(self.meanings), 1)

    def use_plan(self, index: int) -> None:
        """Fill in unknown arguments in another way."""
        self.plan = self.runnable[index % len(self.runnable)]
        if self.meanings:
            self.mask = self.meanings[index // len(self.runnable)]

    def conventions(self) -> Sequence[Any]:
        """The single reading of a function."""
        return ("",)

    def expected(self, inside: Any, convention: Any, allowed: Tensor, recipe: Recipe) -> Tensor | None:
        """The formula on the same q, k and v."""
        q, k, v = inside
        if recipe.mixed:
            if self.layout not in ("bnm", "bhnd", "bnhd", "nbhd"):
                return None
        elif self.layout in ("hnd", "bnd", "nd") and recipe.axis == 0:
            return None
        flat = [x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1) for x in (q, k, v)]
        return compute(flat[0], flat[1], flat[2], (q.shape[1], k.shape[1]), allowed, recipe)

    def grouped(self) -> FunctionSubject | None:
        """The same function with half as many key heads, if it accepts that."""
        if self.layout not in ("bhnd", "bnhd", "hnd", "nbhd") or self.heads % 2:
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


def signature_of(fn: Callable[..., Any]) -> Parameters:
    """The parameters of a function, or of the forward pass of a module."""
    target = fn.forward if isinstance(fn, torch.nn.Module) else fn
    return parameters_of(target, BUILT_IN.get(getattr(fn, "__name__", ""), ()))


def width_of(fn: Any) -> int | None:
    """The width of one head, where a module without weights has it as a setting."""
    for name in (
        "temperature",
        "scale",
        "scaling",
        "norm_factor",
        "inv_norm_factor",
        "softmax_scale",
        "sm_scale",
    ):
        value = getattr(fn, name, None)
        if isinstance(value, int | float) and value > 0:
            d = value**2 if value >= 1 else value**-2
            if abs(d - round(d)) < 1e-4 and 2 <= round(d) <= 512:
                return round(d)
    names = ("d_k", "head_dim", "dim_head", "d_head", "head_size", "attention_head_size")
    for name in (*names, "hidden_size_per_attention_head", "dim_per_head", "d_model"):
        value = getattr(fn, name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _inputs(parameters: Parameters) -> tuple[str, str, str]:
    """The names of q, k and v: by meaning, or the first three parameters."""
    if parameters.triple:
        q, k, v = parameters.triple
        return q, k, v
    first = [name for name in parameters.names if name in parameters.positional][:3]
    q, k, v = first if len(first) == 3 else ("q", "k", "v")
    return q, k, v
