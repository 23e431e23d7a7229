"""A few queries against many keys, split and merged."""

from __future__ import annotations

import pytest
import torch

from engine.triton.test_folding import same
from engine.triton.test_forward import agree, close, leaves
from regard import observe
from regard.engine.triton import decode
from regard.masks import Causal, Window
from regard.stats import TopK


@pytest.mark.parametrize("mask", [None, Causal(), Causal() & Window(40)], ids=["none", "causal", "window"])
@pytest.mark.parametrize("q", [1, 3])
def test_a_decode_step_gives_what_the_torch_backend_gives(q, mask, device):
    agree(leaves(device, q, 130, batch=2, heads=4, kv_heads=2), mask)


@pytest.mark.parametrize(
    "options", [{"softcap": 2.0}, {"sink": torch.tensor([1.0, -1.0])}], ids=["soft cap", "sink"]
)
def test_options_work_while_decoding(options, device):
    moved = {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    agree(leaves(device, 2, 70, batch=1, heads=2, kv_heads=1), Causal(), **moved)


def test_the_heaviest_keys_of_a_decode_step(device):
    given = leaves(device, 2, 130, batch=1, heads=2, kv_heads=1)
    ours, truth = (observe(**given, stats=[TopK(5)], backend=b) for b in ("triton", "torch"))
    same(ours.top_k, truth.top_k)


def test_keys_are_split_and_merged(device, monkeypatch):
    given = leaves(device, 1, 300, batch=1, heads=1)
    monkeypatch.setattr(decode, "PER_PROCESSOR", 7)
    ours, truth = (observe(**given, backend=b) for b in ("triton", "torch"))
    close(ours.out, truth.out)
    close(ours.entropy, truth.entropy)
