"""Attention modules in many styles of naming and layout, and each of them with each mistake written in.

The layouts and names are those of well-known teaching and production code, written anew from templates: a
style says how it projects, how it splits and joins heads and what it calls things; a mistake fills one slot
of the template differently.
"""

# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["SLOTS", "STYLES", "Style", "variants"]

# What the slots hold in healthy code. `d` is the width of one head and `h` the number of heads.
SLOTS = {
    "scale": " / math.sqrt(d)",
    "mask": "scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), float('-inf'))",
    "softmax": "weights = torch.softmax(scores, dim=-1)",
    "after": "pass",
    "product": "q @ k.transpose(-2, -1)",
    "mix": "weights @ v",
    "join": "y.transpose(1, 2).reshape(b, n, h * d)",
    "out": "{O}(y)",
}
MULTIPLY = "weights = weights * torch.ones(n, n).tril()"
# A mistake: the codes that name it, and the slots that are written differently.
MISTAKES: tuple[tuple[str, dict[str, str]], ...] = (
    ("missing-scale", {"scale": ""}),
    ("scale-twice", {"scale": " / d"}),
    ("scale-d-model", {"scale": " / math.sqrt(h * d)"}),
    ("wrong-scale", {"scale": " * math.sqrt(d)"}),
    ("softmax-axis", {"softmax": "weights = torch.softmax(scores, dim=-2)"}),
    ("softmax-axis", {"softmax": "weights = torch.softmax(scores, dim=1)"}),
    ("softmax-twice", {"softmax": "weights = torch.softmax(torch.softmax(scores, dim=-1), dim=-1)"}),
    ("no-softmax", {"softmax": "weights = scores.nan_to_num(0.0, neginf=0.0)"}),
    ("causal-leak", {"mask": "pass"}),
    ("sees-one-ahead", {"mask": SLOTS["mask"].replace("triu(1)", "triu(2)")}),
    ("mask-weak", {"mask": SLOTS["mask"].replace("float('-inf')", "0.0")}),
    ("mask-after-softmax", {"mask": "pass", "after": MULTIPLY}),
    ("heads-mixed", {"join": "y.reshape(b, n, h * d)"}),
    ("missing-output-projection", {"out": "y"}),
    ("parts-swapped projection-unused", {"mix": "weights @ k"}),
    ("scores-unused", {"mix": "v"}),
    ("dropout-in-eval", {"after": "weights = F.dropout(weights, 0.3)"}),
)


@dataclass(frozen=True)
class Style:
    """How a module makes its projections and q, k and v, what its output projection is, and its signature."""

    name: str
    made: str
    parts: str
    out: str
    take: str = "x"
    given: str = "width=32, heads=4"
    before: str = "pass"
    added: str = ""

    def source(self, **slots: str) -> str:
        """The module as text, with some slots filled in differently."""
        filled = SLOTS | slots
        return TEMPLATE.format(
            given=self.given, made=_indented(self.made), take=self.take, x=self.take.split(",")[0],
            before=self.before, parts=_indented(self.parts), added=self.added,
            **{**filled, "out": filled["out"].format(O=self.out)},
        )  # fmt: skip


TEMPLATE = """
import math

import torch
from torch import nn
from torch.nn import functional as F


class CausalAttention(nn.Module):
    def __init__(self, {given}):
        super().__init__()
        self.n_head = heads
        {made}

    def forward(self, {take}):
        b, n, c = {x}.shape
        h = self.n_head
        {before}
        {parts}
        d = q.shape[-1]
        scores = {product}{scale}{added}
        {mask}
        {softmax}
        {after}
        y = {mix}
        y = {join}
        return {out}
"""


def _indented(text: str) -> str:
    return "\n        ".join(text.strip().splitlines())


def _apart(q: str, k: str, v: str, o: str, x: str = "x", **more: str) -> dict[str, str]:
    """Three projections and one for the output, under any names."""
    names = [(name, f"self.{name} = nn.Linear(width, width)") for name in (q, k, v, o)]
    split = "{} = self.{}({}).view(b, n, h, -1).transpose(1, 2)"
    parts = [split.format(letter, name, x) for letter, name in zip("qkv", (q, k, v), strict=True)]
    return {
        "made": "\n".join(line for _, line in names), "parts": "\n".join(parts), "out": f"self.{o}", "take": x, **more
    }  # fmt: skip


def _fused(name: str, o: str, parts: str, **more: str) -> dict[str, str]:
    made = f"self.{name} = nn.Linear(width, 3 * width)\nself.{o} = nn.Linear(width, width)"
    return {"made": made, "parts": parts.replace("FUSED", f"self.{name}(x)"), "out": f"self.{o}", **more}


HEADS = "q, k, v = (y.view(b, n, h, -1).transpose(1, 2) for y in (q, k, v))"
STYLES = (
    Style("W_query", **_apart("W_query", "W_key", "W_value", "out_proj")),
    Style("w_qs", **_apart("w_qs", "w_ks", "w_vs", "fc")),
    Style("proj_q", **_apart("proj_q", "proj_k", "proj_v", "linear")),
    Style("lin_q", **_apart("lin_q", "lin_k", "lin_v", "lin_out", x="inputs")),
    Style("query_layer", **_apart("query_layer", "key_layer", "value_layer", "dense", x="hidden_states")),
    Style("toqueries", **_apart("toqueries", "tokeys", "tovalues", "unifyheads")),
    Style("fc_q", **_apart("fc_q", "fc_k", "fc_v", "fc_o", x="tokens")),
    Style("wq", **_apart("wq", "wk", "wv", "wo")),
    Style("k_first", **_apart("key", "query", "value", "c_proj").copy() | {
        "parts": "k = self.key(x).view(b, n, h, -1).transpose(1, 2)\n"
        "q = self.query(x).view(b, n, h, -1).transpose(1, 2)\nv = self.value(x).view(b, n, h, -1).transpose(1, 2)"
    }),
    Style("c_attn", **_fused("c_attn", "c_proj", f"q, k, v = FUSED.split(c, dim=2)\n{HEADS}")),
    Style("qkv_permuted", **_fused("qkv", "proj", "q, k, v = FUSED.reshape(b, n, 3, h, -1).permute(2, 0, 3, 1, 4)")),
    Style("by_head", **_fused(
        "query_key_value", "dense", "q, k, v = FUSED.view(b, n, h, -1).transpose(1, 2).chunk(3, dim=-1)")),
    Style("order_vkq", **_fused("mixer", "head", f"v, k, q = FUSED.chunk(3, dim=-1)\n{HEADS}")),
    Style("prenorm", **_fused("to_qkv", "to_out", f"q, k, v = FUSED.chunk(3, dim=-1)\n{HEADS}")
          | {"before": "x = F.layer_norm(x, (c,))"}),
    Style("kv_fused", made="self.to_q = nn.Linear(width, width, bias=False)\n"
          "self.to_kv = nn.Linear(width, 2 * width, bias=False)\nself.to_out = nn.Sequential(nn.Linear(width, width))",
          parts=f"q, (k, v) = self.to_q(x), self.to_kv(x).chunk(2, dim=-1)\n{HEADS}", out="self.to_out"),
    Style("list_of_three", made="self.linears = nn.ModuleList([nn.Linear(width, width) for _ in range(4)])",
          parts=f"q, k, v = (layer(x) for layer in self.linears[:3])\n{HEADS}", out="self.linears[-1]"),
    Style("einsum", made="shape = (width, heads, width // heads)\n"
          "self.kernel_q, self.kernel_k, self.kernel_v = (nn.Parameter(torch.randn(shape)) for _ in range(3))\n"
          "self.kernel_o = nn.Linear(width, width)",
          parts="q, k, v = (torch.einsum('bnc,chd->bhnd', x, w) for w in (self.kernel_q, self.kernel_k, self.kernel_v))",
          out="self.kernel_o"),
    Style("bare_matrices", made="self.Wq, self.Wk, self.Wv = (nn.Parameter(torch.randn(width, width)) for _ in range(3))\n"
          "self.Wo = nn.Parameter(torch.randn(width, width))",
          parts=f"q, k, v = x @ self.Wq, x @ self.Wk, x @ self.Wv\n{HEADS}", out="(lambda y: y @ self.Wo)"),
    Style("one_head_each", made="sizes = [(width, width // heads)] * heads\n"
          "self.qs, self.ks, self.vs = (nn.ModuleList(nn.Linear(*s) for s in sizes) for _ in range(3))\n"
          "self.mix = nn.Linear(width, width)",
          parts="q, k, v = (torch.stack([f(x) for f in fs], 1) for fs in (self.qs, self.ks, self.vs))", out="self.mix"),
    Style("low_rank", made="self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))\n"
          "self.down, self.up = nn.Linear(width, 3, bias=False), nn.Linear(3, width, bias=False)",
          parts=f"q, k, v = self.q(x) + 0.5 * self.up(self.down(x)), self.k(x), self.v(x)\n{HEADS}", out="self.o"),
    Style("three_inputs", **_apart("q_linear", "k_linear", "v_linear", "out").copy()
          | {"take": "q, k, v", "before": "x, y, z = q, k, v",
             "parts": "q = self.q_linear(x).view(b, n, h, -1).transpose(1, 2)\n"
             "k = self.k_linear(y).view(b, n, h, -1).transpose(1, 2)\n"
             "v = self.v_linear(z).view(b, n, h, -1).transpose(1, 2)"}),
    Style("keyword_only", **_apart("query", "key", "value", "output", x="x")
          | {"take": "x, *, past_key_value=None, output_attentions=False"}),
    Style("with_positions", **_apart("q_proj", "k_proj", "v_proj", "o_proj", x="x") | {"take": "x, start_pos, freqs_cis"}),
    Style("lazy_layers", made="self.W_q, self.W_k, self.W_v, self.W_o = (nn.LazyLinear(width, bias=False) for _ in range(4))",
          parts=f"q, k, v = self.W_q(x), self.W_k(x), self.W_v(x)\n{HEADS}", out="self.W_o"),
    Style("position_table", **_fused("qkv", "proj", f"q, k, v = FUSED.chunk(3, dim=-1)\n{HEADS}")
          | {"made": "self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)\n"
             "self.bias_table = nn.Parameter(torch.zeros(heads, 64, 64))", "added": " + self.bias_table[:, :n, :n]"}),
    Style("kernels_of_heads", given="features=32, groups=4, heads=None", made="d = features // groups\n"
          "self.q, self.k, self.v = (nn.Parameter(torch.randn(features, groups, d) / 6) for _ in range(3))\n"
          "self.out = nn.Parameter(torch.randn(groups, d, features) / 6)",
          parts="q, k, v = (torch.einsum('bnf,fhd->bhnd', x, w) for w in (self.q, self.k, self.v))\nh = q.shape[1]",
          out="(lambda y: torch.einsum('bnhd,hdf->bnf', y.unflatten(-1, (h, -1)), self.out))"),
    Style("channels_first", made="self.to_qkv = nn.Conv1d(width, 3 * width, 1)\nself.to_out = nn.Conv1d(width, width, 1)",
          before="b, c, n = x.shape", parts="q, k, v = self.to_qkv(x).view(b, 3, h, -1, n).transpose(-2, -1).unbind(1)",
          out="(lambda y: self.to_out(y.transpose(1, 2)))"),
    Style("gate_of_zero", **_apart("to_q", "to_k", "to_v", "to_out")
          | {"made": "self.to_q, self.to_k, self.to_v, self.to_out = (nn.Linear(width, width) for _ in range(4))\n"
             "self.gamma = nn.Parameter(torch.zeros(1))", "out": "(lambda y: x + self.gamma * self.to_out(y))"}),
)  # fmt: skip


def variants() -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Every style, healthy and with each mistake: a name, the codes that name the mistake, and the text."""
    for style in STYLES:
        yield f"{style.name} healthy", (), style.source()
        for number, (codes, slots) in enumerate(MISTAKES):
            yield f"{style.name} {codes.split()[0]} {number}", tuple(codes.split()), style.source(**slots)
