"""Vision: vit-pytorch, timm, Swin, segmentation models, diffusion models."""

from __future__ import annotations

import math

import torch
from torch import einsum, nn
from torch.nn import functional as F


class PatchAttention(nn.Module):
    """A norm in front, one product for all three, the heads chunked apart."""

    def __init__(self, dim=48, heads=4, dim_head=16, dropout=0.1):
        super().__init__()
        inner_dim = dim_head * heads
        self.heads, self.scale = heads, dim_head**-0.5
        self.norm, self.attend, self.dropout = nn.LayerNorm(dim), nn.Softmax(dim=-1), nn.Dropout(dropout)
        self.to_qkv = nn.Linear(dim, inner_dim * 3, bias=False)
        self.to_out = nn.Sequential(nn.Linear(inner_dim, dim), nn.Dropout(dropout))

    def forward(self, x):
        x = self.norm(x)
        b, n, _ = x.shape
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.to_qkv(x).chunk(3, dim=-1))
        dots = torch.matmul(q, k.transpose(-1, -2)) * self.scale
        attn = self.dropout(self.attend(dots))
        return self.to_out(torch.matmul(attn, v).transpose(1, 2).reshape(b, n, -1))


class NormedAttention(nn.Module):
    """Queries and keys normalised, PyTorch's fused call with a scale of its own."""

    def __init__(self, dim=48, num_heads=4, qkv_bias=True, attn_drop=0.0):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, dim // num_heads
        self.scale = self.head_dim**-0.5
        self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
        self.q_norm, self.k_norm = nn.LayerNorm(self.head_dim), nn.LayerNorm(self.head_dim)
        self.attn_drop, self.proj = nn.Dropout(attn_drop), nn.Linear(dim, dim)

    def forward(self, x, attn_mask=None):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        q, k = self.q_norm(q), self.k_norm(k)
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)
        return self.proj(x.transpose(1, 2).reshape(B, N, C))


class WindowAttention(nn.Module):
    """A learnt bias by relative position, and a mask of shifted windows, (windows, n, n)."""

    def __init__(self, dim=32, window_size=(2, 3), num_heads=4):
        super().__init__()
        self.dim, self.window_size, self.num_heads = dim, window_size, num_heads
        self.scale = (dim // num_heads) ** -0.5
        rows, columns = window_size
        table = torch.zeros((2 * rows - 1) * (2 * columns - 1), num_heads)
        self.relative_position_bias_table = nn.Parameter(table)
        grid = torch.stack(torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")).flatten(
            1
        )
        apart = (grid[:, :, None] - grid[:, None, :]).permute(1, 2, 0) + torch.tensor([rows - 1, columns - 1])
        self.register_buffer("relative_position_index", apart[..., 0] * (2 * columns - 1) + apart[..., 1])
        self.qkv, self.proj = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)

    def forward(self, x, mask=None):
        B_, N, C = x.shape
        qkv = self.qkv(x).reshape(B_, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        q = q * self.scale
        attn = q @ k.transpose(-2, -1)
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)].view(N, N, -1)
        attn = attn + bias.permute(2, 0, 1).contiguous().unsqueeze(0)
        if mask is not None:
            nW = mask.shape[0]
            attn = attn.view(B_ // nW, nW, self.num_heads, N, N) + mask.unsqueeze(1).unsqueeze(0)
            attn = attn.view(-1, self.num_heads, N, N)
        attn = attn.softmax(dim=-1)
        return self.proj((attn @ v).transpose(1, 2).reshape(B_, N, C))


class CosineWindowAttention(nn.Module):
    """Cosines with a learnt temperature for each head."""

    def __init__(self, dim=32, num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        self.logit_scale = nn.Parameter(torch.log(10 * torch.ones((num_heads, 1, 1))))
        self.qkv, self.proj = nn.Linear(dim, dim * 3, bias=False), nn.Linear(dim, dim)
        self.q_bias, self.v_bias = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        B_, N, C = x.shape
        bias = torch.cat((self.q_bias, torch.zeros_like(self.v_bias), self.v_bias))
        qkv = F.linear(input=x, weight=self.qkv.weight, bias=bias)
        q, k, v = qkv.reshape(B_, N, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        attn = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        attn = attn * torch.clamp(self.logit_scale, max=math.log(100.0)).exp()
        return self.proj((attn.softmax(dim=-1) @ v).transpose(1, 2).reshape(B_, N, C))


class DownsampledAttention(nn.Module):
    """A mask decoder's: three inputs, an inner width of half, heads by a function of their own."""

    def __init__(self, embedding_dim=32, num_heads=2, downsample_rate=2):
        super().__init__()
        self.internal_dim, self.num_heads = embedding_dim // downsample_rate, num_heads
        self.q_proj = nn.Linear(embedding_dim, self.internal_dim)
        self.k_proj = nn.Linear(embedding_dim, self.internal_dim)
        self.v_proj = nn.Linear(embedding_dim, self.internal_dim)
        self.out_proj = nn.Linear(self.internal_dim, embedding_dim)

    def _separate_heads(self, x, num_heads):
        b, n, c = x.shape
        return x.reshape(b, n, num_heads, c // num_heads).transpose(1, 2)

    def _recombine_heads(self, x):
        b, n_heads, n_tokens, c_per_head = x.shape
        return x.transpose(1, 2).reshape(b, n_tokens, n_heads * c_per_head)

    def forward(self, q, k, v):
        q, k, v = self.q_proj(q), self.k_proj(k), self.v_proj(v)
        q, k, v = (self._separate_heads(t, self.num_heads) for t in (q, k, v))
        _, _, _, c_per_head = q.shape
        attn = q @ k.permute(0, 1, 3, 2)
        attn = torch.softmax(attn / math.sqrt(c_per_head), dim=-1)
        return self.out_proj(self._recombine_heads(attn @ v))


class ContextAttention(nn.Module):
    """A diffusion model's: x looks at a context, or at itself."""

    def __init__(self, query_dim=32, context_dim=None, heads=4, dim_head=8):
        super().__init__()
        inner_dim, context_dim = dim_head * heads, context_dim or query_dim
        self.scale, self.heads = dim_head**-0.5, heads
        self.to_q = nn.Linear(query_dim, inner_dim, bias=False)
        self.to_k = nn.Linear(context_dim, inner_dim, bias=False)
        self.to_v = nn.Linear(context_dim, inner_dim, bias=False)
        self.to_out = nn.Sequential(nn.Linear(inner_dim, query_dim), nn.Dropout(0.0))

    def forward(self, x, context=None, mask=None):
        h, context = self.heads, x if context is None else context
        q, k, v = self.to_q(x), self.to_k(context), self.to_v(context)
        q, k, v = (
            t.view(*t.shape[:2], h, -1).transpose(1, 2).reshape(t.shape[0] * h, t.shape[1], -1)
            for t in (q, k, v)
        )
        sim = einsum("b i d, b j d -> b i j", q, k) * self.scale
        if mask is not None:
            mask = mask.flatten(1)[:, None, :].repeat_interleave(h, dim=0)
            sim.masked_fill_(~mask, -torch.finfo(sim.dtype).max)
        out = einsum("b i j, b j d -> b i d", sim.softmax(dim=-1), v)
        out = out.view(-1, h, *out.shape[1:]).transpose(1, 2).reshape(x.shape[0], x.shape[1], -1)
        return self.to_out(out)


class SpatialAttention(nn.Module):
    """An autoencoder's: 1 × 1 convolutions over pixels, one head, the input added."""

    def __init__(self, in_channels=32):
        super().__init__()
        self.norm = nn.GroupNorm(num_groups=4, num_channels=in_channels)
        self.q, self.k = nn.Conv2d(in_channels, in_channels, 1), nn.Conv2d(in_channels, in_channels, 1)
        self.v, self.proj_out = nn.Conv2d(in_channels, in_channels, 1), nn.Conv2d(in_channels, in_channels, 1)

    def forward(self, x):
        h_ = x
        q, k, v = self.q(h_), self.k(h_), self.v(h_)
        b, c, h, w = q.shape
        q = q.reshape(b, c, h * w).permute(0, 2, 1)
        k = k.reshape(b, c, h * w)
        w_ = torch.bmm(q, k) * (int(c) ** (-0.5))
        w_ = F.softmax(w_, dim=2)
        v = v.reshape(b, c, h * w)
        h_ = torch.bmm(v, w_.permute(0, 2, 1)).reshape(b, c, h, w)
        return x + self.proj_out(h_)


class ChannelsFirstAttention(nn.Module):
    """A guided diffusion model's: (b, c, length), scaled by the fourth root on both sides."""

    def __init__(self, channels=32, num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj_out = nn.Conv1d(channels, channels * 3, 1), nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        b, c, length = x.shape
        ch = c // self.num_heads
        q, k, v = self.qkv(x).reshape(b * self.num_heads, ch * 3, length).split(ch, dim=1)
        scale = 1 / math.sqrt(math.sqrt(ch))
        weight = torch.einsum("bct,bcs->bts", q * scale, k * scale)
        weight = torch.softmax(weight.float(), dim=-1).type(weight.dtype)
        a = torch.einsum("bts,bcs->bct", weight, v)
        return x + self.proj_out(a.reshape(b, -1, length))


class TokenMixing(nn.Module):
    """Layer scale and a residual around it, as a block of class attention has."""

    def __init__(self, dim=32, num_heads=4, init_values=1e-4):
        super().__init__()
        self.num_heads = num_heads
        self.norm1, self.gamma_1 = nn.LayerNorm(dim), nn.Parameter(init_values * torch.ones(dim))
        self.qkv, self.proj = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = (
            self.qkv(self.norm1(x)).reshape(B, N, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        )
        attn = (q * (C // self.num_heads) ** -0.5) @ k.transpose(-2, -1)
        attn = attn.softmax(dim=-1)
        return x + self.gamma_1 * self.proj((attn @ v).transpose(1, 2).reshape(B, N, C))


class TalkingHeadAttention(nn.Module):
    """Heads mixed before and after softmax, as in CaiT."""

    def __init__(self, dim=32, num_heads=4):
        super().__init__()
        self.num_heads, self.scale = num_heads, (dim // num_heads) ** -0.5
        self.qkv, self.proj = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)
        self.proj_l, self.proj_w = nn.Linear(num_heads, num_heads), nn.Linear(num_heads, num_heads)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0] * self.scale, qkv[1], qkv[2]
        attn = self.proj_l((q @ k.transpose(-2, -1)).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        attn = self.proj_w(attn.softmax(dim=-1).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.proj((attn @ v).transpose(1, 2).reshape(B, N, C))


class PooledAttention(nn.Module):
    """One learnt query looks at all tokens: a vector for each sequence, not for each token."""

    def __init__(self, dim=32, num_heads=4):
        super().__init__()
        self.num_heads, self.scale = num_heads, (dim // num_heads) ** -0.5
        self.latent = nn.Parameter(torch.randn(1, 1, dim))
        self.q, self.kv, self.proj = nn.Linear(dim, dim), nn.Linear(dim, dim * 2), nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q = self.q(self.latent.expand(B, -1, -1)).reshape(B, 1, self.num_heads, -1).transpose(1, 2)
        k, v = self.kv(x).reshape(B, N, 2, self.num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        attn = ((q * self.scale) @ k.transpose(-2, -1)).softmax(dim=-1)
        return self.proj((attn @ v).transpose(1, 2).reshape(B, C))


OTHER = ("PooledAttention",)
BROKEN = (
    ("PatchAttention", "missing-scale", " * self.scale", ""),
    ("PatchAttention", "softmax-axis", "nn.Softmax(dim=-1)", "nn.Softmax(dim=1)"),
    ("PatchAttention", "heads-mixed", ".transpose(1, 2).reshape(b, n, -1))", ".reshape(b, n, -1))"),
    (
        "PatchAttention",
        "dropout-in-eval",
        "self.dropout(self.attend(dots))",
        "F.dropout(self.attend(dots), 0.1)",
    ),
    ("NormedAttention", "heads-mixed", "self.proj(x.transpose(1, 2).reshape", "self.proj(x.reshape"),
    ("NormedAttention", "parts-swapped projection-unused", "(q, k, v, attn", "(q, k, k, attn"),
    ("WindowAttention", "missing-scale", "q = q * self.scale", "q = q"),
    ("WindowAttention", "softmax-axis", "attn.softmax(dim=-1)", "attn.softmax(dim=-2)"),
    ("CosineWindowAttention", "normalised-inside", "attn = attn * torch", "_ = torch"),
    ("DownsampledAttention", "scale-twice", "math.sqrt(c_per_head)", "c_per_head"),
    ("ContextAttention", "mask-inverted", "(~mask, -torch", "(mask, -torch", {"mask": "allowed"}),
    ("ContextAttention", "heads-mixed", ".transpose(1, 2).reshape(x.shape[0]", ".reshape(x.shape[0]"),
    ("SpatialAttention", "softmax-axis", "F.softmax(w_, dim=2)", "F.softmax(w_, dim=1)"),
    ("ChannelsFirstAttention", "scale-twice", "1 / math.sqrt(math.sqrt(ch))", "1 / math.sqrt(ch)"),
    (
        "TalkingHeadAttention",
        "softmax-axis",
        "self.proj_w(attn.softmax(dim=-1)",
        "self.proj_w(attn.softmax(dim=1)",
    ),
    ("TalkingHeadAttention", "missing-scale", "qkv[0] * self.scale, qkv[1]", "qkv[0], qkv[1]"),
    ("TokenMixing", "no-softmax", "attn = attn.softmax(dim=-1)", "pass"),
)
