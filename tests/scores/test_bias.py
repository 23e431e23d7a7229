"""ALiBi and T5's relative bias, tile by tile and backwards."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ScoreError, ShapeError
from regard.scores import ALiBi, Bias, RelativeBias
from regard.scores.buckets import bucket_starts, relative_buckets


def published_bucket(relative: int, buckets: int, bidirectional: bool, max_distance: int) -> int:
    """T5's formula, one pair at a time, with the tolerance that exact arithmetic would not need."""
    base = 0
    if bidirectional:
        buckets //= 2
        base = buckets if relative > 0 else 0
        distance = abs(relative)
    else:
        distance = max(-relative, 0)
    near = buckets // 2
    if distance < near:
        return base + distance
    share = math.log(distance / near) / math.log(max_distance / near)
    return base + min(near + math.floor(share * (buckets - near) + 1e-9), buckets - 1)


def relative_bias(heads: int = 3, buckets: int = 8, **options) -> RelativeBias:
    table = torch.randn(heads, buckets, dtype=torch.float64, requires_grad=True)
    return RelativeBias(table, **{"max_distance": 20, **options})


def test_alibi_slopes_for_8_heads_halve_from_one_half():
    assert ALiBi.for_heads(8).slopes.tolist() == [2.0**-i for i in range(1, 9)]


def test_alibi_slopes_for_12_heads_add_every_other_slope_of_16():
    slopes = ALiBi.for_heads(12).slopes
    expected = [2.0**-i for i in range(1, 9)] + [2.0**-0.5, 2.0**-1.5, 2.0**-2.5, 2.0**-3.5]
    torch.testing.assert_close(slopes, torch.tensor(expected), rtol=0, atol=1e-7)


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 16, 63, 65])
def test_alibi_has_one_distinct_slope_per_head(heads):
    slopes = ALiBi.for_heads(heads).slopes
    assert len(slopes.unique()) == heads
    assert 0 < slopes.min() <= slopes.max() < 1


def test_alibi_falls_with_distance_on_both_sides():
    bias = ALiBi(torch.tensor([0.5, 0.25])).tile(torch.arange(5, 8), torch.arange(9))
    for h, slope in enumerate([0.5, 0.25]):
        for i in range(3):
            assert bias[0, h, i].tolist() == [-slope * abs(5 + i - j) for j in range(9)]


def test_alibi_tells_far_neighbours_apart_even_with_bfloat16_slopes():
    bias = ALiBi(torch.tensor([0.5], dtype=torch.bfloat16)).tile(torch.tensor([100_001]), torch.arange(2))
    assert bias.flatten().tolist() == [-50_000.5, -50_000.0]


def test_published_slopes_do_not_learn_and_given_ones_may():
    assert ALiBi.for_heads(8).parameters() == ()
    slopes = torch.ones(8, requires_grad=True)
    assert ALiBi(slopes).parameters() == (slopes,)


@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (32, 64), (16, 1000), (320, 800)])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_buckets_are_those_published(buckets, max_distance, bidirectional):
    relative = torch.arange(-1100, 1101)
    expected = [published_bucket(r, buckets, bidirectional, max_distance) for r in relative.tolist()]
    assert relative_buckets(relative, buckets, bidirectional, max_distance).tolist() == expected


def test_buckets_of_t5_start_where_the_paper_puts_them():
    assert bucket_starts(16, 128) == (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91)


@given(buckets=st.integers(2, 40), extra=st.integers(1, 5000))
def test_buckets_never_fall_with_distance_and_end_at_the_last(buckets, extra):
    max_distance = buckets // 2 + extra
    found = relative_buckets(-torch.arange(max_distance + 2), buckets, False, max_distance)
    assert (found.diff() >= 0).all()
    assert found[0] == 0
    assert found[-1] == buckets - 1


@pytest.mark.parametrize("bidirectional", [True, False])
def test_relative_bias_looks_up_the_bucket_of_every_pair(bidirectional):
    bias = relative_bias(bidirectional=bidirectional)
    q_pos, k_pos = torch.arange(40, 45), torch.arange(65)
    tile = bias.tile(q_pos, k_pos)
    assert tile.shape == (1, 3, 5, 65)
    for i, q in enumerate(q_pos.tolist()):
        for j, k in enumerate(k_pos.tolist()):
            bucket = published_bucket(k - q, 8, bidirectional, 20)
            assert tile[0, :, i, j].tolist() == bias.table[:, bucket].tolist()


def accumulated(bias: Bias, ds: torch.Tensor, q_pos: torch.Tensor, k_pos: torch.Tensor) -> torch.Tensor:
    grad = torch.zeros_like(bias.parameters()[0])
    bias.accumulate((grad,), ds, q_pos, k_pos)
    return grad


def differentiated(bias: Bias, ds: torch.Tensor, q_pos: torch.Tensor, k_pos: torch.Tensor) -> torch.Tensor:
    tile = bias.tile(q_pos, k_pos).expand_as(ds)
    return torch.autograd.grad(tile, bias.parameters(), ds)[0]


@given(
    q=st.integers(1, 33),
    k=st.integers(1, 33),
    q_start=st.integers(0, 80),
    k_start=st.integers(0, 80),
    bidirectional=st.booleans(),
)
def test_accumulate_of_a_relative_bias_is_its_gradient(q, k, q_start, k_start, bidirectional):
    bias = relative_bias(bidirectional=bidirectional)
    q_pos, k_pos = torch.arange(q_start, q_start + q), torch.arange(k_start, k_start + k)
    ds = torch.randn(2, 3, q, k, dtype=torch.float64)
    expected = differentiated(bias, ds, q_pos, k_pos)
    torch.testing.assert_close(accumulated(bias, ds, q_pos, k_pos), expected)


def test_accumulate_of_a_relative_bias_takes_positions_with_gaps():
    bias = relative_bias()
    q_pos, k_pos = torch.tensor([3, 1, 40]), torch.arange(0, 65, 2)
    ds = torch.randn(2, 3, 3, 33, dtype=torch.float64)
    expected = differentiated(bias, ds, q_pos, k_pos)
    torch.testing.assert_close(accumulated(bias, ds, q_pos, k_pos), expected)


def test_accumulate_of_learned_alibi_slopes_is_their_gradient():
    bias = ALiBi(torch.rand(3, dtype=torch.float64, requires_grad=True))
    q_pos, k_pos = torch.arange(60, 63), torch.arange(65)
    ds = torch.randn(2, 3, 3, 65, dtype=torch.float64)
    expected = differentiated(bias, ds, q_pos, k_pos)
    torch.testing.assert_close(accumulated(bias, ds, q_pos, k_pos), expected)


@pytest.mark.parametrize("bias", [relative_bias(), ALiBi(torch.rand(3).double().requires_grad_())], ids=repr)
def test_tiles_add_up_to_the_gradient_of_the_whole(bias):
    ds, positions = torch.randn(1, 3, 65, 65, dtype=torch.float64), torch.arange(65)
    total = torch.zeros_like(bias.parameters()[0])
    for rows in (slice(0, 63), slice(63, 65)):
        for columns in (slice(0, 1), slice(1, 65)):
            bias.accumulate((total,), ds[:, :, rows, columns], positions[rows], positions[columns])
    torch.testing.assert_close(total, differentiated(bias, ds, positions, positions))


@pytest.mark.parametrize("bias", [relative_bias(), ALiBi(torch.rand(3).double().requires_grad_())], ids=repr)
def test_accumulate_takes_a_few_heads_at_a_time(bias):
    ds, positions = torch.randn(2, 3, 5, 5, dtype=torch.float64), torch.arange(5)
    total = torch.zeros_like(bias.parameters()[0])
    for heads in (slice(0, 1), slice(1, 3)):
        bias.accumulate((total[heads],), ds[:, heads], positions, positions)
    torch.testing.assert_close(total, accumulated(bias, ds, positions, positions))


def test_accumulate_adds_into_gradients_of_another_dtype():
    bias, positions = relative_bias(), torch.arange(5)
    ds = torch.randn(1, 3, 5, 5)
    grad = torch.ones(3, 8, dtype=torch.float64)
    bias.accumulate((grad,), ds, positions, positions)
    assert grad.sum().item() == pytest.approx(24 + ds.sum().item(), abs=1e-5)


class Constant(Bias):
    """A learned constant that forgets to define `accumulate`."""

    def __init__(self, learned: bool) -> None:
        self.value = torch.ones(1, requires_grad=learned)

    def tile(self, q_pos, k_pos):
        return self.value.view(1, 1, 1, 1)

    def parameters(self):
        return (self.value,) if self.value.requires_grad else ()


def test_a_bias_without_parameters_needs_no_accumulate():
    Constant(learned=False).accumulate((), torch.ones(1, 1, 3, 3), torch.arange(3), torch.arange(3))


def test_a_learned_bias_without_accumulate_says_so():
    with pytest.raises(ScoreError, match="Constant has parameters but no accumulate; define it, or detach"):
        Constant(learned=True).accumulate(
            (torch.zeros(1),), torch.ones(1, 1, 3, 3), torch.arange(3), torch.arange(3)
        )


def test_a_bias_of_ones_own_fits_any_heads_and_has_no_json_form():
    Constant(learned=False).check(63)
    with pytest.raises(ScoreError, match="Constant has no JSON form; define to_json"):
        Constant(learned=False).to_json()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_biases_survive_json_bit_for_bit(dtype):
    slopes, table = torch.rand(3, dtype=dtype), torch.randn(3, 8, dtype=dtype)
    alibi = Bias.from_json(json.loads(json.dumps(ALiBi(slopes).to_json())))
    assert isinstance(alibi, ALiBi)
    assert alibi.slopes.dtype == dtype
    assert torch.equal(alibi.slopes, slopes)
    given = RelativeBias(table, bidirectional=False, max_distance=63)
    relative = Bias.from_json(json.loads(json.dumps(given.to_json())))
    assert isinstance(relative, RelativeBias)
    assert repr(relative) == repr(given)
    assert relative.table.dtype == dtype
    assert torch.equal(relative.table, table)


def test_reading_an_unknown_bias_names_it():
    with pytest.raises(
        ScoreError, match="no bias is called 'Kerple'; 'ALiBi' and 'RelativeBias' can be read"
    ):
        Bias.from_json({"type": "Kerple"})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"type": "ALiBi"}, "KeyError.*slopes"),
        ({"type": "ALiBi", "slopes": [1.0]}, "Type.*Error"),
        ({"type": "ALiBi", "slopes": {"dtype": "torch.int8", "values": [1]}}, "KeyError.*torch.int8"),
        ({"type": "ALiBi", "slopes": {"dtype": "torch.float32", "values": [[1], [1, 2]]}}, "ValueError"),
        (
            {"type": "RelativeBias", "table": {"dtype": "torch.float32", "values": [[0.0]]}},
            "KeyError.*bidirec",
        ),
    ],
)
def test_reading_a_broken_bias_says_what_is_wrong(data, reason):
    message = f"{data['type']} cannot be read: {reason}.* Wanted what to_json writes"
    with pytest.raises(ScoreError, match=message):
        Bias.from_json(data)


def test_reading_a_bias_of_impossible_shape_says_the_same_as_making_it():
    data = {"type": "ALiBi", "slopes": {"dtype": "torch.float32", "values": [[1.0]]}}
    with pytest.raises(ShapeError, match=r"slopes of ALiBi have shape \(1, 1\); wanted \(heads,\)"):
        Bias.from_json(data)


def test_biases_refuse_the_wrong_number_of_heads():
    with pytest.raises(ShapeError, match=r"ALiBi has 8 slopes and q has 12 heads; .*ALiBi\.for_heads\(12\)"):
        ALiBi.for_heads(8).check(12)
    message = r"table of RelativeBias is \(32, 12\) and q has 12 heads; wanted \(12, buckets\)\. Transpose"
    with pytest.raises(ShapeError, match=message):
        RelativeBias(torch.ones(32, 12)).check(12)
    ALiBi.for_heads(12).check(12)
    RelativeBias(torch.ones(12, 32)).check(12)


def test_biases_refuse_tensors_of_another_rank():
    with pytest.raises(ShapeError, match=r"slopes of ALiBi have shape \(8, 1\); wanted \(heads,\)"):
        ALiBi(torch.ones(8, 1))
    message = r"table of RelativeBias has shape \(32,\); wanted \(heads, buckets\)"
    with pytest.raises(ShapeError, match=message):
        RelativeBias(torch.ones(32))


def test_alibi_refuses_no_heads():
    with pytest.raises(ScoreError, match="ALiBi was asked for 0 heads; at least 1 is needed"):
        ALiBi.for_heads(0)


@pytest.mark.parametrize(
    ("buckets", "bidirectional", "max_distance", "message"),
    [
        (31, True, 128, "31 buckets cannot serve two directions; use an even number"),
        (2, True, 128, "2 buckets are 1 per direction; at least 2 are needed"),
        (1, False, 128, "1 buckets are 1 per direction; at least 2 are needed"),
        (32, True, 8, "max_distance is 8 and a direction has 16 buckets, .* it must be above 8"),
        (32, False, 16, "max_distance is 16 and a direction has 32 buckets, .* it must be above 16"),
    ],
)
def test_relative_bias_refuses_impossible_buckets(buckets, bidirectional, max_distance, message):
    with pytest.raises(ScoreError, match=message):
        RelativeBias(torch.ones(4, buckets), bidirectional, max_distance)
