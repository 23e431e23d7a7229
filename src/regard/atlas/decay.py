"""The decay of attention with distance, and fits of a power law and an exponential."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.atlas.choice import chosen_text
from regard.atlas.fits import fit_line, log_bins
from regard.atlas.tally import late_decay
from regard.errors import StatisticError
from regard.models import Recording
from regard.models.sites import APART
from regard.stats import DecayCurve

__all__ = ["DecayFit", "decay", "fit_decay"]

# The fewest bins, and the fewest queries per mean, for a meaningful fit.
BINS = 6
QUERIES = 16
# Models whose AIC differs by less are equally good (Burnham and Anderson).
EVEN = 2.0


@dataclass(frozen=True)
class DecayFit:
    """The mean weight of one head by distance, and the laws fitted to it.

    A power law is A(d) = a d^-gamma, an exponential A(d) = a e^(-rate d). `aic` is the exponential's AIC
    minus the power law's: above 2 the power law describes the head better, below -2 the exponential. The fit
    uses distances `first` to `last`; each mean is over `queries` queries. If no fit was made, its numbers are
    None and `refused` says why; `note` says what limited the range.
    """

    stack: str
    layer: int
    head: int
    distance: Int64[Tensor, " distances"] = field(repr=False, compare=False)
    weight: Float[Tensor, " distances"] = field(repr=False, compare=False)
    queries: int
    skip_sinks: int = 0
    first: int | None = None
    last: int | None = None
    gamma: float | None = None
    interval: tuple[float, float] | None = None
    r2: float | None = None
    rate: float | None = None
    exponential_r2: float | None = None
    aic: float | None = None
    refused: str | None = None
    note: str | None = None

    @property
    def better(self) -> str | None:
        """The law that describes the head better: "power law" or "exponential"; None if neither does."""
        if self.aic is None or abs(self.aic) < EVEN:
            return None
        return "power law" if self.aic > 0 else "exponential"

    def to_dict(self) -> dict[str, Any]:
        """The fit as plain data, including its curve."""
        plain = {name: value for name, value in self.__dict__.items() if name not in ("distance", "weight")}
        return {
            **plain,
            "interval": None if self.interval is None else list(self.interval),
            "better": self.better,
            "distance": self.distance.tolist(),
            "weight": self.weight.tolist(),
        }


def decay(
    recording: Recording,
    *,
    stack: str | None = None,
    row: int = 0,
    skip_sinks: int = 0,
    reach: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[DecayFit]:
    """The decay of every head's attention with distance: exact means, and fits of a power law.

    The means are over the queries at position `reach` (half the text) and later, for distances 1 to `reach`:
    each of these queries has each of these distances. `skip_sinks` leaves out the first keys. In a layer with
    a window the fit ends at the window. A `reach` beyond it is refused, because those weights are masked, not
    decayed.

    >>> from regard.models import bundled, watch
    >>> model, tokenizer = bundled()
    >>> with watch(model, layers=[0]) as recording:
    ...     out = model(torch.arange(3, 260)[None])
    >>> fit = decay(recording)[0]
    >>> fit.first, fit.last, fit.queries, fit.interval[0] < fit.gamma < fit.interval[1]
    (1, 128, 129, True)
    """
    if skip_sinks < 0:
        raise StatisticError(f"skip_sinks is {skip_sinks}; it counts keys, and must be at least 0.")
    _, layers = chosen_text(recording, stack, row)
    fits: list[DecayFit] = []
    for done, layer in enumerate(layers):
        seen = layer.map
        keys = seen.shape[3]
        if reach is not None and not 1 <= reach < keys:
            raise StatisticError(f"reach is {reach}, and the text has {keys} keys; wanted 1 to {keys - 1}.")
        far = keys // 2 if reach is None else reach
        (curve,) = late_decay(seen, far, skip_sinks)
        for head in range(seen.shape[1]):
            one = DecayCurve(curve.distance, curve.mean[0, head], curve.count[0, head])
            asked = None if reach is None else far
            fits.append(fit_decay(one, (layer.role, layer.index, head), skip_sinks, asked))
        if progress is not None:
            progress(done + 1, len(layers))
    return fits


def fit_decay(
    curve: DecayCurve, head: tuple[str, int, int], skip_sinks: int = 0, asked: int | None = None
) -> DecayFit:
    """Fit both laws to one head's curve. All of its means must be over the same queries.

    >>> d = torch.arange(65)
    >>> fit = fit_decay(DecayCurve(d, 1 / d.clamp(min=1), torch.full((65,), 100)), ("decoder", 0, 0))
    >>> fit.gamma, fit.better
    (1.0, 'power law')
    """
    stack, layer, index = head
    distance, weight, count = curve.distance.cpu(), curve.mean.cpu().double(), curve.count.cpu()
    queries = int(count[1:].max()) if len(count) > 1 else 0
    plain = {"distance": distance, "weight": weight, "queries": queries, "skip_sinks": skip_sinks}
    last, note = _range(weight, count)
    refused = _refusal(stack, queries, last, note, asked)
    if refused is None:
        fitted = _laws(weight[1 : last + 1], last)
        return DecayFit(stack, layer, index, **plain, first=1, last=last, note=note, **fitted)
    return DecayFit(stack, layer, index, **plain, refused=refused)


def _range(weight: Tensor, count: Tensor) -> tuple[int, str | None]:
    """The last distance that can be fitted, and what ended the range early."""
    most = int(count[1:].max()) if len(count) > 1 else 0
    masked = (count[1:] < max(1, most / 2)).nonzero()
    zero = (weight[1:] <= 0).nonzero()
    ends = [(int(found[0]), why) for found, why in ((masked, "mask"), (zero, "zero")) if len(found)]
    if not ends:
        return len(weight) - 1, None
    end, why = min(ends)
    if why == "mask":
        return end, f"the mask ends at distance {end}: beyond it keys are hidden, not faint"
    return end, f"weights beyond distance {end} are too small for a float"


def _refusal(stack: str, queries: int, last: int, note: str | None, asked: int | None) -> str | None:
    if stack in APART:
        return "queries and keys of cross-attention are of two texts: there is no distance between them"
    if queries < QUERIES:
        return f"only {queries} queries have distances to average over, and {QUERIES} are wanted"
    if asked is not None and last < asked and note is not None:
        return f"a fit up to distance {asked} was asked for, and {note}"
    bins = len(log_bins(torch.zeros(last), 1, last)) if last >= 1 else 0
    if bins < BINS:
        return f"distances 1 to {last} make {bins} bins, and {BINS} are wanted" + (
            f": {note}" if note else ""
        )
    return None


def _laws(weight: Float[Tensor, " distances"], last: int) -> dict[str, Any]:
    """Both laws are lines in log weight. Averaging logs, not weights, in a bin keeps each line straight."""
    d = torch.arange(1, last + 1, dtype=torch.float64)
    log_d, plain_d, log_weight = (log_bins(x, 1, last) for x in (d.log(), d, weight.log()))
    power, exponential = fit_line(log_d, log_weight), fit_line(plain_d, log_weight)
    # Both laws have the same number of parameters, so the difference of AIC is that of the log-likelihoods. A
    # perfect fit leaves only rounding errors, whose ratio means nothing below the precision of the weights.
    floor = len(log_d) * 1e-12
    ratio = max(exponential.residual, floor) / max(power.residual, floor)
    return {
        "gamma": -power.slope,
        "interval": (-power.slope - power.half_width, -power.slope + power.half_width),
        "r2": power.r2,
        "rate": -exponential.slope,
        "exponential_r2": exponential.r2,
        "aic": len(log_d) * math.log(ratio),
    }
