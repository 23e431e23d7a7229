"""Which backend runs a call, why, and that a named one is never swapped."""

from __future__ import annotations

import re

import pytest
import torch

from engine.harness import qkv
from regard import attention, explain_dispatch, observe
from regard.engine.native.backend import NativeBackend
from regard.engine.sdpa_backend import SdpaBackend, kernels
from regard.engine.sdpa_backend import backend as sdpa
from regard.engine.torch_backend import TorchBackend
from regard.engine.triton.backend import SdpaOnCuda
from regard.errors import BackendError
from regard.masks import Causal, Documents, Window
from regard.scores import Additive, ALiBi, General
from regard.stats import ColumnMass, Entropy

MODIFIED = "PyTorch's kernels know no soft cap, score_mod, structured or trainable bias"
ADDITIVE = Additive(torch.zeros(16, 4), torch.zeros(16, 4), torch.zeros(4))
# A call, and why PyTorch's kernels cannot run it.
REFUSED = {
    "soft cap": ({"softcap": 30.0}, MODIFIED),
    "score_mod": ({"score_mod": lambda s, b, h, i, j: s}, MODIFIED),
    "structured bias": ({"bias": ALiBi.for_heads(4)}, MODIFIED),
    "trainable bias": ({"bias": torch.zeros(65, 65, requires_grad=True)}, MODIFIED),
    "additive": ({"score": ADDITIVE}, "PyTorch's kernels compute dot products, not Additive"),
    "dropout": ({"dropout": 0.1}, "dropout would make PyTorch build the whole map"),
}
TAKEN = {
    "plain": ({}, "in one call"),
    "causal": ({"mask": Causal()}, "in one call"),
    "window wider than the text": ({"mask": Window(1000)}, "in one call"),
    "general": ({"score": General(torch.eye(16))}, "in one call"),
    "window": ({"mask": Window(3)}, "block by block over the visible keys"),
    "documents": ({"mask": Documents(lengths=[40, 25])}, "block by block over the visible keys"),
    "constant bias": ({"bias": torch.zeros(65, 65)}, "block by block over the visible keys"),
}


def on_sdpa(monkeypatch):
    """Count the calls that reach PyTorch's fused kernels by any way."""
    calls = []
    for name in ("plain", "forward"):
        function = getattr(sdpa, name)
        monkeypatch.setattr(sdpa, name, lambda *a, f=function, n=name: (calls.append(n), f(*a))[1])
    monkeypatch.setattr(sdpa, "short_output", lambda *a, f=sdpa.short_output: noted(calls, f(*a)))
    return calls


def noted(calls, out):
    """Count a call that took the short way."""
    calls += [] if out is None else ["short"]
    return out


@pytest.mark.parametrize("name", REFUSED)
def test_what_fused_kernels_cannot_do_is_streamed_and_says_why(name, monkeypatch):
    options, reason = REFUSED[name]
    calls = on_sdpa(monkeypatch)
    assert str(explain_dispatch(**qkv(65, 65), **options)) == f"torch: {reason}"
    attention(**qkv(65, 65), **options)
    assert calls == []


@pytest.mark.parametrize("name", REFUSED)
def test_a_named_backend_refuses_and_never_falls_back(name, monkeypatch):
    options, reason = REFUSED[name]
    calls = on_sdpa(monkeypatch)
    message = f"backend='sdpa' cannot run this call: {reason}. Use backend='torch'."
    for call in (attention, explain_dispatch):
        with pytest.raises(BackendError, match=f"^{re.escape(message)}$"):
            call(**qkv(65, 65), backend="sdpa", **options)
    assert calls == []


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("backend", ["auto", "sdpa"])
def test_what_fused_kernels_do_well_is_left_to_them(name, backend, monkeypatch):
    options, how = TAKEN[name]
    calls = on_sdpa(monkeypatch)
    chosen = explain_dispatch(**qkv(65, 65), backend=backend, **options)
    assert chosen.backend == "sdpa"
    assert chosen.reason == (f"PyTorch's fused kernel, {how}" if backend == "auto" else "asked for by name")
    attention(**qkv(65, 65), backend=backend, **options)
    assert len(calls) == 1


@pytest.mark.parametrize("name", TAKEN)
def test_the_torch_backend_named_is_the_torch_backend(name, monkeypatch):
    options, _ = TAKEN[name]
    calls = on_sdpa(monkeypatch)
    assert str(explain_dispatch(**qkv(65, 65), backend="torch", **options)) == "torch: asked for by name"
    attention(**qkv(65, 65), backend="torch", **options)
    assert calls == []


@pytest.mark.parametrize(
    ("leaves", "reason"),
    [
        (qkv(5, 7, v_dim=3), "q has dim 16, v has 3; PyTorch's kernel wants one dim"),
        (qkv(0, 7), "a length is zero"),
        (qkv(5, 0), "a length is zero"),
        (qkv(5, 7, batch=0), "a length is zero"),
    ],
    ids=["dims", "no query", "no key", "no batch"],
)
def test_shapes_that_fused_kernels_cannot_take_are_streamed(leaves, reason):
    assert str(explain_dispatch(**leaves)) == f"torch: {reason}"
    with pytest.raises(BackendError, match=re.escape(reason)):
        attention(**leaves, backend="sdpa")


def test_a_decode_step_under_a_causal_mask_needs_no_mask():
    """The last query sees every key: with a cache this is every step."""
    leaves = qkv(1, 65)
    assert explain_dispatch(**leaves, mask=Causal()).reason == "PyTorch's fused kernel, in one call"
    assert torch.equal(attention(**leaves, mask=Causal()), attention(**leaves))


def test_causal_queries_at_the_end_of_a_cache_are_not_pytorchs_causal_mask():
    assert explain_dispatch(**qkv(5, 65), mask=Causal()).reason.endswith(
        "block by block over the visible keys"
    )
    assert explain_dispatch(**qkv(5, 65), mask=Causal(shift=5 - 65)).reason.endswith("in one call")


def test_a_pytorch_without_the_kernel_says_so(monkeypatch):
    monkeypatch.setattr(kernels.torch.ops, "aten", object())
    with pytest.raises(BackendError, match="lacks _scaled_dot_product_flash_attention_for_cpu"):
        attention(**qkv(5, 5), mask=Window(2), backend="sdpa")


def test_a_kernel_that_does_not_tell_the_lse_observes_nothing(monkeypatch):
    # As on a GPU without triton: PyTorch does a float32 call, and keeps the log-sum-exp to itself.
    monkeypatch.setattr(SdpaBackend, "hides_lse", SdpaOnCuda.hides_lse)
    used = []
    for kind in (SdpaBackend, TorchBackend, NativeBackend):
        run = kind.forward
        monkeypatch.setattr(
            kind, "forward", lambda self, *given, run=run: (used.append(self.name), run(self, *given))[1]
        )
    leaves = qkv(65, 65)
    plain = observe(**leaves, stats=[Entropy(), ColumnMass()], backend="torch")
    for stats in ([Entropy(), ColumnMass()], [Entropy()], [ColumnMass()], []):
        seen = observe(**leaves, stats=stats)
        torch.testing.assert_close(seen.lse, plain.lse)
        for name, found in seen.stats.items():
            torch.testing.assert_close(found, plain.stats[name], rtol=1e-5, atol=1e-5)
    assert set(used) == {"torch"}
    wanted = (
        "backend='sdpa' cannot observe this call: on a GPU PyTorch's kernels return the log-sum-exp of half "
        "precision up to dim 128 only, and q is torch.float32 with dim 16. Use backend='torch'."
    )
    with pytest.raises(BackendError, match=f"^{re.escape(wanted)}$"):
        observe(**leaves, backend="sdpa")


def test_pytorchs_kernels_give_statistics_no_gradient():
    wanted = (
        "backend='sdpa' cannot give statistics a gradient: PyTorch's kernels bring none along. Use "
        "backend='torch' with differentiable=True."
    )
    with pytest.raises(BackendError, match=f"^{re.escape(wanted)}$"):
        observe(**qkv(5, 5), stats=[Entropy()], backend="sdpa", differentiable=True)


@pytest.mark.parametrize("shape", [(0, 4, 5, 16), (1, 4, 0, 16)])
def test_a_length_of_zero_is_not_given_to_fused_kernels(shape):
    x = torch.zeros(shape)
    assert str(explain_dispatch(x, x, x)) == "torch: a length is zero"
