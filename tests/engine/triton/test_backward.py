"""Gradients of the kernels against the backend that defines truth."""

from __future__ import annotations

import pytest
import torch

from engine.harness import every_mask
from engine.triton.test_forward import leaves
from regard import attention
from regard.masks import Causal
from regard.scores import ALiBi

CASES = {
    "plain": (None, {}),
    "causal": ("causal", {}),
    "documents": ("ragged documents", {}),
    "bits": ("dense by row and head", {}),
    "dead rows": ("no key at all", {}),
    "soft cap": ("causal", {"softcap": 3.0}),
    "alibi": ("window", {"bias": ALiBi.for_heads(2)}),
    "negative scale": (None, {"scale": -0.4}),
}


def gradients(given: dict, backend: str, mask, sink=None, **options) -> list[torch.Tensor]:
    own = [x.detach().clone().requires_grad_() for x in given.values()]
    sink = None if sink is None else sink.detach().clone().requires_grad_()
    out = attention(*own, mask=mask, backend=backend, sink=sink, **options)
    upstream = torch.linspace(-1, 1, out.numel(), device=out.device).view_as(out)
    return list(torch.autograd.grad(out, own if sink is None else [*own, sink], upstream))


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_torch_backend(name, device):
    kind, options = CASES[name]
    mask = None if kind is None else every_mask(33, 65, 2, 2)[kind]
    given = leaves(device, 33, 65, heads=2, kv_heads=1)
    ours, truth = (gradients(given, backend, mask, **options) for backend in ("triton", "torch"))
    for a, b in zip(ours, truth, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_a_sink_gets_its_gradient(device):
    given = leaves(device, 33, 33, batch=1, heads=2)
    sink = torch.tensor([0.5, -1.0], device=device)
    ours, truth = (gradients(given, backend, Causal(), sink) for backend in ("triton", "torch"))
    for a, b in zip(ours, truth, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_garbage_behind_the_mask_reaches_no_gradient(device):
    given = leaves(device, 40, 40, batch=1, heads=1)
    mask = every_mask(40, 40, 1, 1)["padding"]
    clean = gradients(given, "triton", mask)
    dirty = {name: x.clone() for name, x in given.items()}
    for name in ("k", "v"):
        dirty[name][:, :, 36:] = torch.nan
    for a, b in zip(gradients(dirty, "triton", mask), clean, strict=True):
        torch.testing.assert_close(a, b)
