"""Claims about where in a text a model looks."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from regard.atlas import DecayFit
from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Curves
from regard.claims.subjects import book
from regard.claims.words import number, percent

__all__ = ["CLAIMS"]

# A head whose weight falls off more slowly than this does not decay.
FLAT = 0.1


def measure_power(trained: bool = True, fits: Sequence[DecayFit] | None = None) -> Measurement:
    """A power law and an exponential fitted to every head's mean weight by distance."""
    every = book(trained, tokens=4096).fits if fits is None else fits
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
    """The curve as far as it was fitted, at distances that look evenly spaced on a logarithmic axis."""
    # A window ends the fit, since it hides the keys beyond.
    end = min(fit.last or len(fit.weight), len(fit.weight) - 1)
    places = sorted({min(round(1.2**i), end) for i in range(60)})
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
        "power-law",
        "Mean weight decays with distance as a power law.",
        "Both laws fitted to every head of the bundled model over 4,096 tokens of a book, compared by AIC; "
        "the first four keys left out.",
        measure_power,
        judge_power,
        of_a_model=True,
    ),
)
