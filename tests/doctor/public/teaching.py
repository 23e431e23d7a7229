"""Teaching code: the annotated transformer, d2l, labml, minGPT, Whisper, fairseq, Keras and flax in PyTorch."""

# ruff: noqa: E501, RUF059

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def attention(query, key, value, mask=None, dropout=None):
    "Scaled dot product attention"
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    return torch.matmul(p_attn, value), p_attn


class MultiHeadedAttention(nn.Module):
    def __init__(self, h=4, d_model=32):
        super().__init__()
        self.d_k, self.h = d_model // h, h
        self.linears = nn.ModuleList([copy.deepcopy(nn.Linear(d_model, d_model)) for _ in range(4)])

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = mask.unsqueeze(1)
        nbatches = query.size(0)
        query, key, value = [
            lin(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)
            for lin, x in zip(self.linears, (query, key, value), strict=False)
        ]
        x, self.attn = attention(query, key, value, mask=mask)
        x = x.transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)
        return self.linears[-1](x)


def masked_softmax(X, valid_lens):
    if valid_lens is None:
        return F.softmax(X, dim=-1)
    shape = X.shape
    valid_lens = (
        torch.repeat_interleave(valid_lens, shape[1]) if valid_lens.dim() == 1 else valid_lens.reshape(-1)
    )
    X = X.reshape(-1, shape[-1]).clone()
    X[~(torch.arange(X.size(1))[None, :] < valid_lens[:, None])] = -1e6
    return F.softmax(X.reshape(shape), dim=-1)


class DotProductAttention(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None):
        d = queries.shape[-1]
        scores = torch.bmm(queries, keys.transpose(1, 2)) / math.sqrt(d)
        self.attention_weights = masked_softmax(scores, valid_lens)
        return torch.bmm(self.dropout(self.attention_weights), values)


class LensAttention(nn.Module):
    def __init__(self, num_hiddens=32, num_heads=4, dropout=0.0):
        super().__init__()
        self.num_heads, self.attention = num_heads, DotProductAttention(dropout)
        self.W_q, self.W_k = nn.LazyLinear(num_hiddens, bias=False), nn.LazyLinear(num_hiddens, bias=False)
        self.W_v, self.W_o = nn.LazyLinear(num_hiddens, bias=False), nn.LazyLinear(num_hiddens, bias=False)

    def transpose_qkv(self, X):
        X = X.reshape(X.shape[0], X.shape[1], self.num_heads, -1).permute(0, 2, 1, 3)
        return X.reshape(-1, X.shape[2], X.shape[3])

    def transpose_output(self, X):
        X = X.reshape(-1, self.num_heads, X.shape[1], X.shape[2]).permute(0, 2, 1, 3)
        return X.reshape(X.shape[0], X.shape[1], -1)

    def forward(self, queries, keys, values, valid_lens):
        queries, keys = self.transpose_qkv(self.W_q(queries)), self.transpose_qkv(self.W_k(keys))
        values = self.transpose_qkv(self.W_v(values))
        if valid_lens is not None:
            valid_lens = torch.repeat_interleave(valid_lens, repeats=self.num_heads, dim=0)
        return self.W_o(self.transpose_output(self.attention(queries, keys, values, valid_lens)))


class PrepareHeads(nn.Module):
    def __init__(self, d_model, heads, d_k):
        super().__init__()
        self.linear, self.heads, self.d_k = nn.Linear(d_model, heads * d_k), heads, d_k

    def forward(self, x):
        return self.linear(x).view(*x.shape[:-1], self.heads, self.d_k)


class LengthFirst(nn.Module):
    """Keyword arguments only, (length, batch, width), softmax over the second axis."""

    def __init__(self, heads=4, d_model=32):
        super().__init__()
        self.d_k, self.heads = d_model // heads, heads
        self.query = PrepareHeads(d_model, heads, self.d_k)
        self.key = PrepareHeads(d_model, heads, self.d_k)
        self.value = PrepareHeads(d_model, heads, self.d_k)
        self.softmax, self.output = nn.Softmax(dim=1), nn.Linear(d_model, d_model)
        self.scale = 1 / math.sqrt(self.d_k)

    def forward(self, *, query, key, value, mask=None):
        seq_len, batch_size, _ = query.shape
        query, key, value = self.query(query), self.key(key), self.value(value)
        scores = torch.einsum("ibhd,jbhd->ijbh", query, key) * self.scale
        if mask is not None:
            mask = mask.unsqueeze(-1) if mask.dim() == 3 else mask[:, :, None, None]
            scores = scores.masked_fill(mask == 0, float("-inf"))
        x = torch.einsum("ijbh,jbhd->ibhd", self.softmax(scores), value)
        return self.output(x.reshape(seq_len, batch_size, -1))


class FourthRoot(nn.Module):
    """Speech: q and k each scaled by the fourth root, an additive mask, keys without bias."""

    def __init__(self, n_state=32, n_head=4):
        super().__init__()
        self.n_head = n_head
        self.query, self.key = nn.Linear(n_state, n_state), nn.Linear(n_state, n_state, bias=False)
        self.value, self.out = nn.Linear(n_state, n_state), nn.Linear(n_state, n_state)

    def forward(self, x, xa=None, mask=None):
        q = self.query(x)
        k, v = self.key(x if xa is None else xa), self.value(x if xa is None else xa)
        n_batch, n_ctx, n_state = q.shape
        scale = (n_state // self.n_head) ** -0.25
        q = q.view(*q.shape[:2], self.n_head, -1).permute(0, 2, 1, 3) * scale
        k = k.view(*k.shape[:2], self.n_head, -1).permute(0, 2, 3, 1) * scale
        v = v.view(*v.shape[:2], self.n_head, -1).permute(0, 2, 1, 3)
        qk = q @ k
        if mask is not None:
            qk = qk + mask[:n_ctx, :n_ctx]
        w = F.softmax(qk.float(), dim=-1).to(q.dtype)
        return self.out((w @ v).permute(0, 2, 1, 3).flatten(start_dim=2)), qk.detach()


class TimeFirst(nn.Module):
    """Translation: T × B × C, q scaled in place, batch and heads folded, two masks."""

    def __init__(self, embed_dim=32, num_heads=4):
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.scaling = self.head_dim**-0.5
        self.k_proj, self.v_proj = nn.Linear(embed_dim, embed_dim), nn.Linear(embed_dim, embed_dim)
        self.q_proj, self.out_proj = nn.Linear(embed_dim, embed_dim), nn.Linear(embed_dim, embed_dim)

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None):
        tgt_len, bsz, embed_dim = query.size()
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        q = q * self.scaling
        q = q.contiguous().view(tgt_len, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        k = k.contiguous().view(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        v = v.contiguous().view(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        attn_weights = torch.bmm(q, k.transpose(1, 2))
        if attn_mask is not None:
            attn_weights = attn_weights + attn_mask.unsqueeze(0)
        if key_padding_mask is not None:
            attn_weights = attn_weights.view(bsz, self.num_heads, tgt_len, -1)
            attn_weights = attn_weights.masked_fill(
                key_padding_mask[:, None, None].to(torch.bool), float("-inf")
            )
            attn_weights = attn_weights.view(bsz * self.num_heads, tgt_len, -1)
        attn = torch.bmm(F.softmax(attn_weights, dim=-1), v)
        attn = attn.transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim)
        return self.out_proj(attn), None


class PostNorm(nn.Module):
    """Three inputs, widths of their own, the residual and the norm inside, weights returned too."""

    def __init__(self, n_head=4, d_model=32, d_k=8, d_v=8):
        super().__init__()
        self.n_head, self.d_k, self.d_v = n_head, d_k, d_v
        self.w_qs, self.w_ks = (
            nn.Linear(d_model, n_head * d_k, bias=False),
            nn.Linear(d_model, n_head * d_k, bias=False),
        )
        self.w_vs, self.fc = (
            nn.Linear(d_model, n_head * d_v, bias=False),
            nn.Linear(n_head * d_v, d_model, bias=False),
        )
        self.layer_norm = nn.LayerNorm(d_model, eps=1e-6)

    def forward(self, q, k, v, mask=None):
        sz_b, len_q, len_k, len_v, residual = q.size(0), q.size(1), k.size(1), v.size(1), q
        q = self.w_qs(q).view(sz_b, len_q, self.n_head, self.d_k).transpose(1, 2)
        k = self.w_ks(k).view(sz_b, len_k, self.n_head, self.d_k).transpose(1, 2)
        v = self.w_vs(v).view(sz_b, len_v, self.n_head, self.d_v).transpose(1, 2)
        attn = torch.matmul(q / self.d_k**0.5, k.transpose(2, 3))
        if mask is not None:
            attn = attn.masked_fill(mask.unsqueeze(1) == 0, -1e9)
        attn = F.softmax(attn, dim=-1)
        q = torch.matmul(attn, v).transpose(1, 2).contiguous().view(sz_b, len_q, -1)
        return self.layer_norm(self.fc(q) + residual), attn


class EinsumKernels(nn.Module):
    """flax's layout: kernels (width, heads, dim) and (heads, dim, width), a mask of ones."""

    def __init__(self, features=32, num_heads=4):
        super().__init__()
        head_dim = features // num_heads
        self.query, self.key = (nn.Parameter(torch.randn(features, num_heads, head_dim)) for _ in range(2))
        self.value = nn.Parameter(torch.randn(features, num_heads, head_dim))
        self.out = nn.Parameter(torch.randn(num_heads, head_dim, features))

    def forward(self, inputs_q, mask=None):
        query, key, value = (
            torch.einsum("...ld,dhk->...lhk", inputs_q, w) for w in (self.query, self.key, self.value)
        )
        query = query / math.sqrt(query.shape[-1])
        attn_weights = torch.einsum("...qhd,...khd->...hqk", query, key)
        if mask is not None:
            attn_weights = torch.where(mask > 0, attn_weights, torch.finfo(attn_weights.dtype).min)
        attn_weights = F.softmax(attn_weights, dim=-1)
        x = torch.einsum("...hqk,...khd->...qhd", attn_weights, value)
        return torch.einsum("...qhd,hdf->...qf", x, self.out)


class ValueBeforeKey(nn.Module):
    """Keras' order of arguments: query, value and then key, which is the value where it is left out."""

    def __init__(self, num_heads=4, key_dim=8, width=32):
        super().__init__()
        self._num_heads, self._key_dim = num_heads, key_dim
        self._query_dense, self._key_dense = (
            nn.Linear(width, num_heads * key_dim),
            nn.Linear(width, num_heads * key_dim),
        )
        self._value_dense, self._output_dense = (
            nn.Linear(width, num_heads * key_dim),
            nn.Linear(num_heads * key_dim, width),
        )

    def forward(self, query, value, key=None, attention_mask=None, use_causal_mask=False):
        key = value if key is None else key
        query, key, value = (
            dense(t).unflatten(-1, (self._num_heads, -1))
            for dense, t in ((self._query_dense, query), (self._key_dense, key), (self._value_dense, value))
        )
        query = query * (1.0 / math.sqrt(float(self._key_dim)))
        scores = torch.einsum("aecd,abcd->acbe", key, query)
        if use_causal_mask:
            causal = torch.ones(query.shape[1], key.shape[1]).tril().bool()
            attention_mask = causal if attention_mask is None else attention_mask & causal
        if attention_mask is not None:
            attention_mask = attention_mask.unsqueeze(1) if attention_mask.dim() == 3 else attention_mask
            scores = scores.masked_fill(~attention_mask, -1e9)
        out = torch.einsum("acbe,aecd->abcd", F.softmax(scores, dim=-1), value)
        return self._output_dense(out.flatten(2))


class ListOfInputs(nn.Module):
    """One argument that is a list of queries, keys and values."""

    def __init__(self, units=32, heads=4):
        super().__init__()
        self.heads = heads
        self.WQ, self.WK, self.WV, self.WO = (nn.Linear(units, units, bias=False) for _ in range(4))

    def forward(self, inputs):
        Q, K, V = inputs
        B, T, C = Q.shape
        Q, K, V = (
            w(t).view(B, -1, self.heads, C // self.heads).transpose(1, 2)
            for w, t in ((self.WQ, Q), (self.WK, K), (self.WV, V))
        )
        A = F.softmax(Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1]), dim=-1)
        return self.WO((A @ V).transpose(1, 2).reshape(B, T, C))


class Head(nn.Module):
    def __init__(self, n_embd, head_size, block_size):
        super().__init__()
        self.key, self.query = (
            nn.Linear(n_embd, head_size, bias=False),
            nn.Linear(n_embd, head_size, bias=False),
        )
        self.value = nn.Linear(n_embd, head_size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))

    def forward(self, x):
        B, T, C = x.shape
        k, q = self.key(x), self.query(x)
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        return F.softmax(wei, dim=-1) @ self.value(x)


class HeadsInAList(nn.Module):
    def __init__(self, n_embd=32, num_heads=4, block_size=64):
        super().__init__()
        self.heads = nn.ModuleList([Head(n_embd, n_embd // num_heads, block_size) for _ in range(num_heads)])
        self.proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        return self.proj(torch.cat([h(x) for h in self.heads], dim=-1))


class UnusedMask(nn.Module):
    """Bidirectional: it takes the mask that all its siblings take, for the interface alone, and passes it on."""

    def __init__(self, d_model=32, nhead=4):
        super().__init__()
        self.nhead = nhead
        self.in_proj, self.out_proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x, attn_mask=None):
        b, n, c = x.shape
        q, k, v = self.in_proj(x).view(b, n, 3, self.nhead, -1).permute(2, 0, 3, 1, 4)
        if attn_mask is not None:
            attn_mask = attn_mask[:, None] if attn_mask.dim() == 3 else attn_mask
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)
        return self.out_proj(out.transpose(1, 2).reshape(b, n, c))


def softmax_rows(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def numpy_attention(Q, K, V):
    d_k = Q.shape[-1]
    scores = Q @ K.T / np.sqrt(d_k)
    return softmax_rows(scores) @ V


def numpy_causal(Q, K, V):
    """Causal attention of one head."""
    n, d = Q.shape
    S = Q @ K.T / np.sqrt(d)
    S[np.triu_indices(n, k=1)] = -1e10
    return softmax_rows(S) @ V


def einsum_attention(q, k, v, mask=None):
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min)
    return torch.einsum("bhij,bjhd->bihd", torch.softmax(scores, -1), v)


def loops(q, k, v):
    """One query at a time, as a first lesson has it."""
    rows = []
    for query in q:
        weights = torch.stack([query @ key for key in k]) / math.sqrt(len(query))
        weights = torch.exp(weights - weights.max())
        weights = weights / weights.sum()
        rows.append(sum(w * value for w, value in zip(weights, v, strict=True)))
    return torch.stack(rows)


OTHER = ()
BROKEN = (
    ("attention", "missing-scale", " / math.sqrt(d_k)", ""),
    ("attention", "mask-weak", "-1e9", "1e-9"),
    ("MultiHeadedAttention", "heads-mixed", "view(nbatches, -1, self.h, self.d_k).transpose(1, 2)", "view(nbatches, self.h, -1, self.d_k)"),
    ("MultiHeadedAttention", "parts-swapped", "attention(query, key, value,", "attention(query, value, key,"),
    ("DotProductAttention", "softmax-axis", "F.softmax(X, dim=-1)", "F.softmax(X, dim=1)"),
    ("LensAttention", "mask-weak", "= -1e6", "= 0.0"),
    ("LensAttention", "missing-output-projection", "self.W_o(self.transpose_output(self.attention(queries, keys, values, valid_lens)))", "self.transpose_output(self.attention(queries, keys, values, valid_lens))"),
    ("LengthFirst", "softmax-axis", "nn.Softmax(dim=1)", "nn.Softmax(dim=-1)"),
    ("LengthFirst", "missing-scale", " * self.scale", ""),
    ("FourthRoot", "scale-twice", "** -0.25", "** -0.5"),
    ("TimeFirst", "sequences-mixed", "attn.transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim)", "attn.contiguous().view(tgt_len, bsz, embed_dim)"),
    ("TimeFirst", "scale-d-model", "self.head_dim**-0.5", "self.embed_dim**-0.5"),
    ("PostNorm", "mask-after-softmax", "attn = F.softmax(attn, dim=-1)", "attn = F.softmax(torch.matmul(q / self.d_k**0.5, k.transpose(2, 3)), dim=-1) * (1.0 if mask is None else mask.unsqueeze(1))"),
    ("PostNorm", "softmax-twice", "F.softmax(attn, dim=-1)", "F.softmax(F.softmax(attn, dim=-1), dim=-1)"),
    ("EinsumKernels", "mask-inverted", "torch.where(mask > 0, attn_weights, torch.finfo(attn_weights.dtype).min)", "torch.where(mask > 0, torch.finfo(attn_weights.dtype).min, attn_weights)", {"mask": "allowed"}),
    ("EinsumKernels", "softmax-axis", "F.softmax(attn_weights, dim=-1)", "F.softmax(attn_weights, dim=-3)"),
    ("ValueBeforeKey", "missing-scale", "query = query * (1.0 / math.sqrt(float(self._key_dim)))", "pass"),
    ("ListOfInputs", "scale-d-model", "math.sqrt(Q.shape[-1])", "math.sqrt(C)"),
    ("ListOfInputs", "softmax-axis", "math.sqrt(Q.shape[-1]), dim=-1)", "math.sqrt(Q.shape[-1]), dim=-2)"),
    ("HeadsInAList", "scale-d-model", "k.shape[-1] ** -0.5", "C ** -0.5"),
    ("HeadsInAList", "parts-swapped projection-unused", "@ self.value(x)", "@ k"),
    ("UnusedMask", "heads-mixed", "out.transpose(1, 2).reshape(b, n, c)", "out.reshape(b, n, c)"),
    ("numpy_attention", "softmax-axis", "softmax_rows(scores)", "softmax_rows(scores.T).T"),
    ("numpy_attention", "wrong-scale", "/ np.sqrt(d_k)", "* np.sqrt(d_k)"),
    ("numpy_causal", "sees-one-ahead", "k=1", "k=2"),
    ("einsum_attention", "mask-inverted", "~mask[:, None, None, :]", "mask[:, None, None, :]", {"mask": "allowed"}),
    ("loops", "no-softmax", "weights = torch.exp(weights - weights.max())", "pass"),
    ("loops", "scale-twice", "math.sqrt(len(query))", "len(query)"),
)  # fmt: skip
