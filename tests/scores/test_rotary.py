"""Rotary positions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from regard.errors import ScoreError, ShapeError
from regard.scores import DynamicNTK, Linear, Rotary, YaRN


def by_complex_numbers(x: torch.Tensor, positions: list[int], theta: float) -> torch.Tensor:
    """The paper's definition: neighbouring dimensions are one complex number, turned by e^(i m theta_j)."""
    dim = x.shape[-1]
    out = torch.empty_like(x)
    for row, position in enumerate(positions):
        for pair in range(dim // 2):
            angle = position * theta ** (-2 * pair / dim)
            number = torch.complex(x[..., row, 2 * pair], x[..., row, 2 * pair + 1])
            turned = number * complex(math.cos(angle), math.sin(angle))
            out[..., row, 2 * pair], out[..., row, 2 * pair + 1] = turned.real, turned.imag
    return out


def double(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("length", [1, 63, 65])
def test_interleaved_layout_is_the_papers_rotation(length):
    x = double(2, 3, length, 8)
    found = Rotary(8, theta=500.0, interleaved=True).rotate(x)
    torch.testing.assert_close(found, by_complex_numbers(x, list(range(length)), 500.0))


@given(half=st.integers(1, 9), length=st.integers(1, 65))
def test_layouts_agree_under_the_permutation_that_maps_one_to_the_other(half, length):
    x = double(1, 2, length, 2 * half)
    order = torch.arange(2 * half).view(half, 2).T.flatten()  # even dimensions, then odd ones
    halves = Rotary(2 * half).rotate(x[..., order])
    pairs = Rotary(2 * half, interleaved=True).rotate(x)
    torch.testing.assert_close(halves, pairs[..., order])


@pytest.mark.parametrize("interleaved", [True, False])
def test_rotation_keeps_the_norm_of_every_row(interleaved):
    x = double(2, 3, 65, 16)
    turned = Rotary(16, interleaved=interleaved).rotate(x, offset=100_000)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert not torch.allclose(turned, x, atol=0.1)


@given(i=st.integers(0, 5000), j=st.integers(0, 5000), shift=st.integers(-5000, 5000), halved=st.booleans())
def test_scores_depend_on_the_distance_alone(i, j, shift, halved):
    rotary = Rotary(8, partial=0.5 if halved else 1.0)
    q, k = double(1, 1, 1, 8), double(1, 1, 1, 8)

    def score(i: int, j: int) -> torch.Tensor:
        return (rotary.rotate(q, offset=i) * rotary.rotate(k, offset=j)).sum()

    torch.testing.assert_close(score(i, j), score(i + shift, j + shift), rtol=0, atol=1e-9)


@pytest.mark.parametrize("interleaved", [True, False])
def test_negative_positions_undo_a_rotation(interleaved):
    x, positions = double(2, 3, 63, 8), torch.randint(0, 10_000, (63,))
    rotary = Rotary(8, interleaved=interleaved)
    torch.testing.assert_close(rotary.rotate(rotary.rotate(x, positions), -positions), x)


@pytest.mark.parametrize("interleaved", [True, False])
def test_partial_turns_the_first_dims_and_leaves_the_rest_untouched(interleaved):
    x = double(1, 2, 65, 16)
    turned = Rotary(16, partial=0.25, interleaved=interleaved).rotate(x)
    assert torch.equal(turned[..., 4:], x[..., 4:])
    torch.testing.assert_close(turned[..., :4], Rotary(4, interleaved=interleaved).rotate(x[..., :4]))


def test_an_offset_is_a_shift_of_positions():
    x = double(1, 2, 5, 8)
    assert torch.equal(Rotary(8).rotate(x, offset=63), Rotary(8).rotate(x, torch.arange(63, 68)))


def test_every_sequence_of_a_batch_may_have_its_own_positions():
    x, positions = double(2, 3, 5, 8), torch.stack([torch.arange(5), torch.arange(65, 70)])
    turned = Rotary(8).rotate(x, positions)
    for b in range(2):
        torch.testing.assert_close(turned[b : b + 1], Rotary(8).rotate(x[b : b + 1], positions[b]))
    one_row = Rotary(8).rotate(x, positions[1:])
    torch.testing.assert_close(one_row, Rotary(8).rotate(x, positions[1]))


def test_bfloat16_at_position_100_000_is_as_good_as_its_own_rounding():
    x = torch.randn(1, 4, 64, 128).bfloat16()
    rotary, start = Rotary(128), 100_000
    turned = rotary.rotate(x, offset=start)
    assert turned.dtype == torch.bfloat16
    error = (turned.double() - rotary.rotate(x.double(), offset=start)).abs()
    # A float32 angle of 10^5 is rounded by 2^-8 at most and its frequency by 2^-24 of itself; bfloat16 then
    # rounds the result by 2^-9 of itself. Angles in bfloat16 would be off by up to 256 radians.
    pair = x.double().unflatten(-1, (2, 64)).norm(dim=-2).repeat(1, 1, 1, 2)
    assert (error <= pair * (2**-8 + (start + 64) * 2**-24 + 2**-9)).all()


def test_float32_angles_are_not_rounded_to_the_dtype_of_x():
    x = torch.ones(1, 1, 1, 2, dtype=torch.float16)
    turned = Rotary(2).rotate(x, offset=100_001)  # beyond the largest float16
    exact = [math.cos(100_001) - math.sin(100_001), math.cos(100_001) + math.sin(100_001)]
    assert turned.flatten().tolist() == pytest.approx(exact, abs=2e-3)


def test_the_attention_factor_multiplies_what_turns():
    x = double(1, 2, 63, 8)
    rotary = Rotary(8, scaling=YaRN(4.0, 64, attention_factor=1.5), partial=0.5)
    turned = rotary.rotate(x)
    torch.testing.assert_close(turned[..., :4].norm(dim=-1), 1.5 * x[..., :4].norm(dim=-1))
    torch.testing.assert_close(turned[..., 0, :4], 1.5 * x[..., 0, :4])
    assert torch.equal(turned[..., 4:], x[..., 4:])


def test_linear_scaling_is_a_division_of_positions():
    x = double(1, 1, 63, 8)
    scaled = Rotary(8, scaling=Linear(4.0)).rotate(x, 4 * torch.arange(63))
    torch.testing.assert_close(scaled, Rotary(8).rotate(x))


@pytest.mark.parametrize(("q_length", "k_length"), [(1, 65), (63, 65), (65, 65), (5, 3)])
def test_a_pair_is_aligned_at_the_end(q_length, k_length):
    q, k = double(1, 4, q_length, 8), double(1, 2, k_length, 8)
    q_turned, k_turned = Rotary(8).rotate_pair(q, k)
    assert torch.equal(k_turned, Rotary(8).rotate(k))
    assert torch.equal(q_turned, Rotary(8).rotate(q, offset=k_length - q_length))


def test_queries_of_a_pair_take_the_last_key_positions():
    q, k = double(2, 2, 3, 8), double(2, 2, 5, 8)
    positions = torch.tensor([[0, 0, 0, 1, 2], [7, 8, 9, 10, 11]])
    q_turned, k_turned = Rotary(8).rotate_pair(q, k, positions)
    assert torch.equal(q_turned, Rotary(8).rotate(q, positions[:, 2:]))
    assert torch.equal(k_turned, Rotary(8).rotate(k, positions))


def test_dynamic_scaling_turns_queries_and_keys_by_the_length_of_the_keys():
    rotary = Rotary(8, scaling=DynamicNTK(2.0, 16))
    q, k = double(1, 1, 1, 8), double(1, 1, 65, 8)
    fixed = {"positions": torch.arange(65), "length": 65}
    q_turned, k_turned = rotary.rotate_pair(q, k)
    assert torch.equal(k_turned, rotary.rotate(k, **fixed))
    assert torch.equal(q_turned, rotary.rotate(q, offset=64))
    first_half = rotary.rotate(k[:, :, :32], length=65)
    assert torch.equal(first_half, k_turned[:, :, :32])
    assert not torch.allclose(rotary.rotate(k[:, :, :32]), first_half)
    assert not torch.allclose(Rotary(8).rotate(k), k_turned)


def test_dynamic_scaling_of_a_pair_looks_at_all_the_key_positions():
    rotary, q, k = Rotary(8, scaling=DynamicNTK(2.0, 16)), double(1, 1, 2, 8), double(1, 1, 4, 8)
    q_turned, _ = rotary.rotate_pair(q, k, torch.tensor([63, 64, 0, 1]))  # two documents, the second short
    assert torch.equal(q_turned, rotary.rotate(q, torch.arange(2), length=65))
    assert not torch.allclose(q_turned, rotary.rotate(q, torch.arange(2)))


def test_dynamic_scaling_reads_the_length_from_given_positions():
    rotary, k = Rotary(8, scaling=DynamicNTK(2.0, 16)), double(1, 1, 3, 8)
    positions = torch.tensor([10, 64, 20])
    assert torch.equal(rotary.rotate(k, positions), rotary.rotate(k, positions, length=65))


@pytest.mark.parametrize("interleaved", [True, False])
def test_gradients_through_a_rotation_are_right(interleaved):
    rotary = Rotary(6, scaling=YaRN(4.0, 64), partial=0.7, interleaved=interleaved)
    x = torch.randn(1, 2, 3, 6, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: rotary.rotate(x, offset=50), x)


def test_no_rows_turn_into_no_rows():
    scaled = Rotary(8, scaling=DynamicNTK(2.0, 16))
    assert scaled.rotate(torch.ones(1, 2, 0, 8)).shape == (1, 2, 0, 8)


def test_equal_rotaries_are_one_key():
    assert {Rotary(64, scaling=Linear(2.0)), Rotary(64, scaling=Linear(2.0))} == {
        Rotary(64, scaling=Linear(2.0))
    }


@pytest.mark.parametrize(
    ("options", "turning"), [({"dim": 63}, 63), ({"dim": 0}, 0), ({"dim": 10, "partial": 0.5}, 5)]
)
def test_rotary_refuses_dims_that_make_no_pairs(options, turning):
    message = rf"Rotary\(dim={options['dim']}, .*\) would turn {turning} dimensions; they turn in pairs"
    with pytest.raises(ScoreError, match=message):
        Rotary(**options)


@pytest.mark.parametrize("partial", [0.0, -0.5, 1.5, math.nan])
def test_rotary_refuses_a_bad_part(partial):
    with pytest.raises(ScoreError, match=rf"Rotary has partial={partial}; it must be above 0 and at most 1"):
        Rotary(64, partial=partial)


@pytest.mark.parametrize("theta", [1.0, 0.0, -10000.0, math.inf, math.nan])
def test_rotary_refuses_a_bad_theta(theta):
    with pytest.raises(ScoreError, match=rf"Rotary has theta={theta}; it must be a finite number above 1"):
        Rotary(64, theta=theta)


def test_rotary_refuses_another_dim_and_suggests_splitting_heads():
    message = (
        r"Rotary was made for dim 64 and got a tensor of shape \(1, 1, 3, 512\); .* split the heads first"
    )
    with pytest.raises(ShapeError, match=message):
        Rotary(64).rotate(torch.ones(1, 1, 3, 512))


def test_rotary_refuses_a_tensor_without_heads():
    message = r"got a tensor of shape \(1, 3, 64\); wanted \(batch, heads, length, dim\)"
    with pytest.raises(ShapeError, match=message):
        Rotary(64).rotate(torch.ones(1, 3, 64))


@pytest.mark.parametrize("shape", [(4,), (3, 5), (2, 4), (1, 1, 5)])
def test_rotary_refuses_positions_of_another_shape(shape):
    with pytest.raises(ShapeError, match=r"positions have shape .*; wanted \(5,\) or \(2, 5\)"):
        Rotary(8).rotate(torch.ones(2, 1, 5, 8), torch.ones(shape, dtype=torch.int64))


def test_rotary_refuses_positions_and_an_offset_together():
    with pytest.raises(ScoreError, match="got positions and offset=3; give one: add the offset"):
        Rotary(8).rotate(torch.ones(1, 1, 5, 8), torch.arange(5), offset=3)


def test_a_pair_with_positions_refuses_more_queries_than_keys():
    message = "5 queries cannot take the last of 3 key positions; rotate q and k one at a time"
    with pytest.raises(ShapeError, match=message):
        Rotary(8).rotate_pair(torch.ones(1, 1, 5, 8), torch.ones(1, 1, 3, 8), torch.arange(3))
