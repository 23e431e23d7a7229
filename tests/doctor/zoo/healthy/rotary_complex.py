"""Rotary positions on neighbouring pairs, as complex numbers."""

from __future__ import annotations

import torch
from torch.nn import functional as F


def rotate(x):
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2])[:, None] * 10000.0 ** (-torch.arange(half) / half)
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], half, 2).contiguous())
    turned = pairs * torch.polar(torch.ones_like(angles), angles).to(pairs.dtype)
    return torch.view_as_real(turned).flatten(-2)


def attention(xq, xk, xv):
    return F.scaled_dot_product_attention(rotate(xq), rotate(xk), xv)
