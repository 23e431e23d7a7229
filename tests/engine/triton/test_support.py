"""What the backend refuses, in exactly these words."""

from __future__ import annotations

import re

import pytest
import torch

from engine.harness import qkv
from regard import attention, explain_dispatch, observe
from regard.engine.triton import support
from regard.errors import BackendError
from regard.scores import Additive, RelativeBias
from regard.stats import Custom, HeadDivergence, Pooled, TopK

ADDITIVE = Additive(torch.zeros(16, 4), torch.zeros(16, 4), torch.zeros(4))
REFUSED = {
    "float64": (
        qkv(5, 7, dtype=torch.float64),
        {},
        "its kernels compute in float32, and q is float64",
    ),
    "additive": (qkv(5, 7), {"score": ADDITIVE}, "its kernels compute dot products, not Additive"),
    "score_mod": (
        qkv(5, 7),
        {"score_mod": lambda s, b, h, i, j: s},
        "its kernels cannot call a score_mod; say it as bias= or softcap=",
    ),
    "relative bias": (
        qkv(5, 7),
        {"bias": RelativeBias(torch.zeros(4, 8))},
        "its kernels know a tensor bias and ALiBi, not RelativeBias",
    ),
    "trainable bias": (
        qkv(5, 7),
        {"bias": torch.zeros(5, 7, requires_grad=True)},
        "its kernels give a trainable bias no gradient",
    ),
    "dropout": (qkv(5, 7), {"dropout": 0.1}, "its kernels have no dropout"),
    "wide heads": (qkv(5, 7, dim=300), {}, "a head dim of 300 is too wide; 1 to 256 work"),
    "no key": (qkv(5, 0), {}, "a length is zero"),
}


def refused(reason: str, call) -> None:
    message = f"backend='triton' cannot run this call: {reason}. Use backend='torch'."
    with pytest.raises(BackendError, match=f"^{re.escape(message)}$"):
        call()


def placed(value, device: str):
    """An option whose tensors sit on a device."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(device).requires_grad_(value.requires_grad)
    if isinstance(value, Additive):
        return Additive(value.w_q.to(device), value.w_k.to(device), value.v.to(device))
    return value


@pytest.mark.parametrize("name", REFUSED)
def test_what_kernels_cannot_do_is_refused_by_name(name, device):
    given, options, reason = REFUSED[name]
    given = {key: x.to(device) for key, x in given.items()}
    options = {key: placed(value, device) for key, value in options.items()}
    refused(reason, lambda: attention(**given, backend="triton", **options))


def test_a_cpu_tensor_is_refused(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    refused("it needs an NVIDIA GPU, and q is on cpu", lambda: attention(**qkv(5, 7), backend="triton"))


def test_without_triton_the_backend_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(support, "has_triton", lambda: False)
    reason = "triton is not installed (pip install 'regard[gpu]')"
    refused(reason, lambda: attention(**qkv(5, 7), backend="triton"))


def test_auto_on_a_cpu_never_asks_the_gpu(monkeypatch):
    monkeypatch.setattr(support, "has_triton", lambda: 1 / 0)
    assert explain_dispatch(**qkv(5, 7), softcap=3.0).backend == "torch"


@pytest.mark.parametrize(
    ("statistic", "reason"),
    [
        (TopK(65), "at most 64 keys per row are fused"),
        (Pooled(20), "blocks of 20 cells do not fit tiles; powers of two and multiples of 128 do"),
        (HeadDivergence(), "it must see the tiles"),
        (Custom(lambda tile: tile.weights.sum((-2, -1))), "it must see the tiles"),
    ],
    ids=["top", "pooled", "heads", "custom"],
)
def test_a_statistic_without_a_kernel_is_named(statistic, reason, device):
    given = {key: x.to(device) for key, x in qkv(9, 70, batch=1, heads=2).items()}
    with pytest.raises(BackendError, match=f"^backend='triton' cannot run .*: {re.escape(reason)}\\. Use "):
        observe(**given, stats=[statistic], backend="triton")


def test_one_can_ask_what_will_read_the_map(device):
    x = torch.zeros(1, 1, 40, 16, device=device)
    assert explain_dispatch(x, x, x, backend="triton").second_pass == "fused kernels for GPUs"


def test_a_triton_that_was_not_tried_goes_without_the_kernels_for_hopper(monkeypatch):
    import triton

    from regard.engine.triton.hopper import support as ours
    from regard.engine.triton.launch import untested

    monkeypatch.setattr(ours, "interpreted", lambda: False)
    monkeypatch.setattr(untested, "_warned", set())
    for version, known in (("3.6.0", True), ("4.0.0", False)):
        ours._has_gluon.cache_clear()
        monkeypatch.setattr(triton, "__version__", version)
        if known:
            assert ours._has_gluon()
        else:
            with pytest.warns(RuntimeWarning, match=r"^Triton 4\.0\.0 is untested .* for Hopper are off"):
                assert not ours._has_gluon()
    ours._has_gluon.cache_clear()
