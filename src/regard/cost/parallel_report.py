"""Tables and a figure of plans over ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from regard.cost.parallel import RankPlan
from regard.cost.units import in_bytes, in_count, in_seconds, in_tokens

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

__all__ = ["plans_table", "sweep_figure", "sweep_table"]


def plans_table(title: str, plans: Sequence[RankPlan]) -> Table:
    """One row per strategy, fastest first: compute, traffic and memory of the busiest rank."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("strategy", no_wrap=True)
    for name in ("time", "compute", "send", "FLOPs", "bytes sent", "memory", "load"):
        table.add_column(name, justify="right", no_wrap=True)
    for plan in plans:
        if plan.refusal is not None:
            table.add_row(plan.strategy, "–", "–", "–", "–", "–", "–", "–")
            continue
        table.add_row(
            plan.strategy,
            in_seconds(plan.seconds),
            in_seconds(plan.compute),
            in_seconds(plan.sending) if plan.bytes_sent else "0",
            in_count(plan.flops),
            in_bytes(plan.bytes_sent),
            in_bytes(plan.memory),
            f"{plan.balance:.2f}",
        )
    return table


def sweep_table(title: str, sweep: Mapping[str, Sequence[RankPlan]]) -> Table:
    """The time of every strategy by the number of ranks; – if it is refused."""
    from rich.table import Table

    ranks = sorted({plan.ranks for plans in sweep.values() for plan in plans})
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("ranks", justify="right", no_wrap=True)
    for name in sweep:
        table.add_column(name.replace("/", "\n"), justify="right", no_wrap=True)
    for count in ranks:
        times = [next((p.seconds for p in plans if p.ranks == count), None) for plans in sweep.values()]
        table.add_row(f"{count:,}", *("–" if time is None else in_seconds(time) for time in times))
    return table


def sweep_figure(sweep: Mapping[str, Sequence[RankPlan]], title: str) -> Figure:
    """The speed-up over one rank, by strategy; a strategy stops scaling at the bend of its line."""
    from regard.plots import panels

    one = next(iter(sweep.values()))[0]
    lines = {
        name: ([p.ranks for p in plans], [one.seconds / p.seconds for p in plans])
        for name, plans in sweep.items()
        if name != "heads/head-tail"  # as fast as heads/contiguous: each rank has the whole sequence
    }
    ranks = sorted({plan.ranks for plans in sweep.values() for plan in plans})
    lines["perfect"] = (ranks, [float(r) for r in ranks])
    named = f"{title}, {in_tokens(one.context)} tokens"
    return panels({"speed-up": lines}, x_title="ranks", title=named, logarithmic=True)
