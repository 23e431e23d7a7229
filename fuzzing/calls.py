"""Random calls of `attention`: any sizes, mask, bias, cap, sink, score function and dtype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from choice import Choice
from mask_maker import make_mask
from oracle import Dense, dense_attention, dense_mask, stressed
from regard import attention, explain_dispatch
from regard.masks import Mask
from regard.scores import Additive, ALiBi, General, RelativeBias

__all__ = ["Call", "make_call"]

LENGTHS = (1, 2, 3, 7, 17, 33, 63, 64, 65, 129)
DIMS = (1, 3, 8, 17)


@dataclass
class Call:
    """One call: the tensors that get gradients by name, the mask, and all other options."""

    leaves: dict[str, Tensor]
    mask: Mask | None = None
    options: dict[str, Any] = field(default_factory=dict)
    backend: str = "auto"
    # What is made of the leaves that are no argument of attention by themselves.
    structured: Callable[[dict[str, Tensor]], dict[str, Any]] = lambda leaves: {}
    # What the oracle takes in place of what is structured.
    plain: Callable[[dict[str, Tensor]], dict[str, Any]] = lambda leaves: {}

    @property
    def dtype(self) -> torch.dtype:
        return self.leaves["q"].dtype

    @property
    def shape(self) -> tuple[int, int, int, int]:
        q, k = self.leaves["q"], self.leaves["k"]
        return q.shape[0], q.shape[1], q.shape[2], k.shape[2]

    @property
    def allowed(self) -> Tensor | None:
        return dense_mask(self.mask, self.leaves["q"], self.leaves["k"])

    def arguments(self, leaves: dict[str, Tensor]) -> dict[str, Any]:
        """What `attention` and `observe` take, with these leaves in place of the call's own."""
        given = {name: leaves[name] for name in ("q", "k", "v", "bias", "sink") if name in leaves}
        return {**given, **self.structured(leaves), "mask": self.mask, **self.options}

    def ours(self, leaves: dict[str, Tensor]) -> Tensor:
        return attention(**self.arguments(leaves), backend=self.backend)

    def dense(self, leaves: dict[str, Tensor]) -> Tensor:
        """The same by the oracle, in the leaves' own dtype."""
        return self.dense_steps(leaves).out

    def dense_steps(self, leaves: dict[str, Tensor]) -> Dense:
        given = {name: leaves[name] for name in ("q", "k", "v", "bias", "sink") if name in leaves}
        return dense_attention(**given, **self.plain(leaves), allowed=self.allowed, **self.options)


def make_call(choice: Choice, dtypes: tuple[torch.dtype, ...], options: bool = True) -> Call:
    """A call that is valid, with everything an option can be."""
    batch, kv_heads, group = choice.integer(1, 3), choice.integer(1, 2), choice.integer(1, 3)
    q_len, k_len = choice.pick(LENGTHS), choice.pick(LENGTHS)
    dim = choice.pick(DIMS)
    heads, v_dim = kv_heads * group, choice.pick((dim, dim + 2))
    dtype = choice.pick(dtypes)
    generator = torch.Generator().manual_seed(choice.seed())

    def numbers(*shape: int) -> Tensor:
        return stressed(*shape, generator=generator, dtype=dtype)

    leaves = {
        "q": numbers(batch, heads, q_len, dim),
        "k": numbers(batch, kv_heads, k_len, dim),
        "v": numbers(batch, kv_heads, k_len, v_dim),
    }
    mask = make_mask(choice, q_len, k_len, batch, heads) if choice.flag() else None
    call = Call(leaves, mask, backend=choice.pick(("auto", "torch", "sdpa")))
    if options:
        _add_options(choice, call, numbers)
    if call.backend == "sdpa":
        with torch.no_grad():
            given = {name: x for name, x in call.arguments(leaves).items() if name != "mask"}
            # PyTorch's kernels do not do everything, and a trainable bias is streamed.
            able = explain_dispatch(mask=mask, **given).backend == "sdpa" and "bias" not in leaves
        call.backend = "sdpa" if able else "torch"
    return call


def _add_options(choice: Choice, call: Call, numbers: Callable[..., Tensor]) -> None:
    batch, heads, q_len, k_len = call.shape
    dim = call.leaves["q"].shape[-1]
    # What learns by itself is kept in float32 where the rest is in half precision.
    wide = torch.promote_types(call.dtype, torch.float32)
    score = choice.integer(0, 9)
    if score == 0:
        call.leaves["w"] = numbers(dim, dim)
        call.structured = lambda x: {"score": General(x["w"])}
        call.plain = lambda x: {"scores": lambda q, k: (q @ x["w"].to(q.dtype)) @ k.transpose(-1, -2)}
    elif score == 1:
        call.leaves |= {"w_q": numbers(dim, 5), "w_k": numbers(dim, 5), "w_v": numbers(5)}
        call.structured = lambda x: {"score": Additive(x["w_q"], x["w_k"], x["w_v"])}
        call.plain = lambda x: {"scores": lambda q, k: _additive(q, k, x["w_q"], x["w_k"], x["w_v"])}
    elif score == 2:
        call.leaves["slopes"] = numbers(heads).to(wide).abs()
        call.structured = lambda x: {"bias": ALiBi(x["slopes"])}
        call.plain = lambda x: {"bias": _by_distance(call, lambda d: -x["slopes"][:, None, None] * d.abs())}
    elif score == 3:
        call.leaves["table"] = numbers(heads, 8).to(wide)
        call.structured = lambda x: {"bias": RelativeBias(x["table"], max_distance=16)}
        call.plain = lambda x: {"bias": RelativeBias(x["table"], max_distance=16).tile(*_positions(call))}
    elif score <= 5:
        sizes = [size if choice.flag() else 1 for size in (batch, heads, q_len)]
        call.leaves["bias"] = numbers(*sizes, k_len).to(wide)
    if choice.integer(0, 3) == 0:
        call.leaves["sink"] = numbers(heads).to(wide)
    if choice.integer(0, 3) == 0:
        call.options["softcap"] = choice.pick((1.0, 20.0))
    if choice.integer(0, 3) == 0:
        call.options["scale"] = choice.integer(-10, 10) / 10
    if choice.integer(0, 3) == 0:
        call.options["score_mod"] = lambda s, b, h, i, j: s - 0.01 * (i - j).abs() * (1 + h + b)


def _positions(call: Call) -> tuple[Tensor, Tensor]:
    _, _, q_len, k_len = call.shape
    return torch.arange(k_len - q_len, k_len), torch.arange(k_len)


def _by_distance(call: Call, bias: Callable[[Tensor], Tensor]) -> Tensor:
    q, k = _positions(call)
    return bias(q[:, None] - k)


def _additive(q: Tensor, k: Tensor, w_q: Tensor, w_k: Tensor, v: Tensor) -> Tensor:
    w_q, w_k, v = (x.to(q.dtype) for x in (w_q, w_k, v))
    return torch.tanh((q @ w_q)[..., :, None, :] + (k @ w_k)[..., None, :, :]) @ v
