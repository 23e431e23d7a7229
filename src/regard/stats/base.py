"""The base class of statistics: a monoid over tiles of the map.

`init` makes the empty state, `update` adds one tile to a state, `merge` joins two states, `finish` computes
the result from a state. Tiles come in any order and any split, each cell exactly once; `merge` is associative
and commutative up to rounding, so a statistic works across tiles, passes, documents, processes and machines.
"""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar

from jaxtyping import Float
from torch import Tensor

from regard.errors import StatisticError
from regard.stats.folds import Fold, MixFold
from regard.stats.tile import Frame, MapTile

__all__ = [
    "Block",
    "ColumnStatistic",
    "Finishes",
    "State",
    "Statistic",
    "blocks_of",
    "by_name",
    "find_result",
    "folds_of",
]

# Plain tensors by name, so that states can be sent, saved and merged anywhere.
State = dict[str, Tensor]
# Not Self: beartype checks one method at a time and does not know the class.
Named = TypeVar("Named", bound="Statistic")
Result = TypeVar("Result", covariant=True)


class Finishes(Protocol[Result]):
    """The typing protocol of a statistic: the type that `finish` returns is the type of `seen[statistic]`."""

    def finish(self, state: State, frame: Frame) -> Result:
        """The result."""
        ...


@dataclasses.dataclass(frozen=True)
class Block:
    """Some of the queries, and a statistic of only their rows, which is part of another statistic.

    That statistic sees a frame of `len(rows)` queries, so it must not use positions of queries.
    """

    rows: range
    statistic: Statistic


class Statistic(ABC):
    """A mergeable summary of a map. Subclasses are frozen dataclasses."""

    # Set if `update` reads `tile.log_weights` or `tile.scores`; the pass then provides them.
    needs_log_weights: ClassVar[bool] = False
    needs_scores: ClassVar[bool] = False
    # Set if `update` overwrites `tile.log_weights`; such statistics are updated last.
    spoils_log_weights: ClassVar[bool] = False
    # Set if `update` computes sums that other statistics can use; such statistics are updated first.
    makes_block_sums: ClassVar[bool] = False
    # Set if `update` needs all heads of a batch row in one tile.
    needs_all_heads: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The name of the result: the class name in snake_case, unless renamed."""
        return self.__dict__.get("_name") or _snake_case(type(self).__name__)

    def named(self: Named, name: str) -> Named:
        """The same statistic under another name, so that two of one class can be requested at once."""
        if not name.isidentifier():
            raise StatisticError(f"name {name!r} is not an identifier; results are read as attributes.")
        other = dataclasses.replace(self) if dataclasses.is_dataclass(self) else self  # type: ignore[type-var]
        object.__setattr__(other, "_name", name)
        return other

    def check(self, frame: Frame) -> None:
        """Raise StatisticError if this statistic cannot be computed over such a map."""

    @abstractmethod
    def init(self, frame: Frame) -> State:
        """The state before the first tile."""

    @abstractmethod
    def update(self, state: State, tile: MapTile) -> None:
        """Add one tile to the state, in place."""

    def folds(self, state: State, frame: Frame) -> list[Fold] | None:
        """The sums that `update` computes, as folds into the state; None if it needs the tiles.

        Kernels compute folds while the cells are in registers. A subclass that overrides `update` must
        override this too: inherited folds are ignored.
        """
        return None

    def blocks(self, frame: Frame) -> list[Block] | None:
        """The blocks of queries that this statistic consists of; None if it needs the map in one piece.

        A pass then reads only these rows, with the folds of each block's statistic, and `join_blocks` joins
        the states. `update` must still work, because a pass without blocks calls it for every tile. As with
        `folds`, a subclass that overrides `update` must override this too.
        """
        return None

    def join_blocks(self, states: list[State], frame: Frame) -> State:
        """This statistic's state, from the states of its blocks in their order."""
        raise NotImplementedError

    def merge(self, state: State, other: State) -> State:
        """Join two states of disjoint tiles of one map (or of two maps); sums by default."""
        return {key: state[key] + other[key] for key in state}

    @abstractmethod
    def finish(self, state: State, frame: Frame) -> Any:
        """The result: a tensor, or a named tuple of tensors.

        The state must not be used afterwards, because the result may reuse its memory.
        """


@cache
def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class ColumnStatistic(Statistic):
    """A row statistic of the form sum_j alpha_ij g_j: extra value columns, nearly free in the forward pass.

    Subclasses define `columns` and `finish`. The state holds {"sums": (batch, heads, q, extra)} and the
    columns themselves, so that they are computed once.
    """

    @abstractmethod
    def columns(self, frame: Frame) -> Float[Tensor, "#batch #heads k extra"]:
        """g: one or a few numbers per key. Batch and heads may be 1 if g doesn't depend on them."""

    def init(self, frame: Frame) -> State:
        columns = self.columns(frame).detach().to(frame.dtype).expand(frame.batch, frame.heads, -1, -1)
        return {"sums": frame.zeros(frame.batch, frame.heads, frame.q, columns.shape[-1]), "columns": columns}

    def update(self, state: State, tile: MapTile) -> None:
        tile.of_rows(state["sums"]).add_(tile.weights @ tile.of_cols(state["columns"]))

    def folds(self, state: State, frame: Frame) -> list[Fold] | None:
        # 0 * inf is NaN, and a kernel may read more cells of weight 0 than the tiles hold.
        finite = bool(state["columns"].isfinite().all())
        return [MixFold(state["sums"], state["columns"])] if finite else None

    def merge(self, state: State, other: State) -> State:
        return {"sums": state["sums"] + other["sums"], "columns": state["columns"]}


def folds_of(statistic: Statistic, state: State, frame: Frame) -> list[Fold] | None:
    """The folds of a statistic; None if a subclass overrides `update` but not `folds`."""
    return statistic.folds(state, frame) if _means(statistic, "folds") else None


def blocks_of(statistic: Statistic, frame: Frame) -> list[Block] | None:
    """The blocks of a statistic; None if a subclass overrides `update` but not `blocks`."""
    return statistic.blocks(frame) if _means(statistic, "blocks") else None


def _means(statistic: Statistic, method: str) -> bool:
    """Whether a method is defined in the same class as `update`, or in a subclass of it."""
    owner = next((c for c in type(statistic).__mro__ if "update" in vars(c) or method in vars(c)), Statistic)
    return method in vars(owner)


def by_name(statistics: Statistic | Iterable[Any]) -> dict[str, Statistic]:
    """One statistic or several as a dict by name; StatisticError if a name occurs twice."""
    found: dict[str, Statistic] = {}
    single = isinstance(statistics, Statistic | str | type)
    for statistic in (statistics,) if single else statistics:
        if not isinstance(statistic, Statistic):
            raise StatisticError(f"stats holds {statistic!r}, which is not a statistic.{_hint(statistic)}")
        name = statistic.name
        if name in found:
            raise StatisticError(
                f"{name} is asked for twice: {found[name]!r} and {statistic!r}. "
                f"Rename one, for example {type(statistic).__name__}(...).named('other')."
            )
        found[name] = statistic
    return found


def find_result(results: Mapping[str, Any], asked: Mapping[str, Statistic], wanted: Any) -> Any:
    """The result of a statistic, given by the statistic, its class or its name, or StatisticError.

    `asked` holds the statistics that were computed; a name that is not in it is looked up by name alone.
    """
    known = ", ".join(results) or "none"
    if isinstance(wanted, type):
        names = [name for name, statistic in asked.items() if type(statistic) is wanted]
        if len(names) > 1:
            raise StatisticError(
                f"{wanted.__name__} was observed {len(names)} times, as {', '.join(names)}; "
                "index with one of these names or with the statistic itself."
            )
        name = names[0] if names else _snake_case(wanted.__name__)
    else:
        name = wanted.name if isinstance(wanted, Statistic) else wanted
    if name not in results:
        shown = wanted.__name__ if isinstance(wanted, type) else wanted
        raise StatisticError(
            f"{shown!r} was not observed; observed were: {known}. Ask for it in stats=[...]."
        )
    given = asked.get(name)
    if isinstance(wanted, Statistic) and given is not None and given is not wanted and given != wanted:
        raise StatisticError(
            f"{wanted!r} was not observed: {name} is that of {given!r}. Index with that, or observe again."
        )
    return results[name]


def _hint(given: object) -> str:
    """Suggest a statistic for an object that isn't one."""
    if isinstance(given, type):
        return f" Did you mean {given.__name__}()?"
    kinds = _kinds(Statistic)
    found = next((kind for kind in kinds if given in (kind.__name__, _snake_case(kind.__name__))), None)
    return f" Did you mean {found.__name__}()?" if found is not None else ""


def _kinds(kind: type[Statistic]) -> list[type[Statistic]]:
    return [kind, *(below for sub in kind.__subclasses__() for below in _kinds(sub))]
