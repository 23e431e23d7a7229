"""The backend protocol: which calls a backend refuses, how it computes one, and how it reads a map.

A backend is a class in a folder of its own, and one line in `backends.py`. The rest of the engine uses only
this protocol and names no backend. Only `name`, `refusal` and `forward` are required; the other defaults suit
a backend that has only a forward.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from jaxtyping import Float
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.riders import Riders, Streamed
from regard.engine.riding import Ride
from regard.masks import Mask
from regard.stats import Frame, State, Statistic, Student

__all__ = ["Backend", "Gradients", "ShortObservation", "Upstream"]

Result = TypeVar("Result")
# The problem, output, log-sum-exp, and the results by name.
ShortObservation = tuple[Problem, Tensor, Tensor, dict[str, Any]]


@dataclass(frozen=True)
class Upstream:
    """The upstream gradients of a forward's results.

    mixed: the sum over all keys of w_ij (d_out_i . v_j), where the problem holds only some of a row's keys.
    """

    out: Float[Tensor, "batch heads q v_dim"]
    lse: Float[Tensor, "batch heads q"] | None = None
    columns: Float[Tensor, "batch heads q extra"] | None = None
    entropy: Float[Tensor, "batch heads q"] | None = None
    mixed: Float[Tensor, "batch heads q"] | None = None


@dataclass(frozen=True)
class Gradients:
    """Gradients of q, k, v, the sink, the rider columns and the scoring parameters; None if not wanted."""

    q: Tensor
    k: Tensor
    v: Tensor
    sink: Tensor | None = None
    columns: Tensor | None = None
    parameters: tuple[Tensor, ...] = ()


class Backend(ABC):
    """One way to compute attention and to read its map."""

    # Its name for `backend=`. Several backends may share a name, each for its own devices.
    name: ClassVar[str]
    # The device types it supports; None for all.
    devices: ClassVar[tuple[str, ...] | None] = None
    # Set if it only reads maps or observes for other backends; then `backend=` doesn't accept its name.
    helper: ClassVar[bool] = False
    # Whether `backward` computes gradients; otherwise the reference backend does.
    has_backward: ClassVar[bool] = False
    # Whether it reads maps in a second pass.
    reads: ClassVar[bool] = True
    # Set if it must also run the forward of an observation whose map it reads, even if another backend is
    # faster.
    leads: ClassVar[bool] = False
    # Set if it does not compute maps or gradients in float64 for rows of large scores.
    ignores_large_scores: ClassVar[bool] = False
    # Why no statistic rides in its forward; None where some do.
    without_riders: ClassVar[str | None] = None

    @abstractmethod
    def refusal(self, problem: Problem) -> str | None:
        """Why it cannot compute a problem, or None if it can."""

    def reason(self, problem: Problem, refused: str) -> str:
        """The text that says why `auto` chose it; `refused` says why earlier backends were not chosen."""
        return refused or "the first choice"

    def wants_float32(self, problem: Problem) -> bool:
        """Whether a problem in half precision should be computed in float32 instead."""
        return False

    @abstractmethod
    def forward(self, problem: Problem, riders: Riders) -> Streamed:
        """The output, the log-sum-exp of every row, and the riders."""

    def hides_lse(self, problem: Problem) -> str | None:
        """Why its forward does not return the log-sum-exp of a problem, or None if it does."""
        return None

    def output(self, problem: Problem) -> Tensor | None:
        """The output alone, differentiable once; None if there is no faster way to compute only that."""
        return None

    def short(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, scale: float | None
    ) -> Tensor | None:
        """The output of an unchecked call without options; None if the call must be validated or run in
        another way.

        The output equals that of `forward`. `mask` may be a bool tensor, True = may attend.
        """
        return None

    def short_observed(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        scale: float | None,
        statistics: tuple[object, ...],
    ) -> ShortObservation | None:
        """The same for an observation."""
        return None

    def transformed(self, problem: Problem) -> Tensor | None:
        """The output inside transforms of `torch.func`, or None if it cannot be computed there."""
        return None

    def backward(self, problem: Problem, riders: Riders, result: Streamed, up: Upstream) -> Gradients | None:
        """The gradients of what `forward` returned, or None where the reference backend must compute them."""
        return None

    def rides(
        self,
        problem: Problem,
        frame: Frame,
        statistics: Mapping[str, Statistic],
        differentiable: bool = False,
    ) -> Ride | None:
        """The statistics that its forward can compute for a problem, and how; None if it computes none."""
        return None

    def reading(self, problem: Problem, refused: str) -> str:
        """The text that says what reads a map; `refused` says why earlier candidates don't."""
        return self.name

    def fold(
        self,
        problem: Problem,
        lse: Float[Tensor, "batch heads q"],
        frame: Frame,
        statistics: Mapping[str, Statistic],
        streamed: Streamed | None,
        named: bool,
    ) -> tuple[dict[str, State], set[str]]:
        """The states of statistics, and the names of those that its kernels have filled.

        The caller updates the other statistics from tiles. `streamed` is the result of the forward, if known.
        With `named` the user chose the backend by name, so it must raise for statistics that it can't fold.
        """
        return {name: statistic.init(frame) for name, statistic in statistics.items()}, set()

    def student_gradients(
        self,
        problem: Problem,
        lse: Float[Tensor, "batch heads q"],
        student: Student,
        wanted: Sequence[int],
        rows: tuple[Float[Tensor, "batch q"], Float[Tensor, "batch q"], Float[Tensor, "batch q"]],
    ) -> list[Tensor | None] | None:
        """The gradients of a `KL` for the student's tensors numbered `wanted`, None for the others.

        `rows` are each row's mass, the log-sum-exp of the student's scores, and the upstream gradient. None
        where the caller must compute the gradients from tiles.
        """
        return None

    def replay(
        self,
        problem: Problem,
        statistics: Mapping[str, Statistic],
        asked: Hashable,
        call: Callable[[], Result],
    ) -> Result:
        """The result of `call`, a whole observation; a backend may replay recorded launches instead."""
        return call()
