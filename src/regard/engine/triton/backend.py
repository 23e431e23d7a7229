"""Backend `triton`, and backend `sdpa` on NVIDIA GPUs. Kernels are imported when first used."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard, TypeVar

from jaxtyping import Float
from torch import Tensor

from regard.engine.backend import Backend, Gradients, Upstream
from regard.engine.lazy_zeros import LazyZeros
from regard.engine.problem import Problem
from regard.engine.riders import Riders, Streamed
from regard.engine.riding import Ride
from regard.engine.sdpa_backend import SdpaBackend
from regard.engine.triton import hopper, support
from regard.engine.triton.forward import dispatch, vendor
from regard.engine.triton.replay.calls import replay_or_call
from regard.engine.triton.replay.short import Seen, short_observed
from regard.errors import BackendError
from regard.masks import Mask
from regard.stats import (
    KL,
    Custom,
    Entropy,
    Frame,
    MaxScore,
    MeanDistance,
    Pooled,
    PooledMaps,
    RowMaximum,
    SinkMass,
    State,
    Statistic,
    Student,
    TopK,
    TopKeys,
    by_name,
    folds_of,
)
from regard.stats.folds import Fold

__all__ = ["SdpaOnCuda", "TritonBackend"]

Result = TypeVar("Result")

# Row statistics that every forward pass on a GPU can compute.
ROWS = (Entropy, MaxScore, MeanDistance)
# Block sizes whose maxima a forward pass can return.
GRAINS = (64, 128)
# Calls with statistics of this package can be replayed: their results depend on their arguments only.
OURS = "regard.stats."
# The most leading keys whose weight a forward can return: they fit into one tile.
MAX_FIRST_KEYS = 128


class SdpaOnCuda(SdpaBackend):
    """PyTorch's kernels for NVIDIA GPUs; the reference backend computes the gradients."""

    devices = ("cuda",)
    has_backward = False

    def plain(self, problem: Problem) -> Tensor:
        return vendor.plain(problem)

    def forward(self, problem: Problem, riders: Riders) -> Streamed:
        return Streamed(*vendor.forward(problem))

    def hides_lse(self, problem: Problem) -> str | None:
        if vendor.applicable(problem):
            return None
        return (
            "on a GPU PyTorch's kernels return the log-sum-exp of half precision up to dim "
            f"{vendor.WIDEST} only, and q is {problem.q.dtype} with dim {problem.q.shape[-1]}"
        )


class TritonBackend(Backend):
    """Our kernels for NVIDIA GPUs: attention, row statistics in the same pass, and reading maps."""

    name = "triton"
    devices = ("cuda",)
    has_backward = True
    leads = True
    ignores_large_scores = True

    def refusal(self, problem: Problem) -> str | None:
        return support.refusal(problem)

    def reason(self, problem: Problem, refused: str) -> str:
        return f"fused kernels for what PyTorch's do not do: {refused}"

    def reading(self, problem: Problem, refused: str) -> str:
        fast = problem.q.is_cuda and hopper.applicable(problem)
        return "fused kernels for Hopper" if fast else "fused kernels for GPUs"

    def forward(self, problem: Problem, riders: Riders) -> Streamed:
        return dispatch.attend(problem, riders)

    def backward(self, problem: Problem, riders: Riders, result: Streamed, up: Upstream) -> Gradients | None:
        if up.columns is not None or up.entropy is not None:
            return None
        from regard.engine.triton.backward.launch import backward

        return Gradients(*backward(problem, result.out, result.lse, up.out, up.lse))

    def rides(
        self,
        problem: Problem,
        frame: Frame,
        statistics: Mapping[str, Statistic],
        differentiable: bool = False,
    ) -> Ride | None:
        """Row statistics, the weight of first keys, top keys and block maxima ride; extra columns do not."""
        asked = [s for s in statistics.values() if type(s) is SinkMass]
        first = asked[0].first if asked and _sums_first_keys(problem, asked[0].first) else 0
        riding = {
            name: s
            for name, s in statistics.items()
            if type(s) in ROWS or (type(s) is SinkMass and s.first == first)
        }
        kinds = {type(s) for s in riding.values()}
        riders = Riders(
            entropy=Entropy in kinds,
            distance=MeanDistance in kinds,
            max_score=MaxScore in kinds,
            first=first,
            top_keys=top_keys_asked(statistics),
            grain=grain_asked(statistics),
        )
        return GpuRide(riders, frozenset(riding), statistics)

    def fold(
        self,
        problem: Problem,
        lse: Float[Tensor, "batch heads q"],
        frame: Frame,
        statistics: Mapping[str, Statistic],
        streamed: Streamed | None,
        named: bool,
    ) -> tuple[dict[str, State], set[str]]:
        from regard.engine.triton.second_pass.folds import fold

        zeros = LazyZeros()
        roomy = replace(frame, make_sums=zeros)
        states: dict[str, State] = {name: s.init(roomy) for name, s in statistics.items()}
        folds: dict[str, list[Fold]] = {}
        for name, statistic in statistics.items():
            found = folds_of(statistic, states[name], frame)
            reasons = ["it must see the tiles"] if found is None else map(support.cannot_fold, found)
            why = next((reason for reason in reasons if reason is not None), None)
            if why is None and found is not None:
                folds[name] = found
            elif named:
                raise BackendError(f"backend='triton' cannot run {statistic!r}: {why}. Use backend='torch'.")
        fold(problem, lse, [each for some in folds.values() for each in some], streamed, zeros)
        zeros.clear_all()
        return states, set(folds)

    def student_gradients(
        self,
        problem: Problem,
        lse: Float[Tensor, "batch heads q"],
        student: Student,
        wanted: Sequence[int],
        rows: tuple[Float[Tensor, "batch q"], Float[Tensor, "batch q"], Float[Tensor, "batch q"]],
    ) -> list[Tensor | None]:
        from regard.engine.triton.head_sums.launch import student_gradients

        return student_gradients(problem, lse, student, wanted, rows)

    def short_observed(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        scale: float | None,
        statistics: tuple[object, ...],
    ) -> Seen | None:
        def asked_of(problem: Problem) -> Hashable | None:
            named = by_name(statistics)
            return None if self.refusal(problem) else _asked(named, ("observe", "auto"))

        return short_observed(q, k, v, mask, scale, statistics, asked_of)

    def replay(
        self,
        problem: Problem,
        statistics: Mapping[str, Statistic],
        asked: Hashable,
        call: Callable[[], Result],
    ) -> Result:
        known = _asked(statistics, asked)
        return call() if known is None else replay_or_call(problem, (), known, call)


@dataclass(frozen=True)
class GpuRide(Ride):
    """The statistics that a forward pass on a GPU returned; which these are depends on the kernel."""

    statistics: Mapping[str, Statistic]

    def read(self, result: Streamed) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, statistic in self.statistics.items():
            value = self._value(name, statistic, result)
            if value is not None:
                found[name] = value
        return found

    def rest(
        self, statistics: Mapping[str, Statistic], found: Mapping[str, Any], result: Streamed
    ) -> dict[str, Statistic]:
        left = {name: s for name, s in statistics.items() if name not in found}
        # If the forward returned the maxima of an overview of means and maxima, only the means are left.
        return {name: replace(s, how="mean") if _has_maxima(s, result) else s for name, s in left.items()}

    def join(self, found: Mapping[str, Any], more: Mapping[str, Any], result: Streamed) -> dict[str, Any]:
        joined, maxima = {**found, **more}, result.block_maxima
        for name, mean in more.items():
            if maxima is not None and _has_maxima(self.statistics[name], result):
                joined[name] = PooledMaps(mean, maxima)
        return joined

    def _value(self, name: str, statistic: Statistic, result: Streamed) -> Any:
        """The result of a statistic, or None if the forward did not return it."""
        if _has_maxima(statistic, result):
            return result.block_maxima if statistic.how == "max" else None
        if type(statistic) is TopK:
            weight, key = result.top_weight, result.top_key
            if weight is None or key is None or statistic.k > weight.shape[-1]:
                return None
            return TopKeys(*(x[..., : statistic.k].contiguous() for x in (weight, key)))
        if name not in self.names:
            return None
        if isinstance(statistic, Entropy):
            entropy = result.entropy
            return entropy.detach() if entropy is not None and entropy.requires_grad else entropy
        if isinstance(statistic, MeanDistance):
            return result.distance
        if isinstance(statistic, SinkMass):
            return result.first
        if result.max_score is None or result.argmax is None:
            return None
        return RowMaximum(result.max_score, result.argmax)


def _asked(statistics: Mapping[str, Statistic], more: Hashable) -> Hashable | None:
    """What a recording of an observation depends on besides its problem; None if it can't be replayed."""
    kinds = {type(s) for s in statistics.values()}
    kinds |= {type(s.taught) for s in statistics.values() if isinstance(s, KL)}
    # Other statistics may have side effects or read state of their own, so they run every time.
    if Custom in kinds or not all(kind.__module__.startswith(OURS) for kind in kinds):
        return None
    return (more, *statistics, *statistics.values())


def top_keys_asked(statistics: Mapping[str, Statistic]) -> int:
    """The number of top keys to request: the largest k among the statistics that the forward can return."""
    wanted = [s.k for s in statistics.values() if type(s) is TopK and s.k <= support.MAX_TOP_KEYS]
    return max((k for k in wanted if k <= support.MAX_FUSED_TOP_KEYS), default=max(wanted, default=0))


def grain_asked(statistics: Mapping[str, Statistic]) -> int:
    """The block size of the maxima to request, a divisor of every overview's; 0 if there is none."""
    asked = [s.size for s in statistics.values() if type(s) is Pooled and s.how != "mean"]
    sizes = [size for size in asked if support.fits(size)]
    return max((g for g in GRAINS if all(size % g == 0 for size in sizes)), default=0) if sizes else 0


def _sums_first_keys(problem: Problem, first: int) -> bool:
    """Whether the forward of a problem returns the weight of its `first` keys.

    A decode step always does; other passes do for few keys and a mask of intervals.
    """
    from regard.engine.triton.decode import launch as decode
    from regard.engine.triton.schedule.intervals import has_intervals

    return decode.applicable(problem) or (first <= MAX_FIRST_KEYS and has_intervals(problem))


def _has_maxima(statistic: Statistic, result: Streamed) -> TypeGuard[Pooled]:
    """Whether a forward pass returned block maxima that divide the overview's blocks."""
    if type(statistic) is not Pooled or statistic.how == "mean":
        return False
    return result.block_maxima is not None and statistic.size == result.grain
