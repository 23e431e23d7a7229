"""The base class of statistics: a monoid over tiles of the map.

`init` makes the empty state, `update` folds one tile in, `merge` joins two states, `finish` turns a state
into what the user reads. Tiles come in any order and any split, each cell exactly once; `merge` is
associative and commutative up to rounding, so a statistic works across tiles, passes, documents, processes
and machines.
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
    """A statistic, seen by the type of its result: what `finish` returns is the type of `seen[statistic]`."""

    def finish(self, state: State, frame: Frame) -> Result:
        """The result."""
        ...


@dataclasses.dataclass(frozen=True)
class Block:
    """Some of the queries, and the statistic of their rows alone that another statistic is made of.

    That statistic sees a frame of `len(rows)` queries, so it must not ask for the positions of queries.
    """

    rows: range
    statistic: Statistic


class Statistic(ABC):
    """A mergeable summary of a map. Subclasses are frozen dataclasses named by their noun."""

    # Set where `update` reads `tile.log_weights` or `tile.scores`; the pass then keeps them.
    needs_log_weights: ClassVar[bool] = False
    needs_scores: ClassVar[bool] = False
    # Set where `update` leaves other numbers in `tile.log_weights`; such statistics come last.
    spoils_log_weights: ClassVar[bool] = False
    # Set where `update` makes sums that others can use; such statistics come first.
    makes_block_sums: ClassVar[bool] = False
    # Set where `update` must see all heads of a batch row in one tile.
    needs_all_heads: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """How results are keyed: the class name in snake_case, unless renamed."""
        return self.__dict__.get("_name") or _snake_case(type(self).__name__)

    def named(self: Named, name: str) -> Named:
        """The same statistic under another name, so that two of a kind can be asked for at once."""
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
        """Fold one tile into the state, in place."""

    def folds(self, state: State, frame: Frame) -> list[Fold] | None:
        """The sums that `update` computes, as folds into the state; None if it must see the tiles.

        Kernels compute folds while the cells are in registers. A subclass that overrides `update` must
        override this too: inherited folds are ignored.
        """
        return None

    def blocks(self, frame: Frame) -> list[Block] | None:
        """The blocks of queries this statistic is made of; None if it needs the map in one piece.

        A pass then reads only these rows, with the folds of each block's statistic, and `join_blocks` puts
        the states together. `update` must still work: a pass without blocks shows it every tile. As with
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
        """What the user reads: a tensor where one says it all, else a named tuple of tensors.

        The state ends here: its memory may go into the result.
        """


@cache
def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class ColumnStatistic(Statistic):
    """A row statistic of the form sum_j alpha_ij g_j: extra value columns, nearly free in the forward pass.

    Subclasses define `columns` and `finish`. The state holds {"sums": (batch, heads, q, extra)} and, beside
    it, the columns themselves so that they are made once.
    """

    @abstractmethod
    def columns(self, frame: Frame) -> Float[Tensor, "#batch #heads k extra"]:
        """g: one or a few numbers per key. Batch and heads may be 1 where they do not matter."""

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
    """The folds of a statistic, unless a subclass has since changed what `update` means."""
    return statistic.folds(state, frame) if _means(statistic, "folds") else None


def blocks_of(statistic: Statistic, frame: Frame) -> list[Block] | None:
    """The blocks of a statistic, likewise."""
    return statistic.blocks(frame) if _means(statistic, "blocks") else None


def _means(statistic: Statistic, method: str) -> bool:
    """Whether a method is at least as new as `update` in the statistic's line of classes."""
    owner = next((c for c in type(statistic).__mro__ if "update" in vars(c) or method in vars(c)), Statistic)
    return method in vars(owner)


def by_name(statistics: Statistic | Iterable[Any]) -> dict[str, Statistic]:
    """Statistics keyed by name, of one statistic or several; asking for one twice is refused."""
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
    """Suggest a statistic in place of an object that is none."""
    if isinstance(given, type):
        return f" Did you mean {given.__name__}()?"
    kinds = _kinds(Statistic)
    found = next((kind for kind in kinds if given in (kind.__name__, _snake_case(kind.__name__))), None)
    return f" Did you mean {found.__name__}()?" if found is not None else ""


def _kinds(kind: type[Statistic]) -> list[type[Statistic]]:
    return [kind, *(below for sub in kind.__subclasses__() for below in _kinds(sub))]
