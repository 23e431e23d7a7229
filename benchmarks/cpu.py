"""Attention on the CPU next to PyTorch's SDPA and compiled FlexAttention.

python benchmarks/cpu.py [--quick]
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from side_by_side import header, race, table
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from regard import Causal, Documents, Window, attention

HEADS, DIM, WINDOW = 4, 64, 1024


def tensors(n: int, heads: int = HEADS, kv_heads: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    shapes = [(1, h, n, DIM) for h in (heads, kv_heads or heads, kv_heads or heads)]
    q, k, v = (torch.randn(shape) for shape in shapes)
    return q, k, v


def plain(n: int, repeats: int) -> None:
    q, k, v = tensors(n)
    for causal in (False, True):
        mask = Causal() if causal else None
        seconds = race(
            {
                "SDPA": lambda causal=causal: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
                "regard.attention": lambda mask=mask: attention(q, k, v, mask),
                "regard, backend torch": lambda mask=mask: attention(q, k, v, mask, backend="torch"),
            },
            repeats,
        )
        table(
            f"{'causal' if causal else 'unmasked'}, n = {n}, {HEADS} heads, d = {DIM}, float32",
            seconds,
            "SDPA",
        )


def structured(n: int, repeats: int) -> None:
    """A causal window and packed documents: SDPA with the mask as a bool tensor, FlexAttention compiled."""
    q, k, v = tensors(n)
    flex = torch.compile(flex_attention)
    lengths = document_lengths(n)
    ids = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    i, j = torch.arange(n)[:, None], torch.arange(n)[None]

    def windowed(b, h, q_idx, kv_idx):
        return (kv_idx <= q_idx) & (kv_idx > q_idx - WINDOW)

    def same_document(b, h, q_idx, kv_idx):
        return (kv_idx <= q_idx) & (ids[q_idx] == ids[kv_idx])

    cases = {
        f"causal window of {WINDOW}": (Causal() & Window(WINDOW), windowed, (j <= i) & (j > i - WINDOW)),
        f"{len(lengths)} packed documents, causal": (
            Causal() & Documents(lengths=lengths),
            same_document,
            (j <= i) & (ids[:, None] == ids[None]),
        ),
    }
    for name, (mask, mask_mod, dense) in cases.items():
        block_mask = create_block_mask(mask_mod, None, None, n, n, device="cpu", _compile=True)
        error = (attention(q, k, v, mask) - flex(q, k, v, block_mask=block_mask)).abs().max().item()
        contestants = {
            "SDPA, bool mask": lambda dense=dense: F.scaled_dot_product_attention(q, k, v, attn_mask=dense),
            "FlexAttention, compiled": lambda block_mask=block_mask: flex(q, k, v, block_mask=block_mask),
            "regard.attention": lambda mask=mask: attention(q, k, v, mask),
            "regard, backend torch": lambda mask=mask: attention(q, k, v, mask, backend="torch"),
        }
        slow = {"SDPA, bool mask": contestants.pop("SDPA, bool mask")}
        seconds = race(slow, max(1, repeats // 4)) | race(contestants, repeats)
        table(f"{name}, n = {n}, {HEADS} heads, d = {DIM}, float32", seconds, "SDPA, bool mask")
        print(f"largest difference to FlexAttention: {error:.1e}\n")


def document_lengths(n: int) -> list[int]:
    """Documents of 200 to 3000 tokens, drawn once and for all, that fill n exactly."""
    generator = torch.Generator().manual_seed(0)
    lengths: list[int] = []
    while sum(lengths) < n:
        lengths.append(min(int(torch.randint(200, 3000, (), generator=generator)), n - sum(lengths)))
    return lengths


def decode(n: int, repeats: int) -> None:
    """One new query against a long cache, grouped-query heads."""
    q, k, v = tensors(n, heads=8, kv_heads=2)
    q = q[:, :, -1:]
    seconds = race(
        {
            "SDPA": lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
            "regard.attention, causal": lambda: attention(q, k, v, Causal()),
            "regard.attention, causal window": lambda: attention(q, k, v, Causal() & Window(WINDOW)),
        },
        repeats * 10,
    )
    table(f"decode, 1 query, {n} keys, 8 query and 2 key heads, d = {DIM}, float32", seconds, "SDPA")


def gradients(n: int, repeats: int) -> None:
    q, k, v = (x.requires_grad_() for x in tensors(n))

    def step(run):
        return lambda: torch.autograd.grad(run().sum(), (q, k, v))

    mask = Causal() & Window(WINDOW)
    seconds = race(
        {
            "SDPA, causal": step(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
            "regard.attention, causal": step(lambda: attention(q, k, v, Causal())),
            "regard, backend torch, causal": step(lambda: attention(q, k, v, Causal(), backend="torch")),
            "regard.attention, causal window": step(lambda: attention(q, k, v, mask)),
        },
        max(1, repeats // 2),
    )
    table(f"forward and backward, n = {n}, {HEADS} heads, d = {DIM}, float32", seconds, "SDPA, causal")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    quick = parser.parse_args().quick
    torch.manual_seed(0)
    header("Attention on the CPU")
    repeats = 3 if quick else 9
    for n in (2048,) if quick else (4096, 16384):
        plain(n, repeats)
    structured(4096 if quick else 32768, repeats)
    decode(8192 if quick else 131072, repeats)
    gradients(2048 if quick else 8192, repeats)


if __name__ == "__main__":
    main()
