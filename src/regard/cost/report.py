"""Tables and a figure of an estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.cost.count import cache_bytes, decode, prefill
from regard.cost.dtypes import BITS, bytes_of
from regard.cost.figures import AtContext, Figures
from regard.cost.layers import LayerCost
from regard.cost.parameters import parameters
from regard.cost.shape import ModelShape
from regard.cost.units import in_bytes, in_count, in_seconds, in_tokens

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Group
    from rich.table import Table

__all__ = ["figure", "presets_table", "prints_table", "table"]

# The figure's first context; it has a point per doubling up to the longest.
SHORTEST = 256
# Columns of text; the others hold numbers.
LEFT = ("attends to", "layers", "verdict")


def table(found: Figures, *, layers: bool = False) -> Group:
    """The model, its cost by context, its cache by dtype, and its layers: by kind, or with `layers` each.

    >>> from regard.cost import estimate
    >>> len(table(estimate("gpt2", [1024])).renderables)
    4
    """
    from rich.console import Group

    parts = [_model(found), _contexts(found)]
    if found.shape.decodes:
        parts.append(_caches(found))
    return Group(*parts, _layers(found, each=layers))


def figure(found: Figures) -> Figure:
    """Cost over the context length, on logarithmic axes: FLOPs in one panel, bytes in the other.

    >>> from regard.cost import estimate
    >>> [axes.get_ylabel() for axes in figure(estimate("gpt2", [1024])).axes]
    ['FLOPs', 'bytes']
    """
    from regard.plots import panels

    shape, longest = found.shape, max(at.context for at in found.at)
    x = [min(SHORTEST, longest)]
    while x[-1] < longest:
        x.append(min(x[-1] * 2, longest))
    sizes = {"dtype": found.dtype, "batch": found.batch}
    flops = {"prefill": [prefill(shape, n, **sizes).flops for n in x]}
    stored = {f"weights in {found.dtype}": [found.weights for _ in x]}
    if shape.decodes:
        flops["one token"] = [decode(shape, n, **sizes).flops for n in x]
        kept = [cache_bytes(shape, n, dtype=found.cache_dtype, batch=found.batch) for n in x]
        stored[f"cache in {found.cache_dtype}"] = kept
    if shape.heads:
        dense = [bytes_of(found.batch * shape.heads * n * n, found.dtype) for n in x]
        stored["scores of one layer if kept"] = dense
    units = {"FLOPs": flops, "bytes": stored}
    return panels(
        {unit: {name: (x, y) for name, y in lines.items()} for unit, lines in units.items()},
        x_title="context (tokens)",
        title=f"{shape.name}, batch {found.batch}",
        logarithmic=True,
    )


def prints_table() -> Table:
    """Numbers printed in textbooks, with a verdict for each.

    >>> prints_table().row_count
    31
    """
    from regard.cost.prints import prints

    made = _blank("Printed and counted", ("what", "printed", "counted", "verdict"))
    for found in prints():
        exact = f"{found.exact:,}" if isinstance(found.exact, int) else str(found.exact)
        made.add_row(found.what, found.printed, exact, found.verdict)
    return made


def presets_table(shapes: Sequence[ModelShape]) -> Table:
    """Presets: parameters, the reach of their layers, and their training length.

    >>> from regard.cost import preset
    >>> presets_table([preset("gpt2")]).row_count
    1
    """
    made = _blank("Presets", ("name", "parameters", "used by a token", "context", "layers"))
    for shape in shapes:
        learned = parameters(shape)
        kinds = ", ".join(f"{count} × {kind}" for kind, count in shape.kinds.items())
        length = in_tokens(shape.context) if shape.context else "–"
        made.add_row(shape.name, in_count(learned.total), in_count(learned.active), length, kinds)
    return made


def _blank(title: str, columns: tuple[str, ...]) -> Table:
    from rich.table import Table

    made = Table(title=f"\n{title}", title_justify="left", box=None, pad_edge=False)
    for number, name in enumerate(columns):
        made.add_column(name, justify="right" if number and name not in LEFT else "left", no_wrap=True)
    return made


def _model(found: Figures) -> Table:
    shape, learned = found.shape, found.parameters
    made = _blank(shape.name, ("parameters", "in all", "share"))
    made.add_row("all", f"{learned.total:,}", "")
    if learned.active != learned.total:
        uses = {
            "used by one token": learned.active,
            "  without the embedding": learned.active_without_embedding,
        }
        for name, count in uses.items():
            made.add_row(name, f"{count:,}", f"{count / learned.total:.1%}")
    parts = ("attention", "feed_forward", "embeddings", "head", "norms", "other")
    for name in parts:
        count = getattr(learned, name)
        if count:
            made.add_row(f"  {name.replace('_', '-')}", f"{count:,}", f"{count / learned.total:.1%}")
    made.add_row(f"weights in {found.dtype}", in_bytes(found.weights), "")
    if found.budget is not None:
        made.add_row(f"longest context in {in_bytes(found.budget)}", _longest(found), "")
    return made


def _longest(found: Figures) -> str:
    if found.longest is None:
        return "any: nothing kept grows"
    return f"{found.longest:,} tokens" if found.longest else "none: the weights alone are too large"


def _contexts(found: Figures) -> Table:
    columns = (
        "context",
        "prefill FLOPs",
        "bytes",
        "decode FLOPs",
        "bytes",
        "cache",
        "with weights",
        "scores/head",
    )
    times = ("prefill", "one token") if found.gpu else ()
    where = f"; time at best on {found.gpu.name}, bound by compute (c) or memory (m)" if found.gpu else ""
    made = _blank(f"By context, batch {found.batch}{where}", columns + times)
    for at in found.at:
        made.add_row(*_cells(at, found))
    return made


def _cells(at: AtContext, found: Figures) -> list[str]:
    step = (in_count(at.decode.flops), in_bytes(at.decode.bytes)) if at.decode else ("–", "–")
    cells = [
        in_tokens(at.context),
        in_count(at.prefill.flops),
        in_bytes(at.prefill.bytes),
        *step,
        in_bytes(sum(layer.cache_bytes for layer in at.layers)) if at.decode else "–",
        in_bytes(at.memory),
        in_bytes(at.scores.bytes) if at.scores else "–",
    ]
    times = (at.prefill_time, at.decode_time) if found.gpu else ()
    return cells + [f"{in_seconds(time.seconds)} {time.bound[0]}" if time else "–" for time in times]


def _caches(found: Figures) -> Table:
    made = _blank("Cache by dtype", ("dtype", *(in_tokens(at.context) for at in found.at)))
    for name in BITS:
        made.add_row(name, *(in_bytes(at.cache[name]) for at in found.at))
    return made


def _layers(found: Figures, each: bool) -> Table:
    at = found.at[-1]
    columns = (
        "attends to",
        "attention",
        "feed-forward",
        "pairs",
        "proj. FLOPs",
        "pair FLOPs",
        "f.-f. FLOPs",
        "cache",
    )
    made = _blank(f"A layer at {in_tokens(at.context)}", (("layer" if each else "layers"), *columns))
    groups: dict[tuple, list[LayerCost]] = {}
    for layer in at.layers:
        key = (
            (layer.index,)
            if each
            else (layer.attends, layer.feed_forward_parameters, layer.attention_parameters)
        )
        groups.setdefault(key, []).append(layer)
    for members in groups.values():
        layer = members[0]
        made.add_row(
            str(layer.index) if each else f"{len(members)} ×",
            layer.attends,
            in_count(layer.attention_parameters),
            in_count(layer.feed_forward_parameters),
            in_count(layer.pairs),
            in_count(layer.projection_flops),
            in_count(layer.pair_flops),
            in_count(layer.feed_forward_flops),
            in_bytes(layer.cache_bytes),
        )
    return made
