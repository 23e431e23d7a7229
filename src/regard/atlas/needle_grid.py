"""Needle tests by the length of the text and the depth of the hidden sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.atlas.needle import NeedleTest, needle
from regard.atlas.results import plain, table_of
from regard.errors import RegardError

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["NeedleGrid", "needle_grid"]


@dataclass(frozen=True)
class NeedleGrid:
    """A needle test for each length; `gains` is the answer's log-probability above that without the needle,
    in nats."""

    lengths: tuple[int, ...]
    depths: tuple[float, ...]
    answer: str
    gains: tuple[tuple[float, ...], ...]

    @property
    def best(self) -> tuple[int, float]:
        """The length and the depth at which the answer gains most."""
        cells = {
            (n, d): g
            for n, row in zip(self.lengths, self.gains, strict=True)
            for d, g in zip(self.depths, row, strict=True)
        }
        return max(cells, key=lambda at: cells[at])

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `json.dumps` takes."""
        return plain(self)

    def table(self) -> Table:
        """A row per length, for Rich: the answer's gain at every depth."""
        rows = [
            [str(n), *(f"{gain:+.2f}" for gain in row)]
            for n, row in zip(self.lengths, self.gains, strict=True)
        ]
        length, depth = self.best
        return table_of(
            f"{self.answer.strip()!r}: nats gained over a text without it",
            ["tokens", *(f"{depth:.0%}" for depth in self.depths)],
            rows,
            f"found best at {depth:.0%} of {length} tokens; put what matters there",
        )


def needle_grid(
    model: Any,
    tokenizer: Any,
    lengths: Sequence[int],
    *,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> NeedleGrid:
    """Hide a sentence at several depths of texts of several lengths; `options` are those of `needle`.

    >>> from regard.models import bundled
    >>> grid = needle_grid(*bundled(), [150, 300], depths=3)
    >>> len(grid.gains), len(grid.gains[0]), min(map(min, grid.gains)) > 0
    (2, 3, True)
    """
    if not lengths:
        raise RegardError("needle_grid got no lengths; give one or more numbers of tokens.")
    tests: list[NeedleTest] = []
    for done, length in enumerate(lengths):
        tests.append(needle(model, tokenizer, length=length, **options))
        if progress is not None:
            progress(done + 1, len(lengths))
    return NeedleGrid(
        tuple(lengths),
        tests[0].depths,
        tests[0].answer,
        tuple(tuple(value - test.control for value in test.log_probability) for test in tests),
    )
