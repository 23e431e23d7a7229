"""Scaled rotary frequencies, against numbers worked out from the formulas by hand."""

from __future__ import annotations

import math

import pytest
import torch

from regard.errors import ScoreError
from regard.scores import NTK, DynamicNTK, Linear, Llama3, Rotary, YaRN

SCALINGS = [
    Linear(4.0),
    NTK(4.0),
    DynamicNTK(2.0, 1024),
    Llama3(8.0, 1.0, 4.0, 8192),
    YaRN(4.0, 4096),
    YaRN(4.0, 4096, truncate=False),
]


def frequencies(scaling, theta: float = 10000.0, dim: int = 8, length: int | None = None) -> list[float]:
    found, factor = scaling.frequencies(theta, dim, length)
    assert found.dtype == torch.float64
    assert factor == 1.0
    return found.tolist()


def test_linear_divides_every_frequency():
    assert frequencies(Linear(4.0)) == pytest.approx([0.25, 0.025, 0.0025, 0.00025])


def test_ntk_stretches_the_slowest_pair_by_the_factor_and_the_fastest_not_at_all():
    # theta' = theta * 4^(8/6), so pair i slows by 4^(i/3): 1, 1.5874, 2.5198, 4
    assert frequencies(NTK(4.0)) == pytest.approx([1, 0.0629960525, 0.00396850263, 0.00025])


def test_dynamic_ntk_stretches_by_what_the_length_asks_for():
    # At twice the original length: 2 * 2 - (2 - 1) = 3, and pair i slows by 3^(i/3).
    scaling = DynamicNTK(2.0, original_length=1024)
    assert frequencies(scaling, length=2048) == pytest.approx([1, 0.0693361274, 0.00480749857, 0.001 / 3])


@pytest.mark.parametrize("length", [None, 1, 1023, 1024])
def test_dynamic_ntk_does_nothing_within_the_original_length(length):
    assert frequencies(DynamicNTK(2.0, 1024), length=length) == pytest.approx([1, 0.1, 0.01, 0.001])


def test_llama3_keeps_fast_pairs_divides_slow_ones_and_blends_between():
    # Over 8192 positions the pairs of theta 10^4 turn 1304, 130, 13.04 and 1.3038 times. The last is a
    # share (1.3038 - 1) / (4 - 1) = 0.101266 of the way to being kept: 0.101266 + 0.898734 / 8 = 0.213608.
    assert frequencies(Llama3(8.0, 1.0, 4.0, 8192)) == pytest.approx([1, 0.1, 0.01, 0.000213607594])
    # Over 2048 positions the same pair turns 0.33 times and is divided whole; the one before turns 3.2595
    # times, a share of 0.753164: 0.753164 + 0.246836 / 8 = 0.784019.
    blended = 0.00784018860
    assert frequencies(Llama3(8.0, 1.0, 4.0, 2048)) == pytest.approx([1, 0.1, blended, 0.000125])


def test_yarn_ramps_between_the_pairs_that_turn_32_times_and_once():
    # Over 4096 positions pair 20.94 turns 32 times and pair 45.03 once: the ramp runs from 20 to 46.
    found, _ = YaRN(4.0, original_length=4096).frequencies(10000.0, 128)
    kept = found / Rotary(128).frequencies()[0]
    assert kept[:21].tolist() == pytest.approx([1.0] * 21)
    assert kept[20:47].tolist() == pytest.approx([1 - 0.75 * step / 26 for step in range(27)])
    assert kept[46:].tolist() == pytest.approx([0.25] * 18)


def test_yarn_starts_its_ramp_at_the_first_pair_at_the_earliest():
    # Over 64 positions pair -0.50 would turn 32 times and pair 1.01 turns once: from 0 to 2.
    found, _ = YaRN(4.0, original_length=64).frequencies(10000.0, 8)
    assert found.tolist() == pytest.approx([1, 0.1 * 0.625, 0.01 * 0.25, 0.001 * 0.25])


def test_yarn_ends_its_ramp_at_dim_minus_one_at_the_latest():
    # Over 10^5 positions and theta 100 pair 2.40 turns 1000 times and pair 8.40 would turn once: from 2 to 7.
    found, _ = YaRN(4.0, original_length=100_000, beta_fast=1000.0).frequencies(100.0, 8)
    assert found[3].item() == pytest.approx(100.0**-0.75 * (1 - 0.75 / 5))


def test_yarn_without_truncation_ramps_between_fractions_of_a_pair():
    found, _ = YaRN(4.0, original_length=4096, truncate=False).frequencies(10000.0, 128)
    kept = found / Rotary(128).frequencies()[0]
    assert kept[33].item() == pytest.approx(1 - 0.75 * (33 - 20.9444) / (45.0268 - 20.9444), abs=1e-5)
    assert kept[45].item() == pytest.approx(1 - 0.75 * (45 - 20.9444) / (45.0268 - 20.9444), abs=1e-5)


def test_yarn_survives_a_ramp_of_no_width():
    found, _ = YaRN(4.0, original_length=6, truncate=True).frequencies(10000.0, 128)
    assert found.isfinite().all()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 1.1386294361),
        ({"attention_factor": 0.5}, 0.5),
        ({"factor": 1.0}, 1.0),
        ({"factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.707}, 1.0),
        ({"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.707}, 1.0857259),
        ({"factor": 40.0, "mscale": 2.0}, 1.3688879),
    ],
)
def test_yarn_sharpens_scores_by_the_logarithm_of_its_factor(options, expected):
    _, factor = YaRN(**{"factor": 4.0, "original_length": 4096, **options}).frequencies(10000.0, 128)
    assert factor == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("scaling", SCALINGS, ids=repr)
def test_rotary_uses_the_scaled_frequencies_of_the_dims_that_turn(scaling):
    found, factor = Rotary(64, scaling=scaling, partial=0.5).frequencies(length=5000)
    expected, expected_factor = scaling.frequencies(10000.0, 32, 5000)
    assert torch.equal(found, expected)
    assert factor == expected_factor


@pytest.mark.parametrize("scaling", SCALINGS, ids=repr)
def test_a_factor_of_one_changes_nothing(scaling):
    one = type(scaling)(**{**vars(scaling), "factor": 1.0})
    found, factor = one.frequencies(
        10000.0, 64, scaling.original_length if "original_length" in vars(scaling) else 9
    )
    torch.testing.assert_close(found, Rotary(64).frequencies()[0])
    assert factor == 1.0


class Config:
    """As much of a model's config as transformers' rotary functions read."""

    head_dim, hidden_size, num_attention_heads = 128, 512, 4

    def __init__(self, theta: float, max_position_embeddings: int, **rope_parameters) -> None:
        self.max_position_embeddings = max_position_embeddings
        self.rope_parameters = {"rope_theta": theta, **rope_parameters}

    def standardize_rope_params(self) -> None:
        """The parameters are in the newest form already."""


@pytest.mark.parametrize(
    ("kind", "scaling", "parameters"),
    [
        ("linear", Linear(4.0), {}),
        ("dynamic", DynamicNTK(2.0, 4096), {}),
        ("llama3", Llama3(8.0, 1.0, 4.0, 4096), {"low_freq_factor": 1.0, "high_freq_factor": 4.0}),
        ("yarn", YaRN(4.0, 4096), {}),
        ("yarn", YaRN(32.0, 4096, truncate=False), {"truncate": False}),
        (
            "yarn",
            YaRN(40.0, 4096, beta_fast=16.0, mscale=1.0, mscale_all_dim=0.707),
            {"beta_fast": 16.0, "mscale": 1.0, "mscale_all_dim": 0.707},
        ),
    ],
)
def test_frequencies_are_those_of_transformers(kind, scaling, parameters):
    functions = pytest.importorskip("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS
    config = Config(
        500_000.0, 4096, factor=scaling.factor, original_max_position_embeddings=4096, **parameters
    )
    expected, expected_factor = functions[kind](config, torch.device("cpu"), seq_len=10_000)
    found, factor = scaling.frequencies(500_000.0, 128, 10_000)
    torch.testing.assert_close(found.float(), expected, rtol=2e-6, atol=0)
    assert factor == pytest.approx(expected_factor)


@pytest.mark.parametrize("factor", [0.5, 0.0, -2.0, math.inf, math.nan])
@pytest.mark.parametrize("scaling", SCALINGS[:5], ids=lambda scaling: type(scaling).__name__)
def test_scalings_refuse_a_bad_factor(scaling, factor):
    message = rf"{type(scaling).__name__} has factor {factor}; it must be finite and at least 1"
    with pytest.raises(ScoreError, match=message):
        type(scaling)(**{**vars(scaling), "factor": factor})


@pytest.mark.parametrize("scaling", SCALINGS[2:5], ids=lambda scaling: type(scaling).__name__)
def test_scalings_refuse_an_original_length_of_nothing(scaling):
    message = f"{type(scaling).__name__} has original_length 0; it must be at least 1"
    with pytest.raises(ScoreError, match=message):
        type(scaling)(**{**vars(scaling), "original_length": 0})


@pytest.mark.parametrize(("low", "high"), [(4.0, 1.0), (1.0, 1.0), (0.0, 4.0)])
def test_llama3_refuses_bounds_out_of_order(low, high):
    message = f"Llama3 has low_freq_factor {low} and high_freq_factor {high}; wanted 0 < low"
    with pytest.raises(ScoreError, match=message):
        Llama3(8.0, low, high, 8192)


@pytest.mark.parametrize(("fast", "slow"), [(1.0, 32.0), (1.0, 1.0), (32.0, 0.0)])
def test_yarn_refuses_bounds_out_of_order(fast, slow):
    message = f"YaRN has beta_fast {fast} and beta_slow {slow}; wanted 0 < beta_slow < beta_fast"
    with pytest.raises(ScoreError, match=message):
        YaRN(4.0, 4096, beta_fast=fast, beta_slow=slow)


def test_yarn_refuses_an_attention_factor_of_nothing():
    with pytest.raises(
        ScoreError, match=r"YaRN has attention_factor 0\.0; it must be above 0\. Leave it out"
    ):
        YaRN(4.0, 4096, attention_factor=0.0)


@pytest.mark.parametrize("scaling", [NTK(2.0), DynamicNTK(2.0, 64)], ids=repr)
def test_ntk_refuses_a_single_pair_when_the_rotary_is_made(scaling):
    message = rf"{type(scaling).__name__} got 2 rotated dimensions; .* at least 4 are needed\. Use Linear"
    with pytest.raises(ScoreError, match=message):
        Rotary(2, scaling=scaling)
