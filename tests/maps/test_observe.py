"""`observe` says about the map what the dense map says."""

from __future__ import annotations

import pytest
import torch

import regard
from maps.cases import cases, tensors
from regard import Causal, ColumnMass, Decay, Entropy, MaxScore, Pooled, TopK, observe
from regard.engine.riding import may_ride
from regard.errors import StatisticError
from regard.masks import Dense
from regard.stats import (
    Custom,
    HeadDivergence,
    MeanDistance,
    SegmentMass,
    SinkMass,
    ValueWeighted,
)

CASES = cases()
ROWS = [Entropy(), MaxScore(), MeanDistance(), SinkMass(2), ValueWeighted()]
BACKENDS = ["auto", "torch"]


def entropy_of(weights):
    return -(weights * weights.clamp(min=1e-300).log()).sum(-1)


@pytest.mark.share(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("stats", [ROWS, [*ROWS, ColumnMass()]], ids=["riding", "second pass"])
@pytest.mark.parametrize("name", CASES)
def test_row_statistics_match_the_dense_map_in_either_pass(name, stats, backend):
    case = CASES[name]
    dense = case.dense
    seen = observe(case.q, case.k, case.v, case.mask, stats=stats, backend=backend, **case.options)
    weights, (_, _, q, k) = dense.weights, dense.weights.shape
    distance = (torch.arange(q) + k - q)[:, None] - torch.arange(k)
    norms = case.v.double().norm(dim=-1).repeat_interleave(case.q.shape[1] // case.k.shape[1], 1)
    torch.testing.assert_close(seen.out.double(), dense.out, atol=2e-5, rtol=0)
    torch.testing.assert_close(seen.lse.double(), dense.lse, atol=1e-5, rtol=0)
    torch.testing.assert_close(seen.entropy.double(), entropy_of(weights), atol=2e-5, rtol=0)
    torch.testing.assert_close(seen.sink_mass.double(), weights[..., :2].sum(-1), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(
        seen.mean_distance.double(), (weights * distance).sum(-1), atol=2e-3, rtol=1e-5
    )
    torch.testing.assert_close(
        seen.value_weighted.double(), (weights * norms[:, :, None]).sum(-1), atol=2e-5, rtol=1e-5
    )
    torch.testing.assert_close(seen.max_score.value.double(), dense.scores.amax(-1), atol=1e-5, rtol=1e-5)
    dead = (dense.scores == -torch.inf).all(-1)
    assert torch.equal(seen.max_score.key, dense.scores.argmax(-1).masked_fill(dead, -1))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_statistics_of_the_second_pass_match_the_dense_map(name, backend):
    case = CASES[name]
    weights = case.dense.weights
    stats = [ColumnMass(), TopK(3), Pooled(32, "both"), Decay(signed=True), HeadDivergence()]
    seen = observe(case.q, case.k, case.v, case.mask, stats=stats, backend=backend, **case.options)
    torch.testing.assert_close(seen.column_mass.double(), weights.sum(-2), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(seen.top_k.weight.double(), weights.topk(3).values, atol=1e-6, rtol=1e-4)
    _, _, q, k = weights.shape
    rows, cols = -(-q // 32), -(-k // 32)
    padded = torch.nn.functional.pad(weights, (0, cols * 32 - k, 0, rows * 32 - q))
    blocks = padded.view(*weights.shape[:2], rows, 32, cols, 32)
    torch.testing.assert_close(seen.pooled.max.double(), blocks.amax((3, 5)), atol=1e-6, rtol=1e-4)
    sums = torch.stack([weights.diagonal(d, -2, -1).sum(-1) for d in range(1 - q, k)], -1).flip(-1)
    torch.testing.assert_close((seen.decay.mean * seen.decay.count).double(), sums, atol=1e-4, rtol=1e-4)
    heads = weights.shape[1]
    mean = (weights[:, :, None] + weights[:, None]) / 2
    alone = entropy_of(weights)
    js = entropy_of(mean) - (alone[:, :, None] + alone[:, None]) / 2
    live = (weights.sum(-1) > 0).any(1).sum(-1).clamp(min=1)
    expected = js.sum(-1) / live[:, None, None]
    assert seen.head_divergence.shape == (weights.shape[0], heads, heads)
    torch.testing.assert_close(seen.head_divergence.double(), expected, atol=1e-4, rtol=1e-3)


def test_column_masses_sum_to_the_number_of_live_rows():
    q, k, v = tensors(1, 2, 2, 40, 33)
    seen = observe(q, k, v, Causal(), stats=[ColumnMass()])  # the first 7 queries sit before every key
    torch.testing.assert_close(seen.column_mass.sum(-1), torch.full((1, 2), 33.0))


def test_entropy_of_a_dead_row_is_zero_in_either_pass():
    q, k, v = tensors(1, 1, 1, 10, 4)
    for stats in ([Entropy()], [Entropy(), ColumnMass()]):
        seen = observe(q, k, v, Causal(), stats=stats)
        assert torch.equal(seen.entropy[0, 0, :6], torch.zeros(6))
        assert torch.equal(seen.out[0, 0, :6], torch.zeros(6, 16))
        assert bool((seen.lse[0, 0, :6] == -torch.inf).all())


def test_observing_does_not_change_the_output():
    q, k, v = tensors(1, 4, 2, 200, 200)
    plain = regard.attention(q, k, v, Causal())
    torch.testing.assert_close(observe(q, k, v, Causal()).out, plain, atol=1e-6, rtol=0)
    seen = observe(q, k, v, Causal(), stats=[ColumnMass()])
    torch.testing.assert_close(seen.out, plain, atol=1e-6, rtol=0)


def test_without_statistics_there_is_still_a_map():
    q, k, v = tensors(1, 1, 1, 9, 9)
    seen = observe(q, k, v, stats=[])
    assert seen.stats == {}
    torch.testing.assert_close(seen.map.dense() @ v, seen.out, atol=1e-6, rtol=0)


@pytest.mark.parametrize("rank", [2, 3])
def test_output_keeps_the_rank_of_the_input(rank):
    x = torch.randn(*(3, 7, 8)[3 - rank :])
    seen = observe(x, x, x, stats=[Entropy()])
    assert seen.out.shape == x.shape
    torch.testing.assert_close(seen.out, regard.attention(x, x, x))


def test_gradients_flow_through_out_and_statistics_carry_none():
    q, k, v = (x.requires_grad_() for x in tensors(1, 2, 1, 30, 30, dtype=torch.float64))
    seen = observe(q, k, v, Causal(), stats=[Entropy(), SinkMass(), ColumnMass()])
    assert not seen.entropy.requires_grad
    assert not seen.column_mass.requires_grad
    expected = torch.autograd.grad(regard.attention(q, k, v, Causal()).square().sum(), (q, k, v))
    got = torch.autograd.grad(seen.out.square().sum(), (q, k, v))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=0)


@pytest.mark.parametrize(
    "name",
    ["causal", "dead rows", "sink and soft cap", "sink over dead rows", "alibi", "dense bias", "score mod"],
)
def test_differentiable_entropy_and_masses_have_the_gradient_of_the_dense_map(name):
    case = CASES[name]
    q, k, v = (x.double()[:, :, :50].requires_grad_() for x in (case.q, case.k, case.v))
    leaves = [q, k]
    options = dict(case.options)
    for key in ("sink", "bias"):
        if isinstance(options.get(key), torch.Tensor):
            options[key] = options[key].double()[..., :50].requires_grad_()
            leaves.append(options[key])
    small = type(case)(q, k, v, case.mask, options)
    dense = small.dense
    first = dense.weights[..., :4].sum(-1)
    r = torch.linspace(0.5, 2.0, dense.lse.shape[-1], dtype=torch.float64)
    wanted = torch.autograd.grad((entropy_of(dense.weights) * r + first.square()).sum(), leaves)
    seen = observe(q, k, v, case.mask, stats=[Entropy(), SinkMass()], differentiable=True, **options)
    got = torch.autograd.grad((seen.entropy * r + seen.sink_mass.square()).sum(), leaves)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-7)


def test_a_bias_of_minus_infinity_leaves_the_gradient_of_entropy_a_number():
    torch.manual_seed(0)
    q = torch.randn(1, 2, 9, 4, requires_grad=True)
    allowed = torch.rand(9, 9) < 0.6
    hidden = torch.zeros(9, 9).masked_fill(~allowed, -torch.inf)
    by_mask, by_bias = (
        torch.autograd.grad(observe(q, q, q, stats=[Entropy()], differentiable=True, **how).entropy.sum(), q)[
            0
        ]
        for how in ({"mask": Dense(allowed)}, {"bias": hidden})
    )
    torch.testing.assert_close(by_bias, by_mask)


def test_differentiable_refuses_statistics_without_a_gradient():
    q, k, v = tensors(1, 1, 1, 8, 8)
    with pytest.raises(StatisticError, match="cannot give column_mass a gradient; Entropy, SinkMass"):
        observe(q, k, v, stats=[ColumnMass()], differentiable=True)


def test_statistics_describe_the_weights_before_dropout():
    q, k, v = tensors(1, 1, 1, 64, 64)
    dropped = observe(q, k, v, dropout=0.5, stats=[Entropy()])
    whole = observe(q, k, v, stats=[Entropy()])
    torch.testing.assert_close(dropped.entropy, whole.entropy)
    assert not torch.allclose(dropped.out, whole.out, atol=1e-2)


def test_a_statistic_asked_for_twice_is_refused_and_can_be_renamed():
    q, k, v = tensors(1, 1, 1, 8, 8)
    with pytest.raises(StatisticError, match="sink_mass is asked for twice"):
        observe(q, k, v, stats=[SinkMass(1), SinkMass(2)])
    seen = observe(q, k, v, stats=[SinkMass(1), SinkMass(2).named("first_two")])
    assert bool((seen.first_two > seen.sink_mass).all())


def test_segments_that_miss_tokens_and_too_many_top_keys_are_refused():
    q, k, v = tensors(1, 1, 1, 8, 8)
    with pytest.raises(StatisticError, match="SegmentMass"):
        observe(q, k, v, stats=[SegmentMass([range(0, 3), range(4, 8)])])
    with pytest.raises(StatisticError, match="there are 8; use TopK"):
        observe(q, k, v, stats=[TopK(9)])


def test_an_unknown_statistic_names_what_was_observed():
    q, k, v = tensors(1, 1, 1, 8, 8)
    with pytest.raises(AttributeError, match="'entropi' was not observed; observed were: entropy"):
        _ = observe(q, k, v, stats=[Entropy()]).entropi


def test_a_class_instead_of_a_statistic_gets_a_hint():
    q, k, v = tensors(1, 1, 1, 8, 8)
    with pytest.raises(StatisticError, match=r"Did you mean Entropy\(\)\?"):
        observe(q, k, v, stats=[Entropy])  # type: ignore[list-item]


def test_custom_statistics_see_every_tile_once():
    q, k, v = tensors(1, 2, 2, 700, 1300)
    total = Custom(lambda tile: tile.weights.sum((-2, -1)))
    seen = observe(q, k, v, stats=[total])
    torch.testing.assert_close(seen.custom, torch.full((1, 2), 700.0))


def test_rows_whose_scores_overflow_are_reported():
    q, k, v = tensors(1, 1, 1, 4, 4)
    with pytest.warns(UserWarning, match="4 of 4 rows have scores that are NaN or overflow"):
        observe(q * 1e30, k * 1e30, v)


def test_scores_beyond_float16_are_exact_and_reported():
    q, k, v = (x.to(torch.float16) for x in tensors(1, 1, 1, 4, 4))
    with pytest.warns(UserWarning, match="above float16's 65504"):
        seen = observe(q * 400, k * 400, v, stats=[MaxScore()])
    assert float(seen.max_score.value.max()) > 65504


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_statistics_of_half_precision_inputs_are_float32(dtype):
    q, k, v = (x.to(dtype) for x in tensors(1, 2, 2, 65, 65))
    seen = observe(q, k, v, Causal(), stats=[Entropy(), ColumnMass()])
    dense = torch.softmax((q.double() @ k.double().mT / 4).masked_fill(~Causal().dense(65), -torch.inf), -1)
    assert seen.out.dtype == dtype
    assert seen.entropy.dtype == torch.float32
    # The fused kernel's own lse is good to about 1e-5 in half precision.
    torch.testing.assert_close(seen.column_mass.double(), dense.sum(-2), atol=1e-3, rtol=1e-3)


def test_moving_and_detaching_keep_everything():
    q, k, v = (x.requires_grad_() for x in tensors(1, 2, 2, 9, 9))
    seen = observe(q, k, v, stats=[Entropy(), TopK(2)]).detach().to("cpu")
    assert not seen.out.requires_grad
    assert seen.top_k.key.shape == (1, 2, 9, 2)


def test_repr_names_the_statistics_and_shapes():
    q, k, v = tensors(1, 2, 2, 9, 9)
    text = repr(observe(q, k, v, stats=[Entropy(), TopK(2)]))
    assert "out=[1, 2, 9, 16]" in text
    assert "entropy=[1, 2, 9]" in text
    assert "top_k=TopKeys(weight, key)" in text


def test_statistics_of_rows_ride_in_the_forward_pass_and_no_others_do():
    class Mine(Entropy):
        """May mean something else, so it does not ride."""

    assert all(may_ride(statistic) for statistic in ROWS)
    assert not any(may_ride(s) for s in (Mine(), ColumnMass(), Decay(), Pooled(4), TopK(2), HeadDivergence()))
