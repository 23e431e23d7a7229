"""What the fuzzing of `attention` allows in float64, where the oracle rounds as much as what it judges."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fuzzing.calls import Call
from fuzzing.targets.attention import ROUNDINGS, differentiated, floors, judge, upstream_of
from regard.scores import ALiBi

WIDER = np.finfo(np.longdouble).eps < np.finfo(np.float64).eps


def steep_call(seed: int) -> Call:
    """A call whose scores are as large as slopes of 3 make them at distances up to 128."""
    random = torch.Generator().manual_seed(seed)
    lengths = {"q": 129, "k": 7, "v": 7}
    leaves = {name: torch.randn(1, 2, n, 3, generator=random).double() for name, n in lengths.items()}
    leaves["slopes"] = torch.tensor([3.1, -2.3], dtype=torch.float64)
    call = Call(leaves, backend="torch")
    distance = (torch.arange(7 - 129, 7)[:, None] - torch.arange(7)).abs()
    call.structured = lambda x: {"bias": ALiBi(x["slopes"])}
    call.plain = lambda x: {"bias": -x["slopes"][:, None, None] * distance}
    return call


def exact(call: Call) -> np.ndarray:
    """The output in numbers of 80 bits."""
    q, k, v, slopes = (x.numpy().astype(np.longdouble) for x in call.leaves.values())
    distance = np.abs(np.arange(7 - 129, 7)[:, None] - np.arange(7))
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) * np.longdouble(3**-0.5)
    scores = scores - slopes[:, None, None] * distance
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)) @ v


@pytest.mark.skipif(not WIDER, reason="needs a long double of 80 bits")
def test_the_oracle_in_float64_is_as_far_off_as_the_rounding_of_its_scores():
    beyond = []
    for seed in range(8):
        call = steep_call(seed)
        out = differentiated(call.dense, call.leaves)["out"]
        error = float(np.abs(out.numpy() - exact(call)).max())
        ours = float(np.abs(call.ours(call.leaves).detach().numpy() - exact(call)).max())
        allowed = floors(call, upstream_of(out, call.dtype))["out"]
        assert max(error, ours) <= allowed / 2
        beyond.append(
            error > ROUNDINGS * torch.finfo(torch.float64).eps * call.leaves["v"].abs().max().item()
        )
    # So the roundings of a sum alone are no fair bound: the oracle itself would fail by it.
    assert any(beyond)


@pytest.mark.parametrize("name", ["out", "q", "k", "v"])
def test_an_error_beyond_what_rounding_costs_is_found(name, monkeypatch):
    call = steep_call(0)
    judge(call)
    allowed = floors(call, upstream_of(call.ours(call.leaves), call.dtype))[name]
    wrong = {key: x.clone() for key, x in differentiated(call.ours, call.leaves).items()}
    wrong[name].flatten()[5] += 2 * allowed
    theirs = differentiated

    def one_wrong(function, *given):
        return wrong if function == call.ours else theirs(function, *given)

    monkeypatch.setattr("fuzzing.targets.attention.differentiated", one_wrong)
    with pytest.raises(AssertionError, match=f"^{name} is off by"):
        judge(call)


def test_below_float64_the_size_of_a_score_allows_nothing_more():
    call = steep_call(0)
    narrow = Call({name: x.float() for name, x in call.leaves.items()}, backend="torch")
    narrow.structured, narrow.plain = call.structured, call.plain
    allowed = floors(narrow, upstream_of(narrow.ours(narrow.leaves), narrow.dtype))["out"]
    assert allowed <= ROUNDINGS * torch.finfo(torch.float32).eps * narrow.leaves["v"].abs().max().item()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_oracle_differentiates_what_the_call_was_given(dtype):
    call = steep_call(0)
    given = {name: x.to(dtype) for name, x in call.leaves.items() if name != "slopes"}
    narrow = Call(given, backend="torch")
    exact = differentiated(narrow.dense, given, torch.float64)
    assert torch.equal(upstream_of(exact["out"], dtype), upstream_of(exact["out"].to(dtype), dtype).double())
    # Sums in float32 of what is given: rounded once, when a gradient is written.
    for name, x in differentiated(narrow.ours, given).items():
        size = exact[name].abs().max()
        torch.testing.assert_close(x.double(), exact[name], rtol=0, atol=2 * torch.finfo(dtype).eps * size)
