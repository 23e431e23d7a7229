"""One of every statistic that can be folded, computed both ways."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from regard.engine import native
from regard.engine.inputs import Options, problem_of
from regard.engine.second_pass import summarise
from regard.engine.torch_backend.forward import forward
from regard.stats import (
    ColumnMass,
    ColumnMax,
    Decay,
    Entropy,
    HeadDivergence,
    Histogram,
    MaxScore,
    MeanDistance,
    NormWeighted,
    Pooled,
    ReceptiveWindow,
    SegmentMass,
    SinkMass,
    SinkRate,
    TopK,
    ValueWeighted,
    VerticalSlash,
    WindowedMass,
)

LOADED = native.load()
ORDER = ["DEFAULT", "AVX2", "AVX512"]
CAPABILITY = torch.backends.cpu.get_cpu_capability()
# The builds that this processor can run.
BUILDS = ORDER[: ORDER.index(CAPABILITY) + 1] if CAPABILITY in ORDER else [CAPABILITY]
where_kernels_are = pytest.mark.skipif(isinstance(LOADED, str), reason=str(LOADED))
# Row weights that differ from row to row, and edges that no weight hits.
SIGNED = torch.linspace(-1, 1, 2000)


def every_statistic(q: int, k: int, heads: int, v_dim: int) -> dict:
    """One of each that has folds, and more of those that take options."""
    w_o = torch.linspace(-1, 1, heads * v_dim * 3).view(heads, v_dim, 3)
    found = {
        "entropy": Entropy(),
        "max score": MaxScore(),
        "distance": MeanDistance(),
        "sink mass": SinkMass(3),
        "segments": SegmentMass.bins(min(5, k), k),
        "value weighted": ValueWeighted(),
        "norm weighted": NormWeighted(w_o),
        "top": TopK(min(5, k)),
        "top one": TopK(1),
        "columns": ColumnMass(),
        "columns by count": ColumnMass(normalise=True),
        "columns by row": ColumnMass(rows=SIGNED[:q]),
        "largest of columns": ColumnMax(),
        "columns of the last rows": ColumnMass(normalise=True, last=max(1, q // 3)),
        "columns by window": WindowedMass(max(1, q // 3)),
        "decay": Decay(signed=True),
        "decay without sinks": Decay(skip_keys=2),
        "window": ReceptiveWindow(0.7),
        "pooled": Pooled(7, "both"),
        "pooled finely": Pooled(1, "max"),
        "pooled coarsely": Pooled(100),
        "lines": VerticalSlash(min(3, k)),
        "histogram": Histogram(),
        "histogram of scores": Histogram("score", (-3.01, 0.013, 2.02)),
        "sink rate": SinkRate(min(1, k - 1)),
        "divergence": HeadDivergence(),
    }
    return {name: statistic.named(name.replace(" ", "_")) for name, statistic in found.items()}


def tensors_of(found) -> list[Tensor]:
    return list(found) if isinstance(found, tuple) else [found]


def both(leaves: dict, statistics: dict | None = None, mask=None, **options):
    """The statistics of one map, natively and by torch operations, from the same log-sum-exp."""
    problem = problem_of(**leaves, options=Options(mask, **options))
    q, k = problem.q_len, problem.k_len
    named = every_statistic(q, k, problem.heads, problem.v.shape[-1]) if statistics is None else statistics
    lse = forward(problem).lse
    assert native.refusal(problem) is None
    return summarise(problem, lse, named), summarise(problem, lse, named, "torch")


def assert_same(
    ours: dict, theirs: dict, loose: float = 1.0, but: tuple[str, ...] = (), tied: tuple[str, ...] = ()
) -> None:
    """Equal to rounding; whole numbers exactly, where no weight lies on an edge and no two are `tied`."""
    for name in theirs:
        for at, (x, y) in enumerate(zip(tensors_of(ours[name]), tensors_of(theirs[name]), strict=True)):
            if name in but:
                continue
            assert (x.dtype, x.shape) == (y.dtype, y.shape), name
            if x.is_floating_point():
                size = max(1.0, float(y[y.isfinite()].abs().max())) if bool(y.isfinite().any()) else 1.0
                torch.testing.assert_close(
                    x, y, rtol=2e-5 * loose, atol=2e-6 * loose * size, msg=lambda m, n=name: f"{n}: {m}"
                )
            elif name not in tied:
                assert torch.equal(x, y), (name, at)
