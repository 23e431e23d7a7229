"""The exponent of a known law is found, another law is told apart, and what cannot be fitted is refused."""

from __future__ import annotations

import pytest
import torch

from atlas.builders import recording_of
from regard import AttentionMap, Causal, Chunk, Window
from regard.atlas import decay
from regard.atlas.decay import fit_decay
from regard.atlas.fits import fit_line, log_bins, t_quantile
from regard.errors import RecordingError, StatisticError
from regard.stats import DecayCurve

N = 1025


def map_of(law, n=N, noise=0.5, mask=None, sink=0.0):
    """A head whose scores are a law of the distance, noise, and a liking for the first four keys."""
    place = torch.arange(n)
    distance = (place[:, None] - place).clamp(min=1).double()
    bias = law(distance) + noise * torch.randn(n, n, dtype=torch.float64)
    bias[:, :4] += sink
    zeros = torch.zeros(1, 1, n, 1)
    mask = Causal() if mask is None else mask
    return AttentionMap.of(zeros, zeros, mask=mask, bias=bias.float()[None, None])


def power(gamma):
    return lambda distance: -gamma * distance.log()


def exponential(rate):
    return lambda distance: -rate * distance


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("gamma", [0.5, 1.0, 1.5])
def test_the_exponent_of_a_power_law_lies_in_its_interval(gamma, noise):
    (fit,) = decay(recording_of(map_of(power(gamma), noise=noise)))
    low, high = fit.interval
    # Without noise the interval is as narrow as rounding, and rounding is not random.
    assert low - 1e-5 <= gamma <= high + 1e-5
    assert high - low < 0.1
    assert fit.r2 > 0.99
    assert fit.better == "power law"
    assert fit.aic > 20


@pytest.mark.parametrize("rate", [0.004, 0.02, 0.1])
def test_a_power_law_is_rejected_where_the_decay_is_exponential(rate):
    (fit,) = decay(recording_of(map_of(exponential(rate))))
    assert fit.better == "exponential"
    assert fit.aic < -20
    assert fit.rate == pytest.approx(rate, rel=0.05)
    assert fit.exponential_r2 > fit.r2


@pytest.mark.parametrize("gamma", [0.5, 1.0, 1.5])
def test_intervals_hold_the_exponent_as_often_as_they_say(gamma):
    distance = torch.arange(513)
    inside = 0
    for _ in range(100):
        curve = distance.clamp(min=1).double() ** -gamma * (0.2 * torch.randn(513)).exp()
        fit = fit_decay(DecayCurve(distance, curve, torch.full((513,), 500)), ("decoder", 0, 0))
        inside += fit.interval[0] <= gamma <= fit.interval[1]
    assert inside >= 88


def test_noise_in_the_scores_moves_the_exponent_little():
    (fit,) = decay(recording_of(map_of(power(1.0), noise=1.0)))
    assert fit.gamma == pytest.approx(1, abs=0.05)


def test_means_are_those_of_the_dense_map_over_the_later_queries():
    seen = map_of(power(0.7), n=65)
    (fit,) = decay(recording_of(seen), reach=20)
    dense = seen.dense()[0, 0].double()
    for distance in (0, 1, 7, 20):
        cells = torch.stack([dense[i, i - distance] for i in range(20, 65)])
        assert fit.weight[distance] == pytest.approx(float(cells.mean()), rel=1e-5)
    assert (fit.first, fit.last, fit.queries) == (1, 20, 45)


def test_skipping_sinks_removes_what_they_add_to_the_longest_distances():
    recording = recording_of(map_of(power(1.0), noise=0.2, sink=8.0))
    (with_sinks,), (without,) = decay(recording), decay(recording, skip_sinks=4)
    assert abs(without.gamma - 1) < 0.02 < abs(with_sinks.gamma - 1)
    assert without.r2 > with_sinks.r2
    assert (with_sinks.skip_sinks, without.skip_sinks) == (0, 4)


def test_a_windowed_layer_is_fitted_up_to_its_window_and_says_so():
    (fit,) = decay(recording_of(map_of(power(1.0), mask=Causal() & Window(101))))
    assert fit.last == 100
    assert fit.gamma == pytest.approx(1, abs=0.05)
    assert fit.note == "the mask ends at distance 100: beyond it keys are hidden, not faint"


def test_a_fit_beyond_the_window_is_refused():
    (fit,) = decay(recording_of(map_of(power(1.0), mask=Causal() & Window(101))), reach=300)
    assert fit.gamma is None
    assert fit.better is None
    assert fit.refused == (
        "a fit up to distance 300 was asked for, and the mask ends at distance 100: "
        "beyond it keys are hidden, not faint"
    )


def test_a_window_too_short_for_a_line_is_refused():
    (fit,) = decay(recording_of(map_of(power(1.0), n=129, mask=Causal() & Window(4))))
    assert fit.refused.startswith("distances 1 to 3 make 3 bins, and 6 are wanted: the mask ends")


def test_chunks_end_the_range_where_half_of_the_queries_no_longer_see():
    (fit,) = decay(recording_of(map_of(power(1.0), n=257, mask=Causal() & Chunk(64))))
    assert fit.last < 40
    assert "the mask ends" in fit.note


def test_weights_too_small_for_a_float_end_the_range():
    (fit,) = decay(recording_of(map_of(exponential(2.0), noise=0.0)))
    assert "too small for a float" in fit.note
    assert fit.better == "exponential"


@pytest.mark.parametrize("n", [1, 2, 20])
def test_a_short_text_is_refused(n):
    (fit,) = decay(recording_of(map_of(power(1.0), n=n)))
    assert "are wanted" in fit.refused
    assert fit.to_dict()["gamma"] is None


def test_cross_attention_is_refused():
    zeros = torch.zeros(1, 1, 65, 4)
    (fit,) = decay(recording_of(AttentionMap.of(zeros, zeros), role="cross"))
    assert "two texts" in fit.refused


def test_the_plain_data_of_a_fit_has_its_curve():
    (fit,) = decay(recording_of(map_of(power(1.0), n=65)))
    data = fit.to_dict()
    assert len(data["distance"]) == len(data["weight"]) == 33
    assert data["interval"] == list(fit.interval)
    assert data["better"] == fit.better


def test_progress_is_told_of_every_layer():
    told = []
    seen = map_of(power(1.0), n=65)
    decay(recording_of(seen, seen, seen), progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("reach", [0, 65, -1])
def test_a_reach_outside_the_text_is_refused_with_the_range(reach):
    with pytest.raises(
        StatisticError, match=rf"reach is {reach}, and the text has 65 keys; wanted 1 to 64\."
    ):
        decay(recording_of(map_of(power(1.0), n=65)), reach=reach)


def test_negative_sinks_are_refused():
    with pytest.raises(StatisticError, match="skip_sinks is -1; it counts keys"):
        decay(recording_of(map_of(power(1.0), n=65)), skip_sinks=-1)


def test_an_empty_recording_is_refused():
    with pytest.raises(RecordingError, match="nothing was recorded yet"):
        decay(recording_of())


def test_log_bins_cover_every_distance_once():
    for last in (1, 2, 63, 65, 1000):
        ones = log_bins(torch.ones(last), 1, last)
        assert torch.equal(ones, torch.ones_like(ones))
        assert log_bins(torch.arange(1.0, last + 1), 1, last)[0] == 1


@pytest.mark.parametrize(("freedom", "value"), [(4, 2.776), (10, 2.228), (30, 2.042), (120, 1.980)])
def test_quantiles_are_those_of_the_tables(freedom, value):
    assert t_quantile(0.975, freedom) == pytest.approx(value, abs=1e-2)


def test_a_line_through_noise_has_the_interval_of_repeated_experiments():
    x = torch.linspace(0, 1, 25)
    slopes, widths = zip(
        *((line.slope, line.half_width) for line in (fit_line(x, x + torch.randn(25)) for _ in range(300))),
        strict=True,
    )
    spread = float(torch.tensor(slopes).std())
    assert float(torch.tensor(widths).mean()) == pytest.approx(2.07 * spread, rel=0.2)
