"""`regard cost`: what a model costs at a context length."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.commands.app import app
from regard.commands.output import figure_file, print_json, save_figure, show
from regard.commands.sources import JsonOption
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.cost import ModelShape, Reach

__all__ = ["cost"]

# The model that is planned for where none is named; the title says so.
PLANNED = "llama-3.1-8b"
OWN = "A model of your own"


@app.command(epilog="Example: regard cost llama-4-maverick --context 4k,32k,128k --gpu H200")
def cost(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A preset, a config.json or its folder. Default: a model of your own.",
        ),
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="LENGTHS", help="Context lengths, such as 4k,32k,128k; k is 1024.")
    ] = None,
    dtype: Annotated[str, typer.Option(metavar="TYPE", help="The data type of the weights.")] = "bfloat16",
    cache_dtype: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="The data type of the cache. Default: that of the weights."),
    ] = None,
    batch: Annotated[int, typer.Option(metavar="N", help="The batch size.")] = 1,
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="GPU", help="Estimate times on this GPU, such as H200. here: measure this machine."
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="The memory to fit into, such as 80GB or 24GiB. Default: the GPU's."
        ),
    ] = None,
    attention: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN", help="The attention of the layers, repeated, such as chunk:8k*3,full."
        ),
    ] = None,
    each_layer: Annotated[bool, typer.Option("--each-layer", help="Print a row for every layer.")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the cost by context length: .png, .svg or .pdf.")
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(metavar="N", help="Plan a prefill over this many GPUs: time, bytes sent, memory."),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --ranks: plan only this strategy, such as gather, ring, heads or ring/head-tail.",
        ),
    ] = None,
    link: Annotated[
        float | None,
        typer.Option(
            metavar="GB/S", help="The bandwidth of a rank. Default: NVLink, and InfiniBand between nodes."
        ),
    ] = None,
    sweep: Annotated[bool, typer.Option("--sweep", help="Plan over 1, 2, 4 … 4096 ranks.")] = False,
    remote: Annotated[
        bool, typer.Option("--remote", help="Download the config from the Hugging Face hub.")
    ] = False,
    presets: Annotated[bool, typer.Option("--presets", help="List the presets.")] = False,
    printed: Annotated[
        bool, typer.Option("--printed", help="Compare published tables with regard's counts.")
    ] = False,
    as_json: JsonOption = False,
    layers: Annotated[int | None, typer.Option(rich_help_panel=OWN, metavar="N", help="Layers.")] = None,
    d_model: Annotated[
        int | None, typer.Option("--d-model", rich_help_panel=OWN, metavar="N", help="Width of the model.")
    ] = None,
    heads: Annotated[int | None, typer.Option(rich_help_panel=OWN, metavar="N", help="Query heads.")] = None,
    kv_heads: Annotated[
        int | None, typer.Option(rich_help_panel=OWN, metavar="N", help="Key and value heads.")
    ] = None,
    head_dim: Annotated[
        int | None, typer.Option(rich_help_panel=OWN, metavar="N", help="Width of a head.")
    ] = None,
    ffn: Annotated[
        int | None, typer.Option(rich_help_panel=OWN, metavar="N", help="Width of the feed-forward layer.")
    ] = None,
    vocab: Annotated[
        int | None, typer.Option(rich_help_panel=OWN, metavar="N", help="Size of the vocabulary.")
    ] = None,
    experts: Annotated[
        int | None, typer.Option(rich_help_panel=OWN, metavar="N", help="Experts in a layer.")
    ] = None,
    active: Annotated[
        int | None, typer.Option(rich_help_panel=OWN, metavar="N", help="Experts that a token uses.")
    ] = None,
) -> None:
    """Count what a model costs: parameters, FLOPs, memory, and the context that fits."""
    from regard.cost import context_of, estimate, size_of
    from regard.cost import gpu as processor_named

    figure_file(plot)
    if presets or printed:
        _lists(presets, as_json)
        return
    if ranks is not None or sweep:
        chosen = (model or PLANNED, context, gpu, ranks, strategy, link)
        _plan(chosen, plot if sweep else None, remote, as_json)
        return
    own = {"layers": layers, "d_model": d_model, "heads": heads, "ffn": ffn, "vocab": vocab} | {
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "experts": experts,
        "active": active,
    }
    shape = _shape(model, {name: value for name, value in own.items() if value is not None}, remote)
    shape = shape if attention is None else _patterned(shape, attention)
    machine = None if gpu is None else processor_named(gpu)
    memory = size_of(budget) if budget is not None else machine.memory if machine else None
    lengths = None if context is None else [context_of(part) for part in context.split(",")]
    sizes = {"dtype": dtype, "cache_dtype": cache_dtype, "batch": batch}
    with warnings.catch_warnings():
        # The notes, printed below, say the same.
        warnings.simplefilter("ignore")
        found = estimate(shape, lengths, processor=machine, budget=memory, **sizes)
    if plot is not None:
        save_figure(found.figure(), plot)
        typer.echo(f"Wrote {plot}", err=True)
    if as_json:
        print_json(found.to_dict())
    else:
        show(found.table(layers=each_layer))
    for note in found.notes:
        typer.echo(f"note: {note}", err=True)


def _plan(chosen: tuple, plot: Path | None, remote: bool, as_json: bool) -> None:
    """Strategies over ranks, fastest first; or each over 1, 2, 4 … ranks."""
    from regard.cost import context_of, link_of, plan_ranks, sweep_ranks
    from regard.cost import gpu as processor_named
    from regard.cost.parallel_report import plans_table, sweep_figure, sweep_table

    model, context, gpu, ranks, strategy, link = chosen
    if gpu is None or context is None:
        raise RegardError("planning over ranks needs --gpu and --context, such as --gpu h200 --context 1M.")
    shape, machine, length = _shape(model, {}, remote), processor_named(gpu), context_of(context)
    where = f"{shape.name}, {length:,} tokens on {machine.name}"
    if ranks is None:
        found = sweep_ranks(shape, length, machine, gigabytes=link)
        if plot is not None:
            save_figure(sweep_figure(found, f"{shape.name} on {machine.name}"), plot)
            typer.echo(f"Wrote {plot}", err=True)
        if as_json:
            print_json({name: [plan.to_dict() for plan in plans] for name, plans in found.items()})
        else:
            show(sweep_table(f"{where}: time of a prefill at best", found))
        return
    joined = link_of(ranks, link)
    plans = plan_ranks(shape, length, ranks, machine, link=joined, strategy=strategy)
    if as_json:
        print_json([plan.to_dict() for plan in plans])
        return
    show(plans_table(f"{where}, {ranks} ranks over {joined.name}", plans))
    for plan in plans:
        if plan.refusal is not None:
            typer.echo(f"note: {plan.strategy} cannot be used: {plan.refusal}.", err=True)
    if plans[0].refusal is None:
        show(f"Best: {plans[0].strategy}.")


def _lists(presets: bool, as_json: bool) -> None:
    from regard.cost import HYBRIDS, PRESETS, preset, prints
    from regard.cost.report import presets_table, prints_table

    if presets:
        made = [preset(name) for name in PRESETS]
        if as_json:
            print_json(
                [{"name": shape.name, "layers": shape.kinds, "context": shape.context} for shape in made]
                + [{"name": name, "layers": None, "context": None} for name in HYBRIDS]
            )
        else:
            show(
                presets_table(made),
                "",
                f"Counted on the model that transformers builds: {', '.join(HYBRIDS)}",
            )
    elif as_json:
        print_json(
            [
                {"what": one.what, "printed": one.printed, "counted": str(one.exact), "verdict": one.verdict}
                for one in prints()
            ]
        )
    else:
        show(prints_table())


def _shape(model: str | None, own: dict[str, int], remote: bool) -> ModelShape:
    from regard.cost import HYBRIDS, PRESETS, FeedForward, ModelShape, from_config, preset

    flags = ", ".join(f"--{name.replace('_', '-')}" for name in own)
    if model is not None:
        if own:
            raise RegardError(f"{model} has its own sizes; leave out {flags}, or leave out the model.")
        if remote or Path(model).exists():
            return from_config(model, remote=remote)
        if "/" in model or model.endswith(".json"):
            return from_config(model)
        return preset(model)
    missing = [name for name in ("layers", "d_model", "heads", "ffn", "vocab") if name not in own]
    if len(missing) == 5 and not own:
        raise RegardError(
            f"no model was named; wanted a preset ({', '.join([*PRESETS, *HYBRIDS])}), a config.json, or "
            "flags."
        )
    if missing:
        lacking = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise RegardError(f"a model of your own also needs {lacking}; {flags} were given.")
    experts, active = own.pop("experts", 0), own.pop("active", 0)
    feed = FeedForward(own.pop("ffn"), gated=True, experts=experts, active=active or min(experts, 1))
    return ModelShape.uniform("your model", ffn=feed, tied=False, **own)  # pyright: ignore[reportArgumentType]


def _patterned(shape: ModelShape, text: str) -> ModelShape:
    """The shape with what its layers see replaced, over and over."""
    repeated = cycle(_pattern(text))
    return replace(shape, layers=tuple(replace(layer, reach=next(repeated)) for layer in shape.layers))


def _pattern(text: str) -> list[Reach]:
    from regard.cost import Reach

    found = []
    for part in text.split(","):
        kind, _, times = part.partition("*")
        if times and not (times.isdigit() and int(times)):
            raise RegardError(
                f"--attention has {part!r}; wanted a number of layers after *, as in chunk:8k*3."
            )
        found += [Reach.parse(kind)] * int(times or 1)
    return found
