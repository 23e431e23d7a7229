"""`Trace`: the steps of one computation, with methods to print, draw and save them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.tracing.page import as_fragment, as_page
from regard.tracing.panels import panels
from regard.tracing.steps import Steps
from regard.tracing.terminal import as_rich
from regard.tracing.text import as_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import Group

__all__ = ["Trace"]

MOST_ANNOTATED = 24


@dataclass(frozen=True, eq=False, repr=False)
class Trace(Steps):
    """Every step of one attention computation, in order, each under its name.

    `trace.weights` is an array, `trace["weights"]` the whole `Step`. Displays show one batch row and one
    head, by default the first; `query`, a number or a token, restricts them to one query. Below each table,
    the arithmetic of one cell is written out: that of this query (by default the last) and its strongest key.

    >>> from regard.tracing import trace
    >>> steps = trace([[1, 0]], [[1, 0], [0, 1], [1, 1]], [[10, 0], [0, 10], [5, 5]])
    >>> steps
    Trace(1 query × 3 keys: q, k, v, scores, scaled, weights, output)
    >>> steps.weights
    tensor([[0.4011, 0.1978, 0.4011]], dtype=torch.float64)
    >>> steps["weights"]
    Step weights = softmax(scaled) (query 1 × key 3)
    """

    def __str__(self) -> str:
        return as_text(self)

    def __rich__(self) -> Group:
        return as_rich(self)

    def _repr_html_(self) -> str:
        return as_fragment(self)

    def to_text(self, query: int | str | None = None, head: int = 0, batch: int = 0) -> str:
        """Plain text, as `print(trace)` writes it."""
        return as_text(self, query, head, batch)

    def show(self, query: int | str | None = None, head: int = 0, batch: int = 0) -> None:
        """Print in colour to the terminal."""
        from rich.console import Console

        console = Console()
        console.print(as_rich(self, query, head, batch, console.width))

    def to_html(self, query: int | str | None = None, head: int = 0, batch: int = 0) -> str:
        """One self-contained page, without scripts, in light or dark mode."""
        return as_page(self, query, head, batch)

    def to_dict(self) -> dict[str, Any]:
        """The trace as plain data that `json.dumps` takes; infinities become the strings "-inf" and "inf".

        >>> from regard import Causal
        >>> from regard.tracing import trace
        >>> trace([[1], [1]], [[1], [2]], [[1], [1]], Causal()).to_dict()["steps"][4]["value"]
        [[1.0, '-inf'], [1.0, 2.0]]
        """
        return {
            "tokens": list(self.tokens),
            "key_tokens": list(self.key_tokens),
            "steps": [
                {
                    "name": step.name,
                    "formula": step.formula,
                    "sentence": step.sentence,
                    "axes": list(step.axes),
                    "value": _plain(step.value.tolist()),
                }
                for step in self.steps
            ],
        }

    def plot(self, step: str = "weights", head: int = 0, batch: int = 0, ax: Axes | None = None) -> Figure:
        """One step as an annotated heatmap, in `ax` if given; a figure that `savefig` writes to a file."""
        from regard.plots import heatmap

        axes = [axis for axis in self[step].axes if axis not in ("batch", "heads")]
        panel = panels(self, None, head, batch)[self.names.index(step)]
        return heatmap(
            panel.values,
            panel.rows,
            panel.columns,
            annotate=max(panel.values.shape) <= MOST_ANNOTATED,
            hidden=panel.hidden,
            title=panel.formula,
            row_title=axes[0],
            column_title=axes[1] if len(axes) > 1 else "",
            ax=ax,
        )


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
