"""Claims about where in a text a model looks."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from jaxtyping import Float
from torch import Tensor

from regard.atlas import DecayFit
from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Bars, Curves
from regard.claims.subjects import Subject, subject
from regard.claims.words import number, percent

__all__ = ["CLAIMS"]

# A head whose weight falls off more slowly than this does not decay.
FLAT = 0.1


def _lifts(read: Subject) -> tuple[Float[Tensor, " bins"], float]:
    """Weight by tenths relative to an even spread, over all heads; and that of the first without token 0."""
    profile = read.profile
    lift, even = profile.lift.mean(0), profile.even.mean(0)
    late = slice(-profile.queries, None)
    first = [layer.map[0, :, late, 0].double().mean().item() for layer in read.recording.all_layers]
    return lift, (float(profile.model[0]) - sum(first) / len(first)) / float(even[0])


def measure_middle(trained: bool = True) -> Measurement:
    """The weight of the last queries by tenths of the text, relative to an even spread."""
    lift, rest = _lifts(subject(trained))
    random = subject(False).profile.lift.mean(0)
    middle = lift[3:7].mean().item()
    return Measurement(
        {
            "lift_by_tenth": lift.tolist(),
            "lift_by_tenth_untrained": random.tolist(),
            "middle": middle,
            "beginning_by_middle": lift[0].item() / middle,
            "beginning_by_middle_without_first_token": rest / middle,
            "end_by_middle": lift[-1].item() / middle,
            "noise": (random - 1).abs().max().item(),
        },
        Bars(
            [f"{10 * i}–{10 * i + 10} %" for i in range(len(lift))],
            {"bundled model": lift.tolist(), "untrained": random.tolist()},
            "weight (1 = even spread)",
            "part of the text",
            level=1.0,
        ),
    )


def judge_middle(m: Measurement) -> Verdict:
    begin, end, rest = (
        m[name]
        for name in ("beginning_by_middle", "end_by_middle", "beginning_by_middle_without_first_token")
    )
    found = (
        f"of the last queries' weight the first tenth of the text gets {number(begin)} times and the last "
        f"tenth {number(end)} times what a tenth in the middle gets (no tenth of an untrained copy is more "
        f"than {percent(m['noise'])} off an even spread)"
    )
    # Ten times as far from even as random weights ever are.
    clearly = 1 + 10 * m["noise"]
    if begin <= clearly and end <= clearly:
        return Verdict.folklore(found)
    if min(begin, end) <= clearly:
        side = "the beginning" if begin > end else "the end"
        return Verdict.conditional(f"{found}: only {side} gets clearly more")
    if rest <= clearly:
        return Verdict.conditional(
            f"{found}; but the beginning is the very first token: without it the first tenth gets "
            f"{number(rest)} times a middle one"
        )
    return Verdict.holds(found)


def measure_power(trained: bool = True, fits: Sequence[DecayFit] | None = None) -> Measurement:
    """A power law and an exponential fitted to every head's mean weight by distance."""
    every = subject(trained).fits if fits is None else fits
    made = [fit for fit in every if fit.gamma is not None and fit.interval is not None]
    falling = [fit for fit in made if (fit.interval or (0.0,))[0] > FLAT]
    power = [fit for fit in falling if fit.better == "power law"]
    exponential = [fit for fit in falling if fit.better == "exponential"]
    best = (
        sorted(power, key=lambda fit: -(fit.r2 or 0))[:2]
        + sorted(exponential, key=lambda fit: -(fit.exponential_r2 or 0))[:1]
    )
    shown = best or made[:2]
    return Measurement(
        {
            "heads": len(every),
            "heads_that_decay": len(falling),
            "heads_power_law": len(power),
            "heads_exponential": len(exponential),
            "median_gamma": median([fit.gamma or 0.0 for fit in power]) if power else None,
            "median_r2": median([fit.r2 or 0.0 for fit in power]) if power else None,
        },
        Curves({_name(fit): _points(fit) for fit in shown}, "distance", "mean weight", log="xy"),
    )


def _name(fit: DecayFit) -> str:
    return f"layer {fit.layer}, head {fit.head}: {fit.better or 'neither'}"


def _points(fit: DecayFit) -> tuple[list[int], list[float]]:
    """The curve at distances that look evenly spaced on a logarithmic axis."""
    places = sorted({round(1.12**i) for i in range(60) if 1.12**i < len(fit.weight)})
    return places, [max(float(fit.weight[d]), 1e-9) for d in places]


def judge_power(m: Measurement) -> Verdict:
    share = m["heads_power_law"] / m["heads"]
    found = (
        f"of {m['heads']} heads {m['heads_that_decay']} decay with distance, and a power law describes "
        f"{m['heads_power_law']} of them better, an exponential {m['heads_exponential']}"
    )
    if m["median_gamma"] is not None:
        found += f" (median exponent {number(m['median_gamma'], 2)}, median R² {number(m['median_r2'], 2)})"
    if share > 0.95:
        return Verdict.holds(found)
    if share > 0.5:
        return Verdict.conditional(f"most heads, not all: {found}")
    return Verdict.folklore(f"in {percent(share)} of heads: {found}")


CLAIMS = (
    Claim(
        "lost-in-middle",
        "The beginning and the end of a context get more weight than its middle.",
        "The last queries of the bundled story: weight by tenths of the text; and with random weights.",
        measure_middle,
        judge_middle,
    ),
    Claim(
        "power-law",
        "Mean weight decays with distance as a power law.",
        "Both laws fitted to every head of the bundled model, compared by AIC; the first four keys left out.",
        measure_power,
        judge_power,
    ),
)
