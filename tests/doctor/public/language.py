"""Language models: Llama and its relatives, Megatron, GPT-NeoX, StarCoder, MLA, ALiBi, caches."""

# ruff: noqa: E501

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F


def apply_rotary_emb(xq, xk, freqs_cis):
    xq_ = torch.view_as_complex(xq.float().reshape(*xq.shape[:-1], -1, 2))
    xk_ = torch.view_as_complex(xk.float().reshape(*xk.shape[:-1], -1, 2))
    freqs_cis = freqs_cis.view(1, xq_.shape[1], 1, xq_.shape[-1])
    xq_out = torch.view_as_real(xq_ * freqs_cis).flatten(3)
    xk_out = torch.view_as_real(xk_ * freqs_cis).flatten(3)
    return xq_out.type_as(xq), xk_out.type_as(xk)


def repeat_kv(x, n_rep):
    bs, slen, n_kv_heads, head_dim = x.shape
    return x[:, :, :, None, :].expand(bs, slen, n_kv_heads, n_rep, head_dim).reshape(bs, slen, -1, head_dim)


class GroupedAttention(nn.Module):
    """Complex angles from outside, key heads repeated, caches of a fixed size."""

    def __init__(self, dim=32, n_heads=4, n_kv_heads=2, max_batch_size=4, max_seq_len=32):
        super().__init__()
        self.n_kv_heads, self.n_local_heads, self.head_dim = n_kv_heads, n_heads, dim // n_heads
        self.n_rep = n_heads // n_kv_heads
        self.wq = nn.Linear(dim, n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(n_heads * self.head_dim, dim, bias=False)
        self.cache_k = torch.zeros(max_batch_size, max_seq_len, n_kv_heads, self.head_dim)
        self.cache_v = torch.zeros(max_batch_size, max_seq_len, n_kv_heads, self.head_dim)

    def forward(self, x, start_pos, freqs_cis, mask):
        bsz, seqlen, _ = x.shape
        xq, xk, xv = self.wq(x), self.wk(x), self.wv(x)
        xq = xq.view(bsz, seqlen, self.n_local_heads, self.head_dim)
        xk = xk.view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        xv = xv.view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        xq, xk = apply_rotary_emb(xq, xk, freqs_cis)
        self.cache_k = self.cache_k.to(xq)
        self.cache_k[:bsz, start_pos : start_pos + seqlen] = xk
        self.cache_v[:bsz, start_pos : start_pos + seqlen] = xv
        keys, values = self.cache_k[:bsz, : start_pos + seqlen], self.cache_v[:bsz, : start_pos + seqlen]
        keys, values = repeat_kv(keys, self.n_rep), repeat_kv(values, self.n_rep)
        xq, keys, values = (t.transpose(1, 2) for t in (xq, keys, values))
        scores = torch.matmul(xq, keys.transpose(2, 3)) / math.sqrt(self.head_dim)
        if mask is not None:
            scores = scores + mask
        scores = F.softmax(scores.float(), dim=-1).type_as(xq)
        output = torch.matmul(scores, values).transpose(1, 2).contiguous().view(bsz, seqlen, -1)
        return self.wo(output)


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


class EagerAttention(nn.Module):
    """Half rotations, (cos, sin) as one argument, an additive mask, a pair of tensors as its past."""

    def __init__(self, hidden_size=32, num_heads=4, num_key_value_heads=2):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, hidden_size // num_heads
        self.num_key_value_groups, self.scaling = num_heads // num_key_value_heads, self.head_dim**-0.5
        self.q_proj = nn.Linear(hidden_size, num_heads * self.head_dim)
        self.k_proj = nn.Linear(hidden_size, num_key_value_heads * self.head_dim)
        self.v_proj = nn.Linear(hidden_size, num_key_value_heads * self.head_dim)
        self.o_proj = nn.Linear(num_heads * self.head_dim, hidden_size, bias=False)

    def forward(self, hidden_states, position_embeddings, attention_mask=None, past_key_value=None):
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        query_states = self.q_proj(hidden_states).view(shape).transpose(1, 2)
        key_states = self.k_proj(hidden_states).view(shape).transpose(1, 2)
        value_states = self.v_proj(hidden_states).view(shape).transpose(1, 2)
        cos, sin = position_embeddings
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        query_states = query_states * cos + rotate_half(query_states) * sin
        key_states = key_states * cos + rotate_half(key_states) * sin
        key_states = torch.repeat_interleave(key_states, self.num_key_value_groups, dim=1)
        value_states = torch.repeat_interleave(value_states, self.num_key_value_groups, dim=1)
        attn_weights = torch.matmul(query_states, key_states.transpose(2, 3)) * self.scaling
        if attention_mask is not None:
            attn_weights = attn_weights + attention_mask[:, :, :, : key_states.shape[-2]]
        attn_weights = F.softmax(attn_weights, dim=-1, dtype=torch.float32).to(query_states.dtype)
        attn_output = torch.matmul(attn_weights, value_states).transpose(1, 2).contiguous()
        return self.o_proj(attn_output.reshape(*hidden_states.shape[:-1], -1)), attn_weights


class CosSinAttention(nn.Module):
    """A teaching Llama's: (x, mask, cos, sin), True blocks."""

    def __init__(self, d_in=32, d_out=32, num_heads=4, num_kv_groups=2):
        super().__init__()
        self.num_heads, self.num_kv_groups, self.head_dim = num_heads, num_kv_groups, d_out // num_heads
        self.group_size = num_heads // num_kv_groups
        self.W_key = nn.Linear(d_in, num_kv_groups * self.head_dim, bias=False)
        self.W_value = nn.Linear(d_in, num_kv_groups * self.head_dim, bias=False)
        self.W_query = nn.Linear(d_in, d_out, bias=False)
        self.out_proj = nn.Linear(d_out, d_out, bias=False)

    def forward(self, x, mask, cos, sin):
        b, num_tokens, _ = x.shape
        queries = self.W_query(x).view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)
        keys = self.W_key(x).view(b, num_tokens, self.num_kv_groups, self.head_dim).transpose(1, 2)
        values = self.W_value(x).view(b, num_tokens, self.num_kv_groups, self.head_dim).transpose(1, 2)
        queries = queries * cos[:num_tokens] + rotate_half(queries) * sin[:num_tokens]
        keys = keys * cos[:num_tokens] + rotate_half(keys) * sin[:num_tokens]
        keys = keys.repeat_interleave(self.group_size, dim=1)
        values = values.repeat_interleave(self.group_size, dim=1)
        attn_scores = queries @ keys.transpose(2, 3)
        attn_scores = attn_scores.masked_fill(mask, -torch.inf)
        attn_weights = torch.softmax(attn_scores / self.head_dim**0.5, dim=-1)
        context_vec = (attn_weights @ values).transpose(1, 2).reshape(b, num_tokens, -1)
        return self.out_proj(context_vec)


class CoreAttention(nn.Module):
    """A parallel trainer's core, (length, batch, heads, dim), True blocks, the heads side by side at the end."""

    def __init__(self, hidden_size_per_attention_head=8):
        super().__init__()
        self.norm_factor = math.sqrt(hidden_size_per_attention_head)

    def forward(self, query_layer, key_layer, value_layer, attention_mask):
        sq, b, np, hn = query_layer.shape
        sk = key_layer.shape[0]
        query_layer = query_layer.reshape(sq, b * np, hn)
        key_layer = key_layer.reshape(sk, b * np, hn)
        empty = torch.empty(b * np, sq, sk, dtype=query_layer.dtype)
        scores = torch.baddbmm(
            empty,
            query_layer.transpose(0, 1),
            key_layer.permute(1, 2, 0),
            beta=0.0,
            alpha=1.0 / self.norm_factor,
        )
        scores = scores.view(b, np, sq, sk).masked_fill(attention_mask, -10000.0)
        probs = F.softmax(scores, dim=-1).view(b * np, sq, sk)
        value_layer = value_layer.reshape(sk, b * np, hn)
        context_layer = torch.bmm(probs, value_layer.transpose(0, 1)).view(b, np, sq, hn)
        return context_layer.permute(2, 0, 1, 3).contiguous().view(sq, b, np * hn)


class FusedByHead(nn.Module):
    """q, k and v of each head side by side in one product; rotary on a quarter of each head; causal buffer."""

    def __init__(self, hidden_size=64, num_attention_heads=4, rotary_pct=0.25):
        super().__init__()
        self.num_attention_heads, self.head_size = num_attention_heads, hidden_size // num_attention_heads
        self.rotary_ndims = int(self.head_size * rotary_pct)
        self.register_buffer(
            "bias", torch.tril(torch.ones(64, 64, dtype=torch.bool))[None, None], persistent=False
        )
        inv_freq = 10000 ** (-torch.arange(0, self.rotary_ndims, 2).float() / self.rotary_ndims)
        self.register_buffer("inv_freq", inv_freq, persistent=False)
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)

    def _rotate(self, x):
        turns = torch.outer(torch.arange(x.shape[-2]), self.inv_freq)
        emb = torch.cat((turns, turns), dim=-1)
        rot, rest = x[..., : self.rotary_ndims], x[..., self.rotary_ndims :]
        return torch.cat((rot * emb.cos() + rotate_half(rot) * emb.sin(), rest), dim=-1)

    def forward(self, hidden_states, head_mask=None):
        b, n, _ = hidden_states.shape
        qkv = self.query_key_value(hidden_states).view(b, n, self.num_attention_heads, 3 * self.head_size)
        query, key, value = qkv.transpose(1, 2).chunk(3, dim=-1)
        query, key = self._rotate(query), self._rotate(key)
        attn_scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(self.head_size)
        mask_value = torch.finfo(attn_scores.dtype).min
        attn_scores = torch.where(self.bias[:, :, :n, :n], attn_scores, mask_value)
        attn_output = torch.matmul(F.softmax(attn_scores, dim=-1), value)
        return self.dense(attn_output.permute(0, 2, 1, 3).contiguous().view(b, n, -1))


class OneKeyHead(nn.Module):
    """Multi-query: one key head for all, one product for all three, a cache of (past, new)."""

    def __init__(self, n_embd=32, n_head=4, block_size=64):
        super().__init__()
        self.n_embd, self.n_head, self.head_dim = n_embd, n_head, n_embd // n_head
        self.c_attn, self.c_proj = nn.Linear(n_embd, n_embd + 2 * self.head_dim), nn.Linear(n_embd, n_embd)
        self.register_buffer("bias", torch.tril(torch.ones(block_size, block_size, dtype=torch.bool)))

    def forward(self, x, layer_past=None, use_cache=False):
        B, T, _ = x.shape
        query, key_value = self.c_attn(x).split((self.n_embd, 2 * self.head_dim), dim=2)
        if layer_past is not None:
            key_value = torch.cat((layer_past, key_value), dim=-2)
        present = key_value if use_cache else None
        key, value = key_value.split((self.head_dim, self.head_dim), dim=-1)
        query = query.view(B, T, self.n_head, self.head_dim).transpose(1, 2).reshape(B, -1, self.head_dim)
        att = torch.bmm(query, key.transpose(1, 2)).view(B, self.n_head, T, -1) / math.sqrt(self.head_dim)
        S = key.shape[1]
        att = att.masked_fill(~self.bias[S - T : S, :S], float("-inf")).softmax(-1)
        y = torch.bmm(att.view(B, self.n_head * T, S), value).view(B, self.n_head, T, -1)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, -1)), present


class LatentAttention(nn.Module):
    """Keys and values from a narrow latent; rotary on a part of the width that all heads share."""

    def __init__(
        self, dim=32, n_heads=4, kv_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6
    ):
        super().__init__()
        self.n_heads, self.kv_lora_rank, self.v_head_dim = n_heads, kv_lora_rank, v_head_dim
        self.qk_nope_head_dim, self.qk_rope_head_dim = qk_nope_head_dim, qk_rope_head_dim
        self.wq = nn.Linear(dim, n_heads * (qk_nope_head_dim + qk_rope_head_dim), bias=False)
        self.wkv_a = nn.Linear(dim, kv_lora_rank + qk_rope_head_dim, bias=False)
        self.kv_norm = nn.RMSNorm(kv_lora_rank)
        self.wkv_b = nn.Linear(kv_lora_rank, n_heads * (qk_nope_head_dim + v_head_dim), bias=False)
        self.wo = nn.Linear(n_heads * v_head_dim, dim, bias=False)
        self.softmax_scale = (qk_nope_head_dim + qk_rope_head_dim) ** -0.5

    def _rotate(self, x):
        turns = 10000 ** (-torch.arange(0, self.qk_rope_head_dim, 2).float() / self.qk_rope_head_dim)
        freqs = torch.outer(torch.arange(x.shape[1]).float(), turns)[None, :, None]
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack(
            [a * freqs.cos() - b * freqs.sin(), a * freqs.sin() + b * freqs.cos()], -1
        ).flatten(-2)

    def forward(self, x):
        bsz, seqlen, _ = x.shape
        q = self.wq(x).view(bsz, seqlen, self.n_heads, -1)
        q_nope, q_pe = q.split([self.qk_nope_head_dim, self.qk_rope_head_dim], dim=-1)
        kv, k_pe = self.wkv_a(x).split([self.kv_lora_rank, self.qk_rope_head_dim], dim=-1)
        q_pe, k_pe = self._rotate(q_pe), self._rotate(k_pe.unsqueeze(2))
        kv = self.wkv_b(self.kv_norm(kv)).view(bsz, seqlen, self.n_heads, -1)
        k_nope, v = kv.split([self.qk_nope_head_dim, self.v_head_dim], dim=-1)
        q, k = torch.cat([q_nope, q_pe], -1), torch.cat([k_nope, k_pe.expand(-1, -1, self.n_heads, -1)], -1)
        scores = torch.einsum("bshd,bthd->bsht", q, k) * self.softmax_scale
        scores = scores + torch.full((seqlen, seqlen), float("-inf")).triu_(1).unsqueeze(1)
        x = torch.einsum("bsht,bthd->bshd", scores.softmax(dim=-1), v)
        return self.wo(x.flatten(2))


class LinearBias(nn.Module):
    """ALiBi: a slope for each head, added to the scores before a causal softmax."""

    def __init__(self, hidden_size=32, n_heads=4):
        super().__init__()
        self.n_heads, self.head_dim = n_heads, hidden_size // n_heads
        self.register_buffer("slopes", torch.tensor([2 ** (-8 * (i + 1) / n_heads) for i in range(n_heads)]))
        self.Wqkv, self.out_proj = (
            nn.Linear(hidden_size, 3 * hidden_size),
            nn.Linear(hidden_size, hidden_size),
        )

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = (t.view(b, s, self.n_heads, -1) for t in self.Wqkv(x).chunk(3, dim=2))
        scores = torch.einsum("bshd,bthd->bhst", q, k) / math.sqrt(self.head_dim)
        distance = torch.arange(s)[None, :] - torch.arange(s)[:, None]
        scores = scores + self.slopes[None, :, None, None] * distance
        causal_mask = torch.triu(torch.full((s, s), -10000.0), 1)
        attention = torch.softmax(scores + causal_mask, dim=-1)
        return self.out_proj(torch.einsum("bhst,bthd->bshd", attention, v).reshape(b, s, -1))


class CachedAttention(nn.Module):
    """(k, v) of earlier tokens come first; rotary positions start behind them."""

    def __init__(self, d_model=32, n_heads=4):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.q_proj, self.k_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.v_proj, self.o_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def rope(self, x, offset):
        half = self.d_head // 2
        freqs = 10000 ** (-torch.arange(half).float() / half)
        angles = torch.outer(torch.arange(offset, offset + x.shape[2]).float(), freqs)
        cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
        return x * cos + rotate_half(x) * sin

    def forward(self, x, kv_cache=None):
        b, n, _ = x.shape
        q, k, v = (
            f(x).view(b, n, self.n_heads, -1).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj)
        )
        past = 0 if kv_cache is None else kv_cache[0].shape[2]
        q, k = self.rope(q, past), self.rope(k, past)
        if kv_cache is not None:
            k, v = torch.cat([kv_cache[0], k], dim=2), torch.cat([kv_cache[1], v], dim=2)
        mask = torch.ones(n, past + n, dtype=torch.bool).tril(diagonal=past)
        scores = q @ k.transpose(-1, -2) * self.d_head**-0.5
        out = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        return self.o_proj(out.transpose(1, 2).reshape(b, n, -1)), (k, v)


class SlidingWindow(nn.Module):
    """Each token sees itself and the three before it."""

    def __init__(self, dim=32, n_heads=4, sliding_window=4):
        super().__init__()
        self.n_heads, self.sliding_window = n_heads, sliding_window
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (w(x).view(b, n, self.n_heads, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        i = torch.arange(n)
        mask = (i[:, None] >= i[None, :]) & (i[:, None] - i[None, :] < self.sliding_window)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.wo(out.transpose(1, 2).reshape(b, n, c))


class CappedScores(nn.Module):
    """Gemma's: scores bounded by a tanh, a scale of its own kind, RMS norms of q and k."""

    def __init__(self, hidden_size=32, num_heads=4, attn_logit_softcapping=20.0):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, hidden_size // num_heads
        self.query_pre_attn_scalar, self.attn_logit_softcapping = self.head_dim, attn_logit_softcapping
        self.q_proj, self.k_proj = nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, hidden_size)
        self.v_proj, self.o_proj = nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states):
        b, n, _ = hidden_states.shape
        q, k, v = (
            f(hidden_states).view(b, n, self.num_heads, -1).transpose(1, 2)
            for f in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores = q @ k.mT * self.query_pre_attn_scalar**-0.5
        scores = torch.tanh(scores / self.attn_logit_softcapping) * self.attn_logit_softcapping
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), torch.finfo(scores.dtype).min)
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, -1))


class SinkAttention(nn.Module):
    """One learnt logit for each head takes part in softmax and has no value."""

    def __init__(self, hidden_size=32, num_heads=4):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, hidden_size // num_heads
        self.sinks = nn.Parameter(torch.zeros(num_heads))
        self.qkv, self.out = nn.Linear(hidden_size, 3 * hidden_size), nn.Linear(hidden_size, hidden_size)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (t.view(b, n, self.num_heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        qk = q @ k.mT * self.head_dim**-0.5 + torch.triu(q.new_full((n, n), -float("inf")), diagonal=1)
        sinks = self.sinks.view(1, -1, 1, 1).expand(b, -1, n, 1)
        w = torch.softmax(torch.cat([qk, sinks], dim=-1), dim=-1)[..., :-1]
        return self.out((w @ v).transpose(1, 2).reshape(b, n, -1))


class GatedAttention(nn.Module):
    """What the heads give, times a sigmoid of the same token, before the output projection."""

    def __init__(self, hidden_size=32, num_heads=4):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, hidden_size // num_heads
        self.q_proj, self.k_proj = nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, hidden_size)
        self.v_proj, self.o_proj = nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, hidden_size)
        self.gate_proj = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states):
        b, n, _ = hidden_states.shape
        q, k, v = (
            f(hidden_states).view(b, n, self.num_heads, -1).transpose(1, 2)
            for f in (self.q_proj, self.k_proj, self.v_proj)
        )
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out = out.transpose(1, 2).reshape(b, n, -1) * torch.sigmoid(self.gate_proj(hidden_states))
        return self.o_proj(out)


OTHER = ("LatentAttention",)
BROKEN = (
    ("GroupedAttention", "gqa-order", "x[:, :, :, None, :].expand(bs, slen, n_kv_heads, n_rep, head_dim)", "x[:, :, None].expand(bs, slen, n_rep, n_kv_heads, head_dim)"),
    ("GroupedAttention", "scale-d-model", "/ math.sqrt(self.head_dim)", "/ math.sqrt(x.shape[-1])"),
    ("CachedAttention", "rotary-mixed", "rotate_half(x) * sin", "torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2) * sin"),
    ("EagerAttention", "rotary-one-side", "key_states = key_states * cos + rotate_half(key_states) * sin", "pass"),
    ("EagerAttention", "missing-scale", " * self.scaling", ""),
    ("CosSinAttention", "mask-inverted", "masked_fill(mask,", "masked_fill(~mask,", {"mask": "blocked"}),
    ("CosSinAttention", "gqa-order", "keys = keys.repeat_interleave(self.group_size, dim=1)", "keys = keys.repeat(1, self.group_size, 1, 1)"),
    ("CoreAttention", "softmax-axis", "F.softmax(scores, dim=-1)", "F.softmax(scores, dim=1)"),
    ("CoreAttention", "missing-scale", "alpha=1.0 / self.norm_factor", "alpha=1.0"),
    ("FusedByHead", "sees-one-ahead", "torch.tril(torch.ones(64, 64, dtype=torch.bool))", "torch.tril(torch.ones(64, 64, dtype=torch.bool), 1)"),
    ("FusedByHead", "rotary-on-values", "query, key = self._rotate(query), self._rotate(key)", "query, key, value = self._rotate(query), self._rotate(key), self._rotate(value)"),
    ("OneKeyHead", "causal-wrong-end", "self.bias[S - T : S, :S]", "self.bias[:T, :S]"),
    ("OneKeyHead", "scale-d-model", "/ math.sqrt(self.head_dim)", "/ math.sqrt(self.n_embd)"),
    ("LatentAttention", "causal-leak", "triu_(1)", "triu_(n)".replace("n", "seqlen")),
    ("LinearBias", "missing-scale", " / math.sqrt(self.head_dim)", ""),
    ("CachedAttention", "rotary-cache-offset", "self.rope(q, past), self.rope(k, past)", "self.rope(q, 0), self.rope(k, 0)"),
    ("CachedAttention", "cache-mismatch", "torch.cat([kv_cache[0], k], dim=2)", "torch.cat([k, kv_cache[0]], dim=2)"),
    ("SlidingWindow", "causal-leak", "(i[:, None] >= i[None, :]) & (i[:, None] - i[None, :] < self.sliding_window)", "(i[:, None] - i[None, :]).abs() < self.sliding_window"),
    ("CappedScores", "missing-scale", " * self.query_pre_attn_scalar**-0.5", ""),
    ("CappedScores", "cannot-see-itself", "triu(1)", "triu(0)"),
)  # fmt: skip
OPTIONS = {"SlidingWindow": {"causal": True}, "LatentAttention": {"causal": True}}
