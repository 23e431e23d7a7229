"""Analyses a subject that fits no recipe: reads its weights by passing chosen values."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from regard.doctor.adapter import FunctionSubject
from regard.doctor.case import Case
from regard.doctor.fit import Fitting
from regard.doctor.modules import ModuleSubject
from regard.doctor.readings import Reading
from regard.doctor.recipe import Recipe, scores_of
from regard.doctor.slips import healthy_forms
from regard.doctor.subject import Scenario

__all__ = ["readout"]

# The tolerance for logarithms of float32 weights that follow the scores, and the least slope.
TOLERANCE, LEAST = 1e-3, 1e-3
# Weights below this count as 0.
NOTHING = 1e-9
# The least factor for cosines, which lie between -1 and 1: softmax without a factor is nearly flat.
FACTOR = 2.0


def readout(case: Case, scenario: Scenario, fitting: Fitting) -> None:
    """Check for softmax of the scores with a fixed bias; otherwise report the nearest known form."""
    others = _read(case, scenario, case.subject.sample(seed=1))
    for (weights, still, pairs), (again, _, _) in zip(_read(case, scenario), others, strict=False):
        if _chosen(case, weights, again):
            return None
        if _cosines(case, scenario, weights, still, pairs):
            return None
        for base in healthy_forms(positional=True, normed=True):
            scale = _slope(weights, still, scores_of(pairs[0], pairs[1], pairs[2], base))
            if scale is not None:
                scores = scale * scores_of(pairs[0], pairs[1], pairs[2], base)
                if not _summed(case, scenario, weights, still, scores):
                    return None
                return _judge(case, scenario, base, scale, pairs[0].shape[-1] // pairs[2][0])
    error, words = fitting.nearest
    said = f"the nearest, {words}, is {error:.0%} away" if math.isfinite(error) else "none comes near"
    case.leave(
        f"it computes no known form of softmax(q·k)·v: {said}{_sums(case, scenario)}; "
        "only what can be seen from outside was probed. "
        "Queries and keys that are joined from several products (latent attention) are not read: move what "
        "follows the projections into a function of q, k and v, and examine that function"
    )
    return None


def _cosines(case: Case, scenario: Scenario, weights: Tensor, still: Tensor, pairs: Any) -> bool:
    """Whether the weights are softmax of cosines, times a per-head factor or, by mistake, without one."""
    q, k, heads = pairs
    scores = scores_of(q, k, heads, Recipe(norm="unit"))
    subject = case.subject
    parameters = _used(subject) if isinstance(subject, ModuleSubject) else []
    width = q.shape[-1] // heads[0]
    # Norms with gains are another form.
    if weights.shape != scores.shape or any(x.shape == (width,) for x in parameters):
        return False
    each = [slice(head, head + 1) for head in range(heads[0])]
    factors = [_slope(weights[:, at], still[:, at], scores[:, at]) for at in each]
    found = [factor for factor in factors if factor is not None]
    if len(found) < len(each):
        return False
    if min(found) < FACTOR and not any(x.numel() in (1, heads[0]) for x in parameters):
        case.find(
            "normalised-inside",
            f"called {scenario.label}, the weights read off it are softmax of {min(found):.3g} times "
            "cosines, which lie between -1 and 1",
            scenario,
        )
        return True
    case.note("its scores are cosines, of queries and keys scaled to length 1, times a factor")
    return True


def _chosen(case: Case, weights: Tensor, again: Tensor) -> bool:
    """Whether the scores select which keys have weight at all, as in top-k attention."""
    one, two = weights.abs() > NOTHING, again.abs() > NOTHING
    if bool((one == one[:1]).all()) and bool((two == one).all()):
        return False
    counts = one.sum(-1)
    least, most = int(counts.min()), int(counts.max())
    many = f"{least} keys" if least == most else f"{least} to {most} keys"
    case.leave(
        f"it computes another form: {many} of {weights.shape[-1]} take part in a row, and which ones depends "
        "on the scores, as in top-k attention. Compare it with a reference of your own"
    )
    return True


def _summed(case: Case, scenario: Scenario, weights: Tensor, still: Tensor, scores: Tensor) -> bool:
    """Whether the weights of a row sum to 1, except for a per-head factor or an extra key."""
    sums = weights.sum(-1)
    if float((sums - sums[:1, :, :1]).abs().max()) < 1e-3 * float(sums.abs().max()):
        if float((sums - 1).abs().max()) > 1e-3:
            case.note("what each head gives is multiplied by a factor that does not depend on the input")
        return True
    # A sink logit per head, without a value: its share is the same multiple of e^score in every row.
    total = still.sum(-1, keepdim=True)
    mass = (still / total * scores.exp()).sum(-1)
    share = (1 / total - 1)[..., 0]
    if float((mass / (mass + share) - sums).abs().max()) < 1e-3:
        case.note("beside the keys one more logit takes part in softmax, as an attention sink does")
        return True
    low, high = float(sums.min()), float(sums.max())
    words = f"the weights of one query follow e^score and sum to {low:.3g} to {high:.3g}"
    if high > 1 + 1e-3:
        case.find(
            "no-softmax", f"called {scenario.label}, {words}: they are not divided by their sum", scenario
        )
    else:
        case.leave(
            f"it computes another form: {words}, so that something beside the keys takes part. "
            "Compare it with a reference of your own"
        )
    return False


def _used(subject: ModuleSubject) -> list[Tensor]:
    """The parameters that are used; a factor that is stored but not applied doesn't count."""
    held = subject.module.named_parameters()
    return [x for name, x in held if name in subject.anatomy.used]


def _judge(case: Case, scenario: Scenario, base: Recipe, scale: float, width: int) -> None:
    """Judge the scale of a known form: it must be the usual one, unless it is normalised or learnt."""
    case.note("its scores get a bias or a factor that does not depend on the input; the rest is the formula")
    learnt = base.norm is not None or case.subject.own
    if learnt or abs(scale * width**0.5 - 1) < 1e-2:
        return
    code = _scale_code(case, scale, width)
    case.find(
        code,
        f"called {scenario.label}, the weights read off it are softmax of {scale:.4g} q·k plus a bias; "
        f"1/√{width} is {width**-0.5:.4g}",
        scenario,
    )


def _scale_code(case: Case, scale: float, width: int) -> str:
    """The code of the mistake for a scale other than 1/√d_k."""
    heads = getattr(case.subject, "heads", None) or 1
    models = {width * heads, case.subject.token_width or width * heads}
    if abs(scale - 1) < 1e-2:
        return "missing-scale"
    if heads > 1 and any(abs(scale * model**0.5 - 1) < 1e-2 for model in models):
        return "scale-d-model"
    return "scale-twice" if abs(scale * width - 1) < 1e-2 else "wrong-scale"


def _slope(weights: Tensor, still: Tensor, scores: Tensor) -> float | None:
    """The factor of the scores in the logarithms of the weights, if they follow the scores at all."""
    seen = (weights > 1e-12) & (still > 1e-12)
    if weights.shape != scores.shape or not bool(seen.any()):
        return None
    logs = (weights.clamp_min(1e-30).log() - still.clamp_min(1e-30).log()).double()
    count = seen.sum(-1, keepdim=True).clamp_min(1)

    def centred(x: Tensor) -> Tensor:
        x = x.double().masked_fill(~seen, 0.0)
        return (x - x.sum(-1, keepdim=True) / count).masked_fill(~seen, 0.0)

    logs, scores = centred(logs), centred(scores)
    power = float((scores * scores).sum())
    if power < 1e-12:
        return None
    slope = float((logs * scores).sum()) / power
    away = float((logs - slope * scores).abs().max())
    # If the weights don't depend on the scores, as in AFT, any small slope would fit.
    moved = float(logs.abs().max())
    return slope if moved > LEAST and slope > 0 and away < TOLERANCE * max(moved, 1e-2) else None


def _read(case: Case, scenario: Scenario, state: Any = None) -> Any:
    """The weights with the usual queries and with zero queries, and q, k and the heads."""
    subject = case.subject
    state = subject.sample() if state is None else state
    if isinstance(subject, FunctionSubject):
        q, k, _ = state
        pairs = (*(x.transpose(1, 2).flatten(2) for x in (q, k)), (q.shape[1], k.shape[1]))
        shown = [_of_function(subject, scenario, x, k) for x in (q, torch.zeros_like(q))]
        yield shown[0], shown[1], pairs
    elif isinstance(subject, ModuleSubject):
        for reading in subject.readings:
            if reading.certain and reading.query is not None:
                yield from _of_reading(subject, scenario, state, reading)


def _of_function(subject: FunctionSubject, scenario: Scenario, q: Tensor, k: Tensor) -> Tensor:
    columns = []
    for j in range(k.shape[2]):
        v = torch.zeros_like(k)
        v[:, :, j] = 1.0
        columns.append(subject.call(q, k, v, **scenario.how)[..., 0])
    return torch.stack(columns, -1)


def _of_reading(subject: ModuleSubject, scenario: Scenario, state: Tensor, reading: Reading) -> Any:
    _, inside = subject.core(state, scenario)
    parts = subject.parts(inside, reading)
    if parts is None or reading.order != "hd" or parts[0].shape[-1] % reading.heads:
        return
    q, k, v = parts
    width = q.shape[-1] // reading.heads
    if k.shape[-1] % width or reading.heads % (k.shape[-1] // width):
        return
    shown = []
    for still in (False, True):
        columns = []
        # First run with zero values: the output is then a residual or a bias.
        for j in (None, *range(subject.length)):
            wanted = torch.zeros_like(v)
            wanted[:, j] = 1.0 if j is not None else 0.0
            changes = subject.towards(reading.value or (), wanted - v)
            if still:
                changes = _merge(changes, subject.towards(reading.query or (), -q))
            out, seen = subject.watched(state, changes, **scenario.how)
            core = subject.anatomy.core(seen.products, out)
            columns.append(core.unflatten(-1, (reading.heads, -1))[..., 0].transpose(1, 2))
        shown.append(torch.stack([column - columns[0] for column in columns[1:]], -1))
    yield shown[0], shown[1], (q, k, (reading.heads, k.shape[-1] // width))


def _merge(one: dict[int, Tensor], two: dict[int, Tensor]) -> dict[int, Tensor]:
    return {i: sum(x[i] for x in (one, two) if i in x) for i in one | two}  # type: ignore[misc]


def _sums(case: Case, scenario: Scenario) -> str:
    """The sum of one query's weights, if it is not 1."""
    subject = case.subject
    if not isinstance(subject, FunctionSubject):
        return ""
    q, k, v = subject.sample()
    sums = subject.call(q, k, torch.ones_like(v), **scenario.how)
    if not bool(sums.isfinite().all()) or float((sums - 1).abs().max()) < 1e-3:
        return ""
    return f", and the weights of one query sum to {float(sums.flatten()[0]):.3g}, not 1"
