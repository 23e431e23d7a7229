"""The backend protocol: which calls it refuses, how it computes one, and how it reads a map.

A backend is a class in a folder of its own, and one line in `backends.py`. The rest of the engine asks these
questions and knows no backend by name. Only `name`, `refusal` and `forward` are required; the defaults of the
others are right for a backend that has nothing but a forward.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from jaxtyping import Float
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.riders import Riders, Streamed
from regard.engine.riding import Ride
from regard.masks import Mask
from regard.stats import Frame, State, Statistic

__all__ = ["Backend", "Gradients", "Upstream"]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Upstream:
    """Gradients that arrive for what a forward returned.

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

    # Its name in `backend=`. Several backends may share a name, each for its own devices.
    name: ClassVar[str]
    # The device types it supports; None for all.
    devices: ClassVar[tuple[str, ...] | None] = None
    # Set if it only reads maps or observes for other backends; `backend=` does not accept its name.
    helper: ClassVar[bool] = False
    # Whether `backward` computes gradients; otherwise the reference backend does.
    has_backward: ClassVar[bool] = False
    # Whether it reads maps in a second pass.
    reads: ClassVar[bool] = True
    # Set if it must also run the forward of an observation whose map it reads, even if another is faster.
    leads: ClassVar[bool] = False
    # Set if it does not compute maps or gradients in float64 for rows of large scores.
    ignores_large_scores: ClassVar[bool] = False
    # Why no statistic rides in its forward; None where some do.
    without_riders: ClassVar[str | None] = None

    @abstractmethod
    def refusal(self, problem: Problem) -> str | None:
        """Why it cannot compute a problem, or None if it can."""

    def reason(self, problem: Problem, refused: str) -> str:
        """Why `auto` chose it, in words; `refused` says why those before it were not chosen."""
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
        """The output alone, differentiable once, if there is a faster way to it; None if there is not."""
        return None

    def short(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, scale: float | None
    ) -> Tensor | None:
        """The output of an unchecked call without options; None if it must be checked or run in another way.

        It is what `forward` would return. `mask` may be a bool tensor, True = may attend.
        """
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
        """Which statistics its forward brings along, and how; None if it brings none along for a problem."""
        return None

    def reading(self, problem: Problem, refused: str) -> str:
        """What reads a map, in words; `refused` says why the candidates before it do not."""
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

        The others are updated from tiles afterwards. `streamed` is what the forward returned, if known. With
        `named` the backend was chosen by name, so it must refuse what it cannot fold.
        """
        return {name: statistic.init(frame) for name, statistic in statistics.items()}, set()

    def replay(
        self,
        problem: Problem,
        statistics: Mapping[str, Statistic],
        asked: Hashable,
        call: Callable[[], Result],
    ) -> Result:
        """What `call` returns, a whole observation; a backend that records its launches may replay it."""
        return call()
