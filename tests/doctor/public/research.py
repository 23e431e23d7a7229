"""Research code: many options of one class, memories, sparse and linear forms, gates, differences."""

# ruff: noqa: E501, E741

from __future__ import annotations

import math

import torch
from torch import einsum, nn
from torch.nn import functional as F


class Inner(nn.Module):
    """Projections called to_q, to_k, to_v and to_out; subclasses say what becomes of q, k and v."""

    def __init__(self, dim=48, heads=4, dim_head=12):
        super().__init__()
        self.heads, self.scale = heads, dim_head**-0.5
        self.to_q, self.to_k = (
            nn.Linear(dim, heads * dim_head, bias=False),
            nn.Linear(dim, heads * dim_head, bias=False),
        )
        self.to_v, self.to_out = (
            nn.Linear(dim, heads * dim_head, bias=False),
            nn.Linear(heads * dim_head, dim, bias=False),
        )

    def split(self, x):
        return (
            f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.to_q, self.to_k, self.to_v)
        )

    def merge(self, out):
        return self.to_out(out.transpose(1, 2).flatten(2))


class KeyMask(Inner):
    """A mask by key, and memory keys that it never hides."""

    def forward(self, x, context=None, mask=None):
        q = self.to_q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        kv_input = x if context is None else context
        k, v = (f(kv_input).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.to_k, self.to_v))
        sim = einsum("b h i d, b h j d -> b h i j", q, k) * self.scale
        if mask is not None:
            sim = sim.masked_fill(~mask[:, None, None, :], -torch.finfo(sim.dtype).max)
        sim = sim - sim.amax(dim=-1, keepdim=True).detach()
        return self.merge(einsum("b h i j, b h j d -> b h i d", sim.softmax(dim=-1), v))


class NullKey(Inner):
    """A learnt key and value that every query may look at."""

    def __init__(self, dim=48, heads=4, dim_head=12):
        super().__init__(dim, heads, dim_head)
        self.null_kv = nn.Parameter(torch.randn(2, heads, 1, dim_head))

    def forward(self, x):
        q, k, v = self.split(x)
        null_k, null_v = (t.expand(x.shape[0], -1, -1, -1) for t in self.null_kv.unbind(0))
        k, v = torch.cat((null_k, k), dim=-2), torch.cat((null_v, v), dim=-2)
        return self.merge((q @ k.mT * self.scale).softmax(-1) @ v)


class TopKAttention(Inner):
    """Only the largest scores of a row take part."""

    sparse_topk = 2

    def forward(self, x):
        q, k, v = self.split(x)
        sim = q @ k.mT * self.scale
        vk = sim.topk(self.sparse_topk, dim=-1).values[..., -1:]
        sim = sim.masked_fill(sim < vk, -torch.finfo(sim.dtype).max)
        return self.merge(sim.softmax(-1) @ v)


def topk_attention(q, k, v, topk=3):
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    kth = torch.topk(scores, topk, dim=-1)[0][..., -1, None]
    scores = torch.where(scores < kth, float("-inf"), scores)
    return torch.softmax(scores, dim=-1) @ v


def nucleus_attention(query, key, value):
    """Keys of less than a tenth of a row's largest weight are left out."""
    attn = torch.softmax(query @ key.transpose(-2, -1) / math.sqrt(query.size(-1)), dim=-1)
    attn = torch.where(attn < 0.1 * attn.amax(-1, keepdim=True), 0.0, attn)
    return (attn / attn.sum(-1, keepdim=True)) @ value


class RectifiedAttention(Inner):
    def forward(self, x):
        q, k, v = self.split(x)
        return self.merge(F.relu(q @ k.mT * self.scale) ** 2 / x.shape[1] @ v)


class SigmoidAttention(Inner):
    def forward(self, x):
        q, k, v = self.split(x)
        attn = torch.sigmoid(q @ k.mT * self.scale - math.log(x.shape[1]))
        return self.merge(attn @ v)


class LinearAttention(Inner):
    def forward(self, x):
        q, k, v = self.split(x)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        context = einsum("b h n d, b h n e -> b h d e", k, v)
        norm = 1 / (einsum("b h n d, b h d -> b h n", q, k.sum(dim=-2)) + 1e-6)
        return self.merge(einsum("b h d e, b h n d, b h n -> b h n e", context, q, norm))


class EfficientAttention(Inner):
    """Softmax of queries over channels and of keys over the length: no map at all."""

    def forward(self, x):
        q, k, v = self.split(x)
        q, k = q.softmax(dim=-1) * self.scale, k.softmax(dim=-2)
        return self.merge(q @ (k.mT @ v))


class DifferentialAttention(nn.Module):
    def __init__(self, embed_dim=32, num_heads=2, lambda_init=0.8):
        super().__init__()
        self.num_heads, self.head_dim, self.lambda_init = num_heads, embed_dim // num_heads // 2, lambda_init
        self.q_proj, self.k_proj = nn.Linear(embed_dim, embed_dim), nn.Linear(embed_dim, embed_dim)
        self.v_proj, self.out_proj = nn.Linear(embed_dim, embed_dim), nn.Linear(embed_dim, embed_dim)
        self.lambda_q1, self.lambda_k1 = (nn.Parameter(torch.randn(self.head_dim) * 0.1) for _ in range(2))

    def forward(self, x):
        b, n, _ = x.shape
        q = self.q_proj(x).view(b, n, 2 * self.num_heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(b, n, 2 * self.num_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(b, n, self.num_heads, 2 * self.head_dim).transpose(1, 2)
        a = torch.softmax(q @ k.mT * self.head_dim**-0.5, -1).view(b, self.num_heads, 2, n, n)
        lam = torch.exp((self.lambda_q1 * self.lambda_k1).sum()) + self.lambda_init
        out = (a[:, :, 0] - lam * a[:, :, 1]) @ v
        return self.out_proj(out.transpose(1, 2).reshape(b, n, -1))


class AdditiveScores(nn.Module):
    def __init__(self, num_hiddens=32):
        super().__init__()
        self.W_q, self.W_k = (
            nn.Linear(num_hiddens, num_hiddens, bias=False),
            nn.Linear(num_hiddens, num_hiddens, bias=False),
        )
        self.w_v = nn.Linear(num_hiddens, 1, bias=False)

    def forward(self, queries, keys, values):
        features = torch.tanh(self.W_q(queries).unsqueeze(2) + self.W_k(keys).unsqueeze(1))
        return torch.bmm(F.softmax(self.w_v(features).squeeze(-1), dim=-1), values)


class RelativeKeys(Inner):
    """Shaw's: a learnt vector for each distance is added to the keys."""

    def __init__(self, dim=48, heads=4, dim_head=12, max_len=32):
        super().__init__(dim, heads, dim_head)
        self.rel = nn.Embedding(2 * max_len + 1, dim_head)
        self.max_len = max_len

    def forward(self, x):
        q, k, v = self.split(x)
        i = torch.arange(x.shape[1])
        table = self.rel(i[None, :] - i[:, None] + self.max_len)
        sim = (q @ k.mT + einsum("bhid,ijd->bhij", q, table)) * self.scale
        return self.merge(sim.softmax(-1) @ v)


class Retention(Inner):
    def forward(self, x):
        q, k, v = self.split(x)
        i = torch.arange(x.shape[1])
        gamma = 1 - 2.0 ** (-5 - torch.arange(self.heads).float())
        decay = (gamma[:, None, None] ** (i[:, None] - i[None, :]).clamp(min=0)).tril()
        return self.merge((q @ k.mT * self.scale * decay) @ v)


class HeadScale(Inner):
    """NormFormer: each head's result times a learnt number."""

    def __init__(self, dim=48, heads=4, dim_head=12):
        super().__init__(dim, heads, dim_head)
        self.head_scale_params = nn.Parameter(torch.ones(1, heads, 1, 1))

    def forward(self, x):
        q, k, v = self.split(x)
        sim = q @ k.mT * self.scale
        out = sim.softmax(-1) @ v
        return self.merge(out * self.head_scale_params)


class ChunkedQueries(Inner):
    """Query by query in chunks: less memory, the same result."""

    def forward(self, x):
        q, k, v = self.split(x)
        q = q * self.scale
        out = [(chunk @ k.mT).softmax(-1) @ v for chunk in q.split(2, dim=-2)]
        return self.merge(torch.cat(out, dim=-2))


class OnlineSoftmax(Inner):
    """Key by key in chunks with a running maximum."""

    def forward(self, x):
        q, k, v = self.split(x)
        m = q.new_full((*q.shape[:-1], 1), -torch.inf)
        total, acc = torch.zeros_like(m), torch.zeros_like(q)
        for kc, vc in zip(k.split(2, dim=-2), v.split(2, dim=-2), strict=True):
            s = q @ kc.mT * self.scale
            new = torch.maximum(m, s.amax(-1, keepdim=True))
            p, shrink = (s - new).exp(), (m - new).exp()
            total, acc, m = total * shrink + p.sum(-1, keepdim=True), acc * shrink + p @ vc, new
        return self.merge(acc / total)


class LowRankUpdate(nn.Module):
    """LoRA on q and v of a fused product."""

    def __init__(self, dim=32, num_heads=4, r=4):
        super().__init__()
        self.dim, self.num_heads = dim, num_heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.linear_a_q, self.linear_b_q = nn.Linear(dim, r, bias=False), nn.Linear(r, dim, bias=False)
        self.linear_a_v, self.linear_b_v = nn.Linear(dim, r, bias=False), nn.Linear(r, dim, bias=False)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).clone()
        qkv[:, :, : self.dim] += self.linear_b_q(self.linear_a_q(x))
        qkv[:, :, -self.dim :] += self.linear_b_v(self.linear_a_v(x))
        q, k, v = qkv.reshape(B, N, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        attn = (q @ k.transpose(-2, -1) * (C // self.num_heads) ** -0.5).softmax(-1)
        return self.proj((attn @ v).transpose(1, 2).reshape(B, N, C))


class SetAttention(nn.Module):
    """A set's block: heads split and joined through the batch, the query added."""

    def __init__(self, dim_Q=32, dim_K=32, dim_V=32, num_heads=4):
        super().__init__()
        self.dim_V, self.num_heads = dim_V, num_heads
        self.fc_q, self.fc_k = nn.Linear(dim_Q, dim_V), nn.Linear(dim_K, dim_V)
        self.fc_v, self.fc_o = nn.Linear(dim_K, dim_V), nn.Linear(dim_V, dim_V)

    def forward(self, Q, K):
        Q, K, V = self.fc_q(Q), self.fc_k(K), self.fc_v(K)
        dim_split = self.dim_V // self.num_heads
        Q_, K_, V_ = (torch.cat(t.split(dim_split, 2), 0) for t in (Q, K, V))
        A = torch.softmax(Q_.bmm(K_.transpose(1, 2)) / math.sqrt(dim_split), 2)
        O = torch.cat((Q_ + A.bmm(V_)).split(Q.size(0), 0), 2)
        return O + F.relu(self.fc_o(O))


class ManyKeys(Inner):
    """Top-k with so many keys that a short input never shows it."""

    def forward(self, x):
        q, k, v = self.split(x)
        sim = q @ k.mT * self.scale
        vk = sim.topk(min(32, sim.shape[-1]), dim=-1).values[..., -1:]
        return self.merge(sim.masked_fill(sim < vk, -torch.inf).softmax(-1) @ v)


class LongWindow(Inner):
    """A window that is wider than a short input."""

    def forward(self, x):
        q, k, v = self.split(x)
        i = torch.arange(x.shape[1])
        far = (i[:, None] - i[None, :]).abs() > 16
        return self.merge((q @ k.mT * self.scale).masked_fill(far, -torch.inf).softmax(-1) @ v)


class IdleMask(Inner):
    """A mask is part of the interface; the code never reads it."""

    def forward(self, x, mask=None):
        q, k, v = self.split(x)
        return self.merge((q @ k.mT * self.scale).softmax(-1) @ v)


class OneAtATime(Inner):
    """Causal while it reads, and without a mask as soon as there is a cache."""

    def forward(self, x, past_kv=None):
        q, k, v = self.split(x)
        if past_kv is not None:
            k, v = torch.cat([past_kv[0], k], dim=2), torch.cat([past_kv[1], v], dim=2)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=past_kv is None)
        return self.merge(out), (k, v)


class HeadwiseGate(Inner):
    """One gate for each head and token."""

    def __init__(self, dim=48, heads=4, dim_head=12):
        super().__init__(dim, heads, dim_head)
        self.to_gates = nn.Linear(dim, heads)

    def forward(self, x):
        q, k, v = self.split(x)
        out = (q @ k.mT * self.scale).softmax(-1) @ v
        return self.merge(out * self.to_gates(x).sigmoid().transpose(1, 2)[..., None])


OTHER = (
    "ManyKeys",
    "NullKey", "TopKAttention", "topk_attention", "nucleus_attention", "RectifiedAttention", "SigmoidAttention",
    "LinearAttention", "EfficientAttention", "DifferentialAttention", "AdditiveScores", "RelativeKeys", "Retention",
)  # fmt: skip
BROKEN = (
    ("KeyMask", "missing-scale", " * self.scale", ""),
    ("KeyMask", "padding-leak", "~mask[:, None, None, :]", "~mask[:, None, :, None]"),
    ("KeyMask", "mask-ignored", "sim = sim.masked_fill(", "_ = sim.masked_fill("),
    ("HeadScale", "no-softmax", "sim.softmax(-1)", "sim"),
    ("HeadScale", "scale-after-softmax", "sim = q @ k.mT * self.scale\n        out = sim.softmax(-1) @ v", "sim = q @ k.mT\n        out = sim.softmax(-1) * self.scale @ v"),
    ("ChunkedQueries", "missing-scale", "q = q * self.scale", "q = q"),
    ("ChunkedQueries", "heads-mixed", "return self.merge(torch.cat(out, dim=-2))", "return self.to_out(torch.cat(out, dim=-2).reshape(x.shape[0], x.shape[1], -1))"),
    ("OnlineSoftmax", "no-softmax", "acc / total", "acc"),
    ("OnlineSoftmax", "wrong-scale", "* self.scale", "/ self.scale"),
    ("LowRankUpdate", "softmax-axis", "(C // self.num_heads) ** -0.5).softmax(-1)", "(C // self.num_heads) ** -0.5).softmax(1)"),
    ("LowRankUpdate", "scale-d-model", "(C // self.num_heads) ** -0.5", "C ** -0.5"),
    ("SetAttention", "scale-d-model", "math.sqrt(dim_split)", "math.sqrt(self.dim_V)"),
)  # fmt: skip
